/* memlab._core.Courtesy: finds Python's GPU memory, and holds the memory that the
 * bridge moved to the host until it returns.
 *
 * Owns the search among Python's objects and the answers about it.
 * csrc/torch/objects/storages.cpp moves memory. */
#include "state.h"

#include <stdbool.h>

#include "base/system/host_memory.h"
#include "lend/courtesy.h"
#include "objects/collector.h"
#include "torch/bridge.h"

typedef struct courtesy {
    PyObject_HEAD
    const ml_storages *storages; /* the bridge's at the last yield; NULL: none */
    ml_yielded *yielded;         /* owned; NULL: all memory is in place */
    uint64_t bytes;              /* given back by the last yield */
    ml_left left;                /* by it */
    bool busy;                   /* a call is in progress; it lets other threads run */
} courtesy;

const char ml_courtesy_use_doc[] = "use_storages($module, capsule, /)\n--\n\n"
                                   "Takes the bridge's way to move the memory of "
                                   "tensors, for Courtesy.";

PyObject *
ml_courtesy_use(PyObject *module, PyObject *capsule)
{
    const ml_storages *table =
        ml_py_bridge_table(module, capsule, ML_STORAGES_CAPSULE, sizeof(ml_storages));
    if (table == NULL) {
        return NULL;
    }
    ((ml_state *)PyModule_GetState(module))->storages = table;
    Py_RETURN_NONE;
}

static PyObject *
raise_failure(courtesy *self, int error)
{
    const char *text = self->storages->error();
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    return ml_py_raise(ml_state_of(Py_TYPE(self)), error, text);
}

/* Puts tensors before storages; returns the number of tensors. */
static size_t
sort_out(PyObject *found, PyTypeObject *storage_type, const void **objects)
{
    size_t count = (size_t)PyList_GET_SIZE(found);
    size_t tensors = 0, last = count;
    for (size_t i = 0; i < count; i++) {
        PyObject *object = PyList_GET_ITEM(found, (Py_ssize_t)i);
        bool is_storage = PyType_IsSubtype(Py_TYPE(object), storage_type);
        objects[is_storage ? --last : tensors++] = object;
    }
    return tensors;
}

static int
move_to_host(courtesy *self, PyTypeObject *tensor_type, PyTypeObject *storage_type)
{
    PyTypeObject *types[] = {tensor_type, storage_type};
    PyObject *found = ml_collector_find(types, 2);
    if (found == NULL) {
        return -1;
    }
    size_t count = (size_t)PyList_GET_SIZE(found);
    const void **objects = PyMem_New(const void *, count + 1);
    if (objects == NULL) {
        Py_DECREF(found);
        PyErr_NoMemory();
        return -1;
    }
    size_t tensors = sort_out(found, storage_type, objects);
    ml_objects all = {objects, tensors, objects + tensors, count - tensors};
    int result = self->storages->yield(&all, ml_host_memory_left(), &self->yielded,
                                       &self->bytes, &self->left);
    PyMem_Free(objects);
    Py_DECREF(found);
    if (result < 0) {
        raise_failure(self, result);
    }
    return result;
}

/* Runs CALL without the GIL. */
static int
call_without_gil(courtesy *self, int (*call)(void))
{
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = call();
    Py_END_ALLOW_THREADS
    if (result < 0) {
        raise_failure(self, result);
    }
    return result;
}

/* The graph's memory pool exists from the end of its capture until its reset. */
static bool
is_captured(PyObject *graph)
{
    PyObject *pool = PyObject_CallMethod(graph, "pool", NULL);
    bool captured = pool != NULL;
    Py_XDECREF(pool);
    PyErr_Clear();
    return captured;
}

PyDoc_STRVAR(
    count_graphs_doc,
    "_count_graphs(graph_type, /)\n--\n\n"
    "The number of instances of that type, torch.cuda.CUDAGraph, that have been "
    "captured\nand not been reset.");

static PyObject *
courtesy_count_graphs(PyObject *Py_UNUSED(null), PyObject *type)
{
    if (!PyType_Check(type)) {
        return PyErr_Format(PyExc_TypeError, "a type is needed");
    }
    PyTypeObject *types[] = {(PyTypeObject *)type};
    PyObject *found = ml_collector_find(types, 1);
    if (found == NULL) {
        return NULL;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found); i++) {
        count += is_captured(PyList_GET_ITEM(found, i));
    }
    Py_DECREF(found);
    return PyLong_FromSsize_t(count);
}

PyDoc_STRVAR(
    yield_tensors_doc,
    "_yield_tensors($self, tensor_type, storage_type, /)\n--\n\n"
    "Makes CPU tensors of all CUDA tensors and empties torch's cache.\n\n"
    "The types are torch.Tensor and torch.UntypedStorage. Does nothing where they "
    "are\n"
    "yielded, or no bridge was given to use_storages(). Raises memlab.Error where it\n"
    "cannot, and all is as before.");

static PyObject *
courtesy_yield_tensors(PyObject *object, PyObject *args)
{
    courtesy *self = (courtesy *)object;
    PyTypeObject *tensor_type, *storage_type;
    if (!PyArg_ParseTuple(args, "O!O!:_yield_tensors", &PyType_Type, &tensor_type,
                          &PyType_Type, &storage_type)) {
        return NULL;
    }
    const ml_storages *storages = ml_state_of(Py_TYPE(object))->storages;
    if (self->yielded != NULL || self->busy || storages == NULL) {
        Py_RETURN_NONE;
    }
    self->storages = storages;
    self->busy = true;
    /* First without the GIL: the device may wait for a thread that needs it. */
    bool done = call_without_gil(self, storages->synchronize) == 0 &&
                move_to_host(self, tensor_type, storage_type) == 0 &&
                call_without_gil(self, storages->empty_cache) == 0;
    self->busy = false;
    if (!done) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    restore_tensors_doc,
    "_restore_tensors($self, /)\n--\n\n"
    "Makes CUDA tensors again of those that _yield_tensors() found and that are "
    "left.\n\n"
    "Does nothing where none are yielded. Raises memlab.Error where a GPU has "
    "no room\n"
    "for them; they stay yielded, and it can be called again.");

static PyObject *
courtesy_restore_tensors(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    courtesy *self = (courtesy *)object;
    if (self->yielded == NULL || self->busy) {
        Py_RETURN_NONE;
    }
    self->busy = true;
    /* The allocator may give out memory again that later queued work still uses. */
    int result = call_without_gil(self, self->storages->synchronize);
    if (result == 0) {
        result = self->storages->restore(self->yielded);
        if (result < 0) {
            raise_failure(self, result);
        }
    }
    self->busy = false;
    if (result < 0) {
        return NULL;
    }
    self->storages->free(self->yielded);
    self->yielded = NULL;
    Py_RETURN_NONE;
}

static PyObject *
courtesy_get_yielded(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((courtesy *)self)->yielded != NULL);
}

static PyObject *
courtesy_get_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((courtesy *)self)->bytes);
}

static PyObject *
courtesy_get_left(PyObject *self, void *Py_UNUSED(closure))
{
    const ml_left *left = &((courtesy *)self)->left;
    PyObject *dict = PyDict_New();
#define XX(name) \
    if (dict != NULL && left->name > 0 && \
        ml_py_set(dict, #name, PyLong_FromUnsignedLongLong(left->name)) < 0) { \
        Py_CLEAR(dict); \
    }
    ML_LEFT(XX)
#undef XX
    return dict;
}

static PyObject *
courtesy_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static int
courtesy_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

/* Yielded memory then stays on the CPU: no exception may be raised here, and the GPU
 * may be full. */
static void
warn_of_loss(PyObject *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyErr_ResourceWarning(
            self, 1,
            "memlab.Courtesy is gone before restore() was called: the tensors whose "
            "GPU memory it gave back stay on the CPU") < 0) {
        PyErr_WriteUnraisable(self);
    }
    PyErr_Restore(type, value, traceback);
}

static void
courtesy_finalize(PyObject *object)
{
    courtesy *self = (courtesy *)object;
    if (self->yielded != NULL) {
        warn_of_loss(object);
    }
}

static void
courtesy_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    courtesy *self = (courtesy *)object;
    PyObject_GC_UnTrack(object);
    if (self->yielded != NULL) {
        self->storages->free(self->yielded);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef courtesy_methods[] = {
    {"_count_graphs", courtesy_count_graphs, METH_O | METH_STATIC, count_graphs_doc},
    {"_yield_tensors", courtesy_yield_tensors, METH_VARARGS, yield_tensors_doc},
    {"_restore_tensors", courtesy_restore_tensors, METH_NOARGS, restore_tensors_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef courtesy_getset[] = {
    {"yielded", courtesy_get_yielded, NULL,
     "Whether the memory of tensors is given back at the moment, a bool.", NULL},
    {"yielded_bytes", courtesy_get_bytes, NULL,
     "Bytes that the last yield gave back to torch's allocator, an int: by so many\n"
     "torch.cuda.memory_allocated() fell, over all GPUs.",
     NULL},
    {"left", courtesy_get_left, NULL,
     "Bytes that the last yield left on the GPUs by why, a dict of str and int "
     "without\n"
     "zeros. \"private_pool\": of CUDA graphs and MemPools, which hold raw addresses;\n"
     "\"shared\": other storages or processes have the same memory; \"external\": not "
     "of\n"
     "torch's allocator; \"unreached\": C++ alone has it, and no tensor of Python\n"
     "leads to it.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(courtesy_doc, "Courtesy()\n--\n\n"
                           "Gives the memory of CUDA tensors back for a while; the "
                           "base of memlab.Courtesy.");

static PyType_Slot courtesy_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)courtesy_doc},
    {Py_tp_new, courtesy_new},
    {Py_tp_methods, courtesy_methods},
    {Py_tp_getset, courtesy_getset},
    {Py_tp_traverse, courtesy_traverse},
    {Py_tp_finalize, courtesy_finalize},
    {Py_tp_dealloc, courtesy_dealloc},
    {0, NULL},
};

static PyType_Spec courtesy_spec = {
    .name = "memlab._core.Courtesy",
    .basicsize = sizeof(courtesy),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = courtesy_slots,
};

PyObject *
ml_courtesy_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &courtesy_spec, NULL);
}
