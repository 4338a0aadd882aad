/* The objects that Python's garbage collector knows.
 *
 * Owns the walk over the collector's lists, that of gc.freeze() included, which
 * gc.get_objects() leaves out.  It runs no Python code and changes nothing; what the
 * objects are for it must not know. */
#ifndef ML_PY_COLLECTOR_H
#define ML_PY_COLLECTOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The objects whose type is one of the COUNT TYPES, or derives from one; a new list that
 * keeps them alive, or NULL with an exception.  In the collector's order: the oldest
 * generation first where its lists can be walked, within each as far as collections left
 * objects as they were made.  With the GIL. */
PyObject *ml_collector_find(PyTypeObject *const *types, size_t count);

#endif
