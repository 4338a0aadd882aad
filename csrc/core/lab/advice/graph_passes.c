/* Which backward passes ran which autograd nodes.  See graph_passes.h. */
#include "lab/advice/graph_passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define THREADS (UINT16_MAX + 1)

static bool
is_backward(const ml_event *event)
{
    return (event->flags & ML_EVENT_BACKWARD) != 0;
}

static int
follow_pass(ml_graph_passes *f, size_t event, const ml_event *at)
{
    ml_graph_thread *thread = &f->threads[at->autograd_thread];
    if (thread->open == 0) {
        void *passes = f->passes;
        if (ml_grow(&passes, &f->pass_capacity, f->pass_count + 1,
                    sizeof(ml_graph_pass)) < 0) {
            return ML_ENOMEM;
        }
        f->passes = passes;
        f->passes[f->pass_count] =
            (ml_graph_pass){.first = event,
                            .lowest = UINT64_MAX,
                            .highest = thread->next - (thread->next != 0),
                            .thread = at->autograd_thread};
        thread->open = ++f->pass_count;
    }
    ml_graph_pass *now = &f->passes[thread->open - 1];
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
find_passes(ml_graph_passes *f)
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
        ml_graph_thread *thread = &f->threads[event->autograd_thread];
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

static bool
is_named(const ml_recording *recording, uint32_t stack, ml_string name)
{
    return ml_string_compare(ml_stack_name(recording, stack), name) == 0;
}

/* Whether torch.autograd.grad() made DEMAND, the first gradient of a pass whose gradients the
 * program takes as values. */
static bool
is_of_grad(const ml_advice_case *it, size_t demand)
{
    static const ml_string made = {"_make_grads", 11};
    static const ml_string grad = {"grad", 4};
    const ml_stack *stacks = it->recording->stacks;
    uint32_t stack = it->workload->demands[demand].stack;
    while (stack != 0 && !is_named(it->recording, stack, made)) {
        stack = stacks[stack].parent;
    }
    return stack != 0 && is_named(it->recording, stacks[stack].parent, grad);
}

/* The call of a pass is the line that made its first gradient. */
static void
name_passes(ml_graph_passes *f)
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
            f->passes[at].apart = is_of_grad(f->it, i);
        }
    }
}

static int
compare_passes(const void *a, const void *b)
{
    const ml_graph_pass *x = a;
    const ml_graph_pass *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    if (x->highest != y->highest) {
        return x->highest < y->highest ? -1 : 1;
    }
    return (x->first > y->first) - (x->first < y->first);
}

const ml_graph_pass *
ml_graph_pass_of(const ml_graph_passes *f, uint16_t thread, uint64_t number)
{
    size_t low;
    ML_SEARCH(low, f->pass_count,
              f->passes[low].thread < thread ||
                  (f->passes[low].thread == thread && f->passes[low].highest < number));
    const ml_graph_pass *at = &f->passes[low];
    bool ran = low < f->pass_count && at->thread == thread && at->lowest <= number;
    return ran ? at : NULL;
}

const ml_graph_pass *
ml_graph_pass_at(const ml_graph_passes *f, size_t event)
{
    size_t low;
    ML_SEARCH(low, f->pass_count, f->by_event[low].first < event);
    return low != 0 && event <= f->by_event[low - 1].end ? &f->by_event[low - 1] : NULL;
}

size_t
ml_graph_passes_before(const ml_graph_passes *f, size_t event)
{
    size_t count;
    ML_SEARCH(count, f->pass_count, f->by_event[count].first < event);
    return count;
}

/* The stack around the outermost module's call of DEMAND; 0: none. */
static uint32_t
calling_stack(const ml_advice_case *it, size_t demand)
{
    const ml_stack *stacks = it->recording->stacks;
    uint32_t outer = 0;
    for (uint32_t i = it->workload->demands[demand].stack; i != 0;
         i = stacks[i].parent) {
        outer = stacks[i].module != 0 ? i : outer;
    }
    return stacks[outer].parent;
}

uint32_t
ml_graph_calling_line(const ml_advice_case *it, size_t demand)
{
    const ml_stack_facts *facts = ml_causes_facts(it->causes);
    uint32_t around = calling_stack(it, demand);
    const ml_standing *caller = &facts->of[around].inner;
    return around != 0 && caller->place == ML_PLACE_USER
               ? caller->frame
               : ml_explained_of(it, demand)->cause.frame;
}

uint32_t
ml_graph_untrained_line(const ml_graph_passes *f, size_t demand)
{
    const ml_stack_facts *facts = ml_causes_facts(f->it->causes);
    const ml_stack *stacks = f->it->recording->stacks;
    for (uint32_t i = calling_stack(f->it, demand); i != 0; i = stacks[i].parent) {
        const ml_standing *caller = &facts->of[i].inner;
        if (caller->place == ML_PLACE_USER && !f->trained_frames[caller->frame]) {
            return caller->frame;
        }
    }
    return ml_graph_calling_line(f->it, demand);
}

/* Of a thread, in the walk back over the demands. */
typedef struct run {
    size_t begins;   /* birth of the demand behind; ML_NO_EVENT: none */
    size_t ends;     /* of the run of demands of MODULE */
    uint32_t module; /* string: the outermost; 0: none */
    uint32_t stack;  /* stack id of the demand behind */
} run;

/* A run of demands of one outermost module ends where the next run begins. */
size_t *
ml_graph_calls_end(const ml_graph_passes *f)
{
    const ml_workload *workload = f->it->workload;
    const ml_events *events = &f->it->trace->events;
    const ml_stack_facts *facts = ml_causes_facts(f->it->causes);
    size_t *ends = ml_alloc_zeroed(workload->count + 1, sizeof(size_t));
    run *threads = ml_alloc_zeroed(THREADS, sizeof(run));
    for (size_t i = 0; i < THREADS && threads != NULL; i++) {
        threads[i].begins = threads[i].ends = ML_NO_EVENT;
    }
    for (size_t i = workload->count;
         i > workload->before_count && ends != NULL && threads != NULL; i--) {
        const ml_demand *demand = &workload->demands[i - 1];
        run *now = &threads[ml_events_autograd_thread(events, demand->born)];
        if (ml_events_is_backward(events, demand->born)) {
            continue;
        }
        uint32_t module = facts->of[demand->stack].outer_module;
        if (module != now->module) {
            now->module = module;
            now->ends = now->begins;
        }
        ends[i - 1] = now->ends;
        now->begins = demand->born;
    }
    if (threads == NULL) {
        ml_free(ends);
        ends = NULL;
    }
    ml_free(threads);
    return ends;
}

/* A stack that comes again after others is of another call. */
size_t *
ml_graph_calls_last(const ml_graph_passes *f)
{
    const ml_workload *workload = f->it->workload;
    const ml_events *events = &f->it->trace->events;
    const ml_stack_facts *facts = ml_causes_facts(f->it->causes);
    size_t *lasts = ml_alloc_zeroed(workload->count + 1, sizeof(size_t));
    /* By stack: the last birth of the call behind that it is in, plus 1. */
    size_t *seen = ml_alloc_zeroed(f->it->recording->stack_count + 1, sizeof(size_t));
    run *threads = ml_alloc_zeroed(THREADS, sizeof(run));
    bool made = lasts != NULL && seen != NULL && threads != NULL;
    for (size_t i = workload->count; made && i > workload->before_count; i--) {
        const ml_demand *demand = &workload->demands[i - 1];
        run *now = &threads[ml_events_autograd_thread(events, demand->born)];
        uint32_t module = facts->of[demand->stack].outer_module;
        bool again =
            seen[demand->stack] == now->ends + 1 && demand->stack != now->stack;
        if (module != now->module || again) {
            now->module = module;
            now->ends = demand->born;
        }
        now->stack = demand->stack;
        seen[demand->stack] = now->ends + 1;
        lasts[i - 1] = now->ends;
    }
    ml_free(threads);
    ml_free(seen);
    if (!made) {
        ml_free(lasts);
        return NULL;
    }
    return lasts;
}

static int
compare_firsts(const void *a, const void *b)
{
    const ml_graph_pass *x = a;
    const ml_graph_pass *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void
sort_by_event(ml_graph_passes *f)
{
    if (f->pass_count != 0) {
        memcpy(f->by_event, f->passes, f->pass_count * sizeof(ml_graph_pass));
        qsort(f->by_event, f->pass_count, sizeof(ml_graph_pass), compare_firsts);
    }
}

/* The pass that ran the node for which a forward made DEMAND; NULL: none. */
static const ml_graph_pass *
pass_over(const ml_graph_passes *f, size_t demand)
{
    const ml_events *events = &f->it->trace->events;
    size_t born = f->it->workload->demands[demand].born;
    uint16_t thread = ml_events_autograd_thread(events, born);
    uint64_t sequence = ml_events_sequence(events, born);
    return ml_explained_of(f->it, demand)->cause.phase != ML_PHASE_FORWARD ||
                   thread == 0 || sequence <= f->threads[thread].first
               ? NULL
               : ml_graph_pass_of(f, thread, sequence - 1);
}

/* A pass that retained its graph shares what a later pass frees. */
static void
find_shared(ml_graph_passes *f)
{
    const ml_events *events = &f->it->trace->events;
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        const ml_demand *of = &f->it->workload->demands[i];
        const ml_graph_pass *ran = pass_over(f, i);
        if (ran == NULL || of->freed >= f->it->trace->event_count ||
            !ml_events_is_backward(events, of->freed)) {
            continue;
        }
        ml_graph_pass *by = &f->passes[ran - f->passes];
        uint64_t sequence = ml_events_sequence(events, of->born);
        const ml_graph_pass *again = ml_graph_pass_at(f, of->freed);
        if (again != NULL && by->freed == 0 && again->first > by->first) {
            by->shared = sequence > by->shared ? sequence : by->shared;
            by->again =
                by->again == 0 || again->first < by->again ? again->first : by->again;
        }
    }
}

/* Whether an optimizer's step began, by torch's regions, or the program's next step between BY and
 * the next pass that ran its nodes. The first step of a further optimizer ends none of the
 * program's. */
static bool
is_stepped(const ml_graph_passes *f, const ml_graph_pass *by)
{
    static const char step[] = "Optimizer.step#";
    const ml_advice_case *it = f->it;
    const ml_recording *recording = it->recording;
    const ml_annotation *all = recording->annotations;
    uint64_t from = ml_events_time(&it->trace->events, by->end - 1);
    uint64_t to = ml_events_time(&it->trace->events, by->again);
    size_t i;
    ML_SEARCH(i, recording->annotation_count, all[i].time < from);
    for (; i < recording->annotation_count && all[i].time <= to; i++) {
        ml_string name = recording->strings[all[i].name];
        if (all[i].end == 0 && name.length >= sizeof(step) - 1 &&
            memcmp(name.bytes, step, sizeof(step) - 1) == 0) {
            return true;
        }
    }
    return ml_causes_step(it->causes, it->device, by->end) !=
           ml_causes_step(it->causes, it->device, by->again);
}

/* Whether the gradients that BY made for the shared part are wanted apart from those of the next
 * pass, as where a program projects or weighs the gradients of several losses.  They are if they
 * are used between the passes and gone by the next one; without last uses, if no step is between
 * them. */
static bool
is_apart(const ml_graph_passes *f, size_t demand, const ml_graph_pass *by)
{
    const ml_demand *of = &f->it->workload->demands[demand];
    if (of->freed <= by->end || of->freed > by->again) {
        return false;
    }
    return of->last_used != ML_NO_EVENT ? of->last_used > by->end : !is_stepped(f, by);
}

static void
find_apart(ml_graph_passes *f)
{
    const ml_events *events = &f->it->trace->events;
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        size_t born = f->it->workload->demands[i].born;
        if (!ml_events_is_backward(events, born)) {
            continue;
        }
        const ml_graph_pass *by = ml_graph_pass_at(f, born);
        if (by != NULL && ml_events_sequence(events, born) < by->shared) {
            f->by_event[by - f->by_event].apart |= is_apart(f, i, by);
        }
    }
    if (f->pass_count != 0) {
        memcpy(f->passes, f->by_event, f->pass_count * sizeof(ml_graph_pass));
        qsort(f->passes, f->pass_count, sizeof(ml_graph_pass), compare_passes);
    }
}

/* Marks the stacks whose nodes a pass ran. */
static void
find_trained(ml_graph_passes *f)
{
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        uint32_t stack = f->it->workload->demands[i].stack;
        f->trained[stack] = f->trained[stack] || pass_over(f, i) != NULL;
    }
}

/* Marks the frames of trained stacks. */
static int
find_trained_frames(ml_graph_passes *f)
{
    const ml_recording *recording = f->it->recording;
    bool *seen = ml_alloc_zeroed(recording->stack_count + 1, sizeof(bool));
    f->trained_frames = ml_alloc_zeroed(recording->frame_count + 1, sizeof(bool));
    if (seen == NULL || f->trained_frames == NULL) {
        ml_free(seen);
        return ML_ENOMEM;
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        for (size_t at = f->trained[i] ? i : 0; at != 0 && !seen[at];
             at = recording->stacks[at].parent) {
            seen[at] = true;
            f->trained_frames[recording->stacks[at].frame] = true;
        }
    }
    ml_free(seen);
    return 0;
}

int
ml_graph_passes_find(ml_graph_passes *f, const ml_advice_case *it)
{
    *f = (ml_graph_passes){.it = it};
    f->threads = ml_alloc_zeroed(THREADS, sizeof(ml_graph_thread));
    int error = f->threads == NULL ? ML_ENOMEM : find_passes(f);
    if (error == 0) {
        f->by_event = ml_alloc_zeroed(f->pass_count + 1, sizeof(ml_graph_pass));
        f->trained = ml_alloc_zeroed(it->recording->stack_count + 1, sizeof(bool));
        error = f->by_event == NULL || f->trained == NULL ? ML_ENOMEM : 0;
    }
    if (error == 0) {
        name_passes(f);
        if (f->pass_count != 0) {
            qsort(f->passes, f->pass_count, sizeof(ml_graph_pass), compare_passes);
        }
        sort_by_event(f);
        find_shared(f);
        sort_by_event(f);
        find_apart(f);
        find_trained(f);
        error = find_trained_frames(f);
    }
    return error;
}

void
ml_graph_passes_fini(ml_graph_passes *f)
{
    ml_free(f->passes);
    ml_free(f->by_event);
    ml_free(f->threads);
    ml_free(f->trained);
    ml_free(f->trained_frames);
}

int
ml_graph_propose(const ml_graph_passes *f, const ml_graph_held *held, ml_proposals *out,
                 ml_graph_proposed *to)
{
    const ml_demand *of = &f->it->workload->demands[held->demand];
    size_t *at = &to->at[held->kind];
    if (*at == 0) {
        if (ml_proposals_add(out, held->kind) == NULL) {
            return ML_ENOMEM;
        }
        *at = out->count;
        out->list[*at - 1].exact =
            !f->it->trace->uses_sampled && of->last_used != ML_NO_EVENT;
    }
    ml_advice *advice = &out->list[*at - 1];
    if (held->frame != 0 && of->block_bytes > to->largest[held->kind]) {
        to->largest[held->kind] = of->block_bytes;
        advice->frame = held->frame;
    }
    advice->count++;
    int error = 0;
    if (ml_demand_at_peak(f->it, held->demand)) {
        advice->bytes += of->block_bytes;
        advice->blocks++;
        error =
            ml_advice_add_module(advice, f->it->recording,
                                 ml_explained_of(f->it, held->demand)->cause.module);
    }
    ml_edit edit = {.kind = ML_EDIT_FREE, .demand = held->demand, .until = held->until};
    return error < 0 ? error : ml_advice_edit(advice, edit);
}
