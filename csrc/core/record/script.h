/* A scripted source: it delivers a test's events as an allocator would.
 *
 * Owns a lock for each device, as torch's allocator does, and a ledger of the script's
 * memory.  With it everything behind the seam is tested without torch or a GPU. */
#ifndef ML_SCRIPT_H
#define ML_SCRIPT_H

#include "memlab.h"

#define ML_SCRIPT_DEVICES 4

/* Registers the source named "script"; idempotent.  0 or ML_E*. */
int ml_script_register(void);
/* Frees the source, which nobody uses any longer. */
void ml_script_fini(void);
/* Delivers one event, with its device's lock held.  A faulty event (a free of an
 * address that was never allocated) is delivered all the same.  0 or ML_EINVALID. */
int ml_script_emit(int device, const ml_event *event, const ml_event_text *text);
/* Forgets all memory; RULES for what follows, NULL for the default ones.  0, or ML_ESTATE
 * before the source is registered. */
int ml_script_reset(const ml_allocator_rules *rules);

#endif
