/* Puts the steps from a root to a target into words.  See holders_paths.h. */
#include "holders/holders_paths.h"

#include "core/base/base.h"
#include "holders/holders_names.h"

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

/* KEY_PATH as in ml_namer. */
static PyObject *
tell_path(ml_walk *walk, const ml_hold *hold,
          PyObject *(*key_path)(ml_walk *, const ml_hold *))
{
    ml_namer n = {.walk = walk, .steps = PyList_New(0), .key_path = key_path};

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

static PyObject *
tell_key(ml_walk *walk, const ml_hold *hold)
{
    return tell_path(walk, hold, NULL);
}

PyObject *
ml_holders_path(ml_walk *walk, const ml_hold *hold)
{
    return tell_path(walk, hold, tell_key);
}
