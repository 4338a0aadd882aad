/* Finds the targets, and the tensors and storages that share their memory.  See
 * holders_parts.h. */
#include "holders/holders_parts.h"

#include "objects/collector.h"

/* Makes OBJECT a target; KNOWN: references to it that are not the program's. */
static void
add_target(ml_walk *w, PyObject *object, uint32_t target, int64_t known)
{
    uint32_t index;

    w->plain = w->plain || !ml_walk_collects(object);
    if (ml_walk_meet(w, object, ML_GRAPH_OBJECT, &index)) {
        w->things[index].target = target;
        w->things[index].balance = (int32_t)(Py_REFCNT(object) - known);
    }
}

/* OBJECT, a tensor or storage, is a target if it shares a target's storage. */
static void
add_sharer(ml_walk *w, PyObject *object, int64_t known)
{
    ml_graph_identity identity;
    uint32_t storage, tensor;
    int what = ml_walk_what(w, Py_TYPE(object));

    if (!w->graph->identity(object, what, &identity) || identity.storage == NULL ||
        !ml_walk_look_up(w, identity.storage, &storage)) {
        return;
    }
    w->things[storage].balance--;
    add_target(w, object, w->things[storage].target, known + identity.kept);
    if (identity.tensor != NULL &&
        ml_walk_meet(w, identity.tensor, ML_GRAPH_TENSOR, &tensor)) {
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

void
ml_walk_add_targets(ml_walk *w, PyObject *targets, PyObject *types)
{
    bool shared = false;
    uint32_t index;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(targets); i++) {
        PyObject *object = PyList_GET_ITEM(targets, i);
        ml_graph_identity identity;
        int what = ml_walk_what(w, Py_TYPE(object));
        if (w->graph != NULL && w->graph->identity(object, what, &identity) &&
            identity.storage != NULL) {
            if (ml_walk_meet(w, identity.storage, ML_THING_STORAGE, &index) &&
                w->things[index].target == ML_NO_TARGET) {
                w->things[index].target = (uint32_t)i;
                w->things[index].balance = (int32_t)identity.storage_uses;
            }
            shared = true;
        }
        else if (!ml_walk_look_up(w, object, &index)) {
            add_target(w, object, (uint32_t)i, 0);
        }
    }
    if (shared) {
        add_sharers(w, types);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(targets); i++) {
        ml_walk_forgive(PyList_GET_ITEM(targets, i), w);
    }
    index = ml_walk_add_root(w, targets, ML_GRAPH_OBJECT);
    w->things[index].state = ML_WALK_OWN;
}
