/* libFuzzer target: any bytes as a .mlab file.
 *
 * The header is put in order and every chunk gets the checksum that fits it, which a
 * fuzzer does not find; chunks are the smallest there are.  What is read must be a valid
 * recording, and is read the same once more.  Build and run:
 *
 *   clang -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -pthread \
 *       -Icsrc/core tests/fuzz/fuzz_mlab.c csrc/core/?*.c -o /tmp/fuzz_mlab
 *   /tmp/fuzz_mlab -max_len=65536 -timeout=10
 *
 * A file that memlab wrote, with chunks of 64 KiB, is a corpus only after it was cut to
 * chunks of 8 KiB; -max_len and an empty corpus do as well. */
#include <stdlib.h>
#include <string.h>

#include "file/codec/chunk.h"
#include "file/codec/mlab_format.h"
#include "file/mlab/mlab_reader.h"

#define CHUNK ML_MLAB_CHUNK_LEAST

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    uint8_t *at;
    size_t length;
} bytes;

static void
demand(int condition)
{
    if (!condition) {
        abort();
    }
}

static int
read_bytes(void *context, uint64_t offset, void *to, size_t length)
{
    const bytes *from = context;
    if (offset > from->length || length > from->length - offset) {
        return ML_EIO;
    }
    memcpy(to, from->at + offset, length);
    return 0;
}

static void
seal(const bytes *file)
{
    ml_mlab_header *header = (ml_mlab_header *)file->at;
    memcpy(header->magic, ML_MLAB_MAGIC, sizeof(header->magic));
    header->version = ML_MLAB_VERSION;
    header->byte_order = ML_MLAB_BYTE_ORDER;
    header->required = 0;
    header->chunk_bytes = CHUNK;
    header->source[4] = '\0';
    header->host[4] = '\0';
    header->checksum = ml_crc32c(0, header, offsetof(ml_mlab_header, checksum));
    for (size_t at = CHUNK; at + sizeof(ml_chunk) < file->length; at += CHUNK) {
        ml_chunk *chunk = (ml_chunk *)(file->at + at);
        size_t room = file->length - at;
        room = (room < CHUNK ? room : CHUNK) - sizeof(*chunk);
        chunk->magic = ML_CHUNK_MAGIC;
        chunk->version = ML_CHUNK_VERSION;
        chunk->flags |= ML_CHUNK_CHECKED;
        chunk->bytes = CHUNK;
        uint64_t used = (atomic_load(&chunk->commit) & UINT32_MAX) % (room + 1);
        uint64_t crc = ml_crc32c(0, chunk + 1, (size_t)used);
        atomic_store(&chunk->commit, crc << 32 | used);
    }
}

static uint64_t
events_in(const bytes *file)
{
    ml_mlab_input input = {
        .context = (void *)(uintptr_t)file, .bytes = file->length, .read = read_bytes};
    ml_recording *recording = NULL;
    ml_mlab_info info = {0};
    ml_read_error error = {0};
    uint64_t events = 0;
    int result = ml_mlab_read(&input, &recording, &info, &error);
    if (result < 0) {
        demand(recording == NULL && error.code == result);
        return UINT64_MAX;
    }
    demand(ml_recording_validate(recording) == 0);
    for (size_t d = 0; d < recording->device_count; d++) {
        events += recording->devices[d].event_count;
    }
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    return events;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes file = {.length = size};
    demand(posix_memalign((void **)&file.at, 64, size + 64) == 0);
    if (size > 0) {
        memcpy(file.at, data, size);
    }
    uint64_t damaged = events_in(&file);
    (void)damaged;
    if (size >= CHUNK) {
        seal(&file);
        demand(events_in(&file) == events_in(&file));
    }
    free(file.at);
    return 0;
}
