/* The module state of memlab._core, and the translation of core errors.
 *
 * Owns the list of objects that the module keeps; types reach it through their
 * module. */
#ifndef ML_PY_STATE_H
#define ML_PY_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "core/memlab.h"

/* setup.py says it in words. */
#ifdef Py_GIL_DISABLED
#error "memlab needs a CPython with the GIL; this one is free-threaded"
#endif

#if PY_VERSION_HEX < 0x030b0000
#define PyType_GetModuleByDef _PyType_GetModuleByDef
#endif

/* Every object that the module owns: one list for members, traverse and clear. */
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
    /* Tables of torch's bridge, each set once.  NULL: no bridge is loaded; for storages
     * also a torch without CUDA. */
    const struct ml_graph *graph;
    const struct ml_storages *storages;
    const struct ml_tensors *tensors;
    /* Owned; parameters kept by units, see shards.h.  NULL: no look at modules yet. */
    struct ml_addresses *shards;
    /* Told of each named module that dies; NULL: nobody. */
    void (*module_died)(PyObject *object);
    /* An optimizer has stepped since the first of the recordings began that look during
     * module calls. */
    bool optimizer_stepped;
    uint64_t phases;     /* begun so far */
    Py_ssize_t linemaps; /* files in torch's map of compiled lines at the last look */
} ml_state;

/* Types find their module by it; module.c fills it. */
extern struct PyModuleDef ml_core_module;

/* The state of TYPE or its Python subclass; never NULL for memlab's types. */
ml_state *ml_state_of(PyTypeObject *type);

/* Raises ERROR (a negative ML_E*) with the sentence TEXT; NULL: the error's own.
 * Always returns NULL. */
PyObject *ml_py_raise(ml_state *state, int error, const char *text);

/* The table NAME of SIZE bytes in CAPSULE, from the torch bridge; NULL with an exception
 * if it was built for another memlab. */
const void *ml_py_bridge_table(PyObject *module, PyObject *capsule, const char *name,
                               uint32_t size);

/* Each makes its heap type in MODULE and returns a new reference, or NULL. */
PyObject *ml_recording_type_new(PyObject *module);
PyObject *ml_snapshot_type_new(PyObject *module);
PyObject *ml_script_type_new(PyObject *module);
PyObject *ml_leaks_type_new(PyObject *module);
PyObject *ml_follower_type_new(PyObject *module);
PyObject *ml_line_profiler_type_new(PyObject *module);
PyObject *ml_mem_reporter_type_new(PyObject *module);
/* The names of a line's figures, a tuple of str; NULL with an exception. */
PyObject *ml_line_profiler_columns(void);

struct ml_recording;
/* Wraps RECORDING, which the object then owns (it is freed on failure too). */
PyObject *ml_recording_wrap(ml_state *state, struct ml_recording *recording);
/* The same with the file's facts, a dict whose reference is also taken. */
PyObject *ml_recording_wrap_file(ml_state *state, struct ml_recording *recording,
                                 PyObject *about);

/* The recording behind OP, borrowed; NULL, without an exception, if OP is none. */
const struct ml_recording *ml_recording_behind(ml_state *state, PyObject *op);

/* Sets DICT[KEY] to VALUE, whose reference is taken even on failure; NULL passes an
 * exception on.  0 or -1. */
int ml_py_set(PyObject *dict, const char *key, PyObject *value);
/* *VALUE, borrowed, becomes DICT[KEY], or NULL without one.  0 or -1. */
int ml_py_get(PyObject *dict, const char *key, PyObject **value);
/* DICT[KEY], borrowed; NULL where there is none or no memory to look: for what only helps.
 * Python's own function of this kind prints what it ignores, from CPython 3.13 on. */
PyObject *ml_py_seek(PyObject *dict, const char *key);

#endif
