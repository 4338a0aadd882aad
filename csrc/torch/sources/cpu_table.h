/* The live allocations of the CPU source: a node for each, found by address.
 *
 * Lock-free and never shrinking, so that a deleter may run on any thread, after a fork
 * and while the process exits. */
#ifndef ML_CPU_TABLE_H
#define ML_CPU_TABLE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

/* One live allocation.  The thread that allocates or frees the memory owns the node.  A
 * walk reads the atomics under `generation`, which is odd while the node is live. */
struct ml_cpu_node {
    std::atomic<uint32_t> generation;
    std::atomic<uint32_t> next;  /* free list: index + 1, 0 ends it */
    std::atomic<uint32_t> stack; /* stack id of the allocation; 0 until known */
    uint32_t index;              /* of this node; never changes */
    std::atomic<uint64_t> addr;
    std::atomic<uint64_t> size; /* bytes */
    void (*deleter)(void *);    /* of the wrapped allocator */
    void *context;              /* argument of the deleter */
};

/* Reserves address space for the table.  0 or ML_ENOMEM; can be repeated. */
int ml_cpu_table_init(void);

/* Whether the table can hold ADDR: 64-byte aligned, below 2**48. */
bool ml_cpu_table_covers(uint64_t addr) noexcept;

/* Takes an unused node, for ml_cpu_table_insert.  NULL: out of memory. */
ml_cpu_node *ml_cpu_node_take() noexcept;
void ml_cpu_node_give_back(ml_cpu_node *node) noexcept;

/* Publishes NODE under its address.  *STALE: an old node there, whose memory was freed
 * unseen; the caller gives it back.  False: out of memory, nothing changed. */
bool ml_cpu_table_insert(ml_cpu_node *node, ml_cpu_node **stale) noexcept;
/* Removes the node of ADDR; NULL: there is none. */
ml_cpu_node *ml_cpu_table_remove(uint64_t addr) noexcept;

/* A live allocation in a walk. */
struct ml_cpu_view {
    uint64_t addr;
    uint64_t size;
    uint32_t stack;
};
/* Reads the INDEXth node: 1 live, 0 not live, -1 past the last one. */
int ml_cpu_table_view(uint32_t index, ml_cpu_view *out) noexcept;

#endif
