/* Which lines of Python functions run, told to the line tables that watch them.
 *
 * Owns the list of watched code objects.  How CPython is asked is line_monitor.c's: by
 * sys.monitoring from 3.12 on, where a function that is not watched costs nothing, and by
 * a trace function before, which passes everything on to the one that was there.  It must
 * not know what the tables hold.  All with the GIL. */
#ifndef ML_LINE_EVENTS_H
#define ML_LINE_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "core/inspect/lines.h"

/* From now on LINES is told what calls of CODE do, as FUNCTION.  CODE is kept until then;
 * watching it twice is one watch.  0, or -1 with an exception, of type ERROR where
 * CPython has no room for memlab. */
int ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function,
                         PyObject *error);
/* No longer any code.  Python's error indicator is left as it was. */
void ml_line_events_forget(const ml_lines *lines);

/* ---- Between line_events.c and line_monitor.c ---- */

enum ml_line_event {
    ML_LINE_CALL,   /* a call begins */
    ML_LINE_RESUME, /* a suspended one goes on, at a line */
    ML_LINE_REACH,  /* the call comes to a line */
    ML_LINE_LEAVE   /* it ends or is suspended */
};

/* Whether CODE is watched. */
bool ml_line_events_watched(const PyObject *code);
/* Something happened to CODE on the calling thread. */
void ml_line_events_tell(const PyObject *code, enum ml_line_event event, int line);

/* Asks CPython for the events of CODE.  0, or -1 with an exception; see watch. */
int ml_line_monitor_add(PyObject *code, PyObject *error);
/* Not for those of CODE any more.  Clears exceptions. */
void ml_line_monitor_remove(PyObject *code);
/* Nothing is watched: CPython is as it was.  Clears exceptions. */
void ml_line_monitor_end(void);

#endif
