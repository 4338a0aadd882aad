/* The watched code objects; see line_events.h. */
#include "lines/line_events.h"

#include "core/base/base.h"

typedef struct watch {
    struct watch *next; /* in its bucket */
    PyObject *code;     /* owned */
    ml_lines *lines;
    ml_lines_function *function;
} watch;

/* By the address of the code: twins are equal, and yet two. */
static struct {
    watch **buckets;     /* owned, each with its list */
    size_t bucket_count; /* a power of 2, or 0 */
    size_t count;
} watches;

static watch **
bucket_of(const PyObject *code)
{
    uint64_t hash = (uint64_t)(uintptr_t)code * UINT64_C(0x9e3779b97f4a7c15);
    return &watches.buckets[(hash >> 32) & (watches.bucket_count - 1)];
}

/* The first watch of CODE from LIST on; NULL where there is none. */
static watch *
next_of(watch *list, const PyObject *code)
{
    while (list != NULL && list->code != code) {
        list = list->next;
    }
    return list;
}

static watch *
first_of(const PyObject *code)
{
    return watches.count != 0 ? next_of(*bucket_of(code), code) : NULL;
}

bool
ml_line_events_watched(const PyObject *code)
{
    return first_of(code) != NULL;
}

/* Room for one watch more.  0 or -1. */
static int
grow_buckets(void)
{
    if (watches.count < watches.bucket_count) {
        return 0;
    }
    size_t old_count = watches.bucket_count;
    watch **old = watches.buckets;
    size_t count = old_count != 0 ? 2 * old_count : 16;
    watch **buckets = ml_alloc_zeroed(count, sizeof(*buckets));
    if (buckets == NULL) {
        return -1;
    }
    watches.buckets = buckets;
    watches.bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            watch *moved = old[i];
            old[i] = moved->next;
            watch **bucket = bucket_of(moved->code);
            moved->next = *bucket;
            *bucket = moved;
        }
    }
    ml_free(old);
    return 0;
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
    const watch *watcher = first_of(code);
    if (watcher == NULL) {
        return;
    }
    uint64_t thread = PyThread_get_thread_ident();
    for (; watcher != NULL; watcher = next_of(watcher->next, code)) {
        tell(watcher, event, thread, (uint32_t)line);
    }
}

/* Takes ADDED out of its list, if nobody did.  Whether it was there. */
static bool
unlink_watch(const watch *added, const PyObject *code)
{
    for (watch **link = bucket_of(code); *link != NULL; link = &(*link)->next) {
        if (*link == added) {
            *link = added->next;
            watches.count--;
            return true;
        }
    }
    return false;
}

static void
release(watch *taken)
{
    if (first_of(taken->code) == NULL) {
        ml_line_monitor_remove(taken->code);
    }
    Py_DECREF(taken->code);
    ml_free(taken);
}

int
ml_line_events_watch(PyObject *code, ml_lines *lines, ml_lines_function *function,
                     PyObject *error)
{
    for (watch *other = first_of(code); other != NULL;
         other = next_of(other->next, code)) {
        if (other->lines == lines) {
            return 0;
        }
    }
    watch *added = grow_buckets() == 0 ? ml_alloc_zeroed(1, sizeof(*added)) : NULL;
    if (added == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    watch **bucket = bucket_of(code);
    *added = (watch){
        .next = *bucket, .code = Py_NewRef(code), .lines = lines, .function = function};
    *bucket = added;
    watches.count++;
    /* It counts already: while CPython is asked another thread may forget its own, which
     * are not the last then. */
    if (ml_line_monitor_add(code, error) == 0) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (unlink_watch(added, code)) {
        release(added);
    }
    if (watches.count == 0) {
        ml_line_monitor_end();
    }
    PyErr_Restore(type, value, traceback);
    return -1;
}

void
ml_line_events_forget(const ml_lines *lines)
{
    watch *taken = NULL;
    for (size_t i = 0; i < watches.bucket_count; i++) {
        for (watch **link = &watches.buckets[i]; *link != NULL;) {
            watch *watcher = *link;
            if (watcher->lines != lines) {
                link = &watcher->next;
                continue;
            }
            *link = watcher->next;
            watcher->next = taken;
            taken = watcher;
            watches.count--;
        }
    }
    if (taken == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (taken != NULL) {
        watch *next = taken->next;
        release(taken);
        taken = next;
    }
    if (watches.count == 0) {
        ml_line_monitor_end();
    }
    PyErr_Restore(type, value, traceback);
}
