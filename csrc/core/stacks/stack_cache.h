/* Each thread's result of its last walk over its frames, so that the next walk interns
 * only changed frames.
 *
 * A table of stacks has one for each thread.  The memory is reserved beforehand: the
 * functions marked HOT are for the allocator callback.  Frames with equal words are one
 * frame. */
#ifndef ML_STACK_CACHE_H
#define ML_STACK_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/region.h"
#include "stacks/stacks.h"

/* Frames kept of a deeper stack: the outermost, which show the program's purpose, and
 * as many of the innermost. */
#define ML_FRAMES_MAX 256
#define ML_FRAMES_OUTER 128

typedef struct ml_seen_frame {
    uint64_t code;
    uint64_t position;
    uint64_t print;
    uint64_t object;
    uint64_t call;
} ml_seen_frame;

/* One walk, outermost frame first, so that calls and returns change its end. */
typedef struct ml_walked {
    size_t count;
    size_t left_out; /* frames between the ML_FRAMES_OUTER outermost and the others */
    ml_seen_frame frames[ML_FRAMES_MAX];
    uint32_t ids[ML_FRAMES_MAX]; /* of the stack from the outermost to each frame */
} ml_walked;

typedef struct ml_stack_cache {
    ml_walked walked;
    uint64_t epoch; /* of the stacks, in which the ids are valid; 0: there are none */
    uint64_t codes; /* the caller's: since when equal positions are equal frames */
    int64_t room;   /* the caller's: room for more frames at that time */
    _Atomic int busy;
} ml_stack_cache;

/* Reserves the memory of all threads; without it every walk is a thread's first.  0 or
 * ML_E*. */
int ml_stack_caches_init(ml_region *caches);

/* HOT.  The calling thread's memory for STACKS, reserved for it until given back; with no
 * frames if their ids are no longer valid.  NULL: none, for a late thread whose slot is in
 * use.  No thread takes it twice at once. */
ml_stack_cache *ml_stack_cache_take(const ml_stacks *stacks);

static inline void
ml_stack_cache_give_back(ml_stack_cache *recall)
{
    atomic_store_explicit(&recall->busy, 0, memory_order_release);
}

#endif
