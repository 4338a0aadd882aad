/* Finds the cause of each allocation.  See cause.h. */
#include "analysis/attribution/cause.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/forward_match.h"
#include "base/base.h"

/* Steps are looked up from the last such event on, as most have none nearby. */
#define STRIDE 1024

/* From an event on. */
typedef struct step_begin {
    size_t event;
    uint32_t step;
} step_begin;

typedef struct timeline {
    uint8_t *marks;    /* owned; of each event */
    bool *allocates;   /* owned; by thread: outside backward passes */
    step_begin *steps; /* owned; by event, of which the first is 0 */
    size_t step_count;
    size_t step_capacity;
    uint32_t *begun; /* owned; the steps begun before every STRIDE-th event */
} timeline;

_Static_assert(ML_PHASE_COUNT <= ML_MARK_PHASE + 1, "a phase has no mark");

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
    return (causes->devices[device].marks[index] & ML_MARK_BACKWARD) != 0;
}

const uint8_t *
ml_causes_marks(const ml_causes *causes, size_t device)
{
    return causes->devices[device].marks;
}

/* ---- Steps ---- */

static int
begin_step(timeline *line, size_t event, uint32_t step)
{
    if (line->step_count != 0 && line->steps[line->step_count - 1].step == step) {
        return 0;
    }
    void *steps = line->steps;
    int error =
        ml_grow(&steps, &line->step_capacity, line->step_count + 1, sizeof(step_begin));
    if (error == 0) {
        line->steps = steps;
        line->steps[line->step_count++] = (step_begin){event, step};
    }
    return error;
}

static int
number_steps(timeline *line, size_t events)
{
    size_t step = 0;
    line->begun = ml_alloc((events / STRIDE + 2) * sizeof(uint32_t));
    for (size_t i = 0; line->begun != NULL && i < events / STRIDE + 2; i++) {
        while (step < line->step_count && line->steps[step].event < i * STRIDE) {
            step++;
        }
        line->begun[i] = (uint32_t)step;
    }
    return line->begun != NULL ? 0 : ML_ENOMEM;
}

/* The first mark of the end of a step from note FIRST on; note_count: none. */
static size_t
next_mark(const ml_recording *recording, size_t first)
{
    while (first < recording->note_count &&
           recording->notes[first].kind != ML_NOTE_STEP) {
        first++;
    }
    return first;
}

/* By the marks that were set when steps ended; none without marks. */
static int
steps_by_notes(const ml_recording *recording, const ml_device_trace *trace,
               timeline *line)
{
    const ml_note *notes = recording->notes;
    size_t mark = next_mark(recording, 0);
    if (mark == recording->note_count) {
        return 0;
    }
    int error = begin_step(line, 0, (uint32_t)notes[mark].values[0]);
    size_t count = trace->event_count;
    size_t i = 0;
    while (error == 0 && mark < recording->note_count) {
        i = ml_events_reach(&trace->events, count, i, notes[mark].time);
        if (i == count) {
            break;
        }
        error = begin_step(line, i, (uint32_t)notes[mark].values[0] + 1);
        mark = next_mark(recording, mark + 1);
    }
    return error;
}

/* ---- Phases ---- */

/* BACKWARD: a pass made EVENT.  ADVANCED: autograd made a node on the thread, which EVENT is
 * the first to tell. */
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
    uint64_t next;  /* 1 + the number of its next node; 0: thread not seen */
    uint32_t stack; /* of its last allocation */
    bool passed;    /* a backward pass ran since that */
    bool forward;   /* that was of a forward pass */
} progress;

/* What the walk over the events of a device knows. */
typedef struct walk {
    ml_causes *causes;  /* borrowed */
    progress *threads;  /* owned; by autograd's number */
    const bool *passes; /* borrowed; of each event by signs; NULL: flags say it */
    uint32_t step;
    bool stepped; /* the last allocation was the optimizer's */
} walk;

/* Between an operation's node and its result may come the segment that it needs, and
 * a free: they do not tell whose the node was.  Behind a backward pass no operation
 * of the forward is under way, and a free tells of nodes that made nothing.
 *
 * A request that fails may be an operation's second: the first told of its node. */
static enum ml_phase
find_phase(walk *w, const ml_event *event, bool backward)
{
    progress *thread = &w->threads[event->autograd_thread];
    bool alloc = event->action == ML_ACTION_ALLOC;
    bool advanced = false;
    if (backward) {
        thread->passed = true;
    }
    else if (event->autograd_thread != 0) {
        advanced = thread->next != 0 && event->sequence + 1 > thread->next;
        if (event->action == ML_ACTION_OOM && !thread->passed) {
            advanced |= thread->forward && thread->stack == event->stack;
        }
        if (alloc || thread->passed || thread->next == 0) {
            thread->next = event->sequence + 1;
        }
        thread->passed = thread->passed && !alloc;
    }
    enum ml_phase phase = phase_of(w->causes, event, backward, advanced);
    if (alloc) {
        thread->stack = event->stack;
        thread->forward = phase == ML_PHASE_FORWARD;
    }
    return phase;
}

/* A step ends where the optimizer has been at work and something else allocates. */
static int
follow_step(walk *w, timeline *line, size_t index, enum ml_phase phase)
{
    bool now = phase == ML_PHASE_OPTIMIZER;
    bool ends = w->stepped && !now;
    w->stepped = now;
    return ends ? begin_step(line, index, ++w->step) : 0;
}

static int
follow_events(walk *w, size_t device)
{
    ml_causes *causes = w->causes;
    const ml_device_trace *trace = &causes->recording->devices[device];
    timeline *line = &causes->devices[device];
    bool marked = line->step_count != 0;
    int error = ml_forward_index_begin(&causes->forwards, device);
    if (error == 0 && !marked) {
        error = begin_step(line, 0, 0);
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_FORWARD_INDEX_MEMBERS);
    for (size_t i = 0; error == 0 && i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        bool flagged = (event->flags & ML_EVENT_BACKWARD) != 0;
        bool backward = w->passes != NULL ? w->passes[i] : flagged;
        bool alloc = event->action == ML_ACTION_ALLOC;
        enum ml_phase phase = find_phase(w, event, backward);
        line->marks[i] = (uint8_t)(phase | (alloc ? ML_MARK_ALLOC : 0) |
                                   (backward ? ML_MARK_BACKWARD : 0));
        causes->passes_known |= flagged;
        if (alloc) {
            line->allocates[event->autograd_thread] |= !backward;
            error = marked ? 0 : follow_step(w, line, i, phase);
        }
        if (error == 0) {
            error = ml_forward_index_add(&causes->forwards, device, i, event);
        }
    }
    return error;
}

static int
make_timeline(ml_causes *causes, size_t device)
{
    const ml_device_trace *trace = &causes->recording->devices[device];
    timeline *line = &causes->devices[device];
    bool *passes = NULL;
    walk w = {.causes = causes,
              .threads = ml_alloc_zeroed((size_t)UINT16_MAX + 1, sizeof(progress))};
    line->marks = ml_alloc_zeroed(trace->event_count + 1, 1);
    line->allocates = ml_alloc_zeroed((size_t)UINT16_MAX + 1, sizeof(bool));
    int error = w.threads == NULL || line->marks == NULL || line->allocates == NULL
                    ? ML_ENOMEM
                    : 0;
    if (error == 0 && causes->signs.of != NULL) {
        passes = ml_alloc_zeroed(trace->event_count + 1, sizeof(bool));
        error = passes == NULL ? ML_ENOMEM : 0;
    }
    if (passes != NULL) {
        ml_stack_signs_find_passes(&causes->signs, trace, passes);
        w.passes = passes;
    }
    if (error == 0) {
        error = steps_by_notes(causes->recording, trace, line);
    }
    if (error == 0) {
        error = follow_events(&w, device);
    }
    if (error == 0) {
        error = number_steps(line, trace->event_count);
    }
    ml_free(passes);
    ml_free(w.threads);
    return error;
}

static int
make_timelines(ml_causes *causes)
{
    const ml_recording *recording = causes->recording;
    causes->devices = ml_alloc_zeroed(recording->device_count + 1, sizeof(timeline));
    int error = causes->devices == NULL ? ML_ENOMEM : 0;
    for (size_t d = 0; error == 0 && d < recording->device_count; d++) {
        error = make_timeline(causes, d);
    }
    ml_forward_index_end(&causes->forwards);
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
    causes->passes_known =
        !recording->foreign || recording->source_known || causes->signs.of != NULL;
    if (error == 0) {
        error = make_timelines(causes);
    }
    if (error < 0) {
        ml_causes_free(causes);
        return error;
    }
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
        ml_free(causes->devices[d].marks);
        ml_free(causes->devices[d].steps);
        ml_free(causes->devices[d].begun);
        ml_free(causes->devices[d].allocates);
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
    const ml_events *events = &causes->recording->devices[device].events;
    ml_event told = {.stack = ml_events_stack(events, index),
                     .sequence = ml_events_sequence(events, index),
                     .autograd_thread = ml_events_autograd_thread(events, index),
                     .flags = ml_events_flags(events, index)};
    const ml_event *event = &told;
    const ml_stack_fact *own = &causes->facts.of[event->stack];
    ml_cause cause = {.phase = (uint8_t)ml_causes_phase(causes, device, index),
                      .step = ml_causes_step(causes, device, index),
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
    const timeline *line = &causes->devices[device];
    const uint32_t *begun = &line->begun[index / STRIDE];
    const step_begin *steps = &line->steps[begun[0]];
    size_t more;
    ML_SEARCH(more, begun[1] - begun[0], steps[more].event <= index);
    /* The first step begins with event 0. */
    return steps[(ptrdiff_t)more - 1].step;
}

enum ml_phase
ml_causes_phase(const ml_causes *causes, size_t device, size_t index)
{
    return (enum ml_phase)(causes->devices[device].marks[index] & ML_MARK_PHASE);
}

bool
ml_causes_allocates(const ml_causes *causes, size_t device, uint16_t thread)
{
    return causes->devices[device].allocates[thread];
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

bool
ml_cause_has_inner(const ml_recording *recording, const ml_cause *cause)
{
    const ml_frame *line = &recording->frames[cause->frame];
    const ml_frame *inner = &recording->frames[cause->model];
    return cause->how != ML_HOW_NONE && cause->model != 0 &&
           (line->filename != inner->filename || line->name != inner->name ||
            line->line != inner->line);
}

const char *
ml_phase_text(unsigned phase)
{
    static const char *const texts[] = {ML_PHASES(ML_NUMBERED_TEXT)};
    return text_of(texts, ML_PHASE_COUNT, phase, ML_PHASE_UNKNOWN);
}

const char *
ml_how_text(unsigned how)
{
    static const char *const texts[] = {ML_HOWS(ML_NUMBERED_TEXT)};
    return text_of(texts, ML_HOW_COUNT, how, ML_HOW_NONE);
}

const char *
ml_no_line_text(unsigned no_line)
{
    static const char *const texts[] = {ML_NO_LINES(ML_NUMBERED_TEXT)};
    return text_of(texts, ML_NO_LINE_COUNT, no_line, ML_NO_LINE_NONE);
}

const char *
ml_no_module_text(unsigned no_module)
{
    static const char *const texts[] = {ML_NO_MODULES(ML_NUMBERED_TEXT)};
    return text_of(texts, ML_NO_MODULE_COUNT, no_module, ML_NO_MODULE_NONE);
}
