/* Releases the CUDA context, for Python.  See context.h. */
#include "lend/context.h"

#include <limits.h>

#include "core/gpu/checkpoint.h"
#include "core/gpu/gpu_memory.h"

const char ml_py_context_check_doc[] =
    "context_check($module, /)\n--\n\n"
    "None where the CUDA context can be given back, or a str that says why there is\n"
    "none to give. Raises memlab.Error where it cannot be given. Changes nothing.";

PyObject *
ml_py_context_check(PyObject *module, PyObject *Py_UNUSED(unused))
{
    char problem[ML_CHECKPOINT_TEXT];
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_checkpoint_check(problem, sizeof(problem));
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(PyModule_GetState(module), result, problem);
    }
    return result == 1 ? Py_NewRef(Py_None) : PyUnicode_FromString(problem);
}

/* The result of a context change: None, or the error that PROBLEM explains. */
static PyObject *
none_or_raise(PyObject *module, int result, const char *problem)
{
    if (result < 0) {
        return ml_py_raise(PyModule_GetState(module), result, problem);
    }
    Py_RETURN_NONE;
}

const char ml_py_context_give_doc[] =
    "context_give($module, limit_ms, /)\n--\n\n"
    "Gives the CUDA context of this process, and all that it holds, back to the GPUs.\n"
    "Every CUDA call then waits until context_take(). A thread inside CUDA is waited "
    "for,\n"
    "limit_ms milliseconds at most. Raises memlab.Error where the driver refuses; the\n"
    "context is then where it was, unless context_away().";

PyObject *
ml_py_context_give(PyObject *module, PyObject *limit)
{
    unsigned long limit_ms = PyLong_AsUnsignedLong(limit);
    if (limit_ms == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (limit_ms > UINT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "limit_ms is too large");
        return NULL;
    }
    char problem[ML_CHECKPOINT_TEXT];
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_checkpoint_give((unsigned)limit_ms, problem, sizeof(problem));
    Py_END_ALLOW_THREADS
    return none_or_raise(module, result, problem);
}

const char ml_py_context_take_doc[] =
    "context_take($module, /)\n--\n\n"
    "Takes the CUDA context back that context_give() gave. Raises memlab.Error where "
    "that\n"
    "fails, for example because the GPU's memory is taken; it can be tried again.";

PyObject *
ml_py_context_take(PyObject *module, PyObject *Py_UNUSED(unused))
{
    char problem[ML_CHECKPOINT_TEXT];
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_checkpoint_take(problem, sizeof(problem));
    Py_END_ALLOW_THREADS
    return none_or_raise(module, result, problem);
}

const char ml_py_context_away_doc[] =
    "context_away($module, /)\n--\n\n"
    "Whether context_give() gave the CUDA context and nobody took it back, as a bool.";

PyObject *
ml_py_context_away(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(ml_checkpoint_is_away());
}

const char ml_py_gpu_memory_doc[] =
    "gpu_memory($module, device, pid, /)\n--\n\n"
    "What the driver's management library NVML says of a GPU, as a dict of bytes: "
    "used_bytes\n"
    "and total_bytes of the device, own_bytes of this process and others_bytes, these "
    "two\n"
    "None where it does not tell. device is an index; or the name that gpu_name() "
    "gave,\n"
    "which needs no CUDA, and own_bytes are then those of the process pid. Raises\n"
    "memlab.Error where NVML is not there, or while the CUDA context of this process "
    "is "
    "away.";

/* PyLong_AsInt is public from CPython 3.13 on. */
static int
as_int(PyObject *number)
{
    long value = PyLong_AsLong(number);
    if (value > INT_MAX || value < INT_MIN) {
        PyErr_SetString(PyExc_OverflowError, "the number is too large");
        return -1;
    }
    return (int)value;
}

static PyObject *
known(uint64_t bytes)
{
    return bytes == ML_GPU_UNKNOWN ? Py_NewRef(Py_None)
                                   : PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *
memory_dict(const ml_gpu_memory *memory)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL && (ml_py_set(dict, "used_bytes", known(memory->used)) < 0 ||
                         ml_py_set(dict, "total_bytes", known(memory->total)) < 0 ||
                         ml_py_set(dict, "own_bytes", known(memory->own)) < 0 ||
                         ml_py_set(dict, "others_bytes", known(memory->others)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_gpu_memory(PyObject *module, PyObject *args)
{
    PyObject *device;
    int pid, index = -1, result;
    if (!PyArg_ParseTuple(args, "Oi:gpu_memory", &device, &pid)) {
        return NULL;
    }
    const char *name = NULL, *reason = NULL;
    if (PyUnicode_Check(device)) {
        name = PyUnicode_AsUTF8(device);
    }
    else {
        index = as_int(device);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    ml_gpu_memory memory;
    Py_BEGIN_ALLOW_THREADS
    result = name != NULL ? ml_gpu_memory_read_named(name, pid, &memory, &reason)
                          : ml_gpu_memory_read(index, &memory, &reason);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(PyModule_GetState(module), result, reason);
    }
    return memory_dict(&memory);
}

const char ml_py_gpu_name_doc[] = "gpu_name($module, device, /)\n--\n\n"
                                  "The name that NVML has for the CUDA device of that "
                                  "index in any process, as a str, or\n"
                                  "None where it has none.";

PyObject *
ml_py_gpu_name(PyObject *Py_UNUSED(module), PyObject *device)
{
    int index = as_int(device);
    if (index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    char name[ML_GPU_NAME];
    bool found;
    Py_BEGIN_ALLOW_THREADS
    found = ml_gpu_memory_name(index, name);
    Py_END_ALLOW_THREADS
    return found ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}
