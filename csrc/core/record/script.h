/* A scripted source: it delivers a test's events as an allocator would.
 *
 * Owns a lock for each device, as torch's allocator does, and a ledger of the script's
 * memory.  With it everything behind the seam is tested without torch or a GPU. */
#ifndef ML_SCRIPT_H
#define ML_SCRIPT_H

#include "memlab.h"

#define ML_SCRIPT_DEVICES 4

/* Registers the source named "script" with REGISTER_SOURCE; idempotent.  Events go to
 * RECORD.  0 or ML_E*. */
int ml_script_register(int (*register_source)(ml_source *source),
                       uint32_t (*record)(const ml_source *source, int device,
                                          ml_event *event, const ml_event_text *text));
/* Delivers one event, with its device's lock held.  A faulty event (a free of an
 * address that was never allocated) is delivered all the same.  0 or ML_EINVALID. */
int ml_script_emit(int device, const ml_event *event, const ml_event_text *text);
/* Forgets all memory; RULES for what follows, NULL for the default ones. */
int ml_script_reset(const ml_allocator_rules *rules);

#endif
