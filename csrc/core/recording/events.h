/* The events of a device, each identified by its index.
 *
 * Packed, they are in chunks.  In a chunk each member of ml_event is a column: the
 * least value, and for each event the excess, in as many bits as the chunk needs.
 * While events are made or changed as a whole, they may be plain: an array.  Readers
 * need not know which. */
#ifndef ML_EVENTS_H
#define ML_EVENTS_H

#include <stdbool.h>
#include <string.h>

#include "memlab.h"
#include "recording/event_column.h"
#include "recording/event_slab.h"

enum ml_event_member {
#define XX(name, member, type) ML_EVENT_MEMBER_##name,
    ML_EVENT_MEMBERS(XX)
#undef XX
    ML_EVENT_MEMBER_COUNT
};

/* Sets of members. */
#define ML_EVENT_BIT(name) (UINT32_C(1) << ML_EVENT_MEMBER_##name)
#define ML_EVENT_ALL ((UINT32_C(1) << ML_EVENT_MEMBER_COUNT) - 1)
/* The memory change of an event. */
#define ML_EVENT_MEMORY \
    (ML_EVENT_BIT(addr) | ML_EVENT_BIT(size) | ML_EVENT_BIT(block_bytes) | \
     ML_EVENT_BIT(stream) | ML_EVENT_BIT(stack) | ML_EVENT_BIT(origin_stack) | \
     ML_EVENT_BIT(pool_first) | ML_EVENT_BIT(pool_second) | ML_EVENT_BIT(action) | \
     ML_EVENT_BIT(flags))

#define ML_EVENTS_CHUNK 256u

typedef struct ml_event_chunk {
    ml_event_slab *slab; /* where it lies */
    size_t count;        /* number of its events: ML_EVENTS_CHUNK except in the last */
    ml_event_column_bits columns[ML_EVENT_MEMBER_COUNT];
    uint8_t bytes[]; /* the columns' bits, then 8 zero bytes */
} ml_event_chunk;

/* All zeros: no events. */
typedef struct ml_events {
    ml_event *plain;         /* NULL: packed */
    ml_event_chunk **chunks; /* owned, as are they */
    size_t chunk_count;
    size_t chunk_capacity;
    ml_event_slab *slab; /* the last, in which there may be room; with CHUNKS */
} ml_events;

/* Frees PLAIN too. */
void ml_events_free(ml_events *events);

static inline uint64_t
ml_event_chunk_value(const ml_event_chunk *chunk, unsigned member, size_t i)
{
    const ml_event_column_bits *column = &chunk->columns[member];
    return ml_event_column_value(*column, chunk->bytes + column->at, i);
}

/* ml_events_addr(events, i) and so on: one member of one event. */
#define XX(name, member, type) \
    static inline type ml_events_##name(const ml_events *events, size_t i) \
    { \
        return events->plain != NULL \
                   ? events->plain[i].member \
                   : (type)ml_event_chunk_value(events->chunks[i / ML_EVENTS_CHUNK], \
                                                ML_EVENT_MEMBER_##name, \
                                                i % ML_EVENTS_CHUNK); \
    }
ML_EVENT_MEMBERS(XX)
#undef XX

ml_event ml_events_at(const ml_events *events, size_t i);

/* Whether event I is of a backward pass. */
static inline bool
ml_events_is_backward(const ml_events *events, size_t i)
{
    return (ml_events_flags(events, i) & ML_EVENT_BACKWARD) != 0;
}

/* ---- Going through them ---- */

/* Reads members of many events near each other, forwards or backwards. */
typedef struct ml_event_cursor {
    const ml_events *events; /* borrowed */
    const ml_event *at;      /* COUNT events from FIRST on */
    size_t first;
    size_t count;
    uint32_t members;            /* valid members; others are undefined */
    const ml_event_chunk *chunk; /* the window's last source */
    ml_event window[ML_EVENTS_CHUNK];
} ml_event_cursor;

/* MEMBERS: a set of the members to read; plain events have all. */
void ml_event_cursor_init(ml_event_cursor *cursor, const ml_events *events,
                          uint32_t members);
void ml_event_cursor_fill(ml_event_cursor *cursor, size_t i);

/* Borrowed until the next call. */
static inline const ml_event *
ml_event_cursor_at(ml_event_cursor *cursor, size_t i)
{
    if (i - cursor->first >= cursor->count) {
        ml_event_cursor_fill(cursor, i);
    }
    return &cursor->at[i - cursor->first];
}

/* How many of the COUNT events lie behind each other from I on, which was got last. */
static inline size_t
ml_event_cursor_left(const ml_event_cursor *cursor, size_t i, size_t count)
{
    size_t left = cursor->count - (i - cursor->first);
    return left < count - i ? left : count - i;
}

/* ---- A member of many ---- */

/* MEMBER of the events from FIRST on, which is a multiple of ML_EVENTS_CHUNK, of COUNT in all.
 * How many: ML_EVENTS_CHUNK, or the rest. */
size_t ml_events_get_column(const ml_events *events, size_t count, size_t first,
                            unsigned member, uint64_t values[ML_EVENTS_CHUNK]);
/* The greatest of these values. */
uint64_t ml_events_most(const ml_events *events, size_t count, size_t first,
                        unsigned member);
/* The first of the COUNT events from FROM on whose time is TIME or later; COUNT: none. */
size_t ml_events_reach(const ml_events *events, size_t count, size_t from,
                       uint64_t time);
/* The first of the COUNT events from FROM on with this action; COUNT: none. */
size_t ml_events_find_action(const ml_events *events, size_t count, size_t from,
                             enum ml_action action);
/* Sets it in COUNT events, as many as were got.  0 or ML_ENOMEM. */
int ml_events_set_column(ml_events *events, size_t count, size_t first, unsigned member,
                         const uint64_t *values);

/* ---- Making and changing them ---- */

/* Packs events added to EVENTS, which are empty at first. */
typedef struct ml_event_writer {
    ml_events *events; /* borrowed */
    size_t count;      /* of WINDOW */
    ml_event window[ML_EVENTS_CHUNK];
} ml_event_writer;

void ml_event_writer_init(ml_event_writer *writer, ml_events *events);
/* Packs the remaining events; call it at the end.  0 or ML_ENOMEM. */
int ml_event_writer_flush(ml_event_writer *writer);

/* Where the next event goes, to be filled in and then kept; NULL: no memory. */
static inline ml_event *
ml_event_writer_next(ml_event_writer *writer)
{
    if (writer->count == ML_EVENTS_CHUNK && ml_event_writer_flush(writer) < 0) {
        return NULL;
    }
    return &writer->window[writer->count];
}

static inline void
ml_event_writer_keep(ml_event_writer *writer)
{
    writer->count++;
}

/* Changes events, plain or packed, one after the other. */
typedef struct ml_event_editor {
    ml_event_cursor cursor;
    ml_events *events; /* borrowed */
    uint32_t changes;  /* members */
    bool changed;      /* an event of the window was changed */
    int error;         /* 0; or ML_ENOMEM: some events are unchanged */
} ml_event_editor;

/* READS and CHANGES: sets of members; changed members are read too. */
void ml_event_editor_init(ml_event_editor *editor, ml_events *events, uint32_t reads,
                          uint32_t changes);
void ml_event_editor_move(ml_event_editor *editor, size_t i);
/* 0 or ML_ENOMEM. */
int ml_event_editor_end(ml_event_editor *editor);

/* Borrowed until the next call. */
static inline const ml_event *
ml_event_editor_see(ml_event_editor *editor, size_t i)
{
    if (editor->events->plain != NULL) {
        return &editor->events->plain[i];
    }
    if (i - editor->cursor.first >= editor->cursor.count) {
        ml_event_editor_move(editor, i);
    }
    return &editor->cursor.window[i - editor->cursor.first];
}

/* The same, to be changed. */
static inline ml_event *
ml_event_editor_at(ml_event_editor *editor, size_t i)
{
    if (editor->events->plain != NULL) {
        return &editor->events->plain[i];
    }
    ml_event_editor_see(editor, i);
    editor->changed = true;
    return &editor->cursor.window[i - editor->cursor.first];
}

/* Packs the COUNT plain events.  0; or ML_ENOMEM, and they stay plain. */
int ml_events_pack(ml_events *events, size_t count);
/* The COUNT events of FROM as an array; NULL: no memory. */
ml_event *ml_events_copy(const ml_events *from, size_t count);
/* Makes the COUNT events plain.  The array, owned by EVENTS; NULL: no memory, or no
 * events. */
ml_event *ml_events_unpack(ml_events *events, size_t count);

#endif
