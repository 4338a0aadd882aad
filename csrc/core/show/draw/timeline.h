/* A timeline: a device's allocated bytes by category over time, in few columns of equal
 * time.
 *
 * Owns the instant that represents a column: the one with the most allocated bytes.  So
 * no peak is lost, however many events there are. */
#ifndef ML_TIMELINE_H
#define ML_TIMELINE_H

#include "recording/recording.h"

typedef struct ml_timeline_column {
    uint64_t time;      /* unix ns of the instant */
    uint64_t allocated; /* bytes at that instant; the sum of the categories */
    uint64_t reserved;  /* bytes, the most in the column */
    uint64_t of[ML_CATEGORY_COUNT];
} ml_timeline_column;

typedef struct ml_timeline {
    uint64_t start;              /* unix ns of the first event; 0 without any */
    uint64_t column_ns;          /* of each column */
    uint64_t span_ns;            /* from the first event to the last */
    ml_timeline_column *columns; /* owned; at least one */
    size_t column_count;
    size_t peak;           /* the first column with the most allocated bytes */
    uint64_t max_reserved; /* bytes, of all columns */
    uint64_t misfits;      /* events that contradict the known memory */
} ml_timeline;

/* At most MOST columns (not 0), and no more than nanoseconds.  Memory from before the
 * first event counts from that event's time.  An event earlier than its predecessor
 * gets the predecessor's time.  0, ML_EINVALID for a DEVICE that the recording lacks,
 * or ML_ENOMEM. */
int ml_timeline_new(const ml_recording *recording, size_t device, size_t most,
                    ml_timeline **out);
void ml_timeline_free(ml_timeline *timeline); /* takes NULL */

#endif
