/* Finds backward passes.  See passes.h. */
#include "analysis/attribution/passes.h"

#include <stdlib.h>

#include "base/base.h"

/* The start of a backward pass: its forward's thread by autograd's number, above the index
 * of the event, so that passes compare as numbers. */
typedef uint64_t pass;
#define PASS_THREAD_AT 48

/* Represents no event. */
#define NO_EVENT UINT32_MAX

/* Features that a thread has in the recording. */
enum {
    HAS_FORWARDS = 1,
    HAS_PASS = 2
};

/* Represents threads without a known number, and threads that only run nodes, such as
 * autograd's: a checkpoint makes nodes there. */
#define UNNUMBERED 0
#define ENGINE UINT16_MAX

static uint16_t
thread_of(const ml_passes *p, uint16_t thread)
{
    return thread == UNNUMBERED || ml_causes_allocates(p->causes, p->device, thread)
               ? thread
               : ENGINE;
}

static pass
pass_of(uint16_t thread, uint64_t at)
{
    return (uint64_t)thread << PASS_THREAD_AT | at;
}

static uint64_t
begin_of(pass it)
{
    return it & ((UINT64_C(1) << PASS_THREAD_AT) - 1);
}

static int
compare_passes(const void *a, const void *b)
{
    const pass *x = a;
    const pass *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Number of passes of THREAD, and of earlier threads, that began before event AT.  Blocks are
 * asked for in the order of their births, so it is mostly that of the last one. */
static size_t
rank(const ml_passes *p, uint16_t thread, uint64_t at)
{
    ml_passes *place = (ml_passes *)(uintptr_t)p;
    pass sought = pass_of(thread, at);
    size_t low = atomic_load_explicit(&place->ranked, memory_order_relaxed);
    bool same = (low == 0 || p->starts[low - 1] < sought) &&
                (low == p->count || p->starts[low] >= sought);
    if (!same) {
        ML_SEARCH(low, p->count, p->starts[low] < sought);
        atomic_store_explicit(&place->ranked, low, memory_order_relaxed);
    }
    return low;
}

static int
add_pass(ml_passes *p, size_t at, uint16_t thread)
{
    void *passes = p->starts;
    int error = ml_grow(&passes, &p->capacity, p->count + 1, sizeof(pass));
    if (error == 0) {
        p->starts = passes;
        p->starts[p->count++] = pass_of(thread, at);
    }
    return error;
}

/* MARK: of event INDEX, which allocates or is a backward pass's. */
static int
note_event(ml_passes *p, size_t index, uint8_t mark, uint16_t thread)
{
    int error = 0;
    if ((mark & ML_MARK_BACKWARD) != 0) {
        if (!(p->threads[thread] & HAS_PASS)) {
            error = add_pass(p, index, thread);
        }
        p->threads[thread] |= HAS_PASS;
    }
    else {
        p->threads[thread] &= (uint8_t)~HAS_PASS;
        p->threads[UNNUMBERED] &= (uint8_t)~HAS_PASS;
        p->threads[ENGINE] &= (uint8_t)~HAS_PASS;
    }
    if ((mark & ML_MARK_ALLOC) != 0 && (mark & ML_MARK_PHASE) == ML_PHASE_FORWARD) {
        p->threads[thread] |= HAS_FORWARDS;
    }
    return error;
}

/* The passes, and which threads have forwards.  An event like the one before it says
 * nothing more. */
static int
go_forward(ml_passes *p)
{
    const ml_device_trace *trace = p->trace;
    const uint8_t *marks = ml_causes_marks(p->causes, p->device);
    uint8_t mark = 0;
    uint16_t thread = 0;
    int error = 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_BIT(autograd_thread));
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        if ((marks[i] & (ML_MARK_ALLOC | ML_MARK_BACKWARD)) == 0) {
            continue;
        }
        uint16_t told = ml_event_cursor_at(&cursor, i)->autograd_thread;
        if (marks[i] != mark || told != thread) {
            mark = marks[i];
            thread = told;
            error = note_event(p, i, mark, thread_of(p, thread));
        }
    }
    return error;
}

/* NEXT: room for two events per thread. */
static void
go_back(ml_passes *p, uint32_t *next)
{
    const ml_lifetimes *lifetimes = p->lifetimes;
    uint32_t *forwards = next;
    uint32_t *others = next + UINT16_MAX + 1;
    uint32_t any_forward = NO_EVENT;
    for (size_t i = 0; i <= UINT16_MAX; i++) {
        forwards[i] = others[i] = NO_EVENT;
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &p->trace->events, ML_EVENT_BIT(autograd_thread));
    for (size_t i = lifetimes->count; i-- > 0;) {
        const ml_lifetime *row = &lifetimes->rows[i];
        if (row->birth == 0 || !ml_lifetimes_is_first(lifetimes, i)) {
            continue;
        }
        size_t event = row->birth - 1;
        uint16_t thread =
            thread_of(p, ml_event_cursor_at(&cursor, event)->autograd_thread);
        enum ml_phase phase = ml_causes_phase(p->causes, p->device, event);
        p->next_forward[i] =
            p->threads[thread] & HAS_FORWARDS ? forwards[thread] : any_forward;
        p->next_other[i] = others[thread];
        if (phase == ML_PHASE_FORWARD) {
            forwards[thread] = any_forward = (uint32_t)event;
        }
        if (phase != ML_PHASE_OPTIMIZER) {
            others[thread] = (uint32_t)event;
        }
    }
}

int
ml_passes_init(ml_passes *p, const ml_causes *causes, const ml_recording *recording,
               size_t device, const ml_lifetimes *lifetimes)
{
    *p = (ml_passes){.causes = causes,
                     .trace = &recording->devices[device],
                     .lifetimes = lifetimes,
                     .device = device};
    size_t count = p->lifetimes->count + 1;
    p->next_forward = ml_alloc(count * sizeof(uint32_t));
    p->next_other = ml_alloc(count * sizeof(uint32_t));
    p->threads = ml_alloc_zeroed((size_t)UINT16_MAX + 1, 1);
    uint32_t *next = ml_alloc_zeroed(2 * ((size_t)UINT16_MAX + 1), sizeof(uint32_t));
    int error = p->next_forward == NULL || p->next_other == NULL ||
                        p->threads == NULL || next == NULL
                    ? ML_ENOMEM
                    : go_forward(p);
    if (error == 0) {
        go_back(p, next);
    }
    if (p->count != 0) {
        qsort(p->starts, p->count, sizeof(pass), compare_passes);
    }
    ml_free(next);
    return error;
}

void
ml_passes_fini(ml_passes *p)
{
    ml_free(p->starts);
    ml_free(p->next_forward);
    ml_free(p->next_other);
    ml_free(p->threads);
}

/* How many passes of THREAD began from event FROM up to before TO: 0, 1, or 2 for
 * more. */
static unsigned
passes_between(const ml_passes *p, uint16_t thread, uint64_t from, uint64_t to)
{
    size_t first = rank(p, thread, from);
    unsigned count = 0;
    while (count < 2 && first + count < p->count &&
           p->starts[first + count] < pass_of(thread, to)) {
        count++;
    }
    return count;
}

ml_passes_during
ml_passes_look(const ml_passes *p, const ml_lifetime *life)
{
    uint64_t from = life->birth;
    uint64_t to = life->requested == ML_NEVER ? p->trace->event_count : life->requested;
    size_t born = life->birth - 1;
    uint16_t thread = thread_of(p, ml_events_autograd_thread(&p->trace->events, born));
    size_t row = ml_lifetimes_row(p->lifetimes, born);
    ml_passes_during in = {.passes = passes_between(p, thread, from, to),
                           .forwards = p->next_forward[row] < to,
                           .others = p->next_other[row] < to};
    bool unnumbered = p->count != 0 && p->starts[0] >> PASS_THREAD_AT == UNNUMBERED;
    if (thread != UNNUMBERED && unnumbered) {
        in.passes += passes_between(p, UNNUMBERED, from, to);
    }
    return in;
}

bool
ml_passes_are_outlived(const ml_passes *p, const ml_lifetime *life)
{
    size_t passes = 0;
    for (size_t i = 0; i < p->count; i++) {
        passes += begin_of(p->starts[i]) >= life->birth;
    }
    return passes > 1;
}

unsigned
ml_passes_between(const ml_passes *p, const ml_lifetime *life, uint64_t to)
{
    size_t born = life->birth - 1;
    uint16_t thread = thread_of(p, ml_events_autograd_thread(&p->trace->events, born));
    return passes_between(p, thread, life->birth, to);
}

bool
ml_passes_before(const ml_passes *p, uint64_t at)
{
    return rank(p, UNNUMBERED, at) != 0;
}
