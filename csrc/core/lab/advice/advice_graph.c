/* Autograd graphs that hold activations in vain: no backward pass ran them, or a pass
 * retained them.
 *
 * An allocation of a forward knows the number of its thread's next autograd node, and
 * so the node it was made for.  A backward pass runs nodes with known numbers.  If the
 * nodes ran and the pass freed nothing of their forward, the graph was retained.
 * Without a graph a block would be freed after its last use.  Where the recording does not
 * know last uses, the graph that no pass ran is estimated: frees that follow one another tell
 * what it held, and a block is taken to be used until the same line of the next layer has made
 * its own of the same size, or until its forward is over.
 *
 * A list that keeps one value of each step is no graph, though it may keep everything
 * that a pass would free. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/advice_places.h"

#define THREADS (UINT16_MAX + 1)

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

/* State of one thread during the walk over the events. */
typedef struct seen {
    uint64_t first; /* first number seen of a next node; 0: none seen */
    uint64_t next;
    size_t open; /* 1 + the pass that runs its nodes; 0: none */
} seen;

/* A block of a graph that no pass ran, or an input, where last uses are not known. */
typedef struct unused {
    uint64_t
        like; /* hash of its line, its module's path without numbers, and its size */
    size_t demand;
    size_t freed; /* events */
    size_t until;
    bool input;
} unused;

/* The proposals so far: indexes, SIZE_MAX for none, and the largest block of each. */
typedef struct proposed {
    size_t at[2];
    uint64_t largest[2];
} proposed;

typedef struct graph_work {
    const ml_advice_case *it;
    pass *passes; /* owned; by event, then by thread and highest number */
    size_t pass_count;
    size_t pass_capacity;
    pass *by_event; /* owned; the same passes, by event */
    seen *threads;  /* owned; by autograd's number of the thread */
    bool *trained;  /* owned; by stack: a pass ran nodes of it */
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
 * pass used: the program itself may hold it; what a variable is known to hold; and a forward of
 * which there is a pass at other times: without a graph that could not be. */
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
    *frame = calling_line(it, demand);
    return input || f->trained[of->stack] ? ML_ADVICE_COUNT : ML_ADVICE_GRAPH_UNUSED;
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
        out->list[*at].exact =
            !f->it->trace->uses_sampled && of->last_used != ML_NO_EVENT;
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

static int
propose_all(const graph_work *f, ml_proposals *out)
{
    proposed to = {.at = {SIZE_MAX, SIZE_MAX}};
    int error = 0;
    for (size_t i = f->it->workload->before_count;
         error == 0 && i < f->it->workload->count; i++) {
        uint32_t frame = 0;
        enum ml_advice_kind kind = judge(f, i, &frame);
        if (kind != ML_ADVICE_COUNT) {
            unsigned which = kind == ML_ADVICE_GRAPH_RETAINED;
            error = propose(f, i, f->it->workload->demands[i].last_used, kind, frame,
                            out, &to.at[which], &to.largest[which]);
        }
    }
    return error;
}

/* ---- Without last uses ---- */

static size_t
passes_before(const graph_work *f, size_t event)
{
    size_t count;
    ML_SEARCH(count, f->pass_count, f->by_event[count].first < event);
    return count;
}

/* Whether DEMAND was made outside a backward pass, and no pass frees it. */
static bool
is_without_pass(const graph_work *f, size_t demand)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    const ml_cause *cause = &ml_explained_of(it, demand)->cause;
    const ml_events *events = &it->trace->events;
    if (of->born == ML_NO_EVENT || cause->recomputed ||
        (ml_events_flags(events, of->born) & ML_EVENT_BACKWARD) != 0 ||
        ml_stage_is_evaluation(it->stages[of->born]) ||
        ml_demand_unfinished(it, demand) || ml_growth_has(it->growth, cause)) {
        return false;
    }
    if (of->freed == ML_NO_EVENT) {
        /* Where passes run such a forward, the one after the next may yet run this one. */
        size_t without = f->trained[of->stack] ? 2 : 1;
        return f->pass_count >= passes_before(f, of->born) + without;
    }
    return (ml_events_flags(events, of->freed) & ML_EVENT_BACKWARD) == 0;
}

/* Whether DEMAND is of a graph that no pass ran. */
static bool
is_unused(const graph_work *f, size_t demand)
{
    const ml_events *events = &f->it->trace->events;
    size_t born = f->it->workload->demands[demand].born;
    uint16_t thread = ml_events_autograd_thread(events, born);
    uint64_t sequence = ml_events_sequence(events, born);
    return ml_explained_of(f->it, demand)->cause.phase == ML_PHASE_FORWARD &&
           thread != 0 && sequence > f->threads[thread].first &&
           pass_of(f, thread, sequence - 1) == NULL;
}

static bool
is_input(const graph_work *f, size_t demand)
{
    return ml_explained_of(f->it, demand)->verdict.category == ML_CATEGORY_INPUT;
}

/* Blocks of graphs that no pass ran, and inputs, by birth. */
static size_t
find_unused(const graph_work *f, unused *all)
{
    size_t count = 0;
    const ml_workload *workload = f->it->workload;
    for (size_t i = workload->before_count; i < workload->count; i++) {
        bool input = is_input(f, i);
        if (is_without_pass(f, i) && (input || is_unused(f, i))) {
            uint32_t module = ml_explained_of(f->it, i)->cause.module;
            uint64_t pattern = ml_module_pattern(&f->it->recording->strings[module]);
            uint32_t frame = ml_explained_of(f->it, i)->cause.frame;
            all[count++] = (unused){.like = ml_hash_u64(ml_hash_u64(pattern ^ frame) ^
                                                        workload->demands[i].bytes),
                                    .demand = i,
                                    .input = input};
        }
    }
    return count;
}

static const ml_demand *
demand_of(const graph_work *f, const unused *of)
{
    return &f->it->workload->demands[of->demand];
}

/* Where the forward that begins with ALL[FIRST] ends: a pass comes between, or its first block's
 * stack comes again.  The inputs of the next forward are that one's. */
static size_t
end_of_forward(const graph_work *f, const unused *all, size_t first, size_t count)
{
    size_t passes = passes_before(f, demand_of(f, &all[first])->born);
    uint32_t begins = 0;
    size_t end = first;
    for (; end < count && passes_before(f, demand_of(f, &all[end])->born) == passes;
         end++) {
        uint32_t stack = demand_of(f, &all[end])->stack;
        if (!all[end].input && stack == begins) {
            break;
        }
        begins = begins == 0 && !all[end].input ? stack : begins;
    }
    while (end < count && end > first + 1 && all[end - 1].input) {
        end--;
    }
    return end;
}

static int
compare_frees(const void *a, const void *b)
{
    const unused *x = a;
    const unused *y = b;
    if (x->freed != y->freed) {
        return x->freed < y->freed ? -1 : 1;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

/* Whether a block was made between two frees. */
static bool
is_apart(const graph_work *f, size_t freed, size_t then)
{
    size_t next;
    const ml_workload *workload = f->it->workload;
    size_t count = workload->count - workload->before_count;
    const ml_demand *demands = workload->demands + workload->before_count;
    ML_SEARCH(next, count, demands[next].born < freed);
    return next < count && demands[next].born < then;
}

/* The event by which ALL[AT], one of the forward up to END, could be freed: a layer's block once
 * the same line of the next layer has made its own, an input once the next is there, all others
 * with the forward's last block.  ML_NO_EVENT: not known. */
static size_t
could_end(const graph_work *f, const unused *all, size_t at, size_t end)
{
    const ml_workload *workload = f->it->workload;
    if (all[at].input) {
        size_t next = all[at].demand + 1;
        uint32_t stack = workload->demands[all[at].demand].stack;
        while (next < workload->count &&
               (workload->demands[next].stack != stack || !is_input(f, next))) {
            next++;
        }
        return next < workload->count ? (size_t)workload->demands[next].born + 1
                                      : ML_NO_EVENT;
    }
    size_t next = at + 1;
    while (next < end && (all[next].input || all[next].like != all[at].like)) {
        next++;
    }
    return (size_t)demand_of(f, &all[next < end ? next : end - 1])->born + 1;
}

/* The line around a forward, that of its largest block in a module. */
static uint32_t
line_of(const graph_work *f, const unused *of, size_t count)
{
    uint32_t frame = 0;
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        bool in_module = ml_explained_of(f->it, of[i].demand)->cause.module != 0;
        if (in_module && !of[i].input && demand_of(f, &of[i])->block_bytes > largest) {
            largest = demand_of(f, &of[i])->block_bytes;
            frame = calling_line(f->it, of[i].demand);
        }
    }
    return frame;
}

/* The forward ALL[FIRST] up to END.  Of frees that follow one another, or of what is never freed,
 * the last block was the program's own: it let go that tensor, and the graph behind it went
 * before its memory. */
static int
propose_forward(const graph_work *f, unused *all, size_t first, size_t end,
                ml_proposals *out, proposed *to)
{
    bool trained = false;
    for (size_t i = first; i < end; i++) {
        all[i].freed = demand_of(f, &all[i])->freed;
        all[i].until = could_end(f, all, i, end);
        trained =
            trained || (!all[i].input && f->trained[demand_of(f, &all[i])->stack]);
    }
    uint32_t frame = line_of(f, all + first, end - first);
    qsort(all + first, end - first, sizeof(unused), compare_frees);
    enum ml_advice_kind kind = trained ? ML_ADVICE_LATE_FREES : ML_ADVICE_GRAPH_UNUSED;
    bool held = false;
    int error = 0;
    for (size_t i = end; i > first && error == 0 && frame != 0; i--) {
        const unused *at = &all[i - 1];
        held = held && !is_apart(f, at->freed, all[i].freed);
        if (held && at->until < at->freed) {
            error = propose(f, at->demand, at->until, kind, frame, out,
                            &to->at[trained], &to->largest[trained]);
        }
        held = held || !at->input;
    }
    return error;
}

static int
propose_unused(const graph_work *f, ml_proposals *out)
{
    unused *all = ml_alloc_zeroed(f->it->workload->count + 1, sizeof(unused));
    if (all == NULL) {
        return ML_ENOMEM;
    }
    size_t count = find_unused(f, all);
    proposed to = {.at = {SIZE_MAX, SIZE_MAX}};
    int error = 0;
    for (size_t first = 0, end; first < count && error == 0; first = end) {
        end = end_of_forward(f, all, first, count);
        error = propose_forward(f, all, first, end, out, &to);
    }
    ml_free(all);
    return error;
}

/* Marks the stacks whose nodes a pass ran. */
static void
find_trained(graph_work *f)
{
    const ml_events *events = &f->it->trace->events;
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        const ml_demand *demand = &f->it->workload->demands[i];
        if (ml_explained_of(f->it, i)->cause.phase != ML_PHASE_FORWARD ||
            f->trained[demand->stack]) {
            continue;
        }
        uint16_t thread = ml_events_autograd_thread(events, demand->born);
        uint64_t sequence = ml_events_sequence(events, demand->born);
        f->trained[demand->stack] = thread != 0 &&
                                    sequence > f->threads[thread].first &&
                                    pass_of(f, thread, sequence - 1) != NULL;
    }
}

int
ml_advise_graph(const ml_advice_case *it, ml_proposals *out)
{
    graph_work f = {.it = it};
    f.threads = ml_alloc_zeroed(THREADS, sizeof(seen));
    int error = f.threads == NULL ? ML_ENOMEM : find_passes(&f);
    if (error == 0) {
        f.by_event = ml_alloc_zeroed(f.pass_count + 1, sizeof(pass));
        f.trained = ml_alloc_zeroed(it->recording->stack_count + 1, sizeof(bool));
        error = f.by_event == NULL || f.trained == NULL ? ML_ENOMEM : 0;
    }
    if (error == 0) {
        name_passes(&f);
        if (f.pass_count != 0) {
            memcpy(f.by_event, f.passes, f.pass_count * sizeof(pass));
            qsort(f.passes, f.pass_count, sizeof(pass), compare_passes);
        }
        find_trained(&f);
        error =
            ml_advice_knows_uses(it) ? propose_all(&f, out) : propose_unused(&f, out);
    }
    ml_free(f.passes);
    ml_free(f.by_event);
    ml_free(f.threads);
    ml_free(f.trained);
    return error;
}
