/* libFuzzer target: any bytes as a chunk of a lane.
 *
 * The bytes are the payload, once as they are and once under a CRC that fits them, which
 * a fuzzer does not find.  What is read is packed again, and must read back the same.
 * Build and run:
 *
 *   clang -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *       -D_GNU_SOURCE -Icsrc/core tests/fuzz/fuzz_chunk.c \
 *       csrc/core/file/codec/{chunk,pack,unpack}.c -o /tmp/fuzz_chunk
 *   /tmp/fuzz_chunk -max_len=4096 -timeout=1
 */
#include <stdlib.h>
#include <string.h>

#include "file/codec/chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
demand(int condition)
{
    if (!condition) {
        abort();
    }
}

/* A chunk with SIZE bytes of records at DATA; the caller frees it. */
static ml_chunk *
chunk_of(const uint8_t *data, size_t size, uint8_t flags)
{
    ml_chunk *chunk = calloc(1, sizeof(*chunk) + size);
    demand(chunk != NULL);
    chunk->magic = ML_CHUNK_MAGIC;
    chunk->version = ML_CHUNK_VERSION;
    chunk->flags = flags;
    chunk->bytes = (uint32_t)(sizeof(*chunk) + size);
    uint64_t crc = flags != 0 ? ml_crc32c(0, data, size) : 0;
    atomic_init(&chunk->commit, crc << 32 | size);
    if (size > 0) {
        memcpy(chunk + 1, data, size);
    }
    return chunk;
}

static void
read_and_pack(const ml_chunk *chunk)
{
    ml_chunk_reader reader;
    ml_chunk header;
    demand(ml_chunk_open(&reader, chunk, chunk->bytes, &header) == 0);
    ml_pack writing = {.time = 0};
    ml_pack reading = {.time = 0};
    ml_event event, again;
    ml_packed_other other;
    int result;
    while ((result = ml_chunk_next(&reader, &event, &other)) > 0) {
        if (result != ML_PACKED_EVENT) {
            continue;
        }
        uint8_t record[ML_PACK_ROOM];
        const uint8_t *at = record;
        size_t length = ml_pack_event(&writing, &event, record);
        demand(length <= sizeof(record));
        demand(ml_unpack(&reading, &at, record + length, &again, &other) ==
               ML_PACKED_EVENT);
        /* All before the padding, and what is behind it. */
        demand(memcmp(&event, &again, offsetof(ml_event, flags) + 1) == 0);
        demand(event.unused == again.unused);
    }
    demand(result == ML_PACKED_END || result == ML_EFORMAT);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (uint8_t flags = 0; flags <= ML_CHUNK_CHECKED; flags++) {
        ml_chunk *chunk = chunk_of(data, size, flags);
        read_and_pack(chunk);
        free(chunk);
    }
    ml_chunk *chunk = calloc(1, size + 8);
    demand(chunk != NULL);
    if (size > 0) {
        memcpy(chunk, data, size);
    }
    ml_chunk_reader reader;
    ml_chunk header;
    int result = ml_chunk_open(&reader, chunk, size, &header);
    demand(result == 0 || result == ML_EFORMAT);
    free(chunk);
    return 0;
}
