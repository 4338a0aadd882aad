/* Follows a .mlab file while it is written.  Each poll reads only the new bytes, and
 * gives a recording of the state at that time.
 *
 * Only the file is read; the writing process is not disturbed.  Memory is bounded:
 * beyond the limit the older half of the events is dropped.  The memory, its lines and
 * its modules stay exact; a block from before then keeps its category.
 *
 * It trusts nothing in the file, like mlab_reader.h.  One thread at a time. */
#ifndef ML_FOLLOWER_H
#define ML_FOLLOWER_H

#include "file/mlab/mlab_reader.h"

typedef struct ml_follower ml_follower;

/* Default for the fewest events kept, over all devices. */
#define ML_FOLLOWER_EVENTS ((size_t)1 << 19)

typedef struct ml_follower_news {
    bool more;           /* the file has more bytes than were read */
    bool cut;            /* it is shorter than before: the part read stays */
    uint64_t read_bytes; /* of the file, so far */
    uint64_t bytes;      /* of the file */
    uint64_t events;     /* read so far, of all devices */
    uint64_t gone;       /* of these, those dropped */
} ml_follower_news;

/* The most allocated bytes in each of several spans of equal time, since the first
 * event.  The newest span's may still grow. */
#define ML_FOLLOWER_COLUMNS 512u

typedef struct ml_follower_history {
    uint64_t start;     /* unix ns */
    uint64_t column_ns; /* 0: no event yet */
    size_t count;
    uint64_t most[ML_FOLLOWER_COLUMNS];
} ml_follower_history;

/* Opens the file at PATH and reads its header.  KEPT: the events kept before some are
 * dropped.  0; ML_EIO with errno; or ML_E* with *ERROR. */
int ml_follower_open(ml_follower **out, const char *path, size_t kept,
                     ml_read_error *error);
void ml_follower_close(ml_follower *live); /* takes NULL */
/* The open file, borrowed. */
int ml_follower_descriptor(const ml_follower *live);

/* Reads on, about EVENTS events.  0; ML_EIO with errno; or ML_E* with *ERROR, after
 * which there are no more answers. */
int ml_follower_poll(ml_follower *live, uint64_t events, ml_follower_news *news,
                     ml_read_error *error);

/* The recording of the bytes read so far, as ml_mlab_read would give it. */
int ml_follower_recording(ml_follower *live, ml_recording **out, ml_mlab_info *info,
                          ml_read_error *error);

/* The history up to the last recording; borrowed.  NULL if DEVICE is out of range. */
const ml_follower_history *ml_follower_get_history(const ml_follower *live,
                                                   unsigned device);

#endif
