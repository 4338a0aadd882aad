/* Notes in a Perfetto trace.
 *
 * Owns which notes are slices and which are instants: steps of the process; phases,
 * regions and marks of its threads. */
#ifndef ML_PERFETTO_NOTES_H
#define ML_PERFETTO_NOTES_H

#include "show/export/perfetto_packets.h"

/* Writes the notes of PART, a process with number PID and track PROCESS.  0 or
 * ML_ENOMEM. */
int ml_perfetto_put_notes(ml_perfetto *trace, const ml_recording *part, uint32_t pid,
                          uint64_t process);

#endif
