/* The module state of memlab._core, and how core errors become Python's.
 *
 * Owns the list of objects that the module keeps; types reach it through their
 * module. */
#ifndef ML_PY_STATE_H
#define ML_PY_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/memlab.h"

/* setup.py says it in words. */
#ifdef Py_GIL_DISABLED
#error "memlab needs a CPython with the GIL; this one is free-threaded"
#endif

#if PY_VERSION_HEX < 0x030b0000
#define PyType_GetModuleByDef _PyType_GetModuleByDef
#endif

/* Every object that the module owns: one list for fields, traverse and clear. */
#define ML_STATE_OBJECTS(XX) \
    XX(error)          /* memlab.Error */ \
    XX(snapshot_error) /* memlab.SnapshotError */ \
    XX(courtesy_type) \
    XX(recording_type) \
    XX(snapshot_type) \
    XX(script_type) \
    XX(leaks_type) \
    XX(follower_type) \
    XX(line_profiler_type) \
    XX(mem_reporter_type) \
    XX(watched_modules) /* dict of named modules: address, weak reference */

typedef struct ml_state {
#define XX(name) PyObject *name;
    ML_STATE_OBJECTS(XX)
#undef XX
    struct ml_paths *paths; /* owned; NULL before the first look for names */
} ml_state;

/* By it a type finds its module; module.c says what the module has. */
extern struct PyModuleDef ml_core_module;

/* The state behind TYPE or one of its Python subclasses; never NULL for our types. */
ml_state *ml_state_of(PyTypeObject *type);

/* Raises ERROR (a negative ML_E*) with TEXT as the sentence; NULL for the error's own.
 * Always returns NULL. */
PyObject *ml_py_raise(ml_state *state, int error, const char *text);

/* Each makes its heap type in MODULE and returns a new reference, or NULL. */
PyObject *ml_recording_type_new(PyObject *module);
PyObject *ml_snapshot_type_new(PyObject *module);
PyObject *ml_script_type_new(PyObject *module);
PyObject *ml_leaks_type_new(PyObject *module);
PyObject *ml_follower_type_new(PyObject *module);
PyObject *ml_line_profiler_type_new(PyObject *module);
PyObject *ml_mem_reporter_type_new(PyObject *module);
/* The names of the figures of a line, a tuple of str; NULL with an exception. */
PyObject *ml_line_profiler_columns(void);

struct ml_recording;
/* Wraps RECORDING, which the object then owns (it is freed on failure too). */
PyObject *ml_recording_wrap(ml_state *state, struct ml_recording *recording);
/* The same, with what its file tells, a dict whose reference is taken too. */
PyObject *ml_recording_wrap_file(ml_state *state, struct ml_recording *recording,
                                 PyObject *about);

/* The recording behind OP, borrowed; NULL, without an exception, where it is none. */
const struct ml_recording *ml_recording_behind(ml_state *state, PyObject *op);

/* Sets DICT[KEY] to VALUE, whose reference is taken even on failure; NULL passes an
 * exception on.  0 or -1. */
int ml_py_set(PyObject *dict, const char *key, PyObject *value);

#endif
