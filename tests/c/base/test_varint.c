/* Numbers of seven bits a byte: as LEB128 has them, and back. */
#include "base/varint.h"
#include "test.h"

#include <string.h>

/* 300 is 0xac 0x02, the example that the encoding is known by. */
static void
test_bytes(void)
{
    uint8_t bytes[ML_VARINT_ROOM];
    CHECK_INT(ml_varint_write(bytes, 0), 1);
    CHECK_INT(bytes[0], 0);
    CHECK_INT(ml_varint_write(bytes, 300), 2);
    CHECK_INT(bytes[0], 0xac);
    CHECK_INT(bytes[1], 0x02);
    CHECK_INT(ml_varint_write(bytes, UINT64_MAX), ML_VARINT_ROOM);
    CHECK_INT(bytes[9], 1);
}

static void
test_reading_back(void)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        uint64_t value = (UINT64_C(1) << shift) - (shift & 1), read = 7;
        uint8_t bytes[ML_VARINT_ROOM];
        size_t length = ml_varint_write(bytes, value);
        const uint8_t *at = bytes;
        CHECK(ml_varint_read(&at, bytes + length, &read));
        CHECK(read == value && at == bytes + length);
        at = bytes;
        CHECK(!ml_varint_read(&at, bytes + length - 1, &read));
    }
}

static void
test_more_than_64_bits(void)
{
    uint8_t bytes[11];
    memset(bytes, 0xff, sizeof(bytes));
    const uint8_t *at = bytes;
    uint64_t read;
    bytes[9] = 2;
    CHECK(!ml_varint_read(&at, bytes + sizeof(bytes), &read));
    at = bytes;
    bytes[9] = 0x81;
    CHECK(!ml_varint_read(&at, bytes + sizeof(bytes), &read));
}

int
main(void)
{
    RUN(test_bytes);
    RUN(test_reading_back);
    RUN(test_more_than_64_bits);
    return TEST_RESULT();
}
