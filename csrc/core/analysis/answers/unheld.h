/* Allocated memory without a known holder: only autograd or C++ code keeps it.  By the
 * line that allocated it.
 *
 * Sums over one device's memory, given the claims on it.  A claim says that a known
 * holder (a tensor that Python sees) keeps so many bytes from an address on.  To the
 * byte,
 *
 *     held + unheld = allocated
 *     allocated + awaiting + cached = reserved
 *
 * A pure function of a recording and the claims.  The caller makes sure that claims and
 * memory are of one moment:
 *
 *     do {
 *         GIL released: ml_memory_mark_now(source, &before)
 *         with the GIL: collect the claims
 *         GIL released: ml_memory_read(source, &now, &recorded, &memory)
 *     } while (!ml_memory_same(&before, &now, device) and there are tries left);
 *     GIL released: for each device ml_unheld_new(memory, device, claims, count, &unheld)
 *
 * Modules in it have the names given before ml_memory_read.
 * (csrc/py/dicts/unheld_dict.h makes Python's dict of it, with the GIL.) If the last
 * try saw a change too, tell the user that memory changed while it was read. */
#ifndef ML_UNHELD_H
#define ML_UNHELD_H

#include "analysis/answers/peak.h"
#include "recording/recording.h"

typedef struct ml_claim {
    uint64_t addr;
    uint64_t bytes; /* 0: claims nothing */
} ml_claim;

/* The keeper of a block, if it is known without a claim. */
#define ML_KEEPERS(XX) \
    XX(UNKNOWN, "")                         /* autograd, or other C++ code */ \
    XX(WORKSPACE, "workspace of a library") /* by its size: not exact */ \
    XX(GRAPH, "pool of a CUDA graph")       /* a pool that a capture made itself */ \
    XX(POOL, "memory pool")                 /* one that the program made */

enum ml_keeper {
#define XX(name, text) ML_KEEPER_##name,
    ML_KEEPERS(XX)
#undef XX
    ML_KEEPER_COUNT
};

/* Unheld blocks of one line, phase, module, keeper and pool. */
typedef struct ml_unheld_row {
    ml_peak_line line; /* module owned, all else borrowed from the recording */
    uint64_t pool[2];  /* (0, 0): the default pool */
    uint8_t keeper;    /* enum ml_keeper */
} ml_unheld_row;

/* Bytes unless it says otherwise. */
typedef struct ml_unheld {
    uint64_t reserved;
    uint64_t allocated;
    uint64_t awaiting; /* freed, but a stream may still use it (active_pending_free) */
    uint64_t cached;   /* free for reuse by the allocator */
    uint64_t remainders;    /* of cached: rests of split segments */
    uint64_t held;          /* of allocated: blocks that contain a claim */
    uint64_t held_blocks;   /* items */
    uint64_t claimed;       /* of held: bytes covered by claims, each once */
    uint64_t slack;         /* held - claimed: rounding, and unused parts of storages */
    uint64_t unheld;        /* of allocated: blocks that contain no claim */
    uint64_t unheld_blocks; /* items */
    uint64_t outside;       /* claimed outside allocated blocks, each byte once */
    uint64_t outside_claims; /* items, each address once */
    ml_unheld_row *rows;     /* owned; most bytes first; sum to unheld */
    size_t row_count;
} ml_unheld;

/* CLAIMS are in any order; of one address, the largest counts.  A DEVICE that MEMORY
 * lacks has no memory.  MEMORY is borrowed and outlives the answer.  0 or ML_ENOMEM. */
int ml_unheld_new(const ml_recording *memory, size_t device, const ml_claim *claims,
                  size_t count, ml_unheld **out);
void ml_unheld_free(ml_unheld *unheld); /* takes NULL */

const char *ml_keeper_text(unsigned keeper); /* "" for an unknown one */

#endif
