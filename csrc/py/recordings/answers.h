/* Answers of a recording about a device: methods of memlab._core.Recording.
 *
 * Owns their arguments; dicts/ makes the answers. */
#ifndef ML_PY_ANSWERS_H
#define ML_PY_ANSWERS_H

#include "state.h"

#define ML_RECORDING_ANSWER_NAMES(XX) \
    XX(peak) \
    XX(replay) \
    XX(tune) \
    XX(explain) \
    XX(verdict) \
    XX(find_event)

#define XX(name) \
    extern const char ml_recording_##name##_doc[]; \
    PyObject *ml_recording_##name(PyObject *op, PyObject *args, PyObject *kwargs);
ML_RECORDING_ANSWER_NAMES(XX)
#undef XX
extern const char ml_recording_lines_doc[];
PyObject *ml_recording_lines(PyObject *op, PyObject *arg);
extern const char ml_recording_growth_doc[];
PyObject *ml_recording_growth(PyObject *op, PyObject *arg);
extern const char ml_recording_oom_doc[];
PyObject *ml_recording_oom(PyObject *op, PyObject *arg);

/* Their entries in the table of methods. */
#define ML_RECORDING_ANSWER(name) \
    {#name, (PyCFunction)(void (*)(void))ml_recording_##name, \
     METH_VARARGS | METH_KEYWORDS, ml_recording_##name##_doc},
#define ML_RECORDING_ANSWERS \
    ML_RECORDING_ANSWER_NAMES(ML_RECORDING_ANSWER){"lines", ml_recording_lines, \
                                                   METH_O, ml_recording_lines_doc}, \
        {"growth", ml_recording_growth, METH_O, ml_recording_growth_doc}, \
    { \
        "oom", ml_recording_oom, METH_O, ml_recording_oom_doc \
    }

#endif
