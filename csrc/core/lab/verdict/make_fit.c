/* Finds what makes a run fit.  See make_fit.h. */
#include "lab/verdict/make_fit.h"

#include <string.h>

typedef struct make_fit_work {
    const ml_advice_case *it;
    ml_trial_options options; /* with the memory of the run */
    ml_make_fit *out;
    ml_remainder assumed[ML_ASSUMED_COUNT]; /* owned; the first COUNT */
    size_t count;
} make_fit_work;

/* Whether PARTS of WHOLE fit in MEMORY with the first COUNT of what is assumed. */
static int
fits(const make_fit_work *f, size_t count, uint32_t parts, uint64_t memory, bool *out)
{
    ml_trial_options options = f->options;
    options.memory_bytes = memory;
    uint32_t whole = ml_make_fit_whole(f->out);
    int error = 0;
    *out = true;
    for (size_t i = 0; i < count && error == 0 && *out; i++) {
        ml_trial_result result;
        error = ml_remainder_try(&f->assumed[i], &options, parts, whole, &result);
        *out = error == 0 && result.ooms == 0;
    }
    return error;
}

/* By bisection: the whole batch is known not to fit. */
static int
find_batch(const make_fit_work *f, size_t count, uint64_t memory, uint32_t *batch)
{
    uint32_t good = 0;
    uint32_t whole = ml_make_fit_whole(f->out);
    uint32_t bad = whole;
    while (bad - good > 1 && bad - good > whole / ML_FIT_PARTS) {
        uint32_t middle = good + (bad - good) / 2;
        bool fit;
        int error = fits(f, count, middle, memory, &fit);
        if (error < 0) {
            return error;
        }
        *(fit ? &good : &bad) = middle;
    }
    *batch = good;
    return 0;
}

static int
find_need(const make_fit_work *f, const ml_remainder *remainder, uint64_t *bytes)
{
    ml_trial_options unlimited = f->options;
    unlimited.memory_bytes = UINT64_MAX;
    ml_trial_result result;
    int error = ml_remainder_try(remainder, &unlimited, 1, 1, &result);
    *bytes = error == 0 ? result.peak.reserved : 0;
    return error;
}

static bool
gets_past(const ml_trial_result *result, size_t event)
{
    return result->ooms == 0 || result->oom_event > event;
}

/* Fragmentation is to blame if the model fails as the run did, but succeeds where
 * memory need not be in one piece. */
static int
find_fragmentation(const make_fit_work *f, const ml_remainder *remainder)
{
    ml_trial_result as_it_was;
    ml_trial_result without;
    ml_trial_options options = f->options;
    if (options.settings.expandable_segments) {
        return 0;
    }
    int error = ml_remainder_try(remainder, &options, 1, 1, &as_it_was);
    if (error < 0 || gets_past(&as_it_was, remainder->failed)) {
        return error;
    }
    options.settings.expandable_segments = true;
    error = ml_remainder_try(remainder, &options, 1, 1, &without);
    if (error == 0) {
        bool past = gets_past(&without, remainder->failed);
        f->out->unfragmented_fits = without.ooms == 0 && remainder->untold == 0;
        /* An unpredictable later part of a pass may be what does not fit. */
        uint32_t later =
            1u << ML_UNTOLD_MODULES | 1u << ML_UNTOLD_GROWTH | 1u << ML_UNTOLD_SIZES;
        bool all = remainder->untold != 0 || without.ooms == 0;
        f->out->fragmented = past && all && (remainder->untold & later) == 0;
    }
    return error;
}

static void
tell_unseen(const ml_remainder *remainder, ml_make_fit *out)
{
    out->untold = remainder->untold;
    out->forward = remainder->forward;
    out->gradients = remainder->gradients;
    out->state = remainder->state;
    out->modules = remainder->modules;
    out->state_assumed = remainder->state_assumed;
    out->sizes_differ = remainder->sizes_differ;
}

/* The batch among the program's arguments, all of these, and the GPU. */
static void
read_notes(const ml_recording *recording, ml_make_fit *out)
{
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        ml_string name = recording->strings[note->name];
        if (note->kind == ML_NOTE_BATCH && name.length < sizeof(out->batch_name) &&
            note->values[0] <= UINT32_MAX) {
            memcpy(out->batch_name, name.bytes, name.length);
            out->batch_name[name.length] = 0;
            out->batch_number = (uint32_t)note->values[0];
        }
        else if (note->kind == ML_NOTE_PROGRAM) {
            out->program = name;
        }
        else if (note->kind == ML_NOTE_OOM && note->values[2] != ML_NOTE_UNKNOWN) {
            out->gpu_bytes = note->values[2];
        }
    }
}

static bool
agree(const ml_make_fit *fit)
{
    if (fit->batch_safe == 0) {
        return fit->batch_most == 0;
    }
    uint64_t most = (uint64_t)fit->batch_safe * (100 + ML_FIT_AGREES) / 100;
    return fit->batch_most <= most ||
           (fit->batch_number != 0 && fit->batch_most <= fit->batch_safe + 1);
}

uint64_t
ml_make_fit_number(const ml_make_fit *fit)
{
    return fit->batch_number == 0 ? 0 : fit->batch_safe;
}

static int
find_batches(const make_fit_work *f)
{
    ml_make_fit *out = f->out;
    uint64_t memory = f->options.memory_bytes;
    uint64_t careful = memory - memory / ML_FIT_MARGIN_PART;
    int error = find_batch(f, f->count, careful, &out->batch_safe);
    if (error == 0) {
        error = find_batch(f, 1, memory, &out->batch_most);
    }
    if (out->batch_most < out->batch_safe) {
        out->batch_most = out->batch_safe;
    }
    return error;
}

static int
find_fit(const make_fit_work *f)
{
    const ml_remainder *little = &f->assumed[ML_ASSUMED_SMALL];
    const ml_remainder *much = &f->assumed[ML_ASSUMED_LARGE];
    ml_make_fit *out = f->out;
    tell_unseen(much, out);
    int error = find_need(f, little, &out->needs_least);
    if (error == 0) {
        error = find_need(f, much, &out->needs_most);
    }
    if (error == 0 && out->needs_most < out->needs_least) {
        uint64_t most = out->needs_least;
        out->needs_least = out->needs_most;
        out->needs_most = most;
    }
    if (error == 0) {
        error = ml_remedies_find(much, f->it, &f->options, &out->remedies);
    }
    if (error < 0 || !out->failed) {
        return error;
    }
    error = find_fragmentation(f, little);
    const ml_remedy *kept = ml_remedies_of(&out->remedies, ML_REMEDY_NOTHING_KEPT);
    if (kept != NULL && kept->fits) {
        out->untold |= 1u << ML_UNTOLD_GROWTH;
    }
    if (error == 0 && out->untold == 0) {
        error = find_batches(f);
        out->batch_named = agree(out);
    }
    return error;
}

int
ml_make_fit_find(const ml_advice_case *it, ml_make_fit *out)
{
    *out = (ml_make_fit){.memory_bytes = it->memory_bytes,
                         .failed = it->failed != ML_NO_EVENT};
    read_notes(it->recording, out);
    out->batch_safe = out->batch_most = ml_make_fit_whole(out);
    make_fit_work f = {.it = it, .options = it->options, .out = out};
    f.options.memory_bytes = it->memory_bytes;
    f.options.go_on = false;
    int error = 0;
    while (f.count < ML_ASSUMED_COUNT && error == 0) {
        error = ml_remainder_init(&f.assumed[f.count], it, (enum ml_assumed)f.count);
        f.count += error == 0;
    }
    error = error == 0 ? find_fit(&f) : error;
    while (f.count > 0) {
        ml_remainder_fini(&f.assumed[--f.count]);
    }
    return error;
}

int
ml_make_fit_of(const ml_recording *recording, size_t device, uint64_t memory_bytes,
               ml_make_fit *out)
{
    ml_advice_case it;
    int error = ml_advice_case_init(&it, recording, device);
    if (error == 0) {
        if (memory_bytes != UINT64_MAX) {
            it.memory_bytes = memory_bytes;
        }
        error = ml_make_fit_find(&it, out);
        ml_advice_case_fini(&it);
    }
    return error;
}
