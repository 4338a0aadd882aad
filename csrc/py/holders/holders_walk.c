/* The search for what holds objects.  See holders_walk.h.
 *
 * Breadth first by tp_traverse, as the collector itself follows references: it needs no
 * Python code of anybody.  A dict that an object has its attributes in is not a step of
 * its own, so that paths are shortest in the words that a user writes.  Targets are walked
 * through last: whatever is met only then is held by a target.
 *
 * Reference counts say whether all was found.  Where some references were not met, the
 * collector's objects that were not reached are asked as well, by the collector's own
 * arithmetic: those with references from outside of them are roots, among them what a
 * running frame has on its stack; what is left is garbage in cycles. */
#include "holders/holders_walk.h"

#include <stdlib.h> /* qsort */

#include "core/base/base.h"
#include "holders/holders_frames.h"
#include "objects/collector.h"

enum {
    UNSEEN,
    SEEN,
    OWN
};

/* Beyond what ml_graph says a type is. */
#define WHAT_GENERATOR 16

#define KNOWN_TYPES 1024

typedef struct indices {
    uint32_t *at;
    size_t count, capacity;
} indices;

struct ml_walk {
    ml_thing *things;
    size_t count, capacity;
    uint32_t *table; /* indices of things plus 1; 0: free */
    size_t table_size;
    indices level, next, targets;
    indices keys; /* pairs: a dict, its key */
    ml_hold *holds;
    size_t hold_count, hold_capacity;
    uint32_t from;  /* what is walked through now */
    bool contained; /* FROM is a container: its dicts are steps */
    bool lent;      /* what is visited lies on a stack */
    bool plain;     /* some target is an object that the collector does not know */
    bool failed;    /* out of memory */
    size_t visits;
    uint32_t target_count;
    int64_t *unmet; /* of targets */
    /* Of things, while unreached ones are weighed: references not met among them. */
    int32_t *external;
    size_t external_count;
    const ml_graph *graph;
    void *graph_walk;
    const PyTypeObject *known[KNOWN_TYPES];
    uint8_t what[KNOWN_TYPES];
};

/* ---- Things ---- */

static inline size_t
slot_of(const ml_walk *w, const void *at)
{
    uint64_t hash = ((uint64_t)(uintptr_t)at >> 4) * 0x9e3779b97f4a7c15u;
    size_t mask = w->table_size - 1;
    size_t slot = (size_t)(hash >> 24) & mask;

    while (w->table[slot] != 0 && w->things[w->table[slot] - 1].at != at) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool
grow_table(ml_walk *w)
{
    size_t size = w->table_size != 0 ? w->table_size * 2 : 1 << 16;
    uint32_t *table = ml_alloc(size * sizeof(*table));

    if (table == NULL) {
        return false;
    }
    memset(table, 0, size * sizeof(*table));
    ml_free(w->table);
    w->table = table;
    w->table_size = size;
    for (size_t i = 0; i < w->count; i++) {
        w->table[slot_of(w, w->things[i].at)] = (uint32_t)i + 1;
    }
    return true;
}

/* The thing at AT, added where it is new; false: no memory. */
static bool
meet(ml_walk *w, const void *at, uint8_t kind, uint32_t *index)
{
    if (w->count * 2 >= w->table_size && !grow_table(w)) {
        w->failed = true;
        return false;
    }
    size_t slot = slot_of(w, at);
    if (w->table[slot] != 0) {
        *index = w->table[slot] - 1;
        return true;
    }
    if (w->count >= UINT32_MAX - 1 || ml_grow((void **)&w->things, &w->capacity,
                                              w->count + 1, sizeof(*w->things)) < 0) {
        w->failed = true;
        return false;
    }
    *index = (uint32_t)w->count++;
    w->things[*index] = (ml_thing){.at = at, .target = ML_NO_TARGET, .kind = kind};
    w->table[slot] = *index + 1;
    return true;
}

static bool
look_up(const ml_walk *w, const void *at, uint32_t *index)
{
    uint32_t found = w->table[slot_of(w, at)];

    *index = found - 1;
    return found != 0;
}

static void
push(ml_walk *w, indices *to, uint32_t index)
{
    if (ml_grow((void **)&to->at, &to->capacity, to->count + 1, sizeof(*to->at)) < 0) {
        w->failed = true;
        return;
    }
    to->at[to->count++] = index;
}

/* ---- References ---- */

/* The last reference from FROM to TO so far, or NULL. */
static ml_hold *
last_hold(ml_walk *w, uint32_t to)
{
    for (size_t i = w->hold_count; i-- > 0 && w->holds[i].from == w->from;) {
        if (w->holds[i].to == to) {
            return &w->holds[i];
        }
    }
    return NULL;
}

static void
hold(ml_walk *w, uint32_t to)
{
    ml_hold *last = last_hold(w, to);
    uint32_t nth = last != NULL ? last->nth + 1 : 0;

    w->things[to].balance--;
    if (nth == ML_HOLDS_TOLD) {
        last->more++;
        return;
    }
    if (ml_grow((void **)&w->holds, &w->hold_capacity, w->hold_count + 1,
                sizeof(*w->holds)) < 0) {
        w->failed = true;
        return;
    }
    w->holds[w->hold_count++] =
        (ml_hold){.from = w->from, .to = to, .nth = nth, .lent = w->lent};
}

/* FROM refers to thing TO.  NEAR: it is walked through before the next level. */
static void
reach(ml_walk *w, uint32_t to, bool near)
{
    ml_thing *thing = &w->things[to];
    bool target = thing->target != ML_NO_TARGET;

    if (target && thing->state != OWN) {
        hold(w, to);
    }
    if (thing->state == UNSEEN) {
        thing->state = SEEN;
        thing->parent = w->from;
        thing->lent = w->lent;
        thing->near = near;
        push(w, target ? &w->targets : near ? &w->level : &w->next, to);
    }
}

static inline bool
collected(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    return PyType_IS_GC(type) && (type->tp_is_gc == NULL || type->tp_is_gc(object));
}

static inline void
reach_object(ml_walk *w, PyObject *object, bool near)
{
    uint32_t index;

    if (!collected(object)) {
        /* It refers to nothing; it may be a target. */
        if (w->plain && look_up(w, object, &index) &&
            w->things[index].target != ML_NO_TARGET) {
            reach(w, index, false);
        }
    }
    else if (meet(w, object, ML_GRAPH_OBJECT, &index)) {
        reach(w, index, near);
    }
}

/* As a key an object has no name: it waits for a better way. */
static void
reach_key(ml_walk *w, PyObject *key)
{
    uint32_t index;

    if (!collected(key)) {
        reach_object(w, key, false);
    }
    else if (meet(w, key, ML_GRAPH_OBJECT, &index)) {
        push(w, &w->keys, w->from);
        push(w, &w->keys, index);
    }
}

static int
visit_object(PyObject *object, void *arg)
{
    ml_walk *w = arg;

    w->visits++;
    reach_object(w, object, !w->contained && PyDict_CheckExact(object));
    return w->failed;
}

static int
visit_no_key(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (collected(object) && look_up(w, object, &index) && w->things[index].key) {
        return 0;
    }
    return visit_object(object, arg);
}

/* A tensor of a target's storage is a target. */
static void
meet_tensor(ml_walk *w, uint32_t index, const ml_graph_edge *edge, bool fresh)
{
    uint32_t storage;

    if (fresh && edge->storage != NULL && look_up(w, edge->storage, &storage)) {
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
        reach_object(w, (PyObject *)(uintptr_t)edge->to, false);
    }
    else if (meet(w, edge->to, (uint8_t)edge->kind, &index)) {
        if (edge->kind == ML_GRAPH_TENSOR) {
            meet_tensor(w, index, edge, w->count > count);
        }
        if (edge->name == NULL && w->things[index].target != ML_NO_TARGET) {
            /* A Python tensor and its C++ side are one: no reference to be told. */
            if (w->things[index].state == UNSEEN) {
                w->things[index].state = SEEN;
                w->things[index].parent = w->from;
                w->things[index].near = true;
                push(w, &w->targets, index);
            }
        }
        else {
            reach(w, index, edge->name == NULL);
        }
    }
    return w->failed;
}

/* ---- Walking through one thing ---- */

int
ml_walk_what(ml_walk *w, PyTypeObject *type)
{
    size_t at = ((uintptr_t)type >> 4 ^ (uintptr_t)type >> 14) % KNOWN_TYPES;

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

/* The dicts by which a torch module has its parts are no steps either. */
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
        /* The values may be its object's own, which it only shows; keys are names. */
        PyDict_Type.tp_traverse(dict, visit_object, w);
        return;
    }
#endif
    while (!w->failed && PyDict_Next(dict, &position, &key, &value)) {
        reach_key(w, key);
        reach_object(w, value, PyDict_CheckExact(value) && is_part(key));
    }
}

/* Marks the keys of DICT, which wait, but for those that are their own values; or takes
 * the marks back. */
static void
mark_keys(ml_walk *w, PyObject *dict, bool mark)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    uint32_t index;

    while (PyDict_Next(dict, &position, &key, &value)) {
        if (collected(key) && key != value && mark) {
            reach_key(w, key);
        }
        if (collected(key) && key != value && look_up(w, key, &index)) {
            w->things[index].key = mark;
        }
    }
}

/* A defaultdict, or another that has more than keys and values. */
static void
walk_derived_dict(ml_walk *w, PyObject *dict)
{
    mark_keys(w, dict, true);
    Py_TYPE(dict)->tp_traverse(dict, visit_no_key, w);
    mark_keys(w, dict, false);
}

/* Some attributes of a tensor that C++ refers to are not traversed by torch, so that the
 * collector lets them be. */
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

    return frame != NULL && look_up(w, frame, &index) &&
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
        return; /* its frame is walked through among its thread's */
    }
    w->visits = 0;
    if (collected(object) && Py_TYPE(object)->tp_traverse != NULL) {
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
swap_levels(indices *a, indices *b)
{
    indices swapped = *a;

    *a = *b;
    *b = swapped;
    b->count = 0;
}

static void
reach_keys(ml_walk *w)
{
    for (size_t i = 0; i < w->keys.count; i += 2) {
        w->from = w->keys.at[i];
        reach(w, w->keys.at[i + 1], false);
    }
    w->keys.count = 0;
}

/* Walks through all that can be reached of what is in NEXT. */
static void
walk_all(ml_walk *w)
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

/* ---- Roots ---- */

static uint32_t
add_root(ml_walk *w, const void *at, uint8_t kind)
{
    uint32_t index = 0;

    if (meet(w, at, kind, &index)) {
        w->things[index].state = SEEN;
        w->things[index].parent = index;
    }
    return index;
}

static void
add_module(ml_walk *w, PyObject *module)
{
    if (module != NULL) {
        reach_object(w, module, true);
    }
}

/* The program's own module first: of ways that are as short the first is told. */
static void
add_modules(ml_walk *w)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *name, *module;
    Py_ssize_t position = 0;

    if (modules == NULL || !PyDict_Check(modules)) {
        return;
    }
    w->from = add_root(w, modules, ML_THING_MODULES);
    w->contained = true;
    add_module(w, PyDict_GetItemString(modules, "__main__"));
    while (PyDict_Next(modules, &position, &name, &module)) {
        add_module(w, module);
    }
}

/* Frames of memlab itself hold what they were asked about. */
static bool
is_own(const ml_frame *frame)
{
    PyObject *globals = ml_frame_globals(frame);
    PyObject *name = globals != NULL && PyDict_Check(globals)
                         ? PyDict_GetItemString(globals, "__name__")
                         : NULL;
    const char *text =
        name != NULL && PyUnicode_CheckExact(name) ? PyUnicode_AsUTF8(name) : NULL;

    return text != NULL && strncmp(text, "memlab.", 7) == 0;
}

static int
forgive(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (look_up(w, object, &index)) {
        w->things[index].balance--;
    }
    return 0;
}

#if PY_VERSION_HEX < 0x030b0000
static void
forgive_lent(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && look_up(w, address, &index) &&
        w->things[index].target != ML_NO_TARGET && !w->lent) {
        w->things[index].balance--;
        w->lent = true;
    }
}
#endif

static void
add_thread(ml_walk *w, const PyThreadState *thread, bool own)
{
    const ml_frame *frame = ml_frame_first(thread);

    for (; frame != NULL && own && is_own(frame); frame = ml_frame_next(frame)) {
        /* It must not be taken for that of a generator which is not running. */
        uint32_t index = add_root(w, frame, ML_THING_FRAME);
        w->things[index].state = OWN;
        ml_frame_visit(frame, forgive, w);
    }
#if PY_VERSION_HEX < 0x030b0000
    /* A call leaves its arguments on the caller's stack. */
    if (own && frame != NULL && frame != ml_frame_first(thread)) {
        ml_frame_visit_stack(frame, forgive_lent, w);
        w->lent = false;
    }
#endif
    for (; frame != NULL; frame = ml_frame_next(frame)) {
        push(w, &w->level, add_root(w, frame, ML_THING_FRAME));
    }
    push(w, &w->level, add_root(w, thread, ML_THING_THREAD));
}

static void
add_roots(ml_walk *w)
{
    PyThreadState *own = PyThreadState_Get();
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());

    add_modules(w);
    add_thread(w, own, true);
    for (; thread != NULL; thread = PyThreadState_Next(thread)) {
        if (thread != own) {
            add_thread(w, thread, false);
        }
    }
    /* Roots of several kinds are one level. */
    for (size_t i = 0; i < w->level.count; i++) {
        push(w, &w->next, w->level.at[i]);
    }
    w->level.count = 0;
}

/* ---- Targets ---- */

/* Makes OBJECT a target; KNOWN are references to it that are not the program's. */
static void
add_target(ml_walk *w, PyObject *object, uint32_t target, int64_t known)
{
    uint32_t index;

    w->plain = w->plain || !collected(object);
    if (meet(w, object, ML_GRAPH_OBJECT, &index)) {
        w->things[index].target = target;
        w->things[index].balance = (int32_t)(Py_REFCNT(object) - known);
    }
}

/* OBJECT, a tensor or storage, is one of the targets if it has the storage of one. */
static void
add_sharer(ml_walk *w, PyObject *object, int64_t known)
{
    ml_graph_identity identity;
    uint32_t storage, tensor;
    int what = ml_walk_what(w, Py_TYPE(object));

    if (!w->graph->identity(object, what, &identity) || identity.storage == NULL ||
        !look_up(w, identity.storage, &storage)) {
        return;
    }
    w->things[storage].balance--;
    add_target(w, object, w->things[storage].target, known + identity.kept);
    if (identity.tensor != NULL && meet(w, identity.tensor, ML_GRAPH_TENSOR, &tensor)) {
        w->things[tensor].target = w->things[storage].target;
        w->things[tensor].balance = (int32_t)(identity.tensor_uses - 1);
    }
}

static void
add_sharers(ml_walk *w, PyObject *types)
{
    PyTypeObject *wanted[4];
    Py_ssize_t count = PyTuple_GET_SIZE(types);

    for (Py_ssize_t i = 0; i < count; i++) {
        wanted[i] = (PyTypeObject *)PyTuple_GET_ITEM(types, i);
    }
    PyObject *all = ml_collector_find(wanted, (size_t)count);
    if (all == NULL) {
        PyErr_Clear();
        w->failed = true;
        return;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        add_sharer(w, PyList_GET_ITEM(all, i), 1);
    }
    Py_DECREF(all);
}

static void
add_targets(ml_walk *w, PyObject *targets, PyObject *types)
{
    bool shared = false;
    uint32_t index;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(targets); i++) {
        PyObject *object = PyList_GET_ITEM(targets, i);
        ml_graph_identity identity;
        int what = ml_walk_what(w, Py_TYPE(object));
        if (w->graph != NULL && w->graph->identity(object, what, &identity) &&
            identity.storage != NULL) {
            if (meet(w, identity.storage, ML_THING_STORAGE, &index) &&
                w->things[index].target == ML_NO_TARGET) {
                w->things[index].target = (uint32_t)i;
                w->things[index].balance = (int32_t)identity.storage_uses;
            }
            shared = true;
        }
        else if (!look_up(w, object, &index)) {
            add_target(w, object, (uint32_t)i, 0);
        }
    }
    if (shared) {
        add_sharers(w, types);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(targets); i++) {
        forgive(PyList_GET_ITEM(targets, i), w);
    }
    index = add_root(w, targets, ML_GRAPH_OBJECT);
    w->things[index].state = OWN;
}

/* ---- What was not reached ---- */

static int
weigh(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (look_up(w, object, &index) && index < w->external_count) {
        w->external[index]--;
    }
    return 0;
}

static int
weigh_edge(void *arg, const ml_graph_edge *edge)
{
    return edge->kind == ML_GRAPH_OBJECT ? weigh((PyObject *)(uintptr_t)edge->to, arg)
                                         : 0;
}

static bool
is_candidate(const ml_walk *w, uint32_t index)
{
    const ml_thing *thing = &w->things[index];

    return thing->state == UNSEEN && thing->kind == ML_GRAPH_OBJECT;
}

static void
weigh_all(ml_walk *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        PyObject *object = (PyObject *)(uintptr_t)w->things[i].at;
        if (!is_candidate(w, i) || !collected(object)) {
            continue;
        }
        if (Py_TYPE(object)->tp_traverse != NULL) {
            Py_TYPE(object)->tp_traverse(object, weigh, w);
        }
        int what = ml_walk_what(w, Py_TYPE(object));
        if (what == ML_GRAPH_IS_FUNCTION || what == ML_GRAPH_IS_TENSOR) {
            w->failed |= w->graph->references(w->graph_walk, ML_GRAPH_OBJECT, what,
                                              object, weigh_edge, w) < 0;
        }
    }
}

/* Adds the collector's objects that were not reached, with their reference counts. */
static void
add_unreached(ml_walk *w)
{
    PyTypeObject *any = &PyBaseObject_Type;
    PyObject *all = ml_collector_find(&any, 1);
    uint32_t index;

    if (all == NULL) {
        PyErr_Clear();
        w->failed = true;
        return;
    }
    uint32_t own = add_root(w, all, ML_GRAPH_OBJECT);
    w->things[own].state = OWN;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all) && !w->failed; i++) {
        meet(w, PyList_GET_ITEM(all, i), ML_GRAPH_OBJECT, &index);
    }
    w->external = !w->failed ? ml_alloc_zeroed(w->count, sizeof(*w->external)) : NULL;
    w->external_count = w->count;
    w->failed = w->external == NULL;
    for (uint32_t i = 0; !w->failed && i < w->count; i++) {
        const PyObject *object = w->things[i].at;
        if (is_candidate(w, i) && Py_REFCNT(object) < INT32_MAX) {
            w->external[i] = (int32_t)Py_REFCNT(object) - 1;
        }
    }
    /* The list is an object of the collector itself: it is in the list. */
    if (PyList_SetSlice(all, 0, PyList_GET_SIZE(all), NULL) < 0) {
        PyErr_Clear();
        w->failed = true;
    }
    Py_DECREF(all);
}

/* An object on the stack of the frame FROM, which nothing else is known to hold. */
static void
lend(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && look_up(w, address, &index) && is_candidate(w, index) &&
        w->things[index].target == ML_NO_TARGET && index < w->external_count &&
        w->external[index] > 0) {
        reach(w, index, false);
    }
}

/* What a call left behind lies there as well: for a target its count has the word, after
 * all else was met. */
static void
lend_target(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && look_up(w, address, &index) &&
        w->things[index].kind == ML_GRAPH_OBJECT &&
        w->things[index].target != ML_NO_TARGET && w->things[index].balance > 0) {
        reach(w, index, false);
    }
}

static void
walk_stacks(ml_walk *w, void (*visit)(const void *address, void *arg))
{
    size_t count = w->count;

    w->lent = true;
    for (uint32_t i = 0; i < count; i++) {
        if (w->things[i].kind == ML_THING_FRAME && w->things[i].state == SEEN) {
            w->from = i;
            ml_frame_visit_stack(w->things[i].at, visit, w);
        }
    }
    w->lent = false;
    walk_all(w);
}

/* Walks from all candidates, or those that have references from outside. */
static void
walk_rest(ml_walk *w, uint8_t kind, bool all)
{
    /* Any address that is no object's will do. */
    uint32_t root =
        add_root(w, all ? (const void *)&w->level : (const void *)&w->next, kind);

    w->from = root;
    for (uint32_t i = 0; i < w->external_count && !w->failed; i++) {
        if (is_candidate(w, i) && w->things[i].target == ML_NO_TARGET &&
            (all || w->external[i] > 0)) {
            w->things[i].state = SEEN;
            w->things[i].parent = root;
            push(w, &w->next, i);
        }
    }
    walk_all(w);
}

static void
count_unmet(ml_walk *w)
{
    memset(w->unmet, 0, w->target_count * sizeof(*w->unmet));
    for (size_t i = 0; i < w->count; i++) {
        const ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->balance > 0) {
            w->unmet[thing->target] += thing->balance;
        }
    }
}

static bool
is_all_met(const ml_walk *w)
{
    for (uint32_t i = 0; i < w->target_count; i++) {
        if (w->unmet[i] > 0) {
            return false;
        }
    }
    return true;
}

/* Targets that only targets hold.  Those with references left then are held outside; the
 * others are in a cycle with them, or hang on one. */
static void
walk_unreached_targets(ml_walk *w)
{
    uint32_t cycles = add_root(w, &w->level, ML_THING_CYCLES);
    uint32_t outside = add_root(w, &w->next, ML_THING_OUTSIDE);
    size_t count = w->count;

    for (uint32_t i = 0; i < count && !w->failed; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->state == UNSEEN &&
            thing->kind == ML_GRAPH_OBJECT) {
            thing->state = SEEN;
            thing->parent = cycles;
            push(w, &w->targets, i);
        }
    }
    walk_all(w);
    for (uint32_t i = 0; i < count && !w->failed; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->parent == cycles &&
            thing->balance > 0) {
            thing->parent = outside;
        }
    }
}

static void
walk_unreached(ml_walk *w)
{
    add_unreached(w);
    if (!w->failed) {
        weigh_all(w);
        walk_stacks(w, lend);
        walk_rest(w, ML_THING_OUTSIDE, false);
        walk_rest(w, ML_THING_CYCLES, true);
        walk_stacks(w, lend_target);
        walk_unreached_targets(w);
    }
    ml_free(w->external);
    w->external = NULL;
}

/* ---- Answers ---- */

/* What only the caller holds, as a temporary, holds things itself, which are met so. */
static void
walk_own_targets(ml_walk *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->state == UNSEEN &&
            thing->kind == ML_GRAPH_OBJECT && thing->balance <= 0) {
            thing->state = SEEN;
            thing->parent = i;
            push(w, &w->targets, i);
        }
    }
    walk_all(w);
}

/* The steps to thing INDEX, 0 where they lead through TARGET, or from what only the
 * caller holds. */
static uint32_t
measure(const ml_walk *w, uint32_t index, uint32_t target)
{
    uint32_t length = 1;

    for (;;) {
        const ml_thing *thing = &w->things[index];
        if (thing->target == target) {
            return 0;
        }
        if (thing->parent == index) {
            return thing->kind > ML_GRAPH_TENSOR ? length : 0;
        }
        length += !thing->near;
        index = thing->parent;
    }
}

static int
compare_holds(const void *a, const void *b)
{
    const ml_hold *one = a, *other = b;

    if (one->length != other->length) {
        return one->length < other->length ? -1 : 1;
    }
    return one->order < other->order ? -1 : one->order > other->order;
}

static void
sort_holds(ml_walk *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->hold_count; i++) {
        ml_hold hold = w->holds[i];
        hold.length = measure(w, hold.from, w->things[hold.to].target);
        hold.order = (uint32_t)i;
        if (hold.length > 0) {
            w->holds[kept++] = hold;
        }
    }
    w->hold_count = kept;
    if (kept > 1) {
        qsort(w->holds, kept, sizeof(*w->holds), compare_holds);
    }
}

ml_walk *
ml_walk_new(PyObject *targets, PyObject *types, const ml_graph *graph)
{
    ml_walk *w = ml_alloc(sizeof(*w));

    if (w == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(w, 0, sizeof(*w));
    w->graph = graph;
    w->graph_walk = graph != NULL ? graph->begin() : NULL;
    w->target_count = (uint32_t)PyList_GET_SIZE(targets);
    w->unmet = ml_alloc_zeroed(w->target_count + 1, sizeof(*w->unmet));
    w->failed =
        w->unmet == NULL || !grow_table(w) || (graph != NULL && w->graph_walk == NULL);
    if (!w->failed) {
        add_targets(w, targets, types);
        add_roots(w);
        walk_all(w);
        walk_own_targets(w);
    }
    if (!w->failed) {
        count_unmet(w);
        if (!is_all_met(w)) {
            walk_unreached(w);
            count_unmet(w);
        }
    }
    if (w->failed) {
        ml_walk_free(w);
        PyErr_NoMemory();
        return NULL;
    }
    sort_holds(w);
    return w;
}

void
ml_walk_free(ml_walk *w)
{
    if (w == NULL) {
        return;
    }
    if (w->graph_walk != NULL) {
        w->graph->end(w->graph_walk);
    }
    ml_free(w->things);
    ml_free(w->table);
    ml_free(w->level.at);
    ml_free(w->next.at);
    ml_free(w->targets.at);
    ml_free(w->keys.at);
    ml_free(w->holds);
    ml_free(w->unmet);
    ml_free(w->external);
    ml_free(w);
}

const ml_thing *
ml_walk_thing(const ml_walk *w, uint32_t index)
{
    return &w->things[index];
}

bool
ml_walk_find(const ml_walk *w, const void *at, uint32_t *index)
{
    return look_up(w, at, index) && w->things[*index].state == SEEN;
}

const ml_hold *
ml_walk_holds(const ml_walk *w, size_t *count)
{
    *count = w->hold_count;
    return w->holds;
}

int64_t
ml_walk_unmet(const ml_walk *w, uint32_t target)
{
    return w->unmet[target];
}

const ml_graph *
ml_walk_graph(const ml_walk *w)
{
    return w->graph;
}

void *
ml_walk_graph_walk(const ml_walk *w)
{
    return w->graph_walk;
}
