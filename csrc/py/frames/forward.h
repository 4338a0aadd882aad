/* The traceback that autograd keeps for a node in anomaly mode. */
#ifndef ML_FORWARD_H
#define ML_FORWARD_H

#include <stdint.h>

/* For the allocator callback, an ml_forward_reader: ANOMALY is the dict of a node that
 * runs on the calling thread, CONTEXT the ml_stacks to intern in.  Without lock,
 * allocation, I/O or reference count, with or without the GIL: nothing changes the
 * node's objects while it runs.  Of more than 32 KiB the outermost entries and the innermost
 * are kept, and an entry between them says how many are left out. */
uint32_t ml_forward_traceback(void *context, const void *anomaly);

#endif
