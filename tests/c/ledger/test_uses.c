/* Tests of core/ledger/uses.c: what is known of last uses, and what is not. */
#include <pthread.h>

#include "ledger/uses.h"
#include "test.h"

#define A UINT64_C(0x7f0000000000)
#define B (A + 4096)
#define MIB (UINT64_C(1) << 20)

static ml_uses uses;
static uint64_t state = 9;

static uint64_t
random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % limit;
}

static void
fresh(void)
{
    ml_uses_clear(&uses);
}

static void
test_a_block_without_a_use_is_not_known(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
    CHECK_UINT(ml_uses_end(&uses, A, 512), ML_USE_UNKNOWN);
    CHECK_UINT(ml_uses_end(&uses, B, 512), ML_USE_UNKNOWN);
}

static void
test_the_latest_use_counts(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_begin(&uses, B, 0);
    ml_uses_mark(&uses, A, 0, false);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 0);
    ml_uses_mark(&uses, A, 7, false);
    ml_uses_mark(&uses, A, 5, false);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 7);
    CHECK_UINT(ml_uses_look(&uses, B, 512), ML_USE_UNKNOWN);
    CHECK_UINT(ml_uses_end(&uses, A, 512), 7);
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
}

static void
test_the_next_block_at_an_address_begins_anew(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_mark(&uses, A, 7, false);
    ml_uses_begin(&uses, A, 0); /* its free was not seen */
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
    ml_uses_mark(&uses, A, 9, false);
    CHECK_UINT(ml_uses_end(&uses, A, 512), 9);
    ml_uses_mark(&uses, A, 11, false); /* late: there is no block */
    ml_uses_begin(&uses, A, 0);
    CHECK_UINT(ml_uses_end(&uses, A, 512), ML_USE_UNKNOWN);
}

static void
test_a_use_within_a_block_is_the_blocks(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_begin(&uses, A + MIB, 0);
    ml_uses_mark(&uses, A, 3, false);
    ml_uses_mark(&uses, A + MIB, 4, false);
    ml_uses_mark(&uses, A + 512, 9, true);
    ml_uses_mark(&uses, A + MIB, 6, true); /* begins where the block does */
    CHECK_UINT(ml_uses_look(&uses, A, MIB), 9);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 3);
    CHECK_UINT(ml_uses_end(&uses, A + MIB, MIB), 6);
    CHECK_UINT(ml_uses_end(&uses, A, MIB), 9);
    ml_uses_begin(&uses, A, 0);
    ml_uses_mark(&uses, A, 10, false);
    CHECK_UINT(ml_uses_end(&uses, A, MIB), 10);
    CHECK_UINT(atomic_load(&uses.inner_count), 0);
}

static void
test_inner_uses_that_find_no_place_are_anybodys(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_mark(&uses, A, 3, false);
    for (unsigned i = 0; i <= ML_USES_INNER; i++) {
        CHECK_UINT(ml_uses_look(&uses, A, 512), 3);
        ml_uses_mark(&uses, B + i * MIB, 100 + i, true);
    }
    CHECK_UINT(ml_uses_look(&uses, A, 512), 100 + ML_USES_INNER);
    ml_uses_mark(&uses, A, 200, false);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 200);
}

static void
test_any_block_may_have_been_used(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_begin(&uses, B, 0);
    ml_uses_mark(&uses, A, 3, false);
    ml_uses_mark_all(&uses, 8);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 8);
    /* That it was used is not known of a block that nobody was seen to use. */
    CHECK_UINT(ml_uses_look(&uses, B, 512), ML_USE_UNKNOWN);
    ml_uses_blind(&uses);
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_mark(&uses, A, 3, false);
    CHECK_UINT(ml_uses_end(&uses, A, 512), 3);
}

/* What finds no place is not known, and what has one stays right. */
static void
test_a_full_table_knows_less_and_nothing_wrong(void)
{
    const uint64_t blocks = UINT64_C(1) << 19;
    uint64_t known = 0;
    fresh();
    for (uint64_t i = 0; i < blocks; i++) {
        ml_uses_begin(&uses, A + i * 512, 0);
        ml_uses_mark(&uses, A + i * 512, i, false);
    }
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t last = ml_uses_end(&uses, A + i * 512, 512);
        known += last == i;
        CHECK(last == i || last == ML_USE_UNKNOWN);
    }
    CHECK_UINT(known + atomic_load(&uses.lost), blocks);
    CHECK(known > blocks / 4);
    /* Places are used again. */
    ml_uses_begin(&uses, A, 0);
    ml_uses_mark(&uses, A, 5, false);
    CHECK_UINT(ml_uses_end(&uses, A, 512), 5);
}

typedef struct seen {
    unsigned count;
    uint64_t sum;
} seen;

static int
add_up(void *context, uint64_t addr, uint64_t position)
{
    seen *all = context;
    all->count++;
    all->sum += addr + position;
    return 0;
}

static int
stop(void *context, uint64_t addr, uint64_t position)
{
    (void)context;
    (void)addr;
    (void)position;
    return 42;
}

static void
test_visits_what_is_known(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    ml_uses_begin(&uses, B, 0);
    ml_uses_begin(&uses, B + 512, 0);
    ml_uses_mark(&uses, A, 3, false);
    ml_uses_mark(&uses, B, 4, false);
    seen all = {0};
    CHECK_INT(ml_uses_visit(&uses, add_up, &all), 0);
    CHECK_UINT(all.count, 2);
    CHECK_UINT(all.sum, A + 3 + B + 4);
    CHECK_INT(ml_uses_visit(&uses, stop, NULL), 42);
    /* Within which block this lies is not known there. */
    ml_uses_mark(&uses, B + 64, 9, true);
    all = (seen){0};
    ml_uses_visit(&uses, add_up, &all);
    CHECK_UINT(all.sum, A + 9 + B + 9);
}

/* Against a plain array. */
static void
test_agrees_with_a_model(void)
{
    enum {
        PLACES = 200
    };
    struct {
        bool live;
        uint64_t last;
    } model[PLACES] = {{false, 0}};
    fresh();
    for (uint64_t position = 0; position < 200000; position++) {
        unsigned i = (unsigned)random_below(PLACES);
        uint64_t addr = A + i * UINT64_C(512);
        if (!model[i].live) {
            ml_uses_begin(&uses, addr, 0);
            model[i].live = true;
            model[i].last = ML_USE_UNKNOWN;
        }
        else if (random_below(3) != 0) {
            ml_uses_mark(&uses, addr, position, false);
            model[i].last = position;
        }
        else {
            CHECK_UINT(ml_uses_end(&uses, addr, 512), model[i].last);
            model[i].live = false;
        }
    }
}

static _Atomic uint64_t marked;
static _Atomic int done;

static void *
mark_on(void *unused)
{
    (void)unused;
    for (uint64_t position = 1; position <= 100000; position++) {
        ml_uses_mark(&uses, A, position, false);
        atomic_store(&marked, position);
    }
    atomic_store(&done, 1);
    return NULL;
}

static void
test_between_turns_a_use_may_be_missed(void)
{
    fresh();
    ml_uses_resume(&uses, 0);
    ml_uses_begin(&uses, A, 1);
    ml_uses_mark(&uses, A, 5, false);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 5);
    ml_uses_pause(&uses);
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
    ml_uses_resume(&uses, 20);
    /* In this turn it may still come. */
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
    ml_uses_mark(&uses, A, 25, false);
    CHECK_UINT(ml_uses_look(&uses, A, 512), 25);
    ml_uses_pause(&uses);
    CHECK_UINT(ml_uses_end(&uses, A, 512), ML_USE_UNKNOWN);
}

static void
test_a_whole_turn_without_a_use_bounds_it(void)
{
    fresh();
    ml_uses_resume(&uses, 0);
    ml_uses_begin(&uses, A, 1);
    ml_uses_mark(&uses, A, 5, false);
    ml_uses_pause(&uses);
    ml_uses_begin(&uses, B, 10);
    ml_uses_resume(&uses, 20);
    ml_uses_mark(&uses, A + MIB, 20, false); /* nobody's */
    ml_uses_begin(&uses, A + MIB, 21);
    ml_uses_mark(&uses, A + MIB, 22, false);
    ml_uses_pause(&uses);
    ml_uses_resume(&uses, 40);
    ml_uses_pause(&uses);
    /* Between the turns both may have been used, up to the one that saw none. */
    CHECK_UINT(ml_uses_look(&uses, A, 512), 20);
    CHECK_UINT(ml_uses_look(&uses, B, 512), 20);
    CHECK_UINT(ml_uses_look(&uses, A + MIB, 512), 40);
}

static void
test_a_use_as_a_turn_begins_is_within_it(void)
{
    fresh();
    ml_uses_resume(&uses, 0);
    ml_uses_begin(&uses, A, 1);
    ml_uses_pause(&uses);
    ml_uses_resume(&uses, 20);
    ml_uses_mark(&uses, A, 20, false);
    ml_uses_pause(&uses);
    CHECK_UINT(ml_uses_look(&uses, A, 512), ML_USE_UNKNOWN);
}

static void
test_of_many_turns_the_newest_are_remembered(void)
{
    fresh();
    ml_uses_resume(&uses, 0);
    ml_uses_begin(&uses, A, 1);
    ml_uses_mark(&uses, A, 2, false);
    for (uint64_t turn = 1; turn <= ML_USES_TURNS + 10; turn++) {
        ml_uses_pause(&uses);
        ml_uses_resume(&uses, turn * 100);
    }
    /* Later than the true one, as the first ten after it are forgotten. */
    CHECK_UINT(ml_uses_end(&uses, A, 512), 1000);
}

/* One thread uses a block while others come and go: no use that was told is missed. */
static void
test_marks_beside_the_callback(void)
{
    fresh();
    ml_uses_begin(&uses, A, 0);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, mark_on, NULL), 0);
    bool right = true;
    for (uint64_t i = 1; atomic_load(&done) == 0; i++) {
        uint64_t least = atomic_load(&marked);
        uint64_t last = ml_uses_look(&uses, A, 512);
        right = right && (least == 0 || (last != ML_USE_UNKNOWN && last >= least));
        ml_uses_begin(&uses, A + i % 1000 * 512 + 512, 0);
        ml_uses_end(&uses, A + i * 7 % 1000 * 512 + 512, 512);
    }
    pthread_join(thread, NULL);
    CHECK(right);
    CHECK_UINT(ml_uses_end(&uses, A, 512), 100000);
}

int
main(void)
{
    if (ml_uses_init(&uses) != 0) {
        return 1;
    }
    RUN(test_a_block_without_a_use_is_not_known);
    RUN(test_the_latest_use_counts);
    RUN(test_the_next_block_at_an_address_begins_anew);
    RUN(test_a_use_within_a_block_is_the_blocks);
    RUN(test_inner_uses_that_find_no_place_are_anybodys);
    RUN(test_any_block_may_have_been_used);
    RUN(test_a_full_table_knows_less_and_nothing_wrong);
    RUN(test_visits_what_is_known);
    RUN_LONG_IN_ONE_THREAD(test_agrees_with_a_model);
    RUN(test_between_turns_a_use_may_be_missed);
    RUN(test_a_whole_turn_without_a_use_bounds_it);
    RUN(test_a_use_as_a_turn_begins_is_within_it);
    RUN(test_of_many_turns_the_newest_are_remembered);
    RUN(test_marks_beside_the_callback);
    ml_uses_fini(&uses);
    return TEST_RESULT();
}
