/* memlab._core.Leaks: memory that a program's steps leave behind, as a Python object.
 *
 * Owns the survivors of one recording, which it keeps running.  core/inspect/leaks.h
 * tests for growth; memlab/_objects/leaks.py writes the text. */
#include "dicts/dict_values.h"

#include "core/base/base.h"
#include "core/inspect/leaks.h"
#include "dicts/peak_dict.h"
#include "training/snapshot_type.h"

typedef struct leaks_object {
    PyObject_HEAD
    ml_shared_window *shared;   /* one use of it */
    ml_leak_tracker *survivors; /* owned */
    bool busy;                  /* a step is in progress without the GIL */
} leaks_object;

static PyObject *
leak_dict(const ml_leak *leak)
{
    PyObject *dict = ml_py_peak_line(&leak->line);
    if (dict != NULL &&
        (PyDict_DelItemString(dict, "by_category") < 0 ||
         ml_py_set(dict, "device", PyLong_FromLong(leak->device)) < 0 ||
         ml_py_set(dict, "steps", PyLong_FromUnsignedLongLong(leak->steps)) < 0 ||
         ml_py_set(dict, "bytes_per_step",
                   PyLong_FromUnsignedLongLong(leak->per_step)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
leaks_list(const ml_leaks *leaks)
{
    PyObject *list;
    FILL_LIST(list, i, leaks->count, leak_dict(&leaks->items[i]));
    return list;
}

PyDoc_STRVAR(step_doc,
             "step($self, /)\n--\n\n"
             "A step ends: the lines that leak now, as a list of dicts, and whether "
             "events were\n"
             "lost, so that rows of steps begin again. Raises memlab.Error, "
             "MemoryError.");

static PyObject *
leaks_step(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    leaks_object *self = (leaks_object *)op;
    ml_state *state = ml_state_of(Py_TYPE(op));
    if (self->busy) {
        return ml_py_raise(state, ML_ESTATE, "another thread ends a step just now");
    }
    ml_leaks leaks;
    int result;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    result = ml_leaks_step(self->survivors, &leaks);
    Py_END_ALLOW_THREADS
    self->busy = false;
    if (result < 0) {
        return ml_py_raise(state, result, NULL);
    }
    PyObject *list = leaks_list(&leaks);
    PyObject *answer =
        list == NULL ? NULL : Py_BuildValue("(NN)", list, PyBool_FromLong(leaks.lost));
    ml_leaks_fini(&leaks);
    return answer;
}

static PyObject *
leaks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"snapshot", NULL};
    ml_state *state = ml_state_of(type);
    PyObject *snapshot;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Leaks", keywords,
                                     state->snapshot_type, &snapshot)) {
        return NULL;
    }
    leaks_object *self = (leaks_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->shared = ml_snapshot_share(snapshot);
    int result = ML_ESTATE;
    if (self->shared != NULL) {
        result = ml_leak_tracker_new(self->shared->window, &self->survivors);
    }
    if (result < 0) {
        Py_DECREF(self);
        return ml_py_raise(state, result,
                           result == ML_ESTATE ? "not recording; start() first"
                                               : ml_strerror(result));
    }
    return (PyObject *)self;
}

static int
leaks_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
leaks_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    leaks_object *self = (leaks_object *)op;
    PyObject_GC_UnTrack(op);
    ml_leak_tracker_free(self->survivors);
    ml_shared_window_drop(self->shared);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef leaks_methods[] = {
    {"step", leaks_step, METH_NOARGS, step_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(leaks_doc,
             "Leaks(snapshot)\n--\n\n"
             "The C half of memlab.leaks(): what each step leaves behind of what "
             "SNAPSHOT records.\n\n"
             "The recording goes on as long as this object. Raises memlab.Error where "
             "there is none.");

static PyType_Slot leaks_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)leaks_doc},
    {Py_tp_methods, leaks_methods},
    {Py_tp_new, leaks_new},
    {Py_tp_traverse, leaks_traverse},
    {Py_tp_dealloc, leaks_dealloc},
    {0, NULL},
};

static PyType_Spec leaks_spec = {
    .name = "memlab._core.Leaks",
    .basicsize = sizeof(leaks_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = leaks_slots,
};

PyObject *
ml_leaks_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &leaks_spec, NULL);
}
