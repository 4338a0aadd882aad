/* Lines of Python functions that run, reported to the line tables that watch them.
 *
 * Owns when CPython is asked: from a code object's first watch to its last.
 * line_monitor.h asks; line_watches.h has the watches.  All with the GIL. */
#ifndef ML_LINE_EVENTS_H
#define ML_LINE_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/inspect/lines.h"

/* From now on, LINES receives the calls of CODE, as FUNCTION.  CODE is kept until
 * forget; watching it twice is one watch.  0; or -1 with an exception, of type ERROR if
 * CPython has no room for memlab. */
int ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function,
                         PyObject *error);
/* Ends all watches of LINES.  Leaves Python's exception as it was. */
void ml_line_events_forget(const ml_lines *lines);

#endif
