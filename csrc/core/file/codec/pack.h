/* The codec of one memory event: an ml_event as a record of some 4 to 20 bytes, and back.
 *
 * Owns the layout of records, which is the same in memory and in files; docs/FORMAT.md
 * is its specification.  Most fields are written relative to the last event, so a
 * writer and its reader go through the same states.  Every field of an event comes back
 * exactly, except that actions past ML_ACTION_OTHER become it.
 *
 * The reader trusts nothing: any bytes give events or ML_EFORMAT. */
#ifndef ML_PACK_H
#define ML_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "memlab.h"

/* The most bytes that ml_pack_event writes.  Some lie after the record, since a field
 * is stored as a whole word. */
#define ML_PACK_ROOM \
    (107u + (5u + 3u * ((ML_SPARSE_COLUMN_COUNT - 1u) / 4u)) * ML_SPARSE_COLUMN_COUNT)

/* Bytes before the content of a record that is not an event; the number of kinds of
 * these. */
#define ML_PACK_OTHER_HEADER 5u
#define ML_PACK_KINDS 16u

/* The bytes of a record of the state. */
#define ML_PACK_STATE_BYTES 109u

/* The base of the next record; all zeros before the first.  Arrays of two are for
 * allocations and for frees, whose values repeat separately.  A state record has the
 * fields up to sequence_max in this order, without a gap: a new one there is a new format,
 * and needs a bit of `required` in mlab_format.h. */
typedef struct ml_pack {
    uint64_t time;
    uint64_t addr;
    uint64_t size;
    uint64_t block_bytes;
    uint64_t stream;
    uint64_t stream_before; /* the last change */
    uint64_t sequence;      /* the last that was not UINT64_MAX */
    uint64_t next;          /* the last that was written, as next_thread */
    uint32_t stack[2];
    uint32_t origin_stack[2];
    uint32_t pool[2];
    uint32_t metadata;
    uint32_t node;
    uint32_t thread;
    uint16_t autograd_thread;
    uint16_t next_thread;
    uint8_t flags[2];
    uint8_t action;       /* of the last event */
    uint8_t sequence_max; /* its sequence was UINT64_MAX */
    /* Of a reader: values it skipped, of sparse columns that it does not know. */
    uint32_t skipped;
} ml_pack;

/* Hot path.  Writes EVENT to TO, which has ML_PACK_ROOM bytes; returns its record's
 * length. */
size_t ml_pack_event(ml_pack *state, const ml_event *event, uint8_t *to);

/* Hot path.  Writes STATE to TO, as a record of ML_PACK_STATE_BYTES; its reader goes on
 * from STATE. */
void ml_pack_state(const ml_pack *state, uint8_t *to);

/* The record of one event, for every chunk that keeps the event. */
typedef struct ml_packed_event {
    const uint8_t *bytes; /* borrowed, or spare */
    size_t length;
    uint8_t spare[ML_PACK_ROOM];
} ml_packed_event;

/* Hot path.  Writes the ML_PACK_OTHER_HEADER bytes before the LENGTH bytes of a record
 * of KIND, below ML_PACK_KINDS. */
void ml_pack_other(unsigned kind, uint32_t length, uint8_t *to);

enum ml_packed {
    ML_PACKED_END,
    ML_PACKED_EVENT,
    ML_PACKED_OTHER /* of a kind that the container gives a meaning */
};

/* A record that is not an event; borrowed from the input. */
typedef struct ml_packed_other {
    const uint8_t *bytes;
    uint32_t length;
    uint8_t kind;
} ml_packed_other;

/* Reads the record at *AT, and no byte from END on; *AT moves past it.  Returns enum
 * ml_packed and fills EVENT or OTHER accordingly; or ML_EFORMAT, with *AT unchanged. */
int ml_unpack(ml_pack *state, const uint8_t **at, const uint8_t *end, ml_event *event,
              ml_packed_other *other);

#endif
