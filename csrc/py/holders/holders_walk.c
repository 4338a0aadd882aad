/* Searches for holders of objects.  See holders_walk.h.
 *
 * The search is breadth first by tp_traverse, as in the collector, without any Python
 * code.  Reference counts show whether it is complete: if references are missing,
 * unreached objects are walked too. */
#include "holders/holders_parts.h"

#include <stdlib.h> /* qsort */

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

/* Objects held only by the caller, as temporaries, hold things themselves. */
static void
walk_own_targets(ml_walk *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        ml_thing *thing = &w->things[i];
        if (thing->target != ML_NO_TARGET && thing->state == ML_WALK_UNSEEN &&
            thing->kind == ML_GRAPH_OBJECT && thing->balance <= 0) {
            thing->state = ML_WALK_SEEN;
            thing->parent = i;
            ml_walk_push(w, &w->targets, i);
        }
    }
    ml_walk_all(w);
}

/* The steps to thing INDEX; 0 if they lead through TARGET, or start at an object held
 * only by the caller. */
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
    w->failed = w->unmet == NULL || !ml_walk_grow_table(w) ||
                (graph != NULL && w->graph_walk == NULL);
    if (!w->failed) {
        ml_walk_add_targets(w, targets, types);
        ml_walk_add_roots(w);
        ml_walk_all(w);
        walk_own_targets(w);
    }
    if (!w->failed) {
        count_unmet(w);
        if (!is_all_met(w)) {
            ml_walk_unreached(w);
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
    return ml_walk_look_up(w, at, index) && w->things[*index].state == ML_WALK_SEEN;
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
