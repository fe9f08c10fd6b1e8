/* mesh_v1: the unit ABI of hailmesh, for units written in C. The whole SDK is this one header.
 *
 * A unit is a core WebAssembly module, a WASI preview 1 reactor. It exports
 *
 *   memory
 *   _initialize()               run once in every fresh instance, before anything else
 *   mesh_abi() -> 1
 *   mesh_reserve(bytes) -> ptr  64 KiB-aligned space of its own for a window, or 0; called by the host
 *                               from inside part_map and tensor_map, so it must not call the host.
 *                               The space is the unit's again (to free, say) after tensor_unmap and
 *                               tensor_drop; a part's goes to windows of the instance's next request
 *   mesh_handle() -> errno      answer one request
 *
 * and imports what it uses from module "mesh_v1". All parameters and results are i32 unless marked.
 * A result >= 0 is success; < 0 is a negative errno, numbered as in WASI preview 1 (<errno.h> of
 * wasi-libc). Every pointer is into the unit's own memory. Calls that fill a buffer return the full
 * length and write at most `cap` bytes: call again with more room when the result exceeds `cap`.
 *
 * mesh_handle returns 0 once a reply was given. A negative errno refuses the request instead, with the
 * bytes last given to mesh_reply as the message: EINVAL malformed (HTTP 400), E2BIG over a limit (413),
 * ENOTSUP a media type this unit doesn't take (415), ENOENT not found (404); any other is a fault (500).
 */
#ifndef MESH_V1_H
#define MESH_V1_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MESH_IMPORT(name) __attribute__((import_module("mesh_v1"), import_name(name)))
#define MESH_EXPORT(name) __attribute__((export_name(name)))

/* Element types; 0 to 5 are numbered as in wasi-nn. */
enum mesh_dtype {
  MESH_F16 = 0, MESH_F32 = 1, MESH_F64 = 2, MESH_U8 = 3, MESH_I32 = 4, MESH_I64 = 5,
  MESH_I8 = 6, MESH_I16 = 7, MESH_U16 = 8, MESH_U32 = 9, MESH_U64 = 10, MESH_BOOL = 11
};

enum mesh_level { MESH_DEBUG = 0, MESH_INFO = 1, MESH_WARNING = 2, MESH_ERROR = 3 };

enum mesh_map { MESH_READ = 0, MESH_WRITE = 1 };

#define MESH_MAX_RANK 8

typedef struct {
  int32_t dtype, rank;
  uint32_t nbytes;
  int32_t dims[MESH_MAX_RANK];
} mesh_tensor_info_t; /* 44 bytes */

/* The unit's configuration: JSON, `config` of its unit.toml. */
MESH_IMPORT("config") int32_t mesh_config(void *buf, int32_t cap);

/* The request's inputs. part_info writes JSON:
 *   {"name":"image","type":"image/jpeg","size":52113,"streamed":false}
 *   {"name":"input","type":"tensor","size":602112,"streamed":false,"dtype":1,"shape":[1,3,224,224]}
 * The request's own options, if any, are a part named "params" of type application/json. */
MESH_IMPORT("part_count") int32_t mesh_part_count(void);
MESH_IMPORT("part_info") int32_t mesh_part_info(int32_t part, void *buf, int32_t cap);
/* A pointer to the part's bytes, mapped to read: stores land in a private copy. ENOMSG if it is empty.
 * A streamed part is mapped with all its room; only what part_wait has announced is content. */
MESH_IMPORT("part_map") int32_t mesh_part_map(int32_t part);
/* Waits until a streamed part has more than `offset` bytes, and returns how many more; 0: it has ended. */
MESH_IMPORT("part_wait") int32_t mesh_part_wait(int32_t part, int32_t offset);
/* The part as a read-only tensor handle: u8 bytes, or the dtype and shape it came with. No copy. */
MESH_IMPORT("part_tensor") int32_t mesh_part_tensor(int32_t part);

/* Tensors in the arena, by handle (> 0). A new tensor is zeroed. It freezes at its first use as an input,
 * its first map to read, or its reply; a frozen tensor can't be mapped to write or be an output. */
MESH_IMPORT("tensor_new") int32_t mesh_tensor_new(int32_t dtype, int32_t rank, const int32_t *dims);
MESH_IMPORT("tensor_info") int32_t mesh_tensor_info(int32_t tensor, mesh_tensor_info_t *info);
/* A pointer to the tensor's bytes. MESH_WRITE: stores are seen by everyone who gets the tensor. */
MESH_IMPORT("tensor_map") int32_t mesh_tensor_map(int32_t tensor, int32_t mode);
MESH_IMPORT("tensor_unmap") int32_t mesh_tensor_unmap(int32_t tensor);
MESH_IMPORT("tensor_drop") int32_t mesh_tensor_drop(int32_t tensor);

/* Graphs of this unit's own image. graph_info writes JSON:
 *   {"kind":"graph","inputs":[{"name":"image","dtype":1,"shape":[-1,3,224,224]}],"outputs":[…]}
 * or {"kind":"sequence","context":2048,"vocabulary":49152,"bound":["cross.0.k",…]}.
 * graph_run takes inputs and outputs in that order. In `out`, a handle > 0 is filled in place, 0 is
 * replaced by the handle of a new tensor, -1 is an output that isn't wanted. */
MESH_IMPORT("graph") int32_t mesh_graph(const char *name, int32_t len);
MESH_IMPORT("graph_info") int32_t mesh_graph_info(int32_t graph, void *buf, int32_t cap);
MESH_IMPORT("graph_run")
int32_t mesh_graph_run(int32_t graph, const int32_t *in, int32_t n_in, int32_t *out, int32_t n_out);

/* A named kernel; args are JSON; in and out as for graph_run. */
MESH_IMPORT("kernel_run")
int32_t mesh_kernel_run(const char *name, int32_t len, const char *args, int32_t args_len, const int32_t *in,
                        int32_t n_in, int32_t *out, int32_t n_out);

/* The tokenizer that belongs to a sequence graph. text_encode never reads special tokens out of text, so a
 * prompt can't forge one; text_token gives the id of one by its exact name, ENOENT if there is none. */
MESH_IMPORT("text_encode")
int32_t mesh_text_encode(int32_t graph, const char *text, int32_t len, int32_t *ids, int32_t cap);
MESH_IMPORT("text_token") int32_t mesh_text_token(int32_t graph, const char *name, int32_t len);
MESH_IMPORT("text_decode")
int32_t mesh_text_decode(int32_t graph, const int32_t *ids, int32_t n, char *buf, int32_t cap);

/* An autoregressive sequence. seq_open waits for a free place until the deadline; `in` are the graph's
 * bound inputs in the order of graph_info (n_in = 0: none, or give them by name through seq_bind before the
 * first feed). seq_feed appends tokens and computes the logits after the last; with logits > 0 (a tensor of
 * f32 [vocabulary]) they are written there too. E2BIG when the context or max_tokens is exceeded.
 * seq_sample draws the next token from the last logits, without feeding it. params is JSON, all optional:
 *   {"temperature":0,"top_k":0,"top_p":1,"seed":7,"suppress":[1,2],"max_id":50256,"mask":HANDLE,"logprobs":0}
 * temperature 0 is greedy; mask is a u8 tensor [vocabulary], 0 forbids. With logprobs n > 0, out gets
 *   {"logprob":-0.1,"top":[[id,logprob],…]} and a final NUL, E2BIG if there is no room. Returns the token. */
MESH_IMPORT("seq_open") int32_t mesh_seq_open(int32_t graph, int32_t max_tokens, const int32_t *in, int32_t n_in);
MESH_IMPORT("seq_bind") int32_t mesh_seq_bind(int32_t seq, const char *name, int32_t len, int32_t tensor);
MESH_IMPORT("seq_feed") int32_t mesh_seq_feed(int32_t seq, const int32_t *ids, int32_t n, int32_t logits);
MESH_IMPORT("seq_sample")
int32_t mesh_seq_sample(int32_t seq, const char *params, int32_t len, void *out, int32_t cap);
MESH_IMPORT("seq_close") int32_t mesh_seq_close(int32_t seq);

/* Streams a chunk (JSON, UTF-8) to the client; blocks, within bounds, while the client reads slowly;
 * ECANCELED once it has gone. */
MESH_IMPORT("emit") int32_t mesh_emit(const void *chunk, int32_t len);
/* The answer, JSON in UTF-8; the last one given counts. reply_tensor adds a named tensor to it. */
MESH_IMPORT("reply") int32_t mesh_reply(const void *json, int32_t len);
MESH_IMPORT("reply_tensor") int32_t mesh_reply_tensor(const char *name, int32_t len, int32_t tensor);

/* Microseconds until the request's deadline; negative once it has passed. */
MESH_IMPORT("deadline_us") int64_t mesh_deadline_us(void);
MESH_IMPORT("log") int32_t mesh_log(int32_t level, const char *text, int32_t len);

/* In exactly one source file of a unit, write MESH_UNIT before mesh_handle is defined. */
#define MESH_UNIT                                                                         \
  MESH_EXPORT("mesh_abi") int32_t mesh_abi(void) { return 1; }                            \
  MESH_EXPORT("mesh_reserve") void *mesh_reserve(int32_t bytes) {                         \
    return bytes > 0 ? aligned_alloc(65536, ((size_t)bytes + 65535) & ~(size_t)65535) : NULL; \
  }                                                                                       \
  MESH_EXPORT("mesh_handle") int32_t mesh_handle(void);

#endif
