/* Asks CPython for the lines that run.  See line_monitor.h.
 *
 * On 3.10 and 3.11, a program that sets its own trace function ends this on that
 * thread.  The program's function stays, and the line profiler says so when it is
 * disabled. */
#include "lines/line_monitor.h"

#include <stdbool.h>

#include "lines/line_watches.h"

#if PY_VERSION_HEX >= 0x030c0000

/* ---- sys.monitoring ---- */

/* Its functions get no context. */
static struct {
    PyObject *monitoring; /* sys.monitoring, while a tool id is memlab's */
    int tool;             /* below 0: none */
    /* Of sys.monitoring.events.  Local events are set for a code object.  Global ones
     * report exceptions that leave any function or are thrown into one, and cost only
     * then. */
    int local_events, global_events;
} monitor = {.tool = -1};

static PyObject *
on_line(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 2) {
        ml_line_watches_tell(args[0], ML_LINE_REACH, (int)PyLong_AsLong(args[1]));
    }
    Py_RETURN_NONE;
}

static PyObject *
on_start(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 1) {
        ml_line_watches_tell(args[0], ML_LINE_CALL, 0);
    }
    Py_RETURN_NONE;
}

/* Resumed, or an exception was thrown into it. */
static PyObject *
on_resume(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 2 && ml_line_watches_has(args[0])) {
        int offset = (int)PyLong_AsLong(args[1]);
        PyCodeObject *code = (PyCodeObject *)args[0];
        int line = PyCode_Addr2Line(code, offset);
        /* An instruction may belong to no line. */
        ml_line_watches_tell(args[0], ML_LINE_RESUME,
                             line > 0 ? line : code->co_firstlineno);
    }
    Py_RETURN_NONE;
}

static PyObject *
on_leave(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count >= 1) {
        ml_line_watches_tell(args[0], ML_LINE_LEAVE, 0);
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
        args != NULL ? PyObject_GetAttrString(monitor.monitoring, method) : NULL;
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
    PyObject *events = PyObject_GetAttrString(monitor.monitoring, "events");
    PyObject *number = events != NULL ? PyObject_GetAttrString(events, event) : NULL;
    Py_XDECREF(events);
    int value = number != NULL ? (int)PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    return value;
}

/* Claims a free tool id.  Ids without a conventional owner come first, because cProfile
 * and coverage fail if theirs is taken.  0 or -1. */
static int
claim_tool(PyObject *error)
{
    static const int ids[] = {3, 4, 5, 2, 1, 0};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        PyObject *name = call("get_tool", "(i)", ids[i]);
        if (name == NULL) {
            return -1;
        }
        bool taken = name != Py_None;
        Py_DECREF(name);
        if (!taken) {
            if (ask(call("use_tool_id", "(is)", ids[i], "memlab")) < 0) {
                return -1;
            }
            monitor.tool = ids[i];
            return 0;
        }
    }
    PyErr_SetString(error, "all six tool ids of sys.monitoring are taken: end a "
                           "debugger, profiler or coverage tool before lines can be "
                           "profiled");
    return -1;
}

static int
register_callbacks(void)
{
    monitor.local_events = 0;
    monitor.global_events = 0;
    for (size_t i = 0; i < REGISTERED; i++) {
        int event = event_number(registered[i].event);
        PyObject *callback =
            event >= 0 ? PyCFunction_New(&callbacks[registered[i].callback], NULL)
                       : NULL;
        if (callback == NULL || ask(call("register_callback", "(iiN)", monitor.tool,
                                         event, callback)) < 0) {
            return -1;
        }
        *(registered[i].local ? &monitor.local_events : &monitor.global_events) |=
            event;
    }
    return ask(call("set_events", "(ii)", monitor.tool, monitor.global_events));
}

int
ml_line_monitor_add(PyObject *code, PyObject *error)
{
    if (monitor.monitoring == NULL) {
        monitor.monitoring = PySys_GetObject("monitoring");
        if (monitor.monitoring == NULL) {
            PyErr_SetString(error, "sys.monitoring is gone");
            return -1;
        }
        Py_INCREF(monitor.monitoring);
    }
    if (monitor.tool < 0 && (claim_tool(error) < 0 || register_callbacks() < 0)) {
        return -1;
    }
    return ask(
        call("set_local_events", "(iOi)", monitor.tool, code, monitor.local_events));
}

void
ml_line_monitor_remove(PyObject *code)
{
    if (monitor.tool >= 0) {
        ask(call("set_local_events", "(iOi)", monitor.tool, code, 0));
    }
    PyErr_Clear();
}

void
ml_line_monitor_end(void)
{
    if (monitor.tool >= 0) {
        ask(call("set_events", "(ii)", monitor.tool, 0));
        PyErr_Clear();
        for (size_t i = 0; i < REGISTERED; i++) {
            int event = event_number(registered[i].event);
            ask(call("register_callback", "(iiO)", monitor.tool, event, Py_None));
            PyErr_Clear();
        }
        ask(call("free_tool_id", "(i)", monitor.tool));
        PyErr_Clear();
    }
    monitor.tool = -1;
    Py_CLEAR(monitor.monitoring);
}

#else

/* ---- A trace function ---- */

#include <frameobject.h>
#include <opcode.h>

#include "core/base/base.h"

/* A thread's trace function before memlab's, to which everything is passed on.  Its
 * object stays in place, so that sys.gettrace() is unchanged. */
typedef struct traced_thread {
    uint64_t id;         /* of its state; never reused after the thread's death */
    Py_tracefunc before; /* NULL: none */
} traced_thread;

/* A trace function gets the program's object for context. */
static struct {
    traced_thread *threads; /* owned */
    size_t count;
    size_t capacity;
    /* The head of the interpreter's list of threads at the last look. */
    const PyThreadState *newest;
    /* Starts on new threads; then the program's hook, its self, is called.  Owned;
     * NULL: nothing is watched. */
    PyObject *hook;
    /* How often the program replaced memlab's trace function and a newly watched
     * function restored it.  Lines in between were missed. */
    size_t replaced;
} monitor;

static traced_thread *
thread_of(const PyThreadState *state)
{
    for (size_t i = 0; i < monitor.count; i++) {
        if (monitor.threads[i].id == state->id) {
            return &monitor.threads[i];
        }
    }
    return NULL;
}

/* Whether the call is a resumed one, suspended at the frame's line, and not new. */
static bool
is_resumed(PyFrameObject *frame, const PyCodeObject *code)
{
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030b0000
    /* A generator begins with a RESUME of 0; other RESUMEs follow a yield.  Without a
     * RESUME, an exception is thrown into it. */
    int at = PyFrame_GetLasti(frame);
    if (at < 0) {
        return false;
    }
    const unsigned char *next = (const unsigned char *)code->co_code_adaptive + at;
    return (next[0] != RESUME && next[0] != RESUME_QUICK) || next[1] != 0;
#else
    return frame->f_lasti >= 0;
#endif
}

static void
tell_frame(PyFrameObject *frame, int what)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    if (ml_line_watches_has((PyObject *)code)) {
        if (what == PyTrace_LINE) {
            ml_line_watches_tell((PyObject *)code, ML_LINE_REACH,
                                 PyFrame_GetLineNumber(frame));
        }
        else if (what == PyTrace_RETURN) {
            ml_line_watches_tell((PyObject *)code, ML_LINE_LEAVE, 0);
        }
        else if (what == PyTrace_CALL) {
            bool resumed = is_resumed(frame, code);
            ml_line_watches_tell((PyObject *)code,
                                 resumed ? ML_LINE_RESUME : ML_LINE_CALL,
                                 resumed ? PyFrame_GetLineNumber(frame) : 0);
        }
    }
    Py_DECREF(code);
}

/* Replaces STATE's trace function by FUNCTION; its object stays.  0 or -1. */
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

/* Sets memlab's trace function over that of STATE.  0, or -1 with an exception. */
static int
install(PyThreadState *state)
{
    if (state->c_tracefunc == trace) {
        return 0;
    }
    traced_thread *thread = thread_of(state);
    if (thread == NULL) {
        if (ml_grow((void **)&monitor.threads, &monitor.capacity, monitor.count + 1,
                    sizeof(*monitor.threads)) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        thread = &monitor.threads[monitor.count++];
        thread->id = state->id;
    }
    thread->before = state->c_tracefunc;
    return exchange(state, trace);
}

static PyThreadState *
first_thread(void)
{
    return PyInterpreterState_ThreadHead(PyInterpreterState_Get());
}

static void
forget_dead_threads(void)
{
    size_t alive = 0;
    for (PyThreadState *state = first_thread(); state != NULL;
         state = PyThreadState_Next(state)) {
        traced_thread *thread = thread_of(state);
        if (thread != NULL) {
            traced_thread kept = *thread;
            *thread = monitor.threads[alive];
            monitor.threads[alive++] = kept;
        }
    }
    monitor.count = alive;
}

/* Installs it on new threads.  0, or -1 with an exception. */
static int
install_on_new_threads(void)
{
    forget_dead_threads();
    monitor.newest = first_thread();
    for (PyThreadState *state = first_thread(); state != NULL;
         state = PyThreadState_Next(state)) {
        if (thread_of(state) == NULL && install(state) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    PyThreadState *state = PyThreadState_Get();
    if (first_thread() != monitor.newest) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        install_on_new_threads();
        PyErr_Restore(type, value, traceback);
    }
    tell_frame(frame, what);
    const traced_thread *thread = thread_of(state);
    if (thread == NULL || thread->before == NULL) {
        return 0;
    }
    int result = thread->before(self, frame, what, arg);
    /* The call may have set another trace function, or removed memlab's. */
    if (state->c_tracefunc != trace && monitor.hook != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        install(state);
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

/* Called by threading on a new thread instead of the program's hook, BEFORE. */
static PyObject *
start_thread(PyObject *before, PyObject *args)
{
    PyObject *frame, *event, *arg;
    if (!PyArg_ParseTuple(args, "OOO", &frame, &event, &arg)) {
        return NULL;
    }
    PyThreadState *state = PyThreadState_Get();
    bool told = state->c_tracefunc == trace;
    PyObject *settrace = PySys_GetObject("settrace");
    PyObject *result =
        settrace != NULL ? PyObject_CallFunctionObjArgs(settrace, before, NULL) : NULL;
    if (result == NULL || (monitor.hook != NULL && install(state) < 0)) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
    if (!told && PyFrame_Check(frame)) {
        tell_frame((PyFrameObject *)frame, PyTrace_CALL);
    }
    return before == Py_None ? Py_NewRef(Py_None) : PyObject_Call(before, args, NULL);
}

static PyMethodDef start_thread_def = {"start_thread", start_thread, METH_VARARGS,
                                       NULL};

/* threading's variable behind settrace() and gettrace().  Those are Python functions:
 * other threads could run between two calls. */
static const char hook_name[] = "_trace_hook";

static int
hook_new_threads(void)
{
    PyObject *module = PyImport_ImportModule("threading");
    if (module == NULL) {
        return -1;
    }
    int result = 0;
    if (monitor.hook == NULL) {
        PyObject *before = PyObject_GetAttrString(module, hook_name);
        monitor.hook =
            before != NULL ? PyCFunction_New(&start_thread_def, before) : NULL;
        Py_XDECREF(before);
        result = monitor.hook != NULL
                     ? PyObject_SetAttrString(module, hook_name, monitor.hook)
                     : -1;
    }
    Py_DECREF(module);
    return result;
}

static void
unhook_new_threads(void)
{
    PyObject *ours = monitor.hook;
    monitor.hook = NULL;
    PyObject *name = PyUnicode_FromString("threading");
    PyObject *module = name != NULL ? PyImport_GetModule(name) : NULL;
    PyObject *now = module != NULL ? PyObject_GetAttrString(module, hook_name) : NULL;
    if (ours != NULL && now == ours) {
        PyObject_SetAttrString(module, hook_name, PyCFunction_GET_SELF(ours));
    }
    PyErr_Clear();
    Py_XDECREF(now);
    Py_XDECREF(module);
    Py_XDECREF(name);
    Py_XDECREF(ours);
}

int
ml_line_monitor_add(PyObject *Py_UNUSED(code), PyObject *Py_UNUSED(error))
{
    if (monitor.hook == NULL) {
        return hook_new_threads() < 0 ? -1 : install_on_new_threads();
    }
    PyThreadState *state = PyThreadState_Get();
    monitor.replaced += thread_of(state) != NULL && state->c_tracefunc != trace;
    return install(state);
}

void
ml_line_monitor_remove(PyObject *Py_UNUSED(code))
{
}

void
ml_line_monitor_end(void)
{
    size_t replaced = monitor.replaced;
    monitor.replaced = 0;
    unhook_new_threads();
    for (PyThreadState *state = first_thread(); state != NULL;
         state = PyThreadState_Next(state)) {
        const traced_thread *thread = thread_of(state);
        if (thread != NULL && state->c_tracefunc != trace) {
            replaced++;
        }
        else if (thread != NULL && exchange(state, thread->before) < 0) {
            PyErr_Clear();
        }
    }
    monitor.count = 0;
    monitor.newest = NULL;
    if (replaced > 0 &&
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                         "sys.settrace() was called while lines were profiled: on %zu "
                         "thread(s) the lines after it were not measured; use CPython "
                         "3.12 or later, or profile without the tracer",
                         replaced) < 0) {
        PyErr_Clear();
    }
}

#endif
