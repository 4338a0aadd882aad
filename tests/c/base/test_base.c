#include "base/base.h"

#include "budget.h"
#include "test.h"

static void
test_grow_keeps_items(void)
{
    int *items = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(ml_grow((void **)&items, &capacity, (size_t)i + 1, sizeof(int)), 0);
        items[i] = i * 7;
    }
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(items[i], i * 7);
    }
    CHECK(capacity >= 1000 && capacity < 2000);
    ml_free(items);
}

static void
test_grow_refuses_overflow(void)
{
    char *items = ml_alloc(8);
    void *before = items;
    size_t capacity = 1;
    CHECK_INT(ml_grow((void **)&items, &capacity, SIZE_MAX / 4, 8), ML_ENOMEM);
    CHECK_PTR(items, before);
    CHECK_UINT(capacity, 1);
    ml_free(items);
}

static void
test_zeroed_product_is_checked(void)
{
    CHECK(ml_alloc_zeroed(SIZE_MAX / 2, 3) == NULL);
    unsigned char *bytes = ml_alloc_zeroed(16, 4);
    CHECK(bytes != NULL);
    for (int i = 0; i < 64; i++) {
        CHECK_INT(bytes[i], 0);
    }
    ml_free(bytes);
}

static void
test_failing_hook(void)
{
    budget_begin(1);
    void *first = ml_alloc(10);
    void *second = ml_alloc(10);
    void *grown = ml_realloc(first, 20);
    long alive = budget_alive;
    ml_free(first);
    ml_free(NULL);
    long after = budget_alive;
    budget_end();
    CHECK(first != NULL && second == NULL && grown == NULL);
    CHECK_INT(alive, 1);
    CHECK_INT(after, 0);
}

static void
test_every_error_has_a_text(void)
{
    CHECK_STR(ml_strerror(ML_ENOMEM), "out of memory");
    CHECK_STR(ml_strerror(ML_ESOURCE), "the source of events failed");
    CHECK_STR(ml_strerror(12345), "unknown error");
    CHECK_INT(ML_ENOMEM, -1);
}

static void
test_buffer(void)
{
    ml_buffer buffer = {0};
    for (int i = 0; i < 500; i++) {
        ml_buffer_append(&buffer, "abc", 3);
    }
    ml_buffer_append(&buffer, NULL, 0);
    CHECK_INT(buffer.error, 0);
    CHECK_UINT(buffer.length, 1500);
    CHECK(memcmp(buffer.bytes + 1497, "abc", 3) == 0);
    ml_buffer_fini(&buffer);
    CHECK(buffer.bytes == NULL);

    budget_begin(1);
    ml_buffer_append(&buffer, "0123456789", 10);
    ml_buffer_append(&buffer, "0123456789", 10);
    ml_buffer_append(&buffer, "x", 1);
    budget_end();
    CHECK_INT(buffer.error, ML_ENOMEM);
    CHECK_TEXT(buffer.bytes, buffer.length, "0123456789");
    ml_buffer_fini(&buffer);
}

static const uint64_t *interned;

static bool
same_number(const void *context, uint32_t id)
{
    return interned[id] == *(const uint64_t *)context;
}

/* Hashes reduced to a few bits make every lookup meet other entries. */
static void
intern_numbers(unsigned hash_bits)
{
    enum {
        COUNT = 3000
    };
    static uint64_t values[COUNT];
    interned = values;
    ml_intern table = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        values[i] = i * 1000003;
        uint64_t hash = ml_hash_u64(values[i]) & ((1u << hash_bits) - 1);
        uint32_t id = 0;
        CHECK_INT(ml_intern_find(&table, hash, same_number, &values[i], &id), 0);
        CHECK_INT(ml_intern_add(&table, hash), 0);
        CHECK_UINT(table.count, i + 1);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t hash = ml_hash_u64(values[i]) & ((1u << hash_bits) - 1);
        uint32_t id = UINT32_MAX;
        CHECK_INT(ml_intern_find(&table, hash, same_number, &values[i], &id), 1);
        CHECK_UINT(id, i);
    }
    ml_intern_fini(&table);
}

static void
test_intern(void)
{
    intern_numbers(31);
    intern_numbers(3);
}

static void
test_intern_without_memory(void)
{
    for (long budget = 0;; budget++) {
        ml_intern table = {0};
        int error = 0;
        size_t added = 0;
        budget_begin(budget);
        while (error == 0 && added < 200) {
            error = ml_intern_add(&table, added * 77);
            added += error == 0;
        }
        size_t count = table.count;
        ml_intern_fini(&table);
        budget_end();
        CHECK_INT(budget_alive, 0);
        CHECK_UINT(count, added);
        if (error == 0) {
            CHECK(budget > 2);
            break;
        }
        CHECK_INT(error, ML_ENOMEM);
    }
}

static void
test_hash_depends_on_every_byte(void)
{
    char text[41] = "0123456789abcdefghijklmnopqrstuvwxyz+-*/";
    for (size_t length = 0; length <= 40; length++) {
        uint64_t hash = ml_hash_bytes(text, length);
        CHECK(hash == ml_hash_bytes(text, length));
        if (length != 0) {
            CHECK(hash != ml_hash_bytes(text, length - 1));
        }
        for (size_t i = 0; i < length; i++) {
            text[i] ^= 1;
            CHECK(hash != ml_hash_bytes(text, length));
            text[i] ^= 1;
        }
    }
}

/* One of each length, both ends of it, and a lone surrogate. */
/* No character is cut in two; bytes that are no UTF-8 are cut anywhere. */
static void
test_utf8_cut(void)
{
    CHECK_UINT(ml_utf8_cut("abc", 3, 3), 3);
    CHECK_UINT(ml_utf8_cut("abcd", 4, 3), 3);
    CHECK_UINT(ml_utf8_cut("a\xe2\x82\xac", 4, 3), 1);
    CHECK_UINT(ml_utf8_cut("\xf0\x9f\x8e\x89z", 5, 4), 4);
    CHECK_UINT(ml_utf8_cut("\xf0\x9f\x8e\x89", 4, 1), 0);
    CHECK_UINT(ml_utf8_cut("\x80\x80\x80\x80\x80\x80\x80", 7, 6), 2);
}

static void
test_utf8_both_ways(void)
{
    static const unsigned characters[] = {0x00,   0x7f,   0x80,    0x7ff,   0x800,
                                          0xd800, 0xffff, 0x10000, 0x10ffff};
    static const size_t lengths[] = {1, 1, 2, 2, 3, 3, 3, 4, 4};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char bytes[ML_UTF8_MAX];
        unsigned back;
        CHECK_UINT(ml_utf8_encode(bytes, characters[i]), lengths[i]);
        CHECK_UINT(ml_utf8_decode((unsigned char *)bytes, lengths[i], &back),
                   lengths[i]);
        CHECK_UINT(back, characters[i]);
    }
    char euro[ML_UTF8_MAX];
    CHECK_UINT(ml_utf8_encode(euro, 0x20ac), 3);
    CHECK_TEXT(euro, 3, "\xe2\x82\xac");
}

/* In every array of 0 to 9 items that hold up to some index. */
static void
test_search_finds_the_first_that_does_not_hold(void)
{
    for (size_t count = 0; count < 10; count++) {
        for (size_t holds = 0; holds <= count; holds++) {
            size_t at;
            ML_SEARCH(at, count, at < holds);
            CHECK_UINT(at, holds);
        }
    }
}

int
main(void)
{
    RUN(test_grow_keeps_items);
    RUN(test_grow_refuses_overflow);
    RUN(test_zeroed_product_is_checked);
    RUN(test_failing_hook);
    RUN(test_every_error_has_a_text);
    RUN(test_buffer);
    RUN(test_intern);
    RUN(test_intern_without_memory);
    RUN(test_hash_depends_on_every_byte);
    RUN(test_utf8_cut);
    RUN(test_utf8_both_ways);
    RUN(test_search_finds_the_first_that_does_not_hold);
    return TEST_RESULT();
}
