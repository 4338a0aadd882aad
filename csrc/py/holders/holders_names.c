/* Puts references into words.  See holders_names.h.
 *
 * A reference on a path is named by a search in the object that holds it.  Only
 * CPython's own C code runs meanwhile.  One trace may stay: an object's attributes may
 * move into a dict, as after vars(). */
#include "holders/holders_names.h"

#include <frameobject.h>

#include "holders/holders_containers.h"
#include "holders/holders_frames.h"
#include "holders/holders_keys.h"
#include "state.h"

/* ---- Objects of Python's own types ---- */

static int
add_frame(ml_namer *n, const char *kind, const ml_frame *frame, PyObject *name)
{
    PyCodeObject *code = ml_frame_code(frame);
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *function = code->co_qualname;
#else
    PyObject *function = code->co_name;
#endif
    return ml_namer_add(n, Py_BuildValue("(sOOOi)", kind, name != NULL ? name : Py_None,
                                         function, code->co_filename,
                                         ml_frame_line(frame)));
}

static int
name_in_frame(ml_namer *n, size_t i, PyObject *object, const ml_frame *frame,
              PyObject *value)
{
    PyObject *name = ml_frame_name_of(frame, value, n->nth);
    PyObject *owner = ml_namer_object_before(n, i, 1);
    bool kept = PyFrame_Check(object);

    if ((const void *)value == (const void *)frame) {
        return 0; /* CPython 3.10: a generator's frame is an object of its own */
    }
    if (kept && owner != NULL && !PyFrame_Check(owner) &&
        ml_frame_within(owner) == frame) {
        kept = false;
    }
    if (name == NULL && kept && !ml_frame_shows(frame, value)) {
        return ml_namer_add_name(n, "f_back");
    }
    return add_frame(n, kept ? "frame" : "generator", frame, name);
}

static int
name_in_exception(ml_namer *n, PyObject *object, PyObject *value)
{
    const PyBaseExceptionObject *exception = (PyBaseExceptionObject *)object;
    const char *name = NULL;

    if (exception->traceback == value) {
        name = "__traceback__";
    }
    else if (exception->context == value) {
        name = "__context__";
    }
    else if (exception->cause == value) {
        name = "__cause__";
    }
    else if (exception->args == value) {
        name = "args";
    }
    if (name == NULL) {
        return 0;
    }
    return ml_namer_add_name(n, name) == 0 ? 1 : -1;
}

static int
name_in_traceback(ml_namer *n, PyObject *object, PyObject *value)
{
    const PyTracebackObject *traceback = (PyTracebackObject *)object;

    return ml_namer_add_name(n, (PyObject *)traceback->tb_next == value ? "tb_next"
                                                                        : "tb_frame");
}

static int
name_in_function_object(ml_namer *n, PyObject *object, PyObject *value)
{
    const PyFunctionObject *function = (PyFunctionObject *)object;

    if (function->func_closure == value || function->func_defaults == value ||
        function->func_kwdefaults == value) {
        return 1; /* the next step names the variable */
    }
    if (function->func_globals == value) {
        return ml_namer_add_name(n, "__globals__") == 0 ? 1 : -1;
    }
    return 0;
}

static int
name_in_method(ml_namer *n, PyObject *object, PyObject *value)
{
    if (PyMethod_Check(object)) {
        return ml_namer_add_name(n, PyMethod_GET_SELF(object) == value ? "__self__"
                                                                       : "__func__");
    }
    return ml_namer_add_name(n, "__self__");
}

static int
name_result(ml_namer *n, PyObject *cache)
{
    PyObject *dict = ml_attributes_of(cache);
    PyObject *function = dict != NULL ? ml_py_seek(dict, "__wrapped__") : NULL;
    PyObject *name = function != NULL && PyFunction_Check(function)
                         ? ml_qualname(function)
                         : Py_None;
    int result = ml_namer_add(n, Py_BuildValue("(sO)", "result", name));

    Py_XDECREF(dict);
    return result;
}

static bool
is_hamt(const PyObject *object)
{
    return ml_is_named(object, "hamt") || ml_is_named(object, "hamt_bitmap_node") ||
           ml_is_named(object, "hamt_array_node") ||
           ml_is_named(object, "hamt_collision_node");
}

/* The variable that CONTEXT binds to the value at the end of the tree. */
static int
name_in_context(ml_namer *n, size_t i, PyObject *context)
{
    while (i + 1 < n->count && is_hamt(ml_namer_object(n, i + 1))) {
        i++;
    }
    const PyObject *value = ml_namer_object(n, i + 1);
    PyObject *items = PyObject_CallMethod(context, "items", NULL);
    PyObject *all = items != NULL ? PySequence_List(items) : NULL;
    PyObject *name = NULL;

    for (Py_ssize_t k = 0; all != NULL && name == NULL && k < PyList_GET_SIZE(all);
         k++) {
        PyObject *pair = PyList_GET_ITEM(all, k);
        if (PyTuple_GET_ITEM(pair, 1) == value) {
            name = PyObject_GetAttrString(PyTuple_GET_ITEM(pair, 0), "name");
        }
    }
    int result = -1;
    if (all != NULL && !PyErr_Occurred()) {
        result = ml_namer_add(
            n, Py_BuildValue("(sO)", "context", name != NULL ? name : Py_None));
    }
    Py_XDECREF(name);
    Py_XDECREF(all);
    Py_XDECREF(items);
    return result;
}

/* ---- torch's own references ---- */

typedef struct edge_search {
    const void *to;
    const char *name;
    int64_t index;
    bool found;
} edge_search;

static int
match_edge(void *arg, const ml_graph_edge *edge)
{
    edge_search *search = arg;

    if (edge->to != search->to) {
        return 0;
    }
    search->name = edge->name;
    search->index = edge->index;
    search->found = true;
    return 1;
}

static int
add_edge(ml_namer *n, const ml_thing *thing, int what, const edge_search *search)
{
    char owner[256] = "";
    PyObject *name;

    if (search->index >= 0) {
        name = PyUnicode_FromFormat("%s[%lld]", search->name, (long long)search->index);
    }
    else {
        name = PyUnicode_FromString(search->name);
    }
    if (thing->kind == ML_GRAPH_NODE) {
        ml_walk_graph(n->walk)->name(ml_walk_graph_walk(n->walk), thing->at, owner,
                                     sizeof(owner));
        return ml_namer_add(n, Py_BuildValue("(sNs)", "node", name, owner));
    }
    if (what == ML_GRAPH_IS_FUNCTION) {
        const PyObject *function = thing->at;
        return ml_namer_add(
            n, Py_BuildValue("(sNs)", "node", name, Py_TYPE(function)->tp_name));
    }
    return ml_namer_add(n, Py_BuildValue("(sN)", "name", name));
}

/* 1: named; 0: not a reference of torch's; or -1. */
static int
name_edge(ml_namer *n, const ml_thing *thing, const void *to)
{
    const ml_graph *graph = ml_walk_graph(n->walk);
    edge_search search = {.to = to};
    int what = ML_GRAPH_IS_NOTHING;

    if (thing->kind == ML_GRAPH_OBJECT) {
        what = ml_walk_what(n->walk, Py_TYPE((const PyObject *)thing->at));
    }
    if (graph == NULL ||
        (thing->kind == ML_GRAPH_OBJECT &&
         (what == ML_GRAPH_IS_NOTHING || what > ML_GRAPH_IS_STORAGE))) {
        return 0;
    }
    graph->references(ml_walk_graph_walk(n->walk), thing->kind, what, thing->at,
                      match_edge, &search);
    if (!search.found || search.name == NULL) {
        return search.found;
    }
    return add_edge(n, thing, what, &search) == 0 ? 1 : -1;
}

/* ---- One step ---- */

static int
add_inside(ml_namer *n, const PyObject *object)
{
    return ml_namer_add(n, Py_BuildValue("(ss)", "inside", Py_TYPE(object)->tp_name));
}
/* 1: named; 0: not of these kinds; or -1. */
static int
name_in_kind(ml_namer *n, size_t i, PyObject *object, PyObject *value)
{
    const ml_frame *frame = ml_frame_within(object);
    int result = ml_name_in_container(n, i, object, value);

    if (result != 0) {
        return result;
    }
    if (frame != NULL) {
        return name_in_frame(n, i, object, frame, value) == 0 ? 1 : -1;
    }
    if (PyExceptionInstance_Check(object)) {
        return name_in_exception(n, object, value);
    }
    if (PyTraceBack_Check(object)) {
        return name_in_traceback(n, object, value) == 0 ? 1 : -1;
    }
    if (PyFunction_Check(object)) {
        return name_in_function_object(n, object, value);
    }
    if (PyMethod_Check(object) || PyCFunction_Check(object)) {
        return name_in_method(n, object, value) == 0 ? 1 : -1;
    }
    if (PyContext_CheckExact(object)) {
        return name_in_context(n, i, object) == 0 ? 1 : -1;
    }
    return 0;
}

/* Whether the steps around it say enough. */
static bool
is_silent(size_t i, const PyObject *object, const PyObject *value)
{
    if (PyCell_Check(object)) {
        return true;
    }
    return is_hamt(object) || ml_is_named(object, "functools._lru_list_elem") ||
           (ml_is_local_store(object) && value != NULL && PyDict_CheckExact(value)) ||
           (i > 0 && PyModule_Check(object) && value != NULL &&
            PyModule_GetDict((PyObject *)(uintptr_t)object) == value);
}

static int
name_in_object(ml_namer *n, size_t i, PyObject *object, PyObject *value)
{
    int result;

    if (is_silent(i, object, value)) {
        return 0;
    }
    if (value != NULL) {
        result = name_in_kind(n, i, object, value);
        if (result == 0) {
            result = ml_add_attribute(n, object, value);
        }
        if (result != 0) {
            return result < 0 ? -1 : 0;
        }
    }
    result = name_edge(n, ml_namer_thing(n, i), ml_namer_thing(n, i + 1)->at);
    if (result != 0) {
        return result < 0 ? -1 : 0;
    }
    if (ml_is_named(object, "functools._lru_cache_wrapper")) {
        return name_result(n, object);
    }
    if ((PyObject *)Py_TYPE(object) == value) {
        return ml_namer_add_name(n, "__class__");
    }
    if (ml_walk_what(n->walk, Py_TYPE(object)) == ML_GRAPH_IS_TENSOR) {
        /* torch's own traversal skips it */
        return ml_namer_add_name(n, "grad_fn");
    }
    return add_inside(n, object);
}

static int
name_in_thread(ml_namer *n, const PyThreadState *thread, PyObject *value)
{
    const char *what = "state";

    for (const _PyErr_StackItem *handled = thread->exc_info; handled != NULL;
         handled = handled->previous_item) {
        if (handled->exc_value == value) {
            what = "exception";
        }
    }
    if (thread->context == value) {
        what = "context";
    }
    else if (thread->c_profileobj == value || thread->c_traceobj == value) {
        what = "trace";
    }
    return ml_namer_add(
        n, Py_BuildValue("(ssk)", "thread", what,
                         thread == PyThreadState_Get() ? 0 : thread->thread_id));
}

/* The thread that runs FRAME; 0: the calling one. */
static unsigned long
thread_of(const ml_frame *frame)
{
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());

    for (; thread != NULL; thread = PyThreadState_Next(thread)) {
        const ml_frame *other = ml_frame_first(thread);
        for (; other != NULL && thread != PyThreadState_Get();
             other = ml_frame_next(other)) {
            if (other == frame) {
                return thread->thread_id;
            }
        }
    }
    return 0;
}

static int
name_in_running(ml_namer *n, const ml_frame *frame, PyObject *value, bool lent)
{
    PyObject *name = lent ? NULL : ml_frame_name_of(frame, value, n->nth);

    if (ml_namer_add(n, Py_BuildValue("(sk)", "running", thread_of(frame))) < 0) {
        return -1;
    }
    if (name == NULL && !lent && value == ml_frame_locals(frame)) {
        return add_frame(n, "scope", frame, NULL);
    }
    return add_frame(n, lent ? "temporary" : "local", frame, name);
}

int
ml_name_step(ml_namer *n, size_t i, bool lent)
{
    const ml_thing *thing = ml_namer_thing(n, i);
    PyObject *value = ml_namer_object(n, i + 1);
    PyObject *modules, *key;
    int result;

    switch (thing->kind) {
    case ML_GRAPH_OBJECT:
        return name_in_object(n, i, (PyObject *)(uintptr_t)thing->at, value);
    case ML_THING_FRAME:
        return name_in_running(n, thing->at, value, lent);
    case ML_THING_THREAD:
        return name_in_thread(n, thing->at, value);
    case ML_THING_MODULES:
        modules = (PyObject *)(uintptr_t)thing->at;
        key = ml_key_of(modules, value, 0);
        return ml_namer_add(
            n, Py_BuildValue("(sO)", "module", key != NULL ? key : Py_None));
    case ML_THING_OUTSIDE:
        return ml_namer_add(
            n, Py_BuildValue("(ss)", "held",
                             value != NULL ? Py_TYPE(value)->tp_name : "?"));
    case ML_THING_CYCLES:
        return ml_namer_add(
            n, Py_BuildValue("(ss)", "cycle",
                             value != NULL ? Py_TYPE(value)->tp_name : "?"));
    default:
        result = name_edge(n, thing, ml_namer_thing(n, i + 1)->at);
        return result < 0 ? -1 : 0;
    }
}
