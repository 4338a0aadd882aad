/* The code objects that line tables watch.
 *
 * Owns the list of them, and telling each table what its own do.  All with the GIL. */
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
    ML_LINE_RESUME, /* a suspended one goes on, at a line */
    ML_LINE_REACH,  /* the call comes to a line */
    ML_LINE_LEAVE   /* it ends or is suspended */
};

/* Whether CODE is watched, by LINES. */
bool ml_line_watches_has(const PyObject *code);
bool ml_line_watches_by(const PyObject *code, const ml_lines *lines);
size_t ml_line_watches_count(void);
/* Something happened to CODE on the calling thread. */
void ml_line_watches_tell(const PyObject *code, enum ml_line_event event, int line);

/* A watch of CODE, which it keeps, in the list; NULL without memory. */
ml_line_watch *ml_line_watches_add(PyObject *code, ml_lines *lines,
                                   ml_lines_function *function);
/* Takes ADDED out of the list of CODE, if nobody did.  Whether it was there. */
bool ml_line_watches_remove(const ml_line_watch *added, const PyObject *code);
/* Takes those of LINES out, a list by next. */
ml_line_watch *ml_line_watches_take(const ml_lines *lines);

#endif
