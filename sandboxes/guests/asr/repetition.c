#include "repetition.h"

#include <string.h>

#define LEAST_TOKENS 24
#define LEAST_ROUNDS 4
#define LONGEST_PERIOD 32

size_t without_loop(const int32_t *tokens, size_t count) {
  for (size_t period = 1; period <= LONGEST_PERIOD && LEAST_ROUNDS * period <= count; period++) {
    const int32_t *last = tokens + count - period;
    size_t rounds = 1;
    while ((rounds + 1) * period <= count &&
           memcmp(last, last - rounds * period, period * sizeof *tokens) == 0) {
      rounds++;
    }
    if (rounds >= LEAST_ROUNDS && rounds * period >= LEAST_TOKENS) return count - (rounds - 1) * period;
  }
  return count;
}
