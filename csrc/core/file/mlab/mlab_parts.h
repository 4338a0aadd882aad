/* Internals of the reader of .mlab files, shared by these files:
 *
 * mlab_reader.c (file and chunks), mlab_lanes.c (lanes), mlab_stacks.c (definitions),
 * mlab_control.c (the control lane), mlab_times.c (clocks), mlab_places.c (positions of
 * tags and uses), mlab_memory.c (the memory at the end) and follower*.c (a growing
 * file). */
#ifndef ML_MLAB_PARTS_H
#define ML_MLAB_PARTS_H

#include "base/base.h"
#include "file/codec/mlab_format.h"
#include "file/codec/mlab_records.h"
#include "file/mlab/mlab_reader.h"
#include "ledger/ledger.h"
#include "recording/interner.h"
#include "stacks/stacks.h"
#include "stacks/wanted.h"

/* Lanes of the file beside those that the header counts: a start after the first part was
 * dropped. */
#define MLAB_START_DEFINITIONS (ML_MLAB_LANES + 1)
#define MLAB_START_CONTROL (ML_MLAB_LANES + 2)
#define MLAB_NO_LANE (ML_MLAB_LANES + 3)

/* Segments and blocks at the start of a device, in file order. */
typedef struct mlab_start {
    ml_mlab_start head;
    bool known;           /* the start was read, and the next records belong to it */
    bool complete;        /* it is complete */
    bool repeated;        /* it came in parts */
    bool left_out;        /* the current segment has an invalid size */
    ml_segment *segments; /* owned; first_block and block_count are set */
    size_t segment_count;
    size_t segment_capacity;
    ml_block *blocks; /* owned */
    size_t block_count;
    size_t block_capacity;
} mlab_start;

/* A tag, as in the file. */
typedef struct mlab_tag {
    uint64_t addr;
    uint64_t place;  /* events of the device before it, or time */
    size_t order;    /* among the tags of the file */
    uint32_t name;   /* string of the recording */
    uint32_t module; /* the same */
    uint8_t device;
    uint8_t category;
    uint8_t lost; /* of its names */
} mlab_tag;

/* A use, as in the file. */
typedef struct mlab_use {
    uint64_t addr;
    uint64_t place; /* events of the device before it */
    uint8_t device;
} mlab_use;

/* Where a chunk's events begin in a lane, to find events by ordinal. */
typedef struct mlab_place {
    uint64_t ordinal;
    uint64_t index; /* in the device's events */
} mlab_place;

typedef struct mlab_name {
    uint32_t object;
    uint32_t name; /* string of the recording */
} mlab_name;

/* The line through two clocks: a tick is WHOLE ns and PART / 2^64. */
typedef struct mlab_line {
    size_t low; /* the earlier one */
    uint64_t ns;
    uint64_t ticks; /* 0: no clocks yet */
    uint64_t whole;
    uint64_t part;
} mlab_line;

typedef struct mlab_reader {
    ml_recording *recording; /* under construction; owned */
    ml_mlab_info *info;
    bool ordered;
    bool tells_uses;   /* its events have distances to last uses */
    bool uses_sampled; /* in some steps only */
    bool wants;        /* the recording wanted them */
    ml_wanted wanted;
    ml_stacks *stacks;    /* owned: with the ids of the file */
    ml_interner interner; /* of the recording, for names */
    ml_intern code_lines;

    ml_mlab_clock *clocks; /* owned; sorted by ticks at the end */
    size_t clock_count;
    size_t clock_capacity;
    mlab_line line; /* that the last time was by */
    mlab_start starts[ML_DEVICE_MAX];
    uint64_t trims; /* number of the start that counts; 0: nothing was dropped */
    ml_mlab_trim trim;
    ml_mlab_trim_lane trim_lanes[ML_MLAB_LANES + 1];
    mlab_tag *tags; /* owned */
    size_t tag_count;
    size_t tag_capacity;
    mlab_use *uses; /* owned */
    size_t use_count;
    size_t use_capacity;
    mlab_name *names; /* owned */
    size_t name_count;
    size_t name_capacity;
    size_t note_capacity;
    size_t setting_capacity;
    size_t gap_capacity;
    size_t event_capacity[ML_DEVICE_MAX]; /* of plain ones */
    /* Owned; packs the events of the lane that is read, whose times are unix ns, as all
     * clocks are known.  NULL: they stay plain, with ticks. */
    ml_event_writer *writer;
    /* Owned; the memory of a device whose events the writer packs, up to the last one. */
    ml_ledger *ledgers[ML_DEVICE_MAX];
    mlab_place *places[ML_DEVICE_MAX]; /* owned; of ordered sources */
    size_t place_count[ML_DEVICE_MAX];
    size_t place_capacity[ML_DEVICE_MAX];
} mlab_reader;

/* The part of a lane read so far. */
typedef struct mlab_lane {
    unsigned number;
    unsigned device;
    uint64_t
        ordinal; /* events of the lane so far, stored or not; for control, records */
    uint64_t dropped; /* of these, not stored */
} mlab_lane;

/* 0, or ML_EFORMAT with *ERROR. */
int mlab_read_header(const ml_mlab_input *input, ml_mlab_header *header,
                     ml_read_error *error);
void mlab_take_header(mlab_reader *reader, const ml_mlab_header *header,
                      uint64_t bytes);

/* Kind of a piece of the file, by its first bytes. */
enum mlab_piece {
    MLAB_PIECE_READY, /* nothing yet */
    MLAB_PIECE_CHUNK,
    MLAB_PIECE_DAMAGED
};
enum mlab_piece mlab_piece_of(const mlab_reader *reader, const ml_chunk *header,
                              uint32_t chunk_bytes);
/* The lane of the file that CHUNK names; MLAB_NO_LANE for none. */
unsigned mlab_lane_of(const mlab_reader *reader, const ml_chunk *chunk);
/* Reads the start that a file has whose first part was dropped.  0 or ML_ENOMEM. */
int mlab_read_start(mlab_reader *reader, const ml_mlab_input *input,
                    uint32_t chunk_bytes);
/* LANE is number NUMBER, of which the file's start tells where it goes on.  0 or
 * ML_ENOMEM. */
int mlab_begin_lane(mlab_reader *reader, mlab_lane *lane, unsigned number);
/* Notes the events missing before the chunk HEADER.  0 or ML_ENOMEM, as of the next. */
int mlab_begin_chunk(mlab_reader *reader, mlab_lane *lane, const ml_chunk *header);
/* Reads the records up to the end of CHUNK, which may grow later. */
int mlab_read_chunk(mlab_reader *reader, mlab_lane *lane, ml_chunk_reader *chunk);
/* Notes the events that the lane counted beyond those read. */
int mlab_end_lane(mlab_reader *reader, mlab_lane *lane, const ml_mlab_lane *counted);
/* After all was read: completes READER's recording. */
int mlab_finish(mlab_reader *reader, const ml_mlab_header *header);
/* A reader with an empty recording and no stacks yet. */
int mlab_reader_new(mlab_reader **out);
void mlab_reader_free(mlab_reader *reader);

/* A record of a chunk of events that is not an event.  A malformed one is counted and
 * ignored. */
void mlab_define(mlab_reader *reader, const ml_packed_other *record);
/* The recording's events refer to its own tables from here on; the stacks stay as they
 * were. */
int mlab_resolve(mlab_reader *reader);

/* A record of the control lane.  A malformed one is counted and ignored.  0 or
 * ML_ENOMEM. */
int mlab_control(mlab_reader *reader, const ml_packed_other *record);
/* *ID becomes the text's id among the recording's strings; only names are among these
 * yet. */
int mlab_add_name(mlab_reader *reader, const uint8_t *bytes, size_t length,
                  uint32_t *id);
/* The number of events of DEVICE before ORDINAL in its lane. */
uint64_t mlab_index_of(const mlab_reader *reader, unsigned device, uint64_t ordinal);
/* After all clocks were read, before times are asked for. */
void mlab_sort_clocks(mlab_reader *reader);
uint64_t mlab_unix_ns(mlab_reader *reader, uint64_t ticks);
/* The times of COUNT EVENTS become unix ns. */
void mlab_tell_times(mlab_reader *reader, ml_event *events, size_t count);
/* After all records were read: times become unix ns, tags get their places.  0 or
 * ML_ENOMEM, as of the next. */
int mlab_finish_times(mlab_reader *reader);
int mlab_finish_tags(mlab_reader *reader);
/* After the memory at the end is known: sets the last uses of its live blocks. */
int mlab_finish_uses(mlab_reader *reader);

/* Drops the stacks that the recording did not want, if the file says which it wanted;
 * they were captured for other recordings of the process.  0 or ML_ENOMEM. */
int mlab_finish_stacks(mlab_reader *reader);
/* Begins the memory of DEVICE, of an ordered source, before the first of EVENTS events
 * at most; and completes the next COUNT.  0 or ML_ENOMEM. */
int mlab_begin_memory(mlab_reader *reader, unsigned device, size_t events);
void mlab_follow_memory(mlab_reader *reader, unsigned device, ml_event *events,
                        size_t count);
/* Completes and packs what the writer has of DEVICE's events.  0 or ML_ENOMEM. */
int mlab_pack_events(mlab_reader *reader, unsigned device);
/* Follows what was not followed yet, and tells the memory at the end.  0 or ML_ENOMEM. */
int mlab_finish_memory(mlab_reader *reader);

#endif
