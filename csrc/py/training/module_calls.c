/* Notices calls of torch.nn.Modules.  See module_calls.h. */
#include "training/module_calls.h"

#include <pthread.h>
#include <stdbool.h>

#include "core/base/system/clock.h"
#include "core/record/window.h"
#include "core/stacks/stacks.h"
#include "frames/frames.h"
#include "training/owners.h"

/* Most nested calls considered. */
#define CALLS 64
/* A program that keeps making modules gets this many looks at all modules without
 * delay.  After that, each look waits for this many times the duration of the last: 1 %
 * of the time. */
#define FREE_LOOKS 32
#define REST 100

/* One interpreter records. */
static struct {
    PyObject *module;     /* owned; memlab._core; NULL: never watched yet */
    ml_owner_types types; /* owned */
    PyObject *snapshots;  /* owned; list of weak references to the watching snapshots */
    allocfunc ordinary; /* torch.Tensor's tp_alloc at the first watch; never changes */
    /* a look is in progress, on this or another thread, which had to wait */
    bool looking;
    unsigned looks;
    uint64_t next; /* time of the next delayed look */
} watched;

static PyObject *alloc_noticing(PyTypeObject *type, Py_ssize_t items);

/* Another tool's tp_alloc stays: it calls the one before, memlab's or torch's. */
static void
choose_alloc(void)
{
    PyTypeObject *tensor = (PyTypeObject *)watched.types.tensor;
    if (tensor->tp_alloc == watched.ordinary || tensor->tp_alloc == alloc_noticing) {
        bool notice = PyList_GET_SIZE(watched.snapshots) > 0;
        tensor->tp_alloc = notice ? alloc_noticing : watched.ordinary;
    }
}

/* The looking thread does not exist in the child. */
static void
forked(void)
{
    watched.looking = false;
}

/* The referent of REFERENCE, a new reference; NULL: it is gone. */
static PyObject *
referent(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *snapshot = NULL;
    (void)PyWeakref_GetRef(reference, &snapshot);
    return snapshot;
#else
    PyObject *snapshot = PyWeakref_GET_OBJECT(reference);
    return snapshot != Py_None ? Py_NewRef(snapshot) : NULL;
#endif
}

/* New list of the watching recordings.  Dead ones are removed, and so is FORGOTTEN,
 * unless NULL.  NULL if there are none, or no memory. */
static PyObject *
watching(PyObject *forgotten)
{
    Py_ssize_t count =
        watched.snapshots != NULL ? PyList_GET_SIZE(watched.snapshots) : 0;
    PyObject *found = count > 0 ? PyList_New(0) : NULL;
    for (Py_ssize_t i = count; found != NULL && i-- > 0;) {
        PyObject *snapshot = referent(PyList_GET_ITEM(watched.snapshots, i));
        if (snapshot == NULL || snapshot == forgotten) {
            (void)PySequence_DelItem(watched.snapshots, i);
        }
        else if (PyList_Append(found, snapshot) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(snapshot);
    }
    PyErr_Clear();
    if (count > 0 && PyList_GET_SIZE(watched.snapshots) == 0) {
        choose_alloc();
    }
    return found;
}

/* A watching snapshot died. */
static PyObject *
snapshot_died(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(reference))
{
    Py_XDECREF(watching(NULL));
    Py_RETURN_NONE;
}

/* Whether a look could find something: a module that owns nothing needs only its
 * class's name. */
static bool
is_unknown(PyObject *object)
{
    ml_object_key key = {.address = (uintptr_t)object,
                         .type = (uintptr_t)Py_TYPE(object)};
    ml_stacks *stacks = ml_recorder_stacks();
    uint32_t id = ml_stacks_object(stacks, key, NULL);
    return ml_stacks_object_name(stacks, id) == 0 && ml_owners_may_own(object);
}

static void
look_at(PyObject *snapshots)
{
    uint64_t begun = ml_clock_steady_ns();
    if (watched.looks >= FREE_LOOKS && begun < watched.next) {
        return;
    }
    watched.looks += watched.looks < FREE_LOOKS;
    /* Without memory, the next call tries again. */
    (void)ml_owners_look(watched.module, snapshots, &watched.types, false);
    uint64_t ended = ml_clock_steady_ns();
    watched.next = ended + REST * (ended - begun);
}

static void
look_at_calls(void)
{
    ml_call calls[CALLS];
    size_t count = ml_frames_calls(calls, CALLS);
    PyObject *snapshots = count > 0 ? watching(NULL) : NULL;
    bool unknown = false;
    for (size_t i = 0; snapshots != NULL && i < count && !unknown; i++) {
        unknown = is_unknown(calls[i].object);
    }
    if (unknown) {
        look_at(snapshots);
    }
    if (snapshots != NULL) {
        /* The frame holds these objects. */
        const ml_call *outermost = &calls[count - 1];
        ml_owners_given(watched.module, snapshots, &watched.types, outermost->args);
        ml_owners_given(watched.module, snapshots, &watched.types, outermost->kwargs);
    }
    Py_XDECREF(snapshots);
    PyErr_Clear();
}

static PyObject *
alloc_noticing(PyTypeObject *type, Py_ssize_t items)
{
    if (!watched.looking && ml_frames_called()) {
        PyObject *error, *value, *traceback;
        PyErr_Fetch(&error, &value, &traceback);
        watched.looking = true;
        look_at_calls();
        watched.looking = false;
        PyErr_Restore(error, value, traceback);
    }
    return watched.ordinary(type, items);
}

/* OBJECT, a module, is dying. */
static void
end(PyObject *object)
{
    PyObject *snapshots = watching(NULL);
    if (snapshots != NULL) {
        ml_owners_dying(watched.module, snapshots, &watched.types, object);
    }
    Py_XDECREF(snapshots);
}

const char ml_module_calls_watch_doc[] =
    "watch_calls($module, snapshot, tensor_type, module_type, optimizer_type, "
    "/)\n--\n\n"
    "Looks at all modules and optimizers, as tag_owners() does, whenever a module is "
    "called\n"
    "that was not met yet, and once more at each as it dies. Tags the tensors that "
    "the\n"
    "outermost call of each thread is given. Until forget_calls(snapshot), or the "
    "snapshot\n"
    "is gone.";

PyObject *
ml_module_calls_watch(PyObject *module, PyObject *args)
{
    PyObject *snapshot;
    ml_owner_types types;
    if (!PyArg_ParseTuple(args, "OO!O!O!:watch_calls", &snapshot, &PyType_Type,
                          &types.tensor, &PyType_Type, &types.module, &PyType_Type,
                          &types.optimizer)) {
        return NULL;
    }
    if (watched.snapshots == NULL) {
        watched.snapshots = PyList_New(0);
        if (watched.snapshots == NULL) {
            return NULL;
        }
        watched.module = Py_NewRef(module);
        watched.types = (ml_owner_types){.tensor = Py_NewRef(types.tensor),
                                         .module = Py_NewRef(types.module),
                                         .optimizer = Py_NewRef(types.optimizer)};
        watched.ordinary = ((PyTypeObject *)types.tensor)->tp_alloc;
        pthread_atfork(NULL, NULL, forked);
        ((ml_state *)PyModule_GetState(module))->module_died = end;
    }
    if (PyList_GET_SIZE(watched.snapshots) == 0) {
        ((ml_state *)PyModule_GetState(module))->optimizer_stepped = false;
    }
    static PyMethodDef died = {"snapshot_died", snapshot_died, METH_O, NULL};
    PyObject *callback = PyCFunction_New(&died, NULL);
    PyObject *reference =
        callback != NULL ? PyWeakref_NewRef(snapshot, callback) : NULL;
    int result = reference != NULL ? PyList_Append(watched.snapshots, reference) : -1;
    Py_XDECREF(reference);
    Py_XDECREF(callback);
    if (result < 0) {
        return NULL;
    }
    choose_alloc();
    Py_RETURN_NONE;
}

const char ml_module_calls_forget_doc[] =
    "forget_calls($module, snapshot, /)\n--\n\n"
    "Ends watch_calls(snapshot); nothing where there was none.";

PyObject *
ml_module_calls_forget(PyObject *Py_UNUSED(module), PyObject *snapshot)
{
    Py_XDECREF(watching(snapshot));
    Py_RETURN_NONE;
}
