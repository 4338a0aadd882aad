/* The ledger: the block structure of one device, followed event by event.
 *
 * Owns the existing segments and blocks, and the totals over them.  The events have
 * requested sizes; allocated bytes do not follow from these alone, since a block is
 * split off a free block.  So the ledger also keeps the free blocks, and applies the
 * caching allocator's rules: round the request, split when enough remains, merge with
 * free neighbours when a free is completed, join mapped ranges that touch.  It need not
 * model which free block is taken: the event has the address.
 *
 * ml_ledger_apply runs inside the allocator's callback: after ml_ledger_new nothing
 * here takes a lock, memory from the C library, or a system call.  One thread at a
 * time may change or visit a ledger (the device's lock sees to that);
 * ml_ledger_read_totals and ml_ledger_reset_peaks may be called from any thread at
 * any time. */
#ifndef ML_LEDGER_H
#define ML_LEDGER_H

#include <stdbool.h>

#include "ledger/blocks.h"
#include "ledger/rounding.h"
#include "memlab.h"

typedef struct ml_ledger ml_ledger;

/* Why an event does not fit.  The ledger then does the nearest consistent thing, and
 * counts it. */
enum ml_ledger_problem {
    ML_LEDGER_FITS = 0,
    ML_LEDGER_ALLOC_UNKNOWN,    /* allocation outside every known segment */
    ML_LEDGER_ALLOC_TAKEN,      /* allocation in memory that is not a free block */
    ML_LEDGER_ALLOC_SMALL,      /* allocation larger than the free block there */
    ML_LEDGER_FREE_UNKNOWN,     /* free of a block that is not known or not in use */
    ML_LEDGER_FREE_UNREQUESTED, /* free completed that was not requested */
    ML_LEDGER_SEGMENT_TAKEN,    /* segment over one that is there already */
    ML_LEDGER_SEGMENT_UNKNOWN,  /* release of a segment that is not known */
    ML_LEDGER_SEGMENT_IN_USE,   /* release of a segment that holds blocks in use */
    ML_LEDGER_TABLE_FULL        /* more blocks than the ledger has room for */
};

/* Totals in bytes, counts in items. */
typedef struct ml_ledger_totals {
    ml_totals current;
    ml_totals peak;           /* each total's own peak since the last reset */
    uint64_t allocations;     /* blocks allocated or waiting for their free */
    uint64_t segments;        /* mapped runs count as segments */
    uint64_t events;          /* applied since the ledger was new or cleared */
    uint64_t inconsistencies; /* of these, those that did not fit */
    uint64_t full;            /* of those, the ones for want of room */
} ml_ledger_totals;

/* BLOCK_LIMIT: the most blocks that can exist at once, also free ones; 0 for 2^20.
 * They take only address space; if that is short, the limit is lower.  RULES is copied;
 * NULL is the default settings.  0 or ML_ENOMEM. */
int ml_ledger_new(ml_ledger **out, const ml_allocator_rules *rules, size_t block_limit);
void ml_ledger_free(ml_ledger *ledger);

/* As new, keeping its room.  RULES of NULL keeps the rules. */
void ml_ledger_clear(ml_ledger *ledger, const ml_allocator_rules *rules);

/* State before the first event.  A seeded segment is free as a whole.  Its blocks then
 * follow in address order; inactive ones change nothing.  The fields of SEGMENT that
 * sum up its blocks are not used.  For rules without segments: blocks alone.  0,
 * ML_EFULL, or ML_EINVALID for a block that overlaps or is outside the last seeded
 * segment. */
int ml_ledger_seed_segment(ml_ledger *ledger, const ml_segment *segment);
int ml_ledger_seed_block(ml_ledger *ledger, const ml_block *block);
/* A block of an unknown segment: it gets one of its own size, which ends with it. */
int ml_ledger_seed_stray(ml_ledger *ledger, const ml_block *block);

/* A ledger's whole state, packed.  A ledger with the same rules and as much room can
 * continue from it. */
typedef struct ml_ledger_image ml_ledger_image;
size_t ml_ledger_image_bytes(const ml_ledger *ledger);
ml_ledger_image *
ml_ledger_save(const ml_ledger *ledger); /* for ml_free; NULL: no memory */
void ml_ledger_load(ml_ledger *ledger, const ml_ledger_image *image);

/* Follows EVENT.  If its block is found, fills block_bytes and sets
 * ML_EVENT_BLOCK_KNOWN (allocations and frees), and fills origin_stack (frees: the
 * stack of the allocation; segment frees: that of the segment).  An allocation with
 * ML_EVENT_BLOCK_KNOWN has its block_bytes, not those of the rules.  Returns an enum
 * ml_ledger_problem, 0 if the event fits.
 *
 * Constant time; events of segments take logarithmic time in their number.  An event
 * that does not fit may look at every block of a segment.
 *
 * Not seen: whether a memory pool forbids splitting
 * (torch.cuda.MemPool(no_split=True)).  The bytes of such a pool are reported too
 * low. */
int ml_ledger_apply(ml_ledger *ledger, ml_event *event);
/* Likewise of a ledger whose totals no other thread reads: they are not published. */
int ml_ledger_follow(ml_ledger *ledger, ml_event *event);
/* For who knows the COUNT EVENTS from the next one on: fetches what some of them will read,
 * as blocks lie all over memory. */
void ml_ledger_expect(const ml_ledger *ledger, const ml_event *events, size_t count);
/* Hot path.  Fetches what EVENT, which comes next, will read and write first: the program
 * has used the caches since the last one. */
void ml_ledger_expect_next(const ml_ledger *ledger, const ml_event *event);

/* Undoes EVENT in a ledger of segments alone: a released segment exists again, a new
 * one is removed.  Free memory of a pool is unmapped in one piece, however it was
 * mapped, so its size does not tell the pool.  The memory beside it does, and its
 * earlier events.  As ml_ledger_apply, but the totals are not published. */
int ml_ledger_undo(ml_ledger *ledger, const ml_event *event);

/* For the thread that applies events.  _current is borrowed and follows the ledger. */
const ml_totals *ml_ledger_current(const ml_ledger *ledger);
/* torch's own counts of each pool, by enum ml_pool and enum ml_pool_stat; likewise.
 * NULL while they are not kept, which makes events cheaper. */
const ml_pool_stats *ml_ledger_pool_stats(const ml_ledger *ledger);
void ml_ledger_start_counting(ml_ledger *ledger);
void ml_ledger_stop_counting(ml_ledger *ledger);
ml_ledger_totals ml_ledger_get_totals(const ml_ledger *ledger);
/* For any thread: totals of one instant. */
void ml_ledger_read_totals(const ml_ledger *ledger, ml_totals *current,
                           ml_totals *peak);
/* For any thread: peaks start again from the current totals. */
void ml_ledger_reset_peaks(ml_ledger *ledger);
/* In a child of fork: ends a publication of totals whose thread may not exist here. */
void ml_ledger_forked(ml_ledger *ledger);
/* A block and the one before it in its segment. */
typedef struct ml_ledger_place {
    ml_block block;
    uint64_t birth;
    ml_block before; /* size 0: none */
    uint64_t before_birth;
} ml_ledger_place;

/* The block that holds ADDR: in constant time if one starts there.  False, with *OUT
 * unchanged, if none holds it. */
bool ml_ledger_locate(const ml_ledger *ledger, uint64_t addr, ml_ledger_place *out);

/* Whether a block in use started, before the last followed event, where that event
 * allocates or frees; *BIRTH is as for a visitor. */
bool ml_ledger_named(const ml_ledger *ledger, uint64_t *birth);

/* Shows VISITOR every segment and block; BIRTH of a block is the number of events
 * applied before its allocation, or ML_BEFORE_EVENTS.  Takes no memory.  Not by two
 * threads at once. */
int ml_ledger_visit(const ml_ledger *ledger, const ml_ledger_visitor *visitor);

/* A full check of every link, order and total; for tests.  NULL, or the error. */
const char *ml_ledger_validate(const ml_ledger *ledger);

#endif
