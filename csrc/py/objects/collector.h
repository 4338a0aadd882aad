/* The objects known to Python's garbage collector.
 *
 * Owns the walk over the collector's lists, including that of gc.freeze(), which
 * gc.get_objects() leaves out.  It runs no Python code and changes nothing. */
#ifndef ML_PY_COLLECTOR_H
#define ML_PY_COLLECTOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A new list of the objects whose type is, or derives from, one of the COUNT TYPES; it
 * keeps them alive.  NULL with an exception.  If the lists can be walked, the oldest
 * generation comes first; within one, mostly in the order of making.  With the GIL. */
PyObject *ml_collector_find(PyTypeObject *const *types, size_t count);

#endif
