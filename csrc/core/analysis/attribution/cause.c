/* Finds the cause of each allocation.  See cause.h. */
#include "analysis/attribution/cause.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/forward_match.h"
#include "base/base.h"

typedef struct timeline {
    uint8_t *phases; /* owned; of each event */
    uint32_t *steps; /* owned; of each event */
    bool *backward;  /* owned; by event, from signs; NULL: flags tell it */
} timeline;

struct ml_causes {
    const ml_recording *recording; /* borrowed */
    ml_stack_facts facts;
    ml_stack_signs signs;
    ml_forward_index forwards;
    timeline *devices; /* owned */
    size_t device_count;
    bool passes_known; /* the recording says which events a backward pass made */
};

bool
ml_causes_is_backward(const ml_causes *causes, size_t device, size_t index)
{
    const bool *by_signs = causes->devices[device].backward;
    if (by_signs != NULL) {
        return by_signs[index];
    }
    const ml_events *events = &causes->recording->devices[device].events;
    return (ml_events_flags(events, index) & ML_EVENT_BACKWARD) != 0;
}

/* ---- Phases ---- */

static bool
any_backward(const ml_recording *recording)
{
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            if ((ml_events_flags(&trace->events, i) & ML_EVENT_BACKWARD) != 0) {
                return true;
            }
        }
    }
    return false;
}

/* BACKWARD: a pass made EVENT.  ADVANCED: EVENT is the first after autograd made a node
 * on the thread. */
static enum ml_phase
phase_of(const ml_causes *causes, const ml_event *event, bool backward, bool advanced)
{
    const ml_stack_fact *fact = &causes->facts.of[event->stack];
    if (fact->scope == ML_SCOPE_OPTIMIZER) {
        return ML_PHASE_OPTIMIZER;
    }
    if (backward || fact->engine || fact->seed) {
        return ML_PHASE_BACKWARD;
    }
    if (fact->scope == ML_SCOPE_MODULE || advanced) {
        return ML_PHASE_FORWARD;
    }
    if (event->stack == 0 && (event->flags & ML_EVENT_NO_PYTHON) == 0) {
        return ML_PHASE_UNKNOWN;
    }
    return event->autograd_thread != 0 || causes->signs.of != NULL ? ML_PHASE_OTHER
                                                                   : ML_PHASE_UNKNOWN;
}

/* Autograd's progress on a thread. */
typedef struct progress {
    uint64_t next; /* 1 + the number of its next node; 0: thread not seen */
    bool passed;   /* a backward pass ran since its last allocation */
} progress;

/* Between an operation's node and its result there may be its segment, and a free;
 * these do not tell whose node it was.  After a backward pass no forward operation is
 * in progress, and a free shows nodes that allocated nothing. */
static void
find_phases(const ml_causes *causes, size_t device, progress *of_threads)
{
    const ml_device_trace *trace = &causes->recording->devices[device];
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(stack) | ML_EVENT_BIT(action) |
                             ML_EVENT_BIT(flags) | ML_EVENT_BIT(sequence) |
                             ML_EVENT_BIT(autograd_thread));
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        progress *thread = &of_threads[event->autograd_thread];
        bool alloc = event->action == ML_ACTION_ALLOC;
        bool advanced = false;
        bool backward = ml_causes_is_backward(causes, device, i);
        if (backward) {
            thread->passed = true;
        }
        else if (event->autograd_thread != 0) {
            advanced = thread->next != 0 && event->sequence + 1 > thread->next;
            if (alloc || thread->passed || thread->next == 0) {
                thread->next = event->sequence + 1;
            }
            thread->passed = thread->passed && !alloc;
        }
        causes->devices[device].phases[i] =
            (uint8_t)phase_of(causes, event, backward, advanced);
    }
}

/* ---- Steps ---- */

/* By the notes of the ends of steps. */
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
                recording->notes[note].time <= ml_events_time(&trace->events, i))) {
            if (recording->notes[note].kind == ML_NOTE_STEP) {
                step = (uint32_t)recording->notes[note].values[0] + 1;
            }
            note++;
        }
        steps[i] = step;
    }
    return any;
}

/* A step ends when the optimizer has run and something else allocates. */
static void
steps_by_phases(const ml_device_trace *trace, const uint8_t *phases, uint32_t *steps)
{
    uint32_t step = 0;
    bool stepped = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (ml_events_action(&trace->events, i) == ML_ACTION_ALLOC) {
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
    progress *of_threads = ml_alloc_zeroed((size_t)UINT16_MAX + 1, sizeof(*of_threads));
    causes->devices = ml_alloc_zeroed(recording->device_count + 1, sizeof(timeline));
    int error = of_threads == NULL || causes->devices == NULL ? ML_ENOMEM : 0;
    for (size_t d = 0; error == 0 && d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        timeline *line = &causes->devices[d];
        line->phases = ml_alloc_zeroed(trace->event_count + 1, 1);
        line->steps = ml_alloc_zeroed(trace->event_count + 1, sizeof(uint32_t));
        if (line->phases == NULL || line->steps == NULL) {
            error = ML_ENOMEM;
            break;
        }
        if (causes->signs.of != NULL) {
            line->backward = ml_alloc_zeroed(trace->event_count + 1, sizeof(bool));
            if (line->backward == NULL) {
                error = ML_ENOMEM;
                break;
            }
            ml_stack_signs_find_passes(&causes->signs, trace, line->backward);
        }
        memset(of_threads, 0, ((size_t)UINT16_MAX + 1) * sizeof(*of_threads));
        find_phases(causes, d, of_threads);
        if (!steps_by_notes(recording, trace, line->steps)) {
            steps_by_phases(trace, line->phases, line->steps);
        }
    }
    ml_free(of_threads);
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
    causes->device_count = recording->device_count;
    int error = ml_stack_facts_init(&causes->facts, recording);
    if (error == 0) {
        error = ml_stack_signs_init(&causes->signs, recording, &causes->facts);
    }
    if (error == 0) {
        error = ml_forward_index_init(&causes->forwards, recording, &causes->facts);
    }
    if (error == 0) {
        error = make_timelines(causes);
    }
    if (error < 0) {
        ml_causes_free(causes);
        return error;
    }
    causes->passes_known = !recording->foreign || recording->source_known ||
                           any_backward(recording) || causes->signs.of != NULL;
    *out = causes;
    return 0;
}

void
ml_causes_free(ml_causes *causes)
{
    if (causes == NULL) {
        return;
    }
    for (size_t d = 0; causes->devices != NULL && d < causes->device_count; d++) {
        ml_free(causes->devices[d].phases);
        ml_free(causes->devices[d].steps);
        ml_free(causes->devices[d].backward);
    }
    ml_free(causes->devices);
    ml_forward_index_fini(&causes->forwards);
    ml_stack_signs_fini(&causes->signs);
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

/* Sets the line from STACK, if it has one. */
static void
name_line(const ml_causes *causes, ml_cause *cause, uint32_t stack, enum ml_how how)
{
    ml_standing line = ml_stack_facts_line(&causes->facts, stack);
    cause->stack = stack;
    cause->how = ML_HOW_NONE;
    if (line.place < ML_PLACE_NATIVE) {
        /* A place in a library is no line of the user's. */
        uint32_t model = causes->facts.of[stack].model;
        cause->frame = line.frame;
        cause->model = model != 0 ? model : line.frame;
        cause->how = (uint8_t)how;
    }
}

/* Sets the module from STACK, or the reason for none. */
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

/* Sets the line from the operation that made the node. */
static void
name_forward(const ml_causes *causes, ml_cause *cause, ml_forward_match forward)
{
    static const enum ml_how hows[] = {[ML_FORWARD_MATCH_EXACT] = ML_HOW_NODE,
                                       [ML_FORWARD_MATCH_LIKELY] = ML_HOW_LIKELY,
                                       [ML_FORWARD_MATCH_BETWEEN] = ML_HOW_NEAR};
    name_line(causes, cause, forward.stack, hows[forward.way]);
    if (cause->how == ML_HOW_NEAR) {
        uint32_t last = ml_stack_facts_line(&causes->facts, forward.until).frame;
        bool same = ml_frame_same_function(causes->recording, cause->frame, last);
        cause->until = same ? last : cause->frame;
    }
}

static void
find_line(const ml_causes *causes, size_t device, size_t index, const ml_event *event,
          ml_cause *cause)
{
    const ml_stack_fact *own = &causes->facts.of[event->stack];
    bool frames = own->inner.place < ML_PLACE_NATIVE;
    ml_forward_match forward = {0};
    if (ml_causes_is_backward(causes, device, index) &&
        (own->inner.place != ML_PLACE_USER || own->module == 0)) {
        forward = ml_forward_index_find(&causes->forwards, device, index);
    }
    if (frames) {
        name_line(causes, cause, event->stack, ML_HOW_FRAMES);
        name_module(causes, cause, event->stack);
        if (forward.stack != 0 && own->module == 0) {
            /* A custom function's backward runs outside the module of its forward. */
            name_module(causes, cause, forward.stack);
        }
        /* Only a package's frames: the user's line is that of the forward. */
        ml_standing line = ml_stack_facts_line(&causes->facts, event->stack);
        if (line.place != ML_PLACE_USER && forward.stack != 0) {
            name_forward(causes, cause, forward);
        }
    }
    else if (forward.stack != 0) {
        name_forward(causes, cause, forward);
        name_module(causes, cause, forward.stack);
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
    ml_event told = ml_events_at(&causes->recording->devices[device].events, index);
    const ml_event *event = &told;
    const ml_stack_fact *own = &causes->facts.of[event->stack];
    ml_cause cause = {.phase = causes->devices[device].phases[index],
                      .step = causes->devices[device].steps[index],
                      .recomputed = ml_causes_is_backward(causes, device, index) &&
                                    own->scope == ML_SCOPE_MODULE,
                      .seed = own->seed,
                      .communication = own->communication,
                      .no_module = ML_NO_MODULE_STACK};
    find_line(causes, device, index, event, &cause);
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

uint32_t
ml_causes_step(const ml_causes *causes, size_t device, size_t index)
{
    return causes->devices[device].steps[index];
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

const ml_stack_signs *
ml_causes_signs(const ml_causes *causes)
{
    return &causes->signs;
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

_Static_assert(ML_IS_NUMBERED(ML_PHASES, ML_PHASE_COUNT),
               "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_HOWS, ML_HOW_COUNT), "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_NO_LINES, ML_NO_LINE_COUNT),
               "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_NO_MODULES, ML_NO_MODULE_COUNT),
               "a number is missing or twice");

const char *
ml_phase_text(unsigned phase)
{
    static const char *const texts[] = {
#define XX(name, number, text) [number] = text,
        ML_PHASES(XX)
#undef XX
    };
    return text_of(texts, ML_PHASE_COUNT, phase, ML_PHASE_UNKNOWN);
}

const char *
ml_how_text(unsigned how)
{
    static const char *const texts[] = {
#define XX(name, number, text) [number] = text,
        ML_HOWS(XX)
#undef XX
    };
    return text_of(texts, ML_HOW_COUNT, how, ML_HOW_NONE);
}

const char *
ml_no_line_text(unsigned no_line)
{
    static const char *const texts[] = {
#define XX(name, number, text) [number] = text,
        ML_NO_LINES(XX)
#undef XX
    };
    return text_of(texts, ML_NO_LINE_COUNT, no_line, ML_NO_LINE_NONE);
}

const char *
ml_no_module_text(unsigned no_module)
{
    static const char *const texts[] = {
#define XX(name, number, text) [number] = text,
        ML_NO_MODULES(XX)
#undef XX
    };
    return text_of(texts, ML_NO_MODULE_COUNT, no_module, ML_NO_MODULE_NONE);
}
