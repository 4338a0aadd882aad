/* Begins and ends watches.  See line_events.h. */
#include "lines/line_events.h"

#include "core/base/base.h"
#include "lines/line_monitor.h"
#include "lines/line_watches.h"

static void
release(ml_line_watch *taken)
{
    if (!ml_line_watches_has(taken->code)) {
        ml_line_monitor_remove(taken->code);
    }
    Py_DECREF(taken->code);
    ml_free(taken);
}

int
ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function,
                     PyObject *error)
{
    if (ml_line_watches_by(code, lines)) {
        return 0;
    }
    ml_line_watch *added = ml_line_watches_add(code, lines, function);
    if (added == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    /* It counts already.  While CPython is being asked, another thread may end its own
     * watches, which are then not the last. */
    if (ml_line_monitor_add(code, error) == 0) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (ml_line_watches_remove(added, code)) {
        release(added);
    }
    if (ml_line_watches_count() == 0) {
        ml_line_monitor_end();
    }
    PyErr_Restore(type, value, traceback);
    return -1;
}

void
ml_line_events_forget(const ml_lines *lines)
{
    ml_line_watch *taken = ml_line_watches_take(lines);
    if (taken == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (taken != NULL) {
        ml_line_watch *next = taken->next;
        release(taken);
        taken = next;
    }
    if (ml_line_watches_count() == 0) {
        ml_line_monitor_end();
    }
    PyErr_Restore(type, value, traceback);
}
