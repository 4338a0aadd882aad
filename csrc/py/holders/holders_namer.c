/* A path while it is put into words.  See holders_namer.h. */
#include "holders/holders_namer.h"

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
