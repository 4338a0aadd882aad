/* The answer to "what did memory do while each line ran" as a Python dict.
 *
 * Owns the keys in docs/REPORT.md; stack_lines.h owns the figures. */
#ifndef ML_PY_STACK_LINES_DICT_H
#define ML_PY_STACK_LINES_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* New reference, or NULL with MemoryError.  DEVICE must exist in RECORDING. */
PyObject *ml_py_lines(ml_state *state, const ml_recording *recording, int device);

#endif
