/* Reading a snapshot: from the bytes of a file to a recording.
 *
 * It accepts the dictionary of torch.cuda.memory._snapshot() from torch 2.0 on, the
 * list of torch.cuda.memory_snapshot(), and our own extra key.  It checks every value
 * before use. */
#ifndef ML_SNAPSHOT_READER_H
#define ML_SNAPSHOT_READER_H

#include "file/snapshot/value.h"
#include "recording/recording.h"

/* Reads the pickle at the start of BYTES.  Unknown keys are ignored, unknown actions
 * become ML_ACTION_OTHER.  The recording passes ml_recording_validate, shares nothing
 * with BYTES, and is always marked foreign.  Memory stays in proportion to LENGTH and
 * time is linear (but for sorting segments).  0, or ML_EFORMAT, ML_EUNSAFE, ML_ELIMIT,
 * ML_ENOMEM with *ERROR filled in. */
int ml_snapshot_read(const void *bytes, size_t length, ml_recording **out,
                     ml_read_error *error);

#endif
