/* Autograd graphs that hold activations in vain: no backward pass ran them, or a pass
 * retained them.
 *
 * An allocation of a forward knows the number of its thread's next autograd node, and
 * so the node it was made for.  A backward pass runs nodes with known numbers.  If the
 * nodes ran and the pass freed nothing of their forward, the graph was retained.
 * Without a graph a block would be freed after its last use.  Where the recording does not
 * know last uses, a block of a graph that no pass ran is taken to be used for the next one
 * alone.
 *
 * A variable of the forward may hold a block longer, which no recording shows while the graph
 * holds it, too.  So a second trial has such blocks until the call of the model is over: where
 * that saves less, the saving is told as the most there can be.
 *
 * A list that keeps one value of each step is no graph, though it may keep everything
 * that a pass would free. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/advice_edits.h"

#define THREADS (UINT16_MAX + 1)
/* A saving is told as it is if at least this many tenths of it are certain. */
#define CERTAIN_TENTHS 9

/* A backward pass, by the numbers of the nodes that it may have run. */
typedef struct pass {
    size_t first; /* event */
    size_t end;   /* after the last event */
    uint64_t lowest;
    uint64_t highest;
    uint64_t freed; /* blocks of a forward that the pass freed */
    uint32_t frame; /* frame id of the line that called it; 0: unknown */
    uint16_t thread;
} pass;

/* State of one thread during the walks, over the events and back over the demands. */
typedef struct seen {
    uint64_t first; /* first number seen of a next node; 0: none seen */
    uint64_t next;
    size_t open;     /* 1 + the pass that runs its nodes; 0: none */
    size_t begins;   /* event; birth of the demand behind */
    size_t ends;     /* event; end of the run of demands of MODULE */
    uint32_t module; /* string: the outermost; 0: none */
} seen;

/* When a demand of a forward can end, by two suppositions; events. */
typedef struct forward_end {
    size_t earliest; /* the next demand has been made of it */
    size_t latest; /* the call of the outermost module, or what is around it, is over */
} forward_end;

typedef struct graph_work {
    const ml_advice_case *it;
    pass *passes; /* owned; by event, then by thread and highest number */
    size_t pass_count;
    size_t pass_capacity;
    pass *by_event;    /* owned; the same passes, by event */
    seen *threads;     /* owned; by autograd's number of the thread */
    forward_end *ends; /* owned; by demand */
    bool uses;         /* last uses are known */
} graph_work;

static bool
is_backward(const ml_event *event)
{
    return (event->flags & ML_EVENT_BACKWARD) != 0;
}

/* ---- Passes ---- */

static int
follow_pass(graph_work *f, size_t event, const ml_event *at)
{
    seen *thread = &f->threads[at->autograd_thread];
    if (thread->open == 0) {
        void *passes = f->passes;
        if (ml_grow(&passes, &f->pass_capacity, f->pass_count + 1, sizeof(pass)) < 0) {
            return ML_ENOMEM;
        }
        f->passes = passes;
        f->passes[f->pass_count] = (pass){.first = event,
                                          .lowest = UINT64_MAX,
                                          .highest = thread->next - (thread->next != 0),
                                          .thread = at->autograd_thread};
        thread->open = ++f->pass_count;
    }
    pass *now = &f->passes[thread->open - 1];
    now->end = event + 1;
    if (at->sequence < now->lowest) {
        now->lowest = at->sequence;
    }
    uint32_t demand = f->it->workload->of_event[event];
    if (at->action == ML_ACTION_FREE_REQUESTED && demand != 0) {
        now->freed +=
            ml_explained_of(f->it, demand - 1)->cause.phase == ML_PHASE_FORWARD;
    }
    return 0;
}

static int
find_passes(graph_work *f)
{
    const ml_device_trace *trace = f->it->trace;
    int error = 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(sequence) | ML_EVENT_BIT(autograd_thread) |
                             ML_EVENT_BIT(flags) | ML_EVENT_BIT(action));
    for (size_t i = 0; error == 0 && i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (event->autograd_thread == 0) {
            continue;
        }
        seen *thread = &f->threads[event->autograd_thread];
        if (is_backward(event)) {
            error = follow_pass(f, i, event);
        }
        else if (event->action == ML_ACTION_ALLOC) {
            thread->first = thread->first == 0 ? event->sequence : thread->first;
            thread->next = event->sequence;
            thread->open = 0;
        }
    }
    return error;
}

/* The call of a pass is the line that made its first gradient. */
static void
name_passes(graph_work *f)
{
    size_t at = 0;
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        if (!ml_explained_of(f->it, i)->cause.seed) {
            continue;
        }
        size_t born = f->it->workload->demands[i].born;
        while (at < f->pass_count && f->passes[at].first < born) {
            at++;
        }
        if (at < f->pass_count && f->passes[at].frame == 0) {
            f->passes[at].frame = ml_explained_of(f->it, i)->cause.frame;
        }
    }
}

static int
compare_passes(const void *a, const void *b)
{
    const pass *x = a;
    const pass *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    if (x->highest != y->highest) {
        return x->highest < y->highest ? -1 : 1;
    }
    return (x->first > y->first) - (x->first < y->first);
}

/* The pass that may have run node NUMBER of THREAD; NULL: none did. */
static const pass *
pass_of(const graph_work *f, uint16_t thread, uint64_t number)
{
    size_t low;
    ML_SEARCH(low, f->pass_count,
              f->passes[low].thread < thread ||
                  (f->passes[low].thread == thread && f->passes[low].highest < number));
    const pass *at = &f->passes[low];
    bool ran = low < f->pass_count && at->thread == thread && at->lowest <= number;
    return ran ? at : NULL;
}

/* The last pass before EVENT; NULL: none. */
static const pass *
pass_at(const graph_work *f, size_t event)
{
    size_t low;
    ML_SEARCH(low, f->pass_count, f->by_event[low].first < event);
    return low != 0 && event <= f->by_event[low - 1].end ? &f->by_event[low - 1] : NULL;
}

/* ---- What graphs hold ---- */

/* Whether DEMAND, of a forward or its input, outlived every pass that was done with
 * it. */
static bool
is_held(const ml_advice_case *it, size_t demand)
{
    const ml_demand *of = &it->workload->demands[demand];
    uint8_t category = ml_explained_of(it, demand)->verdict.category;
    bool input = category == ML_CATEGORY_INPUT || category == ML_CATEGORY_OTHER;
    if ((ml_explained_of(it, demand)->cause.phase != ML_PHASE_FORWARD && !input) ||
        ml_explained_of(it, demand)->cause.recomputed || of->last_used == ML_NO_EVENT) {
        return false;
    }
    if (of->freed == ML_NO_EVENT) {
        return ml_demand_left(it, demand);
    }
    return of->last_used < of->freed &&
           (ml_events_flags(&it->trace->events, of->freed) & ML_EVENT_BACKWARD) == 0;
}

/* The line of the program's call around the whole pass. */
static uint32_t
calling_line(const ml_advice_case *it, size_t demand)
{
    const ml_stack_facts *facts = ml_causes_facts(it->causes);
    uint32_t module = facts->of[it->workload->demands[demand].stack].outer_module;
    uint32_t caller = module != 0 ? facts->callers[module] : 0;
    return caller != 0 ? caller : ml_explained_of(it, demand)->cause.frame;
}

/* ML_ADVICE_COUNT: no graph is known to hold DEMAND.  This includes an input that no
 * pass used, unless it grows with a graph: the program itself may hold it; and what a variable is known to hold. */
static enum ml_advice_kind
judge(const graph_work *f, size_t demand, uint32_t *frame)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    /* A backward pass would have followed. */
    if (ml_demand_unfinished(it, demand) ||
        ml_held_variable_of(&it->variables, of) != NULL ||
        ml_growth_has(it->growth, &ml_explained_of(it, demand)->cause)) {
        return ML_ADVICE_COUNT;
    }
    const ml_events *events = &it->trace->events;
    uint16_t thread = ml_events_autograd_thread(events, of->born);
    bool input = ml_explained_of(it, demand)->cause.phase != ML_PHASE_FORWARD;
    if (thread == 0 || (ml_events_flags(events, of->born) & ML_EVENT_BACKWARD) != 0 ||
        !is_held(it, demand)) {
        return ML_ADVICE_COUNT;
    }
    uint64_t sequence = ml_events_sequence(events, of->born);
    if (!input && sequence <= f->threads[thread].first) {
        return ML_ADVICE_COUNT;
    }
    const pass *by =
        input ? pass_at(f, of->last_used) : pass_of(f, thread, sequence - 1);
    if (by != NULL) {
        *frame = by->frame;
        return by->freed == 0 ? ML_ADVICE_GRAPH_RETAINED : ML_ADVICE_COUNT;
    }
    if (input) {
        /* Of a graph that steps leave, the line is that of its end, not of the input. */
        const ml_growing *graph =
            ml_growth_find(it->growth, &ml_explained_of(it, demand)->cause);
        *frame = graph != NULL ? graph->cause.frame : 0;
        return graph != NULL ? ML_ADVICE_GRAPH_UNUSED : ML_ADVICE_COUNT;
    }
    *frame = calling_line(it, demand);
    return ML_ADVICE_GRAPH_UNUSED;
}

/* Adds DEMAND, free from event UNTIL on, to the advice of KIND, the proposal at *AT;
 * SIZE_MAX: a new one. */
static int
propose(const graph_work *f, size_t demand, size_t until, enum ml_advice_kind kind,
        uint32_t frame, ml_proposals *out, size_t *at, uint64_t *largest)
{
    const ml_demand *of = &f->it->workload->demands[demand];
    if (*at == SIZE_MAX) {
        if (ml_proposals_add(out, kind) == NULL) {
            return ML_ENOMEM;
        }
        *at = out->count - 1;
        out->list[*at].exact = !f->it->trace->uses_sampled && f->uses;
    }
    ml_advice *advice = &out->list[*at];
    if (frame != 0 && of->block_bytes > *largest) {
        *largest = of->block_bytes;
        advice->frame = frame;
    }
    advice->count++;
    int error = 0;
    if (ml_demand_at_peak(f->it, demand)) {
        advice->bytes += of->block_bytes;
        advice->blocks++;
        error = ml_advice_add_module(advice, f->it->recording,
                                     ml_explained_of(f->it, demand)->cause.module);
    }
    ml_edit edit = {.kind = ML_EDIT_FREE, .demand = demand, .until = until};
    return error < 0 ? error : ml_advice_edit(advice, edit);
}

/* ---- Without last uses ---- */

/* Whether DEMAND is of a graph that no pass ran; *FRAME is the line around its forward. */
static bool
is_unused(const graph_work *f, size_t demand, uint32_t *frame)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    const ml_cause *cause = &ml_explained_of(it, demand)->cause;
    const ml_events *events = &it->trace->events;
    if (cause->phase != ML_PHASE_FORWARD || cause->recomputed || cause->module == 0 ||
        of->freed == ML_NO_EVENT || of->freed <= f->ends[demand].earliest ||
        (ml_events_flags(events, of->freed) & ML_EVENT_BACKWARD) != 0 ||
        ml_stage_is_evaluation(it->stages[of->born]) ||
        ml_demand_unfinished(it, demand) || ml_growth_has(it->growth, cause)) {
        return false;
    }
    uint16_t thread = ml_events_autograd_thread(events, of->born);
    uint64_t sequence = ml_events_sequence(events, of->born);
    if (thread == 0 || sequence <= f->threads[thread].first ||
        pass_of(f, thread, sequence - 1) != NULL) {
        return false;
    }
    *frame = calling_line(it, demand);
    return true;
}

/* From the last demand to the first: a run of demands of one outermost module ends where the
 * next run begins. */
static int
find_ends(graph_work *f)
{
    const ml_workload *workload = f->it->workload;
    const ml_events *events = &f->it->trace->events;
    const ml_stack_facts *facts = ml_causes_facts(f->it->causes);
    f->ends = ml_alloc_zeroed(workload->count + 1, sizeof(forward_end));
    if (f->ends == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < THREADS; i++) {
        f->threads[i].begins = f->threads[i].ends = ML_NO_EVENT;
    }
    for (size_t i = workload->count; i > workload->before_count; i--) {
        const ml_demand *demand = &workload->demands[i - 1];
        seen *thread = &f->threads[ml_events_autograd_thread(events, demand->born)];
        if ((ml_events_flags(events, demand->born) & ML_EVENT_BACKWARD) != 0) {
            continue;
        }
        uint32_t module = facts->of[demand->stack].outer_module;
        if (module != thread->module) {
            thread->module = module;
            thread->ends = thread->begins;
        }
        size_t next = thread->begins;
        f->ends[i - 1].earliest = next == ML_NO_EVENT ? next : next + 1;
        f->ends[i - 1].latest = thread->ends;
        thread->begins = demand->born;
    }
    return 0;
}

/* ---- Proposals ---- */

static enum ml_advice_kind
judge_any(const graph_work *f, size_t demand, uint32_t *frame)
{
    if (f->uses) {
        return judge(f, demand, frame);
    }
    return is_unused(f, demand, frame) ? ML_ADVICE_GRAPH_UNUSED : ML_ADVICE_COUNT;
}

static uint64_t
saved_by(const ml_advice_case *it, const ml_trial_result *result)
{
    uint64_t before = it->before.peak.allocated;
    uint64_t after = result->peak.allocated;
    return before > after ? before - after : 0;
}

/* Tries ADVICE, and it again with blocks that last as long as a variable may hold them. */
static int
bound(const graph_work *f, ml_advice *advice)
{
    const ml_demand *demands = f->it->workload->demands;
    ml_advice longer = {.kind = advice->kind};
    int error = 0;
    for (size_t i = 0; i < advice->edit_count && error == 0; i++) {
        ml_edit edit = advice->edits[i];
        size_t latest = f->ends[edit.demand].latest;
        edit.until = latest > edit.until ? latest : edit.until;
        if (edit.until < demands[edit.demand].freed) {
            error = ml_advice_edit(&longer, edit);
        }
    }
    const ml_advice *one = advice;
    error = error < 0 ? error : ml_advices_try(f->it, &one, 1, &advice->alone);
    advice->tried = error == 0;
    one = &longer;
    ml_trial_result result;
    error = error < 0 ? error : ml_advices_try(f->it, &one, 1, &result);
    if (error == 0 && saved_by(f->it, &result) <
                          saved_by(f->it, &advice->alone) / 10 * CERTAIN_TENTHS) {
        advice->most = true;
        advice->exact = false;
    }
    ml_advice_fini(&longer);
    return error;
}

static int
propose_all(const graph_work *f, ml_proposals *out)
{
    size_t at[2] = {SIZE_MAX, SIZE_MAX};
    uint64_t largest[2] = {0, 0};
    int error = 0;
    for (size_t i = f->it->workload->before_count;
         error == 0 && i < f->it->workload->count; i++) {
        uint32_t frame = 0;
        enum ml_advice_kind kind = judge_any(f, i, &frame);
        if (kind != ML_ADVICE_COUNT) {
            unsigned which = kind == ML_ADVICE_GRAPH_RETAINED;
            size_t until =
                f->uses ? f->it->workload->demands[i].last_used : f->ends[i].earliest;
            error = propose(f, i, until, kind, frame, out, &at[which], &largest[which]);
        }
    }
    return error < 0 || at[0] == SIZE_MAX ? error : bound(f, &out->list[at[0]]);
}

int
ml_advise_graph(const ml_advice_case *it, ml_proposals *out)
{
    graph_work f = {.it = it, .uses = ml_advice_knows_uses(it)};
    f.threads = ml_alloc_zeroed(THREADS, sizeof(seen));
    int error = f.threads == NULL ? ML_ENOMEM : find_passes(&f);
    error = error < 0 ? error : find_ends(&f);
    if (error == 0) {
        f.by_event = ml_alloc_zeroed(f.pass_count + 1, sizeof(pass));
        error = f.by_event == NULL ? ML_ENOMEM : 0;
    }
    if (error == 0) {
        name_passes(&f);
        if (f.pass_count != 0) {
            memcpy(f.by_event, f.passes, f.pass_count * sizeof(pass));
            qsort(f.passes, f.pass_count, sizeof(pass), compare_passes);
        }
        error = propose_all(&f, out);
    }
    ml_free(f.passes);
    ml_free(f.by_event);
    ml_free(f.threads);
    ml_free(f.ends);
    return error;
}
