/* A recording as JSON.
 *
 * Owns the file's form (docs/FORMAT.md): keys are the schema's; frames and stacks have
 * tables.  Output goes to a sink as it is made. */
#ifndef ML_RECORDING_JSON_H
#define ML_RECORDING_JSON_H

#include "base/sink.h"
#include "recording/recording.h"

/* Version 1 has no tables: every stack is written out at each use, in a thousand times
 * the room. */
#define ML_RECORDING_JSON_EXPAND 0x01u

/* OPTIONS of ML_JSON_*.  Memory use depends only on the longest name in RECORDING.  0,
 * ML_ENOMEM, or SINK's result. */
int ml_recording_json_write(const ml_recording *recording, unsigned options,
                            ml_sink sink, void *context);

#endif
