/* Files of recordings built by hand, in memory. */
#ifndef ML_TEST_MLAB_SAMPLES_H
#define ML_TEST_MLAB_SAMPLES_H

#include <string.h>

#include "file/codec/chunk.h"
#include "file/codec/mlab_format.h"
#include "file/mlab/mlab_reader.h"

#define CHUNK 8192u
#define CHUNKS 8u

/* A file in memory: the header, then chunks. */
typedef struct sample {
    _Alignas(64) uint8_t bytes[CHUNK * CHUNKS];
    size_t length;
} sample;

static inline ml_mlab_header *
header_of(sample *of)
{
    return (ml_mlab_header *)of->bytes;
}

static inline ml_chunk *
chunk_at(sample *of, unsigned number)
{
    return (ml_chunk *)(of->bytes + (size_t)number * CHUNK);
}

static inline void
seal_header(sample *of)
{
    ml_mlab_header *header = header_of(of);
    header->checksum = ml_crc32c(0, header, offsetof(ml_mlab_header, checksum));
}

static inline void
begin(sample *of)
{
    memset(of, 0, sizeof(*of));
    ml_mlab_header *header = header_of(of);
    memcpy(header->magic, ML_MLAB_MAGIC, 8);
    header->version = ML_MLAB_VERSION;
    header->byte_order = ML_MLAB_BYTE_ORDER;
    header->chunk_bytes = CHUNK;
    memcpy(header->source, "cuda", 5);
    header->ordered = 1;
    atomic_store(&header->state, ML_MLAB_ENDED);
    seal_header(of);
    of->length = CHUNK;
}

/* What the next event of the chunk that was added last is relative to. */
static ml_pack sample_state;

static inline ml_chunk_writer
add_chunk(sample *of, unsigned kind, unsigned device, uint64_t index, uint64_t first)
{
    ml_chunk like = {.kind = (uint8_t)kind,
                     .flags = ML_CHUNK_CHECKED,
                     .bytes = CHUNK,
                     .device = (uint16_t)device,
                     .index = index,
                     .first = first};
    ml_chunk_writer writer;
    ml_chunk_begin(&writer, of->bytes + of->length, &like);
    of->length += CHUNK;
    sample_state = (ml_pack){.time = 0};
    return writer;
}

static inline int
push_event(ml_chunk_writer *writer, const ml_event *event)
{
    return ml_chunk_push(writer, &sample_state, event);
}

static inline void
add_event(ml_chunk_writer *writer, uint64_t number)
{
    ml_event event = {.action = ML_ACTION_ALLOC,
                      .addr = (UINT64_C(1) << 40) + (number << 20),
                      .size = 1 << 20,
                      .time = number,
                      .stack = 2};
    push_event(writer, &event);
}

static inline void
add_node(ml_chunk_writer *writer, uint32_t id, uint32_t parent, uint64_t counter)
{
    ml_mlab_node node = {.id = id, .parent = parent, .counter = counter};
    ml_chunk_append(writer, ML_MLAB_NODE, &node, sizeof(node));
}

static inline void
add_start(ml_chunk_writer *writer, uint32_t device)
{
    ml_mlab_start start = {.max_split_bytes = UINT64_MAX, .device = device};
    ml_mlab_device whole = {.device = device};
    start.has_segments = 1;
    ml_mlab_segment segment = {
        .addr = UINT64_C(1) << 40, .total = 64 << 20, .device = device};
    ml_chunk_append(writer, ML_MLAB_START, &start, sizeof(start));
    ml_chunk_append(writer, ML_MLAB_SEGMENT, &segment, sizeof(segment));
    ml_chunk_append(writer, ML_MLAB_STARTED, &whole, sizeof(whole));
}

/* Two devices; on device 0 two chunks of three events each, on device 1 one of two. */
static inline void
build(sample *of)
{
    begin(of);
    ml_chunk_writer control = add_chunk(of, ML_MLAB_CONTROL, 0, 0, 0);
    add_start(&control, 0);
    add_start(&control, 1);
    static const uint8_t owner[] = {
        ML_CATEGORY_BUFFER, 0, 1, 3, 1, 'h', 'm', 'a', 's', 'k'};
    ml_chunk_append(&control, ML_MLAB_TAG, owner, sizeof(owner));
    ml_mlab_code_line line = {.line = 1};
    ml_chunk_append(&control, ML_MLAB_CODE_LINE, &line, sizeof(line));
    for (unsigned part = 0; part < 2; part++) {
        ml_chunk_writer events = add_chunk(of, ML_MLAB_EVENTS, 0, part, part * 3u);
        add_node(&events, 1, 0, 100);
        add_node(&events, 2, 1, 200);
        for (unsigned i = 0; i < 3; i++) {
            add_event(&events, part * 3 + i);
        }
    }
    ml_chunk_writer other = add_chunk(of, ML_MLAB_EVENTS, 1, 0, 0);
    add_event(&other, 0);
    add_event(&other, 1);
    ml_mlab_header *header = header_of(of);
    atomic_store(&header->lanes[0].events, 6);
    atomic_store(&header->lanes[1].events, 2);
    atomic_store(&header->lanes[ML_MLAB_LANES].events, 8);
}

static inline int
read_bytes(void *context, uint64_t offset, void *to, size_t length)
{
    const sample *from = context;
    if (offset > from->length || length > from->length - offset) {
        return ML_EIO;
    }
    memcpy(to, from->bytes + offset, length);
    return 0;
}

#endif
