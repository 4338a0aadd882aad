/* The requests of a backward pass, an optimizer's step and the next pass. */
#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* State bytes per parameter byte, of Adam and similar optimizers. */
#define ADAM 2

/* ---- The backward pass ---- */

/* Reads the optimizers' notes: trained bytes, and state bytes for them.  Returns
 * whether there are such notes. */
static bool
read_optimizers(const ml_recording *recording, uint64_t *trained, uint64_t *state)
{
    bool noted = false;
    *trained = 0;
    *state = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_OPTIMIZER) {
            *state += note->values[0];
            *trained += note->values[1];
            noted = true;
        }
    }
    return noted;
}

/* Sets *SIZES to the sizes of parameters without a gradient, smallest first. */
static int
find_missing(const ml_remainder_builder *b, uint64_t **sizes, size_t *count)
{
    const ml_remainder *out = b->out;
    size_t all = out->workload->count;
    uint64_t *parameters = ml_alloc_zeroed(all + 1, sizeof(uint64_t));
    uint64_t *there = ml_alloc_zeroed(all + 1, sizeof(uint64_t));
    if (parameters == NULL || there == NULL) {
        ml_free(parameters);
        ml_free(there);
        return ML_ENOMEM;
    }
    size_t n = 0;
    size_t m = 0;
    for (size_t i = 0; i < all; i++) {
        bool own =
            i < out->recorded && b->it->of[i].verdict.category == ML_CATEGORY_PARAMETER;
        if (ml_remainder_is_live(out, i) && own) {
            parameters[n++] = out->workload->demands[i].bytes;
        }
        else if (ml_remainder_is_live(out, i) &&
                 out->items[i].kind == ML_REST_GRADIENT) {
            there[m++] = out->workload->demands[i].bytes;
        }
    }
    qsort(parameters, n, sizeof(uint64_t), ml_remainder_compare_sizes);
    qsort(there, m, sizeof(uint64_t), ml_remainder_compare_sizes);
    *count = 0;
    for (size_t i = 0, j = 0; i < n; i++) {
        while (j < m && there[j] < parameters[i]) {
            j++;
        }
        if (j < m && there[j] == parameters[i]) {
            j++;
        }
        else {
            parameters[(*count)++] = parameters[i];
        }
    }
    ml_free(there);
    uint64_t trained;
    uint64_t state;
    if (read_optimizers(b->it->recording, &trained, &state)) {
        /* Adapters beside frozen parameters are the small ones. */
        size_t kept = 0;
        uint64_t sum = 0;
        while (kept < *count && sum + parameters[kept] <= trained) {
            sum += parameters[kept++];
        }
        *count = kept;
    }
    *sizes = parameters;
    return 0;
}

int
ml_remainder_backward(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    uint64_t *sizes;
    size_t count;
    int error = find_missing(b, &sizes, &count);
    if (error < 0) {
        return error;
    }
    uint64_t all = 0;
    uint64_t gradients = 0;
    size_t end = out->workload->count;
    for (size_t i = 0; i < end; i++) {
        bool waits = ml_remainder_is_live(out, i) && out->items[i].kind == ML_REST_PASS;
        all += waits ? out->workload->demands[i].bytes : 0;
    }
    for (size_t i = 0; i < count; i++) {
        gradients += sizes[i];
    }
    out->activations = all;
    out->gradients = gradients;
    uint64_t passed = 0;
    uint64_t made = 0;
    size_t next = count;
    for (size_t i = end; i > 0 && error == 0; i--) {
        if (!ml_remainder_is_live(out, i - 1) ||
            out->items[i - 1].kind != ML_REST_PASS) {
            continue;
        }
        uint64_t bytes = out->workload->demands[i - 1].bytes;
        size_t brief = 0;
        error = ml_remainder_add(b, bytes, i - 1, out->items[i - 1].scales,
                                 ML_REST_BRIEF, &brief);
        if (error == 0) {
            ml_remainder_free_at(b, brief, b->now + 2);
            ml_remainder_free_at(b, i - 1, b->now + 1);
        }
        b->now++;
        passed += bytes;
        while (error == 0 && next > 0 &&
               (double)made / (double)gradients < (double)passed / (double)all) {
            made += sizes[--next];
            error =
                ml_remainder_add(b, sizes[next], i - 1, false, ML_REST_GRADIENT, NULL);
        }
    }
    while (error == 0 && next > 0) {
        error = ml_remainder_add(b, sizes[--next], 0, false, ML_REST_GRADIENT, NULL);
    }
    b->now += 2;
    ml_free(sizes);
    return error;
}

/* ---- The optimizer ---- */

int
ml_remainder_optimize(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    uint64_t there = 0;
    for (size_t i = 0; i < out->recorded; i++) {
        bool state = b->it->of[i].verdict.category == ML_CATEGORY_OPTIMIZER_STATE ||
                     (b->it->of[i].cause.phase == ML_PHASE_OPTIMIZER &&
                      b->stage == ML_STAGE_OPTIMIZER);
        there +=
            state && ml_remainder_is_live(out, i) ? out->workload->demands[i].bytes : 0;
    }
    uint64_t trained;
    uint64_t whole;
    if (!read_optimizers(b->it->recording, &trained, &whole)) {
        out->state_assumed = true;
        whole = ADAM * out->parameters;
    }
    uint64_t left = whole > there ? whole - there : 0;
    out->state = left;
    if (out->state_assumed && !b->much) {
        left = 0;
    }
    size_t brief = 0;
    int error = 0;
    for (unsigned j = 0; j < ADAM; j++) {
        for (size_t i = 0; i < out->recorded && error == 0; i++) {
            uint64_t bytes = out->workload->demands[i].bytes;
            if (b->it->of[i].verdict.category == ML_CATEGORY_PARAMETER &&
                ml_remainder_is_live(out, i) && left >= bytes) {
                error = ml_remainder_add(b, bytes, i, false, ML_REST_KEPT, NULL);
                left -= bytes;
            }
        }
    }
    /* torch's foreach functions make a temporary of each parameter. */
    if (error == 0 && b->much && whole != 0 && out->parameters != 0) {
        b->now++;
        error = ml_remainder_add(b, out->parameters, 0, false, ML_REST_BRIEF, &brief);
        if (error == 0) {
            ml_remainder_free_at(b, brief, b->now + 1);
        }
    }
    b->now += 2;
    for (size_t i = 0; i < out->workload->count && error == 0 && !b->much; i++) {
        if (out->items[i].kind == ML_REST_GRADIENT && ml_remainder_is_live(out, i)) {
            ml_remainder_free_at(b, i, b->now);
        }
    }
    b->now++;
    return error;
}

/* Repeats the pass from event b->pass to UNTIL.  Much: its result is still held. */
int
ml_remainder_repeat(ml_remainder_builder *b, size_t until)
{
    ml_remainder *out = b->out;
    size_t end = out->workload->count;
    size_t start = b->now;
    size_t last = start;
    size_t output = 0;
    int error = 0;
    for (size_t i = 0; i < end; i++) {
        const ml_demand *demand = &out->workload->demands[i];
        bool made = demand->bytes != 0 && demand->born != ML_NO_EVENT &&
                    demand->born <= out->failed + 1;
        if (made && out->items[i].kind == ML_REST_PASS && out->items[i].scales) {
            output = i;
        }
    }
    if (b->much && output != 0) {
        error = ml_remainder_add(b, out->workload->demands[output].bytes, output, true,
                                 ML_REST_PASS, NULL);
    }
    for (size_t i = 0; i < end && error == 0; i++) {
        ml_demand demand = out->workload->demands[i];
        unsigned kind = out->items[i].kind;
        bool again = kind == ML_REST_PASS || kind == ML_REST_BRIEF ||
                     (kind == ML_REST_GRADIENT && !b->much);
        if (!again || demand.bytes == 0 || demand.born == ML_NO_EVENT ||
            demand.born < b->pass || demand.born >= until) {
            continue;
        }
        size_t index = 0;
        b->now = start + (demand.born - b->pass);
        error = ml_remainder_add(b, demand.bytes, i, out->items[i].scales,
                                 ML_REST_BRIEF, &index);
        if (error == 0 && demand.freed != ML_NO_EVENT) {
            ml_remainder_free_at(b, index, start + (demand.freed - b->pass));
        }
        last = b->now > last ? b->now : last;
    }
    b->now = last + (until - b->pass) + 2;
    return error;
}
