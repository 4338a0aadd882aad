/* Tables of a recording as Python buffers: a method of memlab._core.Recording.
 *
 * Owns its arguments; recording_tables.h owns the tables and columns. */
#ifndef ML_PY_COLUMNS_H
#define ML_PY_COLUMNS_H

#include "core/recording/recording.h"
#include "state.h"

extern const char ml_columns_doc[];
/* New dict of memoryviews; NULL with ValueError, IndexError, memlab.Error, MemoryError. */
PyObject *ml_py_columns(ml_state *state, const ml_recording *recording, PyObject *args,
                        PyObject *kwargs);

/* By column, the meaning of its numbers: new dict of tuples of str; NULL with
 * MemoryError. */
PyObject *ml_columns_texts(void);

#endif
