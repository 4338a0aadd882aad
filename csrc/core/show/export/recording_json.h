/* Writing a recording as JSON.
 *
 * Owns the form of the file (docs/FORMAT.md): the keys are the schema's, frames and
 * stacks stand in tables of their own.  What is written goes to a sink as it is
 * made. */
#ifndef ML_RECORDING_JSON_H
#define ML_RECORDING_JSON_H

#include "file/snapshot/pickle_writer.h"

/* Version 1, which has no tables: every stack is written out wherever it is referred
 * to, which takes a thousand times the room. */
#define ML_RECORDING_JSON_EXPAND 0x01u

/* OPTIONS of ML_JSON_*.  Memory does not depend on RECORDING, but for its longest name.
 * 0, ML_ENOMEM, or what SINK returned. */
int ml_recording_json_write(const ml_recording *recording, unsigned options,
                            ml_sink sink, void *context);

#endif
