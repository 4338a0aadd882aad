/* Finds the stage of a training run at each event.  See stages.h. */
#include "analysis/answers/stages.h"

#include <string.h>

#include "base/base.h"

#define THREADS (UINT16_MAX + 1)
/* Modules may make this few blocks before the first node: a shorter run is
 * inconclusive. */
#define RUN_EVENTS 4

/* Consecutive events of one thread in modules' calls. */
typedef struct run {
    size_t first; /* event; links lead to the others of the run */
    size_t last;
    uint64_t sequence; /* autograd's number at the first */
    size_t count;
    bool advanced; /* a node was made */
} run;

typedef struct finder {
    const ml_analysis *analysis;
    uint8_t *stages; /* the answer */
    uint32_t *links; /* owned; of an event, the next of its run; 0: the last */
    run *threads;    /* owned; the open run of each, by autograd's number */
    bool *generates; /* owned; by stack id: a frame named generate is in it */
} finder;

static int
find_generation(finder *f)
{
    const ml_recording *recording = f->analysis->recording;
    f->generates = ml_alloc_zeroed(recording->stack_count + 1, 1);
    if (f->generates == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        ml_string name = recording->strings[recording->frames[stack->frame].name];
        f->generates[i] = f->generates[stack->parent] ||
                          (name.length == 8 && memcmp(name.bytes, "generate", 8) == 0);
    }
    return 0;
}

static void
close_run(finder *f, run *open)
{
    if (open->count >= RUN_EVENTS && !open->advanced) {
        const ml_events *events = &f->analysis->trace->events;
        for (size_t i = open->first;; i = f->links[i]) {
            f->stages[i] = f->generates[ml_events_stack(events, i)]
                               ? ML_STAGE_GENERATION
                               : ML_STAGE_EVALUATION;
            if (i == open->last) {
                break;
            }
        }
    }
    open->count = 0;
}

static void
extend_run(finder *f, run *open, size_t event, const ml_event *at)
{
    if (open->count++ == 0) {
        open->first = event;
        open->sequence = at->sequence;
        open->advanced = false;
    }
    else {
        f->links[open->last] = (uint32_t)event;
    }
    open->last = event;
    open->advanced |= at->sequence != open->sequence;
}

static void
follow(finder *f)
{
    static const uint8_t of_phase[] = {
        [ML_PHASE_FORWARD] = ML_STAGE_FORWARD,
        [ML_PHASE_BACKWARD] = ML_STAGE_BACKWARD,
        [ML_PHASE_OPTIMIZER] = ML_STAGE_OPTIMIZER,
        [ML_PHASE_OTHER] = ML_STAGE_OTHER,
        [ML_PHASE_BEFORE_RECORDING] = ML_STAGE_OTHER,
        [ML_PHASE_UNKNOWN] = ML_STAGE_OTHER,
    };
    const ml_analysis *analysis = f->analysis;
    const uint8_t *marks = ml_causes_marks(analysis->causes, analysis->device);
    bool begun = analysis->trace->overwritten_events != 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &analysis->trace->events,
                         ML_EVENT_BIT(sequence) | ML_EVENT_BIT(autograd_thread));
    for (size_t i = 0; i < analysis->trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        uint8_t stage = of_phase[marks[i] & ML_MARK_PHASE];
        begun |= stage != ML_STAGE_OTHER;
        f->stages[i] = begun ? stage : ML_STAGE_LOADING;
        if (event->autograd_thread == 0 || (marks[i] & ML_MARK_BACKWARD) != 0) {
            continue;
        }
        run *open = &f->threads[event->autograd_thread];
        if (stage == ML_STAGE_FORWARD) {
            extend_run(f, open, i, event);
        }
        /* A free between modules does not end a call. */
        else if ((marks[i] & ML_MARK_ALLOC) != 0) {
            close_run(f, open);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        close_run(f, &f->threads[i]);
    }
}

int
ml_stages_new(const ml_analysis *analysis, uint8_t **out)
{
    size_t count = analysis->trace->event_count;
    finder f = {.analysis = analysis,
                .stages = ml_alloc_zeroed(count + 1, 1),
                .links = ml_alloc_zeroed(count + 1, sizeof(*f.links)),
                .threads = ml_alloc_zeroed(THREADS, sizeof(*f.threads))};
    int error =
        f.stages == NULL || f.links == NULL || f.threads == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        error = find_generation(&f);
    }
    if (error == 0) {
        follow(&f);
        *out = f.stages;
    }
    else {
        ml_free(f.stages);
    }
    ml_free(f.links);
    ml_free(f.threads);
    ml_free(f.generates);
    return error;
}

const char *
ml_stage_text(unsigned stage)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_STAGES(XX)
#undef XX
    };
    return texts[stage < ML_STAGE_COUNT ? stage : (unsigned)ML_STAGE_OTHER];
}
