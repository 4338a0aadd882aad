/* The segments and blocks of a snapshot.
 *
 * Knows their part of the schema, from torch 2.0 on, and checks that they do not
 * overlap.  Private to the snapshot reader. */
#ifndef ML_SNAPSHOT_MEMORY_H
#define ML_SNAPSHOT_MEMORY_H

#include "file/snapshot/snapshot_fields.h"

/* Reads the segments without their blocks, and from them the number of devices. */
int ml_memory_read_segments(ml_reader *r, const ml_array *list);
/* Then, with the devices in place, completes them by address. */
int ml_memory_read_blocks(ml_reader *r);

#endif
