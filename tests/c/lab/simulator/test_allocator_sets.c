/* The sets of free nodes, against a list that is sorted anew for each question. */
#include "budget.h"
#include "lab/simulator/allocator_parts.h"
#include "test.h"

#define NODES 700
#define STREAMS 3

typedef struct model {
    ml_allocator allocator;
    ml_node nodes[NODES + 1];
    ml_set set;
    bool inside[NODES + 1];
    uint32_t sorted[NODES];
    size_t count;
    uint32_t random;
} model;

static model m;

static uint32_t
draw(uint32_t below)
{
    m.random = m.random * 1664525 + 1013904223;
    return (m.random >> 8) % below;
}

/* Few SIZES and counters, so that the later parts of the order decide often. */
static void
set_up(enum ml_block_order order, bool mapped, uint32_t sizes)
{
    memset(&m, 0, sizeof(m));
    m.random = 7;
    m.allocator.nodes = m.nodes;
    m.allocator.settings.order = order;
    for (uint32_t i = 1; i <= NODES; i++) {
        m.nodes[i] = (ml_node){.stream = draw(STREAMS) * 7,
                               .size = 512 * (1 + draw(sizes)),
                               .counter = 1 + draw(5),
                               .addr = 512 * (1 + draw(1u << 20)),
                               .mapped = mapped};
    }
}

static int
order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int
compare(const void *left, const void *right)
{
    uint32_t i = *(const uint32_t *)left, j = *(const uint32_t *)right;
    const ml_node *a = &m.nodes[i], *b = &m.nodes[j];
    int by = order_of(a->stream, b->stream);
    if (by == 0 && a->mapped) {
        by = order_of(a->size, b->size);
    }
    if (by == 0 && a->mapped && m.allocator.settings.order != ML_ORDER_ADDRESS) {
        by = order_of(a->counter, b->counter);
    }
    by = by != 0 ? by : order_of(a->addr, b->addr);
    return by != 0 ? by : order_of(i, j);
}

static void
sort(void)
{
    m.count = 0;
    for (uint32_t i = 1; i <= NODES; i++) {
        if (m.inside[i]) {
            m.sorted[m.count++] = i;
        }
    }
    qsort(m.sorted, m.count, sizeof(m.sorted[0]), compare);
}

/* The first node from STREAM and SIZE on, by the list. */
static uint32_t
find(uint64_t stream, uint64_t size)
{
    size_t i = 0;
    while (i < m.count && (m.nodes[m.sorted[i]].stream < stream ||
                           (m.nodes[m.sorted[i]].stream == stream &&
                            m.nodes[m.sorted[i]].size < size))) {
        i++;
    }
    return i < m.count ? m.sorted[i] : 0;
}

/* The last node of STREAM up to ADDR, by the list. */
static uint32_t
find_range(uint64_t stream, uint64_t addr)
{
    uint32_t found = 0;
    for (size_t i = 0; i < m.count; i++) {
        const ml_node *node = &m.nodes[m.sorted[i]];
        found = node->stream == stream && node->addr <= addr ? m.sorted[i] : found;
    }
    return found;
}

static void
toggle(uint32_t node)
{
    if (m.inside[node]) {
        ml_set_remove(&m.allocator, &m.set, node);
    }
    else {
        ml_set_insert(&m.allocator, &m.set, node);
    }
    m.inside[node] = !m.inside[node];
}

static void
check_walks(void)
{
    uint32_t at = 0, back = 0;
    for (size_t i = 0; i < m.count; i++) {
        at = ml_set_next(&m.allocator, &m.set, at);
        CHECK_UINT(at, m.sorted[i]);
        back = ml_set_previous(&m.allocator, &m.set, back);
        CHECK_UINT(back, m.sorted[m.count - 1 - i]);
    }
    ml_set_place place;
    at = ml_set_find(&m.set, 0, 0, &place);
    for (size_t i = 0; i < m.count; i++) {
        CHECK_UINT(at, m.sorted[i]);
        at = ml_set_step(&m.set, &place);
    }
    CHECK_UINT(at, 0);
    at = m.count != 0 ? m.sorted[m.count - 1] : 0;
    CHECK_UINT(m.count != 0 ? ml_set_next(&m.allocator, &m.set, at) : 0, 0);
    CHECK_UINT(m.count != 0 ? ml_set_previous(&m.allocator, &m.set, back) : 0, 0);
    CHECK(ml_set_is_empty(&m.set) == (m.count == 0));
}

static void
check_finds(void)
{
    for (unsigned i = 0; i < 20; i++) {
        uint64_t stream = draw(STREAMS * 7 + 2), size = 512 * draw(43);
        ml_set_place place;
        CHECK_UINT(ml_set_find(&m.set, stream, size, &place), find(stream, size));
    }
}

/* The set grows to all nodes, shrinks to none, and grows again. */
static void
grow_and_shrink(enum ml_block_order order, uint32_t sizes)
{
    set_up(order, true, sizes);
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < NODES; i++) {
            uint32_t node = 1 + draw(NODES);
            bool grows = round % 2 == 0;
            if (m.inside[node] != grows || draw(8) == 0) {
                toggle(node);
            }
            if (i % 50 == 0) {
                sort();
                check_walks();
                check_finds();
            }
        }
    }
    for (uint32_t i = 1; i <= NODES; i++) {
        if (m.inside[i]) {
            toggle(i);
        }
    }
    sort();
    check_walks();
    CHECK(ml_set_is_empty(&m.set));
    ml_set_fini(&m.set);
}

/* Sizes that share a few leaves, and such that each fill several. */
static void
exercise(enum ml_block_order order)
{
    grow_and_shrink(order, 40);
    grow_and_shrink(order, 2);
}

static void
test_by_address(void)
{
    exercise(ML_ORDER_ADDRESS);
}

static void
test_by_block(void)
{
    exercise(ML_ORDER_BLOCK);
}

static void
test_by_segment(void)
{
    exercise(ML_ORDER_SEGMENT);
}

/* Two nodes are taken out of the place where each was found. */
static void
test_take(void)
{
    set_up(ML_ORDER_ADDRESS, true, 40);
    for (uint32_t i = 1; i <= NODES; i++) {
        toggle(i);
    }
    for (unsigned i = 0; i < NODES; i++) {
        ml_set_place place;
        uint32_t found = ml_set_find(&m.set, 7 * draw(STREAMS), 512 * draw(40), &place);
        if (found != 0) {
            ml_set_take(&m.set, place);
            m.inside[found] = false;
        }
    }
    sort();
    CHECK(m.count < NODES / 2);
    check_walks();
    ml_set_fini(&m.set);
}

/* Of unmapped ranges the address alone decides; ranges of one address stay apart. */
static void
test_unmapped(void)
{
    set_up(ML_ORDER_SEGMENT, false, 40);
    for (uint32_t i = 1; i <= NODES; i++) {
        m.nodes[i].addr = 512 * (1 + draw(300));
        toggle(i);
    }
    sort();
    check_walks();
    for (unsigned i = 0; i < 200; i++) {
        uint64_t stream = draw(STREAMS * 7 + 2), addr = 512 * draw(310);
        CHECK_UINT(ml_set_find_range(&m.set, stream, addr), find_range(stream, addr));
    }
    for (uint32_t i = 1; i <= NODES; i += 2) {
        toggle(i);
    }
    sort();
    check_walks();
    ml_set_fini(&m.set);
}

/* Without memory the allocator knows that a node is in no set, and a node that is not
 * there may be removed. */
static void
test_no_memory(void)
{
    set_up(ML_ORDER_ADDRESS, true, 40);
    m.allocator.error = ML_ENOMEM;
    long budget = 0;
    for (; m.allocator.error != 0; budget++) {
        m.allocator.error = 0;
        budget_begin(budget);
        for (uint32_t i = 1; i <= NODES; i++) {
            ml_set_insert(&m.allocator, &m.set, i);
        }
        CHECK(m.allocator.error == 0 || m.allocator.error == ML_ENOMEM);
        for (uint32_t i = 1; i <= NODES && m.allocator.error != 0; i++) {
            ml_set_remove(&m.allocator, &m.set, i);
        }
        CHECK(ml_set_is_empty(&m.set) == (m.allocator.error != 0));
        ml_set_fini(&m.set);
        m.set = (ml_set){0};
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    CHECK(budget > 10);
}

int
main(void)
{
    RUN(test_by_address);
    RUN(test_by_block);
    RUN(test_by_segment);
    RUN(test_take);
    RUN(test_unmapped);
    RUN(test_no_memory);
    return TEST_RESULT();
}
