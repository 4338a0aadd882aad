/* Owns the Python module memlab._torch: passes the sources, the native stack functions
 * and the out-of-memory hook to memlab._core. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "bridge.h"
#include "sources/callbacks.h"

#ifndef MEMLAB_BUILT_FOR
#error "MEMLAB_BUILT_FOR must be torch.__version__ as a string: use _native/bridge.py"
#endif

namespace {

/* Process-wide, like the hooks in torch; guarded by the GIL. */
bool registered;
#ifdef MEMLAB_WITH_CUDA
PyObject *oom_callback; /* owned; NULL: not set */
bool oom_observer_queued;
#endif

void
after_fork_in_child(void)
{
    memlab::callbacks::forked();
    ml_cpu_forked();
#ifdef MEMLAB_WITH_CUDA
    ml_cuda_forked();
    ml_arrival_forked();
    ml_values_forked();
#endif
}

int
register_one(const ml_api *api, ml_source *source, PyObject *names)
{
    const int result = api->register_source(source);
    if (result != 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "memlab._core refused the source \"%s\" (error %d)", source->name,
                     result);
        return -1;
    }
    PyObject *name = PyUnicode_FromString(source->name);
    if (name == nullptr) {
        return -1;
    }
    const int appended = PyList_Append(names, name);
    Py_DECREF(name);
    return appended;
}

PyDoc_STRVAR(register_doc,
             "register($module, capsule, /)\n--\n\n"
             "Register torch's sources of memory events with memlab._core.\n\n"
             "capsule: memlab._core._api.  Returns the sources' names, a list of str:\n"
             "\"cpu\", and \"cuda\" where torch is built for CUDA.  A second call\n"
             "raises RuntimeError, a capsule of another ABI raises ImportError.");

PyObject *
register_sources(PyObject *, PyObject *capsule)
{
    const ml_api *api =
        static_cast<const ml_api *>(PyCapsule_GetPointer(capsule, ML_API_CAPSULE));
    if (api == nullptr) {
        return nullptr;
    }
    if (api->version != ML_ABI_VERSION || api->size < sizeof(ml_api)) {
        return PyErr_Format(PyExc_ImportError,
                            "memlab's bridge to torch has ABI %u and memlab._core has "
                            "%u; reinstall memlab so that both are of one version",
                            ML_ABI_VERSION, api->version);
    }
    if (registered) {
        PyErr_SetString(PyExc_RuntimeError, "torch's sources are registered already");
        return nullptr;
    }
    PyObject *names = PyList_New(0);
    if (names == nullptr) {
        return nullptr;
    }
    registered = true;
    ml_regions_bind(api);
    ml_torchscript_bind(api);
#ifdef MEMLAB_WITH_CUDA
    ml_arrival_bind(api, ml_cuda_source(api));
    if (register_one(api, ml_cuda_source(api), names) < 0) {
        Py_DECREF(names);
        return nullptr;
    }
#endif
    if (register_one(api, ml_cpu_source(api), names) < 0) {
        Py_DECREF(names);
        return nullptr;
    }
    return names;
}

PyDoc_STRVAR(built_for_doc, "built_for($module, /)\n--\n\n"
                            "torch.__version__ that this bridge was built for, a str.");

PyObject *
built_for(PyObject *, PyObject *)
{
    return PyUnicode_FromString(MEMLAB_BUILT_FOR);
}

PyDoc_STRVAR(
    cpu_counters_doc,
    "cpu_counters($module, /)\n--\n\n"
    "Counts of the CPU source, a dict: \"live\" and \"untracked\" are numbers\n"
    "of allocations, \"installed\" says whether torch allocates through it.");

PyObject *
cpu_counters(PyObject *, PyObject *)
{
    ml_cpu_counters counters;
    ml_cpu_count(&counters);
    return Py_BuildValue("{sKsKsO}", "live",
                         static_cast<unsigned long long>(counters.live), "untracked",
                         static_cast<unsigned long long>(counters.untracked),
                         "installed", counters.installed ? Py_True : Py_False);
}

PyDoc_STRVAR(
    set_oom_callback_doc,
    "set_oom_callback($module, callback, /)\n--\n\n"
    "Call callback(device, alloc_bytes, total_bytes, free_bytes) when CUDA is\n"
    "out of memory, before torch raises; None calls nothing.\n\n"
    "All four are int.  An exception in it is written to stderr and dropped.\n"
    "Does not initialise CUDA.  Raises RuntimeError where torch's current\n"
    "allocator has no such call, or torch is built without CUDA.");

#ifdef MEMLAB_WITH_CUDA

bool
interpreter_is_finalizing()
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

/* Runs the Python callback.  The caller may or may not hold the GIL, and may be a
 * thread unknown to Python. */
void
run_oom_callback(int64_t device, uint64_t alloc_bytes, uint64_t total_bytes,
                 uint64_t free_bytes)
{
    static thread_local bool running;
    if (running || !Py_IsInitialized() || interpreter_is_finalizing()) {
        return;
    }
    running = true;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *callback = oom_callback;
    if (callback != nullptr) {
        Py_INCREF(callback);
        PyObject *result =
            PyObject_CallFunction(callback, "LKKK", static_cast<long long>(device),
                                  static_cast<unsigned long long>(alloc_bytes),
                                  static_cast<unsigned long long>(total_bytes),
                                  static_cast<unsigned long long>(free_bytes));
        if (result == nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            /* The interrupt belongs to the program and returns to it. */
            PyErr_Clear();
            PyErr_SetInterrupt();
        }
        else if (result == nullptr) {
            /* torch is about to raise its own error, which must not be replaced. */
            PyErr_WriteUnraisable(callback);
        }
        Py_XDECREF(result);
        Py_DECREF(callback);
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
    running = false;
}

/* torch.cuda calls this during its initialisation.  An exception would make the
 * program's initialisation of CUDA fail, so problems are only reported. */
PyObject *
observe_oom(PyObject *, PyObject *)
{
    if (ml_cuda_observe_oom() != 0 &&
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "memlab: %s", ml_cuda_error()) < 0) {
        PyErr_WriteUnraisable(nullptr);
    }
    Py_RETURN_NONE;
}

PyMethodDef observe_oom_def = {"_observe_oom", observe_oom, METH_NOARGS, nullptr};

/* Makes torch.cuda call observe_oom() during initialisation; memlab never initialises
 * CUDA. */
int
queue_oom_observer()
{
    int result = -1;
    PyObject *cuda = PyImport_ImportModule("torch.cuda");
    PyObject *function =
        cuda != nullptr ? PyCFunction_New(&observe_oom_def, nullptr) : nullptr;
    if (function != nullptr) {
        PyObject *answer = PyObject_CallMethod(cuda, "_lazy_call", "O", function);
        if (answer != nullptr) {
            result = 0;
            Py_DECREF(answer);
        }
    }
    Py_XDECREF(function);
    Py_XDECREF(cuda);
    return result;
}

int
start_oom_observer()
{
    const int result = ml_cuda_observe_oom();
    if (result == 0 || (result == ML_ESTATE && oom_observer_queued)) {
        return 0;
    }
    if (result == ML_ESTATE) {
        if (queue_oom_observer() < 0) {
            return -1;
        }
        oom_observer_queued = true;
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError, ml_cuda_error());
    return -1;
}

PyObject *
set_oom_callback(PyObject *, PyObject *callback)
{
    if (callback != Py_None && !PyCallable_Check(callback)) {
        PyErr_SetString(PyExc_TypeError, "callback must be callable or None");
        return nullptr;
    }
    if (callback != Py_None && start_oom_observer() < 0) {
        return nullptr;
    }
    PyObject *old = oom_callback;
    oom_callback = callback == Py_None ? nullptr : Py_NewRef(callback);
    ml_cuda_set_oom_hook(oom_callback != nullptr ? run_oom_callback : nullptr);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyObject *
watch_cuda(PyObject *, PyObject *callback)
{
    if (!PyCallable_Check(callback)) {
        PyErr_SetString(PyExc_TypeError, "callback must be callable");
        return nullptr;
    }
    if (ml_arrival_watch(callback) != 0) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *
watch_compiled(PyObject *, PyObject *enabled)
{
    const int truth = PyObject_IsTrue(enabled);
    if (truth < 0) {
        return nullptr;
    }
    if (ml_compiled_watch(truth) < 0) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *
pinned_failed(int error)
{
    PyErr_SetString(PyExc_RuntimeError,
                    error == ML_EUNSUPPORTED
                        ? "this torch does not record pinned memory"
                        : "torch's allocator of pinned memory failed");
    return nullptr;
}

PyObject *
record_pinned(PyObject *, PyObject *args)
{
    int enabled, context, native, clear;
    Py_ssize_t max_entries;
    if (!PyArg_ParseTuple(args, "pipnp:record_pinned", &enabled, &context, &native,
                          &max_entries, &clear)) {
        return nullptr;
    }
    if (context < 0 || context > 3 || max_entries < 0) {
        PyErr_SetString(PyExc_ValueError, "no such context or number of entries");
        return nullptr;
    }
    const int result = ml_pinned_record(enabled, context, native,
                                        static_cast<size_t>(max_entries), clear);
    return result < 0 ? pinned_failed(result) : Py_NewRef(Py_None);
}

PyObject *
pinned_recording(PyObject *, PyObject *)
{
    const int result = ml_pinned_recording();
    return result < 0 ? pinned_failed(result) : PyBool_FromLong(result);
}

PyObject *
watch_values(PyObject *, PyObject *)
{
    const int result = ml_values_watch();
    if (result < 0) {
        return PyErr_NoMemory();
    }
    return PyBool_FromLong(result);
}

PyObject *
made_up_values(PyObject *, PyObject *)
{
    return ml_values_made_up();
}

#else

PyObject *
watch_values(PyObject *, PyObject *)
{
    Py_RETURN_FALSE;
}

PyObject *
made_up_values(PyObject *, PyObject *)
{
    return Py_BuildValue("(i[])", 0);
}

PyObject *
no_cuda()
{
    PyErr_SetString(PyExc_RuntimeError, "torch is built without CUDA");
    return nullptr;
}

PyObject *
watch_cuda(PyObject *, PyObject *)
{
    return no_cuda();
}

PyObject *
watch_compiled(PyObject *, PyObject *)
{
    return no_cuda();
}

PyObject *
record_pinned(PyObject *, PyObject *)
{
    return no_cuda();
}

PyObject *
pinned_recording(PyObject *, PyObject *)
{
    Py_RETURN_FALSE;
}

PyObject *
set_oom_callback(PyObject *, PyObject *)
{
    return no_cuda();
}

#endif /* MEMLAB_WITH_CUDA */

PyDoc_STRVAR(watch_cuda_doc,
             "watch_cuda($module, callback, /)\n--\n\n"
             "Begins the recordings that wait for CUDA where C++ initialises it, and\n"
             "then calls callback(), once; the first call counts.  RuntimeError where\n"
             "torch is built without CUDA.");

PyDoc_STRVAR(
    watch_compiled_doc,
    "watch_compiled($module, enabled, /)\n--\n\n"
    "Whether events of CUDA's allocator carry the region of torch.compile that\n"
    "their thread runs.  RuntimeError where torch is built without CUDA.");

PyDoc_STRVAR(record_pinned_doc,
             "record_pinned($module, enabled, context, native, max_entries, clear, /)\n"
             "--\n\n"
             "Switches torch's recorder of pinned host memory.  context: 0 to 3, for\n"
             "None, 'state', 'alloc', 'all'.  RuntimeError before torch 2.13.");

PyDoc_STRVAR(pinned_recording_doc,
             "pinned_recording($module, /)\n--\n\n"
             "Whether torch's recorder of pinned host memory is on, by whomever.\n"
             "RuntimeError before torch 2.13.");

PyDoc_STRVAR(watch_values_doc,
             "watch_values($module, /)\n--\n\n"
             "From now on small tensors of the phantom device have values, for good.\n"
             "Returns whether they do: False on a GPU, and where the phantom's memory\n"
             "has pages.");

PyDoc_STRVAR(
    made_up_values_doc,
    "made_up_values($module, /)\n--\n\n"
    "The values that the program read from the phantom device and that are not\n"
    "those of a GPU, a tuple: their number, and a list of (file, line, number)\n"
    "by the program's line, of the first 256 lines.");

PyMethodDef methods[] = {
    {"register", register_sources, METH_O, register_doc},
    {"built_for", built_for, METH_NOARGS, built_for_doc},
    {"cpu_counters", cpu_counters, METH_NOARGS, cpu_counters_doc},
    {"set_oom_callback", set_oom_callback, METH_O, set_oom_callback_doc},
    {"watch_cuda", watch_cuda, METH_O, watch_cuda_doc},
    {"watch_compiled", watch_compiled, METH_O, watch_compiled_doc},
    {"record_pinned", record_pinned, METH_VARARGS, record_pinned_doc},
    {"pinned_recording", pinned_recording, METH_NOARGS, pinned_recording_doc},
    {"watch_values", watch_values, METH_NOARGS, watch_values_doc},
    {"made_up_values", made_up_values, METH_NOARGS, made_up_values_doc},
    {nullptr, nullptr, 0, nullptr},
};

int
add_table(PyObject *module, const char *name, const char *capsule_name,
          const void *table)
{
    PyObject *capsule = PyCapsule_New(const_cast<void *>(table), capsule_name, nullptr);
    const int added = PyModule_AddObjectRef(module, name, capsule);
    Py_XDECREF(capsule);
    return added;
}

int
exec(PyObject *module)
{
    static bool loaded;
    if (loaded) {
        PyErr_SetString(PyExc_ImportError,
                        "memlab._torch can be loaded once a process: torch's hooks "
                        "cannot be taken back");
        return -1;
    }
    if (ml_clock_init() != 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (add_table(module, "_graph", ML_GRAPH_CAPSULE, ml_graph_table()) < 0 ||
        add_table(module, "_native", ML_NATIVE_CAPSULE, ml_native_table()) < 0 ||
        add_table(module, "_tensors", ML_TENSORS_CAPSULE, ml_tensors_table()) < 0) {
        return -1;
    }
#ifdef MEMLAB_WITH_CUDA
    if (add_table(module, "_storages", ML_STORAGES_CAPSULE, ml_storages_table()) < 0) {
        return -1;
    }
#endif
    if (pthread_atfork(memlab::callbacks::before_fork, memlab::callbacks::after_fork,
                       after_fork_in_child) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    loaded = true;
    return 0;
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void *>(exec)},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "memlab._torch",
    "memlab's bridge to torch's allocators.",
    0,
    methods,
    slots,
    nullptr,
    nullptr,
    nullptr,
};

} // namespace

PyMODINIT_FUNC
PyInit__torch(void)
{
    return PyModuleDef_Init(&definition);
}
