/* The answer to "what was live at the peak" as a Python dict.
 *
 * Owns the keys in docs/REPORT.md; peak.h owns the figures. */
#ifndef ML_PY_PEAK_DICT_H
#define ML_PY_PEAK_DICT_H

#include "core/analysis/answers/peak.h"
#include "state.h"

/* The state after *POSITION events, or at the peak (NULL): new reference, or NULL with
 * MemoryError.  DEVICE must exist in RECORDING and have that many events.  ROWS: most
 * rows of modules, up to ML_MODULE_ROWS. */
PyObject *ml_py_peak(ml_state *state, const ml_recording *recording, int device,
                     const uint64_t *position, size_t rows);

/* Parts of it, for answers about other instants: new references; NULL with
 * MemoryError. */
PyObject *ml_py_totals(const ml_totals *totals);
PyObject *ml_py_peak_line(const ml_peak_line *line);
PyObject *ml_py_peak_lines(const ml_peak *peak);
PyObject *ml_py_peak_categories(const ml_peak *peak);
/* Bytes of the unknown category, by reason. */
PyObject *ml_py_peak_whys(const ml_peak *peak);
/* The program's position at TIME, unix ns: {"step", "phase"}, None if not reported. */
PyObject *ml_py_moment(const ml_recording *recording, uint64_t time);
PyObject *ml_py_frames(const ml_recording *recording, uint32_t stack);

#endif
