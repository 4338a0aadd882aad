/* Lines of instructions, against tables written out by hand.  tests/record/test_frames.py
 * compares with CPython itself. */

#include "stacks/linetable.h"

#include <stdlib.h>

#include "test.h"

static void
test_pairs_of_310(void)
{
    /* 2 bytes of code one line down, 4 without a line, 2 two lines down, a jump by 130
     * in two steps, 2 bytes a line up. */
    static const uint8_t table[] = {2, 1, 4, 0x80, 2, 2, 0, 127, 2, 3, 2, 0xff};
    const int64_t want[] = {11, -1, -1, 13, 143, 142};

    for (int i = 0; i < 6; i++) {
        CHECK_INT(ml_linetable_line(table, sizeof(table), 10, 10, i * 2), want[i]);
        CHECK_INT(ml_linetable_line(table, sizeof(table), 10, 10, i * 2 + 1), want[i]);
    }
    CHECK_INT(ml_linetable_line(table, sizeof(table), 10, 10, 12), -1);
}

/* first byte: 0x80 | form << 3 | units - 1 */
static const uint8_t locations[] = {
    0xf8,                              /* form 15, 1 unit: no line */
    0x99, 0x02,                        /* form 3, 2 units: same line */
    0xd8, 0x01, 0x02,                  /* form 11, 1 unit: a line down */
    0xe0, 0x01, 0x02,                  /* form 12, 1 unit: two lines down */
    0xd0, 0x01, 0x02,                  /* form 10, 1 unit: same line */
    0xe8, 0x07,                        /* form 13, 1 unit: 3 lines up */
    0xf7, 0x48, 0x03, 0x00, 0x01, 0x01 /* form 14, 8 units: 100 lines down */
};

static void
test_locations_from_311_on(void)
{
    const int64_t want[] = {-1,  20,  20,  21,  23,  23,  20, 120,
                            120, 120, 120, 120, 120, 120, 120};

    for (int minor = 11; minor <= 14; minor++) {
        for (int i = 0; i < 15; i++) {
            CHECK_INT(ml_linetable_line(locations, sizeof(locations), 20, minor, i * 2),
                      want[i]);
        }
        CHECK_INT(ml_linetable_line(locations, sizeof(locations), 20, minor, 30), -1);
    }
}

static void
test_a_frame_not_started_is_at_the_first_line(void)
{
    CHECK_INT(ml_linetable_line(locations, sizeof(locations), 20, 11, -2), 20);
    CHECK_INT(ml_linetable_line(locations, sizeof(locations), 20, 10, -2), 20);
}

static void
test_no_table_no_line(void)
{
    CHECK_INT(ml_linetable_line(NULL, 0, 20, 11, 0), -1);
    CHECK_INT(ml_linetable_line(NULL, 0, 20, 10, 0), -1);
    CHECK_INT(ml_linetable_line(locations, sizeof(locations), 20, 9, 0), -1);
}

/* Tables cut anywhere: reading past the end shows under the address sanitizer. */
static void
test_cut_tables(void)
{
    for (size_t length = 0; length <= sizeof(locations); length++) {
        uint8_t *cut = malloc(length != 0 ? length : 1);
        CHECK(cut != NULL);
        memcpy(cut, locations, length);
        int64_t line = ml_linetable_line(cut, length, 20, 11, 4);
        int64_t far = ml_linetable_line(cut, length, 20, 11, 1000000);
        ml_linetable_line(cut, length, 20, 10, 1000000);
        free(cut);
        CHECK_INT(line, length >= 2 ? 20 : -1);
        CHECK_INT(far, -1);
    }
}

static void
test_endless_numbers_end(void)
{
    uint8_t table[200];
    memset(table, 0x7f, sizeof(table));
    table[0] = 0xe8;
    table[100] = 0xe8;
    /* Whatever the line, it comes back, and the second entry is found. */
    ml_linetable_line(table, sizeof(table), INT64_MAX, 11, 0);
    ml_linetable_line(table, sizeof(table), INT64_MIN, 11, 2);
    CHECK_INT(ml_linetable_line(table, sizeof(table), 1, 11, 4), -1);
}

static void
test_any_bytes_are_safe(void)
{
    uint64_t random = 12345;
    for (int round = 0; round < 2000; round++) {
        uint8_t table[64];
        for (size_t i = 0; i < sizeof(table); i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            table[i] = (uint8_t)(random >> 56);
        }
        /* 64 entries of at most 255 bytes of code each end before 20000. */
        CHECK_INT(ml_linetable_line(table, sizeof(table), 1, 10, 20000), -1);
        CHECK_INT(ml_linetable_line(table, sizeof(table), 1, 11, 20000), -1);
    }
}

int
main(void)
{
    RUN(test_pairs_of_310);
    RUN(test_locations_from_311_on);
    RUN(test_a_frame_not_started_is_at_the_first_line);
    RUN(test_no_table_no_line);
    RUN(test_cut_tables);
    RUN(test_endless_numbers_end);
    RUN(test_any_bytes_are_safe);
    return TEST_RESULT();
}
