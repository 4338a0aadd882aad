/* Walks things that no root reached.  See holders_parts.h.
 *
 * Unreached objects are weighed by the collector's own arithmetic.  Those with
 * references from outside are roots, among them values on a running frame's stack.  The
 * rest is garbage in cycles. */
#include "holders/holders_parts.h"

#include "holders/holders_frames.h"
#include "objects/collector.h"

static int
weigh(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (ml_walk_look_up(w, object, &index) && index < w->external_count) {
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

    return thing->state == ML_WALK_UNSEEN && thing->kind == ML_GRAPH_OBJECT;
}

static void
weigh_all(ml_walk *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        PyObject *object = (PyObject *)(uintptr_t)w->things[i].at;
        if (!is_candidate(w, i) || !ml_walk_collects(object)) {
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

/* Adds the collector's unreached objects with their reference counts. */
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
    uint32_t own = ml_walk_add_root(w, all, ML_GRAPH_OBJECT);
    w->things[own].state = ML_WALK_OWN;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all) && !w->failed; i++) {
        ml_walk_meet(w, PyList_GET_ITEM(all, i), ML_GRAPH_OBJECT, &index);
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
    /* The list itself is an object of the collector, so it contains itself. */
    if (PyList_SetSlice(all, 0, PyList_GET_SIZE(all), NULL) < 0) {
        PyErr_Clear();
        w->failed = true;
    }
    Py_DECREF(all);
}

/* An object on the stack of the frame FROM without another known holder. */
static void
lend(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && ml_walk_look_up(w, address, &index) &&
        is_candidate(w, index) && w->things[index].target == ML_NO_TARGET &&
        index < w->external_count && w->external[index] > 0) {
        ml_walk_reach(w, index, false);
    }
}

/* A finished call leaves its values there too.  After everything else is met, a
 * target's count decides. */
static void
lend_target(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && ml_walk_look_up(w, address, &index) &&
        w->things[index].kind == ML_GRAPH_OBJECT &&
        w->things[index].target != ML_NO_TARGET && w->things[index].balance > 0) {
        ml_walk_reach(w, index, false);
    }
}

static void
walk_stacks(ml_walk *w, void (*visit)(const void *address, void *arg))
{
    size_t count = w->count;

    w->lent = true;
    for (uint32_t i = 0; i < count; i++) {
        if (w->things[i].kind == ML_THING_FRAME && w->things[i].state == ML_WALK_SEEN) {
            w->from = i;
            ml_frame_visit_stack(w->things[i].at, visit, w);
        }
    }
    w->lent = false;
    ml_walk_all(w);
}

/* Walks from all candidates, or only from those with references from outside. */
static void
walk_rest(ml_walk *w, uint8_t kind, bool all)
{
    /* Any address without an object will do. */
    uint32_t root = ml_walk_add_root(
        w, all ? (const void *)&w->level : (const void *)&w->next, kind);

    w->from = root;
    for (uint32_t i = 0; i < w->external_count && !w->failed; i++) {
        if (is_candidate(w, i) && w->things[i].target == ML_NO_TARGET &&
            (all || w->external[i] > 0)) {
            w->things[i].state = ML_WALK_SEEN;
            w->things[i].parent = root;
            ml_walk_push(w, &w->next, i);
        }
    }
    ml_walk_all(w);
}

/* Targets held only by targets.  Those with references left are held from outside.  The
 * others are in a cycle with them, or hang on one. */
static void
walk_unreached_targets(ml_walk *w)
{
    uint32_t cycles = ml_walk_add_root(w, &w->level, ML_THING_CYCLES);
    uint32_t outside = ml_walk_add_root(w, &w->next, ML_THING_OUTSIDE);
    size_t count = w->count;

    for (uint32_t i = 0; i < count && !w->failed; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->state == ML_WALK_UNSEEN &&
            thing->kind == ML_GRAPH_OBJECT) {
            thing->state = ML_WALK_SEEN;
            thing->parent = cycles;
            ml_walk_push(w, &w->targets, i);
        }
    }
    ml_walk_all(w);
    for (uint32_t i = 0; i < count && !w->failed; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->parent == cycles &&
            thing->balance > 0) {
            thing->parent = outside;
        }
    }
}

void
ml_walk_unreached(ml_walk *w)
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
