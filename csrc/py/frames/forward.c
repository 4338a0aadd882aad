/* Reads the traceback of a node's forward.  See forward.h. */
#include "frames/forward.h"

#include "frames/codes.h"
#include "stacks/stacks.h"

/* Some 200 entries of source lines. */
#define TRACEBACK_BYTES 32768
/* Of a longer one, the outermost entries have a quarter. */
#define OUTERMOST_BYTES (TRACEBACK_BYTES / 4)

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

/* Entries of a traceback, with a zero byte between them. */
typedef struct entries {
    char bytes[TRACEBACK_BYTES];
    size_t length;
} entries;

/* Appends TEXT, unless the entries would then have more than MOST bytes. */
static bool
put(entries *to, ml_slice text, size_t most)
{
    size_t between = to->length != 0 ? 1 : 0;
    if (to->length + between + text.length > most) {
        return false;
    }
    if (between != 0) {
        to->bytes[to->length++] = '\0';
    }
    memcpy(to->bytes + to->length, text.bytes, text.length);
    to->length += text.length;
    return true;
}

/* How many of the last of LIST's COUNT entries have at most MOST bytes together, with a zero
 * byte each. */
static Py_ssize_t
count_last(PyObject *list, Py_ssize_t count, size_t most)
{
    char buffer[ML_CODES_TEXT_BYTES];
    size_t used = 0;
    Py_ssize_t i = count;
    for (; i > 0; i--) {
        PyObject *entry = PyList_GET_ITEM(list, i - 1);
        size_t length =
            PyUnicode_Check(entry) ? ml_codes_unicode(entry, buffer).length + 1 : 0;
        if (used + length > most) {
            break;
        }
        used += length;
    }
    return count - i;
}

/* Appends the entries of LIST from FROM up to before END; stops before MOST bytes would be
 * exceeded.  Returns where it stopped. */
static Py_ssize_t
put_range(entries *to, PyObject *list, Py_ssize_t from, Py_ssize_t end, size_t most)
{
    char buffer[ML_CODES_TEXT_BYTES];
    for (; from < end; from++) {
        PyObject *entry = PyList_GET_ITEM(list, from);
        if (PyUnicode_Check(entry) && !put(to, ml_codes_unicode(entry, buffer), most)) {
            break;
        }
    }
    return from;
}

uint32_t
ml_forward_traceback(void *context, const void *anomaly)
{
    entries all;
    all.length = 0;
    PyObject *list = find_traceback((PyObject *)anomaly);
    Py_ssize_t count = list != NULL ? PyList_GET_SIZE(list) : 0;
    Py_ssize_t innermost = count - count_last(list, count, TRACEBACK_BYTES);
    if (innermost != 0) {
        char text[ML_LEFT_OUT_BYTES];
        char *end = text + sizeof(text);
        Py_ssize_t outer = put_range(&all, list, 0, innermost, OUTERMOST_BYTES);
        /* A zero byte before the text, and one behind it. */
        size_t room = TRACEBACK_BYTES - all.length - sizeof(text) - 2;
        innermost = count - count_last(list, count, room);
        char *said = ml_left_out_text((uint64_t)(innermost - outer), end);
        put(&all, (ml_slice){said, (size_t)(end - said)}, TRACEBACK_BYTES);
    }
    put_range(&all, list, innermost, count, TRACEBACK_BYTES);
    return ml_stacks_string(context, all.bytes, all.length);
}
