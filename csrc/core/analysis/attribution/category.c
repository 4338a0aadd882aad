/* Finds the category of an allocation.  See category.h. */
#include "analysis/attribution/category.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "analysis/attribution/estimate.h"
#include "analysis/attribution/failed_pass.h"
#include "analysis/attribution/workspace.h"
#include "base/base.h"

/* The start of a backward pass: its forward's thread by autograd's number, above the index
 * of the event, so that passes compare as numbers. */
typedef uint64_t pass;
#define PASS_THREAD_AT 48

/* Represents no event. */
#define NO_EVENT UINT32_MAX

struct ml_categories {
    const ml_causes *causes;       /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    const ml_lifetimes *lifetimes; /* borrowed */
    size_t device;
    ml_estimate *estimate; /* owned; NULL: the recording needs no estimates */
    pass *passes;          /* owned; by thread, then time */
    size_t pass_count;
    size_t pass_capacity;
    _Atomic size_t ranked; /* what rank() found last */
    /* Owned; of each allocation, by the first row of its block, the event after it of its
     * own thread that allocates in a forward (of any thread, where its own has no forward
     * at all), and that allocates outside any optimizer's step. */
    uint32_t *next_forward;
    uint32_t *next_other;
    uint8_t *threads;         /* owned; HAS_*, by number */
    bool owners_known;        /* it has tagged parameters */
    ml_failed_pass failed;    /* owned */
    ml_workspaces workspaces; /* owned */
};

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
thread_of(const ml_categories *c, uint16_t thread)
{
    return thread == UNNUMBERED || ml_causes_allocates(c->causes, c->device, thread)
               ? thread
               : ENGINE;
}

static bool
is_backward(const ml_categories *c, size_t index)
{
    return ml_causes_is_backward(c->causes, c->device, index);
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
rank(const ml_categories *c, uint16_t thread, uint64_t at)
{
    ml_categories *place = (ml_categories *)(uintptr_t)c;
    pass sought = pass_of(thread, at);
    size_t low = atomic_load_explicit(&place->ranked, memory_order_relaxed);
    bool same = (low == 0 || c->passes[low - 1] < sought) &&
                (low == c->pass_count || c->passes[low] >= sought);
    if (!same) {
        ML_SEARCH(low, c->pass_count, c->passes[low] < sought);
        atomic_store_explicit(&place->ranked, low, memory_order_relaxed);
    }
    return low;
}

static int
add_pass(ml_categories *c, size_t at, uint16_t thread)
{
    void *passes = c->passes;
    int error = ml_grow(&passes, &c->pass_capacity, c->pass_count + 1, sizeof(pass));
    if (error == 0) {
        c->passes = passes;
        c->passes[c->pass_count++] = pass_of(thread, at);
    }
    return error;
}

/* MARK: of event INDEX, which allocates or is a backward pass's. */
static int
note_event(ml_categories *c, size_t index, uint8_t mark, uint16_t thread)
{
    int error = 0;
    if ((mark & ML_MARK_BACKWARD) != 0) {
        if (!(c->threads[thread] & HAS_PASS)) {
            error = add_pass(c, index, thread);
        }
        c->threads[thread] |= HAS_PASS;
    }
    else {
        c->threads[thread] &= (uint8_t)~HAS_PASS;
        c->threads[UNNUMBERED] &= (uint8_t)~HAS_PASS;
        c->threads[ENGINE] &= (uint8_t)~HAS_PASS;
    }
    if ((mark & ML_MARK_ALLOC) != 0 && (mark & ML_MARK_PHASE) == ML_PHASE_FORWARD) {
        c->threads[thread] |= HAS_FORWARDS;
    }
    return error;
}

/* The passes, and which threads have forwards.  An event like the one before it says
 * nothing more. */
static int
go_forward(ml_categories *c)
{
    const ml_device_trace *trace = c->trace;
    const uint8_t *marks = ml_causes_marks(c->causes, c->device);
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
            error = note_event(c, i, mark, thread_of(c, thread));
        }
    }
    return error;
}

/* NEXT: room for two events per thread. */
static void
go_back(ml_categories *c, uint32_t *next)
{
    const ml_lifetimes *lifetimes = c->lifetimes;
    uint32_t *forwards = next;
    uint32_t *others = next + UINT16_MAX + 1;
    uint32_t any_forward = NO_EVENT;
    for (size_t i = 0; i <= UINT16_MAX; i++) {
        forwards[i] = others[i] = NO_EVENT;
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &c->trace->events, ML_EVENT_BIT(autograd_thread));
    for (size_t i = lifetimes->count; i-- > 0;) {
        const ml_lifetime *row = &lifetimes->rows[i];
        if (row->birth == 0 || !ml_lifetimes_is_first(lifetimes, i)) {
            continue;
        }
        size_t event = row->birth - 1;
        uint16_t thread =
            thread_of(c, ml_event_cursor_at(&cursor, event)->autograd_thread);
        enum ml_phase phase = ml_causes_phase(c->causes, c->device, event);
        c->next_forward[i] =
            c->threads[thread] & HAS_FORWARDS ? forwards[thread] : any_forward;
        c->next_other[i] = others[thread];
        if (phase == ML_PHASE_FORWARD) {
            forwards[thread] = any_forward = (uint32_t)event;
        }
        if (phase != ML_PHASE_OPTIMIZER) {
            others[thread] = (uint32_t)event;
        }
    }
}

static int
look_around(ml_categories *c)
{
    size_t count = c->lifetimes->count + 1;
    c->next_forward = ml_alloc(count * sizeof(uint32_t));
    c->next_other = ml_alloc(count * sizeof(uint32_t));
    c->threads = ml_alloc_zeroed((size_t)UINT16_MAX + 1, 1);
    uint32_t *next = ml_alloc_zeroed(2 * ((size_t)UINT16_MAX + 1), sizeof(uint32_t));
    int error = c->next_forward == NULL || c->next_other == NULL ||
                        c->threads == NULL || next == NULL
                    ? ML_ENOMEM
                    : go_forward(c);
    if (error == 0) {
        go_back(c, next);
    }
    if (c->pass_count != 0) {
        qsort(c->passes, c->pass_count, sizeof(pass), compare_passes);
    }
    ml_free(next);
    return error;
}

int
ml_categories_new(const ml_causes *causes, const ml_recording *recording, size_t device,
                  const ml_lifetimes *lifetimes, ml_categories **out)
{
    ml_categories *c = ml_alloc_zeroed(1, sizeof(*c));
    if (c == NULL) {
        return ML_ENOMEM;
    }
    c->causes = causes;
    c->trace = &recording->devices[device];
    c->lifetimes = lifetimes;
    c->device = device;
    int error = look_around(c);
    if (error == 0) {
        error = ml_failed_pass_init(&c->failed, causes, recording, device, lifetimes);
    }
    if (error == 0) {
        error =
            ml_workspaces_init(&c->workspaces, causes, recording, device, lifetimes);
    }
    if (error == 0) {
        error = ml_estimate_new(causes, recording, device, lifetimes, &c->estimate);
    }
    if (error < 0) {
        ml_categories_free(c);
        return error;
    }
    c->owners_known = c->estimate != NULL;
    for (size_t i = 0; i < c->trace->tag_count; i++) {
        c->owners_known =
            c->owners_known || c->trace->tags[i].category == ML_CATEGORY_PARAMETER;
    }
    *out = c;
    return 0;
}

void
ml_categories_free(ml_categories *categories)
{
    if (categories != NULL) {
        ml_estimate_free(categories->estimate);
        ml_free(categories->passes);
        ml_free(categories->next_forward);
        ml_free(categories->next_other);
        ml_free(categories->threads);
        ml_failed_pass_fini(&categories->failed);
        ml_workspaces_fini(&categories->workspaces);
        ml_free(categories);
    }
}

static ml_verdict
exact(enum ml_category category)
{
    return (ml_verdict){(uint8_t)category, ML_WHY_KNOWN, true};
}

static ml_verdict
likely(enum ml_category category)
{
    return (ml_verdict){(uint8_t)category, ML_WHY_KNOWN, false};
}

static ml_verdict
unknown(enum ml_why why)
{
    return (ml_verdict){ML_CATEGORY_UNKNOWN, (uint8_t)why, true};
}

/* How many passes of THREAD began from event FROM up to before TO: 0, 1, or 2 for
 * more. */
static unsigned
passes_between(const ml_categories *c, uint16_t thread, uint64_t from, uint64_t to)
{
    size_t first = rank(c, thread, from);
    unsigned count = 0;
    while (count < 2 && first + count < c->pass_count &&
           c->passes[first + count] < pass_of(thread, to)) {
        count++;
    }
    return count;
}

/* Events from just after an allocation up to and with its free, on its thread. */
typedef struct during {
    unsigned
        /* none, one or more; those of unnumbered threads count for every thread */
        passes;
    bool forwards; /* of all threads, if its own has none */
    bool others;
} during;

static during
look_at(const ml_categories *c, const ml_lifetime *life)
{
    uint64_t from = life->birth;
    uint64_t to = life->requested == ML_NEVER ? c->trace->event_count : life->requested;
    size_t born = life->birth - 1;
    uint16_t thread = thread_of(c, ml_events_autograd_thread(&c->trace->events, born));
    size_t row = ml_lifetimes_row(c->lifetimes, born);
    during in = {.passes = passes_between(c, thread, from, to),
                 .forwards = c->next_forward[row] < to,
                 .others = c->next_other[row] < to};
    bool unnumbered =
        c->pass_count != 0 && c->passes[0] >> PASS_THREAD_AT == UNNUMBERED;
    if (thread != UNNUMBERED && unnumbered) {
        in.passes += passes_between(c, UNNUMBERED, from, to);
    }
    return in;
}

static bool
freed_by_pass(const ml_categories *c, const ml_lifetime *life)
{
    return life->requested != ML_NEVER && is_backward(c, life->requested - 1);
}

/* Bytes asked for; 0: the ledger had no room for it. */
static uint64_t
size_of(const ml_categories *c, const ml_lifetime *life)
{
    if (life->birth != 0) {
        return ml_events_size(&c->trace->events, life->birth - 1);
    }
    return life->earlier < c->lifetimes->earlier_count
               ? c->lifetimes->earlier[life->earlier].size
               : 0;
}

static bool
like_workspace(const ml_categories *c, const ml_lifetime *life)
{
    return life->requested == ML_NEVER && ml_workspace_has_size(size_of(c, life));
}

/* Over all threads, because it serves all of them. */
static bool
outlives_passes(const ml_categories *c, const ml_lifetime *life)
{
    size_t passes = 0;
    for (size_t i = 0; i < c->pass_count; i++) {
        passes += begin_of(c->passes[i]) >= life->birth;
    }
    return passes > 1;
}

/* Whether LIFE, which no pass made, is taken for a workspace whatever else it may be. */
static bool
is_workspace(const ml_categories *c, const ml_lifetime *life)
{
    return like_workspace(c, life) &&
           (size_of(c, life) == ML_WORKSPACE_ODD || outlives_passes(c, life));
}

/* Whether memory ended in the pass that made LIFE, before it was freed. */
static bool
is_of_failed_pass(const ml_categories *c, const ml_lifetime *life)
{
    if (c->failed.events <= life->birth || life->requested <= c->failed.events ||
        !c->failed.backward) {
        return false;
    }
    size_t born = life->birth - 1;
    uint16_t thread = thread_of(c, ml_events_autograd_thread(&c->trace->events, born));
    return passes_between(c, thread, life->birth, c->failed.events) == 0;
}

static bool
has_size_of_parameter(const ml_categories *c, const ml_lifetime *life)
{
    uint64_t size = ml_events_size(&c->trace->events, life->birth - 1);
    return c->estimate != NULL ? ml_estimate_is_trained(c->estimate, size)
                               : ml_failed_pass_has_parameter(&c->failed, size);
}

/* The pass did not live to free it: all that stays of one is a gradient of a parameter. */
static enum ml_category
judge_unfinished(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    return cause->recomputed                ? ML_CATEGORY_ACTIVATION
           : has_size_of_parameter(c, life) ? ML_CATEGORY_GRADIENT
                                            : ML_CATEGORY_TEMPORARY;
}

static ml_verdict
judge_backward(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause,
               during in)
{
    if (freed_by_pass(c, life) && in.passes == 0) {
        uint32_t stack = ml_events_stack(&c->trace->events, life->requested - 1);
        /* The recomputation frees its own temporaries in module calls. */
        bool kept = cause->recomputed &&
                    ml_causes_facts(c->causes)->of[stack].scope != ML_SCOPE_MODULE;
        return exact(kept ? ML_CATEGORY_ACTIVATION : ML_CATEGORY_TEMPORARY);
    }
    if (like_workspace(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    if (c->owners_known && is_of_failed_pass(c, life)) {
        return likely(judge_unfinished(c, life, cause));
    }
    return c->owners_known ? likely(ML_CATEGORY_GRADIENT) : unknown(ML_WHY_OUTLIVES);
}

/* backward() holds it until it returns. */
static ml_verdict
judge_seed(const ml_lifetime *life, during in)
{
    return life->requested != ML_NEVER && !in.forwards ? exact(ML_CATEGORY_TEMPORARY)
                                                       : likely(ML_CATEGORY_GRADIENT);
}

/* Whether autograd made nodes on LIFE's thread after its allocation, up to the last
 * failed request.  The forward pass then keeps it for a backward pass, unless it may be
 * a workspace. */
static bool
waits_for_pass(const ml_categories *c, const ml_lifetime *life)
{
    if (c->failed.events <= life->birth || like_workspace(c, life) ||
        c->failed.backward) {
        return false;
    }
    if (c->estimate != NULL) {
        return true;
    }
    ml_event birth = ml_events_at(&c->trace->events, life->birth - 1);
    ml_event failed = ml_events_at(&c->trace->events, c->failed.events - 1);
    return birth.autograd_thread != 0 &&
           birth.autograd_thread == failed.autograd_thread &&
           birth.sequence != failed.sequence;
}

static ml_verdict
judge_forward(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause,
              during in)
{
    if (is_workspace(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    bool outside = cause->phase == ML_PHASE_OTHER && in.forwards && c->estimate == NULL;
    bool freed = freed_by_pass(c, life);
    if (outside) {
        /* Only the first of an operation's results identifies its node.  The graph that
         * the first pass frees was its last holder, as it may be of a batch that the
         * program released. */
        return likely(freed && in.passes <= 1 ? ML_CATEGORY_ACTIVATION
                                              : ML_CATEGORY_OTHER);
    }
    if (freed) {
        return exact(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 1 && c->owners_known) {
        return likely(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 0 && life->requested != ML_NEVER) {
        return exact(ML_CATEGORY_TEMPORARY);
    }
    if (in.passes == 0) {
        return cause->phase == ML_PHASE_FORWARD && waits_for_pass(c, life)
                   ? likely(ML_CATEGORY_ACTIVATION)
                   : unknown(ML_WHY_NO_PASS);
    }
    if (in.passes > 1 && ml_workspaces_hold(&c->workspaces, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    return unknown(in.passes == 1 ? ML_WHY_OWNERS : ML_WHY_SEVERAL);
}

static ml_verdict
judge(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    bool given = life->tag == ML_CATEGORY_INPUT;
    if (life->tag != ML_CATEGORY_COUNT && !given) {
        return exact((enum ml_category)life->tag);
    }
    if (life->birth == 0) {
        return given ? exact(ML_CATEGORY_INPUT)
               : c->owners_known && is_workspace(c, life)
                   ? likely(ML_CATEGORY_WORKSPACE)
                   : exact(ML_CATEGORY_BEFORE_RECORDING);
    }
    if (cause->communication) {
        return exact(ML_CATEGORY_COMMUNICATION);
    }
    /* The result of a model's own work is no batch, whatever module gets it next. */
    uint32_t stack = ml_events_stack(&c->trace->events, life->birth - 1);
    bool outside = ml_causes_facts(c->causes)->of[stack].scope == ML_SCOPE_NONE;
    if (given && outside &&
        (cause->phase == ML_PHASE_OTHER || cause->phase == ML_PHASE_FORWARD)) {
        return exact(ML_CATEGORY_INPUT);
    }
    during in = look_at(c, life);
    if (cause->phase == ML_PHASE_OPTIMIZER) {
        return life->requested != ML_NEVER && !in.others
                   ? exact(ML_CATEGORY_TEMPORARY)
                   : likely(ML_CATEGORY_OPTIMIZER_STATE);
    }
    if (!ml_causes_know_passes(c->causes)) {
        return unknown(ML_WHY_PASSES);
    }
    /* The flag, not the phase: passes are counted by the flag. */
    if (is_backward(c, life->birth - 1)) {
        return judge_backward(c, life, cause, in);
    }
    if (cause->seed) {
        return judge_seed(life, in);
    }
    return judge_forward(c, life, cause, in);
}

/* The estimate for a block made outside any optimizer's step and any pass; UNKNOWN:
 * none. */
static enum ml_category
estimate(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    const ml_events *events = &c->trace->events;
    size_t birth = life->birth - 1;
    uint32_t stack = ml_events_stack(events, birth);
    const uint8_t *of = ml_causes_signs(c->causes)->of;
    uint8_t signs = of[stack];
    during in = look_at(c, life);
    bool stays = life->requested == ML_NEVER || in.forwards;
    bool lasts = ml_estimate_lasts(c->estimate, life->requested);
    bool outside = cause->phase == ML_PHASE_OTHER && stays;
    if (outside && signs & (ML_SIGN_PARAMETER | ML_SIGN_BUFFER)) {
        return signs & ML_SIGN_BUFFER ? ML_CATEGORY_BUFFER : ML_CATEGORY_PARAMETER;
    }
    if (outside && signs & ML_SIGN_OPTIMIZER) {
        return ML_CATEGORY_OPTIMIZER_STATE;
    }
    if (life->requested != ML_NEVER &&
        of[ml_events_stack(events, life->requested - 1)] & ML_SIGN_CLEARS) {
        return ML_CATEGORY_GRADIENT;
    }
    if (lasts && in.passes > 1 &&
        ml_estimate_is_trained(c->estimate, ml_events_size(events, birth))) {
        return ML_CATEGORY_PARAMETER;
    }
    if (cause->phase == ML_PHASE_FORWARD && in.passes == 0 && waits_for_pass(c, life) &&
        life->requested > c->failed.events) {
        /* It vanished with the error. */
        return ML_CATEGORY_ACTIVATION;
    }
    if (!outside || !in.forwards) {
        return ML_CATEGORY_UNKNOWN;
    }
    bool input = ml_estimate_is_input(c->estimate, stack);
    bool kept =
        in.passes > 1 && (!input || (lasts && rank(c, UNNUMBERED, life->birth) != 0));
    return kept ? ML_CATEGORY_OTHER : input ? ML_CATEGORY_INPUT : ML_CATEGORY_UNKNOWN;
}

static ml_verdict
judge_estimated(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    if (life->birth == 0) {
        unsigned category = ml_estimate_earlier(c->estimate, life->earlier);
        return category == ML_CATEGORY_BEFORE_RECORDING ? exact(category)
                                                        : likely(category);
    }
    if (cause->phase == ML_PHASE_FORWARD || cause->phase == ML_PHASE_OTHER) {
        enum ml_category category = estimate(c, life, cause);
        if (category != ML_CATEGORY_UNKNOWN && !cause->communication) {
            return likely(category);
        }
    }
    ml_verdict verdict = judge(c, life, cause);
    verdict.exact = verdict.category == ML_CATEGORY_UNKNOWN;
    return verdict;
}

ml_verdict
ml_categories_judge(const ml_categories *c, const ml_lifetime *life,
                    const ml_cause *cause)
{
    return c->estimate != NULL ? judge_estimated(c, life, cause)
                               : judge(c, life, cause);
}
