/* CPython's layout of a thread's frames, by version: the way to the next frame, and the
 * fields that a walk reads.
 *
 * This file and collector.c alone include CPython's internal headers.  frames.c,
 * frames_check.c and holders_frames.c include this file before any that includes
 * Python.h.  WALK_UNKNOWN is the reason, if the layout is unknown. */
#ifndef ML_FRAME_LAYOUT_H
#define ML_FRAME_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
/* CPython's internal headers cause warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <Python.h>
#include <frameobject.h>

#if PY_VERSION_HEX < 0x030a0000 || PY_VERSION_HEX >= 0x030f0000
#define WALK_UNKNOWN "the layout of this CPython's frames is not known to memlab"
#elif defined(Py_GIL_DISABLED)
#define WALK_UNKNOWN "free-threaded CPython keeps its bytecode per thread"
#elif PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#elif PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_code.h>
#endif
#undef Py_BUILD_CORE
#pragma GCC diagnostic pop

#include <stdbool.h>
#include <stdint.h>

#ifndef WALK_UNKNOWN

/* Positions count instructions of this size. */
#define CODE_UNIT_BYTES 2

#if PY_VERSION_HEX < 0x030b0000

typedef PyFrameObject walk_frame;

/* Positions are indices here: equal ones do not imply equal code. */
#define POSITION_IN_GENERATOR ((uint64_t)0)

static inline walk_frame *
walk_first(const PyThreadState *thread)
{
    return thread->frame;
}

static inline walk_frame *
walk_next(const walk_frame *frame)
{
    return frame->f_back;
}

static inline uint64_t
walk_at(const walk_frame *frame)
{
    return (uint64_t)frame->f_lasti;
}

/* NULL for the interpreter's own frames, which Python never shows. */
static inline const PyCodeObject *
walk_code(const walk_frame *frame, uint64_t *position)
{
    *position = walk_at(frame);
    return frame->f_code;
}

static inline PyObject *
walk_local(const walk_frame *frame, size_t index)
{
    return frame->f_localsplus[index];
}

/* False for a frame that Python does not show yet. */
static inline bool
offset_of(const PyCodeObject *Py_UNUSED(code), uint64_t position, uint32_t *offset)
{
    *offset = (uint32_t)position * CODE_UNIT_BYTES;
    return true;
}

#else

typedef struct _PyInterpreterFrame walk_frame;

/* Instructions are at even addresses. */
#define POSITION_IN_GENERATOR ((uint64_t)1)

static inline walk_frame *
walk_first(const PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030d0000
    return thread->current_frame;
#else
    return thread->cframe != NULL ? thread->cframe->current_frame : NULL;
#endif
}

static inline walk_frame *
walk_next(const walk_frame *frame)
{
    return frame->previous;
}

static inline uint64_t
walk_at(const walk_frame *frame)
{
#if PY_VERSION_HEX >= 0x030d0000
    return (uintptr_t)frame->instr_ptr;
#else
    return (uintptr_t)frame->prev_instr;
#endif
}

/* NULL for the interpreter's own frames, which Python never shows. */
static inline const PyCodeObject *
walk_code(const walk_frame *frame, uint64_t *position)
{
#if PY_VERSION_HEX >= 0x030c0000
    /* From 3 on, the owner is the interpreter: its entry from C. */
    if (frame->owner >= 3) {
        return NULL;
    }
#endif
#if PY_VERSION_HEX >= 0x030e0000
    /* The two low bits of a stack reference are tags. */
    const PyCodeObject *code =
        (const PyCodeObject *)(frame->f_executable.bits & ~(uintptr_t)3);
#elif PY_VERSION_HEX >= 0x030d0000
    const PyCodeObject *code = (const PyCodeObject *)frame->f_executable;
#else
    const PyCodeObject *code = frame->f_code;
#endif
    *position = walk_at(frame);
    if (frame->owner == FRAME_OWNED_BY_GENERATOR) {
        *position |= POSITION_IN_GENERATOR;
    }
    return code;
}

static inline PyObject *
walk_local(const walk_frame *frame, size_t index)
{
#if PY_VERSION_HEX >= 0x030e0000
    return (PyObject *)(frame->localsplus[index].bits & ~(uintptr_t)3);
#else
    return frame->localsplus[index];
#endif
}

/* False before a frame's first traceable instruction: Python does not show it yet. */
static inline bool
offset_of(const PyCodeObject *code, uint64_t position, uint32_t *offset)
{
    bool generator = (position & POSITION_IN_GENERATOR) != 0;
    int64_t at = (int64_t)(position & ~POSITION_IN_GENERATOR) -
                 (int64_t)(uintptr_t)code->co_code_adaptive;

    *offset = (uint32_t)at;
    return generator || at >= code->_co_firsttraceable * CODE_UNIT_BYTES;
}

#endif

#if PY_VERSION_HEX >= 0x030d0000

/* This many arguments identify a call. */
#define ARGUMENTS 4

static inline uint64_t
walk_mix(uint64_t sum, const PyObject *object)
{
    return (sum ^ (uintptr_t)object) * UINT64_C(0x9e3779b97f4a7c15);
}

#endif

/* Distinguishes a call of FRAME's function, which takes (self, *args, **kwargs), from
 * the next, which may have the same frame and objects at the same addresses.  0:
 * nothing distinguishes it.  Items of the dict are not read: another thread may change
 * it, if a function passed it on. */
static inline uint64_t
walk_call(const walk_frame *frame)
{
    const PyObject *kwargs = walk_local(frame, 2);

    if (kwargs == NULL || Py_TYPE(kwargs) != &PyDict_Type) {
        return 0;
    }
#if PY_VERSION_HEX < 0x030d0000
    /* CPython numbers dicts and their changes from one counter. */
    return ((const PyDictObject *)kwargs)->ma_version_tag;
#else
    /* Without that number, calls with equal objects are equal. */
    const PyObject *args = walk_local(frame, 1);
    uint64_t sum = walk_mix((uintptr_t)args, kwargs);

    if (args != NULL && Py_TYPE(args) == &PyTuple_Type) {
        for (Py_ssize_t i = 0; i < ARGUMENTS && i < PyTuple_GET_SIZE(args); i++) {
            sum = walk_mix(sum, PyTuple_GET_ITEM(args, i));
        }
    }
    return sum;
#endif
}

#endif

#endif
