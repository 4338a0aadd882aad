/* A model of torch's caching allocator on one CUDA device.
 *
 * Owns the segments and blocks that the allocator would have, their totals, and the
 * rules of docs/ALLOCATOR.md.  The model is deterministic and knows no recording.  Its
 * caller makes the program's requests; an ml_allocator_driver answers for the CUDA
 * driver.  With torch's requests and the driver's answers, the model makes torch's
 * events, in torch's order.
 *
 * Not modelled: FreeMemory callbacks; threads that change the allocator while it waits
 * for cudaMalloc (release_lock_on_cudamalloc); restoring a pool's state by CUDA graph
 * trees. */
#ifndef ML_ALLOCATOR_H
#define ML_ALLOCATOR_H

#include <stdbool.h>

#include "lab/simulator/allocator_settings.h"
#include "ledger/blocks.h"
#include "memlab.h"

typedef struct ml_allocator ml_allocator;

/* The source of memory.  Its functions must not call the allocator.  Addresses are
 * multiples of 512, not 0, and overlap no other memory given out. */
typedef struct ml_allocator_driver {
    void *self;
    /* cudaMalloc: an address; 0: no memory left. */
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
    /* Free bytes of the device, for OOM events; NULL: the events say 0. */
    uint64_t (*free_bytes)(void *self);
    /* Receives each event as torch would trace it: action, addr, size, stream and pool;
     * for allocations and frees also block_bytes.  Other fields are 0.  NULL: events
     * are dropped. */
    void (*event)(void *self, const ml_event *event);
} ml_allocator_driver;

/* malloc's result if memory ran out or the request was refused early: torch would
 * raise. */
#define ML_ALLOCATOR_OOM 1

/* Ranges of two settings, low through high, within which every step stays the same. */
typedef struct ml_allocator_slack {
    uint64_t split_low; /* of max_split_bytes */
    uint64_t split_high;
    uint64_t rounding_low; /* of max_non_split_rounding */
    uint64_t rounding_high;
} ml_allocator_slack;

typedef struct ml_allocator_stats {
    ml_totals current;
    ml_totals peak;          /* each total's own peak */
    uint64_t inactive_split; /* bytes; torch's inactive_split_bytes */
    uint64_t inactive_split_peak;
    ml_source_counters counters; /* torch's */
    ml_allocator_slack slack;    /* so far */
    uint64_t events;
} ml_allocator_stats;

/* Copies SETTINGS and DRIVER.  TOTAL_BYTES is the device's memory.  Fractions are of
 * it, and an expandable segment reserves 9/8 of it.  0 or ML_E*. */
int ml_allocator_new(const ml_allocator_settings *settings,
                     const ml_allocator_driver *driver, uint64_t total_bytes,
                     ml_allocator **out);
/* Gives nothing back to the driver. */
void ml_allocator_delete(ml_allocator *allocator);

/* The same as _set_allocator_settings and set_per_process_memory_fraction in the
 * program. */
int ml_allocator_change_settings(ml_allocator *allocator,
                                 const ml_allocator_settings *settings);

/* The functions below return 0 or ML_E*.  After ML_ENOMEM (this process has no memory),
 * the allocator can only be deleted. */

/* BYTES > 0 of POOL; (0, 0) is the default.  A pool that has not begun is begun, as if
 * before the recording.  *ADDR becomes the block's address.  ML_ALLOCATOR_OOM if torch
 * would raise; ML_EINVALID for 0 bytes or more than 2^61. */
int ml_allocator_malloc(ml_allocator *allocator, uint64_t bytes, uint64_t stream,
                        const uint32_t pool[2], uint64_t *addr);
/* STREAM uses the block at ADDR too; its free waits for that stream.  ML_EINVALID, here
 * and below: no block in use is at ADDR. */
int ml_allocator_record_stream(ml_allocator *allocator, uint64_t addr, uint64_t stream);
/* Completes at once if no other stream used the block, else when events are
 * processed. */
int ml_allocator_free(ml_allocator *allocator, uint64_t addr);
/* For replays, which know when a free completed: the free waits for _complete. */
int ml_allocator_free_deferred(ml_allocator *allocator, uint64_t addr);
int ml_allocator_complete(ml_allocator *allocator, uint64_t addr);
/* Every stream has finished its work; torch would see that at its next malloc.
 * Completes frees that wait for streams, but not deferred ones. */
int ml_allocator_process_events(ml_allocator *allocator);
int ml_allocator_empty_cache(ml_allocator *allocator);

/* Properties of a pool. */
#define ML_POOL_USE_ON_OOM 0x1u /* lends its free blocks to requests that would fail */
#define ML_POOL_NO_SPLIT 0x2u   /* its blocks are not cut */
#define ML_POOL_CUSTOM 0x4u  /* has an allocator of its own: no expandable segments */
#define ML_POOL_CAPTURE 0x8u /* begun by the capture of a CUDA graph */
/* Requests go to POOL from now on (the caller routes them).  Adds a user to POOL. */
int ml_allocator_pool_begin(ml_allocator *allocator, const uint32_t pool[2],
                            unsigned flags);
int ml_allocator_pool_end(ml_allocator *allocator, const uint32_t pool[2]);
/* Removes a user.  A pool without users may give back its free memory. */
int ml_allocator_pool_release(ml_allocator *allocator, const uint32_t pool[2]);
/* For replays, which do not know when POOL was begun: adds a user if POOL has none. */
int ml_allocator_pool_use(ml_allocator *allocator, const uint32_t pool[2]);
/* emptyCache(POOL): gives back the pool's free memory, as when its torch.cuda.MemPool
 * ends, after the release.  ML_EINVALID if the pool has users or pools hold releases
 * back: torch's assertion would fail. */
int ml_allocator_pool_empty(ml_allocator *allocator, const uint32_t pool[2]);

/* State before the first event: SEGMENT with the COUNT BLOCKS that fill it, by address.
 * Segments come in the order of their making, if known.  Blocks pending free wait for
 * _complete. RESERVED: address space of an expandable segment, whose mapped runs are
 * the segments; both 0 if unknown or SEGMENT is not expandable.  ML_EINVALID if the
 * blocks do not fill the segment. */
int ml_allocator_seed_segment(ml_allocator *allocator, const ml_segment *segment,
                              const ml_block *blocks, size_t count,
                              uint64_t reserved_addr, uint64_t reserved_bytes);

/* Borrowed; changes with the allocator. */
const ml_allocator_stats *ml_allocator_get_stats(const ml_allocator *allocator);
/* Segments and blocks by address, as in torch's snapshot; births are 0. */
int ml_allocator_visit(const ml_allocator *allocator, const ml_ledger_visitor *visitor);
/* Checks every link, order and total; for tests.  NULL: correct; else the problem. */
const char *ml_allocator_validate(const ml_allocator *allocator);

#endif
