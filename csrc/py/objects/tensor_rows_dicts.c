/* The rows of a report for Python.  See tensor_rows.h. */
#include "objects/tensor_rows_parts.h"

#include <string.h>

#include "core/analysis/answers/unheld.h"
#include "core/base/base.h"
#include "state.h"

#define BLOCK 512 /* bytes; the unit of the caching allocator's blocks */

static bool
is_own(const ml_rows *rows, const ml_row_part *p)
{
    return p->first == (size_t)(p - rows->parts);
}

static uint64_t
used_bytes(const ml_rows *rows, const ml_row_part *p)
{
    return is_own(rows, p) ? (p->bytes + BLOCK - 1) / BLOCK * BLOCK : 0;
}

static PyObject *
sizes_tuple(const ml_rows *rows, const ml_row_part *p)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)p->dims);
    for (size_t i = 0; i < p->dims && tuple != NULL; i++) {
        PyObject *size = PyLong_FromLongLong(rows->sizes[p->sizes + i]);
        if (size == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, size);
    }
    return tuple;
}

/* The keys of a row, made once for all rows. */
#define ROW_KEYS(XX) \
    XX(name) XX(sizes) XX(elements) XX(used_bytes) XX(storage_bytes) XX(shared_with)

enum row_key {
#define XX(key) KEY_##key,
    ROW_KEYS(XX)
#undef XX
    KEY_COUNT
};

/* False with an exception.  *FORM: an owned dict of all keys, whose copies need not
 * grow. */
static bool
make_keys(PyObject *keys[KEY_COUNT], PyObject **form)
{
    static const char *const texts[] = {
#define XX(key) #key,
        ROW_KEYS(XX)
#undef XX
    };
    *form = PyDict_New();
    bool made = *form != NULL;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        keys[i] = PyUnicode_InternFromString(texts[i]);
        made = made && keys[i] != NULL && PyDict_SetItem(*form, keys[i], Py_None) == 0;
        Py_XDECREF(keys[i]);
    }
    return made;
}

static PyObject *
row_dict(const ml_rows *rows, const ml_row_part *p, PyObject *const keys[KEY_COUNT],
         PyObject *form)
{
    PyObject *shared = is_own(rows, p) ? Py_None : rows->parts[p->first].name;
    PyObject *values[KEY_COUNT] = {
        [KEY_name] = Py_NewRef(p->name),
        [KEY_sizes] = sizes_tuple(rows, p),
        [KEY_elements] = PyLong_FromUnsignedLongLong(p->numel),
        [KEY_used_bytes] = PyLong_FromUnsignedLongLong(used_bytes(rows, p)),
        [KEY_storage_bytes] = PyLong_FromUnsignedLongLong(p->bytes),
        [KEY_shared_with] = Py_NewRef(shared),
    };
    PyObject *dict = PyDict_Copy(form);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (dict != NULL &&
            (values[i] == NULL || PyDict_SetItem(dict, keys[i], values[i]) < 0)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(values[i]);
    }
    return dict;
}

static bool
same_device(const ml_row_part *a, const ml_row_part *b)
{
    return a->device_number == b->device_number && a->device == b->device;
}

/* The rows of the same device as LIKE. */
static PyObject *
device_dict(const ml_rows *rows, const ml_row_part *like)
{
    PyObject *dict = PyDict_New(), *list = PyList_New(0);
    /* There is one of each. */
    bool single =
        strcmp(like->device_type, "cpu") == 0 || strcmp(like->device_type, "meta") == 0;
    uint64_t elements = 0, used = 0;
    PyObject *keys[KEY_COUNT], *form;

    if (!make_keys(keys, &form)) {
        Py_CLEAR(list);
    }
    for (size_t i = 0; i < rows->row_count && list != NULL; i++) {
        const ml_row_part *p = &rows->parts[rows->order[i]];
        if (!same_device(p, like)) {
            continue;
        }
        PyObject *row = row_dict(rows, p, keys, form);
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
        elements += p->numel;
        used += used_bytes(rows, p);
    }
    PyObject *name =
        single ? PyUnicode_FromString(like->device_type)
               : PyUnicode_FromFormat("%s:%d", like->device_type, like->device);
    if (dict == NULL || ml_py_set(dict, "device", name) < 0 ||
        ml_py_set(dict, "elements", PyLong_FromUnsignedLongLong(elements)) < 0 ||
        ml_py_set(dict, "used_bytes", PyLong_FromUnsignedLongLong(used)) < 0 ||
        list == NULL || ml_py_set(dict, "rows", Py_NewRef(list)) < 0) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(list);
    Py_XDECREF(form);
    return dict;
}

/* The part with the next device after that of LAST; NULL: there is none. */
static const ml_row_part *
next_device(const ml_rows *rows, const ml_row_part *last)
{
    const ml_row_part *next = NULL;

    for (size_t i = 0; i < rows->row_count; i++) {
        const ml_row_part *p = &rows->parts[rows->order[i]];
        bool after =
            last == NULL || p->device_number > last->device_number ||
            (p->device_number == last->device_number && p->device > last->device);
        bool before =
            next == NULL || p->device_number < next->device_number ||
            (p->device_number == next->device_number && p->device < next->device);
        if (after && before) {
            next = p;
        }
    }
    return next;
}

PyObject *
ml_rows_list(const ml_rows *rows)
{
    PyObject *list = PyList_New(0);

    for (const ml_row_part *p = next_device(rows, NULL); p != NULL && list != NULL;
         p = next_device(rows, p)) {
        PyObject *dict = device_dict(rows, p);
        if (dict == NULL || PyList_Append(list, dict) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(dict);
    }
    return list;
}

PyObject *
ml_rows_claims(const ml_rows *rows, int device)
{
    ml_claim *claims = ml_alloc((rows->row_count + 1) * sizeof(*claims));
    size_t count = 0;

    if (claims == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < rows->row_count; i++) {
        const ml_row_part *p = &rows->parts[rows->order[i]];
        if (p->bytes > 0 && is_own(rows, p) && p->device == device &&
            strcmp(p->device_type, "cuda") == 0) {
            claims[count++] = (ml_claim){p->addr, used_bytes(rows, p)};
        }
    }
    PyObject *packed = PyBytes_FromStringAndSize((char *)claims,
                                                 (Py_ssize_t)(count * sizeof(*claims)));
    ml_free(claims);
    return packed;
}
