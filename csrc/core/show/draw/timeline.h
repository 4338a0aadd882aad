/* A timeline: the allocated bytes of a device by category over time, in few columns.
 *
 * Owns which instant stands for each column of equal time: of those in it, the one with
 * the most allocated bytes, so that no peak is lost however many events there are. */
#ifndef ML_TIMELINE_H
#define ML_TIMELINE_H

#include "recording/recording.h"

typedef struct ml_timeline_column {
    uint64_t time;      /* unix ns of its instant */
    uint64_t allocated; /* bytes, at that instant; the categories add up to it */
    uint64_t reserved;  /* bytes, the most in the column */
    uint64_t of[ML_CATEGORY_COUNT];
} ml_timeline_column;

typedef struct ml_timeline {
    uint64_t start;              /* unix ns of the first event; 0 without any */
    uint64_t column_ns;          /* that each column lasts */
    uint64_t span_ns;            /* from the first event to the last */
    ml_timeline_column *columns; /* owned; at least one */
    size_t column_count;
    size_t peak;           /* the first column with the most allocated bytes */
    uint64_t max_reserved; /* bytes, of all columns */
    uint64_t misfits;      /* events that did not fit the memory there was */
} ml_timeline;

/* At most MOST columns, which is not 0, and not more than there are nanoseconds.  What is
 * there before the first event counts as there at its time; an event that the file puts
 * before an earlier one, at that one's time.  0, ML_EINVALID for a DEVICE that the
 * recording does not have, or ML_ENOMEM. */
int ml_timeline_new(const ml_recording *recording, size_t device, size_t most,
                    ml_timeline **out);
void ml_timeline_free(ml_timeline *timeline); /* takes NULL */

#endif
