/* The intrinsics of SSE2 by which stb_image decodes JPEG, in WebAssembly's SIMD: decoding takes half the time.
 * Names and meanings: Intel's intrinsics guide. Shift counts and shuffles are constants, hence the macros. */
#ifndef VISION_EMMINTRIN_H
#define VISION_EMMINTRIN_H

#include <wasm_simd128.h>

typedef v128_t __m128i;

#define SSE2 static inline __m128i __attribute__((always_inline))

SSE2 _mm_setzero_si128(void) { return wasm_i32x4_splat(0); }
SSE2 _mm_set1_epi8(int value) { return wasm_i8x16_splat((int8_t)value); }
SSE2 _mm_set1_epi16(int value) { return wasm_i16x8_splat((int16_t)value); }
SSE2 _mm_set1_epi32(int value) { return wasm_i32x4_splat(value); }
SSE2 _mm_load_si128(const __m128i *from) { return wasm_v128_load(from); }
SSE2 _mm_loadl_epi64(const __m128i *from) { return wasm_v128_load64_zero(from); }
static inline void _mm_storeu_si128(__m128i *to, __m128i a) { wasm_v128_store(to, a); }
static inline void _mm_storel_epi64(__m128i *to, __m128i a) { wasm_v128_store64_lane(to, a, 0); }

SSE2 _mm_add_epi16(__m128i a, __m128i b) { return wasm_i16x8_add(a, b); }
SSE2 _mm_add_epi32(__m128i a, __m128i b) { return wasm_i32x4_add(a, b); }
SSE2 _mm_sub_epi16(__m128i a, __m128i b) { return wasm_i16x8_sub(a, b); }
SSE2 _mm_sub_epi32(__m128i a, __m128i b) { return wasm_i32x4_sub(a, b); }
SSE2 _mm_xor_si128(__m128i a, __m128i b) { return wasm_v128_xor(a, b); }
SSE2 _mm_madd_epi16(__m128i a, __m128i b) { return wasm_i32x4_dot_i16x8(a, b); }
SSE2 _mm_packs_epi32(__m128i a, __m128i b) { return wasm_i16x8_narrow_i32x4(a, b); }
SSE2 _mm_packus_epi16(__m128i a, __m128i b) { return wasm_u8x16_narrow_i16x8(a, b); }
SSE2 _mm_slli_epi16(__m128i a, int count) { return wasm_i16x8_shl(a, (uint32_t)count); }
SSE2 _mm_srai_epi16(__m128i a, int count) { return wasm_i16x8_shr(a, (uint32_t)count); }
SSE2 _mm_srli_epi16(__m128i a, int count) { return wasm_u16x8_shr(a, (uint32_t)count); }
SSE2 _mm_srai_epi32(__m128i a, int count) { return wasm_i32x4_shr(a, (uint32_t)count); }

/* The upper halves of the products. */
SSE2 _mm_mulhi_epi16(__m128i a, __m128i b) {
  v128_t low = wasm_i32x4_extmul_low_i16x8(a, b), high = wasm_i32x4_extmul_high_i16x8(a, b);
  return wasm_i16x8_shuffle(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
}

SSE2 _mm_unpacklo_epi8(__m128i a, __m128i b) {
  return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
SSE2 _mm_unpackhi_epi8(__m128i a, __m128i b) {
  return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
SSE2 _mm_unpacklo_epi16(__m128i a, __m128i b) { return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
SSE2 _mm_unpackhi_epi16(__m128i a, __m128i b) { return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

#define _mm_setr_epi16 wasm_i16x8_make
#define _mm_insert_epi16(a, value, lane) wasm_i16x8_replace_lane(a, lane, (int16_t)(value))
#define _mm_shuffle_epi32(a, order) \
  wasm_i32x4_shuffle(a, a, (order) & 3, (order) >> 2 & 3, (order) >> 4 & 3, (order) >> 6 & 3)

/* Shifts by whole bytes: a window of 16 over the value with 16 zeros before or after it. */
#define SIXTEEN_FROM(a, b, n)                                                                        \
  wasm_i8x16_shuffle(a, b, (n), (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7, (n) + 8, \
                     (n) + 9, (n) + 10, (n) + 11, (n) + 12, (n) + 13, (n) + 14, (n) + 15)
#define _mm_slli_si128(a, count) SIXTEEN_FROM(_mm_setzero_si128(), a, 16 - (count))
#define _mm_srli_si128(a, count) SIXTEEN_FROM(a, _mm_setzero_si128(), count)

#endif
