/* Which lines of Python functions run, told to the line tables that watch them.
 *
 * Owns when CPython is asked: from the first watch of a code object to the last.  How it is
 * asked is line_monitor.h's, who watches what line_watches.h's.  All with the GIL. */
#ifndef ML_LINE_EVENTS_H
#define ML_LINE_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/inspect/lines.h"

/* From now on LINES is told what calls of CODE do, as FUNCTION.  CODE is kept until then;
 * watching it twice is one watch.  0, or -1 with an exception, of type ERROR where
 * CPython has no room for memlab. */
int ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function,
                         PyObject *error);
/* No longer any code.  Python's error indicator is left as it was. */
void ml_line_events_forget(const ml_lines *lines);

#endif
