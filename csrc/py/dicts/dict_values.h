/* Values of the dicts that answers are given as.
 *
 * For the files that make such dicts; static, and of names without a prefix, as these files
 * consist of little else. */
#ifndef ML_PY_DICT_VALUES_H
#define ML_PY_DICT_VALUES_H

#include <string.h>

#include "core/recording/recording.h"
#include "state.h"

static inline PyObject *
number(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

/* Names from files may hold what is no UTF-8: shown, never refused. */
static inline PyObject *
text(ml_string string)
{
    return PyUnicode_DecodeUTF8(string.bytes, (Py_ssize_t)string.length,
                                "backslashreplace");
}

/* The same of bytes that end with a NUL. */
static inline PyObject *
text_at(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "backslashreplace");
}

/* Sets LIST to a list of COUNT items, each what the expression ITEM makes, in which INDEX is
 * its number; to NULL, with an exception set, where one cannot be made. */
#define FILL_LIST(list, index, count, item) \
    do { \
        (list) = PyList_New((Py_ssize_t)(count)); \
        for (size_t index = 0; (list) != NULL && index < (count); index++) { \
            PyObject *made = (item); \
            if (made != NULL) { \
                PyList_SET_ITEM((list), (Py_ssize_t)index, made); \
            } \
            else { \
                Py_CLEAR(list); \
            } \
        } \
    } while (0)

#endif
