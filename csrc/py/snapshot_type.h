/* memlab._core.MemorySnapshot: a recording under way, as a Python object.
 *
 * Owns one window of the recorder; callbacks, files and reports are others' work. */
#ifndef ML_PY_SNAPSHOT_TYPE_H
#define ML_PY_SNAPSHOT_TYPE_H

#include <stdbool.h>

#include "../core/recorder.h"
#include "state.h"

/* Of an instance of the type: its window, NULL while it does not record. Borrowed. */
ml_window *ml_snapshot_window(PyObject *self);
/* Whether it records the cpu source. */
bool ml_snapshot_is_cpu(PyObject *self);

#endif
