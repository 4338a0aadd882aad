/* What every allocation of one device is for.  See purposes.h. */
#include "analysis/attribution/purposes.h"

#include "base/base.h"
#include "ledger/blocks.h"

static int
judge_all(ml_purposes *of, const ml_recording *recording, size_t device,
          const ml_causes *causes)
{
    const ml_device_trace *trace = &recording->devices[device];
    ml_categories *categories;
    int code = ml_categories_new(causes, recording, device, &categories);
    if (code != 0) {
        return code;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        ml_cause cause = {.phase = ML_PHASE_UNKNOWN};
        of->events[i].category = ML_CATEGORY_UNKNOWN;
        if (trace->events[i].action == ML_ACTION_ALLOC) {
            cause = ml_causes_of(causes, device, i);
            of->events[i] =
                ml_categories_judge(categories, &of->lives.of_event[i], &cause);
        }
    }
    for (size_t i = 0; i < of->lives.before_count; i++) {
        ml_cause cause = {.phase = ML_PHASE_BEFORE_RECORDING};
        of->before[i] = ml_categories_judge(categories, &of->lives.before[i], &cause);
    }
    ml_categories_free(categories);
    return 0;
}

int
ml_purposes_init(ml_purposes *purposes, const ml_recording *recording, size_t device)
{
    ml_purposes of = {0};
    int code = ml_lives_init(&of.lives, recording, device);
    if (code != 0) {
        *purposes = of;
        return code;
    }
    of.events = ml_alloc_zeroed(of.lives.event_count + 1, sizeof(ml_verdict));
    of.before = ml_alloc_zeroed(of.lives.before_count + 1, sizeof(ml_verdict));
    ml_causes *causes = NULL;
    code = of.events == NULL || of.before == NULL ? ML_ENOMEM
                                                  : ml_causes_new(recording, &causes);
    if (code == 0) {
        code = judge_all(&of, recording, device, causes);
        ml_causes_free(causes);
    }
    if (code != 0) {
        ml_purposes_fini(&of);
    }
    *purposes = of;
    return code;
}

void
ml_purposes_fini(ml_purposes *purposes)
{
    ml_lives_fini(&purposes->lives);
    ml_free(purposes->events);
    ml_free(purposes->before);
    *purposes = (ml_purposes){0};
}

unsigned
ml_purposes_category(const ml_purposes *purposes, uint64_t addr, uint64_t birth)
{
    if (birth != ML_BEFORE_EVENTS) {
        return birth < purposes->lives.event_count ? purposes->events[birth].category
                                                   : ML_CATEGORY_UNKNOWN;
    }
    const ml_life *life = ml_lives_before(&purposes->lives, addr);
    return life == NULL ? ML_CATEGORY_UNKNOWN
                        : purposes->before[life - purposes->lives.before].category;
}
