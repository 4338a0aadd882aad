/* Chunks: what is committed is whole, each is read alone, and broken ones are refused. */
#include <pthread.h>

#include "file/codec/chunk.h"
#include "test.h"

#define BYTES 4096u

static uint64_t memory[BYTES / 8];

static ml_event
numbered(uint64_t number)
{
    return (ml_event){.addr = number * 512, .size = number, .time = number * 1000};
}

/* Fills MEMORY; the events that fit. */
static uint64_t
fill(ml_chunk_writer *writer, uint8_t flags, uint64_t from)
{
    ml_chunk like = {.flags = flags, .bytes = BYTES, .index = 3, .first = from};
    ml_chunk_begin(writer, memory, &like);
    ml_pack state = {.time = 0};
    uint64_t number = from;
    for (;;) {
        ml_event event = numbered(number);
        if (ml_chunk_push(writer, &state, &event) != 0) {
            return number - from;
        }
        number++;
    }
}

/* The events of the chunk, which are numbered on from FIRST; -1 where they are not. */
static int64_t
count_events(ml_chunk_reader *reader, uint64_t first)
{
    ml_event event;
    ml_packed_other other;
    int64_t count = 0;
    int result;
    while ((result = ml_chunk_next(reader, &event, &other)) > 0) {
        ml_event wanted = numbered(first + (uint64_t)count);
        if (result != ML_PACKED_EVENT || event.addr != wanted.addr ||
            event.size != wanted.size || event.time != wanted.time) {
            return -1;
        }
        count++;
    }
    return result == 0 ? count : -1;
}

static void
test_is_read_alone(void)
{
    ml_chunk_writer writer = {.chunk = NULL};
    CHECK_INT(ml_chunk_used(&writer), 0);
    for (int checked = 0; checked < 2; checked++) {
        uint64_t fitted = fill(&writer, checked ? ML_CHUNK_CHECKED : 0, 1000000);
        CHECK(fitted > 100);
        CHECK(ml_chunk_used(&writer) <= BYTES - sizeof(ml_chunk));
        CHECK(ml_chunk_used(&writer) > BYTES - sizeof(ml_chunk) - ML_PACK_ROOM);
        ml_chunk_reader reader;
        ml_chunk header;
        CHECK_INT(ml_chunk_open(&reader, memory, sizeof(memory), &header), 0);
        CHECK_INT(header.index, 3);
        CHECK_INT(header.first, 1000000);
        CHECK_INT(header.flags, checked ? ML_CHUNK_CHECKED : 0);
        CHECK_INT(count_events(&reader, 1000000), fitted);
    }
}

/* Two chunks keep the events of one packer from different ones on, by the same records. */
static void
test_a_record_is_the_same_in_every_chunk(void)
{
    enum {
        EVENTS = 60,
        JOINED = 40
    };
    static uint64_t other_memory[BYTES / 8];
    ml_chunk like = {.bytes = BYTES, .flags = ML_CHUNK_CHECKED};
    ml_chunk_writer first, second;
    ml_pack state = {.time = 0};
    const uint8_t *joined = NULL;
    ml_chunk_begin(&first, memory, &like);
    ml_chunk_begin(&second, other_memory, &like);
    for (uint64_t number = 0; number < EVENTS; number++) {
        ml_event event = numbered(number);
        const ml_pack before = state;
        ml_packed_event packed = {.bytes = first.at};
        CHECK_INT(ml_chunk_push(&first, &state, &event), 0);
        packed.length = (size_t)(first.at - packed.bytes);
        if (number == JOINED) {
            joined = packed.bytes;
            CHECK_INT(ml_chunk_push_state(&second, &before), 0);
        }
        if (number >= JOINED) {
            CHECK_INT(ml_chunk_push_packed(&second, &packed), 0);
        }
    }
    ml_chunk_reader reader;
    ml_chunk header;
    CHECK_INT(ml_chunk_open(&reader, memory, BYTES, &header), 0);
    CHECK_INT(count_events(&reader, 0), EVENTS);
    CHECK_INT(ml_chunk_open(&reader, other_memory, BYTES, &header), 0);
    CHECK_INT(count_events(&reader, JOINED), EVENTS - JOINED);
    size_t shared = ml_chunk_used(&second) - ML_PACK_STATE_BYTES;
    CHECK_UINT(shared, (size_t)(first.at - joined));
    CHECK_INT(memcmp(second.at - shared, joined, shared), 0);
}

/* What finds no room changes nothing. */
static void
test_a_full_chunk_takes_no_more(void)
{
    ml_chunk_writer writer;
    ml_pack state = {.time = 0};
    ml_packed_event packed = {.bytes = packed.spare};
    ml_event event = numbered(1);
    packed.length = ml_pack_event(&state, &event, packed.spare);
    fill(&writer, ML_CHUNK_CHECKED, 0);
    while (ml_chunk_push_packed(&writer, &packed) == 0) {
    }
    uint32_t used = ml_chunk_used(&writer);
    CHECK(BYTES - sizeof(ml_chunk) - used < ML_PACK_ROOM);
    CHECK_INT(ml_chunk_push(&writer, &state, &event), ML_EFULL);
    CHECK_UINT(ml_chunk_used(&writer), used);
}

static void
test_other_records_keep_their_place(void)
{
    ml_chunk_writer writer;
    ml_chunk like = {.bytes = BYTES, .flags = ML_CHUNK_CHECKED};
    ml_chunk_begin(&writer, memory, &like);
    ml_pack state = {.time = 0};
    ml_event event = numbered(1);
    CHECK_INT(ml_chunk_append(&writer, 2, "def", 3), 0);
    CHECK_INT(ml_chunk_push(&writer, &state, &event), 0);
    CHECK_INT(ml_chunk_append(&writer, 4, NULL, 0), 0);
    uint32_t used = ml_chunk_used(&writer);
    CHECK_INT(ml_chunk_append(&writer, 2, memory, BYTES), ML_EFULL);
    CHECK_INT(ml_chunk_append(&writer, 2, memory, UINT32_MAX), ML_EFULL);
    CHECK_INT(ml_chunk_used(&writer), used);
    ml_chunk_reader reader;
    ml_chunk header;
    ml_packed_other other;
    CHECK_INT(ml_chunk_open(&reader, memory, sizeof(memory), &header), 0);
    CHECK_INT(ml_chunk_next(&reader, &event, &other), ML_PACKED_OTHER);
    CHECK_INT(other.kind, 2);
    CHECK_TEXT((const char *)other.bytes, other.length, "def");
    CHECK_INT(ml_chunk_next(&reader, &event, &other), ML_PACKED_EVENT);
    CHECK_INT(event.addr, 512);
    CHECK_INT(ml_chunk_next(&reader, &event, &other), ML_PACKED_OTHER);
    CHECK_INT(other.kind, 4);
    CHECK_INT(other.length, 0);
    CHECK_INT(ml_chunk_next(&reader, &event, &other), ML_PACKED_END);
}

static void
test_broken_chunks_are_refused(void)
{
    ml_chunk_writer writer;
    fill(&writer, ML_CHUNK_CHECKED, 7);
    ml_chunk_reader reader;
    ml_chunk header;
    uint8_t *bytes = (uint8_t *)memory;
    CHECK_INT(ml_chunk_open(&reader, memory, 63, &header), ML_EFORMAT);
    CHECK_INT(ml_chunk_open(&reader, memory, BYTES - 1, &header), ML_EFORMAT);
    /* Every byte that was committed, and every byte that says how many they are. */
    size_t commit = offsetof(ml_chunk, commit);
    for (size_t i = 0; i < sizeof(ml_chunk) + ml_chunk_used(&writer); i++) {
        if (i < sizeof(ml_chunk) && (i < commit || i >= commit + 8) && i > 5) {
            continue;
        }
        bytes[i] ^= 0x10;
        CHECK_INT(ml_chunk_open(&reader, memory, BYTES, &header), ML_EFORMAT);
        bytes[i] ^= 0x10;
    }
    CHECK_INT(ml_chunk_open(&reader, memory, BYTES, &header), 0);
    memset(memory, 0, sizeof(memory));
    CHECK_INT(ml_chunk_open(&reader, memory, BYTES, &header), ML_EFORMAT);
}

/* The check value of the polynomial's catalogue entry (CRC-32/ISCSI), at once and in
 * parts. */
static void
test_crc(void)
{
    CHECK_UINT(ml_crc32c(0, "123456789", 9), 0xe3069283u);
    CHECK_UINT(ml_crc32c(ml_crc32c(0, "12345", 5), "6789", 4), 0xe3069283u);
    CHECK_UINT(ml_crc32c(0, "", 0), 0);
    ml_crc32c_choose();
    CHECK_UINT(ml_crc32c(0, "123456789", 9), 0xe3069283u);
    CHECK_UINT(ml_crc32c(ml_crc32c(0, "1", 1), "23456789", 8), 0xe3069283u);
}

static void *
write_beside(void *context)
{
    ml_chunk_writer *writer = context;
    ml_pack state = {.time = 0};
    for (uint64_t number = 0;; number++) {
        ml_event event = numbered(number);
        if (ml_chunk_push(writer, &state, &event) != 0) {
            return NULL;
        }
    }
}

static void
test_reader_beside_the_writer(void)
{
    static uint64_t large[1 << 17];
    ml_chunk_writer writer;
    ml_chunk like = {.bytes = sizeof(large)};
    ml_chunk_begin(&writer, large, &like);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, write_beside, &writer), 0);
    int64_t before = 0, failures = 0;
    for (int i = 0; i < 50; i++) {
        ml_chunk_reader reader;
        ml_chunk header;
        failures += ml_chunk_open(&reader, large, sizeof(large), &header) != 0;
        int64_t count = count_events(&reader, 0);
        failures += count < before;
        before = count;
    }
    pthread_join(thread, NULL);
    CHECK_INT(failures, 0);
}

int
main(void)
{
    RUN(test_crc); /* first: before anything asks the processor */
    RUN(test_is_read_alone);
    RUN(test_a_record_is_the_same_in_every_chunk);
    RUN(test_a_full_chunk_takes_no_more);
    RUN(test_other_records_keep_their_place);
    RUN_LONG_IN_ONE_THREAD(test_broken_chunks_are_refused);
    RUN(test_reader_beside_the_writer);
    return TEST_RESULT();
}
