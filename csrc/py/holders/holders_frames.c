/* Reads frames as holders of objects.  See holders_frames.h.
 *
 * A running frame may be inside a call, and a running generator is among its thread's
 * frames.  Both have their locals in place: the GIL is released only between
 * instructions or by a called function. */
#include "frames/frame_layout.h"

#include "holders/holders_frames.h"

#ifdef WALK_UNKNOWN

/* Without a known layout, frames hold nothing known. */

const ml_frame *
ml_frame_first(const PyThreadState *Py_UNUSED(thread))
{
    return NULL;
}

const ml_frame *
ml_frame_next(const ml_frame *Py_UNUSED(frame))
{
    return NULL;
}

const ml_frame *
ml_frame_within(PyObject *Py_UNUSED(object))
{
    return NULL;
}

int
ml_frame_visit(const ml_frame *Py_UNUSED(frame), visitproc Py_UNUSED(visit),
               void *Py_UNUSED(arg))
{
    return 0;
}

void
ml_frame_visit_stack(const ml_frame *Py_UNUSED(frame),
                     void (*visit)(const void *address, void *arg),
                     void *Py_UNUSED(arg))
{
    (void)visit;
}

PyCodeObject *
ml_frame_code(const ml_frame *Py_UNUSED(frame))
{
    return NULL;
}

PyObject *
ml_frame_globals(const ml_frame *Py_UNUSED(frame))
{
    return NULL;
}

PyObject *
ml_frame_locals(const ml_frame *Py_UNUSED(frame))
{
    return NULL;
}

bool
ml_frame_shows(const ml_frame *Py_UNUSED(frame), const PyObject *Py_UNUSED(dict))
{
    return false;
}

int
ml_frame_line(const ml_frame *Py_UNUSED(frame))
{
    return 0;
}

PyObject *
ml_frame_name_of(const ml_frame *Py_UNUSED(frame), const PyObject *Py_UNUSED(object),
                 uint32_t Py_UNUSED(nth))
{
    return NULL;
}

#else

#if PY_VERSION_HEX >= 0x030e0000
/* The two low bits of a stack reference are tags. */
#define REFERENCE(slot) ((PyObject *)((slot).bits & ~(uintptr_t)3))
#else
#define REFERENCE(slot) (slot)
#endif

static const walk_frame *
layout(const ml_frame *frame)
{
    return (const walk_frame *)frame;
}

/* Skips frames that are the interpreter's own. */
static const ml_frame *
shown(const walk_frame *frame)
{
    uint64_t position;

    while (frame != NULL && walk_code(frame, &position) == NULL) {
        frame = walk_next(frame);
    }
    return (const ml_frame *)frame;
}

const ml_frame *
ml_frame_first(const PyThreadState *thread)
{
    return shown(walk_first(thread));
}

const ml_frame *
ml_frame_next(const ml_frame *frame)
{
    return shown(walk_next(layout(frame)));
}

/* Every frame that is shown has one. */
PyCodeObject *
ml_frame_code(const ml_frame *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
    return (PyCodeObject *)REFERENCE(layout(frame)->f_executable);
#elif PY_VERSION_HEX >= 0x030d0000
    return (PyCodeObject *)layout(frame)->f_executable;
#else
    return layout(frame)->f_code;
#endif
}

PyObject *
ml_frame_globals(const ml_frame *frame)
{
    return layout(frame)->f_globals;
}

bool
ml_frame_shows(const ml_frame *frame, const PyObject *dict)
{
    return dict == layout(frame)->f_locals;
}

int
ml_frame_line(const ml_frame *frame)
{
    PyCodeObject *code = ml_frame_code(frame);
    uint64_t position = 0;
    uint32_t offset;
    int line = 0;

    walk_code(layout(frame), &position);
    if (offset_of(code, position, &offset)) {
        line = PyCode_Addr2Line(code, (int)offset);
    }
    return line > 0 ? line : code->co_firstlineno;
}

#if PY_VERSION_HEX < 0x030b0000

static Py_ssize_t
count_locals(const PyCodeObject *code)
{
    return code->co_nlocals + PyTuple_GET_SIZE(code->co_cellvars) +
           PyTuple_GET_SIZE(code->co_freevars);
}

static PyObject *
name_at(const PyCodeObject *code, Py_ssize_t i)
{
    PyObject *names[] = {code->co_varnames, code->co_cellvars, code->co_freevars};

    if (i < code->co_nlocals) {
        return PyTuple_GET_ITEM(names[0], i);
    }
    i -= code->co_nlocals;
    if (i < PyTuple_GET_SIZE(names[1])) {
        return PyTuple_GET_ITEM(names[1], i);
    }
    return PyTuple_GET_ITEM(names[2], i - PyTuple_GET_SIZE(names[1]));
}

const ml_frame *
ml_frame_within(PyObject *object)
{
    PyFrameObject *frame = NULL;

    if (PyFrame_Check(object)) {
        frame = (PyFrameObject *)object;
    }
    else if (PyGen_Check(object) || PyCoro_CheckExact(object) ||
             PyAsyncGen_CheckExact(object)) {
        frame = ((PyGenObject *)object)->gi_frame;
    }
    return (const ml_frame *)frame;
}

PyObject *
ml_frame_locals(const ml_frame *frame)
{
    /* Of a function, a copy that someone asked for once. */
    bool own = (layout(frame)->f_code->co_flags & CO_OPTIMIZED) == 0;

    return own ? layout(frame)->f_locals : NULL;
}

static int
visit_special(const ml_frame *frame, visitproc visit, void *arg)
{
    Py_VISIT(layout(frame)->f_locals);
    Py_VISIT(layout(frame)->f_trace);
    return 0;
}

#else

static Py_ssize_t
count_locals(const PyCodeObject *code)
{
    return code->co_nlocalsplus;
}

static PyObject *
name_at(const PyCodeObject *code, Py_ssize_t i)
{
    return PyTuple_GET_ITEM(code->co_localsplusnames, i);
}

const ml_frame *
ml_frame_within(PyObject *object)
{
    walk_frame *frame = NULL;

    if (PyFrame_Check(object)) {
        frame = ((PyFrameObject *)object)->f_frame;
    }
    else if ((PyGen_Check(object) || PyCoro_CheckExact(object) ||
              PyAsyncGen_CheckExact(object)) &&
             ((PyGenObject *)object)->gi_frame_state < FRAME_CLEARED) {
        frame = (walk_frame *)(uintptr_t)((PyGenObject *)object)->gi_iframe;
    }
    return frame != NULL ? shown(frame) : NULL;
}

PyObject *
ml_frame_locals(const ml_frame *frame)
{
    bool own = (ml_frame_code(frame)->co_flags & CO_OPTIMIZED) == 0;

    return own ? layout(frame)->f_locals : NULL;
}

static int
visit_special(const ml_frame *frame, visitproc visit, void *arg)
{
    const walk_frame *f = layout(frame);

    Py_VISIT((PyObject *)f->frame_obj);
    Py_VISIT(f->f_locals);
#if PY_VERSION_HEX >= 0x030e0000
    Py_VISIT(REFERENCE(f->f_funcobj));
#elif PY_VERSION_HEX >= 0x030c0000
    Py_VISIT(f->f_funcobj);
#else
    Py_VISIT((PyObject *)f->f_func);
#endif
    return 0;
}

#endif

#if PY_VERSION_HEX < 0x030b0000
#define SLOTS(frame) (layout(frame)->f_localsplus)
#else
#define SLOTS(frame) (layout(frame)->localsplus)
#endif

int
ml_frame_visit(const ml_frame *frame, visitproc visit, void *arg)
{
    Py_ssize_t count = count_locals(ml_frame_code(frame));

    for (Py_ssize_t i = 0; i < count; i++) {
        Py_VISIT(REFERENCE(SLOTS(frame)[i]));
    }
    return visit_special(frame, visit, arg);
}

void
ml_frame_visit_stack(const ml_frame *frame,
                     void (*visit)(const void *address, void *arg), void *arg)
{
    const PyCodeObject *code = ml_frame_code(frame);
    Py_ssize_t begin = count_locals(code);

    for (Py_ssize_t i = begin; i < begin + code->co_stacksize; i++) {
        visit(REFERENCE(SLOTS(frame)[i]), arg);
    }
}

PyObject *
ml_frame_name_of(const ml_frame *frame, const PyObject *object, uint32_t nth)
{
    const PyCodeObject *code = ml_frame_code(frame);
    Py_ssize_t count = count_locals(code);
    PyObject *name = NULL;

    for (Py_ssize_t i = 0; i < count; i++) {
        if (REFERENCE(SLOTS(frame)[i]) == object) {
            name = name_at(code, i);
            if (nth-- == 0) {
                break;
            }
        }
    }
    return name;
}

#endif
