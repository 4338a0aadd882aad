/* Makes files of foreign origin Python objects: a walk over a checked value tree. */
#include "files/load.h"

#include "core/base/base.h"
#include "core/file/snapshot/unpickle.h"
#include "core/memlab.h"

PyObject *
ml_py_raise_read(const ml_read_error *error, PyObject *error_class)
{
    if (error->code == ML_ENOMEM) {
        return PyErr_NoMemory();
    }
    PyErr_SetString(error_class, error->text);
    return NULL;
}

/* MADE, owned, has the object of each shared node so far, by node id. */
static PyObject *make(PyObject **made, ml_value value);

static PyObject *
make_dict(PyObject **made, const ml_array *array)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict != NULL && i < array->count; i += 2) {
        /* The hash of a tuple of shared tuples could take exponential time. */
        if (ml_kind_is_array(ml_value_kind(array->items[i]))) {
            PyErr_SetNone(PyExc_TypeError);
            Py_CLEAR(dict);
            break;
        }
        PyObject *key = make(made, array->items[i]);
        PyObject *value = key != NULL ? make(made, array->items[i + 1]) : NULL;
        if (value == NULL || PyDict_SetItem(dict, key, value) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *
make_list(PyObject **made, const ml_array *array)
{
    PyObject *list = PyList_New(array->count);
    for (uint32_t i = 0; list != NULL && i < array->count; i++) {
        PyObject *item = make(made, array->items[i]);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *
make_tuple(PyObject **made, const ml_array *array)
{
    PyObject *tuple = PyTuple_New(array->count);
    for (uint32_t i = 0; tuple != NULL && i < array->count; i++) {
        PyObject *item = make(made, array->items[i]);
        if (item == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
make_huge(const char *bytes, Py_ssize_t length)
{
    PyObject *from_bytes =
        PyObject_GetAttrString((PyObject *)&PyLong_Type, "from_bytes");
    PyObject *arguments =
        Py_BuildValue("(Ns)", PyBytes_FromStringAndSize(bytes, length), "little");
    PyObject *options = Py_BuildValue("{s:O}", "signed", Py_True);
    PyObject *integer = NULL;
    if (from_bytes != NULL && arguments != NULL && options != NULL) {
        integer = PyObject_Call(from_bytes, arguments, options);
    }
    Py_XDECREF(from_bytes);
    Py_XDECREF(arguments);
    Py_XDECREF(options);
    return integer;
}

static PyObject *
make_text(const ml_text *text)
{
    Py_ssize_t length = (Py_ssize_t)text->length;
    switch ((enum ml_value_kind)text->node.kind) {
    case ML_VALUE_BYTES:
        return PyBytes_FromStringAndSize(text->bytes, length);
    case ML_VALUE_HUGE:
        return make_huge(text->bytes, length);
    default:
        break;
    }
    PyObject *string = PyUnicode_DecodeUTF8(text->bytes, length, "surrogatepass");
    if (string == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        string = PyUnicode_DecodeUTF8(text->bytes, length, "backslashreplace");
    }
    return string;
}

/* Recursion is safe: ml_tree_check has limited the depth and excluded cycles. */
static PyObject *
make_shared(PyObject **made, ml_value value, enum ml_value_kind kind)
{
    PyObject **slot = &made[ml_value_node(value)->id];
    if (*slot == NULL) {
        if (!ml_kind_is_array(kind)) {
            *slot = make_text(ml_value_as_text(value));
        }
        else if (kind == ML_VALUE_LIST) {
            *slot = make_list(made, ml_value_as_array(value));
        }
        else if (kind == ML_VALUE_TUPLE) {
            *slot = make_tuple(made, ml_value_as_array(value));
        }
        else {
            *slot = make_dict(made, ml_value_as_array(value));
        }
    }
    Py_XINCREF(*slot);
    return *slot;
}

static PyObject *
make(PyObject **made, ml_value value)
{
    enum ml_value_kind kind = ml_value_kind(value);
    switch (kind) {
    case ML_VALUE_NONE:
        Py_RETURN_NONE;
    case ML_VALUE_BOOL:
        return PyBool_FromLong(value.bits == ML_VALUE_OF_TRUE.bits);
    case ML_VALUE_INT:
        return PyLong_FromLongLong(ml_value_as_int(value));
    case ML_VALUE_UNSIGNED:
        return PyLong_FromUnsignedLongLong(ml_value_as_scalar(value)->as.natural);
    case ML_VALUE_REAL:
        return PyFloat_FromDouble(ml_value_as_scalar(value)->as.real);
    default:
        return make_shared(made, value, kind);
    }
}

static PyObject *
make_root(const ml_tree *tree)
{
    PyObject **made = ml_alloc_zeroed(tree->node_count, sizeof(PyObject *));
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    /* No object here is garbage yet, and the collector would visit all of them
     * repeatedly. */
    int collecting = PyGC_Disable();
    PyObject *root = make(made, tree->root);
    for (size_t i = 0; i < tree->node_count; i++) {
        Py_XDECREF(made[i]);
    }
    if (collecting) {
        PyGC_Enable();
    }
    ml_free(made);
    return root;
}

PyObject *
ml_py_load(PyObject *bytes_like, PyObject *error_class)
{
    Py_buffer view;
    if (PyObject_GetBuffer(bytes_like, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *root;
    ml_tree tree;
    ml_read_error error;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_unpickle(view.buf, (size_t)view.len, &tree, &error);
    Py_END_ALLOW_THREADS
    if (result == 0) {
        root = make_root(&tree);
        ml_tree_fini(&tree);
        if (root == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_SetString(error_class, "a key that is neither text nor number");
        }
    }
    else {
        root = ml_py_raise_read(&error, error_class);
    }
    PyBuffer_Release(&view);
    return root;
}
