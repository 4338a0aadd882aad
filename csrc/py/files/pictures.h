/* Pictures of a recording as bytes of SVG and HTML, and texts: methods of
 * memlab._core.Recording.
 *
 * Owns their arguments.  flame.h, segments_page.h, timeline_page.h, timeline_svg.h,
 * torch_segsum.h and torch_trace.h own the contents. */
#ifndef ML_PY_PICTURES_H
#define ML_PY_PICTURES_H

#include "core/base/base.h"
#include "core/recording/recording.h"
#include "state.h"

/* New bytes, or NULL with ValueError, IndexError, TypeError or MemoryError. */
PyObject *ml_py_flame(ml_state *state, const ml_recording *recording, bool folded,
                      PyObject *args, PyObject *kwargs);
PyObject *ml_py_flame_difference(ml_state *state, const ml_recording *before,
                                 const ml_recording *after, bool folded);
PyObject *ml_py_segments_page(ml_state *state, const ml_recording *recording,
                              PyObject *args, PyObject *kwargs);
PyObject *ml_py_timeline_page(ml_state *state, const ml_recording *recording,
                              PyObject *args, PyObject *kwargs);
/* DEVICE is one of RECORDING. */
PyObject *ml_py_timeline_svg(ml_state *state, const ml_recording *recording,
                             size_t device);
/* The profile of stacks at the peak, by WRITE, for the device ARG, or None for all. */
PyObject *ml_py_stacks(ml_state *state, const ml_recording *recording, PyObject *arg,
                       int (*write)(const ml_recording *recording, size_t device,
                                    ml_buffer *out));
/* New str of WRITE's text about RECORDING; NULL with MemoryError. */
PyObject *ml_py_text(ml_state *state, const ml_recording *recording,
                     int (*write)(const ml_recording *recording, ml_buffer *out));

#endif
