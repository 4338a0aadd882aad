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

/* Adds a copy of RECORDING.  FILE is its name for people; RANK its rank if the
 * recording does not tell (-1: none).  A merged recording adds all of its ranks, whose
 * clocks are aligned anew.  Linear in its size.  0, ML_EINVALID if its source differs
 * from earlier ones, ML_EFULL for too many devices or ranks, or ML_ENOMEM; after an
 * error MERGE can only be freed. */
int ml_merge_add(ml_merge *merge, const ml_recording *recording, const char *file,
                 int rank);

/* The merged recording, with ranks in order and clocks aligned; MERGE is then empty and
 * can only be freed.  0, ML_EINVALID if nothing was added, or ML_ENOMEM. */
int ml_merge_finish(ml_merge *merge, ml_recording **out);

#endif
