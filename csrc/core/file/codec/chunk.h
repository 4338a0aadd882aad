/* A chunk: a fixed-size piece of a lane, a header and then packed records.
 *
 * Owns the layout of chunks, which is the same in memory and in files.  The commit word
 * says how many bytes are complete.  A chunk is read alone: its records are relative to
 * zeros, or to a state record of the chunk.  This file does not know where the memory
 * comes from, nor what other records than events mean.
 *
 * One writer at a time.  One release store commits each record.  So a reader on another
 * thread, in another process, or after the writer was killed sees whole records
 * only. */
#ifndef ML_CHUNK_H
#define ML_CHUNK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "file/codec/pack.h"

#define ML_CHUNK_MAGIC UINT32_C(0x4b434c4d) /* "MLCK" */
#define ML_CHUNK_VERSION 1u
/* The bytes of a chunk, header included: a multiple of 8 between these two. */
#define ML_CHUNK_LEAST 512u
#define ML_CHUNK_MOST (UINT32_C(1) << 28)

/* Bits of ml_chunk.flags. */
#define ML_CHUNK_CHECKED 0x01u /* commit holds a CRC-32C of the committed bytes */

/* Header; the payload follows it. */
typedef struct ml_chunk {
    uint32_t magic;
    uint16_t version;
    uint8_t kind;  /* the container's; 0: events of a lane */
    uint8_t flags; /* ML_CHUNK_* */
    uint32_t bytes;
    uint16_t device;
    uint16_t lane;  /* of the device */
    uint64_t index; /* of the chunk in its lane */
    uint64_t first; /* events of the lane before this chunk's first */
    uint64_t
        dropped; /* events of the lane lost between the chunk before and this one */
    /* Low half: complete bytes of the payload.  High half: their CRC-32C, with
     * ML_CHUNK_CHECKED. */
    _Atomic uint64_t commit;
    uint64_t reserved[2];
} ml_chunk;

_Static_assert(sizeof(ml_chunk) == 64, "the header is part of the file format");

typedef struct ml_chunk_writer {
    ml_chunk *chunk; /* borrowed; NULL: none, and nothing fits */
    uint8_t *at;     /* where the next record goes */
    uint8_t *end;
    uint32_t crc;
    bool checked;
} ml_chunk_writer;

/* Makes MEMORY, of LIKE->bytes bytes and aligned to 8, a chunk without records.  Its
 * header is LIKE's, with magic, version and commit set here.  WRITER goes on there. */
void ml_chunk_begin(ml_chunk_writer *writer, void *memory, const ml_chunk *like);

/* Whether any event's record fits. */
static inline bool
ml_chunk_takes_event(const ml_chunk_writer *writer)
{
    return writer->end - writer->at >= (ptrdiff_t)ML_PACK_ROOM;
}

/* The bytes up to TO are complete. */
void ml_chunk_commit_checked(ml_chunk_writer *writer, uint8_t *to);

static inline void
ml_chunk_commit(ml_chunk_writer *writer, uint8_t *to)
{
    if (writer->checked) {
        ml_chunk_commit_checked(writer, to);
        return;
    }
    writer->at = to;
    uint64_t bytes = (uint64_t)(to - (uint8_t *)(writer->chunk + 1));
    atomic_store_explicit(&writer->chunk->commit, bytes, memory_order_release);
}

/* Each of these appends a record and commits it.  0, or ML_EFULL with nothing changed.
 *
 * Hot path.  The record of EVENT, packed here: relative to STATE, which moves on. */
static inline int
ml_chunk_push(ml_chunk_writer *writer, ml_pack *state, const ml_event *event)
{
    uint8_t *at = writer->at;
    if (!ml_chunk_takes_event(writer)) {
        return ML_EFULL;
    }
    ml_chunk_commit(writer, at + ml_pack_event(state, event, at));
    return 0;
}

/* Hot path.  A record of STATE: the base of the records after it. */
int ml_chunk_push_state(ml_chunk_writer *writer, const ml_pack *state);
/* Hot path.  A copy of EVENT's record, behind which ML_PACK_ROOM bytes can be read: its base
 * is the last event or state here.  There must be ML_PACK_ROOM bytes of room, too. */
static inline int
ml_chunk_push_packed(ml_chunk_writer *writer, const ml_packed_event *event)
{
    uint8_t *at = writer->at;
    if (!ml_chunk_takes_event(writer)) {
        return ML_EFULL;
    }
    /* By words, as most records are one or two: a call costs more. */
    for (size_t i = 0; i < event->length; i += sizeof(uint64_t)) {
        memcpy(at + i, event->bytes + i, sizeof(uint64_t));
    }
    ml_chunk_commit(writer, at + event->length);
    return 0;
}

/* A record of the container's own KIND, below ML_PACK_KINDS. */
int ml_chunk_append(ml_chunk_writer *writer, unsigned kind, const void *bytes,
                    uint32_t length);

/* Bytes of records so far. */
uint32_t ml_chunk_used(const ml_chunk_writer *writer);

typedef struct ml_chunk_reader {
    const uint8_t *at; /* borrowed */
    const uint8_t *end;
    ml_pack state;
} ml_chunk_reader;

/* Reads the header at MEMORY, aligned to 8, with BYTES readable bytes.  READER starts
 * at the first of the records committed by now.  *HEADER is a copy.  0, or ML_EFORMAT
 * if these are not the bytes of a chunk that was begun, or the CRC differs. */
int ml_chunk_open(ml_chunk_reader *reader, const void *memory, size_t bytes,
                  ml_chunk *header);

/* As ml_unpack: enum ml_packed or ML_EFORMAT. */
int ml_chunk_next(ml_chunk_reader *reader, ml_event *event, ml_packed_other *other);

/* Lets ml_crc32c use the processor's instruction, if there is one; until then it is
 * slow.  Not from the callback. */
void ml_crc32c_choose(void);
/* CRC-32C of BYTES, going on from CRC (0 to begin with). */
uint32_t ml_crc32c(uint32_t crc, const void *bytes, size_t length);

#endif
