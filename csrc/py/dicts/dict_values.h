/* Values of the dicts that represent answers.
 *
 * For the files that make such dicts.  Functions are static and have no prefix, because
 * those files use little else. */
#ifndef ML_PY_DICT_VALUES_H
#define ML_PY_DICT_VALUES_H

#include <string.h>

#include "core/base/base.h"
#include "core/recording/recording.h"
#include "state.h"

static inline PyObject *
number(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

/* Names from files may be invalid UTF-8: they are shown, never refused. */
static inline PyObject *
text(ml_string string)
{
    return PyUnicode_DecodeUTF8(string.bytes, (Py_ssize_t)string.length,
                                "backslashreplace");
}

/* The same for NUL-terminated bytes. */
static inline PyObject *
text_at(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "backslashreplace");
}

/* What was written to BUFFER, which is taken down. */
static inline PyObject *
text_of(ml_buffer *buffer)
{
    PyObject *said = buffer->error == 0
                         ? text((ml_string){buffer->bytes, (uint32_t)buffer->length})
                         : PyErr_NoMemory();
    ml_buffer_fini(buffer);
    return said;
}

/* Sets file, line and function of DICT.  0 or -1. */
static inline int
set_place(PyObject *dict, ml_string file, int64_t line, ml_string function)
{
    if (ml_py_set(dict, "file", text(file)) < 0 ||
        ml_py_set(dict, "line", PyLong_FromLongLong(line)) < 0) {
        return -1;
    }
    return ml_py_set(dict, "function", text(function));
}

/* The same from FRAME; all are empty for frame 0. */
static inline int
set_frame(PyObject *dict, const ml_recording *recording, uint32_t frame)
{
    const ml_frame *f = &recording->frames[frame];
    return set_place(dict, recording->strings[f->filename], f->line,
                     recording->strings[f->name]);
}

/* Sets LIST to a list of COUNT items.  The expression ITEM makes one, whose number is
 * INDEX.  On failure LIST is NULL with an exception. */
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
