/* Tunes.  See tune.h.
 *
 * Tries a coarse grid of the most important settings.  From its best few, it then
 * changes one setting at a time, until no single change helps. */
#include "lab/whatif/tune.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/whatif/tune_candidates.h"

#define TRIALS_MAX 240
#define TRIALS_MIN 40
/* About half a minute of trials. */
#define EVENTS_MAX UINT64_C(300000000)
/* Where the best is asked for among other advice, of a long recording no more than the grid. */
#define GRID 24
#define BEST_EVENTS_MAX UINT64_C(150000000)
#define STARTS 3

bool
ml_tune_is_better(const ml_trial_result *a, const ml_trial_result *b)
{
    if ((a->ooms == 0) != (b->ooms == 0)) {
        return a->ooms == 0;
    }
    if (a->ooms != 0 && a->events != b->events) {
        return a->events > b->events;
    }
    if (a->retries != b->retries) {
        return a->retries < b->retries;
    }
    return a->peak.reserved != b->peak.reserved ? a->peak.reserved < b->peak.reserved
                                                : a->driver_calls < b->driver_calls;
}

/* ---- The search ---- */

/* Whether RESULT never ran short of memory, so that reserving more is worse. */
static bool
has_room(const ml_trial_result *result)
{
    return result->ooms == 0 && result->retries == 0;
}

/* Whether RESULT calls the driver too much more often to be advised. */
static bool
is_costly(const ml_tuner *t, const ml_trial_result *result)
{
    const ml_trial_result *base = &t->tune->base.result;
    return base->ooms == 0 && result->driver_calls / 2 > base->driver_calls + 50;
}

/* Reserved bytes of the best candidate so far with SETTINGS changes; UINT64_MAX:
 * none. */
static uint64_t
best_so_far(const ml_tuner *t, unsigned settings)
{
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < t->count; i++) {
        const ml_tuned *tuned = &t->tried[i].tuned;
        const ml_trial_result *result = &tuned->result;
        if (tuned->settings == settings && has_room(result) && !result->too_much &&
            !is_costly(t, result) && result->peak.reserved < best) {
            best = result->peak.reserved;
        }
    }
    return best;
}

/* Whether no trial follows the grid, so that it need not find starts for more. */
static bool
is_grid_alone(const ml_tuner *t)
{
    return t->best_only && t->budget - t->before <= GRID;
}

/* If AT reserves more than this, it is of no use; 0: no such bound. */
static uint64_t
enough_for(const ml_tuner *t, const uint8_t at[KNOB_COUNT], uint64_t bytes)
{
    const ml_tuned *base = &t->tune->base;
    if (!has_room(&base->result) || (bytes == UINT64_MAX && !is_grid_alone(t))) {
        return 0;
    }
    uint64_t most = base->high;
    unsigned settings = ml_candidate_settings(t, at);
    if (t->best_only) {
        uint64_t best = best_so_far(t, settings);
        most = best < most ? best : most;
    }
    /* Where the driver's placement does not matter, more settings must reserve less than
     * fewer do. */
    bool placed = t->tune->whatif->own.settings.order == ML_ORDER_ADDRESS;
    for (unsigned fewer = 0; is_grid_alone(t) && !placed && fewer < settings; fewer++) {
        uint64_t best = best_so_far(t, fewer);
        most = best < most ? best : most;
    }
    return bytes > most && !is_grid_alone(t) ? bytes : most;
}

/* Reserved bytes of the worst of the best STARTS so far; UINT64_MAX: fewer so far. */
static uint64_t
last_start(const ml_tuner *t)
{
    uint64_t best[STARTS];
    for (size_t i = 0; i < STARTS; i++) {
        best[i] = UINT64_MAX;
    }
    for (size_t i = 0; i < t->count; i++) {
        const ml_trial_result *result = &t->tried[i].tuned.result;
        uint64_t bytes = has_room(result) ? result->peak.reserved : UINT64_MAX;
        for (size_t k = 0; k < STARTS; k++) {
            if (bytes < best[k]) {
                uint64_t worse = best[k];
                best[k] = bytes;
                bytes = worse;
            }
        }
    }
    return best[STARTS - 1];
}

static int
try_grid(ml_tuner *t)
{
    static const uint8_t splits[] = {0, 2, 4, 6};
    static const uint8_t divisions[] = {0, 2, 4};
    int error = 0;
    for (unsigned i = 0; i < GRID && error == 0; i++) {
        uint8_t at[KNOB_COUNT] = {0};
        at[KNOB_EXPANDABLE] = i % 2;
        at[KNOB_SPLIT] = splits[i / 2 % 4];
        at[KNOB_DIVISIONS] = divisions[i / 8];
        error = ml_candidate_try(t, at, enough_for(t, at, last_start(t)));
    }
    return error;
}

/* Moves *FROM to the best candidate that differs in one setting; *BETTER: there was a
 * better one. */
static int
improve(ml_tuner *t, size_t *from, bool *better)
{
    uint8_t start[KNOB_COUNT];
    memcpy(start, t->tried[*from].at, KNOB_COUNT);
    *better = false;
    for (unsigned knob = 0; knob < KNOB_COUNT; knob++) {
        for (unsigned value = 0; value < ml_candidate_values(t, knob); value++) {
            uint8_t at[KNOB_COUNT];
            memcpy(at, start, KNOB_COUNT);
            at[knob] = (uint8_t)value;
            const ml_trial_result *best = &t->tried[*from].tuned.result;
            uint64_t bytes = has_room(best) ? best->peak.reserved : UINT64_MAX;
            int error = ml_candidate_try(t, at, enough_for(t, at, bytes));
            if (error < 0) {
                return error;
            }
            const ml_candidate *made = ml_candidate_find(t, at);
            if (made != NULL &&
                ml_tune_is_better(&made->tuned.result, &t->tried[*from].tuned.result)) {
                *from = (size_t)(made - t->tried);
                *better = true;
            }
        }
    }
    return 0;
}

static int
compare(const void *a, const void *b)
{
    const ml_tuned *x = &((const ml_candidate *)a)->tuned;
    const ml_tuned *y = &((const ml_candidate *)b)->tuned;
    if (ml_tune_is_better(&x->result, &y->result)) {
        return -1;
    }
    if (ml_tune_is_better(&y->result, &x->result)) {
        return 1;
    }
    return x->settings != y->settings ? (x->settings < y->settings ? -1 : 1)
                                      : strcmp(x->conf, y->conf);
}

static int
search(ml_tuner *t)
{
    int error = try_grid(t);
    if (error < 0) {
        return error;
    }
    uint8_t starts[STARTS][KNOB_COUNT];
    size_t count = t->count < STARTS ? t->count : STARTS;
    qsort(t->tried, t->count, sizeof(ml_candidate), compare);
    for (size_t i = 0; i < count; i++) {
        memcpy(starts[i], t->tried[i].at, KNOB_COUNT);
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        const ml_candidate *start = ml_candidate_find(t, starts[i]);
        size_t at = (size_t)(start - t->tried);
        bool better = true;
        while (better && error == 0) {
            error = improve(t, &at, &better);
        }
    }
    qsort(t->tried, t->count, sizeof(ml_candidate), compare);
    return error;
}

/* ---- The choice ---- */

/* A smaller difference in bytes does not count. */
static uint64_t
least_worth(const ml_tuner *t)
{
    uint64_t part = t->tune->base.result.peak.reserved / 200;
    return part > ML_PLACEMENT_GRANULE ? part : ML_PLACEMENT_GRANULE;
}

/* Whether A is better than B by enough, in every driver placement. */
static bool
is_worth(const ml_tuner *t, const ml_tuned *a, const ml_tuned *b)
{
    if (a->result.ooms != 0 || b->result.ooms != 0) {
        return a->result.ooms == 0 && b->result.ooms != 0;
    }
    /* In a run short of memory, the limit decides the reserved bytes. */
    if (a->result.retries != 0 || b->result.retries != 0) {
        return a->result.retries <= b->result.retries / 2;
    }
    return a->high + least_worth(t) <= b->high;
}

/* A bit for each knob that is not at its default. */
static unsigned
knobs_of(const ml_candidate *made)
{
    unsigned knobs = 0;
    for (unsigned i = 0; i < KNOB_COUNT; i++) {
        knobs |= (unsigned)(made->at[i] != 0) << i;
    }
    return knobs;
}

/* Whether TUNED is better than OTHER by enough in all driver placements, which it
 * measures. */
static int
measure_worth(ml_tuner *t, ml_tuned *tuned, const ml_tuned *other, bool *worth)
{
    /* One placement is known; the others do not make it better. */
    tuned->low = tuned->high = tuned->result.peak.reserved;
    *worth = is_worth(t, tuned, other);
    if (!*worth) {
        return 0;
    }
    ml_trial_options options;
    int error = ml_candidate_options(t, tuned->conf, &options);
    if (error == 0) {
        bool room = has_room(&tuned->result) && has_room(&other->result);
        error = ml_whatif_spread(t->tune->whatif->workload, &options, &tuned->result,
                                 room ? other->high - least_worth(t) : 0, &tuned->low,
                                 &tuned->high);
    }
    *worth = error == 0 && is_worth(t, tuned, other);
    return error;
}

/* The best candidate tried with SETTINGS changes; NULL: none. */
static const ml_candidate *
best_with(const ml_tuner *t, unsigned settings)
{
    for (size_t i = 0; i < t->count; i++) {
        const ml_tuned *tuned = &t->tried[i].tuned;
        if (tuned->settings == settings && !tuned->result.too_much &&
            !is_costly(t, &tuned->result)) {
            return &t->tried[i];
        }
    }
    return NULL;
}

/* Sets *OUT to the fewest settings that are nearly the best; NULL: none is worth it. */
static int
choose_settings(ml_tuner *t, const ml_candidate **out)
{
    ml_tune *tune = t->tune;
    *out = NULL;
    int error = 0;
    for (unsigned settings = 0; settings <= KNOB_COUNT + 1 && error == 0; settings++) {
        const ml_candidate *made = best_with(t, settings);
        if (made == NULL) {
            continue;
        }
        ml_tuned tuned = made->tuned;
        bool worth;
        error =
            measure_worth(t, &tuned, *out == NULL ? &tune->base : &tune->best, &worth);
        if (error == 0 && worth) {
            *out = made;
            tune->best = tuned;
        }
    }
    tune->helps = *out != NULL;
    return error;
}

/* Whether MADE has all KNOBS of one of the COUNT OTHERS. */
static bool
is_covered(const ml_candidate *made, const unsigned *others, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if ((knobs_of(made) & others[i]) == others[i]) {
            return true;
        }
    }
    return false;
}

/* Most other choices tried in all placements, which takes long. */
#define SETTLED_MAX 8

static int
choose_others(ml_tuner *t, const ml_candidate *best)
{
    ml_tune *tune = t->tune;
    unsigned taken[ML_TUNE_OTHERS_MAX + 2] = {knobs_of(best)};
    unsigned settled = 0;
    int error = 0;
    for (size_t i = 0; i < t->count && error == 0; i++) {
        const ml_candidate *made = &t->tried[i];
        if (tune->other_count == ML_TUNE_OTHERS_MAX || settled == SETTLED_MAX ||
            !ml_tune_is_better(&made->tuned.result, &tune->base.result)) {
            break;
        }
        if (made->tuned.settings > best->tuned.settings ||
            is_covered(made, taken, tune->other_count + 1)) {
            continue;
        }
        ml_tuned *other = &tune->others[tune->other_count];
        *other = made->tuned;
        settled++;
        bool worth = false;
        error = measure_worth(t, other, &tune->base, &worth);
        taken[tune->other_count + 1] = knobs_of(made);
        tune->other_count += worth;
    }
    return error;
}

static int
search_and_choose(ml_tuner *t)
{
    const ml_candidate *best = NULL;
    int error = search(t);
    if (error == 0) {
        error = choose_settings(t, &best);
    }
    return error == 0 && best != NULL && !t->best_only ? choose_others(t, best) : error;
}

/* If nothing fits: the settings that would need the least. */
static int
search_endless(ml_tuner *t)
{
    ml_tune *tune = t->tune;
    ml_trial_options options = tune->whatif->options;
    ml_whatif_options(tune->whatif, ML_WHATIF_RECORDED, &options);
    options.memory_bytes = UINT64_MAX;
    options.settings.limited = false;
    int error = ml_whatif_range(tune->whatif->workload, &options, &tune->base.result,
                                &tune->base.low, &tune->base.high);
    t->endless = true;
    t->knows = false;
    t->before = tune->trials;
    t->collects = false;
    t->budget += tune->trials;
    t->count = 0;
    tune->fits = false;
    return error == 0 ? search_and_choose(t) : error;
}

/* Bound: the requests in use at once, in whole pages. */
static void
bound_packing(ml_tune *tune)
{
    uint64_t needed = tune->whatif->workload->peak.requested;
    uint64_t rest = needed % ML_PLACEMENT_GRANULE;
    tune->packed = needed + (rest != 0 ? ML_PLACEMENT_GRANULE - rest : 0);
}

/* No other settings begin with the recorded cache, so the base does not either, if it then
 * reserves less. */
static int
try_base(ml_tuner *t)
{
    ml_tune *tune = t->tune;
    const ml_whatif *whatif = tune->whatif;
    tune->base =
        (ml_tuned){.result = whatif->result, .low = whatif->low, .high = whatif->high};
    if (whatif->workload->segment_count == 0) {
        return 0;
    }
    ml_trial_options options = whatif->options;
    ml_tuned without = {0};
    ml_whatif_options(whatif, t->memory, &options);
    int error = ml_whatif_range(whatif->workload, &options, &without.result,
                                &without.low, &without.high);
    if (error == 0 && without.result.peak.reserved < tune->base.result.peak.reserved) {
        tune->base = without;
        tune->start_cached = ml_workload_start_cached(whatif->workload);
    }
    return error;
}

static void
prepare(ml_tuner *t)
{
    ml_tune *tune = t->tune;
    const ml_whatif *whatif = tune->whatif;
    uint64_t events = whatif->workload->trace->event_count + 1;
    uint64_t most = (t->best_only ? BEST_EVENTS_MAX : EVENTS_MAX) / events;
    unsigned least = t->best_only ? GRID : TRIALS_MIN;
    t->budget = (unsigned)(most > TRIALS_MAX ? TRIALS_MAX : most);
    t->budget = t->budget < least ? least : t->budget;
    t->needs_limit = !whatif->own.settings.limited;
    t->collects =
        !t->needs_limit || (t->memory != ML_WHATIF_RECORDED &&
                            whatif->own.settings.version >= ML_CANDIDATE_LIMIT_SINCE);
}

/* The whatif is already made. */
static int
find_best(ml_tuner *t)
{
    ml_tune *tune = t->tune;
    prepare(t);
    int error = try_base(t);
    error = error == 0 ? search_and_choose(t) : error;
    tune->fits = tune->helps || tune->base.result.ooms == 0;
    return error < 0 || tune->fits ? error : search_endless(t);
}

static void
tuner_fini(ml_tuner *t)
{
    ml_free(t->tried);
    ml_free(t->sizes);
}

int
ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
            ml_tune **out)
{
    ml_tune *tune = ml_alloc_zeroed(1, sizeof(*tune));
    if (tune == NULL) {
        return ML_ENOMEM;
    }
    ml_tuner t = {.tune = tune, .memory = memory};
    int error = ml_whatif_new(recording, device, NULL, memory,
                              ML_WHATIF_RECORDED_FRACTION, &tune->whatif, NULL, 0);
    if (error == 0) {
        error = find_best(&t);
    }
    if (error == 0) {
        bound_packing(tune);
        error = ml_whatif_freed_soon(tune->whatif, &tune->freed_soon);
    }
    tuner_fini(&t);
    if (error < 0) {
        ml_tune_free(tune);
        return error;
    }
    *out = tune;
    return 0;
}

/* Lets a trial with OPTIONS stand for a candidate.  Candidates stop when memory runs
 * out, as it did not here. */
static void
know(ml_tuner *t, const ml_trial_options *options, const ml_trial_result *result)
{
    const ml_trial_options *own = &t->tune->whatif->own;
    t->knows = result->ooms == 0 && !options->recorded_addresses &&
               options->placement == ML_PLACEMENT_DRIVER && options->enough == 0 &&
               options->memory_bytes == own->memory_bytes &&
               options->device_bytes == own->device_bytes;
    t->known.tried = options->settings;
    t->known.tuned.result = *result;
}

int
ml_tune_best(ml_workload *workload, const ml_trial_options *own,
             const ml_trial_result *check, const ml_trial_options *options,
             const ml_trial_result *before, ml_tuned *best,
             ml_trial_options *best_options, bool *helps)
{
    ml_tune *tune = ml_alloc_zeroed(1, sizeof(*tune));
    if (tune == NULL) {
        return ML_ENOMEM;
    }
    ml_tuner t = {.tune = tune, .memory = ML_WHATIF_RECORDED, .best_only = true};
    int error = ml_whatif_of(workload, own, check, &tune->whatif);
    if (error == 0) {
        know(&t, options, before);
        error = find_best(&t);
    }
    *helps = tune->helps;
    *best = tune->best;
    if (error == 0 && *helps) {
        error = ml_candidate_options(&t, best->conf, best_options);
    }
    tuner_fini(&t);
    ml_tune_free(tune);
    return error;
}

void
ml_tune_free(ml_tune *tune)
{
    if (tune != NULL) {
        ml_whatif_free(tune->whatif);
        ml_free(tune);
    }
}
