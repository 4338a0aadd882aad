/* A recording in other forms: methods of memlab._core.Recording.
 *
 * Owns the methods that make other tools' files, tables and texts, or a recording of a
 * part.  The core makes the contents. */
#ifndef ML_PY_EXPORTS_H
#define ML_PY_EXPORTS_H

#include "dicts/columns.h"
#include "state.h"

#define ML_RECORDING_EXPORT_NAMES(XX) \
    XX(write_perfetto, METH_O) \
    XX(write_json, METH_VARARGS) \
    XX(stacks_folded, METH_O) \
    XX(stacks_speedscope, METH_O) \
    XX(flame_difference, METH_O) \
    XX(flame_folded_difference, METH_O) \
    XX(timeline_svg, METH_O) \
    XX(segsum, METH_NOARGS) \
    XX(trace_text, METH_NOARGS) \
    XX(excerpt, METH_O)

#define XX(name, flags) \
    extern const char ml_recording_##name##_doc[]; \
    PyObject *ml_recording_##name(PyObject *op, PyObject *arg);
ML_RECORDING_EXPORT_NAMES(XX)
#undef XX
PyObject *ml_recording_columns(PyObject *op, PyObject *args, PyObject *kwargs);

/* Their entries in the table of methods. */
#define ML_RECORDING_EXPORT(name, flags) \
    {#name, ml_recording_##name, flags, ml_recording_##name##_doc},
#define ML_RECORDING_EXPORTS \
    ML_RECORDING_EXPORT_NAMES(ML_RECORDING_EXPORT) \
    { \
        "columns", (PyCFunction)(void (*)(void))ml_recording_columns, \
            METH_VARARGS | METH_KEYWORDS, ml_columns_doc \
    }

#endif
