/* The ledger against a slow model of the caching allocator's block structure, and events
 * without sense. */
#include "ledger/ledger.h"

#include <stdbool.h>

#include "block_model.h"
#include "ledger_samples.h"
#include "test.h"

typedef struct comparison {
    const model *model;
    size_t next;
    uint64_t end; /* of the segment last announced */
    bool differs;
} comparison;

static int
compare_segment(void *context, const ml_segment *segment)
{
    comparison *c = context;
    while (c->next < c->model->count && c->model->blocks[c->next].state == ' ') {
        c->next++;
    }
    c->differs |=
        c->next == c->model->count || c->model->blocks[c->next].addr != segment->addr;
    c->end = segment->addr + segment->total;
    return 0;
}

static int
compare_block(void *context, const ml_block *block, uint64_t birth)
{
    comparison *c = context;
    (void)birth;
    if (c->next == c->model->count) {
        c->differs = true;
        return 1;
    }
    const model_block *b = &c->model->blocks[c->next++];
    char state = ".*~"[block->state];
    c->differs |= b->addr != block->addr || b->size != block->size || b->state != state;
    c->differs |= state != '.' && b->requested != block->requested;
    /* The segment ends where the reservation or its mapped run does. */
    bool last =
        c->next == c->model->count || b[1].segment != b->segment || b[1].state == ' ';
    c->differs |= last != (block->addr + block->size == c->end);
    return 0;
}

static void
run_model(uint64_t seed, bool expandable)
{
    static model m;
    memset(&m, 0, sizeof(m));
    m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    m.next_base = BASE;
    m.expandable = expandable;
    ml_allocator_rules rules = defaults;
    rules.expandable_segments = expandable;
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, &rules, 0), 0);
    for (int i = 0; i < 3000; i++) {
        /* The counts are checked by ml_ledger_validate, from wherever they begin. */
        if (i % 1000 == 500) {
            ml_ledger_start_counting(ledger);
        }
        else if (i % 1000 == 0) {
            ml_ledger_stop_counting(ledger);
        }
        ml_event event = model_step(&m);
        int problem = ml_ledger_apply(ledger, &event);
        if (problem != 0) {
            CHECK_FAIL("seed %llu, event %d, %s: problem %d", (unsigned long long)seed,
                       i, expandable ? "expandable" : "default", problem);
        }
        ml_totals want = {0, 0, 0, 0};
        for (size_t j = 0; j < m.count; j++) {
            const model_block *b = &m.blocks[j];
            want.allocated += b->state == '*' ? b->size : 0;
            want.active += b->state == '*' || b->state == '~' ? b->size : 0;
            want.requested += b->state == '*' || b->state == '~' ? b->requested : 0;
            want.reserved += b->state != ' ' ? b->size : 0;
        }
        CHECK_TOTALS(ledger, want.allocated, want.active, want.requested,
                     want.reserved);
        if (i % 7 == 0) {
            comparison c = {.model = &m};
            ml_ledger_visitor visitor = {&c, compare_segment, compare_block};
            ml_ledger_visit(ledger, &visitor);
            while (c.next < m.count && m.blocks[c.next].state == ' ') {
                c.next++;
            }
            const char *wrong = ml_ledger_validate(ledger);
            if (c.differs || c.next != m.count || wrong != NULL) {
                CHECK_FAIL("seed %llu, event %d: blocks differ; %s",
                           (unsigned long long)seed, i, wrong == NULL ? "" : wrong);
            }
        }
    }
    ml_ledger_free(ledger);
}

static void
test_model(void)
{
    for (uint64_t seed = 1; seed <= 20 && !test_broken; seed++) {
        run_model(seed, false);
        run_model(seed, true);
    }
}

/* Events without sense at addresses close to one another: whatever they do, the ledger
 * stays whole and its totals are those of its blocks. */
static void
test_nonsense(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        model m = {.random = seed};
        ml_allocator_rules rules = defaults;
        rules.has_segments = seed % 5 != 0;
        rules.expandable_segments = seed % 2 == 0;
        ml_ledger *ledger;
        CHECK_INT(ml_ledger_new(&ledger, &rules, 1), 0);
        for (int i = 0; i < 5000; i++) {
            bool large = next_random(&m) % 4 == 0;
            ml_event event =
                make_event((enum ml_action)(next_random(&m) % ML_ACTION_COUNT),
                           BASE + next_random(&m) % 64 * (large ? 2 * MIB : 512),
                           next_random(&m) % 16 * (large ? 2 * MIB : 300));
            event.stream = next_random(&m) % 2;
            event.flags = next_random(&m) % 8 == 0 ? ML_EVENT_BLOCK_KNOWN : 0;
            event.block_bytes = next_random(&m) % 4096;
            if (i == 100) {
                ml_ledger_start_counting(ledger);
            }
            ml_ledger_apply(ledger, &event);
            const char *wrong = ml_ledger_validate(ledger);
            if (wrong != NULL) {
                CHECK_FAIL("seed %llu, event %d: %s", (unsigned long long)seed, i,
                           wrong);
            }
        }
        ml_ledger_free(ledger);
    }
}

int
main(void)
{
    RUN_LONG_IN_ONE_THREAD(test_model);
    RUN_LONG_IN_ONE_THREAD(test_nonsense);
    return TEST_RESULT();
}
