/* How CPython is asked for the lines that run; see line_events.h. */
#include "line_events.h"

#if PY_VERSION_HEX >= 0x030c0000

/* ---- sys.monitoring ---- */

static PyObject *monitoring; /* sys.monitoring, while a tool id is ours */
static int tool = -1;
/* Of sys.monitoring.events: those set for a code object, and two that tell of exceptions
 * which leave any function or are thrown into one, and cost only where that happens. */
static int local_events, global_events;

static PyObject *
on_line(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 2) {
        ml_line_events_tell(args[0], ML_LINE_REACH, (int)PyLong_AsLong(args[1]));
    }
    Py_RETURN_NONE;
}

static PyObject *
on_start(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 1) {
        ml_line_events_tell(args[0], ML_LINE_CALL, 0);
    }
    Py_RETURN_NONE;
}

/* Resumed, or an exception thrown into it. */
static PyObject *
on_resume(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 2 && ml_line_events_watched(args[0])) {
        int offset = (int)PyLong_AsLong(args[1]);
        int line = PyCode_Addr2Line((PyCodeObject *)args[0], offset);
        ml_line_events_tell(args[0], ML_LINE_RESUME, line);
    }
    Py_RETURN_NONE;
}

static PyObject *
on_leave(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 1) {
        ml_line_events_tell(args[0], ML_LINE_LEAVE, 0);
    }
    Py_RETURN_NONE;
}

#define CALLBACK(name) \
    { \
#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL \
    }

static PyMethodDef callbacks[] = {CALLBACK(on_line), CALLBACK(on_start),
                                  CALLBACK(on_resume), CALLBACK(on_leave)};

static const struct {
    const char *event;
    int callback; /* index in callbacks */
    bool local;
} registered[] = {{"LINE", 0, true},      {"PY_START", 1, true},
                  {"PY_RESUME", 2, true}, {"PY_THROW", 2, false},
                  {"PY_RETURN", 3, true}, {"PY_YIELD", 3, true},
                  {"PY_UNWIND", 3, false}};
#define REGISTERED (sizeof(registered) / sizeof(registered[0]))

/* The result of sys.monitoring.METHOD; NULL with an exception. */
static PyObject *
call(const char *method, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *args = Py_VaBuildValue(format, values);
    va_end(values);
    PyObject *function =
        args != NULL ? PyObject_GetAttrString(monitoring, method) : NULL;
    PyObject *result = function != NULL ? PyObject_Call(function, args, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(args);
    return result;
}

/* As call, for methods without a result.  0 or -1. */
static int
ask(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* The number of EVENT; -1 with an exception. */
static int
event_number(const char *event)
{
    PyObject *events = PyObject_GetAttrString(monitoring, "events");
    PyObject *number = events != NULL ? PyObject_GetAttrString(events, event) : NULL;
    Py_XDECREF(events);
    int value = number != NULL ? (int)PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    return value;
}

/* A tool id that nobody has, that of profilers first.  0 or -1. */
static int
claim_tool(void)
{
    static const int ids[] = {2, 3, 4, 1, 0, 5};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        PyObject *name = call("get_tool", "(i)", ids[i]);
        if (name == NULL) {
            return -1;
        }
        bool taken = name != Py_None;
        Py_DECREF(name);
        if (!taken) {
            tool = ids[i];
            return ask(call("use_tool_id", "(is)", tool, "memlab"));
        }
    }
    PyErr_SetString(PyExc_RuntimeError,
                    "all six tool ids of sys.monitoring are taken: end a debugger, "
                    "profiler or coverage tool before lines can be profiled");
    return -1;
}

static int
register_callbacks(void)
{
    local_events = 0;
    global_events = 0;
    for (size_t i = 0; i < REGISTERED; i++) {
        int event = event_number(registered[i].event);
        PyObject *callback =
            event >= 0 ? PyCFunction_New(&callbacks[registered[i].callback], NULL)
                       : NULL;
        if (callback == NULL ||
            ask(call("register_callback", "(iiN)", tool, event, callback)) < 0) {
            return -1;
        }
        *(registered[i].local ? &local_events : &global_events) |= event;
    }
    return ask(call("set_events", "(ii)", tool, global_events));
}

/* The tool id goes back, with what was registered for it.  Clears exceptions. */
static void
release_tool(void)
{
    if (tool >= 0) {
        ask(call("set_events", "(ii)", tool, 0));
        PyErr_Clear();
        for (size_t i = 0; i < REGISTERED; i++) {
            int event = event_number(registered[i].event);
            ask(call("register_callback", "(iiO)", tool, event, Py_None));
            PyErr_Clear();
        }
        ask(call("free_tool_id", "(i)", tool));
        PyErr_Clear();
    }
    tool = -1;
    Py_CLEAR(monitoring);
}

int
ml_line_monitor_add(PyObject *code, bool first)
{
    if (first) {
        monitoring = PySys_GetObject("monitoring");
        if (monitoring == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "sys.monitoring is gone");
            return -1;
        }
        Py_INCREF(monitoring);
        if (claim_tool() < 0 || register_callbacks() < 0) {
            PyObject *error = PyErr_GetRaisedException();
            release_tool();
            PyErr_SetRaisedException(error);
            return -1;
        }
    }
    if (ask(call("set_local_events", "(iOi)", tool, code, local_events)) == 0) {
        return 0;
    }
    if (first) {
        PyObject *error = PyErr_GetRaisedException();
        release_tool();
        PyErr_SetRaisedException(error);
    }
    return -1;
}

void
ml_line_monitor_remove(PyObject *code, bool last)
{
    ask(call("set_local_events", "(iOi)", tool, code, 0));
    PyErr_Clear();
    if (last) {
        release_tool();
    }
}

#else

/* ---- A trace function ---- */

#include <frameobject.h>
#include <opcode.h>

#include "../core/base.h"

/* The trace function that a thread had before ours, to which everything is passed on.  Its
 * object stays where it was, so that sys.gettrace() answers as ever. */
typedef struct traced_thread {
    PyThreadState *state;
    Py_tracefunc before; /* NULL: none */
} traced_thread;

static struct {
    traced_thread *items; /* owned */
    size_t count;
    size_t capacity;
} threads;
static PyObject *hook;        /* what starts on new threads; owned */
static PyObject *hook_before; /* that of the program, which it passes on to; owned */

static traced_thread *
thread_of(const PyThreadState *state)
{
    for (size_t i = 0; i < threads.count; i++) {
        if (threads.items[i].state == state) {
            return &threads.items[i];
        }
    }
    return NULL;
}

/* A new call, or one that was suspended at the frame's line? */
static bool
is_resumed(PyFrameObject *frame, PyCodeObject *code)
{
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030b0000
    /* A generator begins with a RESUME of 0; the others follow a yield. */
    bool resumed = false;
    PyObject *bytes = PyCode_GetCode(code);
    int at = PyFrame_GetLasti(frame);
    if (bytes != NULL && at >= 0 && at + 1 < PyBytes_GET_SIZE(bytes)) {
        const unsigned char *text = (const unsigned char *)PyBytes_AS_STRING(bytes);
        resumed = text[at] != RESUME || text[at + 1] != 0;
    }
    Py_XDECREF(bytes);
    PyErr_Clear();
    return resumed;
#else
    return frame->f_lasti >= 0;
#endif
}

static void
tell(PyFrameObject *frame, int what)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    if (ml_line_events_watched((PyObject *)code)) {
        if (what == PyTrace_LINE) {
            ml_line_events_tell((PyObject *)code, ML_LINE_REACH,
                                PyFrame_GetLineNumber(frame));
        }
        else if (what == PyTrace_RETURN) {
            ml_line_events_tell((PyObject *)code, ML_LINE_LEAVE, 0);
        }
        else if (what == PyTrace_CALL) {
            bool resumed = is_resumed(frame, code);
            ml_line_events_tell((PyObject *)code,
                                resumed ? ML_LINE_RESUME : ML_LINE_CALL,
                                resumed ? PyFrame_GetLineNumber(frame) : 0);
        }
    }
    Py_DECREF(code);
}

/* Puts FUNCTION in the place of STATE's trace function, whose object stays.  0 or -1. */
static int
exchange(PyThreadState *state, Py_tracefunc function)
{
    PyObject *object = state->c_traceobj;
    Py_XINCREF(object);
    int result = _PyEval_SetTrace(state, function, object);
    Py_XDECREF(object);
    return result;
}

static int trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg);

/* Sets our trace function over that of STATE.  0, or -1 with an exception. */
static int
install(PyThreadState *state)
{
    if (state->c_tracefunc == trace) {
        return 0;
    }
    traced_thread *thread = thread_of(state);
    if (thread == NULL) {
        if (ml_grow((void **)&threads.items, &threads.capacity, threads.count + 1,
                    sizeof(*threads.items)) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        thread = &threads.items[threads.count++];
        thread->state = state;
    }
    thread->before = state->c_tracefunc;
    return exchange(state, trace);
}

static int
trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    PyThreadState *state = PyThreadState_Get();
    const traced_thread *thread = thread_of(state);
    tell(frame, what);
    if (thread == NULL || thread->before == NULL) {
        return 0;
    }
    int result = thread->before(self, frame, what, arg);
    /* It may have put another in its place, or have left. */
    if (state->c_tracefunc != trace && threads.count > 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (install(state) < 0) {
            PyErr_Clear();
        }
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

/* What threading calls on a new thread instead of the program's hook. */
static PyObject *
start_thread(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *frame, *event, *arg;
    if (!PyArg_ParseTuple(args, "OOO", &frame, &event, &arg)) {
        return NULL;
    }
    PyObject *before = hook_before != NULL ? hook_before : Py_None;
    Py_INCREF(before);
    PyObject *settrace = PySys_GetObject("settrace");
    PyObject *result =
        settrace != NULL ? PyObject_CallFunctionObjArgs(settrace, before, NULL) : NULL;
    if (result == NULL || install(PyThreadState_Get()) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
    if (PyFrame_Check(frame)) {
        tell((PyFrameObject *)frame, PyTrace_CALL);
    }
    result = before == Py_None ? Py_NewRef(Py_None) : PyObject_Call(before, args, NULL);
    Py_DECREF(before);
    return result;
}

static PyMethodDef start_thread_def = {"start_thread", start_thread, METH_VARARGS,
                                       NULL};

/* threading.METHOD(ARGUMENT), or without one where it is NULL. */
static PyObject *
call_threading(const char *method, PyObject *argument)
{
    PyObject *module = PyImport_ImportModule("threading");
    PyObject *function = module != NULL ? PyObject_GetAttrString(module, method) : NULL;
    PyObject *result = function != NULL
                           ? PyObject_CallFunctionObjArgs(function, argument, NULL)
                           : NULL;
    Py_XDECREF(function);
    Py_XDECREF(module);
    return result;
}

static int
hook_new_threads(void)
{
    hook = PyCFunction_New(&start_thread_def, NULL);
    PyObject *before = hook != NULL ? call_threading("gettrace", NULL) : NULL;
    if (before == NULL) {
        Py_CLEAR(hook);
        return -1;
    }
    if (before != Py_None) {
        hook_before = Py_NewRef(before);
    }
    Py_DECREF(before);
    PyObject *result = call_threading("settrace", hook);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static void
unhook_new_threads(void)
{
    if (hook == NULL) {
        return;
    }
    PyObject *now = call_threading("gettrace", NULL);
    if (now == hook) {
        PyObject *before = hook_before != NULL ? hook_before : Py_None;
        Py_XDECREF(call_threading("settrace", before));
    }
    PyErr_Clear();
    Py_XDECREF(now);
    Py_CLEAR(hook);
    Py_CLEAR(hook_before);
}

static void
uninstall_all(void)
{
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; state != NULL; state = PyThreadState_Next(state)) {
        const traced_thread *thread = thread_of(state);
        if (thread != NULL && state->c_tracefunc == trace &&
            exchange(state, thread->before) < 0) {
            PyErr_Clear();
        }
    }
    threads.count = 0;
}

int
ml_line_monitor_add(PyObject *Py_UNUSED(code), bool first)
{
    if (!first) {
        return 0;
    }
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    int result = hook_new_threads();
    for (; state != NULL && result == 0; state = PyThreadState_Next(state)) {
        result = install(state);
    }
    if (result < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        unhook_new_threads();
        uninstall_all();
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

void
ml_line_monitor_remove(PyObject *Py_UNUSED(code), bool last)
{
    if (last) {
        unhook_new_threads();
        uninstall_all();
    }
}

#endif
