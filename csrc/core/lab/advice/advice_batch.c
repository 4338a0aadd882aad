/* The batch that fits.  See advice_batch.h. */
#include "lab/advice/advice_batch.h"

#include <stdlib.h>

#include "base/base.h"

typedef struct scaler {
    const ml_advice_case *it;
    ml_weights weights;
    uint8_t *scales; /* owned; by demand */
    ml_trial_options options;
} scaler;

static bool
does_scale(const scaler *s, size_t demand)
{
    const ml_explained *of = ml_explained_of(s->it, demand);
    const ml_demand *asked = &s->it->workload->demands[demand];
    uint8_t category = of->verdict.category;
    bool kind =
        category == ML_CATEGORY_ACTIVATION || category == ML_CATEGORY_INPUT ||
        category == ML_CATEGORY_OTHER || category == ML_CATEGORY_TEMPORARY ||
        (category == ML_CATEGORY_UNKNOWN && of->cause.phase == ML_PHASE_FORWARD);
    return kind && of->cause.phase != ML_PHASE_OPTIMIZER &&
           !ml_demand_is_workspace_of_product(s->it, demand) &&
           !ml_weights_have(&s->weights, asked->bytes);
}

static uint64_t
scaled(uint64_t bytes, uint32_t parts)
{
    uint64_t whole = bytes / ML_BATCH_PARTS;
    uint64_t rest =
        (bytes % ML_BATCH_PARTS * parts + ML_BATCH_PARTS - 1) / ML_BATCH_PARTS;
    return whole > (UINT64_MAX - rest) / parts ? UINT64_MAX : whole * parts + rest;
}

/* Sets *FITS: whether the run fits if what scales is multiplied by PARTS. */
static int
try_batch(const scaler *s, uint32_t parts, bool *fits, ml_totals *peak)
{
    ml_workload *copy;
    int error = ml_workload_copy(s->it->workload, &copy);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; i < copy->count; i++) {
        if (s->scales[i]) {
            copy->demands[i].bytes = scaled(copy->demands[i].bytes, parts);
        }
    }
    ml_trial_result result;
    error = ml_trial_run(copy, &s->options, &result);
    ml_workload_free(copy);
    if (error == 0) {
        *fits = result.ooms == 0;
        *peak = result.peak;
    }
    return error;
}

/* Doubles while the run fits, then bisects. */
static int
search(const scaler *s, ml_batch_fit *out)
{
    uint32_t good = 0;
    /* If nothing scales, one trial answers for every factor. */
    uint32_t most = out->scaling != 0 ? ML_BATCH_PARTS * ML_BATCH_MOST : ML_BATCH_PARTS;
    uint32_t bad = most + 1;
    uint32_t next = ML_BATCH_PARTS;
    while (bad - good > 1) {
        bool fits = false;
        ml_totals peak = {0};
        int error = try_batch(s, next, &fits, &peak);
        if (error < 0) {
            return error;
        }
        if (fits) {
            good = next;
            out->peak = peak;
        }
        else {
            bad = next;
        }
        bool grows = bad > most && good <= most / 2;
        next = grows ? good * 2 : good + (bad - good) / 2;
    }
    out->parts = good;
    return 0;
}

static int
prepare(scaler *s)
{
    size_t count = s->it->workload->count;
    s->scales = ml_alloc_zeroed(count + 1, 1);
    if (s->scales == NULL || ml_weights_find(s->it, &s->weights) < 0) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        s->scales[i] = does_scale(s, i);
    }
    return 0;
}

int
ml_advice_fit_batch(const ml_advice_case *it, uint64_t memory_bytes, ml_batch_fit *out)
{
    uint64_t memory = memory_bytes != UINT64_MAX ? memory_bytes : it->memory_bytes;
    *out = (ml_batch_fit){.memory_bytes = memory};
    if (memory == UINT64_MAX) {
        return 0;
    }
    scaler s = {.it = it, .options = it->options};
    s.options.memory_bytes = memory;
    s.options.go_on = false;
    if (s.options.device_bytes < memory) {
        s.options.device_bytes = memory;
    }
    int error = prepare(&s);
    for (size_t i = 0; error == 0 && i < it->workload->count; i++) {
        if (s.scales[i] && ml_demand_at_peak(it, i)) {
            out->scaling += it->workload->demands[i].block_bytes;
        }
    }
    if (error == 0) {
        error = search(&s, out);
    }
    ml_weights_fini(&s.weights);
    ml_free(s.scales);
    return error;
}
