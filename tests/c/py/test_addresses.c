/* The map from addresses to numbers.  It is of Python's half, which is not linked here, but
 * knows nothing of Python. */
#include "objects/addresses.c"

#include "budget.h"
#include "test.h"

/* More than twice the first room. */
#define MANY 3000

/* Not 0; many meet in one place, and they lie as tensors do. */
static uint64_t
address_of(size_t i)
{
    return 0x7f0000000000u + 512 * i;
}

static void
test_each_address_has_its_first_number(void)
{
    ml_addresses map = {0};

    CHECK(ml_addresses_find(&map, address_of(0)) == NULL);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(ml_addresses_add(&map, address_of(i), i) == 1);
        CHECK(ml_addresses_add(&map, address_of(i), i + 1) == 0);
    }
    CHECK(map.count == MANY);
    for (size_t i = 0; i < MANY; i++) {
        size_t *number = ml_addresses_find(&map, address_of(i));
        CHECK(number != NULL && *number == i);
    }
    CHECK(ml_addresses_find(&map, address_of(MANY)) == NULL);
    ml_addresses_fini(&map);
    CHECK(map.count == 0 && ml_addresses_find(&map, address_of(0)) == NULL);
}

static void
test_room_that_was_made_is_enough(void)
{
    ml_addresses map = {0};

    /* For one address, then for all. */
    budget_begin(2);
    CHECK(ml_addresses_add(&map, address_of(0), 7) == 1);
    CHECK(ml_addresses_reserve(&map, MANY) == 0);
    CHECK_INT(budget_left, 0);
    for (size_t i = 1; i < MANY; i++) {
        CHECK(ml_addresses_add(&map, address_of(i), i) == 1);
    }
    CHECK(ml_addresses_reserve(&map, 1) == 0);
    CHECK(*ml_addresses_find(&map, address_of(0)) == 7);
    ml_addresses_fini(&map);
    CHECK(budget_alive == 0);
    budget_end();
}

/* What was added before memory ran out stays. */
static void
test_out_of_memory(void)
{
    size_t added = 0;

    for (long budget = 0; added < MANY; budget++) {
        ml_addresses map = {0};
        int result = 1;
        budget_begin(budget);
        for (added = 0; added < MANY && result == 1; added += result == 1) {
            result = ml_addresses_add(&map, address_of(added), added);
        }
        CHECK(result == 1 || result == ML_ENOMEM);
        CHECK(map.count == added);
        for (size_t i = 0; i < added; i++) {
            size_t *number = ml_addresses_find(&map, address_of(i));
            CHECK(number != NULL && *number == i);
        }
        ml_addresses_fini(&map);
        CHECK(budget_alive == 0);
        budget_end();
    }
}

int
main(void)
{
    RUN(test_each_address_has_its_first_number);
    RUN(test_room_that_was_made_is_enough);
    RUN(test_out_of_memory);
    return TEST_RESULT();
}
