/* Internals of a trim, shared by these files:
 *
 * journal_trim.c (when, and how a trim goes), journal_trim_records.c (the control lane's
 * records), journal_trim_memory.c (the devices' memory), journal_trim_file.c (reading and
 * writing) and journal_slots.c (the file's chunks). */
#ifndef ML_JOURNAL_TRIM_PARTS_H
#define ML_JOURNAL_TRIM_PARTS_H

#include "base/base.h"
#include "file/codec/mlab_records.h"
#include "file/journal/journal_parts.h"
#include "ledger/ledger.h"

/* A complete chunk of the file. */
typedef struct trim_chunk {
    uint64_t offset;
    uint64_t index; /* in its lane */
    uint64_t first; /* of a start: its number */
    uint64_t steps; /* notes of steps by when it was complete */
    unsigned lane;  /* of the journal */
} trim_chunk;

typedef struct trim_gap {
    uint64_t events;  /* of the lane, before the next one that is there */
    uint64_t missing; /* of these, since the start */
} trim_gap;

/* A moment of a device that is followed, at the end of a chunk and every so many events. */
typedef struct trim_mark {
    uint64_t followed; /* events of the device by then */
    uint64_t ticks;
} trim_mark;

/* A device's memory, from the start that the file has to the new one. */
typedef struct trim_device {
    ml_mlab_start start;
    bool known;        /* the file has a start of it */
    bool complete;     /* and that is complete */
    ml_ledger *ledger; /* owned; NULL: nothing is known yet */
    trim_gap *gaps;    /* owned */
    size_t gap_count;
    size_t gap_capacity;
    trim_mark *marks; /* owned */
    size_t mark_count;
    size_t mark_capacity;
    uint64_t followed; /* events */
    uint64_t ticks;    /* of the last event followed; 0: none */
} trim_device;

/* One trim. */
typedef struct ml_trim {
    size_t end; /* chunks of the trimmer before this one are followed */
    size_t next;
    void *buffer; /* owned; room for a chunk */
    trim_device devices[ML_DEVICE_MAX];
    ml_mlab_trim_lane lanes[ML_MLAB_LANES + 1];
    ml_mlab_trim dropped;
    ml_buffer records; /* those that the new start may take over: kind, length, bytes */
    bool full;         /* a start's record found no room */
} ml_trim;

struct ml_trimmer {
    uint64_t kept_steps;
    bool over;          /* nothing more is dropped */
    trim_chunk *chunks; /* owned; of one lane in order */
    size_t chunk_count;
    size_t chunk_capacity;
    uint64_t *free; /* owned; offsets of chunks that no longer count */
    size_t free_count;
    bool makes_room; /* the new start takes what is kept for it */
    size_t free_capacity;
    uint64_t trims; /* as in the header */
    ml_mlab_trim_lane lanes[ML_MLAB_LANES + 1];
    ml_mlab_trim dropped;
    ml_trim *trim; /* owned; the one under way */
};

/* The lane of the journal that CHUNK belongs to. */
unsigned trim_lane_of(const ml_journal *journal, const ml_chunk *chunk);
/* Whether CHUNK belongs to the start that the file has, or follows it. */
bool trim_counts(const ml_trimmer *trimmer, const trim_chunk *chunk);
/* Drops the chunks that do not.  Returns their number. */
size_t trim_drop_chunks(ml_trimmer *trimmer);

/* Makes room for a record of a start.  False: none. */
bool trim_make_room(ml_journal *journal);
/* Appends a record to the new start; sets TRIM's `full` if there is no room. */
void trim_put(ml_journal *journal, unsigned kind, const void *bytes, size_t length);

/* RECORD belongs to the start that the file has.  0 or ML_ENOMEM. */
int trim_take_start(ml_trim *trim, const ml_packed_other *record);
/* Follows the events of CHUNK, whose header is HEADER.  0 or ML_E*. */
int trim_follow(ml_trim *trim, unsigned lane, ml_chunk_reader *chunk,
                const ml_chunk *header);
/* Number of DEVICE's events before the new start. */
uint64_t trim_events(const ml_trim *trim, unsigned device);
/* When the last of the events was that were followed, of all devices. */
uint64_t trim_last_ticks(const ml_trim *trim);
/* Whether the block that held ADDR after EVENTS of DEVICE is there at the new start. */
bool trim_lives(const ml_trim *trim, unsigned device, uint64_t addr, uint64_t events);
/* The same of a block that held ADDR at TICKS; false, too, if it is not known whether it
 * was the same block. */
bool trim_lives_since(const ml_trim *trim, unsigned device, uint64_t addr,
                      uint64_t ticks);
/* Writes the devices' memory. */
void trim_put_memory(ml_journal *journal);

#define ML_TRIM_OF_START UINT64_MAX
/* Reads the start's records, and those of the control lane so far.  VISIT gets the
 * record's number in the lane, or ML_TRIM_OF_START, and the index of its chunk.  0 or
 * ML_E*. */
int trim_visit(ml_journal *journal,
               int (*visit)(ml_journal *journal, const ml_packed_other *record,
                            uint64_t number, uint64_t chunk));
/* After all events were followed: finds where the control lane goes on, and keeps the
 * records before that.  0 or ML_E*. */
int trim_read_records(ml_journal *journal);
/* Writes those of the records that the new start needs. */
int trim_put_records(ml_journal *journal);

#endif
