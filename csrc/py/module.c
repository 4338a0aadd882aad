/* The module memlab._core: its state, its functions, and the capsule by which sources
 * of events register.  Types have files of their own. */
#include "state.h"

#include <string.h>

#include "core/base/system/spill.h"
#include "core/file/snapshot/unpickle.h"
#include "core/record/recorder.h"
#include "dicts/columns.h"
#include "dicts/gpu_dict.h"
#include "dicts/unheld_dict.h"
#include "files/load.h"
#include "files/whole_file.h"
#include "frames/forward.h"
#include "frames/frames.h"
#include "frames/linemaps.h"
#include "frames/native.h"
#include "holders/holders.h"
#include "lend/context.h"
#include "lend/courtesy.h"
#include "objects/tensors.h"
#include "objects/tensors_at.h"
#include "training/annotations.h"
#include "training/module_calls.h"
#include "training/owners.h"
#include "training/paths.h"
#include "training/shards.h"
#include "training/step_hooks.h"
#include "recordings/merge.h"

PyMODINIT_FUNC PyInit__core(void);

/* ---- Functions ---- */

PyDoc_STRVAR(
    load_doc,
    "load($module, data, /)\n--\n\n"
    "The plain data in a pickle, built without importing or calling anything.\n\n"
    "data is a bytes-like object. Raises memlab.SnapshotError for anything but plain "
    "data,\n"
    "TypeError for what has no bytes, MemoryError.");

static PyObject *
core_load(PyObject *module, PyObject *data)
{
    ml_state *state = PyModule_GetState(module);
    return ml_py_load(data, state->snapshot_error);
}

static const ml_source *
source_named(ml_state *state, const char *name)
{
    const ml_source *source = ml_recorder_source(name);
    if (source == NULL) {
        PyErr_Format(state->error,
                     "no source of events named '%s' here; memlab.backends() says why",
                     name);
    }
    return source;
}

PyDoc_STRVAR(
    stats_doc,
    "stats($module, source, device, /)\n--\n\n"
    "The recorder's own counters of one device, as a dict of integers.\n\n"
    "Keys: events, dropped_events, lost_stacks, lost_names (of all devices) and\n"
    "inconsistencies, counted since the process began, over all recordings (what one\n"
    "lost is in its counts());\n"
    "lane_events (in memory now); and in bytes lane_bytes (of the memory that holds "
    "them,\n"
    "stacks apart), allocated_bytes, active_bytes, requested_bytes, reserved_bytes, "
    "each\n"
    "of these also with _peak: of GPUs since recording, after none was under way, "
    "last\n"
    "began, of the cpu since the process began. device is an index. Raises ValueError\n"
    "where nothing was recorded, memlab.Error where there is no such source.");

static PyObject *
core_stats(PyObject *module, PyObject *args)
{
    ml_state *state = PyModule_GetState(module);
    const char *name;
    int device;
    if (!PyArg_ParseTuple(args, "si:stats", &name, &device)) {
        return NULL;
    }
    const ml_source *source = source_named(state, name);
    if (source == NULL) {
        return NULL;
    }
    ml_recorder_stats stats;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_recorder_stats_of(source, device, &stats);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, NULL);
    }
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "events", PyLong_FromUnsignedLongLong(stats.events)) < 0 ||
        ml_py_set(dict, "dropped_events",
                  PyLong_FromUnsignedLongLong(stats.dropped_events)) < 0 ||
        ml_py_set(dict, "lost_stacks", PyLong_FromUnsignedLongLong(stats.lost_stacks)) <
            0 ||
        ml_py_set(dict, "lost_names", PyLong_FromUnsignedLongLong(stats.lost_names)) <
            0 ||
        ml_py_set(dict, "inconsistencies",
                  PyLong_FromUnsignedLongLong(stats.inconsistencies)) < 0 ||
        ml_py_set(dict, "lane_events", PyLong_FromUnsignedLongLong(stats.lane_events)) <
            0 ||
        ml_py_set(dict, "lane_bytes", PyLong_FromUnsignedLongLong(stats.lane_bytes)) <
            0) {
        goto fail;
    }
#define XX(name) \
    if (ml_py_set(dict, #name "_bytes", \
                  PyLong_FromUnsignedLongLong(stats.current.name)) < 0 || \
        ml_py_set(dict, #name "_bytes_peak", \
                  PyLong_FromUnsignedLongLong(stats.peak.name)) < 0) { \
        goto fail; \
    }
    ML_TOTALS(XX)
#undef XX
    return dict;
fail:
    Py_DECREF(dict);
    return NULL;
}

PyDoc_STRVAR(ready_doc, "ready($module, source, /)\n--\n\n"
                        "Tells the recorder that the devices of a source exist now, so "
                        "that recordings which\n"
                        "wait for them begin. Raises memlab.Error where they cannot.");

static PyObject *
core_ready(PyObject *module, PyObject *arg)
{
    ml_state *state = PyModule_GetState(module);
    const char *name = PyUnicode_AsUTF8(arg);
    const ml_source *source = name != NULL ? source_named(state, name) : NULL;
    if (source == NULL) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_recorder_ready(source);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, NULL);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(has_source_doc,
             "has_source($module, name, /)\n--\n\n"
             "Whether a source of events of that name is registered, as "
             "a bool.");

static PyObject *
core_has_source(PyObject *Py_UNUSED(module), PyObject *arg)
{
    const char *name = PyUnicode_AsUTF8(arg);
    if (name == NULL) {
        return NULL;
    }
    return PyBool_FromLong(ml_recorder_source(name) != NULL);
}

static PyMethodDef functions[] = {
    {"load", core_load, METH_O, load_doc},
    {"stats", core_stats, METH_VARARGS, stats_doc},
    {"ready", core_ready, METH_O, ready_doc},
    {"has_source", core_has_source, METH_O, has_source_doc},
    {"write_file", ml_write_file, METH_VARARGS, ml_write_file_doc},
    {"merge", ml_py_merge, METH_O, ml_py_merge_doc},
    {"use_native_stacks", ml_native_use, METH_O, ml_native_use_doc},
    {"use_storages", ml_courtesy_use, METH_O, ml_courtesy_use_doc},
    {"use_graph", ml_holders_use, METH_O, ml_holders_use_doc},
    {"tensors_at", ml_py_tensors_at, METH_VARARGS, ml_py_tensors_at_doc},
    {"find_holders", ml_holders_find, METH_VARARGS, ml_holders_find_doc},
    {"use_tensors", ml_tensors_use, METH_O, ml_tensors_use_doc},
    {"tag_step", ml_owners_step, METH_VARARGS, ml_owners_step_doc},
    {"tag_owners", ml_owners_scan, METH_VARARGS, ml_owners_scan_doc},
    {"name_modules", ml_owners_name_modules, METH_O, ml_owners_name_modules_doc},
    {"take_linemaps", ml_linemaps_take, METH_O, ml_linemaps_take_doc},
    {"watch_calls", ml_module_calls_watch, METH_VARARGS, ml_module_calls_watch_doc},
    {"forget_calls", ml_module_calls_forget, METH_O, ml_module_calls_forget_doc},
    {"put_step_hook", ml_step_hooks_put, METH_VARARGS, ml_step_hooks_put_doc},
    {"noting", ml_py_noting, METH_NOARGS, ml_py_noting_doc},
    {"begin_phase", ml_py_begin_phase, METH_O, ml_py_begin_phase_doc},
    {"end_phase", (PyCFunction)(void (*)(void))ml_py_end_phase, METH_FASTCALL,
     ml_py_end_phase_doc},
    {"mark", ml_py_mark, METH_O, ml_py_mark_doc},
    {"note_step", ml_py_note_step, METH_NOARGS, ml_py_note_step_doc},
    {"note_before_oom", ml_py_note_before_oom, METH_VARARGS, ml_py_note_before_oom_doc},
    {"note_no_room", ml_py_note_no_room, METH_VARARGS, ml_py_note_no_room_doc},
    {"note_holder", ml_py_note_holder, METH_VARARGS, ml_py_note_holder_doc},
    {"sample", ml_py_sample, METH_O, ml_py_sample_doc},
    {"ledger", ml_py_ledger, METH_VARARGS, ml_py_ledger_doc},
    {"unheld", ml_py_unheld_now, METH_VARARGS, ml_py_unheld_now_doc},
    {"context_check", ml_py_context_check, METH_NOARGS, ml_py_context_check_doc},
    {"context_give", ml_py_context_give, METH_O, ml_py_context_give_doc},
    {"context_take", ml_py_context_take, METH_NOARGS, ml_py_context_take_doc},
    {"context_away", ml_py_context_away, METH_NOARGS, ml_py_context_away_doc},
    {"gpu_memory", ml_py_gpu_memory, METH_VARARGS, ml_py_gpu_memory_doc},
    {"gpu_name", ml_py_gpu_name, METH_O, ml_py_gpu_name_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- The module ---- */

static const ml_api api = {
    .size = sizeof(ml_api),
    .version = ML_ABI_VERSION,
    .register_source = ml_recorder_add_source,
    .record = ml_recorder_record,
    .enabled = ml_recorder_enabled,
    .out_of_memory = ml_recorder_note_oom,
    .region = ml_recorder_region,
    .used = ml_recorder_used,
    .use_unseen = ml_recorder_use_unseen,
    .ready = ml_recorder_ready,
    .torchscript_begun = ml_recorder_torchscript_begun,
};

/* Takes CONSTANT even on failure; NULL passes an exception on. */
static int
add_constant(PyObject *module, const char *name, PyObject *constant)
{
    int result = constant == NULL ? -1 : PyModule_AddObjectRef(module, name, constant);
    Py_XDECREF(constant);
    return result;
}

static int
add_type(PyObject *module, const char *name, PyObject **slot, PyObject *type)
{
    if (type == NULL) {
        return -1;
    }
    *slot = type;
    return PyModule_AddObjectRef(module, name, type);
}

/* From 3.12 on, the slot below makes CPython refuse subinterpreters, but only those
 * that ask for the check.  Others would get a second set of types for the one
 * recorder. */
static int
refuse_subinterpreters(PyObject *module)
{
    (void)module;
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "memlab records the whole process and works in its main "
                        "interpreter only; import it there");
        return -1;
    }
    return 0;
}

static int
add_types(PyObject *module, ml_state *state)
{
    if (add_type(module, "Courtesy", &state->courtesy_type,
                 ml_courtesy_type_new(module)) < 0 ||
        add_type(module, "Recording", &state->recording_type,
                 ml_recording_type_new(module)) < 0 ||
        add_type(module, "MemorySnapshot", &state->snapshot_type,
                 ml_snapshot_type_new(module)) < 0 ||
        add_type(module, "Script", &state->script_type, ml_script_type_new(module)) <
            0 ||
        add_type(module, "Leaks", &state->leaks_type, ml_leaks_type_new(module)) < 0 ||
        add_type(module, "Follower", &state->follower_type,
                 ml_follower_type_new(module)) < 0 ||
        add_type(module, "LineProfiler", &state->line_profiler_type,
                 ml_line_profiler_type_new(module)) < 0 ||
        add_type(module, "MemReporter", &state->mem_reporter_type,
                 ml_mem_reporter_type_new(module)) < 0) {
        return -1;
    }
    return 0;
}

static int
core_exec(PyObject *module)
{
    ml_state *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("memlab._errors");
    if (errors == NULL) {
        return -1;
    }
    state->error = PyObject_GetAttrString(errors, "Error");
    state->snapshot_error = PyObject_GetAttrString(errors, "SnapshotError");
    Py_DECREF(errors);
    state->watched_modules = PyDict_New();
    if (state->error == NULL || state->snapshot_error == NULL ||
        state->watched_modules == NULL) {
        return -1;
    }
    ml_spill_begin();
    if (ml_recorder_init(ml_frames_capture) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    ml_recorder_set_forward(ml_forward_traceback);
    /* The check decides how stacks are captured; it never stops the import. */
    ml_frames_self_check();
    if (PyErr_Occurred()) {
        return -1;
    }
    if (add_types(module, state) < 0 ||
        add_constant(module, "COLUMNS", ml_line_profiler_columns()) < 0 ||
        add_constant(module, "COLUMN_TEXTS", ml_columns_texts()) < 0) {
        return -1;
    }
    /* The table is constant; a capsule's pointer is not. */
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&api, ML_API_CAPSULE, NULL);
    if (capsule == NULL) {
        return -1;
    }
    int result = PyModule_AddObjectRef(module, "_api", capsule);
    Py_DECREF(capsule);
    return result;
}

static int
core_traverse(PyObject *module, visitproc visit, void *arg)
{
    ml_state *state = PyModule_GetState(module);
#define XX(name) Py_VISIT(state->name);
    ML_STATE_OBJECTS(XX)
#undef XX
    return 0;
}

static int
core_clear(PyObject *module)
{
    ml_state *state = PyModule_GetState(module);
#define XX(name) Py_CLEAR(state->name);
    ML_STATE_OBJECTS(XX)
#undef XX
    return 0;
}

static void
core_free(void *module)
{
    core_clear(module);
    ml_state *state = PyModule_GetState(module);
    ml_paths_free(state->paths);
    state->paths = NULL;
    ml_shards_forget(state);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, refuse_subinterpreters},
    {Py_mod_exec, core_exec},
#ifdef Py_mod_multiple_interpreters
    /* The recorder belongs to the process, as torch's trackers do. */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

PyDoc_STRVAR(module_doc, "The C core of memlab.");

PyMODINIT_FUNC
PyInit__core(void)
{
    ml_core_module.m_doc = module_doc;
    ml_core_module.m_methods = functions;
    ml_core_module.m_slots = slots;
    ml_core_module.m_traverse = core_traverse;
    ml_core_module.m_clear = core_clear;
    ml_core_module.m_free = core_free;
    return PyModuleDef_Init(&ml_core_module);
}
