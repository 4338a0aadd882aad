/* The blocks, pools and address spaces that the files of the allocator model share.
 *
 * Owns the layout of an ml_allocator; private to allocator*.c.  Blocks are nodes of one
 * array and refer to each other by index; 0 is none.  Names follow torch's allocator,
 * so that the two can be read side by side. */
#ifndef ML_ALLOCATOR_PARTS_H
#define ML_ALLOCATOR_PARTS_H

#include "base/base.h"
#include "lab/simulator/allocator.h"
#include "ledger/ledger.h"

#define ML_MINIMUM_BLOCK UINT64_C(512)
#define ML_REQUEST_MAX (UINT64_C(1) << 62)

enum ml_node_state {
    ML_NODE_UNUSED,
    ML_NODE_FREE, /* in its pool's set of free blocks or of unmapped space */
    ML_NODE_ALLOCATED,
    ML_NODE_WAITING,  /* freed; streams still use it, or a capture delays it */
    ML_NODE_DEFERRED, /* freed; the caller will say when it completes */
};

/* A block, or a range of address space without memory. */
typedef struct ml_node {
    uint64_t stream;
    uint64_t addr;
    uint64_t size;
    uint64_t counter;    /* orders free blocks of one size, before their address */
    uint64_t requested;  /* stale on a free block, as in torch */
    uint64_t gc_base;    /* lookups in its set when it entered it */
    uint32_t prev, next; /* neighbours by address in the segment */
    union {
        struct ml_set_leaf *leaf; /* borrowed; of a node in a set */
        struct {
            uint32_t left,
                right; /* of deferred blocks, the previous and next deferred */
        };
    };
    uint32_t pool;   /* index */
    uint32_t uses;   /* other streams that use it; index */
    uint32_t events; /* stream events that its free waits for */
    uint32_t space;  /* index of its address space; 0: a segment of its own */
    uint8_t state;   /* enum ml_node_state */
    uint8_t small;   /* among the small blocks of its pool */
    uint8_t mapped;
} ml_node;

/* The place of a free node among those of its stream. */
typedef struct ml_set_key {
    uint64_t size; /* 0 where unmapped */
    /* Equal only for blocks of one segment, where the order of segments decides. */
    uint64_t first;
    uint64_t addr;
    uint32_t node;
} ml_set_key;

#define ML_SET_LEAF_KEYS 32

/* Neighbours in the order of a set. */
typedef struct ml_set_leaf {
    size_t count; /* 0: the only one of its class */
    ml_set_key keys[ML_SET_LEAF_KEYS];
} ml_set_leaf;

typedef struct ml_set_branch {
    ml_set_key from;   /* no key of the leaf is below, but in the first leaf */
    ml_set_leaf *leaf; /* owned */
} ml_set_branch;

/* Free nodes of a stream and of a range of sizes, in order. */
typedef struct ml_set_class {
    ml_set_branch *branches; /* owned; none until there is a node */
    size_t count;
    size_t capacity;
} ml_set_class;

/* Eight ranges of sizes for each power of two, up to 8 TiB. */
#define ML_SET_CLASSES 256

/* Free nodes of a stream, by class. */
typedef struct ml_set_stream {
    uint64_t stream;
    uint64_t used[ML_SET_CLASSES / 64]; /* a bit for each class with nodes */
    ml_set_class *classes;              /* owned */
} ml_set_stream;

/* Free nodes by stream, then by key. */
typedef struct ml_set {
    ml_set_stream *streams; /* owned; in order */
    size_t count;
    size_t capacity;
} ml_set;

/* A key's place; at the end of its leaf: after that leaf's keys. */
typedef struct ml_set_place {
    uint32_t stream;
    uint32_t class;
    uint32_t branch;
    uint32_t at;
} ml_set_place;

/* Blocks of one size class of a pool. */
typedef struct ml_block_pool {
    ml_set blocks; /* free */
    ml_set unmapped;
    uint64_t lookups; /* get_free_blocks_call_count */
} ml_block_pool;

typedef struct ml_memory_pool {
    uint32_t id[2];
    uint32_t use_count;
    uint32_t begun;      /* current requests go to it */
    unsigned flags;      /* ML_POOL_* */
    ml_block_pool of[2]; /* large, small */
} ml_memory_pool;

/* Reserved address space of an expandable segment. */
typedef struct ml_space {
    uint64_t addr;
    uint64_t size; /* 0: this entry is unused */
    uint64_t page;
} ml_space;

/* A stream that uses a block. */
typedef struct ml_stream_use {
    uint64_t stream;
    uint32_t next; /* index of the next in the block's list */
    bool captured; /* recorded while a capture was underway */
} ml_stream_use;

/* A stream's event that a block waits for. */
typedef struct ml_wait {
    uint64_t stream;
    uint64_t number; /* in time */
    uint32_t node;
} ml_wait;

struct ml_allocator {
    ml_allocator_settings settings;
    ml_allocator_rules rules; /* of settings, for rounding */
    ml_allocator_driver driver;
    uint64_t total_bytes;
    uint64_t allowed; /* UINT64_MAX: no cap */
    ml_allocator_stats figures;
    uint64_t counter;  /* of segments, or of blocks; the order of their making */
    int error;         /* ML_ENOMEM: a free block is in no set */
    uint32_t captures; /* begun pools that delay frees and releases */
    uint64_t wait_number;

    ml_node *nodes; /* [0] is none */
    size_t node_count, node_capacity;
    uint32_t free_node; /* list through next */

    ml_memory_pool *pools; /* [0] is the default */
    size_t pool_count, pool_capacity;
    ml_intern pool_ids;

    ml_space *spaces; /* [0] is none */
    size_t space_count, space_capacity;

    ml_stream_use *uses; /* [0] is none */
    size_t use_count, use_capacity;
    uint32_t free_use; /* list through next */

    ml_wait *waits; /* events of streams that blocks wait for */
    size_t wait_count, wait_capacity;
    uint32_t *held; /* blocks freed while a capture was underway */
    size_t held_count, held_capacity;
    uint32_t deferred_first, deferred_last; /* blocks freed by _free_deferred */
    uint32_t *scratch;
    size_t scratch_capacity;

    uint32_t *slots; /* blocks in use by address, open addressing; 0: empty */
    size_t slot_count, slot_used;
};

/* A request on its way: torch's AllocParams. */
typedef struct ml_request {
    uint64_t bytes; /* rounded */
    uint64_t stream;
    uint64_t segment_bytes; /* bytes to ask the driver for */
    uint32_t pool;
    bool small;
    bool expandable; /* whether its segment would be expandable */
    uint32_t block;  /* the answer */
} ml_request;

static inline ml_block_pool *
ml_pool_of(ml_allocator *a, const ml_node *node)
{
    return &a->pools[node->pool].of[node->small];
}

static inline bool
ml_node_is_split(const ml_node *node)
{
    return node->prev != 0 || node->next != 0;
}

static inline bool
ml_allocator_is_capturing(const ml_allocator *a)
{
    return a->captures > 0;
}

/* allocator_stats.c: events and totals. */
void ml_allocator_stats_trace(ml_allocator *a, unsigned action, uint64_t addr,
                              uint64_t size, uint64_t stream, uint32_t pool,
                              uint64_t block_bytes);
void ml_allocator_stats_trace_node(ml_allocator *a, unsigned action, uint64_t addr,
                                   uint64_t size, const ml_node *node);
void ml_allocator_stats_trace_block(ml_allocator *a, unsigned action,
                                    const ml_node *node);
void ml_allocator_stats_reserved_grew(ml_allocator *a, uint64_t bytes);
void ml_allocator_stats_inactive_split_grew(ml_allocator *a, uint64_t bytes);
void ml_allocator_stats_count_allocated(ml_allocator *a, const ml_node *node);

/* allocator_sets.c: sets ordered by the keys of their nodes. */
/* If there is no memory for it, NODE is not added, and the allocator's error says so. */
void ml_set_insert(ml_allocator *a, ml_set *set, uint32_t node);
void ml_set_remove(ml_allocator *a, ml_set *set, uint32_t node);
/* The first node whose stream and size are not below STREAM and SIZE; 0: none.  *PLACE is
 * its place until the set changes. */
uint32_t ml_set_find(const ml_set *set, uint64_t stream, uint64_t size,
                     ml_set_place *place);
/* The node after the one at PLACE, whose place PLACE becomes; 0: none. */
uint32_t ml_set_step(const ml_set *set, ml_set_place *place);
/* Removes the node that was found at PLACE. */
void ml_set_take(ml_set *set, ml_set_place place);
/* The last unmapped range of STREAM that begins at or below ADDR; 0: none. */
uint32_t ml_set_find_range(const ml_set *set, uint64_t stream, uint64_t addr);
/* The node after or before NODE in the set; for NODE 0, the first or last. */
uint32_t ml_set_next(const ml_allocator *a, const ml_set *set, uint32_t node);
uint32_t ml_set_previous(const ml_allocator *a, const ml_set *set, uint32_t node);
bool ml_set_is_empty(const ml_set *set);
void ml_set_fini(ml_set *set);

/* allocator_nodes.c: nodes, their neighbours, and blocks in use by address. */
/* Makes room for COUNT more nodes; 0 or ML_ENOMEM. */
int ml_nodes_reserve(ml_allocator *a, size_t count);
/* A node of the reserved room, with all fields of LIKE but its links in sets. */
uint32_t ml_node_new(ml_allocator *a, const ml_node *like);
void ml_node_drop(ml_allocator *a, uint32_t node);
/* Puts NEW, which has no neighbours yet, between BEFORE and AFTER. */
void ml_node_splice(ml_allocator *a, uint32_t node, uint32_t before, uint32_t after);
/* Adds the node to its pool's set, of free blocks or of unmapped space. */
void ml_node_to_pool(ml_allocator *a, uint32_t node);
void ml_node_from_pool(ml_allocator *a, uint32_t node);
/* Merges OTHER, its neighbour, into NODE if both are free or both unmapped.  Returns
 * the merged bytes, or 0. */
uint64_t ml_node_merge(ml_allocator *a, uint32_t node, uint32_t other);
int ml_slots_reserve(ml_allocator *a);
void ml_slots_add(ml_allocator *a, uint32_t node);
void ml_slots_remove(ml_allocator *a, uint32_t node);
uint32_t ml_slots_find(const ml_allocator *a, uint64_t addr); /* 0: none */

/* allocator_pools.c */
/* The index of the pool ID, made if needed; negative: ML_ENOMEM. */
int64_t ml_allocator_pool(ml_allocator *a, const uint32_t id[2]);
/* The slot of POOL in torch's hash tables: the key times 2^64 over the golden ratio.
 * Pools with the same slot keep their order of arrival. */
uint64_t ml_pool_place(const ml_memory_pool *pool);
/* The pool after POOL in the order of torch's tables.  POOL 0: the first.  Returns 0 at
 * the end. */
size_t ml_pool_next(const ml_allocator *a, size_t pool);

/* allocator_frees.c: frees, and frees that wait for stream events. */
/* NODE, with its free requested, waits for ml_allocator_complete(). */
void ml_frees_defer(ml_allocator *a, uint32_t node);
/* Completes all frees that wait for streams; if EVERYTHING, deferred ones too. */
int ml_frees_finish(ml_allocator *a, bool everything);
/* Completes POOL's frees that wait for streams. */
int ml_frees_finish_pool(ml_allocator *a, uint32_t pool);

/* allocator_expandable.c.  Results: 1: done; 0: no memory left; or ML_E*. */
int ml_expandable_alloc(ml_allocator *a, ml_request *request);
/* Releases the whole pages of the free block NODE, and the address space with the last
 * page. */
int ml_expandable_release(ml_allocator *a, uint32_t node);
/* A new space of at least BYTES at ADDR.  *NODE: its unmapped node, like LIKE. */
int ml_expandable_add(ml_allocator *a, uint64_t addr, uint64_t bytes,
                      const ml_node *like, uint32_t *node);
uint64_t ml_expandable_page(const ml_allocator *a, bool small);
uint64_t ml_expandable_bytes(const ml_allocator *a, bool small);

/* allocator_release.c: memory given back to the driver. */
void ml_release_collect_garbage(ml_allocator *a);
/* Releases oversize blocks for REQUEST; returns whether they suffice. */
bool ml_release_oversize(ml_allocator *a, const ml_request *request);
int ml_release_all(ml_allocator *a);

#endif
