/* How a guest says no: the client's error, the image's fault, or what the host answered. */
#ifndef GUEST_REFUSE_H
#define GUEST_REFUSE_H

#include <errno.h>
#include <stdint.h>

/* Refuses the request with EINVAL, E2BIG, ENOTSUP or ENOENT: the client's error, and the message is for the
 * client. Returns -error, for mesh_handle to return. */
__attribute__((format(printf, 2, 3))) int32_t refuse(int error, const char *format, ...);

/* A failure that no client can help: a configuration or a graph that isn't as this guest expects. */
__attribute__((format(printf, 1, 2))) int32_t fault(const char *format, ...);

/* Passes on the result of a host call that failed while the guest was busy with `what`. An errno by which
 * a guest would refuse the request becomes a fault: the client isn't to blame for what the guest asked. */
int32_t host_failure(int32_t result, const char *what);

/* Leaves the calling function when `call` gives a negative result. */
#define TRY(call)                     \
  do {                                \
    int32_t result_ = (call);         \
    if (result_ < 0) return result_;  \
  } while (0)

#endif
