/* Makes a recording a Python dictionary, with the schema's constructors on a stack of
 * values, as an unpickler works.
 *
 * While the builder reports failure, a Python exception is set. */
#include "dicts/snapshot_dict.h"

#include "core/base/base.h"
#include "core/file/snapshot/torch_schema.h"

/* Depth: snapshot, devices, device, segments, segment, blocks, block, frames, frame. */
#define NESTING 16

typedef struct level {
    enum ml_value_kind kind;
    size_t start; /* the stack's depth at its opening */
} level;

typedef struct maker {
    ml_builder builder; /* first, so that a builder's address is the maker's */
    const ml_recording *recording;
    PyObject **stack; /* owned, with its values */
    size_t depth;
    size_t stack_capacity;
    level levels[NESTING];
    size_t level_count;
    PyObject **shared[ML_SHARED_COUNT]; /* by id; owned references or NULL */
    PyObject **strings;                 /* by id; owned references or NULL */
    PyObject *words[ML_WORD_COUNT];
} maker;

static maker *
maker_of(ml_builder *builder)
{
    return (maker *)(void *)builder;
}

static void
fail(maker *m, int error)
{
    if (m->builder.error == 0) {
        m->builder.error = error;
    }
}

/* Takes the reference VALUE; NULL: an exception is set. */
static void
push(maker *m, PyObject *value)
{
    if (value == NULL || m->builder.error != 0) {
        Py_XDECREF(value);
        fail(m, ML_ENOMEM);
        return;
    }
    if (m->depth == m->stack_capacity &&
        ml_grow((void **)&m->stack, &m->stack_capacity, m->depth + 1,
                sizeof(PyObject *)) != 0) {
        Py_DECREF(value);
        PyErr_NoMemory();
        fail(m, ML_ENOMEM);
        return;
    }
    m->stack[m->depth++] = value;
}

static void
push_borrowed(maker *m, PyObject *value)
{
    Py_INCREF(value);
    push(m, value);
}

static void
open_container(ml_builder *builder, enum ml_value_kind kind)
{
    maker *m = maker_of(builder);
    m->levels[m->level_count++] = (level){kind, m->depth};
}

static PyObject *
make_dict(PyObject *const *items, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i += 2) {
        if (PyDict_SetItem(dict, items[i], items[i + 1]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
make_sequence(enum ml_value_kind kind, PyObject *const *items, size_t count)
{
    PyObject *made = kind == ML_VALUE_LIST ? PyList_New((Py_ssize_t)count)
                                           : PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; made != NULL && i < count; i++) {
        Py_INCREF(items[i]);
        if (kind == ML_VALUE_LIST) {
            PyList_SET_ITEM(made, (Py_ssize_t)i, items[i]);
        }
        else {
            PyTuple_SET_ITEM(made, (Py_ssize_t)i, items[i]);
        }
    }
    return made;
}

static void
close_container(ml_builder *builder)
{
    maker *m = maker_of(builder);
    level inner = m->levels[--m->level_count];
    if (m->builder.error != 0) {
        return;
    }
    size_t count = m->depth - inner.start;
    PyObject *const *items = m->stack + inner.start;
    PyObject *made = inner.kind == ML_VALUE_DICT
                         ? make_dict(items, count)
                         : make_sequence(inner.kind, items, count);
    while (m->depth != inner.start) {
        Py_DECREF(m->stack[--m->depth]);
    }
    push(m, made);
}

static void
put_integer(ml_builder *builder, int64_t integer)
{
    push(maker_of(builder), PyLong_FromLongLong(integer));
}

static void
put_boolean(ml_builder *builder, bool truth)
{
    push(maker_of(builder), PyBool_FromLong(truth));
}

static void
put_real(ml_builder *builder, double real)
{
    push(maker_of(builder), PyFloat_FromDouble(real));
}

static PyObject *
make_text(const char *bytes, size_t length)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "surrogatepass");
}

static void
put_text(ml_builder *builder, const char *bytes, size_t length)
{
    push(maker_of(builder), make_text(bytes, length));
}

static void
put_word(ml_builder *builder, unsigned word)
{
    maker *m = maker_of(builder);
    if (m->words[word] == NULL) {
        m->words[word] = PyUnicode_InternFromString(ml_word_text(word));
    }
    if (m->words[word] == NULL) {
        fail(m, ML_ENOMEM);
        return;
    }
    push_borrowed(m, m->words[word]);
}

static void
put_string(ml_builder *builder, uint32_t id)
{
    maker *m = maker_of(builder);
    if (m->strings[id] == NULL) {
        const ml_string *string = &m->recording->strings[id];
        m->strings[id] = make_text(string->bytes, string->length);
    }
    if (m->strings[id] == NULL) {
        fail(m, ML_EFORMAT);
        return;
    }
    push_borrowed(m, m->strings[id]);
}

static bool
recall(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    maker *m = maker_of(builder);
    if (m->shared[kind][id] == NULL) {
        return false;
    }
    push_borrowed(m, m->shared[kind][id]);
    return true;
}

static void
keep(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    maker *m = maker_of(builder);
    if (m->builder.error == 0) {
        m->shared[kind][id] = m->stack[m->depth - 1];
        Py_INCREF(m->shared[kind][id]);
    }
}

static void
release(PyObject **objects, size_t count)
{
    for (size_t i = 0; objects != NULL && i < count; i++) {
        Py_XDECREF(objects[i]);
    }
    ml_free(objects);
}

static PyObject *
make_snapshot(maker *m, unsigned options)
{
    const ml_recording *recording = m->recording;
    m->strings = ml_alloc_zeroed(recording->string_count, sizeof(PyObject *));
    bool room = m->strings != NULL;
    for (unsigned kind = 0; kind < ML_SHARED_COUNT; kind++) {
        m->shared[kind] =
            ml_alloc_zeroed(ml_shared_ids(recording, kind), sizeof(PyObject *));
        room = room && m->shared[kind] != NULL;
    }
    if (!room) {
        return PyErr_NoMemory();
    }
    /* No object here is garbage yet, and the collector would visit all of them
     * repeatedly. */
    int collecting = PyGC_Disable();
    ml_torch_schema_build(recording, options, &m->builder);
    if (collecting) {
        PyGC_Enable();
    }
    if (m->builder.error != 0) {
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return m->stack[--m->depth];
}

PyObject *
ml_py_snapshot(const ml_recording *recording, unsigned options)
{
    maker m = {.recording = recording,
               .builder = {.open = open_container,
                           .close = close_container,
                           .integer = put_integer,
                           .boolean = put_boolean,
                           .real = put_real,
                           .word = put_word,
                           .string = put_string,
                           .text = put_text,
                           .recall = recall,
                           .keep = keep}};
    PyObject *snapshot = make_snapshot(&m, options);
    release(m.stack, m.depth);
    release(m.strings, recording->string_count);
    for (unsigned kind = 0; kind < ML_SHARED_COUNT; kind++) {
        release(m.shared[kind], ml_shared_ids(recording, kind));
    }
    for (size_t i = 0; i < ML_WORD_COUNT; i++) {
        Py_XDECREF(m.words[i]);
    }
    return snapshot;
}
