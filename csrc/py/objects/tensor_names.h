/* What tensors are called, from one look at them to the next.
 *
 * Owns the names, each of one object: another one at its address has none.  A parameter
 * is told by a mark (torch/bridge.h), since a weak reference would keep torch from
 * swapping it, anything else by a weak reference. */
#ifndef ML_PY_TENSOR_NAMES_H
#define ML_PY_TENSOR_NAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "torch/bridge.h"

typedef struct ml_names ml_names;

/* Where a name comes from: the first that comes stays, but for a number. */
enum ml_name_source {
    ML_NAME_NUMBER, /* "Tensor0": there was no better one */
    ML_NAME_OWNER,  /* a module or an optimizer has it by that name */
};

ml_names *ml_names_new(const ml_tensors *tensors); /* NULL without memory */
void ml_names_free(ml_names *names);               /* takes NULL */

/* Begins a look: what no owner names during it loses the name that an owner gave, unless
 * OWNERS_GONE: then nobody is left to ask. */
void ml_names_begin(ml_names *names, bool owners_gone);
/* Forgets what this look did not come upon. */
void ml_names_end(ml_names *names);

/* Names TENSOR, if none is given in this look yet.  MARK: it may be a parameter.  0, or -1
 * with an exception. */
int ml_names_give(ml_names *names, PyObject *tensor, PyObject *name,
                  enum ml_name_source source, bool mark);
/* Calls TENSOR, which has no name, by its type and *NUMBER, which counts on: "Tensor0".
 * New reference, or NULL with an exception. */
PyObject *ml_names_number(ml_names *names, PyObject *tensor, bool mark,
                          unsigned long *number);
/* The name of TENSOR, borrowed, which this look has now come upon, and in *ORDER when it
 * got it; NULL: none. */
PyObject *ml_names_find(ml_names *names, PyObject *tensor, uint64_t *order);
/* What TENSOR is called for want of a better name, borrowed; NULL: nothing, or a name that
 * an owner gave.  Leaves looks as they are. */
PyObject *ml_names_find_number(const ml_names *names, PyObject *tensor);

#endif
