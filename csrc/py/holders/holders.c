/* The module's functions about holders of objects.  See holders.h.  holders_walk.c
 * searches; holders_paths.c puts paths into words. */
#include "holders/holders.h"

#include "holders/holders_paths.h"
#include "holders/holders_walk.h"
#include "state.h"

const char ml_holders_use_doc[] =
    "use_graph($module, capsule, /)\n--\n\n"
    "Takes the view of torch's own references that the torch bridge offers.\n\n"
    "Raises memlab.Error for one of another memlab.";

PyObject *
ml_holders_use(PyObject *module, PyObject *capsule)
{
    const ml_graph *table =
        ml_py_bridge_table(module, capsule, ML_GRAPH_CAPSULE, sizeof(ml_graph));

    if (table == NULL) {
        return NULL;
    }
    ((ml_state *)PyModule_GetState(module))->graph = table;
    Py_RETURN_NONE;
}

const char ml_holders_find_doc[] =
    "find_holders($module, targets, types, /)\n--\n\n"
    "Who holds each of the list targets: a list with a pair for each.\n\n"
    "Of a pair the first is a list of paths, shortest first, each a list of tuples, "
    "its\n"
    "steps (_objects/holders.py says which); the second is the number of references "
    "that\n"
    "were not met. types is a tuple of torch's tensor and storage types, whose "
    "instances\n"
    "are held where another has their storage, or empty. Raises MemoryError.";

static PyObject *
paths_of(ml_walk *walk, Py_ssize_t count)
{
    PyObject *found = PyList_New(count);
    size_t holds;
    const ml_hold *hold = ml_walk_holds(walk, &holds);

    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *pair =
            Py_BuildValue("([]L)", (long long)ml_walk_unmet(walk, (uint32_t)i));
        if (pair == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyList_SET_ITEM(found, i, pair);
    }
    for (size_t i = 0; found != NULL && i < holds; i++) {
        uint32_t target = ml_walk_thing(walk, hold[i].to)->target;
        PyObject *paths = PyTuple_GET_ITEM(PyList_GET_ITEM(found, target), 0);
        PyObject *path = ml_holders_path(walk, &hold[i]);
        if (path == NULL || PyList_Append(paths, path) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(path);
    }
    return found;
}

PyObject *
ml_holders_find(PyObject *module, PyObject *args)
{
    const ml_state *state = PyModule_GetState(module);
    PyObject *targets, *types;

    if (!PyArg_ParseTuple(args, "O!O!:find_holders", &PyList_Type, &targets,
                          &PyTuple_Type, &types)) {
        return NULL;
    }
    /* A collection runs finalizers, which must not happen during the search. */
    int collecting = PyGC_Disable();
    ml_walk *walk = ml_walk_new(targets, types, state->graph);
    PyObject *found = NULL;
    if (walk != NULL) {
        found = paths_of(walk, PyList_GET_SIZE(targets));
    }
    ml_walk_free(walk);
    if (collecting) {
        PyGC_Enable();
    }
    return found;
}
