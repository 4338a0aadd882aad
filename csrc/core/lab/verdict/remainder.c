/* The remainder of a run that ran out of memory.  See remainder.h. */
#include "lab/verdict/remainder.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/oom.h"
#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Odd numbers from here on divide few sizes by chance. */
#define LARGE_ODD 32

/* ---- The recorded ones ---- */

static bool
does_scale(const ml_remainder_builder *b, size_t i, const uint64_t *weights,
           size_t count)
{
    const ml_advice_case *it = b->it;
    const ml_explained *of = ml_explained_of(it, i);
    const ml_demand *demand = &it->workload->demands[i];
    if (ml_remainder_is_kept(of->verdict.category) ||
        of->verdict.category == ML_CATEGORY_GRADIENT ||
        of->cause.phase == ML_PHASE_OPTIMIZER || demand->born == ML_NO_EVENT ||
        ml_demand_is_workspace_of_product(it, i) ||
        bsearch(&demand->bytes, weights, count, sizeof(uint64_t), ml_compare_u64) !=
            NULL) {
        return false;
    }
    if (it->stages[demand->born] != ML_STAGE_LOADING) {
        return true;
    }
    /* A batch divides what it makes; by chance a number with a large odd part divides
     * little else. */
    uint64_t odd = b->batch;
    while (odd != 0 && odd % 2 == 0) {
        odd /= 2;
    }
    if (b->batch != 0 && demand->bytes % b->batch != 0) {
        return false;
    }
    bool certain = odd >= LARGE_ODD && of->verdict.category == ML_CATEGORY_INPUT;
    return certain || !b->much;
}

static int
take_sizes(ml_remainder_builder *b, uint64_t **weights, size_t *count)
{
    const ml_advice_case *it = b->it;
    *count = 0;
    *weights = ml_alloc_zeroed(2 * it->workload->count + 1, sizeof(uint64_t));
    for (size_t i = 0; *weights != NULL && i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->verdict.category == ML_CATEGORY_PARAMETER) {
            uint64_t bytes = it->workload->demands[i].bytes;
            (*weights)[(*count)++] = bytes;
            (*weights)[(*count)++] = bytes / 2;
        }
    }
    if (*weights == NULL) {
        return ML_ENOMEM;
    }
    qsort(*weights, *count, sizeof(uint64_t), ml_compare_u64);
    return 0;
}

static enum ml_remainder_kind
kind_of(const ml_remainder_builder *b, size_t i)
{
    const ml_demand *demand = &b->it->workload->demands[i];
    unsigned category = ml_explained_of(b->it, i)->verdict.category;
    if (category == ML_CATEGORY_GRADIENT) {
        return ML_REST_GRADIENT;
    }
    if (ml_remainder_is_workspace(b, i)) {
        return ML_REST_KEPT;
    }
    bool pass = demand->born != ML_NO_EVENT && demand->born >= b->pass &&
                b->it->stages[demand->born] != ML_STAGE_LOADING &&
                !ml_remainder_is_kept(category);
    return pass ? ML_REST_PASS : ML_REST_KEPT;
}

static int
classify(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    ml_workload *workload = out->workload;
    uint64_t *weights;
    size_t count;
    int error = take_sizes(b, &weights, &count);
    for (size_t i = 0; error == 0 && i < workload->count; i++) {
        ml_demand *demand = &workload->demands[i];
        bool before = demand->born == ML_NO_EVENT;
        if (!before && demand->born > out->failed) {
            demand->bytes = 0;
        }
        if (demand->freed != ML_NO_EVENT && demand->freed > out->failed) {
            demand->freed = ML_NO_EVENT;
        }
        if (demand->completed != ML_NO_EVENT && demand->completed > out->failed) {
            demand->completed = demand->freed;
        }
        out->items[i].scales =
            !ml_remainder_is_workspace(b, i) && does_scale(b, i, weights, count);
        out->items[i].kind = (uint8_t)kind_of(b, i);
        out->items[i].category = ml_explained_of(b->it, i)->verdict.category;
        out->items[i].of_step =
            out->items[i].category == ML_CATEGORY_TEMPORARY &&
            ml_explained_of(b->it, i)->cause.phase == ML_PHASE_OPTIMIZER;
        out->items[i].like = (uint32_t)i;
        if (ml_explained_of(b->it, i)->verdict.category == ML_CATEGORY_PARAMETER &&
            ml_remainder_is_live(out, i)) {
            out->parameters += demand->bytes;
        }
    }
    ml_free(weights);
    return error;
}

/* A copy of the workload without the failed requests. */
static int
take_workload(ml_remainder *out, const ml_advice_case *it)
{
    int error = ml_workload_copy(it->workload, &out->workload);
    if (error < 0) {
        return error;
    }
    ml_workload *workload = out->workload;
    out->capacity = workload->count;
    out->recorded = workload->count;
    out->items = ml_alloc_zeroed(workload->count + 1, sizeof(*out->items));
    out->marks = ml_alloc_zeroed(workload->mark_count + 1, sizeof(*out->marks));
    if (out->items == NULL || out->marks == NULL) {
        return ML_ENOMEM;
    }
    size_t kept = 0;
    for (size_t i = 0; i < workload->mark_count; i++) {
        const ml_mark *mark = &workload->marks[i];
        if (mark->kind != ML_MARK_OOM && mark->event < out->failed) {
            out->marks[kept++] = *mark;
        }
    }
    workload->marks = out->marks;
    workload->mark_count = kept;
    return 0;
}

/* ---- Passes ---- */

/* The start of the forward whose forward or backward pass ends at UNTIL. */
static size_t
pass_before(const ml_advice_case *it, size_t until)
{
    size_t i = until;
    while (i > 0 && it->stages[i - 1] != ML_STAGE_FORWARD &&
           !ml_stage_is_evaluation(it->stages[i - 1])) {
        i--;
    }
    while (i > 0 && it->stages[i - 1] != ML_STAGE_BACKWARD &&
           it->stages[i - 1] != ML_STAGE_OPTIMIZER &&
           it->stages[i - 1] != ML_STAGE_LOADING) {
        i--;
    }
    return i;
}

static bool
has_stage(const ml_advice_case *it, size_t from, size_t until, unsigned stage)
{
    for (size_t i = from; i < until; i++) {
        if (it->stages[i] == stage &&
            ml_events_action(&it->trace->events, i) == ML_ACTION_ALLOC) {
            return true;
        }
    }
    return false;
}

/* ---- What was noted of the loop ---- */

static bool
is_zero_grad(const ml_recording *recording, const ml_note *note)
{
    static const char begin[] = "Optimizer.zero_grad#";
    ml_string name = recording->strings[note->name];
    return note->kind == ML_NOTE_REGION_BEGIN && name.length >= sizeof(begin) - 1 &&
           memcmp(name.bytes, begin, sizeof(begin) - 1) == 0;
}

static size_t
first_forward(const ml_remainder_builder *b, size_t event)
{
    while (event < b->out->failed && b->it->stages[event] != ML_STAGE_FORWARD) {
        event++;
    }
    return event;
}

/* In a backward pass it is seen whether gradients went before the forward or behind it. */
static void
read_loop(ml_remainder_builder *b)
{
    const ml_recording *recording = b->it->recording;
    const ml_events *events = &b->it->trace->events;
    size_t forward = first_forward(b, b->pass);
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_LOOP) {
            b->gradients_live = (uint8_t)note->values[0];
            b->loss_inside = note->values[1] == ML_LOOP_YES_AND_LOSS;
            b->output_lives = b->loss_inside ? ML_LOOP_YES : (uint8_t)note->values[1];
            b->outputs_living = note->values[2];
            b->loss = (uint8_t)note->values[3];
            b->result_passes =
                b->loss == ML_LOSS_CLASSES_ALONE || b->loss == ML_LOSS_REDUCES_ALONE;
            b->in_float32 = b->loss == ML_LOSS_CLASSES_FLOAT32;
            b->loss = b->loss == ML_LOSS_CLASSES_ALONE || b->in_float32
                          ? ML_LOSS_CLASSES
                      : b->loss == ML_LOSS_REDUCES_ALONE ? ML_LOSS_REDUCES
                                                         : b->loss;
        }
        else if (note->kind == ML_NOTE_BATCH) {
            b->batch = note->values[0];
        }
        else if (note->kind == ML_NOTE_HEAD) {
            b->head_takes = note->values[0];
            b->head_makes = note->values[1];
            b->head_bytes = note->values[2];
            b->head_shared = note->values[3] == ML_LOOP_YES;
        }
    }
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (is_zero_grad(recording, note) && b->gradients_live == ML_LOOP_NO &&
            note->time > ml_events_time(events, forward) &&
            note->time < ml_events_time(events, b->out->failed)) {
            b->gradients_live = ML_LOOP_YES;
        }
    }
}

/* ---- The whole ---- */

/* Bytes of gradients that live as the forward begins of the pass from event PASS. */
static uint64_t
gradients_at(const ml_remainder_builder *b, size_t pass)
{
    uint64_t bytes = 0;
    size_t event = first_forward(b, pass);
    for (size_t i = 0; i < b->out->recorded; i++) {
        if (ml_explained_of(b->it, i)->verdict.category == ML_CATEGORY_GRADIENT &&
            ml_demand_lives_at(b->it, i, event)) {
            bytes += b->it->workload->demands[i].block_bytes;
        }
    }
    return bytes;
}

static int
first_pass(ml_remainder_builder *b)
{
    ml_cause cause = ml_causes_of(b->it->causes, b->it->device, b->out->failed);
    if (cause.recomputed) {
        b->out->untold |= 1u << ML_UNTOLD_CHECKPOINT;
        return 0;
    }
    int error = 0;
    if (b->stage != ML_STAGE_BACKWARD && b->stage != ML_STAGE_OPTIMIZER) {
        error = ml_remainder_finish_forward(b);
    }
    if (error < 0 || ml_stage_is_evaluation(b->stage)) {
        return error;
    }
    if (b->stage != ML_STAGE_OPTIMIZER) {
        error = ml_remainder_make_anew(b);
        error = error == 0 ? ml_remainder_backward(b) : error;
    }
    size_t until = b->now;
    if (error == 0) {
        error = ml_remainder_optimize(b);
    }
    return error == 0 ? ml_remainder_repeat(b, until) : error;
}

/* Whether demand I has the size of a parameter. */
static bool
is_of_parameter(const ml_remainder_builder *b, size_t i)
{
    const ml_remainder *out = b->out;
    uint64_t bytes = out->workload->demands[i].bytes;
    for (size_t k = 0; k < out->recorded; k++) {
        if (ml_explained_of(b->it, k)->verdict.category == ML_CATEGORY_PARAMETER &&
            out->workload->demands[k].bytes == bytes) {
            return true;
        }
    }
    return false;
}

/* Why the rest of the run cannot be told. */
static unsigned
find_untold(const ml_remainder_builder *b)
{
    unsigned untold = 0;
    if (b->out->parameters == 0) {
        untold |= 1u << ML_UNTOLD_OWNERS;
    }
    if (b->stage == ML_STAGE_LOADING) {
        untold |= 1u << ML_UNTOLD_LOADING;
    }
    if (b->stage == ML_STAGE_GENERATION) {
        untold |= 1u << ML_UNTOLD_GENERATION;
    }
    if (b->stage == ML_STAGE_OTHER) {
        untold |= 1u << ML_UNTOLD_STAGE;
    }
    return untold;
}

/* The request that failed succeeds. */
static int
add_failed_request(ml_remainder_builder *b)
{
    const ml_advice_case *it = b->it;
    ml_remainder *out = b->out;
    size_t unseen = out->workload->count;
    int error = ml_remainder_add(b, ml_events_size(&it->trace->events, out->failed), 0,
                                 true, ML_REST_PASS, NULL);
    if (error == 0) {
        out->workload->demands[unseen].stack =
            ml_events_stack(&it->trace->events, out->failed);
    }
    if (b->stage == ML_STAGE_OPTIMIZER || b->stage == ML_STAGE_LOADING) {
        out->items[unseen].kind = ML_REST_KEPT;
        out->items[unseen].scales = false;
    }
    else if (b->stage == ML_STAGE_BACKWARD && is_of_parameter(b, unseen)) {
        out->items[unseen].kind = ML_REST_GRADIENT;
        out->items[unseen].scales = false;
    }
    b->now++;
    return error;
}

static int
continue_run(ml_remainder_builder *b)
{
    const ml_advice_case *it = b->it;
    ml_remainder *out = b->out;
    out->untold |= find_untold(b);
    bool passed = has_stage(it, 0, b->pass, ML_STAGE_BACKWARD);
    out->trains = passed || !ml_stage_is_evaluation(b->stage);
    int error = add_failed_request(b);
    if (error < 0 || out->untold != 0) {
        return error;
    }
    if (!passed || b->stage == ML_STAGE_OPTIMIZER) {
        return first_pass(b);
    }
    if (ml_stage_is_evaluation(b->stage)) {
        return ml_remainder_finish_forward(b);
    }
    bool optimized = has_stage(it, 0, b->pass, ML_STAGE_OPTIMIZER);
    size_t previous = pass_before(it, b->pass);
    bool gather = gradients_at(b, previous) > gradients_at(b, b->pass);
    error = ml_remainder_resume(b, previous);
    if (error < 0 || (optimized && !gather) || out->untold != 0) {
        return error;
    }
    /* Where steps have several passes, gradients live while the later ones run. */
    size_t until = b->now;
    error = optimized ? ml_remainder_gather(b) : ml_remainder_optimize(b);
    return error == 0 ? ml_remainder_repeat(b, until) : error;
}

/* Extends the trace to the length of all demands, for the trial. */
static int
lengthen(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    ml_workload *workload = out->workload;
    size_t end = b->it->trace->event_count;
    for (size_t i = 0; i < workload->count; i++) {
        const ml_demand *demand = &workload->demands[i];
        end =
            demand->born != ML_NO_EVENT && demand->born >= end ? demand->born + 1 : end;
        end = demand->freed != ML_NO_EVENT && demand->freed >= end ? demand->freed + 1
                                                                   : end;
    }
    out->of_event = ml_alloc_zeroed(end + 1, sizeof(uint32_t));
    if (out->of_event == NULL) {
        return ML_ENOMEM;
    }
    size_t kept = out->failed < b->it->trace->event_count ? out->failed
                                                          : b->it->trace->event_count;
    memcpy(out->of_event, workload->of_event, kept * sizeof(uint32_t));
    workload->of_event = out->of_event;
    out->trace = (ml_device_trace){.event_count = end};
    workload->trace = &out->trace;
    return 0;
}

int
ml_remainder_init(ml_remainder *remainder, const ml_advice_case *it,
                  enum ml_assumed assumed)
{
    int64_t last = ml_oom_last(it->recording, it->device);
    *remainder = (ml_remainder){.failed = last < 0 ? ML_NO_EVENT : (size_t)last};
    ml_remainder_builder b = {.it = it,
                              .out = remainder,
                              .much = assumed != ML_ASSUMED_SMALL,
                              .late = assumed == ML_ASSUMED_LATE};
    if (last >= 0) {
        b.stage = it->stages[last];
        b.pass = pass_before(it, (size_t)last);
        b.now = (size_t)last;
        read_loop(&b);
    }
    int error = take_workload(remainder, it);
    if (error == 0) {
        error = classify(&b);
    }
    if (error == 0 && last >= 0) {
        error = continue_run(&b);
    }
    if (error == 0) {
        error = lengthen(&b);
    }
    if (error < 0) {
        ml_remainder_fini(remainder);
    }
    return error;
}

void
ml_remainder_fini(ml_remainder *remainder)
{
    ml_workload_free(remainder->workload);
    ml_free(remainder->items);
    ml_free(remainder->of_event);
    ml_free(remainder->marks);
    *remainder = (ml_remainder){0};
}

static uint64_t
part_of(uint64_t bytes, uint32_t parts, uint32_t whole)
{
    uint64_t part = bytes / whole * parts + (bytes % whole * parts + whole - 1) / whole;
    return bytes != 0 && part == 0 ? 1 : part;
}

int
ml_remainder_try(const ml_remainder *remainder, const ml_trial_options *options,
                 uint32_t parts, uint32_t whole, ml_trial_result *out)
{
    ml_workload *copy;
    int error = ml_workload_copy(remainder->workload, &copy);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; i < copy->count; i++) {
        if (remainder->items[i].scales) {
            copy->demands[i].bytes = part_of(copy->demands[i].bytes, parts, whole);
        }
    }
    error = ml_trial_run(copy, options, out);
    ml_workload_free(copy);
    return error;
}

const char *
ml_untold_text(unsigned untold)
{
    static const char *const texts[] = {ML_UNTOLD(ML_LISTED_TEXT)};
    return untold < ML_UNTOLD_COUNT ? texts[untold] : "";
}
