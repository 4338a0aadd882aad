/* A pass that ended early beside the one before it, from recordings put together by hand. */
#include "lab/verdict/remainder.h"

#include "remainder_samples.h"

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
    return TEST_RESULT();
}
