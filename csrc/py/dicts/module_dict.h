/* The tree of modules and its rows as Python lists.
 *
 * Owns the keys in docs/REPORT.md; module_tree.h owns the figures. */
#ifndef ML_PY_MODULE_DICT_H
#define ML_PY_MODULE_DICT_H

#include "core/analysis/answers/peak.h"
#include "state.h"

/* Sets module_tree and module_rows of PEAK in DICT, at most MOST rows.  0, or -1 with
 * MemoryError. */
int ml_py_set_modules(PyObject *dict, const ml_recording *recording,
                      const ml_peak *peak, size_t most);

#endif
