/* Owns the nodes of live CPU allocations and the map from address to node.
 *
 * The map is a two-level table over granules of 64 bytes, the alignment of torch's CPU
 * allocator.  It reserves 128 MiB of address space for the top level, and 1 MiB for
 * every 16 MiB of addresses in use; only touched pages cost memory.  Nodes come from
 * chunks mapped on demand, and from a free list whose head has a tag against ABA. */
#include "sources/cpu_table.h"

#include <sys/mman.h>

#include "memlab.h"

namespace {

constexpr unsigned granule_bits = 6;
constexpr unsigned leaf_bits = 18;
constexpr unsigned address_bits = 48;
constexpr size_t leaf_count = size_t{1} << (address_bits - granule_bits - leaf_bits);
constexpr size_t leaf_slots = size_t{1} << leaf_bits;

/* Index + 1 of the node, 0 for none. */
using slot = std::atomic<uint32_t>;
using leaf_pointer = std::atomic<slot *>;

std::atomic<leaf_pointer *> top{nullptr};

constexpr uint32_t chunk_bits = 14;
constexpr uint32_t chunk_nodes = 1u << chunk_bits;
constexpr uint32_t chunk_count = 1024;

std::atomic<ml_cpu_node *> chunks[chunk_count];
/* Nodes ever taken: the walk's bound. */
std::atomic<uint32_t> node_count{0};
/* Tag in the upper half, index + 1 in the lower. */
std::atomic<uint64_t> free_head{0};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "no hidden lock");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "no hidden lock");

/* Zeroed memory that costs nothing until touched. */
template <class T>
T *
map_zeroed(size_t bytes) noexcept
{
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<T *>(memory);
}

/* The target of WHERE, mapped first if needed. */
template <class T>
T *
map_once(std::atomic<T *> &where, size_t bytes) noexcept
{
    T *found = where.load(std::memory_order_acquire);
    if (found != nullptr) {
        return found;
    }
    T *fresh = map_zeroed<T>(bytes);
    if (fresh == nullptr) {
        return nullptr;
    }
    if (where.compare_exchange_strong(found, fresh, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return fresh;
    }
    munmap(fresh, bytes);
    return found;
}

ml_cpu_node *
node_at(uint32_t index) noexcept
{
    ml_cpu_node *chunk = chunks[index >> chunk_bits].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + (index & (chunk_nodes - 1));
}

slot *
slot_of(uint64_t addr, bool create) noexcept
{
    leaf_pointer *leaves = top.load(std::memory_order_acquire);
    if (leaves == nullptr || !ml_cpu_table_covers(addr)) {
        return nullptr;
    }
    const uint64_t granule = addr >> granule_bits;
    leaf_pointer &where = leaves[granule >> leaf_bits];
    slot *leaf = create ? map_once(where, leaf_slots * sizeof(slot))
                        : where.load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr : leaf + (granule & (leaf_slots - 1));
}

} // namespace

int
ml_cpu_table_init(void)
{
    return map_once(top, leaf_count * sizeof(leaf_pointer)) != nullptr ? 0 : ML_ENOMEM;
}

bool
ml_cpu_table_covers(uint64_t addr) noexcept
{
    return (addr & ((1u << granule_bits) - 1)) == 0 && addr >> address_bits == 0;
}

ml_cpu_node *
ml_cpu_node_take() noexcept
{
    uint64_t head = free_head.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(head) != 0) {
        ml_cpu_node *node = node_at(static_cast<uint32_t>(head) - 1);
        const uint64_t next =
            ((head >> 32) + 1) << 32 | node->next.load(std::memory_order_relaxed);
        if (free_head.compare_exchange_weak(head, next, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
            return node;
        }
    }
    uint32_t index = node_count.load(std::memory_order_relaxed);
    do {
        if (index >= chunk_count * chunk_nodes ||
            map_once(chunks[index >> chunk_bits], chunk_nodes * sizeof(ml_cpu_node)) ==
                nullptr) {
            return nullptr;
        }
    } while (!node_count.compare_exchange_weak(
        index, index + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    ml_cpu_node *node = node_at(index);
    node->index = index;
    return node;
}

void
ml_cpu_node_give_back(ml_cpu_node *node) noexcept
{
    uint64_t head = free_head.load(std::memory_order_relaxed);
    uint64_t next;
    do {
        node->next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | (node->index + 1);
    } while (!free_head.compare_exchange_weak(head, next, std::memory_order_release,
                                              std::memory_order_relaxed));
}

bool
ml_cpu_table_insert(ml_cpu_node *node, ml_cpu_node **stale) noexcept
{
    slot *where = slot_of(node->addr.load(std::memory_order_relaxed), true);
    if (where == nullptr) {
        return false;
    }
    node->generation.fetch_add(1, std::memory_order_release);
    const uint32_t old = where->exchange(node->index + 1, std::memory_order_acq_rel);
    *stale = nullptr;
    if (old != 0) {
        *stale = node_at(old - 1);
        (*stale)->generation.fetch_add(1, std::memory_order_acq_rel);
    }
    return true;
}

ml_cpu_node *
ml_cpu_table_remove(uint64_t addr) noexcept
{
    slot *where = slot_of(addr, false);
    const uint32_t found =
        where == nullptr ? 0 : where->exchange(0, std::memory_order_acq_rel);
    if (found == 0) {
        return nullptr;
    }
    ml_cpu_node *node = node_at(found - 1);
    node->generation.fetch_add(1, std::memory_order_acq_rel);
    return node;
}

int
ml_cpu_table_view(uint32_t index, ml_cpu_view *out) noexcept
{
    if (index >= node_count.load(std::memory_order_acquire)) {
        return -1;
    }
    const ml_cpu_node *node = node_at(index);
    const uint32_t before = node->generation.load(std::memory_order_acquire);
    out->addr = node->addr.load(std::memory_order_relaxed);
    out->size = node->size.load(std::memory_order_relaxed);
    out->stack = node->stack.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint32_t after = node->generation.load(std::memory_order_relaxed);
    return before == after && (before & 1) != 0 ? 1 : 0;
}
