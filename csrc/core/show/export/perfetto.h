/* A recording as a Perfetto trace, which ui.perfetto.dev opens.
 *
 * Owns the tracks and their contents.  A device has counters of allocated, active and
 * reserved bytes, its out of memory, and its largest allocations as slices.  A process
 * has its steps; its threads have phases, regions and marks. */
#ifndef ML_PERFETTO_H
#define ML_PERFETTO_H

#include "base/sink.h"
#include "recording/recording.h"

/* Allocations shown for each device, the largest; the track tells how many others there
 * are. */
#define ML_PERFETTO_ALLOCATIONS 20000u

/* Memory use depends on the recording, not on the output.  0, ML_ENOMEM, ML_ELIMIT for
 * too many events, or SINK's result. */
int ml_perfetto_write(const ml_recording *recording, ml_sink sink, void *context);

#endif
