/* The key "memlab" of a snapshot: the data that memlab saved beyond torch's keys.
 *
 * Reads it back: losses, peaks, owners of tensors, modules of stacks, notes, lines of
 * code, and the columns of events that torch does not have.  Private to the snapshot
 * reader. */
#ifndef ML_SNAPSHOT_EXTRAS_H
#define ML_SNAPSHOT_EXTRAS_H

#include "file/snapshot/snapshot_tables.h"

/* Before any stack is read: gives the lists of frames that have modules their stacks.
 * 0, ML_ELIMIT or ML_ENOMEM, here and below. */
int ml_extras_read_modules(ml_snapshot_tables *tables, ml_value value);
/* Completes the recording of TABLES, whose devices and events are read already.  A
 * newer version of the key is ignored. */
int ml_extras_read(ml_snapshot_tables *tables, ml_value value);

#endif
