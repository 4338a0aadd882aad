/* Finds the category of an allocation.  See category.h. */
#include "analysis/attribution/category.h"

#include "analysis/attribution/estimate.h"
#include "analysis/attribution/failed_pass.h"
#include "analysis/attribution/passes.h"
#include "analysis/attribution/workspace.h"
#include "base/base.h"

struct ml_categories {
    const ml_causes *causes;       /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    const ml_lifetimes *lifetimes; /* borrowed */
    size_t device;
    ml_estimate *estimate;    /* owned; NULL: the recording needs no estimates */
    ml_passes passes;         /* owned */
    bool owners_known;        /* it has tagged parameters */
    ml_failed_passes failed;  /* owned */
    ml_workspaces workspaces; /* owned */
};

int
ml_categories_new(const ml_causes *causes, const ml_recording *recording, size_t device,
                  const ml_lifetimes *lifetimes, ml_categories **out)
{
    ml_categories *c = ml_alloc_zeroed(1, sizeof(*c));
    if (c == NULL) {
        return ML_ENOMEM;
    }
    c->causes = causes;
    c->trace = &recording->devices[device];
    c->lifetimes = lifetimes;
    c->device = device;
    int error = ml_passes_init(&c->passes, causes, recording, device, lifetimes);
    if (error == 0) {
        error = ml_failed_passes_init(&c->failed, causes, recording, device, lifetimes);
    }
    if (error == 0) {
        error =
            ml_workspaces_init(&c->workspaces, causes, recording, device, lifetimes);
    }
    if (error == 0) {
        error = ml_estimate_new(causes, recording, device, lifetimes, &c->workspaces,
                                &c->estimate);
    }
    if (error < 0) {
        ml_categories_free(c);
        return error;
    }
    c->owners_known = c->estimate != NULL;
    for (size_t i = 0; i < c->trace->tag_count; i++) {
        c->owners_known =
            c->owners_known || c->trace->tags[i].category == ML_CATEGORY_PARAMETER;
    }
    *out = c;
    return 0;
}

void
ml_categories_free(ml_categories *categories)
{
    if (categories != NULL) {
        ml_estimate_free(categories->estimate);
        ml_passes_fini(&categories->passes);
        ml_failed_passes_fini(&categories->failed);
        ml_workspaces_fini(&categories->workspaces);
        ml_free(categories);
    }
}

static ml_verdict
exact(enum ml_category category)
{
    return (ml_verdict){(uint8_t)category, ML_WHY_KNOWN, true};
}

static ml_verdict
likely(enum ml_category category)
{
    return (ml_verdict){(uint8_t)category, ML_WHY_KNOWN, false};
}

static ml_verdict
unknown(enum ml_why why)
{
    return (ml_verdict){ML_CATEGORY_UNKNOWN, (uint8_t)why, true};
}

static bool
freed_by_pass(const ml_categories *c, const ml_lifetime *life)
{
    return life->requested != ML_NEVER &&
           ml_causes_is_backward(c->causes, c->device, life->requested - 1);
}

bool
ml_categories_like_workspace(const ml_categories *c, const ml_lifetime *life)
{
    const ml_workspaces *of = &c->workspaces;
    return (ml_workspaces_last(of, life->requested) && ml_workspaces_hold(of, life)) ||
           ml_workspaces_follow_result(of, life);
}

/* Likewise of cuBLAS's handle, from before the first event too. */
static bool
is_like_cublas(const ml_categories *c, const ml_lifetime *life)
{
    return ml_workspace_has_size(ml_lifetimes_requested(c->lifetimes, life)) &&
           ml_workspaces_keep(&c->workspaces, life);
}

/* Whether LIFE, which no pass made, is taken for a workspace whatever else it may be. */
static bool
is_workspace(const ml_categories *c, const ml_lifetime *life)
{
    return is_like_cublas(c, life) &&
           (ml_lifetimes_requested(c->lifetimes, life) == ML_WORKSPACE_ODD ||
            ml_passes_are_outlived(&c->passes, life) ||
            ml_workspaces_in_product(&c->workspaces, life));
}

/* Whether memory ended in the pass that made LIFE, before it was freed. */
static bool
is_of_failed_pass(const ml_categories *c, const ml_lifetime *life)
{
    const ml_failed_pass *failed = ml_failed_passes_during(&c->failed, life);
    return failed != NULL && failed->backward &&
           ml_passes_between(&c->passes, life, failed->events) == 0;
}

static bool
has_size_of_parameter(const ml_categories *c, const ml_lifetime *life)
{
    uint64_t size = ml_events_size(&c->trace->events, life->birth - 1);
    return c->estimate != NULL ? ml_estimate_is_trained(c->estimate, size)
                               : ml_failed_passes_have_parameter(&c->failed, size);
}

/* The pass did not live to free it: all that stays of one is a gradient of a parameter. */
static enum ml_category
judge_unfinished(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    return cause->recomputed                ? ML_CATEGORY_ACTIVATION
           : has_size_of_parameter(c, life) ? ML_CATEGORY_GRADIENT
                                            : ML_CATEGORY_TEMPORARY;
}

static ml_verdict
judge_backward(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause,
               ml_passes_during in)
{
    if (freed_by_pass(c, life) && in.passes == 0) {
        uint32_t stack = ml_events_stack(&c->trace->events, life->requested - 1);
        /* The recomputation frees its own temporaries in module calls. */
        bool kept = cause->recomputed &&
                    ml_causes_facts(c->causes)->of[stack].scope != ML_SCOPE_MODULE;
        return exact(kept ? ML_CATEGORY_ACTIVATION : ML_CATEGORY_TEMPORARY);
    }
    if (is_like_cublas(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    if (c->owners_known && is_of_failed_pass(c, life)) {
        return likely(judge_unfinished(c, life, cause));
    }
    return c->owners_known ? likely(ML_CATEGORY_GRADIENT) : unknown(ML_WHY_OUTLIVES);
}

/* backward() holds it until it returns. */
static ml_verdict
judge_seed(const ml_lifetime *life, ml_passes_during in)
{
    return life->requested != ML_NEVER && !in.forwards ? exact(ML_CATEGORY_TEMPORARY)
                                                       : likely(ML_CATEGORY_GRADIENT);
}

/* Whether autograd made nodes on LIFE's thread after its allocation, up to a request that
 * failed while it was there.  The forward pass then kept it for a backward pass, unless it
 * may be a workspace. */
static bool
waited_for_pass(const ml_categories *c, const ml_lifetime *life)
{
    const ml_failed_pass *request = ml_failed_passes_during(&c->failed, life);
    if (request == NULL || request->backward || is_like_cublas(c, life)) {
        return false;
    }
    if (c->estimate != NULL) {
        return true;
    }
    ml_event birth = ml_events_at(&c->trace->events, life->birth - 1);
    ml_event failed = ml_events_at(&c->trace->events, request->events - 1);
    return birth.autograd_thread != 0 &&
           birth.autograd_thread == failed.autograd_thread &&
           birth.sequence != failed.sequence;
}

static ml_verdict
judge_forward(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause,
              ml_passes_during in)
{
    if (is_workspace(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    bool outside = cause->phase == ML_PHASE_OTHER && in.forwards && c->estimate == NULL;
    bool freed = freed_by_pass(c, life);
    if (outside) {
        /* Only the first of an operation's results identifies its node.  The graph that
         * the first pass frees was its last holder, as it may be of a batch that the
         * program released. */
        return likely(freed && in.passes <= 1 ? ML_CATEGORY_ACTIVATION
                                              : ML_CATEGORY_OTHER);
    }
    if (freed) {
        return exact(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 1 && ml_workspaces_keep(&c->workspaces, life) &&
        ml_workspaces_in_product(&c->workspaces, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    if (in.passes == 1 && c->owners_known) {
        return likely(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 0) {
        /* It may have vanished with the error. */
        return cause->phase == ML_PHASE_FORWARD && waited_for_pass(c, life)
                   ? likely(ML_CATEGORY_ACTIVATION)
               : life->requested != ML_NEVER ? exact(ML_CATEGORY_TEMPORARY)
                                             : unknown(ML_WHY_NO_PASS);
    }
    if (in.passes > 1 && ml_workspaces_hold(&c->workspaces, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    return unknown(in.passes == 1 ? ML_WHY_OWNERS : ML_WHY_SEVERAL);
}

static ml_verdict
judge(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    bool given = life->tag == ML_CATEGORY_INPUT;
    if (life->tag != ML_CATEGORY_COUNT && !given) {
        return exact((enum ml_category)life->tag);
    }
    if (life->birth == 0) {
        return given ? exact(ML_CATEGORY_INPUT)
               : c->owners_known && is_workspace(c, life)
                   ? likely(ML_CATEGORY_WORKSPACE)
                   : exact(ML_CATEGORY_BEFORE_RECORDING);
    }
    if (cause->communication) {
        return exact(ML_CATEGORY_COMMUNICATION);
    }
    if (ml_workspaces_of_product(&c->workspaces, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    /* The result of a model's own work is no batch, whatever module gets it next. */
    uint32_t stack = ml_events_stack(&c->trace->events, life->birth - 1);
    bool outside = ml_causes_facts(c->causes)->of[stack].scope == ML_SCOPE_NONE;
    if (given && outside &&
        (cause->phase == ML_PHASE_OTHER || cause->phase == ML_PHASE_FORWARD)) {
        return exact(ML_CATEGORY_INPUT);
    }
    ml_passes_during in = ml_passes_look(&c->passes, life);
    if (cause->phase == ML_PHASE_OPTIMIZER) {
        return life->requested != ML_NEVER && !in.others
                   ? exact(ML_CATEGORY_TEMPORARY)
                   : likely(ML_CATEGORY_OPTIMIZER_STATE);
    }
    if (!ml_causes_know_passes(c->causes)) {
        return unknown(ML_WHY_PASSES);
    }
    /* The flag, not the phase: passes are counted by the flag. */
    if (ml_causes_is_backward(c->causes, c->device, life->birth - 1)) {
        return judge_backward(c, life, cause, in);
    }
    if (cause->seed) {
        return judge_seed(life, in);
    }
    return judge_forward(c, life, cause, in);
}

/* The estimate for a block made outside any optimizer's step and any pass; UNKNOWN:
 * none. */
static enum ml_category
estimate(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    const ml_events *events = &c->trace->events;
    size_t birth = life->birth - 1;
    uint32_t stack = ml_events_stack(events, birth);
    const uint8_t *of = ml_causes_signs(c->causes)->of;
    uint8_t signs = of[stack];
    ml_passes_during in = ml_passes_look(&c->passes, life);
    bool stays = life->requested == ML_NEVER || in.forwards;
    bool lasts = ml_workspaces_last(&c->workspaces, life->requested);
    bool outside = cause->phase == ML_PHASE_OTHER && stays;
    if (outside && signs & (ML_SIGN_PARAMETER | ML_SIGN_BUFFER)) {
        return signs & ML_SIGN_BUFFER ? ML_CATEGORY_BUFFER : ML_CATEGORY_PARAMETER;
    }
    if (outside && signs & ML_SIGN_OPTIMIZER) {
        return ML_CATEGORY_OPTIMIZER_STATE;
    }
    if (ml_stack_signs_clear(ml_causes_signs(c->causes), events, life->requested)) {
        return ML_CATEGORY_GRADIENT;
    }
    if (lasts && in.passes > 1 &&
        ml_estimate_is_trained(c->estimate, ml_events_size(events, birth))) {
        return ML_CATEGORY_PARAMETER;
    }
    if (cause->phase == ML_PHASE_FORWARD && in.passes == 0 &&
        waited_for_pass(c, life)) {
        return ML_CATEGORY_ACTIVATION;
    }
    if (!outside || !in.forwards) {
        return ML_CATEGORY_UNKNOWN;
    }
    bool input = ml_estimate_is_input(c->estimate, stack);
    bool kept = in.passes > 1 &&
                (!input || (lasts && ml_passes_before(&c->passes, life->birth)));
    return kept ? ML_CATEGORY_OTHER : input ? ML_CATEGORY_INPUT : ML_CATEGORY_UNKNOWN;
}

static ml_verdict
judge_estimated(const ml_categories *c, const ml_lifetime *life, const ml_cause *cause)
{
    if (life->birth == 0) {
        unsigned category = ml_estimate_earlier(c->estimate, life->earlier);
        return category == ML_CATEGORY_BEFORE_RECORDING ? exact(category)
                                                        : likely(category);
    }
    if (cause->phase == ML_PHASE_FORWARD || cause->phase == ML_PHASE_OTHER) {
        enum ml_category category = estimate(c, life, cause);
        if (category != ML_CATEGORY_UNKNOWN && !cause->communication) {
            return likely(category);
        }
    }
    ml_verdict verdict = judge(c, life, cause);
    verdict.exact = verdict.category == ML_CATEGORY_UNKNOWN;
    return verdict;
}

ml_verdict
ml_categories_judge(const ml_categories *c, const ml_lifetime *life,
                    const ml_cause *cause)
{
    return c->estimate != NULL ? judge_estimated(c, life, cause)
                               : judge(c, life, cause);
}
