/* Functions of memlab._core that release the process's CUDA context, take it again, and
 * read NVML meanwhile.
 *
 * checkpoint.h does the work, without the GIL. */
#ifndef ML_PY_CONTEXT_H
#define ML_PY_CONTEXT_H

#include "state.h"

extern const char ml_py_context_check_doc[];
PyObject *ml_py_context_check(PyObject *module, PyObject *unused);
extern const char ml_py_context_give_doc[];
PyObject *ml_py_context_give(PyObject *module, PyObject *limit);
extern const char ml_py_context_take_doc[];
PyObject *ml_py_context_take(PyObject *module, PyObject *unused);
extern const char ml_py_context_away_doc[];
PyObject *ml_py_context_away(PyObject *module, PyObject *unused);
extern const char ml_py_gpu_memory_doc[];
PyObject *ml_py_gpu_memory(PyObject *module, PyObject *args);
extern const char ml_py_gpu_name_doc[];
PyObject *ml_py_gpu_name(PyObject *module, PyObject *device);

#endif
