/* Internals of a followed recording, shared by these files:
 *
 * follower_history.c (its whole time), follower_recording.c (what is kept),
 * follower_condense.c (what is dropped), follower_file.c (the file) and follower.c (the
 * answers). */
#ifndef ML_FOLLOWER_PARTS_H
#define ML_FOLLOWER_PARTS_H

#include "analysis/attribution/prior_blocks.h"
#include "analysis/follow/follower.h"
#include "file/mlab/mlab_parts.h"

/* A begun chunk. */
typedef struct follower_chunk {
    uint64_t offset;
    uint64_t index; /* in its lane */
    unsigned lane;
    bool read; /* or being read */
} follower_chunk;

/* A lane, and its current chunk. */
typedef struct follower_lane {
    mlab_lane state;
    ml_chunk *buffer; /* owned; the chunk as far as it was read; NULL: none yet */
    uint64_t offset;  /* of the chunk; 0: none yet */
    uint64_t next;    /* index of the next chunk */
    ml_chunk_reader reader;
    uint32_t used; /* bytes of records read */
    uint32_t crc;  /* of these */
    bool damaged;  /* the rest of this chunk is not read */
} follower_lane;

/* A prior block by ids that outlive one recording: its module and the texts of its
 * frames are strings of the reader's recording. */
typedef struct follower_prior_block {
    ml_prior_block prior_block;
    ml_frame frame;
    ml_frame until;
    ml_frame model;
} follower_prior_block;

typedef struct follower_prior_blocks {
    follower_prior_block *items; /* owned; by address */
    size_t count;
    size_t capacity;
} follower_prior_blocks;

struct ml_follower {
    int descriptor;
    ml_mlab_input input;
    ml_mlab_header header;
    ml_mlab_info info;
    mlab_reader *reader; /* owned; its recording is never finished */

    uint64_t scanned; /* pieces of the file before this offset were inspected */
    uint64_t *ready;  /* owned; those of them that are no chunks yet */
    size_t ready_count;
    size_t ready_capacity;
    follower_chunk *queue; /* owned; by lane and index */
    size_t queue_count;
    size_t queue_capacity;
    follower_lane lanes[ML_MLAB_LANES + 1];

    uint64_t begun[ML_DEVICE_MAX]; /* events before the memory that is final */
    uint64_t gone[ML_DEVICE_MAX];  /* dropped events */
    ml_totals peaks[ML_DEVICE_MAX];
    follower_prior_blocks prior_blocks[ML_DEVICE_MAX];
    ml_follower_history histories[ML_DEVICE_MAX];
    int failed;       /* ML_E*: the data are no longer complete; or 0 */
    size_t kept_most; /* most events kept before some are dropped */
};

/* Adds RECORDING, of the kept events, to the histories of its devices.  0 or
 * ML_ENOMEM. */
int follower_note_history(ml_follower *live, const ml_recording *recording);
/* A finished recording of the kept events, in a reader that the caller frees. */
int follower_finish(ml_follower *live, mlab_reader **out, ml_mlab_info *info);
/* Drops about half of the kept events. */
int follower_condense(ml_follower *live);
/* Drops the first COUNT events of DEVICE. */
void follower_forget(ml_follower *live, unsigned device, size_t count);
/* Reads on in the file, about EVENTS events; *MORE: there was more.  0 or ML_E*. */
int follower_read_on(ml_follower *live, uint64_t events, bool *more,
                     ml_read_error *error);
/* Events of all devices so far. */
uint64_t follower_events(const ml_follower *live);

#endif
