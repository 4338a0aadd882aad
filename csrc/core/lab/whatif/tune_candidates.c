/* The candidates of tuning.  See tune_candidates.h. */
#include "lab/whatif/tune_candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ledger/rounding.h"

#define VALUES_MAX 10

typedef struct knob_rule {
    const char *key;
    unsigned since;              /* first version of torch */
    unsigned values[VALUES_MAX]; /* ended by 0, except the first */
} knob_rule;

static const knob_rule rules[KNOB_COUNT] = {
    [KNOB_EXPANDABLE] = {"expandable_segments", 0, {0, 1}},
    [KNOB_SPLIT] = {"max_split_size_mb", 0, {0, 20, 32, 64, 128, 256, 512, 1024, 2048}},
    [KNOB_DIVISIONS] = {"roundup_power2_divisions", 0, {0, 2, 4, 8, 16, 32}},
    [KNOB_ROUNDING] = {"max_non_split_rounding_mb", 0, {0, 32, 64, 128, 256, 512}},
    [KNOB_LARGE] = {"large_segment_size_mb", 211, {0, 12, 16, 32, 64, 128, 256}},
    /* In hundredths.  It needs a limit on the process. */
    [KNOB_COLLECT] = {"garbage_collection_threshold", 0, {0, 60, 80, 90}},
};

/* A limit for garbage collection, if the process has none. */
#define LIMIT "per_process_memory_fraction:0.95"

static void
append_setting(char *conf, const char *text)
{
    size_t length = strlen(conf);
    snprintf(conf + length, ML_TUNE_CONF_MAX - length, "%s%s", length == 0 ? "" : ",",
             text);
}

unsigned
ml_candidate_settings(const ml_tuner *t, const uint8_t at[KNOB_COUNT])
{
    unsigned settings = at[KNOB_COLLECT] != 0 && t->needs_limit;
    for (unsigned i = 0; i < KNOB_COUNT; i++) {
        settings += at[i] != 0;
    }
    return settings;
}

static void
write_conf(const ml_tuner *t, const uint8_t at[KNOB_COUNT], ml_tuned *out)
{
    out->conf[0] = '\0';
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
        append_setting(out->conf, entry);
    }
    if (at[KNOB_COLLECT] != 0 && t->needs_limit) {
        append_setting(out->conf, LIMIT);
    }
    out->settings = ml_candidate_settings(t, at);
}

unsigned
ml_candidate_values(const ml_tuner *t, unsigned knob)
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

/* Whether torch accepts it, and no part of it is without effect. */
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

/* Options with the settings of CONF. */
int
ml_candidate_options(const ml_tuner *t, const char *conf, ml_trial_options *out)
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

const ml_candidate *
ml_candidate_find(const ml_tuner *t, const uint8_t at[KNOB_COUNT])
{
    for (size_t i = 0; i < t->count; i++) {
        if (memcmp(t->tried[i].at, at, KNOB_COUNT) == 0) {
            return &t->tried[i];
        }
    }
    return NULL;
}

/* ---- What trials before say ---- */

/* Few sizes are new among millions.  By its hash, 1 + the place of the last. */
#define SEEN 4096

/* Adds SIZE to the COUNT sizes so far, unless it was seen last; returns their count. */
static size_t
add_size(ml_tuner *t, size_t count, size_t seen[SEEN], uint64_t size)
{
    size_t *last = &seen[ml_hash_u64(size) % SEEN];
    if (*last != 0 && t->sizes[*last - 1] == size) {
        return count;
    }
    t->sizes[count] = size;
    *last = ++count;
    return count;
}

static int
find_sizes(ml_tuner *t)
{
    const ml_workload *workload = t->tune->whatif->workload;
    t->sizes =
        ml_alloc_zeroed(workload->count + workload->mark_count + 1, sizeof(uint64_t));
    if (t->sizes == NULL) {
        return ML_ENOMEM;
    }
    size_t seen[SEEN] = {0};
    size_t count = 0;
    for (size_t i = 0; i < workload->count; i++) {
        count = add_size(t, count, seen, workload->demands[i].bytes);
    }
    for (size_t i = 0; i < workload->mark_count; i++) {
        count = add_size(t, count, seen, workload->marks[i].bytes);
    }
    if (count > 1) {
        qsort(t->sizes, count, sizeof(uint64_t), ml_compare_u64);
    }
    for (size_t i = 0; i < count; i++) {
        if (t->size_count == 0 || t->sizes[t->size_count - 1] != t->sizes[i]) {
            t->sizes[t->size_count++] = t->sizes[i];
        }
    }
    return 0;
}

/* Whether both settings round every request alike. */
static bool
rounds_alike(const ml_tuner *t, const ml_allocator_settings *a,
             const ml_allocator_settings *b)
{
    if (memcmp(a->roundup_divisions, b->roundup_divisions,
               sizeof(a->roundup_divisions)) == 0) {
        return true;
    }
    ml_allocator_rules x = ml_allocator_settings_rules(a);
    ml_allocator_rules y = ml_allocator_settings_rules(b);
    for (size_t i = 0; i < t->size_count; i++) {
        if (ml_allocator_round(&x, t->sizes[i]) !=
            ml_allocator_round(&y, t->sizes[i])) {
            return false;
        }
    }
    return true;
}

/* Whether a trial of SETTINGS would take the same steps as that of MADE. */
static bool
runs_alike(const ml_tuner *t, const ml_candidate *made,
           const ml_allocator_settings *settings)
{
    const ml_allocator_slack *slack = &made->tuned.result.slack;
    ml_allocator_settings other = *settings;
    other.max_split_bytes = made->tried.max_split_bytes;
    other.max_non_split_rounding = made->tried.max_non_split_rounding;
    memcpy(other.roundup_divisions, made->tried.roundup_divisions,
           sizeof(other.roundup_divisions));
    return settings->max_split_bytes >= slack->split_low &&
           settings->max_split_bytes <= slack->split_high &&
           settings->max_non_split_rounding >= slack->rounding_low &&
           settings->max_non_split_rounding <= slack->rounding_high &&
           memcmp(&other, &made->tried, sizeof(other)) == 0 &&
           rounds_alike(t, settings, &made->tried);
}

/* Whether the trial of MADE settles ADDED, which then gets its result. */
static bool
settles(const ml_tuner *t, const ml_candidate *made, ml_candidate *added)
{
    uint64_t enough = added->enough;
    const ml_trial_result *result = &made->tuned.result;
    bool far = !result->too_much ||
               (enough != 0 && made->enough != 0 && enough <= made->enough);
    if (!far || !runs_alike(t, made, &added->tried)) {
        return false;
    }
    added->tuned.result = *result;
    added->tuned.result.too_much = enough != 0 && result->peak.reserved > enough;
    return true;
}

/* Whether an earlier trial settles ADDED, the newest. */
static bool
is_settled(const ml_tuner *t, ml_candidate *added)
{
    if (t->knows && settles(t, &t->known, added)) {
        return true;
    }
    for (size_t i = 0; i < t->count; i++) {
        if (settles(t, &t->tried[i], added)) {
            return true;
        }
    }
    return false;
}

int
ml_candidate_try(ml_tuner *t, const uint8_t at[KNOB_COUNT], uint64_t enough)
{
    if (!is_sensible(at) || ml_candidate_find(t, at) != NULL) {
        return 0;
    }
    if (t->tune->trials == t->budget) {
        t->tune->out_of_trials = true;
        return 0;
    }
    void *items = t->tried;
    int error = ml_grow(&items, &t->capacity, t->count + 1, sizeof(ml_candidate));
    if (error < 0) {
        return error;
    }
    t->tried = items;
    ml_candidate *made = &t->tried[t->count];
    memcpy(made->at, at, KNOB_COUNT);
    write_conf(t, at, &made->tuned);
    ml_trial_options options;
    error = ml_candidate_options(t, made->tuned.conf, &options);
    if (error == 0 && t->sizes == NULL) {
        error = find_sizes(t);
    }
    if (error == 0) {
        options.enough = made->enough = enough;
        made->tried = options.settings;
        if (!is_settled(t, made)) {
            error =
                ml_trial_run(t->tune->whatif->workload, &options, &made->tuned.result);
        }
        t->tune->trials++;
        t->count++;
    }
    return error;
}
