/* Lists the watched code objects.  See line_watches.h. */
#include "lines/line_watches.h"

#include "core/base/base.h"

/* By the code's address: equal code objects are distinct. */
static struct {
    ml_line_watch **buckets; /* owned, each with its list */
    size_t bucket_count;     /* a power of 2, or 0 */
    size_t count;
} watches;

static ml_line_watch **
bucket_of(const PyObject *code)
{
    uint64_t hash = ml_hash_high((uintptr_t)code);
    return &watches.buckets[(hash >> 32) & (watches.bucket_count - 1)];
}

/* The first watch of CODE from LIST on; NULL if there is none. */
static ml_line_watch *
next_of(ml_line_watch *list, const PyObject *code)
{
    while (list != NULL && list->code != code) {
        list = list->next;
    }
    return list;
}

static ml_line_watch *
first_of(const PyObject *code)
{
    return watches.count != 0 ? next_of(*bucket_of(code), code) : NULL;
}

bool
ml_line_watches_has(const PyObject *code)
{
    return first_of(code) != NULL;
}

/* Makes room for one more watch.  0 or -1. */
static int
grow_buckets(void)
{
    if (watches.count < watches.bucket_count) {
        return 0;
    }
    size_t old_count = watches.bucket_count;
    ml_line_watch **old = watches.buckets;
    size_t count = old_count != 0 ? 2 * old_count : 16;
    ml_line_watch **buckets = ml_alloc_zeroed(count, sizeof(*buckets));
    if (buckets == NULL) {
        return -1;
    }
    watches.buckets = buckets;
    watches.bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            ml_line_watch *moved = old[i];
            old[i] = moved->next;
            ml_line_watch **bucket = bucket_of(moved->code);
            moved->next = *bucket;
            *bucket = moved;
        }
    }
    ml_free(old);
    return 0;
}

static void
tell_watch(const ml_line_watch *watcher, enum ml_line_event event, uint64_t thread,
           uint32_t line)
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
ml_line_watches_tell(const PyObject *code, enum ml_line_event event, int line)
{
    const ml_line_watch *watcher = first_of(code);
    if (watcher == NULL) {
        return;
    }
    uint64_t thread = PyThread_get_thread_ident();
    for (; watcher != NULL; watcher = next_of(watcher->next, code)) {
        tell_watch(watcher, event, thread, (uint32_t)line);
    }
}

ml_line_watch *
ml_line_watches_add(PyObject *code, ml_lines *lines, ml_lines_function *function)
{
    ml_line_watch *added =
        grow_buckets() == 0 ? ml_alloc_zeroed(1, sizeof(*added)) : NULL;
    if (added == NULL) {
        return NULL;
    }
    ml_line_watch **bucket = bucket_of(code);
    *added = (ml_line_watch){
        .next = *bucket, .code = Py_NewRef(code), .lines = lines, .function = function};
    *bucket = added;
    watches.count++;
    return added;
}

bool
ml_line_watches_by(const PyObject *code, const ml_lines *lines)
{
    const ml_line_watch *other = first_of(code);
    while (other != NULL && other->lines != lines) {
        other = next_of(other->next, code);
    }
    return other != NULL;
}

bool
ml_line_watches_remove(const ml_line_watch *added, const PyObject *code)
{
    for (ml_line_watch **link = bucket_of(code); *link != NULL; link = &(*link)->next) {
        if (*link == added) {
            *link = added->next;
            watches.count--;
            return true;
        }
    }
    return false;
}

ml_line_watch *
ml_line_watches_take(const ml_lines *lines)
{
    ml_line_watch *taken = NULL;
    for (size_t i = 0; i < watches.bucket_count; i++) {
        for (ml_line_watch **link = &watches.buckets[i]; *link != NULL;) {
            ml_line_watch *watcher = *link;
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
    return taken;
}

size_t
ml_line_watches_count(void)
{
    return watches.count;
}
