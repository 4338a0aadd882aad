/* Follows a thing's references, and with them everything reachable.  See
 * holders_parts.h.
 *
 * An object's attribute dict is no step of its own, so that paths are shortest in the
 * user's words.  Targets are walked last: a thing met only then is held by a target. */
#include "holders/holders_parts.h"

#include "holders/holders_frames.h"

/* Beyond what ml_graph says a type is. */
#define WHAT_GENERATOR 16

/* ---- References ---- */

/* An object has no name as a key, so it waits for a better path. */
static void
reach_key(ml_walk *w, PyObject *key)
{
    uint32_t index;

    if (!ml_walk_collects(key)) {
        ml_walk_reach_object(w, key, false);
    }
    else if (ml_walk_meet(w, key, ML_GRAPH_OBJECT, &index)) {
        ml_walk_push(w, &w->keys, w->from);
        ml_walk_push(w, &w->keys, index);
    }
}

static int
visit_object(PyObject *object, void *arg)
{
    ml_walk *w = arg;

    w->visits++;
    ml_walk_reach_object(w, object, !w->contained && PyDict_CheckExact(object));
    return w->failed;
}

static int
visit_no_key(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (ml_walk_collects(object) && ml_walk_look_up(w, object, &index) &&
        w->things[index].key) {
        return 0;
    }
    return visit_object(object, arg);
}

/* A tensor of a target's storage is a target. */
static void
meet_tensor(ml_walk *w, uint32_t index, const ml_graph_edge *edge, bool fresh)
{
    uint32_t storage;

    if (fresh && edge->storage != NULL && ml_walk_look_up(w, edge->storage, &storage)) {
        w->things[index].target = w->things[storage].target;
        w->things[index].balance = (int32_t)edge->uses;
        w->things[storage].balance--;
    }
}

static int
visit_edge(void *arg, const ml_graph_edge *edge)
{
    ml_walk *w = arg;
    size_t count = w->count;
    uint32_t index;

    if (edge->kind == ML_GRAPH_OBJECT) {
        ml_walk_reach_object(w, (PyObject *)(uintptr_t)edge->to, false);
    }
    else if (ml_walk_meet(w, edge->to, (uint8_t)edge->kind, &index)) {
        if (edge->kind == ML_GRAPH_TENSOR) {
            meet_tensor(w, index, edge, w->count > count);
        }
        if (edge->name == NULL && w->things[index].target != ML_NO_TARGET) {
            /* A Python tensor and its C++ side are one thing, without a reference to
             * report. */
            if (w->things[index].state == ML_WALK_UNSEEN) {
                w->things[index].state = ML_WALK_SEEN;
                w->things[index].parent = w->from;
                w->things[index].near = true;
                ml_walk_push(w, &w->targets, index);
            }
        }
        else {
            ml_walk_reach(w, index, edge->name == NULL);
        }
    }
    return w->failed;
}

/* ---- Walking through one thing ---- */

int
ml_walk_what(ml_walk *w, PyTypeObject *type)
{
    size_t at = ((uintptr_t)type >> 4 ^ (uintptr_t)type >> 14) % ML_WALK_TYPES;

    if (w->known[at] != type) {
        int what = w->graph != NULL ? w->graph->classify(w->graph_walk, type)
                                    : ML_GRAPH_IS_NOTHING;
        if (type == &PyGen_Type || type == &PyCoro_Type || type == &PyAsyncGen_Type) {
            what = WHAT_GENERATOR;
        }
        w->known[at] = type;
        w->what[at] = (uint8_t)what;
    }
    return w->what[at];
}

static bool
is_named(PyObject *key, const char *name)
{
    return PyUnicode_CompareWithASCIIString(key, name) == 0;
}

/* The dicts of a torch module's parts are no steps either. */
static bool
is_part(PyObject *key)
{
    return PyUnicode_CheckExact(key) && PyUnicode_GET_LENGTH(key) >= 8 &&
           PyUnicode_READ_CHAR(key, 0) == '_' &&
           (is_named(key, "_modules") || is_named(key, "_parameters") ||
            is_named(key, "_buffers"));
}

static void
walk_dict(ml_walk *w, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;

#if PY_VERSION_HEX >= 0x030d0000
    if (((PyDictObject *)dict)->ma_values != NULL) {
        /* The values may be its object's own; keys are names. */
        PyDict_Type.tp_traverse(dict, visit_object, w);
        return;
    }
#endif
    while (!w->failed && PyDict_Next(dict, &position, &key, &value)) {
        reach_key(w, key);
        ml_walk_reach_object(w, value, PyDict_CheckExact(value) && is_part(key));
    }
}

/* Marks the waiting keys of DICT, except those that are their own values; or removes
 * the marks. */
static void
mark_keys(ml_walk *w, PyObject *dict, bool mark)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    uint32_t index;

    while (PyDict_Next(dict, &position, &key, &value)) {
        if (ml_walk_collects(key) && key != value && mark) {
            reach_key(w, key);
        }
        if (ml_walk_collects(key) && key != value && ml_walk_look_up(w, key, &index)) {
            w->things[index].key = mark;
        }
    }
}

/* A defaultdict, or another with more than keys and values. */
static void
walk_derived_dict(ml_walk *w, PyObject *dict)
{
    mark_keys(w, dict, true);
    Py_TYPE(dict)->tp_traverse(dict, visit_no_key, w);
    mark_keys(w, dict, false);
}

/* torch does not traverse some attributes of a tensor that C++ refers to, so the
 * collector never frees them. */
static void
walk_attributes(ml_walk *w, PyObject *tensor)
{
#if PY_VERSION_HEX >= 0x030d0000
    if (Py_TYPE(tensor)->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        PyObject_VisitManagedDict(tensor, visit_object, w);
        return;
    }
#elif PY_VERSION_HEX >= 0x030c0000
    if (Py_TYPE(tensor)->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        _PyObject_VisitManagedDict(tensor, visit_object, w);
        return;
    }
#endif
    PyObject **dict = _PyObject_GetDictPtr(tensor);
    if (dict != NULL && *dict != NULL) {
        visit_object(*dict, w);
    }
}

static bool
is_running(const ml_walk *w, PyObject *generator)
{
    const ml_frame *frame = ml_frame_within(generator);
    uint32_t index;

    return frame != NULL && ml_walk_look_up(w, frame, &index) &&
           w->things[index].kind == ML_THING_FRAME;
}

static void
walk_object(ml_walk *w, PyObject *object)
{
    int what = ml_walk_what(w, Py_TYPE(object));

    w->contained = PyDict_Check(object) || PyList_Check(object) ||
                   PyTuple_Check(object) || PyAnySet_Check(object);
    if (PyDict_CheckExact(object)) {
        walk_dict(w, object);
        return;
    }
    if (PyDict_Check(object)) {
        walk_derived_dict(w, object);
        return;
    }
    if (what == WHAT_GENERATOR && is_running(w, object)) {
        return; /* its frame is walked with its thread's frames */
    }
    w->visits = 0;
    if (ml_walk_collects(object) && Py_TYPE(object)->tp_traverse != NULL) {
        Py_TYPE(object)->tp_traverse(object, visit_object, w);
    }
    if (what == ML_GRAPH_IS_TENSOR && w->visits == 0) {
        walk_attributes(w, object);
    }
    if (what != ML_GRAPH_IS_NOTHING && what != WHAT_GENERATOR) {
        w->failed |= w->graph->references(w->graph_walk, ML_GRAPH_OBJECT, what, object,
                                          visit_edge, w) < 0;
    }
}

static int
visit_thread(const PyThreadState *thread, visitproc visit, void *arg)
{
    const _PyErr_StackItem *handled = thread->exc_info;

    for (; handled != NULL; handled = handled->previous_item) {
        Py_VISIT(handled->exc_value);
#if PY_VERSION_HEX < 0x030b0000
        Py_VISIT(handled->exc_traceback);
#endif
    }
#if PY_VERSION_HEX >= 0x030c0000
    Py_VISIT(thread->current_exception);
#else
    Py_VISIT(thread->curexc_value);
    Py_VISIT(thread->curexc_traceback);
#endif
    Py_VISIT(thread->dict);
    Py_VISIT(thread->context);
    Py_VISIT(thread->c_profileobj);
    Py_VISIT(thread->c_traceobj);
    Py_VISIT(thread->async_gen_firstiter);
    Py_VISIT(thread->async_gen_finalizer);
    return 0;
}

static void
walk_thing(ml_walk *w, uint32_t index)
{
    const ml_thing thing = w->things[index];

    w->from = index;
    w->contained = true;
    if (thing.kind == ML_GRAPH_OBJECT) {
        walk_object(w, (PyObject *)(uintptr_t)thing.at);
    }
    else if (thing.kind == ML_GRAPH_NODE || thing.kind == ML_GRAPH_TENSOR) {
        w->failed |= w->graph->references(w->graph_walk, thing.kind, 0, thing.at,
                                          visit_edge, w) < 0;
    }
    else if (thing.kind == ML_THING_FRAME) {
        ml_frame_visit(thing.at, visit_object, w);
    }
    else if (thing.kind == ML_THING_THREAD) {
        visit_thread(thing.at, visit_object, w);
    }
}

static void
swap_levels(ml_indices *a, ml_indices *b)
{
    ml_indices swapped = *a;

    *a = *b;
    *b = swapped;
    b->count = 0;
}

static void
reach_keys(ml_walk *w)
{
    for (size_t i = 0; i < w->keys.count; i += 2) {
        w->from = w->keys.at[i];
        ml_walk_reach(w, w->keys.at[i + 1], false);
    }
    w->keys.count = 0;
}

void
ml_walk_all(ml_walk *w)
{
    for (;;) {
        if (w->next.count == 0) {
            reach_keys(w);
        }
        if (w->failed || w->next.count + w->targets.count == 0) {
            return;
        }
        swap_levels(&w->level, w->next.count > 0 ? &w->next : &w->targets);
        for (size_t i = 0; i < w->level.count && !w->failed; i++) {
            walk_thing(w, w->level.at[i]);
        }
        w->level.count = 0;
    }
}
