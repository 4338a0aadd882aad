/* The watched code objects; see line_events.h. */
#include "line_events.h"

#include <string.h>

#include "../core/base.h"

typedef struct watch {
    PyObject *code; /* owned */
    ml_lines *lines;
    ml_lines_function *function;
} watch;

/* Few, and the one asked for is mostly the one that was asked for last. */
static struct {
    watch *items; /* owned */
    size_t count;
    size_t capacity;
    size_t last;
} watches;

static size_t
find(const PyObject *code)
{
    if (watches.last < watches.count && watches.items[watches.last].code == code) {
        return watches.last;
    }
    for (size_t i = 0; i < watches.count; i++) {
        if (watches.items[i].code == code) {
            watches.last = i;
            return i;
        }
    }
    return watches.count;
}

bool
ml_line_events_watched(const PyObject *code)
{
    return find(code) < watches.count;
}

static void
tell(const watch *watcher, enum ml_line_event event, uint64_t thread, uint32_t line)
{
    switch (event) {
    case ML_LINE_CALL:
        ml_lines_enter(watcher->lines, watcher->function, thread, false, 0);
        break;
    case ML_LINE_RESUME:
        ml_lines_enter(watcher->lines, watcher->function, thread, true, line);
        break;
    case ML_LINE_REACH:
        ml_lines_reach(watcher->lines, watcher->function, thread, line);
        break;
    case ML_LINE_LEAVE:
        ml_lines_leave(watcher->lines, watcher->function, thread);
        break;
    }
}

void
ml_line_events_tell(const PyObject *code, enum ml_line_event event, int line)
{
    uint64_t thread = PyThread_get_thread_ident();
    size_t first = find(code);
    if (first == watches.count) {
        return;
    }
    /* Those of one code object lie side by side. */
    while (first > 0 && watches.items[first - 1].code == code) {
        first--;
    }
    for (size_t i = first; i < watches.count && watches.items[i].code == code; i++) {
        tell(&watches.items[i], event, thread, (uint32_t)line);
    }
}

int
ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function)
{
    size_t place = find(code);
    bool known = place < watches.count;
    for (size_t i = 0; i < watches.count; i++) {
        if (watches.items[i].code == code && watches.items[i].lines == lines) {
            return 0;
        }
    }
    if (ml_grow((void **)&watches.items, &watches.capacity, watches.count + 1,
                sizeof(*watches.items)) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (!known && ml_line_monitor_add(code, watches.count == 0) < 0) {
        return -1;
    }
    memmove(&watches.items[place + 1], &watches.items[place],
            (watches.count - place) * sizeof(*watches.items));
    watches.items[place] =
        (watch){.code = Py_NewRef(code), .lines = lines, .function = function};
    watches.count++;
    return 0;
}

void
ml_line_events_forget(const ml_lines *lines)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (size_t i = watches.count; i-- > 0;) {
        if (watches.items[i].lines != lines) {
            continue;
        }
        PyObject *code = watches.items[i].code;
        watches.count--;
        memmove(&watches.items[i], &watches.items[i + 1],
                (watches.count - i) * sizeof(*watches.items));
        if (!ml_line_events_watched(code)) {
            ml_line_monitor_remove(code, watches.count == 0);
        }
        Py_DECREF(code);
    }
    PyErr_Restore(type, value, traceback);
}
