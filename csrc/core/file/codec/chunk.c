/* Reads and writes chunks, fixed-size pieces of a lane.  See chunk.h. */
#include "file/codec/chunk.h"

#include <string.h>

#include "base/system/processor.h"

/* ---- CRC-32C ----
 *
 * The processor's instruction where it has one, which is asked once: the
 * file is compiled for any processor. */

/* Of the reflected polynomial, by half bytes. */
static const uint32_t crc_table[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
    0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
    0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ crc_table[crc & 15u];
        crc = crc >> 4 ^ crc_table[crc & 15u];
    }
    return crc;
}

#if defined(__x86_64__)
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_WORD(crc, word) (uint32_t) __builtin_ia32_crc32di(crc, word)
#define CRC_BYTE(crc, byte) __builtin_ia32_crc32qi(crc, byte)
#elif defined(__aarch64__) && defined(__linux__)
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_WORD(crc, word) __builtin_aarch64_crc32cx(crc, word)
#define CRC_BYTE(crc, byte) __builtin_aarch64_crc32cb(crc, byte)
#endif

static _Atomic int crc_kind; /* 0: not asked yet; 1: by table; 2: by instruction */

#ifdef CRC_TARGET
CRC_TARGET static uint32_t
crc_by_instruction(uint32_t crc, const uint8_t *bytes, size_t length)
{
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        crc = CRC_WORD(crc, word);
    }
    for (; length > 0; length--, bytes++) {
        crc = CRC_BYTE(crc, *bytes);
    }
    return crc;
}
#endif

void
ml_crc32c_choose(void)
{
    if (atomic_load_explicit(&crc_kind, memory_order_relaxed) == 0) {
#ifdef CRC_TARGET
        int kind = ml_processor_has_crc32c() ? 2 : 1;
#else
        int kind = 1;
#endif
        atomic_store_explicit(&crc_kind, kind, memory_order_relaxed);
    }
}

uint32_t
ml_crc32c(uint32_t crc, const void *bytes, size_t length)
{
#ifdef CRC_TARGET
    if (atomic_load_explicit(&crc_kind, memory_order_relaxed) == 2) {
        return ~crc_by_instruction(~crc, bytes, length);
    }
#endif
    return ~crc_by_table(~crc, bytes, length);
}

/* ---- Writing ---- */

void
ml_chunk_begin(ml_chunk_writer *writer, void *memory, const ml_chunk *like)
{
    ml_chunk *chunk = memory;
    chunk->version = ML_CHUNK_VERSION;
    chunk->kind = like->kind;
    chunk->flags = like->flags;
    chunk->bytes = like->bytes;
    chunk->device = like->device;
    chunk->lane = like->lane;
    chunk->index = like->index;
    chunk->first = like->first;
    chunk->dropped = like->dropped;
    memcpy(chunk->reserved, like->reserved, sizeof(chunk->reserved));
    chunk->magic = ML_CHUNK_MAGIC;
    atomic_store_explicit(&chunk->commit, 0, memory_order_release);
    writer->chunk = chunk;
    writer->at = (uint8_t *)(chunk + 1);
    writer->end = (uint8_t *)memory + like->bytes;
    writer->crc = 0;
    writer->checked = (like->flags & ML_CHUNK_CHECKED) != 0;
}

void
ml_chunk_commit_checked(ml_chunk_writer *writer, uint8_t *to)
{
    writer->crc = ml_crc32c(writer->crc, writer->at, (size_t)(to - writer->at));
    writer->at = to;
    uint64_t bytes = (uint64_t)(to - (uint8_t *)(writer->chunk + 1));
    atomic_store_explicit(&writer->chunk->commit, bytes | (uint64_t)writer->crc << 32,
                          memory_order_release);
}

int
ml_chunk_push_state(ml_chunk_writer *writer, const ml_pack *state)
{
    if (writer->end - writer->at < (ptrdiff_t)ML_PACK_STATE_BYTES) {
        return ML_EFULL;
    }
    ml_pack_state(state, writer->at);
    ml_chunk_commit(writer, writer->at + ML_PACK_STATE_BYTES);
    return 0;
}

int
ml_chunk_append(ml_chunk_writer *writer, unsigned kind, const void *bytes,
                uint32_t length)
{
    uint64_t room = (uint64_t)(writer->end - writer->at);
    if (room < ML_PACK_OTHER_HEADER || room - ML_PACK_OTHER_HEADER < length) {
        return ML_EFULL;
    }
    ml_pack_other(kind, length, writer->at);
    if (length > 0) {
        memcpy(writer->at + ML_PACK_OTHER_HEADER, bytes, length);
    }
    ml_chunk_commit(writer, writer->at + ML_PACK_OTHER_HEADER + length);
    return 0;
}

uint32_t
ml_chunk_used(const ml_chunk_writer *writer)
{
    return writer->chunk == NULL
               ? 0
               : (uint32_t)(writer->at - (const uint8_t *)(writer->chunk + 1));
}

/* ---- Reading ---- */

int
ml_chunk_open(ml_chunk_reader *reader, const void *memory, size_t bytes,
              ml_chunk *header)
{
    const ml_chunk *chunk = memory;
    if (bytes < sizeof(*chunk)) {
        return ML_EFORMAT;
    }
    uint64_t word = atomic_load_explicit(&chunk->commit, memory_order_acquire);
    uint64_t used = word & UINT32_MAX;
    if (chunk->magic != ML_CHUNK_MAGIC || chunk->version != ML_CHUNK_VERSION ||
        chunk->bytes > bytes || chunk->bytes < sizeof(*chunk) ||
        used > chunk->bytes - sizeof(*chunk)) {
        return ML_EFORMAT;
    }
    const uint8_t *payload = (const uint8_t *)(chunk + 1);
    if ((chunk->flags & ML_CHUNK_CHECKED) != 0) {
        ml_crc32c_choose();
        if (ml_crc32c(0, payload, used) != word >> 32) {
            return ML_EFORMAT;
        }
    }
    memcpy(header, chunk, sizeof(*header));
    atomic_init(&header->commit, word);
    memset(&reader->state, 0, sizeof(reader->state));
    reader->at = payload;
    reader->end = payload + used;
    return 0;
}

int
ml_chunk_next(ml_chunk_reader *reader, ml_event *event, ml_packed_other *other)
{
    return ml_unpack(&reader->state, &reader->at, reader->end, event, other);
}
