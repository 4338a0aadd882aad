/* The live allocations of the CPU source: a node for each, found by address.
 *
 * Lock-free and never shrinking, so that a deleter may run on any thread, after a fork
 * and while the process exits. It knows neither torch nor the recorder. */
#ifndef ML_CPU_TABLE_H
#define ML_CPU_TABLE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

/* One live allocation.  The thread that allocates or frees the memory owns the node; a
 * walk reads the atomics under `generation`, which is odd while the node is live. */
struct ml_cpu_node {
    std::atomic<uint32_t> generation;
    std::atomic<uint32_t> next;  /* free list: index + 1, 0 ends it */
    std::atomic<uint32_t> stack; /* stack id of the allocation; 0 until known */
    uint32_t index;              /* of this node, for ever */
    std::atomic<uint64_t> addr;
    std::atomic<uint64_t> size; /* bytes */
    void (*deleter)(void *);    /* of the wrapped allocator */
    void *context;              /* what its deleter takes */
};

/* Reserves address space for the table.  0 or ML_ENOMEM; again is harmless. */
int ml_cpu_table_init(void);

/* Whether the table can hold ADDR: 64-byte aligned, below 2**48. */
bool ml_cpu_table_covers(uint64_t addr) noexcept;

/* Takes an unused node, to be given to ml_cpu_table_insert.  NULL: out of memory. */
ml_cpu_node *ml_cpu_node_take() noexcept;
void ml_cpu_node_give_back(ml_cpu_node *node) noexcept;

/* Publishes NODE under its address.  *STALE becomes a node that was still there, whose
 * memory was freed behind the table's back; the caller gives it back.  False: out of
 * memory, nothing is changed. */
bool ml_cpu_table_insert(ml_cpu_node *node, ml_cpu_node **stale) noexcept;
/* Takes out the node of ADDR; NULL where there is none. */
ml_cpu_node *ml_cpu_table_remove(uint64_t addr) noexcept;

/* What a walk sees of a live allocation. */
struct ml_cpu_view {
    uint64_t addr;
    uint64_t size;
    uint32_t stack;
};
/* Reads the INDEXth node: 1 live, 0 not live, -1 past the last one. */
int ml_cpu_table_view(uint32_t index, ml_cpu_view *out) noexcept;

#endif
