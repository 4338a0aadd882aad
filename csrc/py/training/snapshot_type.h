/* memlab._core.MemorySnapshot: a recording under way, as a Python object.
 *
 * Owns one window of the recorder; callbacks, files and reports are others' work. */
#ifndef ML_PY_SNAPSHOT_TYPE_H
#define ML_PY_SNAPSHOT_TYPE_H

#include <stdbool.h>

#include "core/record/recorder.h"
#include "state.h"

/* A window and how many use it: its object, and calls under way that may run without
 * the GIL.  Another thread's stop() thus never takes it from under them. */
typedef struct ml_shared_window {
    ml_window *window; /* owned; ended by whoever drops it last */
    unsigned users;    /* guarded by the GIL */
} ml_shared_window;

/* Of an instance of the type: its window, to be dropped; NULL while it does not record. */
ml_shared_window *ml_snapshot_share(PyObject *self);
/* Takes NULL.  The GIL is held, and released while a recording ends. */
void ml_shared_window_drop(ml_shared_window *shared);

/* Whether it records the cpu source. */
bool ml_snapshot_is_cpu(PyObject *self);

#endif
