/* The key "memlab" of a snapshot: what we once saved beyond torch's keys.
 *
 * Owns reading back what the dialect's extras wrote: losses, peaks, owners of tensors,
 * flags and block sizes.  Private to the snapshot reader. */
#ifndef ML_SNAPSHOT_EXTRAS_H
#define ML_SNAPSHOT_EXTRAS_H

#include "snapshot_tables.h"

/* Completes the recording of TABLES, whose devices and events are read already.  A
 * newer version of the key is ignored.
 * 0, ML_EFORMAT with the trouble set, ML_ELIMIT or ML_ENOMEM. */
int ml_extras_read(ml_tables *tables, ml_value value);

#endif
