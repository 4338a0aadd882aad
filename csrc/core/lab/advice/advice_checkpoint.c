/* Checkpointing: activations of repeated modules that could be recomputed.
 *
 * The call of a checkpointed module keeps only its inputs and output.  Everything else
 * that it saved is freed at the end of the call.  Right before the module's part of the
 * backward pass, it is made again, with the call's temporaries.  The edits leave the
 * first call as recorded, though it would save less.  That estimate is too high where
 * such a call makes the peak.
 *
 * A forward that ran out of memory has no backward pass.  Blocks of its finished calls
 * that are live when the request fails count as saved. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/module_repeats.h"
#include "base/base.h"
#include "lab/advice/library_switches.h"

/* Families tried, and demands of a call whose temporaries are considered. */
#define MOST_FAMILIES 8
#define MOST_IN_CALL 2048
/* What is smaller than this part of a call's largest result is statistics. */
#define STATISTICS_PART 64

/* The call of one instance, from its first to its last allocation. */
typedef struct call {
    size_t first;     /* demand */
    size_t end;       /* after the last demand */
    size_t end_event; /* first allocation after the call */
    size_t back;   /* first event of its part of the backward pass; ML_NO_EVENT: none */
    size_t output; /* demand; SIZE_MAX: none */
    uint32_t instance; /* 1 + index */
} call;

/* A parameter's size, by what autocast makes of it: half of the bytes. */
typedef struct weight {
    uint32_t module; /* string */
    uint64_t bytes;
} weight;

typedef struct calls {
    const ml_advice_case *it;
    const ml_repeats *repeats;
    uint32_t family;
    const weight *weights; /* sorted */
    size_t weight_count;
    const bool *normalizes; /* by stack: in a batch normalization */
    call *list;             /* owned */
    size_t count;
    size_t capacity;
} calls;

static const ml_demand *
demand_of(const calls *c, size_t demand)
{
    return &c->it->workload->demands[demand];
}

static uint32_t
instance_of(const calls *c, size_t demand)
{
    uint32_t module = ml_explained_of(c->it, demand)->cause.module;
    return ml_repeats_instance(c->repeats, module, c->family);
}

static bool
is_backward(const calls *c, size_t event)
{
    return event < c->it->trace->event_count &&
           ml_events_is_backward(&c->it->trace->events, event);
}

/* Whether DEMAND was made by the call and lives on for the backward pass. */
static bool
is_saved(const calls *c, const call *of, size_t demand)
{
    const ml_demand *it = demand_of(c, demand);
    return it->freed != ML_NO_EVENT && it->freed > of->end_event &&
           is_backward(c, it->freed);
}

/* Whether DEMAND is live when the first request fails, and of a finished call whose
 * operations made autograd nodes. */
static bool
is_left(const calls *c, const call *of, size_t demand)
{
    const ml_events *events = &c->it->trace->events;
    if (c->it->failed == ML_NO_EVENT || of->back != ML_NO_EVENT ||
        of->end_event > c->it->failed || demand == of->output) {
        return false;
    }
    uint64_t first = demand_of(c, of->first)->born;
    uint64_t last = demand_of(c, of->end - 1)->born;
    return ml_events_autograd_thread(events, first) != 0 &&
           ml_events_sequence(events, first) < ml_events_sequence(events, last) &&
           ml_demand_lives_at(c->it, demand, c->it->failed);
}

/* ---- Weights in 16 bits ---- */

static int
compare_weights(const void *a, const void *b)
{
    const weight *x = a;
    const weight *y = b;
    if (x->module != y->module) {
        return x->module < y->module ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int
find_weights(const ml_advice_case *it, weight **out, size_t *count)
{
    weight *list = ml_alloc_zeroed(it->workload->count + 1, sizeof(weight));
    *out = list;
    *count = 0;
    for (size_t i = 0; list != NULL && i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->verdict.category == ML_CATEGORY_PARAMETER) {
            list[(*count)++] = (weight){.module = ml_explained_of(it, i)->cause.module,
                                        .bytes = it->workload->demands[i].bytes / 2};
        }
    }
    if (*count != 0) {
        qsort(list, *count, sizeof(weight), compare_weights);
    }
    return list == NULL ? ML_ENOMEM : 0;
}

/* Whether DEMAND has the size of a weight that autocast cast, which keeps it until the
 * whole forward is over. */
static bool
is_cast_weight(const calls *c, size_t demand)
{
    weight key = {.module = ml_explained_of(c->it, demand)->cause.module,
                  .bytes = demand_of(c, demand)->bytes};
    return c->weight_count != 0 && bsearch(&key, c->weights, c->weight_count,
                                           sizeof(weight), compare_weights) != NULL;
}

/* The first event of a backward pass from EVENT on. */
static size_t
find_pass(const calls *c, size_t event)
{
    while (event < c->it->trace->event_count && !is_backward(c, event)) {
        event++;
    }
    return event;
}

/* ---- The calls ---- */

static int
add_call(calls *c, size_t demand, uint32_t instance)
{
    void *list = c->list;
    if (ml_grow(&list, &c->capacity, c->count + 1, sizeof(call)) < 0) {
        return ML_ENOMEM;
    }
    c->list = list;
    c->list[c->count++] = (call){.first = demand,
                                 .end = demand + 1,
                                 .end_event = c->it->trace->event_count,
                                 .back = ML_NO_EVENT,
                                 .output = SIZE_MAX,
                                 .instance = instance};
    return 0;
}

/* The backward pass reaches an instance with its first allocation or free for it. */
static void
note_back(const calls *c, size_t *last, uint32_t instance, size_t event)
{
    if (last[instance] != 0) {
        call *of = &c->list[last[instance] - 1];
        of->back = event < of->back ? event : of->back;
    }
}

/* LAST: by instance, 1 + its last call. */
static int
find_calls(calls *c, size_t *last)
{
    const ml_workload *workload = c->it->workload;
    bool open = false;
    for (size_t i = workload->before_count; i < workload->count; i++) {
        /* A library's workspace belongs to no call, though made during the first. */
        if (ml_demand_is_kept_workspace(c->it, i)) {
            continue;
        }
        uint32_t instance = instance_of(c, i);
        size_t born = workload->demands[i].born;
        call *newest = c->count != 0 ? &c->list[c->count - 1] : NULL;
        bool forward = ml_explained_of(c->it, i)->cause.phase == ML_PHASE_FORWARD;
        if (open && (!forward || instance != newest->instance)) {
            newest->end_event = born;
            open = false;
        }
        if (!forward && instance != 0 && is_backward(c, born)) {
            note_back(c, last, instance, born);
        }
        if (!forward || instance == 0) {
            continue;
        }
        if (open) {
            newest->end = i + 1;
            continue;
        }
        int error = add_call(c, i, instance);
        if (error < 0) {
            return error;
        }
        last[instance] = c->count;
        open = true;
    }
    return 0;
}

static bool
outlives(const calls *c, const call *of, size_t demand)
{
    size_t freed = demand_of(c, demand)->freed;
    return (freed == ML_NO_EVENT || freed > of->end_event) &&
           instance_of(c, demand) == of->instance;
}

/* The last block of the call that outlives it is what it returns; statistics of a
 * normalization are behind its result, and much smaller. */
static void
settle_call(calls *c, call *of)
{
    uint64_t largest = 0;
    for (size_t i = of->first; i < of->end; i++) {
        uint64_t bytes = outlives(c, of, i) ? demand_of(c, i)->bytes : 0;
        largest = bytes > largest ? bytes : largest;
    }
    for (size_t i = of->end; i-- > of->first && of->output == SIZE_MAX;) {
        if (outlives(c, of, i) && demand_of(c, i)->bytes >= largest / STATISTICS_PART) {
            of->output = i;
        }
    }
    for (size_t i = of->first; i < of->end; i++) {
        if (i != of->output && is_saved(c, of, i)) {
            size_t freed = demand_of(c, i)->freed;
            of->back = freed < of->back ? freed : of->back;
        }
    }
    if (of->back <= of->end_event) {
        of->back = ML_NO_EVENT; /* checkpointing cannot work here */
    }
}

/* ---- The edits ---- */

/* The last demand that the call saves: when it runs again, it ends there. */
static size_t
last_saved(const calls *c, const call *of)
{
    size_t last = of->first;
    for (size_t i = of->first; i < of->end; i++) {
        last = i != of->output && is_saved(c, of, i) ? i : last;
    }
    return last;
}

/* The demand up to LAST at whose birth most of the call's bytes are there. */
static size_t
fullest(const calls *c, const call *of, size_t last)
{
    size_t best = of->first;
    uint64_t most = 0;
    for (size_t i = of->first; i <= last && i - of->first < MOST_IN_CALL; i++) {
        size_t now = demand_of(c, i)->born;
        uint64_t there = 0;
        for (size_t k = of->first; k <= i; k++) {
            const ml_demand *demand = demand_of(c, k);
            bool lives = demand->freed == ML_NO_EVENT || demand->freed > now;
            bool own = instance_of(c, k) == of->instance;
            there += lives && own ? demand->block_bytes : 0;
        }
        if (there > most) {
            most = there;
            best = i;
        }
    }
    return best;
}

static int
remake(ml_advice *advice, const ml_demand *demand, size_t index, size_t from,
       size_t until)
{
    ml_edit again = {.kind = ML_EDIT_ADD,
                     .demand = index,
                     .bytes = demand->bytes,
                     .from = from,
                     .until = until};
    return ml_advice_edit(advice, again);
}

/* At BACK the call runs again.  Its fullest moment then has its temporaries too, which
 * are freed before the backward pass continues. */
static int
edit_saved(const calls *c, ml_advice *advice, const call *of)
{
    size_t top = fullest(c, of, last_saved(c, of));
    size_t top_event = demand_of(c, top)->born;
    bool early = ml_events_action(&c->it->trace->events, of->back) == ML_ACTION_ALLOC;
    size_t again = early ? of->back - 1 : of->back;
    size_t pass = find_pass(c, of->end_event);
    int error = 0;
    for (size_t i = of->first; error == 0 && i < of->end; i++) {
        const ml_demand *demand = demand_of(c, i);
        bool there = i <= top && demand->freed > top_event;
        if (i == of->output) {
            error = there ? remake(advice, demand, i, again, again + 1) : 0;
        }
        else if (is_saved(c, of, i)) {
            size_t end = is_cast_weight(c, i) ? pass : of->end_event;
            ml_edit drop = {.kind = ML_EDIT_FREE, .demand = i, .until = end};
            error = ml_advice_edit(advice, drop);
            if (error == 0) {
                error =
                    remake(advice, demand, i, there ? again : again + 1, demand->freed);
            }
        }
        else if (there && demand->freed != ML_NO_EVENT) {
            error = remake(advice, demand, i, again, again + 1);
        }
    }
    return error;
}

/* A call's output is an input of the next call, which keeps it until it has run
 * again. */
static int
edit_output(const calls *c, ml_advice *advice, const call *of, const call *next)
{
    if (of->output == SIZE_MAX || next == NULL || next->back == ML_NO_EVENT ||
        next->first != of->end) {
        return 0;
    }
    const ml_demand *demand = demand_of(c, of->output);
    if (demand->freed == ML_NO_EVENT || demand->freed > next->back) {
        return 0;
    }
    ml_edit keep = {
        .kind = ML_EDIT_FREE, .demand = of->output, .until = next->back + 1};
    return ml_advice_edit(advice, keep);
}

/* The request failed before any recomputation, so nothing is made again. */
static int
edit_left(const calls *c, ml_advice *advice, const call *of)
{
    int error = 0;
    for (size_t i = of->first; error == 0 && i < of->end; i++) {
        if (!is_left(c, of, i)) {
            continue;
        }
        if (ml_demand_at_peak(c->it, i)) {
            advice->bytes += demand_of(c, i)->block_bytes;
            advice->blocks++;
        }
        ml_edit drop = {.kind = ML_EDIT_FREE, .demand = i, .until = of->end_event};
        error = ml_advice_edit(advice, drop);
    }
    return error;
}

static int
edit_calls(const calls *c, ml_advice *advice)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < c->count; i++) {
        const call *of = &c->list[i];
        if (of->back == ML_NO_EVENT) {
            error = edit_left(c, advice, of);
            continue;
        }
        error = edit_saved(c, advice, of);
        if (error == 0) {
            error = edit_output(c, advice, of, i + 1 < c->count ? of + 1 : NULL);
        }
        for (size_t k = of->first; k < of->end; k++) {
            if (k != of->output && is_saved(c, of, k) && ml_demand_at_peak(c->it, k)) {
                advice->bytes += demand_of(c, k)->block_bytes;
                advice->blocks++;
            }
        }
    }
    return error;
}

/* ---- The families ---- */

static int
name_family(const calls *c, ml_advice *advice)
{
    const ml_family *family = &c->repeats->families[c->family];
    advice->count = family->instances;
    advice->module = ml_alloc((size_t)family->before.length + 2);
    if (advice->module == NULL) {
        return ML_ENOMEM;
    }
    memcpy(advice->module, family->before.bytes, family->before.length);
    memcpy(advice->module + family->before.length, "*", 2);
    return 0;
}

/* What runs again updates running statistics again. */
static bool
has_batch_norm(const calls *c)
{
    bool has = false;
    for (size_t i = 0; i < c->count && !has; i++) {
        for (size_t k = c->list[i].first; k < c->list[i].end && !has; k++) {
            has = c->normalizes[demand_of(c, k)->stack];
        }
    }
    return has;
}

static int
propose_family(calls *c, ml_proposals *out)
{
    size_t *last = ml_alloc_zeroed(c->repeats->instance_count + 1, sizeof(size_t));
    int error = last == NULL ? ML_ENOMEM : find_calls(c, last);
    ml_free(last);
    for (size_t i = 0; error == 0 && i < c->count; i++) {
        settle_call(c, &c->list[i]);
    }
    ml_advice *advice = NULL;
    if (error == 0) {
        advice = ml_proposals_add(out, ML_ADVICE_CHECKPOINT);
        error = advice == NULL ? ML_ENOMEM : name_family(c, advice);
    }
    if (error == 0) {
        advice->exact = false;
        advice->normalizes = has_batch_norm(c);
        advice->library_switch =
            c->count == 0
                ? NULL
                : ml_switch_of_checkpoint(c->it->recording,
                                          demand_of(c, c->list[0].first)->stack);
        error = edit_calls(c, advice);
    }
    return error;
}

/* By stack: whether it is in a batch normalization.  NULL: no memory. */
static bool *
mark_batch_norms(const ml_recording *recording)
{
    static const char name[] = "batch_norm";
    bool *is = ml_alloc_zeroed(recording->stack_count + 1, sizeof(*is));
    for (size_t i = 1; is != NULL && i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        ml_string own = ml_frame_name(recording, stack->frame);
        is[i] = is[stack->parent] || (own.length == sizeof(name) - 1 &&
                                      memcmp(own.bytes, name, own.length) == 0);
    }
    return is;
}

static int
find_families(const ml_advice_case *it, ml_repeats *repeats)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->cause.module != 0) {
            error = ml_repeats_add(repeats, it->recording,
                                   ml_explained_of(it, i)->cause.module);
        }
    }
    return error;
}

/* In a forward that failed, blocks are not yet known to be activations. */
static bool
may_be_saved(const ml_advice_case *it, size_t demand)
{
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_ACTIVATION ||
           (it->workload->failed &&
            ml_explained_of(it, demand)->cause.phase == ML_PHASE_FORWARD);
}

/* Adds to BYTES, by family, the bytes saved for the backward pass at the peak. */
static void
weigh_families(const ml_advice_case *it, const ml_repeats *repeats, uint64_t *bytes)
{
    for (size_t i = 0; i < it->workload->count; i++) {
        if (!may_be_saved(it, i) || !ml_demand_at_peak(it, i)) {
            continue;
        }
        for (unsigned level = 0; level < ML_REPEATS_LEVELS; level++) {
            uint32_t instance =
                repeats->of[ml_explained_of(it, i)->cause.module][level];
            if (instance != 0) {
                bytes[repeats->instances[instance - 1].family] +=
                    it->workload->demands[i].block_bytes;
            }
        }
    }
}

/* Proposes the families that save most.  Overwrites BYTES. */
static int
propose_families(const ml_advice_case *it, const ml_repeats *repeats, uint64_t *bytes,
                 ml_proposals *out)
{
    weight *weights;
    size_t weight_count;
    int error = find_weights(it, &weights, &weight_count);
    bool *normalizes = mark_batch_norms(it->recording);
    error = error == 0 && normalizes == NULL ? ML_ENOMEM : error;
    for (unsigned tried = 0; error == 0 && tried < MOST_FAMILIES; tried++) {
        size_t most = 0;
        for (size_t i = 0; i < repeats->family_count; i++) {
            bytes[i] = repeats->families[i].instances > 1 ? bytes[i] : 0;
            most = bytes[i] > bytes[most] ? i : most;
        }
        if (bytes[most] == 0) {
            break;
        }
        bytes[most] = 0;
        calls c = {.it = it,
                   .repeats = repeats,
                   .family = (uint32_t)most,
                   .weights = weights,
                   .weight_count = weight_count,
                   .normalizes = normalizes};
        error = propose_family(&c, out);
        ml_free(c.list);
    }
    ml_free(normalizes);
    ml_free(weights);
    return error;
}

int
ml_advise_checkpoint(const ml_advice_case *it, ml_proposals *out)
{
    ml_repeats repeats;
    int error = ml_repeats_init(&repeats, it->recording);
    if (error < 0) {
        return error;
    }
    error = find_families(it, &repeats);
    uint64_t *bytes = ml_alloc_zeroed(repeats.family_count + 1, sizeof(uint64_t));
    error = bytes == NULL ? ML_ENOMEM : error;
    if (error == 0) {
        weigh_families(it, &repeats, bytes);
        error = propose_families(it, &repeats, bytes, out);
    }
    ml_free(bytes);
    ml_repeats_fini(&repeats);
    return error;
}
