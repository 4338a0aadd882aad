/* Tuning.  See tune.h.
 *
 * A coarse grid over the settings that matter most, then from the best few of it one
 * setting at a time, until no single change makes it better. */
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

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
    const char *format;          /* of one value */
    unsigned since;              /* version of torch */
    unsigned values[VALUES_MAX]; /* 0 ends them, but for the first */
} knob_rule;

static const knob_rule rules[KNOB_COUNT] = {
    [KNOB_EXPANDABLE] = {"expandable_segments", "True", 201, {0, 1}},
    [KNOB_SPLIT] = {"max_split_size_mb",
                    "%u",
                    0,
                    {0, 20, 32, 64, 128, 256, 512, 1024, 2048}},
    [KNOB_DIVISIONS] = {"roundup_power2_divisions", "%u", 0, {0, 2, 4, 8, 16, 32}},
    [KNOB_ROUNDING] = {"max_non_split_rounding_mb",
                       "%u",
                       0,
                       {0, 32, 64, 128, 256, 512}},
    [KNOB_LARGE] = {"large_segment_size_mb", "%u", 211, {0, 12, 16, 32, 64, 128, 256}},
    /* In hundredths.  Only with a limit on the process. */
    [KNOB_COLLECT] = {"garbage_collection_threshold", "0.%02u", 0, {0, 60, 80, 90}},
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
    if (a->peak.reserved != b->peak.reserved) {
        return a->peak.reserved < b->peak.reserved;
    }
    return a->retries != b->retries ? a->retries < b->retries
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
        snprintf(value, sizeof(value), rules[i].format, rules[i].values[at[i]]);
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
    unsigned version = t->tune->base->own.settings.version;
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
    const ml_whatif *base = t->tune->base;
    char problem[200];
    *out = base->options;
    int error =
        ml_allocator_settings_default(&out->settings, base->own.settings.version);
    if (error == 0) {
        error =
            ml_allocator_settings_parse(&out->settings, conf, problem, sizeof(problem));
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

/* Tries AT unless that was done; 0 or ML_E*. */
static int
try(tuner *t, const uint8_t at[KNOB_COUNT])
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
        error = ml_trial_run(t->tune->base->workload, &options, &made->tuned.result);
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
        error = try(t, at);
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
            int error = try(t, at);
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

static uint64_t
unit_of(const ml_trial_result *base)
{
    uint64_t part = base->peak.reserved / 200;
    return part > ML_PLACEMENT_GRANULE ? part : ML_PLACEMENT_GRANULE;
}

/* Whether A is better than B by more than is worth nothing. */
static bool
is_worth(const ml_trial_result *a, const ml_trial_result *b, uint64_t unit)
{
    if ((a->ooms == 0) != (b->ooms == 0)) {
        return a->ooms == 0;
    }
    return a->peak.reserved + unit <= b->peak.reserved;
}

/* Of what was tried, best first, those that no other of as few settings beats. */
static int
choose(tuner *t)
{
    ml_tune *tune = t->tune;
    const ml_trial_result *base = &tune->base->result;
    uint64_t unit = unit_of(base);
    unsigned fewest = UINT32_MAX;
    int error = 0;
    for (size_t i = 0; i < t->count && error == 0; i++) {
        const ml_tuned *tuned = &t->tried[i].tuned;
        if (!is_worth(&tuned->result, base, unit) || tuned->settings >= fewest ||
            tune->choice_count == ML_TUNE_CHOICES_MAX) {
            continue;
        }
        fewest = tuned->settings;
        ml_tuned *choice = &tune->choices[tune->choice_count++];
        *choice = *tuned;
        ml_trial_options options;
        ml_trial_result again;
        error = options_of(t, choice->conf, &options);
        if (error == 0) {
            error = ml_whatif_range(tune->base->workload, &options, &again,
                                    &choice->low, &choice->high);
        }
    }
    tune->best = tune->choice_count;
    for (size_t i = tune->choice_count; i-- > 0;) {
        if (tune->best == tune->choice_count ||
            is_worth(&tune->choices[i].result, &tune->choices[tune->best].result,
                     unit)) {
            tune->best = i;
        }
    }
    return error;
}

static void
prepare(tuner *t)
{
    const ml_whatif *base = t->tune->base;
    uint64_t events = base->workload->trace->event_count + 1;
    uint64_t most = EVENTS_MAX / events;
    t->budget = (unsigned)(most > TRIALS_MAX ? TRIALS_MAX : most);
    t->budget = t->budget < TRIALS_MIN ? TRIALS_MIN : t->budget;
    t->needs_limit = !base->own.settings.limited;
    t->collects = !t->needs_limit || (t->memory != ML_WHATIF_RECORDED &&
                                      base->own.settings.version >= LIMIT_SINCE);
}

int
ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
            ml_tune **out)
{
    ml_tune *tune = ml_alloc_zeroed(1, sizeof(*tune));
    if (tune == NULL) {
        return ML_ENOMEM;
    }
    char problem[1];
    tuner t = {.tune = tune, .memory = memory};
    int error = ml_whatif_new(recording, device, NULL, memory, problem, sizeof(problem),
                              &tune->base);
    if (error == 0) {
        prepare(&t);
        error = search(&t);
    }
    if (error == 0) {
        error = choose(&t);
    }
    ml_free(t.tried);
    if (error < 0) {
        ml_tune_free(tune);
        return error;
    }
    uint64_t page = ML_PLACEMENT_GRANULE;
    uint64_t needed = tune->base->result.peak.requested;
    tune->packed = needed / page * page + (needed % page != 0 ? page : 0);
    tune->freed_soon = UINT64_MAX;
    *out = tune;
    return 0;
}

void
ml_tune_free(ml_tune *tune)
{
    if (tune != NULL) {
        ml_whatif_free(tune->base);
        ml_free(tune);
    }
}
