/* Merges the recordings of several ranks into one.
 *
 * Equal texts, frames and stacks become one, and each (rank, device) becomes a device.
 * Each rank keeps its notes, rules and losses in its own part, so that answers about a
 * device are those of its own recording. align.h sets the times. */
#ifndef ML_MERGE_H
#define ML_MERGE_H

#include "recording/recording.h"

typedef struct ml_merge ml_merge;

/* 0 or ML_ENOMEM. */
int ml_merge_new(ml_merge **out);
/* Takes NULL. */
void ml_merge_free(ml_merge *merge);

/* Adds what RECORDING holds; all is copied.  FILE is its name for people, RANK its rank
 * where the recording does not say (-1: none).  One that was merged itself adds all of its
 * ranks, whose clocks are set anew.  Linear in its size.  0, ML_EINVALID where its source
 * is another than that of those before, ML_EFULL for more devices or ranks than a recording
 * may have, or ML_ENOMEM; MERGE can only be freed after an error. */
int ml_merge_add(ml_merge *merge, const ml_recording *recording, const char *file,
                 int rank);

/* The recording of all, ranks in their order and clocks aligned; MERGE is empty then and
 * can only be freed.  0, ML_EINVALID where nothing was added, or ML_ENOMEM. */
int ml_merge_finish(ml_merge *merge, ml_recording **out);

#endif
