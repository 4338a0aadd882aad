/* Captures the calling thread's frames by Python's public functions.  See
 * frames_parts.h. */
#include "frames/frames_parts.h"

#include <frameobject.h>

#include "frames/codes.h"

bool
ml_frames_holds_gil(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return PyThreadState_GetUnchecked() != NULL;
#else
    PyThreadState *own = PyGILState_GetThisThreadState();
    return own != NULL && own == _PyThreadState_UncheckedGet();
#endif
}

size_t
ml_frames_public_walk(ml_frame_key *keys)
{
    size_t count = 0;
    /* PyFrame_GetBack makes frame objects.  Before 3.12, that may start a collection,
     * and with it finalizers, inside the allocator. */
    int collecting = PyGC_Disable();
    PyFrameObject *frame = PyEval_GetFrame();

    Py_XINCREF(frame);
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int line = PyFrame_GetLineNumber(frame);
        keys[ml_frames_public_place(count++)] = (ml_frame_key){
            .code = (uintptr_t)code,
            .fingerprint = ml_codes_print(code),
            .offset = line > 0 ? (uint32_t)line : 0,
        };
        Py_DECREF(code);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    if (collecting) {
        PyGC_Enable();
    }
    return count;
}
