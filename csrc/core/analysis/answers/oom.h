/* An out of memory: why a request failed, from the memory at that instant.
 *
 * The answer has the request and its line, the memory that device and limit had left,
 * and the unused cache: the part that could have served the request, and why the rest
 * could not.  It has the largest holes with their neighbours, the nearest place for the
 * request, and whether memory grew step by step.  It ends with a verdict, and advice
 * with the figure that supports it.  The words are not made here.
 *
 * The instant is that of the OOM event. torch looks in its cache, asks the driver,
 * returns all segments without a block in use to the driver, asks once more, and only
 * then makes the event.  The returned bytes are in `released`, not in the totals.
 *
 * A free block can serve a request of its own stream and memory pool, and of its own
 * size class: up to 1 MiB, or above.  With max_split_size a block above it cannot serve
 * a request below it. */
#ifndef ML_OOM_H
#define ML_OOM_H

#include <stdbool.h>

#include "analysis/answers/peak.h"

/* A figure that the recording does not have. */
#define ML_OOM_UNKNOWN UINT64_MAX

/* The verdict is the first of these that holds. */
#define ML_OOM_VERDICTS(XX) \
    XX(TOO_BIG, "too_big")         /* above the whole device, or above the limit */ \
    XX(UNEXPLAINED, "unexplained") /* a free block would have served */ \
    XX(LIMIT, "limit")   /* the device had enough, the process's limit did not */ \
    XX(DRIVER, "driver") /* the driver refused memory that it reported free */ \
    XX(FRAGMENTED, \
       "fragmented") /* the unused cache that can serve, with what is left \
                                      of the device, is enough, but not in one piece */ \
    XX(NOT_ELIGIBLE, \
       "not_eligible") /* together with the cache that cannot serve, it is enough */ \
    XX(OUTSIDE, "outside") /* enough is held outside of torch's allocator */ \
    XX(FULL, "full")       /* live blocks take the memory */

enum ml_oom_verdict {
#define XX(name, text) ML_OOM_##name,
    ML_OOM_VERDICTS(XX)
#undef XX
    ML_OOM_VERDICT_COUNT
};

/* Unused cache: it could have served the request, or the first reason why not. */
#define ML_OOM_UNUSED(XX) \
    XX(ELIGIBLE, "eligible") \
    XX(OTHER_POOL, \
       "other_pool") /* of a CUDA graph or MemPool, or the other way round */ \
    XX(OTHER_SIZE, "other_size") /* small blocks' memory for a large one, or so */ \
    XX(OTHER_STREAM, "other_stream") \
    XX(OVERSIZE, "oversize") /* above max_split_size */

enum ml_oom_unused_kind {
#define XX(name, text) ML_OOM_UNUSED_##name,
    ML_OOM_UNUSED(XX)
#undef XX
    ML_OOM_UNUSED_COUNT
};

/* What to try, most specific first; each comes with the bytes that support it. */
#define ML_OOM_ADVICES(XX) \
    XX(REQUEST, "request")         /* the size asked for */ \
    XX(RAISE_LIMIT, "raise_limit") /* free on the device beyond the limit */ \
    XX(GROWTH, "growth")           /* by which live memory grew over the steps */ \
    XX(EXPANDABLE_SEGMENTS, "expandable_segments") /* unused cache that can serve */ \
    XX(MAX_SPLIT_SIZE, "max_split_size")           /* unused cache above it */ \
    XX(OTHER_STREAM, "other_stream")               /* unused cache of other streams */ \
    XX(OTHER_POOL, "other_pool")                   /* unused cache of other pools */ \
    XX(OUTSIDE, "outside")         /* held outside of torch's allocator */ \
    XX(LOGITS, "logits")           /* asked for by a loss over the classes */ \
    XX(ACTIVATIONS, "activations") /* saved for backward */ \
    XX(OPTIMIZER_STATE, "optimizer_state") \
    XX(GRADIENTS, "gradients") \
    XX(PARAMETERS, "parameters") \
    XX(ONE_LINE, "one_line") /* of the line with the most bytes */

enum ml_oom_advice_kind {
#define XX(name, text) ML_OOM_ADVICE_##name,
    ML_OOM_ADVICES(XX)
#undef XX
    ML_OOM_ADVICE_COUNT
};

typedef struct ml_oom_unused {
    uint64_t bytes;
    uint64_t pieces; /* items */
    uint64_t largest;
} ml_oom_unused;

typedef struct ml_oom_block {
    uint64_t addr;
    uint64_t size; /* bytes; 0: no such block */
    int64_t event; /* index of its allocation; -1: before the recording */
    int64_t place; /* index into state->blocks; -1: waits for another stream */
} ml_oom_block;

typedef struct ml_oom_hole {
    uint64_t addr;
    uint64_t size;
    uint64_t segment_bytes;
    ml_oom_block before; /* neighbours in its segment */
    ml_oom_block after;
} ml_oom_hole;

#define ML_OOM_HOLES 5

/* The range within one segment that is long enough and has the fewest bytes in use. */
typedef struct ml_oom_fit {
    uint64_t addr;
    uint64_t size; /* 0: no segment is long enough */
    uint64_t used; /* bytes of it that are in use */
    uint64_t used_blocks;
    ml_oom_block largest[ML_OOM_HOLES]; /* of those, the largest first */
} ml_oom_fit;

/* A line whose live bytes rose from the first to the last of the steps that grew. */
typedef struct ml_oom_growing {
    ml_string file; /* bytes borrowed from the recording */
    ml_string function;
    int64_t line;
    uint64_t before;
    uint64_t after;
} ml_oom_growing;

/* The lowest live memory of each step, if it rose in every one of the last steps. */
typedef struct ml_oom_growth {
    uint64_t steps; /* that grew; 0: none, or too few were recorded */
    uint64_t first; /* allocated bytes at the lowest of the first of them */
    uint64_t last;
    bool marked; /* steps marked by the program, else runs of backward passes */
    ml_oom_growing lines[ML_OOM_HOLES]; /* most growth first */
    size_t line_count;
} ml_oom_growth;

typedef struct ml_oom_advice {
    uint8_t kind; /* enum ml_oom_advice_kind */
    uint64_t bytes;
} ml_oom_advice;

typedef struct ml_oom {
    uint64_t event;  /* index of the OOM event */
    uint64_t number; /* among those kept of the device, from 1 */
    uint64_t count;  /* OOM events kept of the device */
    uint64_t time;   /* unix ns */

    uint64_t requested;      /* bytes, rounded as the allocator does */
    uint64_t driver_request; /* bytes of the segment to be requested from the driver */
    uint64_t stream;
    uint64_t pool[2];
    bool pool_known;
    bool small;      /* of the pool for blocks up to 1 MiB */
    bool expandable; /* the setting was on */
    ml_cause cause;  /* of the request */

    uint64_t device_free; /* free bytes of the driver */
    uint64_t total;       /* of the device; ML_OOM_UNKNOWN */
    uint64_t allowed;     /* of this process by its limit; ML_OOM_UNKNOWN: none known */
    uint64_t headroom;    /* the most that the allocator could still have reserved */
    uint64_t outside;     /* neither free nor reserved by torch; ML_OOM_UNKNOWN */
    uint64_t released;    /* by the releases right before the event */
    uint64_t pending;     /* in blocks that wait for another stream */

    ml_peak *state; /* owned: what was live */
    ml_oom_unused unused[ML_OOM_UNUSED_COUNT];
    ml_oom_hole holes[ML_OOM_HOLES]; /* eligible ones, largest first */
    size_t hole_count;
    ml_oom_fit fit;
    ml_oom_growth growth;

    uint32_t line;   /* index into state->lines, of ML_OOM_ADVICE_ONE_LINE */
    uint8_t verdict; /* enum ml_oom_verdict */
    ml_oom_advice advice[ML_OOM_ADVICE_COUNT];
    size_t advice_count;
} ml_oom;

/* The index of the last OOM event of DEVICE; -1 without one. */
int64_t ml_oom_last(const ml_recording *recording, size_t device);
/* The OOM at EVENT.  RECORDING is borrowed and outlives the answer.  0, ML_EINVALID if
 * EVENT is no OOM, or ML_ENOMEM. */
int ml_oom_new(const ml_recording *recording, size_t device, uint64_t event,
               ml_oom **out);
void ml_oom_free(ml_oom *oom);

const char *ml_oom_verdict_text(unsigned verdict);
const char *ml_oom_unused_text(unsigned kind);
const char *ml_oom_advice_text(unsigned kind);

#endif
