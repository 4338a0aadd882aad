/* Writes a recording as a pickle for torch's tools and viewer.
 *
 * Protocol 4, with only the opcodes that torch's own viewer knows.  The keys and their
 * order are torch_schema.h's. */
#ifndef ML_PICKLE_WRITER_H
#define ML_PICKLE_WRITER_H

#include "base/sink.h"
#include "file/snapshot/torch_schema.h"
#include "recording/recording.h"

/* Adds the key "memlab": losses, peaks, owners of tensors, and for each event its flags
 * and block size.  Other readers ignore it. */
#define ML_PICKLE_EXTRAS ML_TORCH_SCHEMA_EXTRAS
/* Leaves out the events of an action; not with extras. */
#define ML_PICKLE_SKIP(action) ML_TORCH_SCHEMA_SKIP(action)

/* Needs memory for a fixed buffer and for the table of shared values: 4 bytes a string,
 * frame and stack, and a column of one byte an event with extras.
 * 0, ML_ENOMEM, ML_ELIMIT (over 2**32 shared values), or what SINK returned. */
int ml_pickle_write(const ml_recording *recording, unsigned options, ml_sink sink,
                    void *context);

#endif
