#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>

#include "refuse.h"

#define MOST_OWNED 256

/* The request's tensors, each with the space that a window took from mesh_reserve. */
static struct {
  int32_t tensor;
  void *window;
} owned[MOST_OWNED];
static size_t owned_count;

static const char *const dtype_names[] = {"f16", "f32", "f64", "u8",  "i32", "i64",
                                          "i8",  "i16", "u16", "u32", "u64", "bool"};

void tensor_text(int32_t dtype, int32_t rank, const int64_t *dims, char *text, size_t room) {
  const char *name = dtype >= 0 && dtype <= MESH_BOOL ? dtype_names[dtype] : "?";
  size_t used = (size_t)snprintf(text, room, "%s [", name);
  for (int32_t i = 0; i < rank && used < room; i++) {
    const char *comma = i > 0 ? ", " : "";
    int wrote = dims[i] < 0 ? snprintf(text + used, room - used, "%sany", comma)
                            : snprintf(text + used, room - used, "%s%lld", comma, dims[i]);
    used += (size_t)wrote;
  }
  if (used < room) snprintf(text + used, room - used, "]");
}

void own_tensor(int32_t tensor) {
  if (owned_count == MOST_OWNED) {
    mesh_tensor_drop(owned[0].tensor);
    owned[0] = owned[--owned_count];
  }
  owned[owned_count].tensor = tensor;
  owned[owned_count++].window = NULL;
}

static void **window_of(int32_t tensor) {
  for (size_t i = owned_count; i-- > 0;) {
    if (owned[i].tensor == tensor) return &owned[i].window;
  }
  return NULL;
}

int32_t new_tensor(int32_t dtype, int32_t rank, const int32_t *dims, const char *what, int32_t *tensor) {
  int32_t handle = mesh_tensor_new(dtype, rank, dims);
  if (handle < 0) return host_failure(handle, what);
  own_tensor(handle);
  *tensor = handle;
  return 0;
}

static int32_t map(int32_t tensor, int32_t mode, void **data) {
  int32_t pointer = mesh_tensor_map(tensor, mode);
  if (pointer < 0) return host_failure(pointer, "mapping a tensor");
  *data = (void *)(uintptr_t)(uint32_t)pointer;
  void **window = window_of(tensor);
  if (window != NULL) *window = *data;
  return 0;
}

int32_t map_to_write(int32_t tensor, void **data) { return map(tensor, MESH_WRITE, data); }

int32_t unmap(int32_t tensor) {
  int32_t result = mesh_tensor_unmap(tensor);
  if (result < 0) return host_failure(result, "unmapping a tensor");
  void **window = window_of(tensor);
  if (window != NULL) {
    free(*window); /* once it is no window, the space is the guest's own again */
    *window = NULL;
  }
  return 0;
}

int32_t read_values(int32_t tensor, const char *name, struct values *values) {
  void *data = NULL;
  int32_t result = mesh_tensor_info(tensor, &values->info);
  if (result < 0) return host_failure(result, name);
  if (values->info.dtype != MESH_F32) {
    int64_t dims[MESH_MAX_RANK];
    char found[128];
    for (int32_t i = 0; i < values->info.rank; i++) dims[i] = values->info.dims[i];
    tensor_text(values->info.dtype, values->info.rank, dims, found, sizeof found);
    return fault("output '%s': expected f32, found %s", name, found);
  }
  values->count = values->info.nbytes / sizeof(float);
  if (values->count > 0) TRY(map(tensor, MESH_READ, &data));
  values->data = data;
  return 0;
}

void drop_tensor(int32_t tensor) {
  for (size_t i = owned_count; i-- > 0;) {
    if (owned[i].tensor != tensor) continue;
    mesh_tensor_drop(tensor);
    free(owned[i].window);
    owned[i] = owned[--owned_count];
    return;
  }
}

void end_request(void) {
  while (owned_count > 0) drop_tensor(owned[owned_count - 1].tensor);
}
