/* Shares windows for meters.  See metering.h. */
#include "lines/metering.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unistd.h>

#include "core/record/recorder.h"

typedef struct metering {
    const ml_source *source; /* NULL: the place is free */
    ml_window *window;       /* owned; NULL: not wanted */
    size_t users;
    pid_t process; /* the window's process: a forked child records nothing */
} metering;

static metering meterings[ML_SOURCE_MAX];

/* There are slots for all sources; sources are never unregistered. */
static metering *
metering_of(const ml_source *source)
{
    metering *place = meterings;
    while (place->source != NULL && place->source != source) {
        place++;
    }
    place->source = source;
    return place;
}

static void
stop(ml_window *window)
{
    Py_BEGIN_ALLOW_THREADS
    ml_window_stop(window);
    Py_END_ALLOW_THREADS
}

int
ml_metering_begin(const ml_source *source)
{
    metering *shared = metering_of(source);
    if (shared->window != NULL && shared->process == getpid()) {
        shared->users++;
        return 0;
    }
    ml_window_options options = {
        .max_entries = 1, .context = ML_CONTEXT_NONE, .meter = true, .device = -1};
    ml_window *window = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_window_start(source, &options, &window);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return result;
    }
    shared->users++;
    if (shared->window != NULL) {
        /* Another thread was faster. */
        stop(window);
        return 0;
    }
    shared->window = window;
    shared->process = getpid();
    return 0;
}

void
ml_metering_end(const ml_source *source)
{
    metering *shared = metering_of(source);
    if (--shared->users > 0) {
        return;
    }
    ml_window *window = shared->window;
    shared->window = NULL;
    stop(window);
}
