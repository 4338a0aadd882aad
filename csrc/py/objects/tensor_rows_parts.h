/* Internals of the rows of a report, shared by tensor_rows.c (which makes them) and
 * tensor_rows_dicts.c (which writes them). */
#ifndef ML_PY_TENSOR_ROWS_PARTS_H
#define ML_PY_TENSOR_ROWS_PARTS_H

#include "objects/addresses.h"
#include "objects/tensor_rows.h"

typedef struct ml_row_part {
    size_t subject;
    size_t path;  /* into text: ".grad" */
    size_t sizes; /* into sizes */
    size_t dims;
    /* the part whose memory contains it; its own number: no earlier one */
    size_t first;
    uint64_t impl;
    uint64_t addr;
    uint64_t bytes;
    uint64_t numel;
    PyObject *name; /* owned; NULL until it has a row */
    char device_type[16];
    int device_number;
    int device;
} ml_row_part;

typedef struct ml_row_subject {
    PyObject *tensor; /* borrowed; not to be used once settled */
    uint64_t root;    /* its TensorImpl */
    size_t first_part;
    size_t part_count;
    bool leaf;
    bool owned;
} ml_row_subject;

struct ml_rows {
    const ml_tensors *tensors;
    PyTypeObject *tensor_type;    /* borrowed */
    PyTypeObject *parameter_type; /* borrowed */
    ml_row_subject *subjects;     /* owned, as are all arrays here */
    size_t subject_count;
    size_t subject_capacity;
    ml_row_part *parts;
    size_t part_count;
    size_t part_capacity;
    char *text; /* zero-terminated paths */
    size_t text_bytes;
    size_t text_capacity;
    int64_t *sizes;
    size_t size_count;
    size_t size_capacity;
    ml_addresses known;   /* subjects by their object */
    ml_addresses claimed; /* TensorImpls that are parts of a subject, except its own */
    size_t *order;        /* parts that have a row */
    size_t row_count;
};

#endif
