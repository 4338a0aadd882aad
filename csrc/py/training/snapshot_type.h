/* memlab._core.MemorySnapshot: a recording in progress, as a Python object.
 *
 * Owns one window of the recorder. */
#ifndef ML_PY_SNAPSHOT_TYPE_H
#define ML_PY_SNAPSHOT_TYPE_H

#include <stdbool.h>

#include "core/record/recorder.h"
#include "state.h"

/* A window and its number of users: its object, and calls in progress that may run
 * without the GIL.  So another thread's stop() never frees it during a call. */
typedef struct ml_shared_window {
    ml_window *window; /* owned; its last user ends it */
    unsigned users;    /* guarded by the GIL */
} ml_shared_window;

/* A use of the window of SELF, an instance of the type; the caller drops it.  NULL: not
 * recording. */
ml_shared_window *ml_snapshot_share(PyObject *self);
/* Accepts NULL.  Needs the GIL, and releases it while a recording ends. */
void ml_shared_window_drop(ml_shared_window *shared);

/* Whether it records the cpu source. */
bool ml_snapshot_is_cpu(PyObject *self);

#endif
