/* The code objects that line tables watch.
 *
 * Owns their list, and the reports to each table.  All with the GIL. */
#ifndef ML_LINE_WATCHES_H
#define ML_LINE_WATCHES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "core/inspect/lines.h"

typedef struct ml_line_watch {
    struct ml_line_watch *next; /* in its bucket */
    PyObject *code;             /* owned */
    ml_lines *lines;
    ml_lines_function *function;
} ml_line_watch;

enum ml_line_event {
    ML_LINE_CALL,   /* a call begins */
    ML_LINE_RESUME, /* a suspended call continues, at a line */
    ML_LINE_REACH,  /* the call reaches a line */
    ML_LINE_LEAVE   /* the call ends or is suspended */
};

/* Whether LINES watches CODE. */
bool ml_line_watches_has(const PyObject *code);
bool ml_line_watches_by(const PyObject *code, const ml_lines *lines);
size_t ml_line_watches_count(void);
/* Reports an event of CODE on the calling thread. */
void ml_line_watches_tell(const PyObject *code, enum ml_line_event event, int line);

/* Adds a watch of CODE, which it keeps; NULL: no memory. */
ml_line_watch *ml_line_watches_add(PyObject *code, ml_lines *lines,
                                   ml_lines_function *function);
/* Removes ADDED from the list of CODE; returns whether it was there. */
bool ml_line_watches_remove(const ml_line_watch *added, const PyObject *code);
/* Removes the watches of LINES; returns them as a list by next. */
ml_line_watch *ml_line_watches_take(const ml_lines *lines);

#endif
