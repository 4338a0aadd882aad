/* Writes a recording as a pickle: the schema's constructors as opcodes.
 *
 * Shared values are numbered in the order of their MEMOIZE.  Containers are memoised
 * when they are complete, which is valid because none contains itself. */
#include "file/snapshot/pickle_writer.h"

#include <string.h>

#include "base/base.h"
#include "file/snapshot/torch_schema.h"

#define BUFFER_BYTES ((size_t)256 * 1024)
/* The viewer passes one batch as the arguments of a call, so a batch must be small;
 * this is CPython's own size. */
#define BATCH 1000u
/* Snapshot, devices, device, segments, segment, blocks, block, frames, frame. */
#define NESTING 16u

typedef struct level {
    uint8_t kind;   /* enum ml_value_kind */
    uint32_t count; /* values since the last mark */
} level;

typedef struct writer {
    ml_builder builder; /* first, so that its address is the writer's */
    const ml_recording *recording;
    ml_sink sink;
    void *sink_context;
    unsigned char *buffer;             /* owned */
    size_t used;                       /* bytes */
    uint32_t *shared[ML_SHARED_COUNT]; /* memo index + 1 by kind and id; owned */
    uint32_t *strings;                 /* memo index + 1 by string; owned */
    uint32_t words[ML_WORD_COUNT];
    uint32_t memo_count;
    size_t depth;
    level levels[NESTING];
} writer;

static writer *
writer_of(ml_builder *builder)
{
    return (writer *)(void *)builder;
}

static void
flush(writer *w)
{
    if (w->builder.error == 0 && w->used != 0) {
        w->builder.error = w->sink(w->sink_context, w->buffer, w->used);
    }
    w->used = 0;
}

/* Room for BYTES, at most a few dozen. */
static unsigned char *
room(writer *w, size_t bytes)
{
    if (BUFFER_BYTES - w->used < bytes) {
        flush(w);
    }
    unsigned char *at = w->buffer + w->used;
    w->used += bytes;
    return at;
}

static void
put_opcode(writer *w, char opcode)
{
    *room(w, 1) = (unsigned char)opcode;
}

/* Little-endian; written out so that compilers make one store of it. */
static void
store_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
    at[2] = (unsigned char)(value >> 16);
    at[3] = (unsigned char)(value >> 24);
}

static void
put_opcode_u32(writer *w, char opcode, uint32_t argument)
{
    unsigned char *at = room(w, 5);
    at[0] = (unsigned char)opcode;
    store_u32(at + 1, argument);
}

/* Before each value: opens the first or the next batch of a container. */
static void
begin_value(writer *w)
{
    if (w->depth == 0) {
        return;
    }
    level *inner = &w->levels[w->depth - 1];
    if (inner->kind == ML_VALUE_TUPLE) {
        return;
    }
    if (inner->kind == ML_VALUE_LIST && inner->count == BATCH) {
        put_opcode(w, 'e');
        inner->count = 0;
    }
    if (inner->count++ == 0) {
        put_opcode(w, '(');
    }
}

static void
open_container(ml_builder *builder, enum ml_value_kind kind)
{
    writer *w = writer_of(builder);
    begin_value(w);
    if (kind != ML_VALUE_TUPLE) {
        put_opcode(w, kind == ML_VALUE_LIST ? ']' : '}');
    }
    w->levels[w->depth++] = (level){.kind = (uint8_t)kind};
}

static void
close_container(ml_builder *builder)
{
    writer *w = writer_of(builder);
    level inner = w->levels[--w->depth];
    if (inner.kind == ML_VALUE_TUPLE) {
        put_opcode(w, (char)0x86); /* TUPLE2: the schema has pairs only */
    }
    else if (inner.count != 0) {
        put_opcode(w, inner.kind == ML_VALUE_LIST ? 'e' : 'u');
    }
}

static void
put_integer(ml_builder *builder, int64_t integer)
{
    writer *w = writer_of(builder);
    begin_value(w);
    uint64_t bits = (uint64_t)integer;
    if (bits < 0x100) {
        unsigned char *at = room(w, 2);
        at[0] = 'K';
        at[1] = (unsigned char)bits;
    }
    else if (bits < 0x10000) {
        unsigned char *at = room(w, 3);
        at[0] = 'M';
        at[1] = (unsigned char)bits;
        at[2] = (unsigned char)(bits >> 8);
    }
    else if (integer >= INT32_MIN && integer <= INT32_MAX) {
        put_opcode_u32(w, 'J', (uint32_t)bits);
    }
    else {
        /* LONG1 with the fewest bytes that keep the sign. */
        unsigned char *at = room(w, 10);
        size_t bytes = 8;
        while (integer >> (8 * bytes - 9) == integer >> 63) {
            bytes--;
        }
        at[0] = 0x8a;
        at[1] = (unsigned char)bytes;
        store_u32(at + 2, (uint32_t)bits);
        store_u32(at + 6, (uint32_t)(bits >> 32));
        w->used -= 8 - bytes;
    }
}

static void
put_boolean(ml_builder *builder, bool truth)
{
    writer *w = writer_of(builder);
    begin_value(w);
    put_opcode(w, (char)(truth ? 0x88 : 0x89));
}

static void
put_real(ml_builder *builder, double real)
{
    writer *w = writer_of(builder);
    begin_value(w);
    uint64_t bits;
    memcpy(&bits, &real, sizeof(bits));
    unsigned char *at = room(w, 9);
    at[0] = 'G';
    for (int i = 0; i < 8; i++) {
        at[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    }
}

static void
put_bytes(writer *w, const char *bytes, size_t length)
{
    while (length != 0 && w->builder.error == 0) {
        if (w->used == BUFFER_BYTES) {
            flush(w);
        }
        size_t part = BUFFER_BYTES - w->used;
        part = part < length ? part : length;
        memcpy(w->buffer + w->used, bytes, part);
        w->used += part;
        bytes += part;
        length -= part;
    }
}

static void
put_text(ml_builder *builder, const char *bytes, size_t length)
{
    writer *w = writer_of(builder);
    begin_value(w);
    if (length < 0x100) {
        unsigned char *at = room(w, 2);
        at[0] = 0x8c;
        at[1] = (unsigned char)length;
    }
    else if (length <= UINT32_MAX) {
        put_opcode_u32(w, 'X', (uint32_t)length);
    }
    else {
        builder->error = builder->error != 0 ? builder->error : ML_ELIMIT;
        return;
    }
    put_bytes(w, bytes, length);
}

/* Memoises the last value: SLOT becomes its memo index + 1. */
static void
memoize(writer *w, uint32_t *slot)
{
    if (w->memo_count == UINT32_MAX) {
        w->builder.error = w->builder.error != 0 ? w->builder.error : ML_ELIMIT;
        return;
    }
    put_opcode(w, (char)0x94);
    *slot = ++w->memo_count;
}

static bool
recall_slot(writer *w, uint32_t slot)
{
    if (slot == 0) {
        return false;
    }
    begin_value(w);
    if (slot <= 0x100) {
        unsigned char *at = room(w, 2);
        at[0] = 'h';
        at[1] = (unsigned char)(slot - 1);
    }
    else {
        put_opcode_u32(w, 'j', slot - 1);
    }
    return true;
}

static void
put_word(ml_builder *builder, unsigned word)
{
    writer *w = writer_of(builder);
    if (!recall_slot(w, w->words[word])) {
        const char *text = ml_word_text(word);
        put_text(builder, text, strlen(text));
        memoize(w, &w->words[word]);
    }
}

static void
put_string(ml_builder *builder, uint32_t id)
{
    writer *w = writer_of(builder);
    if (!recall_slot(w, w->strings[id])) {
        const ml_string *string = &w->recording->strings[id];
        put_text(builder, string->bytes, string->length);
        memoize(w, &w->strings[id]);
    }
}

static bool
recall(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    writer *w = writer_of(builder);
    return recall_slot(w, w->shared[kind][id]);
}

static void
keep(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    writer *w = writer_of(builder);
    memoize(w, &w->shared[kind][id]);
}

static int
write_all(writer *w, unsigned options)
{
    const ml_recording *recording = w->recording;
    w->buffer = ml_alloc(BUFFER_BYTES);
    w->strings = ml_alloc_zeroed(recording->string_count, sizeof(uint32_t));
    bool room = w->buffer != NULL && w->strings != NULL;
    for (unsigned kind = 0; kind < ML_SHARED_COUNT; kind++) {
        w->shared[kind] =
            ml_alloc_zeroed(ml_shared_ids(recording, kind), sizeof(uint32_t));
        room = room && w->shared[kind] != NULL;
    }
    if (!room) {
        return ML_ENOMEM;
    }
    put_opcode(w, (char)0x80);
    put_opcode(w, 4);
    ml_torch_schema_build(recording, options, &w->builder);
    put_opcode(w, '.');
    flush(w);
    return w->builder.error;
}

int
ml_pickle_write(const ml_recording *recording, unsigned options, ml_sink sink,
                void *context)
{
    writer *w = ml_alloc_zeroed(1, sizeof(*w));
    if (w == NULL) {
        return ML_ENOMEM;
    }
    w->recording = recording;
    w->sink = sink;
    w->sink_context = context;
    w->builder = (ml_builder){.open = open_container,
                              .close = close_container,
                              .integer = put_integer,
                              .boolean = put_boolean,
                              .real = put_real,
                              .word = put_word,
                              .string = put_string,
                              .text = put_text,
                              .recall = recall,
                              .keep = keep};
    int error = write_all(w, options);
    ml_free(w->buffer);
    ml_free(w->strings);
    for (unsigned kind = 0; kind < ML_SHARED_COUNT; kind++) {
        ml_free(w->shared[kind]);
    }
    ml_free(w);
    return error;
}
