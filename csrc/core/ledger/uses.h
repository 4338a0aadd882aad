/* The last uses of the blocks of one device: when an operator last read or wrote each.
 *
 * Owns a fixed table from the addresses of live blocks to positions: the number of the
 * device's events so far.  A position is never too early: if a use may have been
 * missed, the position is unknown.
 *
 * Blocks come and go inside the allocator's callback, one thread at a time.  Any thread
 * may mark and look meanwhile.  Plain memory only. */
#ifndef ML_USES_H
#define ML_USES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/system/region.h"

/* Returned for an unknown last use. */
#define ML_USE_UNKNOWN UINT64_MAX

/* Addresses of tensors within blocks that do not come from the allocator, for example
 * by DLPack. */
#define ML_USES_INNER 64
/* Turns that are remembered. */
#define ML_USES_TURNS 256

typedef struct ml_use_slot {
    _Atomic uint64_t addr; /* of a block; 0: never used; 1: its block is gone */
    /* position of the last use, plus 1; 0: none since the block began */
    _Atomic uint64_t last;
} ml_use_slot;

typedef struct ml_uses {
    ml_region region; /* of slots; owned */
    /* The last use of any address within a block. */
    ml_use_slot inner[ML_USES_INNER];
    _Atomic uint32_t inner_count;
    /* Up to this position any block may have been used. */
    _Atomic uint64_t all;
    /* The begin of the turn, plus 1; UINT64_MAX: uses are not followed now. */
    _Atomic uint64_t known_from;
    /* The begins, plus 1, of the newest turns that have ended, in a ring. */
    _Atomic uint64_t turns[ML_USES_TURNS];
    _Atomic uint64_t turn_count;
    _Atomic bool blind;    /* some uses are unseen: nothing is known any more */
    _Atomic uint64_t lost; /* blocks without a slot */
} ml_uses;

/* USES is all zeros.  0 or ML_ENOMEM. */
int ml_uses_init(ml_uses *uses);
void ml_uses_fini(ml_uses *uses); /* accepts an all-zero one */
/* Clears all uses; a late mark is harmless. */
void ml_uses_clear(ml_uses *uses);

/* Hot path: a block comes, by the event at POSITION.  It has no use yet. */
void ml_uses_begin(ml_uses *uses, uint64_t addr, uint64_t position);
/* Hot path: the block at ADDR of BYTES goes.  Returns its last use, or
 * ML_USE_UNKNOWN. */
uint64_t ml_uses_end(ml_uses *uses, uint64_t addr, uint64_t bytes);

/* The block at ADDR, or with INNER the one that holds ADDR, is used at POSITION. */
void ml_uses_mark(ml_uses *uses, uint64_t addr, uint64_t position, bool inner);
/* Any block may have been used up to POSITION. */
void ml_uses_mark_all(ml_uses *uses, uint64_t position);
/* From here on memory is used unseen. */
void ml_uses_blind(ml_uses *uses);

/* Turns: uses are followed from POSITION on, and until the pause.  A block that was not
 * used since the turn began, but may have been before, has a last use if a whole turn
 * without any has passed: the begin of that turn, which is never too early. */
void ml_uses_resume(ml_uses *uses, uint64_t position);
void ml_uses_pause(ml_uses *uses);

/* A non-zero return stops. */
typedef int (*ml_use_visitor)(void *context, uint64_t addr, uint64_t position);

/* Shows the known last use of each live block; the callback may run meanwhile.  Returns
 * the value with which VISIT stopped, else 0. */
int ml_uses_visit(const ml_uses *uses, ml_use_visitor visit, void *context);

/* The last use of the live block at ADDR of BYTES, or ML_USE_UNKNOWN. */
uint64_t ml_uses_look(const ml_uses *uses, uint64_t addr, uint64_t bytes);

#endif
