/* memlab._core.Script: writes memory events for tests, through the scripted source. */
#include "state.h"

#include <string.h>

#include "core/record/recorder.h"
#include "core/record/script.h"

static int
action_named(const char *name, uint8_t *out)
{
    for (unsigned i = 0; i < ML_ACTION_COUNT; i++) {
        if (strcmp(ml_action_text(i), name) == 0) {
            *out = (uint8_t)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "unknown action '%s'", name);
    return -1;
}

PyDoc_STRVAR(
    emit_doc,
    "emit($self, action, addr, size, *, device=0, stream=0, time=0, backward=False,\n"
    "     pool=(0, 0), metadata='', sequence=0, autograd_thread=0, node=None)\n--\n\n"
    "Delivers one event as an allocator would. addr and size in bytes, time in unix "
    "ns.\n"
    "Raises ValueError for an action or device that there is not.");

static PyObject *
script_emit(PyObject *Py_UNUSED(self), PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "action",   "addr", "size",     "device",   "stream",          "time",
        "backward", "pool", "metadata", "sequence", "autograd_thread", "node",
        NULL};
    const char *action, *metadata = "", *node = NULL;
    Py_ssize_t metadata_length = 0;
    unsigned long long addr, size, stream = 0, time = 0, sequence = 0;
    unsigned short autograd_thread = 0;
    int device = 0, backward = 0;
    ml_event event = {0};
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "sKK|$iKKp(II)s#KHz:emit", keywords, &action, &addr, &size,
            &device, &stream, &time, &backward, &event.pool[0], &event.pool[1],
            &metadata, &metadata_length, &sequence, &autograd_thread, &node) ||
        action_named(action, &event.action) < 0) {
        return NULL;
    }
    event.addr = addr;
    event.size = size;
    event.stream = stream;
    event.time = time;
    event.flags = backward ? ML_EVENT_BACKWARD : 0;
    event.sequence = sequence;
    event.autograd_thread = autograd_thread;
    ml_event_text text = {
        .metadata = metadata, .metadata_bytes = (size_t)metadata_length, .node = node};
    if (ml_script_emit(device, &event, &text) < 0) {
        return PyErr_Format(PyExc_ValueError, "the script has devices 0 to %d, not %d",
                            ML_SCRIPT_DEVICES - 1, device);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(reset_doc, "reset($self, *, max_split=None, expandable=False)\n--\n\n"
                        "Forgets all memory. max_split in bytes, None for no limit.");

static PyObject *
script_reset(PyObject *Py_UNUSED(self), PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"max_split", "expandable", NULL};
    PyObject *max_split = Py_None;
    int expandable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$Op:reset", keywords, &max_split,
                                     &expandable)) {
        return NULL;
    }
    ml_allocator_rules rules = {.max_split_bytes = UINT64_MAX,
                                .expandable_segments = (uint8_t)expandable,
                                .has_segments = 1};
    if (max_split != Py_None) {
        rules.max_split_bytes = PyLong_AsUnsignedLongLong(max_split);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    ml_script_reset(&rules);
    Py_RETURN_NONE;
}

static PyObject *
script_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Script", keywords)) {
        return NULL;
    }
    int result = ml_script_register();
    if (result < 0) {
        return ml_py_raise(ml_state_of(type), result, NULL);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static int
script_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void
script_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef script_methods[] = {
    {"emit", (PyCFunction)(void (*)(void))script_emit, METH_VARARGS | METH_KEYWORDS,
     emit_doc},
    {"reset", (PyCFunction)(void (*)(void))script_reset, METH_VARARGS | METH_KEYWORDS,
     reset_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(script_doc, "Script()\n--\n\n"
                         "The scripted source of events, for tests: what is emitted "
                         "arrives as from an allocator.");

static PyType_Slot script_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)script_doc},
    {Py_tp_new, script_new},
    {Py_tp_methods, script_methods},
    {Py_tp_traverse, script_traverse},
    {Py_tp_dealloc, script_dealloc},
    {0, NULL},
};

static PyType_Spec script_spec = {
    .name = "memlab._core.Script",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = script_slots,
};

PyObject *
ml_script_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &script_spec, NULL);
}
