/* How CPython is asked for the lines that run: by sys.monitoring from 3.12 on, where a
 * function that is not watched costs nothing, and by a trace function before, which passes
 * everything on to the one that was there.  All with the GIL. */
#ifndef ML_LINE_MONITOR_H
#define ML_LINE_MONITOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Asks CPython for the events of CODE.  0, or -1 with an exception; see
 * ml_line_events_watch. */
int ml_line_monitor_add(PyObject *code, PyObject *error);
/* Not for those of CODE any more.  Clears exceptions. */
void ml_line_monitor_remove(PyObject *code);
/* Nothing is watched: CPython is as it was.  Clears exceptions. */
void ml_line_monitor_end(void);

#endif
