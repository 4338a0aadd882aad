/* The cause of each allocation.  See cause.h. */
#include "cause.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"

/* What a thread was doing when its next node would get number NEXT: the first event
 * that saw that number, and the last. */
typedef struct sample {
    uint64_t next;
    uint64_t order; /* of the event, in time */
    uint32_t stack;
    uint16_t autograd_thread;
} sample;

typedef struct timeline {
    uint8_t *phases; /* owned; of each event */
    uint32_t *steps; /* owned; of each event */
} timeline;

struct ml_causes {
    const ml_recording *recording; /* borrowed */
    ml_stack_facts facts;
    sample *samples; /* owned; by thread, number and time */
    size_t sample_count;
    timeline *devices; /* owned */
    bool passes_known; /* the recording says which events a backward pass made */
};

static bool
is_backward(const ml_event *event)
{
    return (event->flags & ML_EVENT_BACKWARD) != 0;
}

static bool
is_free(const ml_event *event)
{
    return event->action == ML_ACTION_FREE_REQUESTED ||
           event->action == ML_ACTION_FREE_COMPLETED;
}

/* ---- Samples ---- */

static int
compare_samples(const void *a, const void *b)
{
    const sample *x = a;
    const sample *y = b;
    if (x->autograd_thread != y->autograd_thread) {
        return x->autograd_thread < y->autograd_thread ? -1 : 1;
    }
    if (x->next != y->next) {
        return x->next < y->next ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* By id of its addresses: the stack of the last allocation at each. */
typedef struct births {
    ml_intern addresses;
    uint64_t *addr; /* owned, as the next */
    uint32_t *stack;
    size_t addr_capacity;
    size_t stack_capacity;
    uint64_t wanted;
} births;

static bool
is_wanted(const void *context, uint32_t id)
{
    const births *of = context;
    return of->addr[id] == of->wanted;
}

static bool
find_birth(births *of, uint64_t addr, uint32_t *id)
{
    of->wanted = addr;
    return ml_intern_find(&of->addresses, ml_hash_u64(addr), is_wanted, of, id) != 0;
}

static int
keep_birth(births *of, const ml_event *event)
{
    uint32_t id;
    if (!find_birth(of, event->addr, &id)) {
        id = (uint32_t)of->addresses.count;
        if (ml_grow((void **)&of->addr, &of->addr_capacity, (size_t)id + 1,
                    sizeof(*of->addr)) < 0 ||
            ml_grow((void **)&of->stack, &of->stack_capacity, (size_t)id + 1,
                    sizeof(*of->stack)) < 0 ||
            ml_intern_add(&of->addresses, ml_hash_u64(event->addr)) < 0) {
            return ML_ENOMEM;
        }
        of->addr[id] = event->addr;
    }
    of->stack[id] = event->stack;
    return 0;
}

/* Whether frees have stacks of their own.  Recorded with the context of allocations
 * alone, every free shows that of its allocation, which says nothing of the moment. */
static int
frees_tell(const ml_device_trace *trace, bool *out)
{
    *out = false;
    births of = {0};
    int result = 0;
    for (size_t i = 0; i < trace->event_count && result == 0 && !*out; i++) {
        const ml_event *event = &trace->events[i];
        uint32_t id;
        if (event->action == ML_ACTION_ALLOC) {
            result = keep_birth(&of, event);
        }
        else if (is_free(event) && event->stack != 0 &&
                 find_birth(&of, event->addr, &id)) {
            *out = of.stack[id] != 0 && of.stack[id] != event->stack;
        }
    }
    ml_intern_fini(&of.addresses);
    ml_free(of.addr);
    ml_free(of.stack);
    return result;
}

static bool
is_sample(const ml_event *event, bool frees)
{
    return event->autograd_thread != 0 && event->stack != 0 && !is_backward(event) &&
           (event->action == ML_ACTION_ALLOC || (frees && is_free(event)));
}

static int
take_samples(ml_causes *causes)
{
    const ml_recording *recording = causes->recording;
    size_t total = 0;
    for (size_t d = 0; d < recording->device_count; d++) {
        total += recording->devices[d].event_count;
    }
    causes->samples = ml_alloc_zeroed(total + 1, sizeof(sample));
    if (causes->samples == NULL) {
        return ML_ENOMEM;
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        bool frees;
        int error = frees_tell(trace, &frees);
        if (error < 0) {
            return error;
        }
        for (size_t i = 0; i < trace->event_count; i++) {
            const ml_event *event = &trace->events[i];
            if (is_sample(event, frees)) {
                /* Within a device the order is known better than by time. */
                causes->samples[causes->sample_count++] = (sample){
                    event->sequence, recording->device_count == 1 ? i : event->time,
                    event->stack, event->autograd_thread};
            }
        }
    }
    qsort(causes->samples, causes->sample_count, sizeof(sample), compare_samples);
    return 0;
}

/* The first sample of THREAD that saw NEXT or more; sample_count or one of another
 * thread where there is none. */
static size_t
find_sample(const ml_causes *causes, uint16_t thread, uint64_t next)
{
    size_t low = 0;
    size_t high = causes->sample_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const sample *s = &causes->samples[middle];
        if (s->autograd_thread < thread ||
            (s->autograd_thread == thread && s->next < next)) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low;
}

/* ---- The forward operation of a node ---- */

static size_t
depth_of(const ml_recording *recording, uint32_t stack)
{
    size_t depth = 0;
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        depth++;
    }
    return depth;
}

/* The frame of BEFORE's stack in the innermost function that both stacks are in: where
 * that function had come to.  Operations between them are on that line or a later one
 * of that function, or in functions that it called. */
static uint32_t
shared_part(const ml_recording *recording, uint32_t before, uint32_t after)
{
    size_t deep = depth_of(recording, before);
    size_t other = depth_of(recording, after);
    uint32_t below = 0; /* one further in than BEFORE */
    uint32_t after_below = 0;
    for (; deep > other; deep--) {
        below = before;
        before = recording->stacks[before].parent;
    }
    for (; other > deep; other--) {
        after_below = after;
        after = recording->stacks[after].parent;
    }
    while (before != after) {
        below = before;
        after_below = after;
        before = recording->stacks[before].parent;
        after = recording->stacks[after].parent;
    }
    if (below != 0 && after_below != 0) {
        ml_frame a = recording->frames[recording->stacks[below].frame];
        ml_frame b = recording->frames[recording->stacks[after_below].frame];
        if (a.name == b.name && a.filename == b.filename) {
            return below;
        }
    }
    return before;
}

/* The stack of the operation that made node SEQUENCE of THREAD; 0: not known. */
static uint32_t
find_forward(const ml_causes *causes, uint16_t thread, uint64_t sequence,
             enum ml_how *how)
{
    if (thread == 0 || sequence == UINT64_MAX) {
        return 0;
    }
    size_t at = find_sample(causes, thread, sequence + 1);
    const sample *after = at < causes->sample_count ? &causes->samples[at] : NULL;
    const sample *before = at > 0 ? &causes->samples[at - 1] : NULL;
    if (after == NULL || after->autograd_thread != thread) {
        return 0;
    }
    if (after->next == sequence + 1) {
        *how = ML_HOW_NODE;
        return after->stack;
    }
    if (before == NULL || before->autograd_thread != thread) {
        /* Made before the first event that we have, at a place nobody saw. */
        return 0;
    }
    *how = ML_HOW_NEAR;
    return sequence + 1 - before->next > after->next - (sequence + 1)
               ? after->stack
               : shared_part(causes->recording, before->stack, after->stack);
}

/* ---- Phases ---- */

static bool
any_backward(const ml_recording *recording)
{
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            if (is_backward(&trace->events[i])) {
                return true;
            }
        }
    }
    return false;
}

/* ADVANCED: autograd made a node on the thread since its last event. */
static enum ml_phase
phase_of(const ml_causes *causes, const ml_event *event, bool advanced)
{
    const ml_stack_fact *fact = &causes->facts.of[event->stack];
    if (fact->scope == ML_SCOPE_OPTIMIZER) {
        return ML_PHASE_OPTIMIZER;
    }
    if (is_backward(event) || fact->engine) {
        return ML_PHASE_BACKWARD;
    }
    if (fact->scope == ML_SCOPE_MODULE || advanced) {
        return ML_PHASE_FORWARD;
    }
    if (event->stack == 0 && (event->flags & ML_EVENT_NO_PYTHON) == 0) {
        return ML_PHASE_UNKNOWN;
    }
    return event->autograd_thread != 0 ? ML_PHASE_OTHER : ML_PHASE_UNKNOWN;
}

static void
find_phases(const ml_causes *causes, const ml_device_trace *trace, uint8_t *phases,
            uint64_t *last)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = &trace->events[i];
        bool advanced = false;
        if (event->autograd_thread != 0 && !is_backward(event)) {
            /* Numbers begin at 0; one more tells that from a thread not seen. */
            uint64_t *seen = &last[event->autograd_thread];
            advanced = *seen != 0 && event->sequence + 1 > *seen;
            *seen = event->sequence + 1;
        }
        phases[i] = (uint8_t)phase_of(causes, event, advanced);
    }
}

/* ---- Steps ---- */

/* By the marks that were set when steps ended. */
static bool
steps_by_notes(const ml_recording *recording, const ml_device_trace *trace,
               uint32_t *steps)
{
    size_t note = 0;
    uint32_t step = 0;
    bool any = false;
    for (size_t i = 0; i < recording->note_count && !any; i++) {
        any = recording->notes[i].kind == ML_NOTE_STEP;
        step = (uint32_t)recording->notes[i].values[0];
    }
    for (size_t i = 0; any && i < trace->event_count; i++) {
        while (note < recording->note_count &&
               (recording->notes[note].kind != ML_NOTE_STEP ||
                recording->notes[note].time <= trace->events[i].time)) {
            if (recording->notes[note].kind == ML_NOTE_STEP) {
                step = (uint32_t)recording->notes[note].values[0] + 1;
            }
            note++;
        }
        steps[i] = step;
    }
    return any;
}

/* A step ends where the optimizer has been at work and something else allocates. */
static void
steps_by_phases(const ml_device_trace *trace, const uint8_t *phases, uint32_t *steps)
{
    uint32_t step = 0;
    bool stepped = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].action == ML_ACTION_ALLOC) {
            bool now = phases[i] == ML_PHASE_OPTIMIZER;
            step += stepped && !now;
            stepped = now;
        }
        steps[i] = step;
    }
}

static int
make_timelines(ml_causes *causes)
{
    const ml_recording *recording = causes->recording;
    uint64_t *last = ml_alloc_zeroed((size_t)UINT16_MAX + 1, sizeof(uint64_t));
    causes->devices = ml_alloc_zeroed(recording->device_count + 1, sizeof(timeline));
    int error = last == NULL || causes->devices == NULL ? ML_ENOMEM : 0;
    for (size_t d = 0; error == 0 && d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        timeline *line = &causes->devices[d];
        line->phases = ml_alloc_zeroed(trace->event_count + 1, 1);
        line->steps = ml_alloc_zeroed(trace->event_count + 1, sizeof(uint32_t));
        if (line->phases == NULL || line->steps == NULL) {
            error = ML_ENOMEM;
            break;
        }
        memset(last, 0, ((size_t)UINT16_MAX + 1) * sizeof(uint64_t));
        find_phases(causes, trace, line->phases, last);
        if (!steps_by_notes(recording, trace, line->steps)) {
            steps_by_phases(trace, line->phases, line->steps);
        }
    }
    ml_free(last);
    return error;
}

/* ---- The whole ---- */

int
ml_causes_new(const ml_recording *recording, ml_causes **out)
{
    ml_causes *causes = ml_alloc_zeroed(1, sizeof(*causes));
    if (causes == NULL) {
        return ML_ENOMEM;
    }
    causes->recording = recording;
    int error = ml_stack_facts_init(&causes->facts, recording);
    if (error == 0) {
        error = take_samples(causes);
    }
    if (error == 0) {
        error = make_timelines(causes);
    }
    if (error < 0) {
        ml_causes_free(causes);
        return error;
    }
    causes->passes_known =
        !recording->foreign || recording->source_known || any_backward(recording);
    *out = causes;
    return 0;
}

void
ml_causes_free(ml_causes *causes)
{
    if (causes == NULL) {
        return;
    }
    for (size_t d = 0; causes->devices != NULL && d < causes->recording->device_count;
         d++) {
        ml_free(causes->devices[d].phases);
        ml_free(causes->devices[d].steps);
    }
    ml_free(causes->devices);
    ml_free(causes->samples);
    ml_stack_facts_fini(&causes->facts);
    ml_free(causes);
}

static enum ml_no_line
no_line_of(const ml_event *event)
{
    uint8_t flags = event->flags;
    if (flags & ML_EVENT_STACK_LOST) {
        return ML_NO_LINE_LOST;
    }
    if (flags & ML_EVENT_BACKWARD && event->autograd_thread != 0) {
        return event->sequence == UINT64_MAX ? ML_NO_LINE_GRADIENT : ML_NO_LINE_NODE;
    }
    if ((flags & ML_EVENT_NO_PYTHON) != 0 || event->stack != 0) {
        return flags & ML_EVENT_BACKWARD ? ML_NO_LINE_BACKWARD : ML_NO_LINE_NO_PYTHON;
    }
    return flags & ML_EVENT_CONTEXT ? ML_NO_LINE_EMPTY : ML_NO_LINE_NOT_RECORDED;
}

/* Takes the line from STACK, if it has one. */
static void
name_line(const ml_causes *causes, ml_cause *cause, uint32_t stack, enum ml_how how)
{
    ml_standing line = ml_stack_facts_line(&causes->facts, stack);
    cause->stack = stack;
    cause->how = ML_HOW_NONE;
    if (line.place < ML_PLACE_NATIVE) {
        /* A place in somebody's library is no line to go to. */
        cause->frame = line.frame;
        cause->how = (uint8_t)how;
    }
}

/* Takes the module from STACK, or why there is none. */
static void
name_module(const ml_causes *causes, ml_cause *cause, uint32_t stack)
{
    const ml_stack_fact *fact = &causes->facts.of[stack];
    cause->module = fact->module;
    cause->no_module = ML_NO_MODULE_NONE;
    if (fact->module == 0) {
        cause->no_module = stack == 0                          ? ML_NO_MODULE_STACK
                           : fact->scope == ML_SCOPE_OPTIMIZER ? ML_NO_MODULE_OPTIMIZER
                           : fact->scope == ML_SCOPE_MODULE    ? ML_NO_MODULE_UNNAMED
                                                               : ML_NO_MODULE_CALL;
    }
}

static void
find_line(const ml_causes *causes, const ml_event *event, ml_cause *cause)
{
    const ml_stack_fact *own = &causes->facts.of[event->stack];
    enum ml_how how = ML_HOW_NONE;
    bool frames = own->inner.place < ML_PLACE_NATIVE;
    uint32_t forward = 0;
    if (is_backward(event) && (own->inner.place != ML_PLACE_USER || own->module == 0)) {
        forward = find_forward(causes, event->autograd_thread, event->sequence, &how);
    }
    if (frames) {
        name_line(causes, cause, event->stack, ML_HOW_FRAMES);
        name_module(causes, cause, event->stack);
        if (forward != 0 && own->module == 0) {
            /* A custom function's backward runs outside the module of its forward. */
            name_module(causes, cause, forward);
        }
        /* Only a package's frames: the user's line is that of the forward. */
        ml_standing line = ml_stack_facts_line(&causes->facts, event->stack);
        if (line.place != ML_PLACE_USER && forward != 0) {
            name_line(causes, cause, forward, how);
        }
    }
    else if (forward != 0) {
        name_line(causes, cause, forward, how);
        name_module(causes, cause, forward);
    }
    else if (event->stack != 0) {
        name_line(causes, cause, event->stack,
                  own->engine ? ML_HOW_CALL : ML_HOW_FRAMES);
        if (!own->engine) {
            name_module(causes, cause, event->stack);
        }
    }
    if (cause->how == ML_HOW_NONE) {
        cause->no_line = (uint8_t)no_line_of(event);
    }
}

ml_cause
ml_causes_of(const ml_causes *causes, size_t device, size_t index)
{
    const ml_event *event = &causes->recording->devices[device].events[index];
    const ml_stack_fact *own = &causes->facts.of[event->stack];
    ml_cause cause = {.phase = causes->devices[device].phases[index],
                      .step = causes->devices[device].steps[index],
                      .recomputed = is_backward(event) && own->scope == ML_SCOPE_MODULE,
                      .communication = own->communication,
                      .no_module = ML_NO_MODULE_STACK};
    find_line(causes, event, &cause);
    return cause;
}

ml_cause
ml_causes_before(const ml_causes *causes, uint32_t stack)
{
    ml_cause cause = {.phase = ML_PHASE_BEFORE_RECORDING};
    name_module(causes, &cause, stack);
    if (stack != 0) {
        name_line(causes, &cause, stack, ML_HOW_FRAMES);
    }
    if (cause.how == ML_HOW_NONE) {
        cause.no_line = stack == 0 ? ML_NO_LINE_BEFORE : ML_NO_LINE_NO_PYTHON;
    }
    return cause;
}

enum ml_phase
ml_causes_phase(const ml_causes *causes, size_t device, size_t index)
{
    return (enum ml_phase)causes->devices[device].phases[index];
}

bool
ml_causes_know_passes(const ml_causes *causes)
{
    return causes->passes_known;
}

const ml_stack_facts *
ml_causes_facts(const ml_causes *causes)
{
    return &causes->facts;
}

static const char *
text_of(const char *const *texts, unsigned count, unsigned index, unsigned otherwise)
{
    return texts[index < count ? index : otherwise];
}

const char *
ml_phase_text(unsigned phase)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_PHASES(XX)
#undef XX
    };
    return text_of(texts, ML_PHASE_COUNT, phase, ML_PHASE_UNKNOWN);
}

const char *
ml_how_text(unsigned how)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_HOWS(XX)
#undef XX
    };
    return text_of(texts, ML_HOW_COUNT, how, ML_HOW_NONE);
}

const char *
ml_no_line_text(unsigned no_line)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_NO_LINES(XX)
#undef XX
    };
    return text_of(texts, ML_NO_LINE_COUNT, no_line, ML_NO_LINE_NONE);
}

const char *
ml_no_module_text(unsigned no_module)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_NO_MODULES(XX)
#undef XX
    };
    return text_of(texts, ML_NO_MODULE_COUNT, no_module, ML_NO_MODULE_NONE);
}
