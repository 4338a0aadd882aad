/* Reads the tensors that a wrapper holds.  See tensor_attributes.h. */
#include "objects/tensor_attributes.h"

#include <stdbool.h>
#include <structmember.h>

typedef struct reading {
    PyTypeObject *tensor_type;
    ml_attribute *out;
    size_t count;
} reading;

static void
add_tensor(reading *r, PyObject *name, PyObject *value)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;

    if (text == NULL) {
        PyErr_Clear();
        return;
    }
    if (value == NULL || !PyType_IsSubtype(Py_TYPE(value), r->tensor_type)) {
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        if (r->out[i].tensor == value) {
            return;
        }
    }
    if (r->count < ML_ATTRIBUTES) {
        r->out[r->count++] = (ml_attribute){text, Py_NewRef(value)};
    }
}

/* The slots made by __slots__ of TYPE itself. */
static void
read_slots(reading *r, PyObject *wrapper, PyTypeObject *type)
{
    Py_ssize_t position = 0;
    PyObject *name, *value;

    while (PyDict_Next(type->tp_dict, &position, &name, &value)) {
        if (Py_IS_TYPE(value, &PyMemberDescr_Type)) {
            const PyMemberDef *member = ((PyMemberDescrObject *)value)->d_member;
            if (member->type == T_OBJECT_EX) {
                add_tensor(r, name, *(PyObject **)((char *)wrapper + member->offset));
            }
        }
    }
}

size_t
ml_attributes_read(PyObject *wrapper, PyTypeObject *tensor_type,
                   ml_attribute out[ML_ATTRIBUTES])
{
    reading r = {tensor_type, out, 0};
    PyObject *line = Py_TYPE(wrapper)->tp_mro;

    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(line); i++) {
        PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(line, i);
        if (type == tensor_type) {
            break;
        }
        if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
            read_slots(&r, wrapper, type);
        }
    }
    PyObject *attributes = PyObject_GenericGetDict(wrapper, NULL);
    Py_ssize_t position = 0;
    PyObject *name, *value;
    while (attributes != NULL && PyDict_Next(attributes, &position, &name, &value)) {
        add_tensor(&r, name, value);
    }
    Py_XDECREF(attributes);
    PyErr_Clear();
    return r.count;
}

void
ml_attributes_drop(ml_attribute *attributes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Py_DECREF(attributes[i].tensor);
    }
}
