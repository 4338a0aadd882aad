/* A model of torch's caching allocator on one CUDA device: which block it would give to
 * each request, and which memory it would take from the driver and give back.
 *
 * Owns the segments and blocks that the allocator would have, their totals, and the
 * rules of docs/ALLOCATOR.md.  It is deterministic and knows no recording: who calls
 * says what the program asks, and the ml_allocator_driver says where memory lies and
 * when there is none left.  Fed with torch's requests and the driver's answers it makes
 * torch's events, one by one and in order.
 *
 * Not modelled: FreeMemory callbacks, threads that change the allocator while it
 * waits for cudaMalloc (release_lock_on_cudamalloc), and the restoring of a pool's
 * state by CUDA graph trees. */
#ifndef ML_ALLOCATOR_H
#define ML_ALLOCATOR_H

#include <stdbool.h>

#include "lab/simulator/allocator_settings.h"
#include "ledger/blocks.h"
#include "memlab.h"

typedef struct ml_allocator ml_allocator;

/* Who gives memory.  Functions must not call the allocator.  Addresses that they
 * give are multiples of 512, not 0, and overlap nothing given before. */
typedef struct ml_allocator_driver {
    void *self;
    /* cudaMalloc: an address, or 0 where no memory is left. */
    uint64_t (*segment_alloc)(void *self, uint64_t bytes, uint64_t stream,
                              const uint32_t pool[2], bool small);
    void (*segment_free)(void *self, uint64_t addr, uint64_t bytes);
    /* Address space of an expandable segment; it takes no memory.  0: none left. */
    uint64_t (*reserve)(void *self, uint64_t bytes, uint64_t stream,
                        const uint32_t pool[2], bool small);
    void (*release)(void *self, uint64_t addr, uint64_t bytes);
    /* Memory for address space; false where not all of BYTES is left. */
    bool (*map)(void *self, uint64_t addr, uint64_t bytes);
    void (*unmap)(void *self, uint64_t addr, uint64_t bytes);
    /* Free bytes of the device, for OOM events; NULL: they say 0. */
    uint64_t (*free_bytes)(void *self);
    /* Each event as torch would trace it: action, addr, size, stream and pool, of
     * allocations and frees block_bytes too; the rest is 0.  NULL: nobody asks. */
    void (*event)(void *self, const ml_event *event);
} ml_allocator_driver;

/* What malloc returns where memory ran out, or was refused early, as torch would
 * raise. */
#define ML_ALLOCATOR_OOM 1

/* Values of two settings with which everything would have gone the same, each from its low
 * through its high. */
typedef struct ml_allocator_slack {
    uint64_t split_low; /* of max_split_bytes */
    uint64_t split_high;
    uint64_t rounding_low; /* of max_non_split_rounding */
    uint64_t rounding_high;
} ml_allocator_slack;

typedef struct ml_allocator_stats {
    ml_totals current;
    ml_totals peak;          /* of each alone */
    uint64_t inactive_split; /* bytes, as torch counts inactive_split_bytes */
    uint64_t inactive_split_peak;
    ml_source_counters counters; /* torch's */
    uint64_t rejections;         /* num_oom_rejections */
    ml_allocator_slack slack;    /* so far */
    uint64_t events;
} ml_allocator_stats;

/* SETTINGS and DRIVER are copied.  TOTAL_BYTES is the device's memory: of it
 * fractions are taken and the address space of an expandable segment is 9/8.  0 or
 * ML_E*. */
int ml_allocator_new(const ml_allocator_settings *settings,
                     const ml_allocator_driver *driver, uint64_t total_bytes,
                     ml_allocator **out);
/* Gives nothing back to the driver. */
void ml_allocator_delete(ml_allocator *allocator);

/* As _set_allocator_settings and set_per_process_memory_fraction do in the program. */
int ml_allocator_change_settings(ml_allocator *allocator,
                                 const ml_allocator_settings *settings);

/* All that follow return 0 or ML_E*.  After ML_ENOMEM, the want of memory of this
 * process, an allocator can only be deleted. */

/* BYTES > 0 of POOL, (0, 0) the default; one not begun yet begins, as of before.
 * The block's address becomes *ADDR.  ML_ALLOCATOR_OOM where torch would raise;
 * ML_EINVALID for 0 bytes or more than 2^61. */
int ml_allocator_malloc(ml_allocator *allocator, uint64_t bytes, uint64_t stream,
                        const uint32_t pool[2], uint64_t *addr);
/* The block at ADDR is used on STREAM too: its free is to wait for it.  ML_EINVALID: no
 * block in use is at ADDR; so below. */
int ml_allocator_record_stream(ml_allocator *allocator, uint64_t addr, uint64_t stream);
/* Completes at once where no other stream used the block; else when events are
 * processed. */
int ml_allocator_free(ml_allocator *allocator, uint64_t addr);
/* For replays, which know when a free was completed: it waits for _complete. */
int ml_allocator_free_deferred(ml_allocator *allocator, uint64_t addr);
int ml_allocator_complete(ml_allocator *allocator, uint64_t addr);
/* Every stream has done what it was given: by torch the next malloc would see that.
 * Frees that wait for streams are completed; not those that were deferred. */
int ml_allocator_process_events(ml_allocator *allocator);
int ml_allocator_empty_cache(ml_allocator *allocator);

/* What a pool is, beside its id. */
#define ML_POOL_USE_ON_OOM 0x1u /* lends its free blocks to requests that would fail */
#define ML_POOL_NO_SPLIT 0x2u   /* its blocks are not cut */
#define ML_POOL_CUSTOM 0x4u /* it has an allocator of its own: no expandable segments */
#define ML_POOL_CAPTURE 0x8u /* begun by the capture of a CUDA graph */
/* Requests go to POOL from now on (the caller routes them); one more user of it. */
int ml_allocator_pool_begin(ml_allocator *allocator, const uint32_t pool[2],
                            unsigned flags);
int ml_allocator_pool_end(ml_allocator *allocator, const uint32_t pool[2]);
/* One user less: with none its free memory may be given back. */
int ml_allocator_pool_release(ml_allocator *allocator, const uint32_t pool[2]);
/* For replays, which do not know when POOL was begun: it has a user, if it had none. */
int ml_allocator_pool_use(ml_allocator *allocator, const uint32_t pool[2]);
/* emptyCache(POOL): its free memory goes back, as when its torch.cuda.MemPool ends,
 * after the release.  ML_EINVALID where it has users or pools hold releases back:
 * torch fails an assertion then. */
int ml_allocator_pool_empty(ml_allocator *allocator, const uint32_t pool[2]);

/* State before the first event: SEGMENT with the COUNT BLOCKS that fill it, by address.
 * Segments come in the order in which they were made, if that is known.  Blocks pending
 * free wait for _complete.  RESERVED: an expandable segment's address space, of which
 * segments are mapped runs; both 0 where it is not known or SEGMENT is not expandable.
 * ML_EINVALID where they do not fit together. */
int ml_allocator_seed_segment(ml_allocator *allocator, const ml_segment *segment,
                              const ml_block *blocks, size_t count,
                              uint64_t reserved_addr, uint64_t reserved_bytes);

/* Borrowed, follows the allocator. */
const ml_allocator_stats *ml_allocator_get_stats(const ml_allocator *allocator);
/* Segments and blocks by address, as torch's snapshot tells them; births are 0. */
int ml_allocator_visit(const ml_allocator *allocator, const ml_ledger_visitor *visitor);
/* Every link, order and total; for tests.  NULL, or what is wrong. */
const char *ml_allocator_validate(const ml_allocator *allocator);

#endif
