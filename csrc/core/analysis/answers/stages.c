/* Finds the stage of a training run at each event.  See stages.h. */
#include "analysis/answers/stages.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define THREADS (UINT16_MAX + 1)
/* Modules may make this few blocks before the first node: a shorter run is
 * inconclusive. */
#define RUN_EVENTS 4

/* A checkpoint without the call of a module. */
#define IN_CHECKPOINT UINT32_MAX

/* An event of a run that may be no training. */
typedef struct link {
    uint32_t event;
    uint32_t next; /* of its run, or of the unused ones; 0: the last */
} link;

/* Consecutive events of one thread in modules' calls, from one function. */
typedef struct run {
    uint32_t first; /* link, to the others of the run; 0: there is none */
    uint32_t last;
    uint32_t caller;     /* stack id, of the call of the outermost module */
    uint32_t checkpoint; /* stack id, of the module that a checkpoint calls; 0: none */
    uint64_t sequence;   /* autograd's number at the last */
    size_t count;
    bool fails; /* a request; until the next, segments and blocks are only given back */
    size_t telling; /* of COUNT: before that */
    bool advanced;  /* a node was made that trains: no link is kept */
} run;

typedef struct stages_work {
    const ml_analysis *analysis;
    uint8_t *stages; /* the answer */
    link *links;     /* owned; [0] is none */
    size_t link_count;
    size_t link_capacity;
    uint32_t unused; /* link */
    run *threads;    /* owned; the open run of each, by autograd's number */
    bool *generates; /* owned; by stack id: a frame named generate is in it */
    uint32_t
        *callers; /* owned; by stack id: that of the call of the outermost module */
    /* Owned; by stack id: that of the module that a checkpoint calls; IN_CHECKPOINT: none yet. */
    uint32_t *checkpoints;
    uint64_t *casts; /* owned; bytes of the parameters in 16 bits, sorted */
    size_t cast_count;
} stages_work;

static uint32_t
checkpoint_of(const stages_work *f, uint32_t stack)
{
    const ml_recording *recording = f->analysis->recording;
    const ml_stack *of = &recording->stacks[stack];
    uint32_t around = f->checkpoints[of->parent];
    if (around != 0) {
        return around == IN_CHECKPOINT && of->module != 0 ? stack : around;
    }
    uint32_t file = recording->frames[of->frame].filename;
    return ml_string_holds(recording->strings[file], "torch/utils/checkpoint.py")
               ? IN_CHECKPOINT
               : 0;
}

/* Of each stack what a frame above it says. */
static int
read_stacks(stages_work *f)
{
    const ml_recording *recording = f->analysis->recording;
    f->generates = ml_alloc_zeroed(recording->stack_count + 1, 1);
    f->callers = ml_alloc_zeroed(recording->stack_count + 1, sizeof(*f->callers));
    f->checkpoints =
        ml_alloc_zeroed(recording->stack_count + 1, sizeof(*f->checkpoints));
    if (f->generates == NULL || f->callers == NULL || f->checkpoints == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        ml_string name = ml_frame_name(recording, stack->frame);
        f->generates[i] = f->generates[stack->parent] ||
                          (name.length == 8 && memcmp(name.bytes, "generate", 8) == 0);
        bool inside = stack->module != 0 || f->callers[stack->parent] != stack->parent;
        f->callers[i] = inside ? f->callers[stack->parent] : (uint32_t)i;
        f->checkpoints[i] = checkpoint_of(f, (uint32_t)i);
    }
    return 0;
}

static int
find_casts(stages_work *f)
{
    int error =
        ml_lifetimes_parameters(&f->analysis->lifetimes, &f->casts, &f->cast_count);
    for (size_t i = 0; error == 0 && i < f->cast_count; i++) {
        f->casts[i] /= 2;
    }
    return error;
}

/* The nodes that EVENT, of an allocation, shows where there are no gradients: autocast casts
 * a parameter as the next forward may need it, and a checkpoint makes one that holds its
 * inputs. */
static uint64_t
nodes_without_gradients(const stages_work *f, const run *open, const ml_event *event)
{
    uint32_t checkpoint = f->checkpoints[event->stack];
    bool enters = checkpoint != 0 && checkpoint != open->checkpoint;
    bool casts = bsearch(&event->size, f->casts, f->cast_count, sizeof(uint64_t),
                         ml_compare_u64) != NULL;
    return (uint64_t)enters + casts;
}

/* Whether one function calls at the stacks A and B. */
static bool
is_same_caller(const ml_recording *recording, uint32_t a, uint32_t b)
{
    const ml_frame *x = &recording->frames[recording->stacks[a].frame];
    const ml_frame *y = &recording->frames[recording->stacks[b].frame];
    return a == b || (recording->stacks[a].parent == recording->stacks[b].parent &&
                      x->name == y->name && x->filename == y->filename);
}

static void
drop_links(stages_work *f, run *open)
{
    if (open->first != 0) {
        f->links[open->last].next = f->unused;
        f->unused = open->first;
        open->first = 0;
    }
}

/* 0 or ML_ENOMEM. */
static int
add_link(stages_work *f, run *open, size_t event)
{
    uint32_t added = f->unused;
    if (added == 0) {
        size_t count = f->link_count == 0 ? 1 : f->link_count;
        if (ml_grow((void **)&f->links, &f->link_capacity, count + 1, sizeof(link)) <
            0) {
            return ML_ENOMEM;
        }
        added = (uint32_t)count;
        f->link_count = count + 1;
    }
    else {
        f->unused = f->links[added].next;
    }
    f->links[added] = (link){.event = (uint32_t)event};
    *(open->first == 0 ? &open->first : &f->links[open->last].next) = added;
    open->last = added;
    return 0;
}

static void
close_run(stages_work *f, run *open)
{
    if (open->telling >= RUN_EVENTS && !open->advanced) {
        const ml_events *events = &f->analysis->trace->events;
        for (uint32_t i = open->first; i != 0; i = f->links[i].next) {
            size_t event = f->links[i].event;
            f->stages[event] = f->generates[ml_events_stack(events, event)]
                                   ? ML_STAGE_GENERATION
                                   : ML_STAGE_EVALUATION;
        }
    }
    drop_links(f, open);
    open->count = open->telling = 0;
}

/* 0 or ML_ENOMEM. */
static int
extend_run(stages_work *f, run *open, size_t event, const ml_event *at)
{
    if (open->count++ == 0) {
        open->sequence = at->sequence;
        open->checkpoint = 0;
        open->advanced = open->fails = false;
    }
    open->fails = at->action != ML_ACTION_ALLOC &&
                  (open->fails || at->action == ML_ACTION_SEGMENT_FREE ||
                   at->action == ML_ACTION_OOM);
    open->telling += !open->fails;
    /* A segment comes before its first block, a request that fails after its node. */
    if (at->action == ML_ACTION_ALLOC || at->action == ML_ACTION_OOM) {
        uint64_t made = at->sequence - open->sequence;
        open->advanced |= made != 0 && made != nodes_without_gradients(f, open, at);
        open->sequence = at->sequence;
        open->checkpoint = f->checkpoints[at->stack];
    }
    if (open->advanced) {
        drop_links(f, open);
        return 0;
    }
    return add_link(f, open, event);
}

static int
find_stages(stages_work *f)
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
                         ML_EVENT_BIT(sequence) | ML_EVENT_BIT(autograd_thread) |
                             ML_EVENT_BIT(action) | ML_EVENT_BIT(size) |
                             ML_EVENT_BIT(stack));
    int error = 0;
    for (size_t i = 0; error == 0 && i < analysis->trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        uint8_t stage = of_phase[marks[i] & ML_MARK_PHASE];
        begun |= stage != ML_STAGE_OTHER;
        f->stages[i] = begun ? stage : ML_STAGE_LOADING;
        if (event->autograd_thread == 0 || (marks[i] & ML_MARK_BACKWARD) != 0) {
            continue;
        }
        run *open = &f->threads[event->autograd_thread];
        if (stage == ML_STAGE_FORWARD) {
            uint32_t caller = f->callers[event->stack];
            bool allocates = (marks[i] & ML_MARK_ALLOC) != 0;
            if (allocates && open->count != 0 &&
                !is_same_caller(analysis->recording, caller, open->caller)) {
                close_run(f, open);
            }
            open->caller = allocates ? caller : open->caller;
            error = extend_run(f, open, i, event);
        }
        /* A free between modules does not end a call. */
        else if ((marks[i] & ML_MARK_ALLOC) != 0) {
            close_run(f, open);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        close_run(f, &f->threads[i]);
    }
    return error;
}

int
ml_stages_new(const ml_analysis *analysis, uint8_t **out)
{
    size_t count = analysis->trace->event_count;
    stages_work f = {.analysis = analysis,
                     .stages = ml_alloc_zeroed(count + 1, 1),
                     .threads = ml_alloc_zeroed(THREADS, sizeof(*f.threads))};
    int error = f.stages == NULL || f.threads == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        error = read_stacks(&f);
    }
    if (error == 0) {
        error = find_casts(&f);
    }
    if (error == 0) {
        error = find_stages(&f);
    }
    if (error == 0) {
        *out = f.stages;
    }
    else {
        ml_free(f.stages);
    }
    ml_free(f.links);
    ml_free(f.threads);
    ml_free(f.generates);
    ml_free(f.callers);
    ml_free(f.checkpoints);
    ml_free(f.casts);
    return error;
}

const char *
ml_stage_text(unsigned stage)
{
    static const char *const texts[] = {ML_STAGES(ML_LISTED_TEXT)};
    return texts[stage < ML_STAGE_COUNT ? stage : (unsigned)ML_STAGE_OTHER];
}
