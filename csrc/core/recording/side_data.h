/* The side data of a recording: settings, notes, owners, last uses.
 *
 * Decides which of them a recording accepts, and their order. */
#ifndef ML_SIDE_DATA_H
#define ML_SIDE_DATA_H

#include "recording/recording.h"

/* While building: each adds to a column with room for *CAPACITY items, growing it.  0
 * or ML_ENOMEM; or ML_EFORMAT, with nothing changed, for invalid data. */

/* Replaces an earlier setting of its key.  Up to 1,000 keys of known kinds. */
int ml_recording_add_setting(ml_recording *recording, size_t *capacity,
                             const ml_setting *setting);
/* In the order of time. */
int ml_recording_add_note(ml_recording *recording, size_t *capacity,
                          const ml_note *note);
/* In the order of positions, which are at most the events of TRACE. */
int ml_device_trace_add_tag(ml_device_trace *trace, size_t *capacity,
                            const ml_tag *tag);
/* By address, each once; positions as above. */
int ml_device_trace_add_use(ml_device_trace *trace, size_t *capacity,
                            const ml_use *use);

#endif
