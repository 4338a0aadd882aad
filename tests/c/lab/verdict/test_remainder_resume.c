/* The rest of a pass after an earlier one, from recordings put together by hand. */
#include "lab/verdict/remainder.h"

#include "remainder_samples.h"

/* The same in other modules is no pass of another size. */
static void
test_a_pass_of_other_modules(void)
{
    uint64_t kept[2];
    begin();
    parameter(layers[0], 4);
    for (unsigned i = 0; i < 2; i++) {
        kept[i] = take(10, in_module(layers[i]), 0);
    }
    for (unsigned i = 2; i > 0; i--) {
        give(take(10, 0, ML_EVENT_BACKWARD), 10, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(20, in_module("head"), 0);
    event_in(ML_ACTION_OOM, 5 * MIB, 20 * MIB, in_module("tail"));
    ml_advice_case it;
    ml_remainder rest;
    find(&rest, &it, ML_ASSUMED_LARGE);
    CHECK_UINT(rest.untold, 1u << ML_UNTOLD_SIZES);
    end(&rest, &it);
    sample_end(&s);
}

/* Two passes of two layers, the first of 10 MiB each, the second of MIB, where memory ends. */
static void
check_sizes(uint64_t mib, bool differ)
{
    uint64_t kept[2];
    uint32_t stacks[2];
    begin();
    parameter(layers[0], 4);
    for (unsigned i = 0; i < 2; i++) {
        stacks[i] = in_module(layers[i]);
        kept[i] = take(10, stacks[i], 0);
    }
    for (unsigned i = 2; i > 0; i--) {
        give(take(10, 0, ML_EVENT_BACKWARD), 10, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(mib, stacks[0], 0);
    event_in(ML_ACTION_OOM, 5 * MIB, mib * MIB, stacks[1]);
    ml_advice_case it;
    ml_remainder rest;
    find(&rest, &it, ML_ASSUMED_LARGE);
    CHECK_UINT(rest.untold, 0);
    CHECK(rest.sizes_differ == differ);
    end(&rest, &it);
    sample_end(&s);
}

static void
test_passes_of_other_sizes(void)
{
    check_sizes(10, false);
    check_sizes(20, true);
}

/* Blocks of 1 MiB are small beside the largest of the whole pass, which the one that ended early has
 * not reached. */
static void
test_what_is_small_in_a_pass_is_so_in_its_part(void)
{
    uint64_t kept[2];
    uint64_t small[2];
    uint32_t stacks[2];
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 4);
        stacks[i] = in_module(layers[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        kept[i] = take(10, stacks[i], 0);
        small[i] = take(1, stacks[i], 0);
    }
    give(take(512, 0, ML_EVENT_BACKWARD), 512, ML_EVENT_BACKWARD);
    for (unsigned i = 2; i > 0; i--) {
        give(small[i - 1], 1, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(10, stacks[0], 0);
    take(1, stacks[0], 0);
    event_in(ML_ACTION_OOM, 5 * MIB, 10 * MIB, stacks[1]);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(little.untold, 0);
    end(&little, &it);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_what_is_small_in_a_pass_is_so_in_its_part);
    RUN(test_a_pass_of_other_modules);
    RUN(test_passes_of_other_sizes);
    return TEST_RESULT();
}
