/* Threads insert into and remove from the table of live CPU allocations while another
 * walks it; every answer is checked. Exit status 0 if all were right. */
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "sources/cpu_table.h"

namespace {

constexpr int thread_count = 4;
constexpr int steps = 100000;
constexpr size_t most_live = 50;

std::atomic<int> wrong{0};

void
expect(bool right, const char *what)
{
    if (!right && wrong.fetch_add(1) < 10) {
        std::printf("wrong: %s\n", what);
    }
}

/* The size that a test allocation at ADDR has: a walk that mixes two nodes shows it. */
uint64_t
size_at(uint64_t addr)
{
    return addr ^ 7;
}

void
insert(uint64_t addr)
{
    ml_cpu_node *node = ml_cpu_node_take();
    expect(node != nullptr, "a node is free");
    node->addr.store(addr, std::memory_order_relaxed);
    node->size.store(size_at(addr), std::memory_order_relaxed);
    node->stack.store(0, std::memory_order_relaxed);
    node->context = reinterpret_cast<void *>(addr);
    ml_cpu_node *stale;
    expect(ml_cpu_table_insert(node, &stale), "inserted");
    expect(stale == nullptr, "no other node was there");
}

void
remove(uint64_t addr)
{
    ml_cpu_node *node = ml_cpu_table_remove(addr);
    expect(node != nullptr && node->context == reinterpret_cast<void *>(addr),
           "the node that was inserted comes out");
    expect(ml_cpu_table_remove(addr) == nullptr, "once");
    ml_cpu_node_give_back(node);
}

void
work(unsigned number)
{
    std::mt19937 random(number);
    std::vector<uint64_t> live;
    for (int i = 0; i < steps; i++) {
        if (live.size() < most_live && (live.empty() || random() % 2 != 0)) {
            const uint64_t addr =
                (uint64_t{number + 1} << 36) + uint64_t{random() % 100000} * 64;
            bool taken = false;
            for (uint64_t other : live) {
                taken = taken || other == addr;
            }
            if (!taken) {
                insert(addr);
                live.push_back(addr);
            }
        }
        else {
            const size_t which = random() % live.size();
            remove(live[which]);
            live[which] = live.back();
            live.pop_back();
        }
    }
    for (uint64_t addr : live) {
        remove(addr);
    }
}

/* Walks the table once; returns how many live nodes it saw. */
int
walk()
{
    ml_cpu_view view;
    int found, live = 0;
    for (uint32_t i = 0; (found = ml_cpu_table_view(i, &view)) >= 0; i++) {
        expect(found == 0 || view.size == size_at(view.addr), "a view is of one node");
        live += found;
    }
    return live;
}

} // namespace

int
main()
{
    expect(ml_cpu_table_remove(64) == nullptr, "nothing before the table is made");
    expect(ml_cpu_table_init() == 0 && ml_cpu_table_init() == 0, "made, once");
    expect(!ml_cpu_table_covers(63) && !ml_cpu_table_covers(uint64_t{1} << 48) &&
               ml_cpu_table_covers((uint64_t{1} << 48) - 64),
           "covers aligned addresses below 2**48");
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; i++) {
        threads.emplace_back(work, i);
    }
    std::atomic<bool> done{false};
    std::thread walker([&] {
        while (!done) {
            expect(walk() <= thread_count * static_cast<int>(most_live), "bounded");
        }
    });
    for (std::thread &thread : threads) {
        thread.join();
    }
    done = true;
    walker.join();
    expect(walk() == 0, "empty at the end");
    insert(4096);
    expect(walk() == 1, "one at the end");
    std::printf("%d wrong\n", wrong.load());
    return wrong.load() != 0;
}
