/* Where the driver puts memory: places worked out by hand for each policy. */
#include "gpu/placement.h"

#include "budget.h"
#include "memlab.h"
#include "test.h"

#define MIB ((uint64_t)1 << 20)
#define BASE ((uint64_t)1 << 40)
#define SPACE (1024 * MIB)
#define END (BASE + SPACE)

static ml_placement *
placement_of(enum ml_placement_policy policy, uint64_t seed)
{
    ml_placement *made = NULL;
    return ml_placement_new(BASE, SPACE, policy, seed, &made) == 0 ? made : NULL;
}

static void
test_driver_fills_the_newest_region_first(void)
{
    ml_placement *placement = placement_of(ML_PLACEMENT_DRIVER, 0);
    /* Two regions: 32 MiB at the end, 64 MiB below it. */
    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), END - 32 * MIB);
    CHECK_UINT(ml_placement_take(placement, 40 * MIB, 0), END - 96 * MIB);
    /* Both have room, the newer one is taken until it has none. */
    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), END - 56 * MIB);
    CHECK_UINT(ml_placement_take(placement, 4 * MIB, 0), END - 36 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), END - 12 * MIB);
    CHECK_UINT(ml_placement_take(placement, 10 * MIB, 0), END - 10 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), END - 128 * MIB);
    ml_placement_free(placement);
}

static void
test_driver_takes_the_smallest_hole_of_a_region(void)
{
    ml_placement *placement = placement_of(ML_PLACEMENT_DRIVER, 0);
    uint64_t at = ml_placement_take(placement, 6 * MIB, 0);

    CHECK_UINT(at, END - 32 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), at + 6 * MIB);
    CHECK_UINT(ml_placement_take(placement, 4 * MIB, 0), at + 8 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), at + 12 * MIB);
    CHECK_UINT(ml_placement_give(placement, at), 6 * MIB);
    CHECK_UINT(ml_placement_give(placement, at + 8 * MIB), 4 * MIB);
    /* Holes of 6, 4 and 18 MiB. */
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), at + 8 * MIB);
    CHECK_UINT(ml_placement_take(placement, 4 * MIB, 0), at);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), at + 4 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), at + 10 * MIB);
    ml_placement_free(placement);
}

static void
test_driver_gives_up_empty_regions(void)
{
    ml_placement *placement = placement_of(ML_PLACEMENT_DRIVER, 0);
    uint64_t first = ml_placement_take(placement, 64 * MIB, 0);
    uint64_t second = ml_placement_take(placement, 64 * MIB, 0);
    uint64_t third = ml_placement_take(placement, 32 * MIB, 0);

    CHECK_UINT(first, END - 64 * MIB);
    CHECK_UINT(second, END - 128 * MIB);
    CHECK_UINT(third, END - 160 * MIB);
    CHECK_UINT(ml_placement_give(placement, second), 64 * MIB);
    /* A gap as large as the request is not used, a larger one is, at its upper end. */
    CHECK_UINT(ml_placement_take(placement, 64 * MIB, 0), END - 224 * MIB);
    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), END - 96 * MIB);
    CHECK_UINT(ml_placement_give(placement, first), 64 * MIB);
    CHECK_UINT(ml_placement_take(placement, 26 * MIB, 0), END - 32 * MIB);
    ml_placement_free(placement);
}

static void
test_ascending_and_descending_take_the_outermost_gap(void)
{
    ml_placement *placement = placement_of(ML_PLACEMENT_ASCENDING, 0);

    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), BASE);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), BASE + 20 * MIB);
    CHECK_UINT(ml_placement_take(placement, 8 * MIB, 0), BASE + 22 * MIB);
    CHECK_UINT(ml_placement_give(placement, BASE), 20 * MIB);
    CHECK_UINT(ml_placement_take(placement, 40 * MIB, 0), BASE + 30 * MIB);
    CHECK_UINT(ml_placement_take(placement, 4 * MIB, 0), BASE);
    CHECK_UINT(ml_placement_take(placement, 8 * MIB, 8 * MIB), BASE + 8 * MIB);
    ml_placement_free(placement);

    placement = placement_of(ML_PLACEMENT_DESCENDING, 0);
    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), END - 20 * MIB);
    CHECK_UINT(ml_placement_take(placement, 2 * MIB, 0), END - 22 * MIB);
    CHECK_UINT(ml_placement_give(placement, END - 20 * MIB), 20 * MIB);
    CHECK_UINT(ml_placement_take(placement, 40 * MIB, 0), END - 62 * MIB);
    CHECK_UINT(ml_placement_take(placement, 4 * MIB, 0), END - 4 * MIB);
    CHECK_UINT(ml_placement_take(placement, 8 * MIB, 8 * MIB), END - 16 * MIB);
    ml_placement_free(placement);
}

static void
test_shuffled_follows_its_seed(void)
{
    ml_placement *one = placement_of(ML_PLACEMENT_SHUFFLED, 7);
    ml_placement *same = placement_of(ML_PLACEMENT_SHUFFLED, 7);
    ml_placement *other = placement_of(ML_PLACEMENT_SHUFFLED, 8);
    int differ = 0, falls = 0, rises = 0;
    uint64_t before = 0;

    for (int i = 0; i < 30; i++) {
        uint64_t at = ml_placement_take(one, 20 * MIB, 0);

        CHECK(at != 0);
        CHECK_UINT(ml_placement_take(same, 20 * MIB, 0), at);
        differ += ml_placement_take(other, 20 * MIB, 0) != at;
        falls += at < before;
        rises += at > before;
        before = at;
    }
    CHECK(differ > 20);
    CHECK(falls > 5 && rises > 5);
    ml_placement_free(one);
    ml_placement_free(same);
    ml_placement_free(other);
}

/* Serves regions at addresses that a test chose, and counts them. */
typedef struct {
    uint64_t next[4];
    size_t served;
    uint64_t unmapped; /* bytes */
} mapper;

static uint64_t
map_next(void *self, uint64_t bytes, uint64_t alignment)
{
    mapper *from = self;
    uint64_t start = from->served < 4 ? from->next[from->served++] : 0;
    return bytes % ML_PLACEMENT_REGION == 0 && start % alignment == 0 ? start : 0;
}

static void
unmap_counted(void *self, uint64_t start, uint64_t bytes)
{
    (void)start;
    ((mapper *)self)->unmapped += bytes;
}

static void
test_mapped_regions_lie_where_they_are_mapped(void)
{
    mapper from = {.next = {BASE, BASE + 320 * MIB, BASE + 64 * MIB}};
    ml_placement_space space = {&from, map_next, unmap_counted};
    ml_placement *placement = NULL;

    CHECK_INT(ml_placement_new_mapped(&space, &placement), 0);
    CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), BASE);
    CHECK_UINT(ml_placement_take(placement, 40 * MIB, 0), BASE + 320 * MIB);
    CHECK_UINT(ml_placement_take(placement, 12 * MIB, 0), BASE + 360 * MIB);
    CHECK_UINT(ml_placement_take(placement, 32 * MIB, 0), BASE + 64 * MIB);
    CHECK_UINT(ml_placement_take(placement, 10 * MIB, 0), BASE + 372 * MIB);
    CHECK_UINT(ml_placement_give(placement, BASE + 64 * MIB), 32 * MIB);
    CHECK_UINT(from.unmapped, 32 * MIB);
    CHECK_UINT(ml_placement_give(placement, BASE), 20 * MIB);
    CHECK_UINT(from.unmapped, 64 * MIB);
    /* The fourth region is refused. */
    CHECK_UINT(ml_placement_take(placement, 64 * MIB, 0), 0);
    CHECK_INT(ml_placement_error(placement), 0);
    ml_placement_free(placement);
}

static void
test_mapped_region_is_unmapped_where_the_table_cannot_grow(void)
{
    for (long budget = 1; budget < 3; budget++) {
        mapper from = {.next = {BASE}};
        ml_placement_space space = {&from, map_next, unmap_counted};
        ml_placement *placement = NULL;

        budget_begin(budget);
        CHECK_INT(ml_placement_new_mapped(&space, &placement), 0);
        CHECK_UINT(ml_placement_take(placement, 20 * MIB, 0), 0);
        CHECK_INT(ml_placement_error(placement), ML_ENOMEM);
        CHECK_UINT(from.unmapped, 32 * MIB);
        ml_placement_free(placement);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
}

/* Under each policy what is taken never overlaps, is found again, and all of the space
 * can be taken where sizes leave no gap. */
static void
test_ranges_never_overlap(void)
{
    for (int policy = ML_PLACEMENT_DRIVER; policy <= ML_PLACEMENT_SHUFFLED; policy++) {
        ml_placement *placement = placement_of((enum ml_placement_policy)policy, 3);
        unsigned char owner[SPACE / (2 * MIB)] = {0};
        uint64_t starts[64] = {0}, random = 1;

        for (int step = 0; step < 4000; step++) {
            random = ml_hash_u64(random + (uint64_t)step);
            size_t slot = random % 64;
            uint64_t start = starts[slot], bytes = (1 + (random >> 8) % 20) * 2 * MIB;

            if (start != 0) {
                uint64_t found_start = 0, found_bytes = 0;

                CHECK(ml_placement_find(placement, start + 2 * MIB - 1, &found_start,
                                        &found_bytes));
                CHECK_UINT(found_start, start);
                CHECK_UINT(ml_placement_give(placement, start), found_bytes);
                for (uint64_t i = 0; i < found_bytes / (2 * MIB); i++) {
                    CHECK_UINT(owner[(start - BASE) / (2 * MIB) + i], slot + 1);
                    owner[(start - BASE) / (2 * MIB) + i] = 0;
                }
                CHECK(!ml_placement_find(placement, start, &found_start, &found_bytes));
                CHECK_UINT(ml_placement_give(placement, start), 0);
                starts[slot] = 0;
                continue;
            }
            starts[slot] = start = ml_placement_take(placement, bytes, 0);
            if (start == 0) {
                continue;
            }
            CHECK(start >= BASE && start + bytes <= END && start % (2 * MIB) == 0);
            for (uint64_t i = 0; i < bytes / (2 * MIB); i++) {
                CHECK_INT(owner[(start - BASE) / (2 * MIB) + i], 0);
                owner[(start - BASE) / (2 * MIB) + i] = (unsigned char)(slot + 1);
            }
        }
        CHECK_INT(ml_placement_error(placement), 0);
        ml_placement_free(placement);
    }
}

static void
test_refuses_what_has_no_room_or_makes_no_sense(void)
{
    ml_placement *made = NULL;

    CHECK_INT(ml_placement_new(0, SPACE, ML_PLACEMENT_DRIVER, 0, &made), ML_EINVALID);
    CHECK_INT(ml_placement_new(BASE + 1, SPACE, ML_PLACEMENT_DRIVER, 0, &made),
              ML_EINVALID);
    CHECK_INT(ml_placement_new(BASE, 0, ML_PLACEMENT_DRIVER, 0, &made), ML_EINVALID);
    CHECK_INT(ml_placement_new(BASE, (uint64_t)1 << 63, ML_PLACEMENT_DRIVER, 0, &made),
              ML_EINVALID);
    CHECK_PTR(made, NULL);
    for (int policy = ML_PLACEMENT_DRIVER; policy <= ML_PLACEMENT_SHUFFLED; policy++) {
        uint64_t start, bytes;

        made = placement_of((enum ml_placement_policy)policy, 0);
        CHECK_UINT(ml_placement_take(made, 0, 0), 0);
        CHECK_UINT(ml_placement_take(made, SPACE + 1, 0), 0);
        CHECK_UINT(ml_placement_take(made, UINT64_MAX, 0), 0);
        CHECK_UINT(ml_placement_take(made, 1, (uint64_t)1 << 63), 0);
        CHECK_UINT(ml_placement_give(made, BASE), 0);
        CHECK_UINT(ml_placement_give(made, UINT64_MAX), 0);
        CHECK(!ml_placement_find(made, 0, &start, &bytes));
        CHECK(!ml_placement_find(made, END, &start, &bytes));
        CHECK(ml_placement_take(made, SPACE - 32 * MIB, 0) != 0);
        CHECK_UINT(ml_placement_take(made, 64 * MIB, 0), 0);
        CHECK_INT(ml_placement_error(made), 0);
        ml_placement_free(made);
    }
    ml_placement_free(NULL);
}

static void
test_running_out_of_memory_changes_nothing(void)
{
    for (int policy = ML_PLACEMENT_DRIVER; policy <= ML_PLACEMENT_SHUFFLED; policy++) {
        bool done = false;

        for (long budget = 0; !done; budget++) {
            uint64_t taken = 0, start = 0, bytes = 0;
            ml_placement *made;

            budget_begin(budget);
            made = placement_of((enum ml_placement_policy)policy, 0);
            done = made != NULL;
            for (int i = 0; done && i < 40; i++) {
                taken = ml_placement_take(made, 30 * MIB, 0);
                if (taken == 0) {
                    CHECK_INT(ml_placement_error(made), ML_ENOMEM);
                    done = false;
                }
                else {
                    CHECK(ml_placement_find(made, taken, &start, &bytes));
                    CHECK_UINT(bytes, 30 * MIB);
                    if (i % 3 == 0) {
                        CHECK_UINT(ml_placement_give(made, taken), 30 * MIB);
                    }
                }
            }
            ml_placement_free(made);
            CHECK_INT(budget_alive, 0);
            budget_end();
            CHECK(budget < 1000);
        }
    }
}

int
main(void)
{
    RUN(test_driver_fills_the_newest_region_first);
    RUN(test_driver_takes_the_smallest_hole_of_a_region);
    RUN(test_driver_gives_up_empty_regions);
    RUN(test_ascending_and_descending_take_the_outermost_gap);
    RUN(test_shuffled_follows_its_seed);
    RUN(test_mapped_regions_lie_where_they_are_mapped);
    RUN(test_mapped_region_is_unmapped_where_the_table_cannot_grow);
    RUN(test_ranges_never_overlap);
    RUN(test_refuses_what_has_no_room_or_makes_no_sense);
    RUN(test_running_out_of_memory_changes_nothing);
    return TEST_RESULT();
}
