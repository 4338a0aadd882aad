/* A path while it is put into words.  See holders_namer.h. */
#include "holders/holders_namer.h"

#include "core/base/base.h"
#include "holders/holders_names.h"

int
ml_namer_add(ml_namer *n, PyObject *step)
{
    if (step == NULL) {
        return -1;
    }
    int result = PyList_Append(n->steps, step);
    Py_DECREF(step);
    return result;
}

int
ml_namer_add_name(ml_namer *n, const char *name)
{
    return ml_namer_add(n, Py_BuildValue("(ss)", "name", name));
}

const ml_thing *
ml_namer_thing(const ml_namer *n, size_t i)
{
    return ml_walk_thing(n->walk, n->chain[i]);
}

PyObject *
ml_namer_object(const ml_namer *n, size_t i)
{
    if (i >= n->count || ml_namer_thing(n, i)->kind != ML_GRAPH_OBJECT) {
        return NULL;
    }
    return (PyObject *)(uintptr_t)ml_namer_thing(n, i)->at;
}

PyObject *
ml_namer_object_before(const ml_namer *n, size_t i, size_t back)
{
    return i >= back ? ml_namer_object(n, i - back) : NULL;
}

static size_t
depth_of(const ml_walk *walk, uint32_t index)
{
    size_t depth = 1;

    while (ml_walk_thing(walk, index)->parent != index) {
        index = ml_walk_thing(walk, index)->parent;
        depth++;
    }
    return depth;
}

static bool
fill_chain(ml_namer *n, uint32_t from, uint32_t to)
{
    n->count = depth_of(n->walk, from) + 1;
    n->chain = ml_alloc(n->count * sizeof(*n->chain));
    if (n->chain == NULL) {
        return false;
    }
    n->chain[n->count - 1] = to;
    for (size_t i = n->count - 1; i-- > 0;) {
        n->chain[i] = from;
        from = ml_walk_thing(n->walk, from)->parent;
    }
    return true;
}

PyObject *
ml_holders_path(ml_walk *walk, const ml_hold *hold, bool nested)
{
    ml_namer n = {.walk = walk, .steps = PyList_New(0), .nested = nested};

    if (n.steps == NULL) {
        return NULL;
    }
    if (!fill_chain(&n, hold->from, hold->to)) {
        Py_DECREF(n.steps);
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i + 1 < n.count; i++) {
        n.last = i + 2 == n.count;
        n.nth = n.last ? hold->nth : 0;
        if (ml_name_step(&n, i, n.last ? hold->lent : ml_namer_thing(&n, i + 1)->lent) <
            0) {
            Py_CLEAR(n.steps);
            break;
        }
    }
    if (n.steps != NULL && hold->more > 0 &&
        ml_namer_add(&n, Py_BuildValue("(sk)", "more", (unsigned long)hold->more)) <
            0) {
        Py_CLEAR(n.steps);
    }
    ml_free(n.chain);
    return n.steps;
}
