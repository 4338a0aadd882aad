/* Tables of a recording as Python's buffers: a method of memlab._core.Recording.
 *
 * Owns its arguments; which tables and columns there are is recording_tables.h's. */
#ifndef ML_PY_COLUMNS_H
#define ML_PY_COLUMNS_H

#include "core/recording/recording.h"
#include "state.h"

extern const char ml_columns_doc[];
/* New dict of memoryviews; NULL with ValueError, IndexError, memlab.Error, MemoryError. */
PyObject *ml_py_columns(ml_state *state, const ml_recording *recording, PyObject *args,
                        PyObject *kwargs);

/* By column, what its numbers stand for: new dict of tuples of str; NULL with MemoryError. */
PyObject *ml_columns_texts(void);

#endif
