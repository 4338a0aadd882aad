/* The rows of a report: each tensor's memory once, under its object's name.
 *
 * Owns which tensors share a row.  Gradients and components belong to their tensor;
 * nested storages count once, for the first.  It keeps no tensor alive. */
#ifndef ML_PY_TENSOR_ROWS_H
#define ML_PY_TENSOR_ROWS_H

#include "objects/tensor_names.h"

typedef struct ml_rows ml_rows;

/* Tensors derive from TENSOR_TYPE, parameters from PARAMETER_TYPE.  Both are borrowed
 * and outlive the adding. */
ml_rows *ml_rows_new(const ml_tensors *tensors, PyTypeObject *tensor_type,
                     PyTypeObject *parameter_type);
void ml_rows_free(ml_rows *rows); /* takes NULL */

/* Makes room for COUNT tensors at once.  0, or -1 with an exception. */
int ml_rows_reserve(ml_rows *rows, size_t count);
/* Adds TENSOR with its gradient and components, unless already added.  OWNED: it gets a
 * row even if it is part of another.  The caller keeps it alive until the rows are
 * settled.  0, or -1 with an exception. */
int ml_rows_add(ml_rows *rows, PyObject *tensor, bool owned);
/* Whether TENSOR was added. */
bool ml_rows_has(const ml_rows *rows, PyObject *tensor);

/* Makes the rows in the order of adding; parts go to their tensor.  A tensor without a
 * name gets one from its type and *NUMBER, which is incremented.  0, or -1 with an
 * exception. */
int ml_rows_settle(ml_rows *rows, ml_names *names, unsigned long *number);

/* A list of dicts, documented in memlab/_answers/ as ReporterDevice; NULL with an
 * exception. */
PyObject *ml_rows_list(const ml_rows *rows);

/* An ml_claim for each row on the CUDA device DEVICE with memory of its own: its used
 * bytes.  As bytes; NULL with an exception. */
PyObject *ml_rows_claims(const ml_rows *rows, int device);

#endif
