/* The rows of a report: each tensor's memory once, by the name of the object it is of.
 *
 * Owns what is one row and what is another: gradients and components belong to their
 * tensor, storages that lie in one another count once, by the first.  It keeps no
 * tensor alive. */
#ifndef ML_PY_TENSOR_ROWS_H
#define ML_PY_TENSOR_ROWS_H

#include "objects/tensor_names.h"

typedef struct ml_rows ml_rows;

/* Tensors are what derives from TENSOR_TYPE, parameters what derives from PARAMETER_TYPE;
 * both are borrowed and outlive the adding. */
ml_rows *ml_rows_new(const ml_tensors *tensors, PyTypeObject *tensor_type,
                     PyTypeObject *parameter_type);
void ml_rows_free(ml_rows *rows); /* takes NULL */

/* Makes room for COUNT tensors at once.  0, or -1 with an exception. */
int ml_rows_reserve(ml_rows *rows, size_t count);
/* Adds TENSOR with its gradient and components, unless it is there.  OWNED: it is a row of
 * its own though it be part of another.  The caller keeps it alive until the rows are
 * settled.  0, or -1 with an exception. */
int ml_rows_add(ml_rows *rows, PyObject *tensor, bool owned);
/* Whether TENSOR was added. */
bool ml_rows_has(const ml_rows *rows, PyObject *tensor);

/* Makes the rows of all that was added, in that order: what is part of another tensor goes
 * to that one.  What has no name gets one from its type and *NUMBER, which counts on.
 * 0, or -1 with an exception. */
int ml_rows_settle(ml_rows *rows, ml_names *names, unsigned long *number);

/* A list of dicts, described in memlab/_answers/ as ReporterDevice; NULL with an
 * exception. */
PyObject *ml_rows_list(const ml_rows *rows);

/* An ml_claim of the used bytes of each row on the CUDA device DEVICE that has memory of its
 * own, as bytes; NULL with an exception. */
PyObject *ml_rows_claims(const ml_rows *rows, int device);

#endif
