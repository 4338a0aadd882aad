/* Packs the events of a device, and reads them.  See events.h. */
#include "recording/events.h"

#include "base/base.h"

/* Two bytes lie between flags and unused, and up to 7 at the end. */
#define XX(name, member, type) +sizeof(type)
_Static_assert((2 ML_EVENT_MEMBERS(XX) + 7) / 8 * 8 == sizeof(ml_event),
               "a member of ml_event has no column");
#undef XX

#define TAIL sizeof(uint64_t)

_Static_assert(sizeof(ml_event_chunk) + ML_EVENTS_CHUNK * sizeof(ml_event) + TAIL <=
                   ML_EVENT_CHUNK_MOST,
               "a chunk has no room");

/* ---- A chunk ---- */

/* Sets TO, an expression in I, to the COUNT values of COLUMN: two at once where a word has
 * both. */
#define READ_COLUMN(column, bytes, count, type, to) \
    do { \
        size_t i = 0; \
        while ((column).bits <= ML_EVENT_PAIR_BITS && i + 1 < (count)) { \
            uint64_t pair = ml_event_column_word((column), (bytes), i); \
            (to) = (type)ml_event_column_first((column), pair); \
            i++; \
            (to) = (type)ml_event_column_first((column), pair >> (column).bits); \
            i++; \
        } \
        for (; i < (count); i++) { \
            (to) = (type)ml_event_column_value((column), (bytes), i); \
        } \
    } while (0)

/* Reads the MEMBERS of its events.  OUT has those of BEFORE (NULL: nothing): members
 * that are equal in all events of both stay. */
static void
read_chunk(const ml_event_chunk *chunk, const ml_event_chunk *before, uint32_t members,
           ml_event *out)
{
    size_t count = chunk->count;
    before = before != NULL && before->count >= count ? before : NULL;
#define XX(name, member, type) \
    if ((members & ML_EVENT_BIT(name)) != 0) { \
        const ml_event_column_bits column = chunk->columns[ML_EVENT_MEMBER_##name]; \
        const ml_event_column_bits *last = \
            before != NULL ? &before->columns[ML_EVENT_MEMBER_##name] : NULL; \
        if (column.bits != 0) { \
            const uint8_t *bytes = chunk->bytes + column.at; \
            READ_COLUMN(column, bytes, count, type, out[i].member); \
        } \
        else if (last == NULL || last->bits != 0 || last->base != column.base) { \
            for (size_t i = 0; i < count; i++) { \
                out[i].member = (type)column.base; \
            } \
        } \
    }
    ML_EVENT_MEMBERS(XX)
#undef XX
}

typedef struct extent {
    uint64_t least;
    uint64_t most;
    uint64_t differ; /* bits in which they differ */
} extent;

static extent
extent_of(const uint64_t *values, size_t count)
{
    extent of = {values[0], values[0], 0};
    for (size_t i = 1; i < count; i++) {
        of.least = values[i] < of.least ? values[i] : of.least;
        of.most = values[i] > of.most ? values[i] : of.most;
        of.differ |= values[i] ^ values[0];
    }
    return of;
}

/* The COUNT values, which are OF that extent, to OUT. */
static ml_event_column_bits
pack_values(const uint64_t *values, size_t count, extent of, uint8_t *out)
{
    return of.differ == 0
               ? (ml_event_column_bits){.base = of.least, .most = of.least, .drop = 63}
               : ml_event_column_write(values, count, of.least, of.most, of.differ,
                                       out);
}

/* Two words at once: the compiler does not find them itself at -O2. */
typedef uint64_t word_pair __attribute__((vector_size(16)));

/* The bits in which members of the COUNT events differ. */
static ml_event
differences(const ml_event *events, size_t count)
{
    enum {
        PAIRS = sizeof(ml_event) / sizeof(word_pair)
    };
    word_pair first[PAIRS], differ[PAIRS];
    _Static_assert(sizeof(first) == sizeof(ml_event), "bytes are left");
    memcpy(first, events, sizeof(first));
    memset(differ, 0, sizeof(differ));
    for (size_t i = 1; i < count; i++) {
        const char *at = (const char *)&events[i];
        word_pair pair;
        for (size_t k = 0; k < PAIRS; k++) {
            memcpy(&pair, at + k * sizeof(pair), sizeof(pair));
            differ[k] |= pair ^ first[k];
        }
    }
    ml_event result;
    memcpy(&result, differ, sizeof(result));
    return result;
}

/* Keeps CHUNK, of COUNT events, whose columns have FILLED bytes, in EVENTS' last slab. */
static ml_event_chunk *
keep_chunk(const ml_events *events, ml_event_chunk *chunk, size_t count, size_t filled)
{
    for (unsigned k = 0; k < ML_EVENT_MEMBER_COUNT; k++) {
        /* The one bit of a constant is that of a zero. */
        if (chunk->columns[k].bits == 0) {
            chunk->columns[k].at = (uint32_t)filled;
        }
    }
    memset(chunk->bytes + filled, 0, TAIL);
    chunk->slab = events->slab;
    chunk->count = count;
    ml_event_slab_keep(events->slab, sizeof(*chunk) + filled + TAIL);
    return chunk;
}

/* A new chunk in ALL of COUNT events, with the MEMBERS of EVENTS and all others of FROM,
 * which may be NULL where there are none; NULL: no memory. */
static ml_event_chunk *
new_chunk(ml_events *all, const ml_event *events, size_t count, uint32_t members,
          const ml_event_chunk *from)
{
    ml_event_chunk *chunk = ml_event_slab_room(&all->slab);
    if (chunk == NULL) {
        return NULL;
    }
    uint64_t values[ML_EVENTS_CHUNK];
    uint8_t *bytes = chunk->bytes;
    size_t filled = 0;
    ml_event differ = differences(events, count);
#define XX(name, member, type) \
    { \
        const unsigned number = ML_EVENT_MEMBER_##name; \
        ml_event_column_bits *column = &chunk->columns[number]; \
        if ((members >> number & 1u) == 0) { \
            *column = from->columns[number]; \
            memcpy(bytes + filled, from->bytes + column->at, \
                   ml_event_column_bytes(column, count)); \
        } \
        else if (differ.member == 0) { \
            *column = (ml_event_column_bits){ \
                .base = events[0].member, .most = events[0].member, .drop = 63}; \
        } \
        else { \
            type least = events[0].member; \
            type most = least; \
            for (size_t i = 0; i < count; i++) { \
                type value = events[i].member; \
                least = value < least ? value : least; \
                most = value > most ? value : most; \
                values[i] = value; \
            } \
            *column = ml_event_column_write(values, count, least, most, differ.member, \
                                            bytes + filled); \
        } \
        column->at = (uint32_t)filled; \
        filled += ml_event_column_bytes(column, count); \
    }
    ML_EVENT_MEMBERS(XX)
#undef XX
    return keep_chunk(all, chunk, count, filled);
}

/* Sets CHUNK's MEMBER to VALUES, which are OF that extent, in the bits that it has.  False:
 * they do not suffice. */
static bool
overwrite_column(ml_event_chunk *chunk, unsigned member, const uint64_t *values,
                 extent of)
{
    ml_event_column_bits *column = &chunk->columns[member];
    if (column->bits == 0 || column->bits > ML_EVENT_MOST_BITS ||
        (of.most - of.least) >> column->bits != 0) {
        return false;
    }
    column->base = of.least;
    column->most = of.most;
    column->shift = 0;
    ml_event_column_put(values, chunk->count, of.least, 0, column->bits,
                        chunk->bytes + column->at);
    return true;
}

/* That of CHUNK with VALUES as its MEMBER, which are OF that extent, in EVENTS; NULL: no
 * memory. */
static ml_event_chunk *
with_column(ml_events *events, const ml_event_chunk *chunk, unsigned member,
            const uint64_t *values, extent of)
{
    ml_event_chunk *made = ml_event_slab_room(&events->slab);
    if (made == NULL) {
        return NULL;
    }
    size_t count = chunk->count;
    uint8_t *bytes = made->bytes;
    size_t filled = 0;
    for (unsigned k = 0; k < ML_EVENT_MEMBER_COUNT; k++) {
        ml_event_column_bits column = chunk->columns[k];
        if (k == member) {
            column = pack_values(values, count, of, bytes + filled);
        }
        else {
            memcpy(bytes + filled, chunk->bytes + column.at,
                   ml_event_column_bytes(&column, count));
        }
        column.at = (uint32_t)filled;
        made->columns[k] = column;
        filled += ml_event_column_bytes(&column, count);
    }
    return keep_chunk(events, made, count, filled);
}

static int
add_chunk(ml_events *events, const ml_event *from, size_t count)
{
    if (ml_grow((void **)&events->chunks, &events->chunk_capacity,
                events->chunk_count + 1, sizeof(*events->chunks)) < 0) {
        return ML_ENOMEM;
    }
    ml_event_chunk *chunk = new_chunk(events, from, count, ML_EVENT_ALL, NULL);
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
        ml_event_slab_leave(events->chunks[i]->slab);
    }
    ml_free(events->chunks);
    ml_event_slab_leave(events->slab);
    events->chunks = NULL;
    events->slab = NULL;
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
ml_event_cursor_init(ml_event_cursor *cursor, const ml_events *events, uint32_t members)
{
    cursor->events = events;
    cursor->members = members;
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
    read_chunk(chunk, cursor->chunk, cursor->members, cursor->window);
    cursor->chunk = chunk;
    cursor->at = cursor->window;
    cursor->first = number * ML_EVENTS_CHUNK;
    cursor->count = chunk->count;
}

/* ---- A member of many ---- */

static void
get_plain(const ml_event *events, size_t count, unsigned member, uint64_t *values)
{
    switch (member) {
#define XX(name, member, type) \
    case ML_EVENT_MEMBER_##name: \
        for (size_t i = 0; i < count; i++) { \
            values[i] = events[i].member; \
        } \
        break;
        ML_EVENT_MEMBERS(XX)
#undef XX
    default:
        break;
    }
}

static void
set_plain(ml_event *events, size_t count, unsigned member, const uint64_t *values)
{
    switch (member) {
#define XX(name, member, type) \
    case ML_EVENT_MEMBER_##name: \
        for (size_t i = 0; i < count; i++) { \
            events[i].member = (type)values[i]; \
        } \
        break;
        ML_EVENT_MEMBERS(XX)
#undef XX
    default:
        break;
    }
}

size_t
ml_events_get_column(const ml_events *events, size_t count, size_t first,
                     unsigned member, uint64_t values[ML_EVENTS_CHUNK])
{
    size_t left = count - first < ML_EVENTS_CHUNK ? count - first : ML_EVENTS_CHUNK;
    if (events->plain != NULL) {
        get_plain(events->plain + first, left, member, values);
        return left;
    }
    const ml_event_chunk *chunk = events->chunks[first / ML_EVENTS_CHUNK];
    const ml_event_column_bits column = chunk->columns[member];
    const uint8_t *bytes = chunk->bytes + column.at;
    if (column.bits == 0) {
        for (size_t i = 0; i < left; i++) {
            values[i] = column.base;
        }
        return left;
    }
    READ_COLUMN(column, bytes, left, uint64_t, values[i]);
    return left;
}

uint64_t
ml_events_most(const ml_events *events, size_t count, size_t first, unsigned member)
{
    if (events->plain == NULL) {
        return events->chunks[first / ML_EVENTS_CHUNK]->columns[member].most;
    }
    uint64_t values[ML_EVENTS_CHUNK];
    uint64_t most = 0;
    count = ml_events_get_column(events, count, first, member, values);
    for (size_t i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

size_t
ml_events_reach(const ml_events *events, size_t count, size_t from, uint64_t time)
{
    size_t i = from;
    while (i < count) {
        size_t end = i - i % ML_EVENTS_CHUNK + ML_EVENTS_CHUNK;
        end = end < count ? end : count;
        if (events->plain == NULL &&
            ml_events_most(events, count, i, ML_EVENT_MEMBER_time) < time) {
            i = end;
            continue;
        }
        while (i < end && ml_events_time(events, i) < time) {
            i++;
        }
        if (i < end) {
            break;
        }
    }
    return i;
}

size_t
ml_events_find_action(const ml_events *events, size_t count, size_t from,
                      enum ml_action action)
{
    size_t i = from;
    while (i < count) {
        size_t end = i - i % ML_EVENTS_CHUNK + ML_EVENTS_CHUNK;
        end = end < count ? end : count;
        if (events->plain == NULL &&
            ml_events_most(events, count, i, ML_EVENT_MEMBER_action) < action) {
            i = end;
            continue;
        }
        while (i < end && ml_events_action(events, i) != action) {
            i++;
        }
        if (i < end) {
            break;
        }
    }
    return i;
}

int
ml_events_set_column(ml_events *events, size_t count, size_t first, unsigned member,
                     const uint64_t *values)
{
    if (events->plain != NULL) {
        set_plain(events->plain + first, count, member, values);
        return 0;
    }
    ml_event_chunk **at = &events->chunks[first / ML_EVENTS_CHUNK];
    extent of = extent_of(values, (*at)->count);
    if (overwrite_column(*at, member, values, of)) {
        return 0;
    }
    ml_event_chunk *chunk = with_column(events, *at, member, values, of);
    if (chunk == NULL) {
        return ML_ENOMEM;
    }
    ml_event_slab_leave((*at)->slab);
    *at = chunk;
    return 0;
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
ml_event_editor_init(ml_event_editor *editor, ml_events *events, uint32_t reads,
                     uint32_t changes)
{
    ml_event_cursor_init(&editor->cursor, events, reads | changes);
    editor->events = events;
    editor->changes = changes;
    editor->changed = false;
    editor->error = 0;
}

/* Packs the window again. */
static void
put_back(ml_event_editor *editor)
{
    ml_event_cursor *cursor = &editor->cursor;
    if (!editor->changed) {
        return;
    }
    editor->changed = false;
    ml_event_chunk *chunk = new_chunk(editor->events, cursor->window, cursor->count,
                                      editor->changes, cursor->chunk);
    if (chunk == NULL) {
        editor->error = ML_ENOMEM;
    }
    else {
        ml_event_chunk **at = &editor->events->chunks[cursor->first / ML_EVENTS_CHUNK];
        ml_event_slab_leave((*at)->slab);
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
        read_chunk(from->chunks[i], NULL, ML_EVENT_ALL, copy + i * ML_EVENTS_CHUNK);
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
