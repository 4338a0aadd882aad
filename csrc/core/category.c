/* The category of an allocation.  See category.h. */
#include "category.h"

#include <string.h>

#include "base.h"

/* Before each event, and in all. */
typedef struct tally {
    uint32_t passes;   /* backward passes begun */
    uint32_t forwards; /* allocations of a forward */
    uint32_t others;   /* allocations outside any optimizer's step */
} tally;

struct ml_categories {
    const ml_causes *causes;      /* borrowed */
    const ml_device_trace *trace; /* borrowed */
    tally *tallies;               /* owned */
    bool owners_known;            /* it has tagged parameters */
};

static void
count_up(ml_categories *c, size_t device)
{
    bool inside = false;
    for (size_t i = 0; i < c->trace->event_count; i++) {
        const ml_event *event = &c->trace->events[i];
        tally *next = &c->tallies[i + 1];
        *next = c->tallies[i];
        if (event->flags & ML_EVENT_BACKWARD) {
            next->passes += !inside;
            inside = true;
        }
        else if (event->action == ML_ACTION_ALLOC) {
            inside = false;
        }
        if (event->action == ML_ACTION_ALLOC) {
            enum ml_phase phase = ml_causes_phase(c->causes, device, i);
            next->forwards += phase == ML_PHASE_FORWARD;
            next->others += phase != ML_PHASE_OPTIMIZER;
        }
    }
}

int
ml_categories_new(const ml_causes *causes, const ml_recording *recording, size_t device,
                  ml_categories **out)
{
    ml_categories *c = ml_alloc_zeroed(1, sizeof(*c));
    if (c == NULL) {
        return ML_ENOMEM;
    }
    c->causes = causes;
    c->trace = &recording->devices[device];
    c->tallies = ml_alloc_zeroed(c->trace->event_count + 1, sizeof(tally));
    if (c->tallies == NULL) {
        ml_free(c);
        return ML_ENOMEM;
    }
    count_up(c, device);
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
        ml_free(categories->tallies);
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

/* What happened from just after the allocation up to the free and with it. */
static tally
during(const ml_categories *c, const ml_life *life)
{
    size_t last = life->end == ML_NEVER ? c->trace->event_count : (size_t)life->end + 1;
    const tally *from = &c->tallies[life->birth + 1];
    const tally *to = &c->tallies[last];
    return (tally){.passes = to->passes - from->passes,
                   .forwards = to->forwards - from->forwards,
                   .others = to->others - from->others};
}

static bool
freed_by_pass(const ml_categories *c, const ml_life *life)
{
    return life->end != ML_NEVER &&
           (c->trace->events[life->end].flags & ML_EVENT_BACKWARD) != 0;
}

/* torch keeps one of these for each cuBLAS handle and stream, for the whole run: 8 MiB and
 * 128 KiB, on an H100 or later 32 MiB. */
static bool
like_workspace(const ml_categories *c, const ml_life *life)
{
    uint64_t size = c->trace->events[life->birth].size;
    return life->end == ML_NEVER && (size == 8519680 || size == 33554432);
}

static ml_verdict
judge_backward(const ml_categories *c, const ml_life *life, const ml_cause *cause,
               tally in)
{
    if (freed_by_pass(c, life) && in.passes == 0) {
        uint32_t stack = c->trace->events[life->end].stack;
        /* The recomputation frees its own temporaries in module calls. */
        bool kept = cause->recomputed &&
                    ml_causes_facts(c->causes)->of[stack].scope != ML_SCOPE_MODULE;
        return exact(kept ? ML_CATEGORY_ACTIVATION : ML_CATEGORY_TEMPORARY);
    }
    if (like_workspace(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    return c->owners_known ? likely(ML_CATEGORY_GRADIENT) : unknown(ML_WHY_OUTLIVES);
}

static ml_verdict
judge_forward(const ml_categories *c, const ml_life *life, const ml_cause *cause,
              tally in)
{
    if (cause->phase == ML_PHASE_OTHER && in.forwards != 0) {
        return likely(ML_CATEGORY_INPUT);
    }
    if (freed_by_pass(c, life)) {
        return exact(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 1 && c->owners_known) {
        return likely(ML_CATEGORY_ACTIVATION);
    }
    if (in.passes == 0) {
        return life->end != ML_NEVER ? exact(ML_CATEGORY_TEMPORARY)
                                     : unknown(ML_WHY_NO_PASS);
    }
    if (in.passes > 1 && like_workspace(c, life)) {
        return likely(ML_CATEGORY_WORKSPACE);
    }
    return unknown(in.passes == 1 ? ML_WHY_OWNERS : ML_WHY_SEVERAL);
}

ml_verdict
ml_categories_judge(const ml_categories *c, const ml_life *life, const ml_cause *cause)
{
    if (life->tag != ML_CATEGORY_COUNT) {
        return exact((enum ml_category)life->tag);
    }
    if (life->birth == ML_NEVER) {
        return exact(ML_CATEGORY_BEFORE_RECORDING);
    }
    if (cause->communication) {
        return exact(ML_CATEGORY_COMMUNICATION);
    }
    tally in = during(c, life);
    if (cause->phase == ML_PHASE_OPTIMIZER) {
        return life->end != ML_NEVER && in.others == 0
                   ? exact(ML_CATEGORY_TEMPORARY)
                   : likely(ML_CATEGORY_OPTIMIZER_STATE);
    }
    if (!ml_causes_know_passes(c->causes)) {
        return unknown(ML_WHY_PASSES);
    }
    /* Not by the phase: the flag is what passes are counted by. */
    if (c->trace->events[life->birth].flags & ML_EVENT_BACKWARD) {
        return judge_backward(c, life, cause, in);
    }
    return judge_forward(c, life, cause, in);
}

const char *
ml_why_text(unsigned why)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_WHYS(XX)
#undef XX
    };
    return texts[why < ML_WHY_COUNT ? why : ML_WHY_KNOWN];
}
