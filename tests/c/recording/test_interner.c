/* Interning in a recording: an entry that is there keeps its id, a new one is added once. */
#include "recording/interner.h"

#include "budget.h"
#include "test.h"

/* Adds an entry of each kind, twice; the first error. */
static int
add_all(ml_interner *interner, uint32_t ids[2][3])
{
    int error = 0;
    for (int i = 0; i < 2 && error == 0; i++) {
        error = ml_interner_string(interner, "step", 4, &ids[i][0]);
        ml_frame frame = {.name = ids[i][0], .line = 7};
        if (error == 0) {
            error = ml_interner_frame(interner, frame, &ids[i][1]);
        }
        ml_stack stack = {.frame = ids[i][1], .module = ids[i][0]};
        if (error == 0) {
            error = ml_interner_stack(interner, stack, &ids[i][2]);
        }
    }
    return error;
}

static void
test_each_entry_once(void)
{
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    uint32_t before;
    CHECK_INT(ml_recording_add_string(recording, "before", 6, &before), 0);

    ml_interner interner;
    CHECK_INT(ml_interner_init(&interner, recording), 0);
    CHECK_INT(ml_interner_enter_stacks(&interner), 0);
    uint32_t id, ids[2][3];
    CHECK_INT(ml_interner_string(&interner, "before", 6, &id), 0);
    CHECK_UINT(id, before);
    CHECK_INT(ml_interner_string(&interner, "", 0, &id), 0);
    CHECK_UINT(id, 0);
    CHECK_INT(ml_interner_frame(&interner, (ml_frame){0}, &id), 0);
    CHECK_UINT(id, 0);
    CHECK_INT(ml_interner_stack(&interner, (ml_stack){0}, &id), 0);
    CHECK_UINT(id, 0);
    CHECK_INT(add_all(&interner, ids), 0);
    CHECK_UINT(ids[0][0], 2);
    CHECK_UINT(ids[0][1], 1);
    CHECK_UINT(ids[0][2], 1);
    for (int i = 0; i < 3; i++) {
        CHECK_UINT(ids[1][i], ids[0][i]);
    }
    CHECK_UINT(recording->string_count, 3);
    CHECK_UINT(recording->frame_count, 2);
    CHECK_UINT(recording->stack_count, 2);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_interner_fini(&interner);
    ml_recording_free(recording);
}

static void
test_every_allocation_may_fail(void)
{
    for (long budget = 0;; budget++) {
        budget_begin(budget);
        ml_recording *recording = NULL;
        ml_interner interner = {0};
        uint32_t ids[2][3];
        int error = ml_recording_new(&recording);
        if (error == 0) {
            error = ml_interner_init(&interner, recording);
        }
        if (error == 0) {
            error = ml_interner_enter_stacks(&interner);
        }
        if (error == 0) {
            error = add_all(&interner, ids);
        }
        ml_interner_fini(&interner);
        ml_recording_free(recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
        if (error == 0) {
            CHECK(budget > 8);
            break;
        }
        CHECK_INT(error, ML_ENOMEM);
    }
}

int
main(void)
{
    RUN(test_each_entry_once);
    RUN(test_every_allocation_may_fail);
    return TEST_RESULT();
}
