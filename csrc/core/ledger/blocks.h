/* The block table of one device: which segments and blocks exist, and the sums over
 * them.
 *
 * Owns the nodes, their indexes (by start address, by neighbour, by segment) and the
 * operations on them: split, join, release, unmap.  Only the ledger uses it; the ledger
 * knows events and rounding.
 *
 * Blocks are fixed-size nodes in reserved address space, known by index (0 is none).
 * Three structures run through them: the doubly linked list of a segment's blocks in
 * address order, a hash by start address, and the list of unused nodes.  Segments are
 * in a treap by address.
 *
 * The table uses linear hashing: each insertion may split one bucket.  So it grows in
 * place, a step at a time, and an allocation never waits for a whole rehash.
 *
 * Only the first and the last block of a segment know their segment (`segment` of the
 * others is stale).  So joining two mapped runs, and splitting or merging a block, take
 * constant time.  Every join keeps the left node, so a segment's first block changes
 * only when its start is unmapped.  A segment has at least one block.  So if there is a
 * node for a block, there is a slot for its segment. */
#ifndef ML_BLOCKS_H
#define ML_BLOCKS_H

#include <stdbool.h>

#include "base/base.h"
#include "base/system/region.h"
#include "memlab.h"
#include "recording/pool_stats.h"

/* Birth of a block from before the first event. */
#define ML_BEFORE_EVENTS UINT64_MAX

#define ML_BLOCK_UNUSED 0xffu /* state of a node in the list of unused ones */

/* One block; one cache line. */
typedef struct ml_block_node {
    _Alignas(64) uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint64_t birth; /* events before its allocation, or ML_BEFORE_EVENTS */
    uint32_t next;  /* in address order within the segment; in the unused list */
    uint32_t prev;
    uint32_t chain;   /* next in the hash bucket */
    uint32_t segment; /* valid in the first and last block of a segment */
    uint32_t stack;
    uint8_t state; /* enum ml_block_state, or ML_BLOCK_UNUSED */
    uint8_t expandable;
    uint8_t pool;    /* enum ml_pool */
    uint8_t made_up; /* of the first block: its segment's, which is in another line */
} ml_block_node;

typedef struct ml_block_span {
    uint64_t addr;
    uint64_t total;
    uint64_t stream;
    uint64_t pool[2];
    uint32_t head; /* first block; in an unused slot the next unused slot */
    uint32_t tail;
    uint32_t left; /* in the tree by address */
    uint32_t right;
    uint32_t stack;
    uint8_t used;
    uint8_t small;
    uint8_t expandable;
    uint8_t pool_known;
    uint8_t split;         /* its first block was once */
    uint8_t small_unknown; /* only of a segment that is one free block */
    uint8_t made_up;       /* made for an allocation outside every known segment */
} ml_block_span;

typedef struct ml_place {
    uint64_t addr;
    uint32_t index;
} ml_place;

typedef struct ml_blocks {
    ml_region region;     /* owned; holds the four arrays */
    ml_block_node *nodes; /* 1..limit */
    ml_block_span *spans; /* the segments, 1..limit */
    uint32_t *buckets;
    ml_place *order; /* scratch of the only visitor */
    uint32_t limit;
    uint32_t node_end; /* nodes from here on were never used */
    uint32_t node_unused;
    uint32_t node_count;
    uint32_t span_end;
    uint32_t span_unused;
    uint32_t span_root; /* of the tree by address */
    uint32_t bucket_count;
    uint32_t bucket_mask; /* 2^n - 1, of the buckets when the current round is done */
    ml_totals totals;     /* bytes */
    uint64_t in_use;      /* blocks allocated or waiting for their free */
    uint64_t segments;    /* items */
    uint64_t oversize; /* torch's threshold in bytes for oversize blocks and segments */
    /* torch's own counts, kept on request; undefined without segments. */
    bool counting;
    ml_pool_stats counts;
} ml_blocks;

/* LIMIT as block_limit of ml_ledger_new.  0 or ML_ENOMEM. */
int ml_blocks_init(ml_blocks *blocks, size_t limit);
void ml_blocks_fini(ml_blocks *blocks);
void ml_blocks_clear(ml_blocks *blocks);

static inline uint32_t
ml_blocks_hash(uint64_t addr)
{
    return (uint32_t)(ml_hash_high(addr) >> 32);
}

static inline uint32_t
ml_blocks_bucket(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t hash = ml_blocks_hash(addr) & blocks->bucket_mask;
    return hash < blocks->bucket_count ? hash : hash & (blocks->bucket_mask >> 1);
}

/* The block that starts at ADDR; 0: none. */
static inline uint32_t
ml_blocks_find(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t index = blocks->buckets[ml_blocks_bucket(blocks, addr)];
    while (index != 0 && blocks->nodes[index].addr != addr) {
        index = blocks->nodes[index].chain;
    }
    return index;
}

/* The last segment that starts at ADDR or below it, and the first above; 0 for none. */
uint32_t ml_blocks_span_at_most(const ml_blocks *blocks, uint64_t addr);
uint32_t ml_blocks_span_above(const ml_blocks *blocks, uint64_t addr);
/* The segment or block whose bytes hold ADDR; 0 for none.  The latter looks through a
 * segment. */
uint32_t ml_blocks_span_holding(const ml_blocks *blocks, uint64_t addr);
uint32_t ml_blocks_holding(const ml_blocks *blocks, uint64_t addr);

/* A free block outside every segment; 0: the table is full. */
uint32_t ml_blocks_add(ml_blocks *blocks, uint64_t addr, uint64_t size);
/* Returns the node of a block outside every segment. */
void ml_blocks_drop(ml_blocks *blocks, uint32_t index);

static inline void
ml_blocks_count_in_pool(ml_blocks *blocks, const ml_block_node *node)
{
    uint64_t *counts = blocks->counts.of[node->pool];
    bool allocated = node->state == ML_BLOCK_ALLOCATED;
    counts[ML_POOL_STAT_allocation] += allocated;
    counts[ML_POOL_STAT_allocated_bytes] += allocated ? node->size : 0;
    counts[ML_POOL_STAT_oversize_allocations] +=
        allocated && node->size >= blocks->oversize;
    counts[ML_POOL_STAT_active]++;
    counts[ML_POOL_STAT_active_bytes] += node->size;
    counts[ML_POOL_STAT_requested_bytes] += node->requested;
}

static inline void
ml_blocks_uncount_in_pool(ml_blocks *blocks, const ml_block_node *node)
{
    uint64_t *counts = blocks->counts.of[node->pool];
    bool allocated = node->state == ML_BLOCK_ALLOCATED;
    counts[ML_POOL_STAT_allocation] -= allocated;
    counts[ML_POOL_STAT_allocated_bytes] -= allocated ? node->size : 0;
    counts[ML_POOL_STAT_oversize_allocations] -=
        allocated && node->size >= blocks->oversize;
    counts[ML_POOL_STAT_active]--;
    counts[ML_POOL_STAT_active_bytes] -= node->size;
    counts[ML_POOL_STAT_requested_bytes] -= node->requested;
}

/* Updates the sums over blocks in use: called before and after a block's state or size
 * changes. */
static inline void
ml_blocks_count(ml_blocks *blocks, const ml_block_node *node)
{
    blocks->totals.allocated += node->state == ML_BLOCK_ALLOCATED ? node->size : 0;
    blocks->totals.active += node->size;
    blocks->totals.requested += node->requested;
    blocks->in_use++;
    if (blocks->counting) {
        ml_blocks_count_in_pool(blocks, node);
    }
}

static inline void
ml_blocks_uncount(ml_blocks *blocks, const ml_block_node *node)
{
    blocks->totals.allocated -= node->state == ML_BLOCK_ALLOCATED ? node->size : 0;
    blocks->totals.active -= node->size;
    blocks->totals.requested -= node->requested;
    blocks->in_use--;
    if (blocks->counting) {
        ml_blocks_uncount_in_pool(blocks, node);
    }
}

/* A free block is the rest of a split if its segment has other blocks; torch does not
 * count expandable segments here. */
static inline bool
ml_blocks_is_rest(const ml_block_node *node)
{
    return node->state == ML_BLOCK_INACTIVE && !node->expandable &&
           (node->prev | node->next) != 0;
}

static inline void
ml_blocks_count_rest(ml_blocks *blocks, const ml_block_node *node)
{
    if (blocks->counting && ml_blocks_is_rest(node)) {
        blocks->counts.of[node->pool][ML_POOL_STAT_inactive_split]++;
        blocks->counts.of[node->pool][ML_POOL_STAT_inactive_split_bytes] += node->size;
    }
}

static inline void
ml_blocks_uncount_rest(ml_blocks *blocks, const ml_block_node *node)
{
    if (blocks->counting && ml_blocks_is_rest(node)) {
        blocks->counts.of[node->pool][ML_POOL_STAT_inactive_split]--;
        blocks->counts.of[node->pool][ML_POOL_STAT_inactive_split_bytes] -= node->size;
    }
}

/* Free block NODE, complete except for its state, is in use from now on. */
static inline void
ml_blocks_use(ml_blocks *blocks, ml_block_node *node, uint8_t state)
{
    ml_blocks_uncount_rest(blocks, node);
    node->state = state;
    ml_blocks_count(blocks, node);
}

/* The free of allocated block NODE was requested. */
static inline void
ml_blocks_pend(ml_blocks *blocks, ml_block_node *node)
{
    blocks->totals.allocated -= node->size;
    node->state = ML_BLOCK_PENDING_FREE;
    if (blocks->counting) {
        uint64_t *counts = blocks->counts.of[node->pool];
        counts[ML_POOL_STAT_allocation]--;
        counts[ML_POOL_STAT_allocated_bytes] -= node->size;
        counts[ML_POOL_STAT_oversize_allocations] -= node->size >= blocks->oversize;
    }
}

static inline bool
ml_blocks_is_oversize(const ml_blocks *blocks, const ml_block_span *span)
{
    return !span->expandable && span->total >= blocks->oversize;
}

/* torch counts an expandable segment's bytes, but not the segment. */
static inline void
ml_blocks_count_span(ml_blocks *blocks, const ml_block_span *span)
{
    uint64_t *counts = blocks->counts.of[span->small ? ML_POOL_SMALL : ML_POOL_LARGE];
    counts[ML_POOL_STAT_reserved_bytes] += span->total;
    counts[ML_POOL_STAT_segment] += !span->expandable;
    counts[ML_POOL_STAT_oversize_segments] += ml_blocks_is_oversize(blocks, span);
}

/* A block as visitors see it. */
ml_block ml_blocks_show(const ml_block_node *node);

/* A segment of one free block, with all fields but its blocks as in LIKE.  Returns the
 * index of the segment; 0: the table is full. */
uint32_t ml_blocks_add_span(ml_blocks *blocks, const ml_block_span *like);

/* Forgets segment SPAN and its blocks.  Returns the number of those in use. */
uint64_t ml_blocks_drop_span(ml_blocks *blocks, uint32_t span);

/* Cuts block INDEX after BYTES, fewer than it has.  Returns the right part, which is
 * always free; 0: the table is full. */
uint32_t ml_blocks_split(ml_blocks *blocks, uint32_t index, uint64_t bytes);
/* Merges free block INDEX with its free neighbours; returns the result. */
uint32_t ml_blocks_merge(ml_blocks *blocks, uint32_t index);
/* Block INDEX in use becomes free and merges; a segment made up for it goes with it.
 * Returns the free block that holds it now, 0 if none does. */
uint32_t ml_blocks_release(ml_blocks *blocks, uint32_t index);
/* Sets the pool of a segment whose pool was unknown. */
void ml_blocks_set_small(ml_blocks *blocks, uint32_t span, bool small);
/* Appends segment RIGHT to LEFT, where LEFT ends.  If one knows their pool, both do. */
void ml_blocks_join_spans(ml_blocks *blocks, uint32_t left, uint32_t right);

/* Makes a free block at ADDR, of BYTES if its segment is long enough.  Overlapping
 * blocks in use are assumed to have been freed unseen.  A block that begins before ADDR
 * keeps the bytes that TIGHT(context, requested) requires.  0: no segment holds ADDR,
 * or the table is full. */
uint32_t ml_blocks_make_room(ml_blocks *blocks, uint64_t addr, uint64_t bytes,
                             uint64_t (*tight)(const void *context, uint64_t requested),
                             const void *context);

/* The blocks that ml_blocks_clear_range removed. */
typedef struct ml_cleared {
    uint64_t bytes;  /* within the range */
    uint64_t in_use; /* blocks */
    bool full;       /* more was removed, because there was no node to cut at */
} ml_cleared;

/* Forgets all in [LOW, HIGH): parts of expandable segments, whole other segments. */
ml_cleared ml_blocks_clear_range(ml_blocks *blocks, uint64_t low, uint64_t high);

/* Receives segments by address, each followed by its blocks by address.  Free blocks
 * are included; their BIRTH is undefined.  A non-zero return stops the walk and becomes
 * its result.  Either may be NULL. */
typedef struct ml_ledger_visitor {
    void *context;
    int (*segment)(void *context, const ml_segment *segment);
    int (*block)(void *context, const ml_block *block, uint64_t birth);
} ml_ledger_visitor;

/* In blocks_image.c: the whole content, packed, for a table with as much room. */
size_t ml_blocks_image_bytes(const ml_blocks *blocks);
void ml_blocks_save(const ml_blocks *blocks, void *image);
void ml_blocks_load(ml_blocks *blocks, const void *image);

/* In blocks_walk.c: keeps torch's counts from now on, with their current values. */
void ml_blocks_start_counting(ml_blocks *blocks);

/* These two are in blocks_walk.c and use the scratch `order`: one at a time.  Without
 * segments each block is shown as a segment of its own. */
int ml_blocks_visit(const ml_blocks *blocks, bool has_segments,
                    const ml_ledger_visitor *visitor);
/* NULL, or the error. */
const char *ml_blocks_validate(const ml_blocks *blocks, bool has_segments);

#endif
