/* A recording as a trace of Perfetto, which ui.perfetto.dev opens.
 *
 * Owns which tracks there are and what they show: of each device allocated, active and
 * reserved bytes as counters, out of memory, and the largest allocations as slices,
 * from allocation to free; of each process its steps, and of its threads phases,
 * regions and marks. */
#ifndef ML_PERFETTO_H
#define ML_PERFETTO_H

#include "file/snapshot/pickle_writer.h"
#include "recording/recording.h"

/* Allocations of a device that are shown one by one, the largest; the track says how many
 * others there are. */
#define ML_PERFETTO_ALLOCATIONS 20000u

/* Memory is in proportion to what is recorded, not to what is written.
 * 0, ML_ENOMEM, ML_ELIMIT for more events than can be numbered, or what SINK returned. */
int ml_perfetto_write(const ml_recording *recording, ml_sink sink, void *context);

#endif
