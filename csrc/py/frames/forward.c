/* Reads the traceback of a node's forward.  See forward.h. */
#include "frames/forward.h"

#include "frames/codes.h"

/* Some 200 entries of source lines. */
#define TRACEBACK_BYTES 32768

static const char key_text[] = "traceback_";

/* The list below torch's key. */
static PyObject *
find_traceback(PyObject *dict)
{
    Py_ssize_t position = 0;
    PyObject *key;
    PyObject *value;
    while (PyDict_CheckExact(dict) && PyDict_Next(dict, &position, &key, &value)) {
        if (PyUnicode_Check(key) && PyUnicode_IS_ASCII(key) &&
            PyUnicode_GET_LENGTH(key) == sizeof(key_text) - 1 &&
            memcmp(PyUnicode_DATA(key), key_text, sizeof(key_text) - 1) == 0) {
            return PyList_Check(value) ? value : NULL;
        }
    }
    return NULL;
}

uint32_t
ml_forward_traceback(void *context, const void *anomaly)
{
    char text[TRACEBACK_BYTES];
    char buffer[ML_CODES_TEXT_BYTES];
    char *end = text + sizeof(text);
    char *start = end;
    PyObject *list = find_traceback((PyObject *)anomaly);
    for (Py_ssize_t i = list != NULL ? PyList_GET_SIZE(list) : 0; i-- > 0;) {
        PyObject *entry = PyList_GET_ITEM(list, i);
        if (!PyUnicode_Check(entry)) {
            continue;
        }
        ml_slice line = ml_codes_unicode(entry, buffer);
        size_t between = start != end ? 1 : 0;
        if (line.length + between > (size_t)(start - text)) {
            break;
        }
        start -= between;
        if (between != 0) {
            *start = '\0';
        }
        start -= line.length;
        memcpy(start, line.bytes, line.length);
    }
    return ml_stacks_string(context, start, (size_t)(end - start));
}
