/* Every column of events comes back as what it was set to, and leaves the others alone. */
#include <string.h>

#include "file/snapshot/event_columns.h"
#include "test.h"

/* Bits that fit whatever COLUMN holds. */
static uint64_t
most(const ml_event_column *column)
{
    switch (column->holds) {
    case ML_HOLDS_U16:
        return UINT16_MAX;
    case ML_HOLDS_U32:
    case ML_HOLDS_STRING:
        return UINT32_MAX;
    case ML_HOLDS_REST:
        return 999;
    default:
        return UINT64_MAX - 1;
    }
}

static void
test_what_was_set(void)
{
    ml_event event = {.time = 5000};
    for (unsigned i = 0; i < ML_EVENT_COLUMN_COUNT; i++) {
        const ml_event_column *column = &ml_event_columns[i];
        CHECK_UINT(column->word, i);
        CHECK_UINT(ml_event_column_get(column, &event), 0);
        ml_event_column_set(column, most(column), &event);
    }
    for (unsigned i = 0; i < ML_EVENT_COLUMN_COUNT; i++) {
        const ml_event_column *column = &ml_event_columns[i];
        CHECK_UINT(ml_event_column_get(column, &event), most(column));
        ml_event_column_set(column, 0, &event);
    }
    ml_event plain = {.time = 5000};
    CHECK_INT(memcmp(&event, &plain, sizeof(event)), 0);
}

static void
test_members(void)
{
    ml_event event = {.pool = {1, 2}, .time = 1234567, .metadata = 3, .unused = 4};
    const ml_event_column *columns = ml_event_columns;
    CHECK_UINT(ml_event_column_get(&columns[ML_WORD_POOL_ID], &event),
               (UINT64_C(1) << 32) + 2);
    CHECK_UINT(ml_event_column_get(&columns[ML_WORD_TIME], &event), 567);
    CHECK_UINT(ml_event_column_get(&columns[ML_WORD_USER_METADATA], &event), 3);
    CHECK_UINT(ml_event_column_get(&columns[ML_WORD_UNUSED], &event), 4);
    ml_event_column_set(&columns[ML_WORD_TIME], 8, &event);
    CHECK_UINT(event.time, 1234008);
}

/* Writers go through torch's up to the first that is memlab's. */
static void
test_torchs_come_first(void)
{
    bool memlabs = false;
    for (unsigned i = 0; i < ML_EVENT_COLUMN_COUNT; i++) {
        CHECK(!memlabs || ml_event_columns[i].key == 0);
        memlabs = ml_event_columns[i].key == 0;
    }
    CHECK(memlabs);
}

int
main(void)
{
    RUN(test_what_was_set);
    RUN(test_members);
    RUN(test_torchs_come_first);
    return TEST_RESULT();
}
