/* A test's own recorder behind the seam of memlab.h: it offers the bridge an ml_api, keeps
 * every event as it came, and lets Python call each function of a registered source. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "memlab.h"

#define EVENT_CAPACITY (1u << 20)
#define METADATA_CAPACITY 32

typedef struct kept_event {
    const ml_source *source;
    int device;
    ml_event event;
    char metadata[METADATA_CAPACITY];
    const char *node;
} kept_event;

static const ml_source *sources[8];
static size_t source_count;
static kept_event *kept;
static atomic_size_t kept_count;

static const char *const action_names[] = {
#define XX(name, number, text) [number] = text,
    ML_ACTIONS(XX)
#undef XX
};

static int
register_source(ml_source *source)
{
    if (source_count == sizeof(sources) / sizeof(*sources)) {
        return ML_EFULL;
    }
    sources[source_count++] = source;
    return 0;
}

/* The stack id of an event is its number from 1, so that a test can tell which. */
static uint32_t
record(const ml_source *source, int device, ml_event *event, const ml_event_text *text)
{
    size_t index = atomic_fetch_add(&kept_count, 1);
    if (index >= EVENT_CAPACITY) {
        return 0;
    }
    kept_event *to = &kept[index];
    to->source = source;
    to->device = device;
    to->event = *event;
    size_t metadata_bytes = text != NULL ? text->metadata_bytes : 0;
    if (metadata_bytes > METADATA_CAPACITY - 1) {
        metadata_bytes = METADATA_CAPACITY - 1;
    }
    if (metadata_bytes > 0) {
        memcpy(to->metadata, text->metadata, metadata_bytes);
    }
    to->metadata[metadata_bytes] = '\0';
    to->node = text != NULL ? text->node : NULL;
    return (uint32_t)index + 1;
}

static int
enabled(const ml_source *source)
{
    (void)source;
    return 1;
}

static void
region(int end, uint64_t number, const char *name, size_t length)
{
    (void)end;
    (void)number;
    (void)name;
    (void)length;
}

static void
out_of_memory(const ml_source *source, int device, uint64_t asked, uint64_t free_bytes,
              uint64_t total, uint64_t allowed)
{
    (void)source;
    (void)device;
    (void)asked;
    (void)free_bytes;
    (void)total;
    (void)allowed;
}

static const ml_api api = {.size = sizeof(ml_api),
                           .version = ML_ABI_VERSION,
                           .register_source = register_source,
                           .record = record,
                           .enabled = enabled,
                           .out_of_memory = out_of_memory,
                           .region = region};

static const ml_source *
find(PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    for (size_t i = 0; text != NULL && i < source_count; i++) {
        if (strcmp(sources[i]->name, text) == 0) {
            return sources[i];
        }
    }
    if (text != NULL) {
        PyErr_SetObject(PyExc_KeyError, name);
    }
    return NULL;
}

/* (result, sentence), the sentence empty on success. */
static PyObject *
answer(const ml_source *source, int result)
{
    return Py_BuildValue("is", result, result < 0 ? source->error(source->self) : "");
}

static PyObject *
probe_attach(PyObject *module, PyObject *name)
{
    (void)module;
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = source->attach(source->self);
    Py_END_ALLOW_THREADS
    return answer(source, result);
}

static PyObject *
probe_enable(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *name;
    int on;
    if (!PyArg_ParseTuple(args, "Op", &name, &on)) {
        return NULL;
    }
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    source->enable(source->self, on);
    Py_RETURN_NONE;
}

static PyObject *
probe_device_count(PyObject *module, PyObject *name)
{
    (void)module;
    const ml_source *source = find(name);
    return source == NULL ? NULL : PyLong_FromLong(source->device_count(source->self));
}

static PyObject *
event_to_dict(size_t index)
{
    const kept_event *from = &kept[index];
    const ml_event *event = &from->event;
    return Py_BuildValue(
        "{sssisKsKsKsKsKsIsNs(II)sIsssKsHsz}", "action", action_names[event->action],
        "device", from->device, "addr", (unsigned long long)event->addr, "size",
        (unsigned long long)event->size, "ticks", (unsigned long long)event->time,
        "block_bytes", (unsigned long long)event->block_bytes, "stream",
        (unsigned long long)event->stream, "origin_stack", event->origin_stack, "stack",
        PyLong_FromSize_t(index + 1), "pool", event->pool[0], event->pool[1], "flags",
        (unsigned)event->flags, "metadata", from->metadata, "sequence",
        (unsigned long long)event->sequence, "autograd_thread", event->autograd_thread,
        "node", from->node);
}

static PyObject *
probe_events(PyObject *module, PyObject *name)
{
    (void)module;
    const ml_source *source = find(name);
    PyObject *list = source == NULL ? NULL : PyList_New(0);
    size_t count = atomic_load(&kept_count);
    if (list != NULL && count > EVENT_CAPACITY) {
        Py_DECREF(list);
        PyErr_SetString(PyExc_OverflowError, "more events than the probe can keep");
        return NULL;
    }
    for (size_t i = 0; list != NULL && i < count; i++) {
        if (kept[i].source != source) {
            continue;
        }
        PyObject *event = event_to_dict(i);
        if (event == NULL || PyList_Append(list, event) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(event);
    }
    return list;
}

static PyObject *
probe_clear(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    atomic_store(&kept_count, 0);
    Py_RETURN_NONE;
}

/* What a walk visits: four lists and a dict. */
typedef struct walk {
    PyObject *segments;
    PyObject *blocks;
    PyObject *settings;
    PyObject *annotations;
} walk;

static int
append(PyObject *list, PyObject *item)
{
    int result = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return result < 0 ? ML_ENOMEM : 0;
}

static int
visit_segment(void *context, int device, const ml_segment *from)
{
    return append(((walk *)context)->segments,
                  Py_BuildValue("{sisKsKsKsKsKsKs(KK)sIsOsOsksk}", "device", device,
                                "address", (unsigned long long)from->addr, "total_size",
                                (unsigned long long)from->total, "allocated_size",
                                (unsigned long long)from->allocated, "active_size",
                                (unsigned long long)from->active, "requested_size",
                                (unsigned long long)from->requested, "stream",
                                (unsigned long long)from->stream, "segment_pool_id",
                                (unsigned long long)from->pool[0],
                                (unsigned long long)from->pool[1], "stack", from->stack,
                                "small", from->small ? Py_True : Py_False,
                                "is_expandable", from->expandable ? Py_True : Py_False,
                                "first_block", (unsigned long)from->first_block,
                                "block_count", (unsigned long)from->block_count));
}

static int
visit_block(void *context, int device, const ml_block *from)
{
    static const char *const states[] = {"inactive", "active_allocated",
                                         "active_pending_free"};
    return append(((walk *)context)->blocks,
                  Py_BuildValue("{sisKsKsKsIss}", "device", device, "address",
                                (unsigned long long)from->addr, "size",
                                (unsigned long long)from->size, "requested_size",
                                (unsigned long long)from->requested, "stack",
                                from->stack, "state", states[from->state]));
}

static PyObject *
divisions_to_dict(const uint64_t *divisions)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < 16; i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", 1 << i);
        PyObject *value = PyLong_FromUnsignedLongLong(divisions[i]);
        if (value == NULL || PyDict_SetItemString(dict, key, value) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

static int
visit_setting(void *context, const char *key, char kind, int64_t integer, double real,
              const char *text, const uint64_t *divisions)
{
    PyObject *value = kind == 'b'   ? PyBool_FromLong(integer != 0)
                      : kind == 'i' ? PyLong_FromLongLong(integer)
                      : kind == 'f' ? PyFloat_FromDouble(real)
                      : kind == 's' ? PyUnicode_FromString(text)
                                    : divisions_to_dict(divisions);
    int result = value == NULL
                     ? -1
                     : PyDict_SetItemString(((walk *)context)->settings, key, value);
    Py_XDECREF(value);
    return result < 0 ? ML_ENOMEM : 0;
}

static int
visit_annotation(void *context, const char *stage, const char *name, int device,
                 uint64_t ticks)
{
    return append(((walk *)context)->annotations,
                  Py_BuildValue("{sssssisK}", "stage", stage, "name", name, "device",
                                device, "ticks", (unsigned long long)ticks));
}

/* (result, sentence, segments, blocks, settings, annotations) */
static PyObject *
probe_walk(PyObject *module, PyObject *name)
{
    (void)module;
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    walk to = {PyList_New(0), PyList_New(0), PyDict_New(), PyList_New(0)};
    const ml_walk_visitor visitor = {&to, visit_segment, visit_block, visit_setting,
                                     visit_annotation};
    int result = source->walk(source->self, &visitor);
    return Py_BuildValue("isNNNN", result,
                         result < 0 ? source->error(source->self) : "", to.segments,
                         to.blocks, to.settings, to.annotations);
}

/* (result, sentence) of a walk whose visitor stops with CODE at the first segment. */
static int
stop(void *context, int device, const ml_segment *segment)
{
    (void)device;
    (void)segment;
    return *(int *)context;
}

static PyObject *
probe_stopped_walk(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *name;
    int code;
    if (!PyArg_ParseTuple(args, "Oi", &name, &code)) {
        return NULL;
    }
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    const ml_walk_visitor visitor = {&code, stop, NULL, NULL, NULL};
    return PyLong_FromLong(source->walk(source->self, &visitor));
}

/* (result, max_split_bytes, expandable_segments, has_segments, divisions) */
static PyObject *
probe_rules(PyObject *module, PyObject *name)
{
    (void)module;
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    ml_allocator_rules rules = {0};
    int result = source->rules(source->self, 0, &rules);
    PyObject *divisions = PyList_New(0);
    for (int i = 0; divisions != NULL && i < 16; i++) {
        if (append(divisions, PyLong_FromUnsignedLong(rules.roundup_divisions[i])) <
            0) {
            Py_CLEAR(divisions);
        }
    }
    return Py_BuildValue("iKOON", result, (unsigned long long)rules.max_split_bytes,
                         rules.expandable_segments ? Py_True : Py_False,
                         rules.has_segments ? Py_True : Py_False, divisions);
}

static PyObject *
totals_to_dict(const ml_totals *totals)
{
    PyObject *dict = PyDict_New();
#define XX(name) \
    if (dict != NULL) { \
        PyObject *value = PyLong_FromUnsignedLongLong(totals->name); \
        if (value == NULL || PyDict_SetItemString(dict, #name, value) < 0) { \
            Py_CLEAR(dict); \
        } \
        Py_XDECREF(value); \
    }
    ML_TOTALS(XX)
#undef XX
    return dict;
}

/* (result, sentence, current, peak) */
static PyObject *
probe_totals(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *name;
    int device = 0;
    if (!PyArg_ParseTuple(args, "O|i", &name, &device)) {
        return NULL;
    }
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    ml_totals current = {0}, peak = {0};
    int result = source->totals(source->self, device, &current, &peak);
    return Py_BuildValue("isNN", result, result < 0 ? source->error(source->self) : "",
                         totals_to_dict(&current), totals_to_dict(&peak));
}

/* A list of ticks as a list of unix nanoseconds. */
static PyObject *
probe_unix_ns(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *name, *list;
    if (!PyArg_ParseTuple(args, "OO!", &name, &PyList_Type, &list)) {
        return NULL;
    }
    const ml_source *source = find(name);
    if (source == NULL) {
        return NULL;
    }
    /* Strided, as in an array of events. */
    size_t count = (size_t)PyList_GET_SIZE(list);
    ml_event *events = calloc(count + 1, sizeof(*events));
    if (events == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < count; i++) {
        events[i].time =
            PyLong_AsUnsignedLongLong(PyList_GET_ITEM(list, (Py_ssize_t)i));
    }
    int result = source->unix_ns(source->self, &events[0].time, sizeof(*events), count);
    PyObject *out = PyList_New(0);
    for (size_t i = 0; out != NULL && i < count; i++) {
        if (append(out, PyLong_FromUnsignedLongLong(events[i].time)) < 0) {
            Py_CLEAR(out);
        }
    }
    free(events);
    if (result < 0) {
        Py_CLEAR(out);
        PyErr_Format(PyExc_RuntimeError, "unix_ns: %d", result);
    }
    return out;
}

static int
take_frame(void *context, size_t index, const ml_native_frame *frame)
{
    (void)index;
    return append(context, Py_BuildValue("ssK", frame->function, frame->file,
                                         (unsigned long long)frame->line));
}

/* [(function, file, line)] of this thread's native stack, innermost first, followed by
 * one that is nowhere. */
static PyObject *
probe_native_stack(PyObject *module, PyObject *capsule)
{
    (void)module;
    const ml_native *native = PyCapsule_GetPointer(capsule, ML_NATIVE_CAPSULE);
    if (native == NULL) {
        return NULL;
    }
    uint64_t counters[512];
    size_t count = native->capture(counters, 511);
    counters[count++] = 8;
    PyObject *list = PyList_New(0);
    if (list != NULL && native->symbolize(counters, count, take_frame, list) < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"attach", probe_attach, METH_O, NULL},
    {"enable", probe_enable, METH_VARARGS, NULL},
    {"device_count", probe_device_count, METH_O, NULL},
    {"events", probe_events, METH_O, NULL},
    {"clear", probe_clear, METH_NOARGS, NULL},
    {"walk", probe_walk, METH_O, NULL},
    {"stopped_walk", probe_stopped_walk, METH_VARARGS, NULL},
    {"rules", probe_rules, METH_O, NULL},
    {"totals", probe_totals, METH_VARARGS, NULL},
    {"unix_ns", probe_unix_ns, METH_VARARGS, NULL},
    {"native_stack", probe_native_stack, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sourceprobe", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_sourceprobe(void);

PyMODINIT_FUNC
PyInit_sourceprobe(void)
{
    kept = calloc(EVENT_CAPACITY, sizeof(*kept));
    if (kept == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *module = PyModule_Create(&definition);
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&api, ML_API_CAPSULE, NULL);
    if (module == NULL || PyModule_AddObjectRef(module, "_api", capsule) < 0) {
        Py_CLEAR(module);
    }
    Py_XDECREF(capsule);
    return module;
}
