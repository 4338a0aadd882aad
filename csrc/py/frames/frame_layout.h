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

#if PY_VERSION_HEX < 0x030a0000 || PY_VERSION_HEX >= 0x03100000
#define WALK_UNKNOWN "the layout of this CPython's frames is not known to memlab"
#elif PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_frame.h>
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

#include "core/base/base.h"

#ifndef WALK_UNKNOWN

#if PY_VERSION_HEX < 0x030e0000

/* A local variable, or what lies on a frame's stack. */
typedef PyObject *walk_slot;

static inline PyObject *
walk_object(walk_slot slot)
{
    return slot;
}

/* Whether SLOT is one of the references that its object counts. */
static inline bool
walk_counts(walk_slot Py_UNUSED(slot))
{
    return true;
}

#else

/* The two low bits are tags.  0 and 1 are objects; to the count of one with 1, which has
 * its owner elsewhere, the slot adds nothing.  The others are no objects. */
typedef _PyStackRef walk_slot;

static inline PyObject *
walk_object(walk_slot slot)
{
    return (slot.bits & 2) == 0 ? (PyObject *)(slot.bits & ~(uintptr_t)1) : NULL;
}

static inline bool
walk_counts(walk_slot slot)
{
    return (slot.bits & 3) == 0;
}

#endif

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

static inline PyCodeObject *
walk_executable(const walk_frame *frame)
{
    return frame->f_code;
}

/* NULL for frames that Python itself never shows: the interpreter's own. */
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

/* The code of a frame that is not the interpreter's own. */
static inline PyCodeObject *
walk_executable(const walk_frame *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
    return (PyCodeObject *)(frame->f_executable.bits & ~(uintptr_t)1);
#elif PY_VERSION_HEX >= 0x030d0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

/* NULL for frames that Python itself never shows: the interpreter's own. */
static inline const PyCodeObject *
walk_code(const walk_frame *frame, uint64_t *position)
{
#if PY_VERSION_HEX >= 0x030c0000
    /* From 3 on, the owner is the interpreter: its entry from C. */
    if (frame->owner >= 3) {
        return NULL;
    }
#endif
    const PyCodeObject *code = walk_executable(frame);
    *position = walk_at(frame);
    if (frame->owner == FRAME_OWNED_BY_GENERATOR) {
        *position |= POSITION_IN_GENERATOR;
    }
    return code;
}

static inline PyObject *
walk_local(const walk_frame *frame, size_t index)
{
    return walk_object(frame->localsplus[index]);
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
    return ml_hash_high(sum ^ (uintptr_t)object);
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
