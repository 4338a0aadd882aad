/* Which blocks of a lane already have their owner in the file, so that it is not
 * written again at every step.
 *
 * Owns a table of addresses.  The lane's writer updates it with one store an event: a
 * block began at an address, or ended.  If two addresses share a slot, the later one
 * takes it; the other's owner is then written more often than needed, never less.  The
 * table knows the first address of a block, where storages begin: an owner of the
 * middle of a block is written each time. */
#ifndef ML_JOURNAL_MARKS_H
#define ML_JOURNAL_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "memlab.h"

#define ML_MARK_BITS 15u
/* Of one lane. */
#define ML_MARK_BYTES (2 * sizeof(uint64_t) << ML_MARK_BITS)

/* In the low bits of a slot.  None of them: a block begins at the address, and its
 * owner has not been written. */
#define ML_MARK_ENDED UINT64_C(1)
#define ML_MARK_TOLD UINT64_C(2)
#define ML_MARK_STATES (ML_MARK_ENDED | ML_MARK_TOLD)

/* Both NULL: nothing is known about the lane, and every owner is written. */
typedef struct ml_journal_marks {
    _Atomic uint64_t *blocks; /* address and state; 0: no event yet */
    uint64_t *owners;         /* of reported blocks: hash of the owner */
} ml_journal_marks;

static inline _Atomic uint64_t *
ml_mark_at(const ml_journal_marks *marks, uint64_t addr)
{
    return &marks->blocks[ml_hash_high(addr >> 9) >> (64 - ML_MARK_BITS)];
}

/* Hot path.  EVENT was counted in its lane.  The store is a release after that: a
 * reader that sees a block also sees its place among the events. */
static inline void
ml_marks_event(const ml_journal_marks *marks, const ml_event *event)
{
    if (marks->blocks == NULL || event->action > ML_ACTION_FREE_COMPLETED) {
        return;
    }
    /* An address without room for the state bits counts as ended. */
    bool lives =
        event->action == ML_ACTION_ALLOC && (event->addr & ML_MARK_STATES) == 0;
    atomic_store_explicit(ml_mark_at(marks, event->addr),
                          lives ? event->addr : ML_MARK_ENDED, memory_order_release);
}

/* Forgets everything.  No event comes meanwhile. */
void ml_marks_reset(const ml_journal_marks *marks);

/* Called by one thread at a time. */

/* A block began at ADDR before the lane did. */
void ml_marks_start(const ml_journal_marks *marks, uint64_t addr);
/* Whether OWNER, a hash, was written for the live block that begins at ADDR. */
bool ml_marks_knows(const ml_journal_marks *marks, uint64_t addr, uint64_t owner);
/* The owner of the block at ADDR is about to be written; its place in the lane is read
 * after this call.  False: the table cannot know this block. */
bool ml_marks_claim(const ml_journal_marks *marks, uint64_t addr);
/* After a claim: OWNER was written to the file. */
void ml_marks_tell(const ml_journal_marks *marks, uint64_t addr, uint64_t owner);

#endif
