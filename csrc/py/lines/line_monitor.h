/* The lines that run, reported by CPython.  From 3.12 on by sys.monitoring, where
 * unwatched functions cost nothing; before by a trace function that passes everything
 * on to the previous one.  All with the GIL. */
#ifndef ML_LINE_MONITOR_H
#define ML_LINE_MONITOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Asks CPython for the events of CODE.  0, or -1 with an exception; see
 * ml_line_events_watch. */
int ml_line_monitor_add(PyObject *code, PyObject *error);
/* Ends the events of CODE.  Clears exceptions. */
void ml_line_monitor_remove(PyObject *code);
/* Nothing is watched any more: restores CPython's state.  Clears exceptions. */
void ml_line_monitor_end(void);

#endif
