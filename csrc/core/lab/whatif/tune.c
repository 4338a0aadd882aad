/* Tuning.  See tune.h.
 *
 * A coarse grid over the settings that matter most, then from the best few of it one
 * setting at a time, until no single change makes it better. */
#include "lab/whatif/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Each setting has a list of values, of which the first, 0, is torch's default. */
enum knob {
    KNOB_EXPANDABLE,
    KNOB_SPLIT,
    KNOB_DIVISIONS,
    KNOB_ROUNDING,
    KNOB_LARGE,
    KNOB_COLLECT,
    KNOB_COUNT
};

#define VALUES_MAX 10

typedef struct knob_rule {
    const char *key;
    unsigned since;              /* version of torch */
    unsigned values[VALUES_MAX]; /* 0 ends them, but for the first */
} knob_rule;

static const knob_rule rules[KNOB_COUNT] = {
    [KNOB_EXPANDABLE] = {"expandable_segments", 0, {0, 1}},
    [KNOB_SPLIT] = {"max_split_size_mb", 0, {0, 20, 32, 64, 128, 256, 512, 1024, 2048}},
    [KNOB_DIVISIONS] = {"roundup_power2_divisions", 0, {0, 2, 4, 8, 16, 32}},
    [KNOB_ROUNDING] = {"max_non_split_rounding_mb", 0, {0, 32, 64, 128, 256, 512}},
    [KNOB_LARGE] = {"large_segment_size_mb", 211, {0, 12, 16, 32, 64, 128, 256}},
    /* In hundredths.  Only with a limit on the process. */
    [KNOB_COLLECT] = {"garbage_collection_threshold", 0, {0, 60, 80, 90}},
};

/* A limit for a process that has none, with which garbage is collected. */
#define LIMIT "per_process_memory_fraction:0.95"
#define LIMIT_SINCE 210

typedef struct candidate {
    uint8_t at[KNOB_COUNT]; /* index into values */
    ml_tuned tuned;
} candidate;

typedef struct tuner {
    ml_tune *tune;
    uint64_t memory;
    unsigned budget;
    bool collects;    /* collecting garbage may be tried */
    bool needs_limit; /* and needs a limit of its own */
    bool endless;     /* memory */
    candidate *tried; /* owned */
    size_t count;
    size_t capacity;
} tuner;

#define TRIALS_MAX 240
#define TRIALS_MIN 40
/* About half a minute's. */
#define EVENTS_MAX UINT64_C(300000000)
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

/* ---- One candidate ---- */

static void
append(char *conf, const char *text)
{
    size_t length = strlen(conf);
    snprintf(conf + length, ML_TUNE_CONF_MAX - length, "%s%s", length == 0 ? "" : ",",
             text);
}

static void
write_conf(const tuner *t, const uint8_t at[KNOB_COUNT], ml_tuned *out)
{
    out->conf[0] = '\0';
    out->settings = 0;
    for (unsigned i = 0; i < KNOB_COUNT; i++) {
        if (at[i] == 0) {
            continue;
        }
        char value[16];
        char entry[80];
        if (i == KNOB_EXPANDABLE) {
            snprintf(value, sizeof(value), "True");
        }
        else {
            snprintf(value, sizeof(value), i == KNOB_COLLECT ? "0.%02u" : "%u",
                     rules[i].values[at[i]]);
        }
        snprintf(entry, sizeof(entry), "%s:%s", rules[i].key, value);
        append(out->conf, entry);
        out->settings++;
    }
    if (at[KNOB_COLLECT] != 0 && t->needs_limit) {
        append(out->conf, LIMIT);
        out->settings++;
    }
}

static unsigned
value_count(const tuner *t, unsigned knob)
{
    unsigned version = t->tune->whatif->own.settings.version;
    if (version < rules[knob].since || (knob == KNOB_COLLECT && !t->collects)) {
        return 1;
    }
    unsigned count = 1;
    while (count < VALUES_MAX && rules[knob].values[count] != 0) {
        count++;
    }
    return count;
}

/* Whether torch would take it, and it says something that fewer settings do not. */
static bool
is_sensible(const uint8_t at[KNOB_COUNT])
{
    unsigned large = rules[KNOB_LARGE].values[at[KNOB_LARGE]];
    unsigned split = rules[KNOB_SPLIT].values[at[KNOB_SPLIT]];
    unsigned rounding = rules[KNOB_ROUNDING].values[at[KNOB_ROUNDING]];
    unsigned least = large == 0 ? 20 : large;
    return (split == 0 || split >= least) &&
           (rounding == 0 || (split != 0 && rounding >= least));
}

/* The options of CONF. */
static int
options_of(const tuner *t, const char *conf, ml_trial_options *out)
{
    const ml_whatif *base = t->tune->whatif;
    *out = base->options;
    int error =
        ml_allocator_settings_default(&out->settings, base->own.settings.version);
    if (error == 0) {
        error = ml_allocator_settings_parse(&out->settings, conf, NULL, 0);
    }
    bool own_limit = out->settings.limited;
    double fraction = out->settings.memory_fraction;
    if (error == 0) {
        ml_whatif_options(base, t->memory, out);
        if (own_limit) {
            out->settings.limited = true;
            out->settings.memory_fraction = fraction;
        }
    }
    if (error == 0 && t->endless) {
        out->memory_bytes = UINT64_MAX;
        out->settings.limited = false;
    }
    return error;
}

static const candidate *
find(const tuner *t, const uint8_t at[KNOB_COUNT])
{
    for (size_t i = 0; i < t->count; i++) {
        if (memcmp(t->tried[i].at, at, KNOB_COUNT) == 0) {
            return &t->tried[i];
        }
    }
    return NULL;
}

/* Whether RESULT is of a run that never ran short of memory, so that what reserves more is
 * worse. */
static bool
has_room(const ml_trial_result *result)
{
    return result->ooms == 0 && result->retries == 0;
}

/* What reserves more is worse than BYTES and not worth anything; 0: that is not so. */
static uint64_t
enough_for(const tuner *t, uint64_t bytes)
{
    const ml_tuned *base = &t->tune->base;
    return !has_room(&base->result) || bytes == UINT64_MAX ? 0
           : bytes > base->high                            ? bytes
                                                           : base->high;
}

/* Bytes that the last of the best STARTS so far reserves; UINT64_MAX: there are fewer. */
static uint64_t
last_start(const tuner *t)
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

/* Tries AT unless that was done, as far as it reserves ENOUGH bytes at most; 0 or ML_E*. */
static int
try(tuner *t, const uint8_t at[KNOB_COUNT], uint64_t enough)
{
    if (!is_sensible(at) || find(t, at) != NULL) {
        return 0;
    }
    if (t->tune->trials == t->budget) {
        t->tune->out_of_trials = true;
        return 0;
    }
    void *items = t->tried;
    int error = ml_grow(&items, &t->capacity, t->count + 1, sizeof(candidate));
    if (error < 0) {
        return error;
    }
    t->tried = items;
    candidate *made = &t->tried[t->count];
    memcpy(made->at, at, KNOB_COUNT);
    write_conf(t, at, &made->tuned);
    ml_trial_options options;
    error = options_of(t, made->tuned.conf, &options);
    if (error == 0) {
        options.enough = enough;
        error = ml_trial_run(t->tune->whatif->workload, &options, &made->tuned.result);
        t->tune->trials++;
        t->count++;
    }
    return error;
}

/* ---- The search ---- */

static int
try_grid(tuner *t)
{
    static const uint8_t splits[] = {0, 2, 4, 6};
    static const uint8_t divisions[] = {0, 2, 4};
    int error = 0;
    for (unsigned i = 0; i < 2 * 4 * 3 && error == 0; i++) {
        uint8_t at[KNOB_COUNT] = {0};
        at[KNOB_EXPANDABLE] = i % 2;
        at[KNOB_SPLIT] = splits[i / 2 % 4];
        at[KNOB_DIVISIONS] = divisions[i / 8];
        error = try(t, at, enough_for(t, last_start(t)));
    }
    return error;
}

/* From the candidate at *FROM to the best that differs in one setting; whether there was a
 * better one. */
static int
improve(tuner *t, size_t *from, bool *better)
{
    uint8_t start[KNOB_COUNT];
    memcpy(start, t->tried[*from].at, KNOB_COUNT);
    *better = false;
    for (unsigned knob = 0; knob < KNOB_COUNT; knob++) {
        for (unsigned value = 0; value < value_count(t, knob); value++) {
            uint8_t at[KNOB_COUNT];
            memcpy(at, start, KNOB_COUNT);
            at[knob] = (uint8_t)value;
            const ml_trial_result *best = &t->tried[*from].tuned.result;
            uint64_t bytes = has_room(best) ? best->peak.reserved : UINT64_MAX;
            int error = try(t, at, enough_for(t, bytes));
            if (error < 0) {
                return error;
            }
            const candidate *made = find(t, at);
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
    const ml_tuned *x = &((const candidate *)a)->tuned;
    const ml_tuned *y = &((const candidate *)b)->tuned;
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
search(tuner *t)
{
    int error = try_grid(t);
    if (error < 0) {
        return error;
    }
    uint8_t starts[STARTS][KNOB_COUNT];
    size_t count = t->count < STARTS ? t->count : STARTS;
    qsort(t->tried, t->count, sizeof(candidate), compare);
    for (size_t i = 0; i < count; i++) {
        memcpy(starts[i], t->tried[i].at, KNOB_COUNT);
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        const candidate *start = find(t, starts[i]);
        size_t at = (size_t)(start - t->tried);
        bool better = true;
        while (better && error == 0) {
            error = improve(t, &at, &better);
        }
    }
    qsort(t->tried, t->count, sizeof(candidate), compare);
    return error;
}

/* ---- The choice ---- */

/* Whether A is better than B by more than is worth nothing, in whatever order the driver's
 * addresses come. */
static bool
is_worth(const tuner *t, const ml_tuned *a, const ml_tuned *b)
{
    uint64_t part = t->tune->base.result.peak.reserved / 200;
    uint64_t unit = part > ML_PLACEMENT_GRANULE ? part : ML_PLACEMENT_GRANULE;
    if (a->result.ooms != 0 || b->result.ooms != 0) {
        return a->result.ooms == 0 && b->result.ooms != 0;
    }
    /* Where memory ran short it is the limit that decides what is reserved. */
    if (a->result.retries != 0 || b->result.retries != 0) {
        return a->result.retries <= b->result.retries / 2;
    }
    return a->high + unit <= b->high;
}

/* Whether it asks the driver so much more often that it is not to be advised. */
static bool
is_costly(const tuner *t, const ml_trial_result *result)
{
    const ml_trial_result *base = &t->tune->base.result;
    return base->ooms == 0 && result->driver_calls / 2 > base->driver_calls + 50;
}

/* Bit for each knob that is not at its default. */
static unsigned
knobs_of(const candidate *made)
{
    unsigned knobs = 0;
    for (unsigned i = 0; i < KNOB_COUNT; i++) {
        knobs |= (unsigned)(made->at[i] != 0) << i;
    }
    return knobs;
}

/* Whether TUNED is worth it beside OTHER, in all driver placements, which become known then. */
static int
settle(tuner *t, ml_tuned *tuned, const ml_tuned *other, bool *worth)
{
    /* Of one placement it is known, and others make it no better. */
    tuned->low = tuned->high = tuned->result.peak.reserved;
    *worth = is_worth(t, tuned, other);
    if (!*worth) {
        return 0;
    }
    ml_trial_options options;
    int error = options_of(t, tuned->conf, &options);
    if (error == 0) {
        error = ml_whatif_range(t->tune->whatif->workload, &options, &tuned->result,
                                &tuned->low, &tuned->high);
    }
    *worth = error == 0 && is_worth(t, tuned, other);
    return error;
}

/* The best of those that were tried with so many SETTINGS; NULL: there is none. */
static const candidate *
best_with(const tuner *t, unsigned settings)
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

/* Sets *OUT to the best with the fewest settings; NULL: nothing is worth it. */
static int
choose(tuner *t, const candidate **out)
{
    ml_tune *tune = t->tune;
    *out = NULL;
    int error = 0;
    for (unsigned settings = 0; settings <= KNOB_COUNT + 1 && error == 0; settings++) {
        const candidate *made = best_with(t, settings);
        if (made == NULL) {
            continue;
        }
        ml_tuned tuned = made->tuned;
        bool worth;
        error = settle(t, &tuned, *out == NULL ? &tune->base : &tune->best, &worth);
        if (error == 0 && worth) {
            *out = made;
            tune->best = tuned;
        }
    }
    tune->helps = *out != NULL;
    return error;
}

/* Whether KNOBS of OTHERS, COUNT of them, are all in MADE. */
static bool
is_covered(const candidate *made, const unsigned *others, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if ((knobs_of(made) & others[i]) == others[i]) {
            return true;
        }
    }
    return false;
}

/* Of other choices, so that a long recording does not take long. */
#define SETTLED_MAX 8

static int
choose_others(tuner *t, const candidate *best)
{
    ml_tune *tune = t->tune;
    unsigned taken[ML_TUNE_OTHERS_MAX + 2] = {knobs_of(best)};
    unsigned settled = 0;
    int error = 0;
    for (size_t i = 0; i < t->count && error == 0; i++) {
        const candidate *made = &t->tried[i];
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
        error = settle(t, other, &tune->base, &worth);
        taken[tune->other_count + 1] = knobs_of(made);
        tune->other_count += worth;
    }
    return error;
}

static int
search_and_choose(tuner *t)
{
    const candidate *best = NULL;
    int error = search(t);
    if (error == 0) {
        error = choose(t, &best);
    }
    return error == 0 && best != NULL ? choose_others(t, best) : error;
}

/* Where nothing fits: what would need the least. */
static int
search_endless(tuner *t)
{
    ml_tune *tune = t->tune;
    ml_trial_options options = tune->whatif->options;
    ml_whatif_options(tune->whatif, ML_WHATIF_RECORDED, &options);
    options.memory_bytes = UINT64_MAX;
    options.settings.limited = false;
    int error = ml_whatif_range(tune->whatif->workload, &options, &tune->base.result,
                                &tune->base.low, &tune->base.high);
    t->endless = true;
    t->collects = false;
    t->budget += tune->trials;
    t->count = 0;
    tune->fits = false;
    return error == 0 ? search_and_choose(t) : error;
}

/* The requests in use at once, in whole pages. */
static void
bound_packing(ml_tune *tune)
{
    uint64_t needed = tune->whatif->workload->peak.requested;
    uint64_t rest = needed % ML_PLACEMENT_GRANULE;
    tune->packed = needed + (rest != 0 ? ML_PLACEMENT_GRANULE - rest : 0);
}

static void
prepare(tuner *t)
{
    ml_tune *tune = t->tune;
    const ml_whatif *whatif = tune->whatif;
    uint64_t events = whatif->workload->trace->event_count + 1;
    uint64_t most = EVENTS_MAX / events;
    t->budget = (unsigned)(most > TRIALS_MAX ? TRIALS_MAX : most);
    t->budget = t->budget < TRIALS_MIN ? TRIALS_MIN : t->budget;
    t->needs_limit = !whatif->own.settings.limited;
    t->collects = !t->needs_limit || (t->memory != ML_WHATIF_RECORDED &&
                                      whatif->own.settings.version >= LIMIT_SINCE);
    tune->base =
        (ml_tuned){.result = whatif->result, .low = whatif->low, .high = whatif->high};
}

static int
run(tuner *t, const ml_recording *recording, size_t device)
{
    ml_tune *tune = t->tune;
    int error =
        ml_whatif_new(recording, device, NULL, t->memory, &tune->whatif, NULL, 0);
    if (error == 0) {
        prepare(t);
        error = search_and_choose(t);
    }
    if (error == 0) {
        tune->fits = tune->helps || tune->base.result.ooms == 0;
        error = tune->fits ? 0 : search_endless(t);
    }
    if (error == 0) {
        bound_packing(tune);
        error = ml_whatif_freed_soon(tune->whatif, &tune->freed_soon);
    }
    return error;
}

int
ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
            ml_tune **out)
{
    ml_tune *tune = ml_alloc_zeroed(1, sizeof(*tune));
    if (tune == NULL) {
        return ML_ENOMEM;
    }
    tuner t = {.tune = tune, .memory = memory};
    int error = run(&t, recording, device);
    ml_free(t.tried);
    if (error < 0) {
        ml_tune_free(tune);
        return error;
    }
    *out = tune;
    return 0;
}

void
ml_tune_free(ml_tune *tune)
{
    if (tune != NULL) {
        ml_whatif_free(tune->whatif);
        ml_free(tune);
    }
}
