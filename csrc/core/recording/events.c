/* Packing the events of a device, and reading them again.  See events.h. */
#include "recording/events.h"

#include "base/base.h"

/* The two bytes between flags and unused. */
#define PADDING 2
#define XX(name, member, type) +sizeof(type)
_Static_assert(0 ML_EVENT_MEMBERS(XX) + PADDING == sizeof(ml_event),
               "a member of ml_event has no column");
#undef XX

/* Bits that a word still has room for behind up to 7 others. */
#define MOST_BITS 56

static const size_t TAIL = sizeof(uint64_t);

/* ---- A chunk ---- */

static void
read_column(const ml_event_chunk *chunk, unsigned member, size_t count,
            uint64_t *values)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = ml_event_chunk_value(chunk, member, i);
    }
}

/* OUT holds BEFORE, or nothing where that is NULL: what is alike in all events of both
 * stays. */
static void
read_chunk(const ml_event_chunk *chunk, const ml_event_chunk *before, ml_event *out)
{
    uint64_t values[ML_EVENTS_CHUNK];
    size_t count = chunk->count;
    before = before != NULL && before->count >= count ? before : NULL;
#define XX(name, member, type) \
    { \
        const unsigned number = ML_EVENT_MEMBER_##name; \
        type base = (type)chunk->columns[number].base; \
        if (chunk->columns[number].bits != 0) { \
            read_column(chunk, number, count, values); \
            for (size_t i = 0; i < count; i++) { \
                out[i].member = (type)values[i]; \
            } \
        } \
        else if (before == NULL || before->columns[number].bits != 0 || \
                 before->columns[number].base != base) { \
            for (size_t i = 0; i < count; i++) { \
                out[i].member = base; \
            } \
        } \
    }
    ML_EVENT_MEMBERS(XX)
#undef XX
}

/* The numbers below 64 of zeros at the end of WORD, which is not 0, and of its bits. */
static unsigned
zeros_of(uint64_t word)
{
    return (unsigned)__builtin_ctzll(word);
}

static unsigned
bits_of(uint64_t word)
{
    return 64 - (unsigned)__builtin_clzll(word);
}

/* DIFFER has the bits in which the COUNT values differ, not 0. */
static ml_event_column_bits
column_of(const uint64_t *values, size_t count, uint64_t differ)
{
    uint64_t least = values[0];
    uint64_t most = values[0];
    for (size_t i = 1; i < count; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    unsigned shift = zeros_of(differ);
    unsigned bits = bits_of((most - least) >> shift);
    if (bits > MOST_BITS) {
        bits = 64;
        shift = 0;
    }
    return (ml_event_column_bits){.base = least,
                                  .bits = (uint8_t)bits,
                                  .drop = (uint8_t)(64 - bits),
                                  .shift = (uint8_t)shift};
}

static size_t
bytes_of(const ml_event_column_bits *column, size_t count)
{
    return (count * column->bits + 7) / 8;
}

static void
write_column(const ml_event_column_bits *column, const uint64_t *values, size_t count,
             uint8_t *out)
{
    if (column->bits == 64) {
        for (size_t i = 0; i < count; i++) {
            uint64_t word = values[i] - column->base;
            memcpy(out + i * sizeof(word), &word, sizeof(word));
        }
        return;
    }
    uint64_t word = 0;
    unsigned filled = 0;
    for (size_t i = 0; i < count; i++) {
        word |= (values[i] - column->base) >> column->shift << filled;
        filled += column->bits;
        memcpy(out, &word, sizeof(word));
        out += filled >> 3;
        word >>= filled & ~7u;
        filled &= 7;
    }
}

/* A new chunk of COUNT events; NULL: no memory. */
static ml_event_chunk *
new_chunk(const ml_event *events, size_t count)
{
    /* Whatever changes in a chunk, as values. */
    uint64_t values[ML_EVENT_MEMBER_COUNT][ML_EVENTS_CHUNK];
    ml_event_column_bits columns[ML_EVENT_MEMBER_COUNT];
    size_t bytes = 0;
#define XX(name, member, type) \
    { \
        ml_event_column_bits *column = &columns[ML_EVENT_MEMBER_##name]; \
        uint64_t *of = values[ML_EVENT_MEMBER_##name]; \
        type first = events[0].member; \
        type differ = 0; \
        for (size_t i = 0; i < count; i++) { \
            differ |= events[i].member ^ first; \
        } \
        *column = (ml_event_column_bits){.base = first, .drop = 63}; \
        if (differ != 0) { \
            for (size_t i = 0; i < count; i++) { \
                of[i] = events[i].member; \
            } \
            *column = column_of(of, count, differ); \
            column->at = (uint32_t)bytes; \
            bytes += bytes_of(column, count); \
        } \
    }
    ML_EVENT_MEMBERS(XX)
#undef XX
    ml_event_chunk *chunk = ml_alloc(sizeof(*chunk) + bytes + TAIL);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->count = count;
    for (unsigned k = 0; k < ML_EVENT_MEMBER_COUNT; k++) {
        if (columns[k].bits == 0) {
            columns[k].at = (uint32_t)bytes;
        }
        else {
            /* In order: what a column writes beyond its own is the next one's. */
            write_column(&columns[k], values[k], count, chunk->bytes + columns[k].at);
        }
        chunk->columns[k] = columns[k];
    }
    memset(chunk->bytes + bytes, 0, TAIL);
    return chunk;
}

static int
add_chunk(ml_events *events, const ml_event *from, size_t count)
{
    if (ml_grow((void **)&events->chunks, &events->chunk_capacity,
                events->chunk_count + 1, sizeof(*events->chunks)) < 0) {
        return ML_ENOMEM;
    }
    ml_event_chunk *chunk = new_chunk(from, count);
    if (chunk == NULL) {
        return ML_ENOMEM;
    }
    events->chunks[events->chunk_count++] = chunk;
    return 0;
}

static void
drop_chunks(ml_events *events)
{
    for (size_t i = 0; i < events->chunk_count; i++) {
        ml_free(events->chunks[i]);
    }
    ml_free(events->chunks);
    events->chunks = NULL;
    events->chunk_count = events->chunk_capacity = 0;
}

void
ml_events_free(ml_events *events)
{
    drop_chunks(events);
    ml_free(events->plain);
    events->plain = NULL;
}

ml_event
ml_events_at(const ml_events *events, size_t i)
{
    ml_event event;
    if (events->plain != NULL) {
        return events->plain[i];
    }
    memset(&event, 0, sizeof(event));
#define XX(name, member, type) event.member = ml_events_##name(events, i);
    ML_EVENT_MEMBERS(XX)
#undef XX
    return event;
}

/* ---- Going through them ---- */

void
ml_event_cursor_init(ml_event_cursor *cursor, const ml_events *events)
{
    cursor->events = events;
    cursor->at = events->plain;
    cursor->first = 0;
    cursor->count = events->plain != NULL ? SIZE_MAX : 0;
    cursor->chunk = NULL;
}

void
ml_event_cursor_fill(ml_event_cursor *cursor, size_t i)
{
    size_t number = i / ML_EVENTS_CHUNK;
    const ml_event_chunk *chunk = cursor->events->chunks[number];
    read_chunk(chunk, cursor->chunk, cursor->window);
    cursor->chunk = chunk;
    cursor->at = cursor->window;
    cursor->first = number * ML_EVENTS_CHUNK;
    cursor->count = chunk->count;
}

/* ---- Making and changing them ---- */

void
ml_event_writer_init(ml_event_writer *writer, ml_events *events)
{
    writer->events = events;
    writer->count = 0;
}

int
ml_event_writer_flush(ml_event_writer *writer)
{
    int result = 0;
    if (writer->count > 0) {
        result = add_chunk(writer->events, writer->window, writer->count);
    }
    writer->count = 0;
    return result;
}

void
ml_event_editor_init(ml_event_editor *editor, ml_events *events)
{
    ml_event_cursor_init(&editor->cursor, events);
    editor->events = events;
    editor->error = 0;
}

/* Packs the window again. */
static void
put_back(ml_event_editor *editor)
{
    ml_event_cursor *cursor = &editor->cursor;
    if (cursor->chunk == NULL) {
        return;
    }
    ml_event_chunk *chunk = new_chunk(cursor->window, cursor->count);
    if (chunk == NULL) {
        editor->error = ML_ENOMEM;
    }
    else {
        ml_event_chunk **at = &editor->events->chunks[cursor->first / ML_EVENTS_CHUNK];
        ml_free(*at);
        *at = chunk;
    }
    cursor->chunk = chunk;
}

void
ml_event_editor_move(ml_event_editor *editor, size_t i)
{
    put_back(editor);
    ml_event_cursor_fill(&editor->cursor, i);
}

int
ml_event_editor_end(ml_event_editor *editor)
{
    put_back(editor);
    return editor->error;
}

int
ml_events_pack(ml_events *events, size_t count)
{
    for (size_t i = 0; events->plain != NULL && i < count; i += ML_EVENTS_CHUNK) {
        size_t left = count - i;
        if (add_chunk(events, events->plain + i,
                      left < ML_EVENTS_CHUNK ? left : ML_EVENTS_CHUNK) < 0) {
            drop_chunks(events);
            return ML_ENOMEM;
        }
    }
    ml_free(events->plain);
    events->plain = NULL;
    return 0;
}

ml_event *
ml_events_copy(const ml_events *from, size_t count)
{
    ml_event *copy = ml_alloc_zeroed(count + 1, sizeof(*copy));
    if (copy == NULL || count == 0) {
        return copy;
    }
    if (from->plain != NULL) {
        memcpy(copy, from->plain, count * sizeof(*copy));
        return copy;
    }
    for (size_t i = 0; i < from->chunk_count; i++) {
        read_chunk(from->chunks[i], NULL, copy + i * ML_EVENTS_CHUNK);
    }
    return copy;
}

ml_event *
ml_events_unpack(ml_events *events, size_t count)
{
    if (events->plain == NULL) {
        events->plain = ml_events_copy(events, count);
        if (events->plain != NULL) {
            drop_chunks(events);
        }
    }
    return events->plain;
}
