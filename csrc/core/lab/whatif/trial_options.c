/* The recorded run's conditions.  See trial.h.
 *
 * A recording has the allocator's settings, but neither torch's version nor a limit by
 * set_per_process_memory_fraction().  The order of free blocks shows the version.
 * Refused requests and garbage collections show a limit. */
#include <string.h>

#include "base/base.h"
#include "lab/whatif/trial.h"

/* The device, if the recording does not tell it; a power of two, so that its fractions
 * are exact. */
#define DEVICE_BYTES (UINT64_C(1) << 37)
#define CONF_MAX 4096

static const ml_setting *
find_setting(const ml_recording *recording, const char *key, char kind)
{
    for (size_t i = 0; i < recording->setting_count; i++) {
        const ml_setting *setting = &recording->settings[i];
        ml_string name = recording->strings[setting->key];
        if (setting->kind == kind && name.length == strlen(key) &&
            memcmp(name.bytes, key, name.length) == 0) {
            return setting;
        }
    }
    return NULL;
}

/* The settings at the program's start; the other settings include later changes. */
static void
parse_conf(const ml_recording *recording, ml_allocator_settings *settings)
{
    const ml_setting *setting = find_setting(recording, "PYTORCH_CUDA_ALLOC_CONF", 's');
    char conf[CONF_MAX];
    if (setting == NULL || recording->strings[setting->text].length >= CONF_MAX) {
        return;
    }
    ml_string text = recording->strings[setting->text];
    memcpy(conf, text.bytes, text.length);
    conf[text.length] = '\0';
    ml_allocator_settings_parse(settings, conf, NULL, 0);
}

static void
read_settings(const ml_recording *recording, unsigned version,
              ml_allocator_settings *settings)
{
    ml_allocator_settings_default(settings, version);
    parse_conf(recording, settings);
    const ml_allocator_rules *rules = &recording->rules;
    settings->max_split_bytes = rules->max_split_bytes;
    memcpy(settings->roundup_divisions, rules->roundup_divisions,
           sizeof(rules->roundup_divisions));
    settings->expandable_segments = rules->expandable_segments != 0;
    const ml_setting *threshold =
        find_setting(recording, "garbage_collection_threshold", 'f');
    if (threshold != NULL && threshold->real >= 0 && threshold->real < 1) {
        settings->gc_threshold = threshold->real;
    }
}

/* Sets a limit, as set_per_process_memory_fraction() does. */
static void
set_limit(ml_trial_options *options, uint64_t bytes)
{
    while (options->device_bytes < bytes && options->device_bytes < UINT64_C(1) << 52) {
        options->device_bytes *= 2;
    }
    options->settings.limited = true;
    options->settings.memory_fraction = (double)bytes / (double)options->device_bytes;
}

uint64_t
ml_trial_gpu_memory(const ml_workload *workload)
{
    const ml_recording *recording = workload->recording;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_GPU && note->device == (int32_t)workload->device &&
            note->values[1] != ML_NOTE_UNKNOWN) {
            return note->values[1];
        }
    }
    return 0;
}

/* The highest possible limit of the allocator; UINT64_MAX: no sign of a limit. */
static uint64_t
limit_of(const ml_workload *workload, double threshold)
{
    if (workload->limit != UINT64_MAX) {
        return workload->limit;
    }
    uint64_t limit =
        workload->refused == UINT64_MAX ? UINT64_MAX : workload->refused - 1;
    if (threshold > 0 && workload->collected != UINT64_MAX) {
        double most = (double)(workload->collected - 1) / threshold;
        limit = most < (double)limit ? (uint64_t)most : limit;
    }
    return limit > workload->peak.reserved ? limit : workload->peak.reserved;
}

void
ml_trial_options_of(const ml_workload *workload, ml_trial_options *out)
{
    *out = (ml_trial_options){.device_bytes = DEVICE_BYTES,
                              .memory_bytes = UINT64_MAX,
                              .recorded_addresses = true,
                              .go_on = true};
    read_settings(workload->recording, 211, &out->settings);
    uint64_t noted = ml_trial_gpu_memory(workload);
    while (out->device_bytes < noted) {
        out->device_bytes *= 2;
    }
    uint64_t limit = limit_of(workload, out->settings.gc_threshold);
    if (workload->by_driver) {
        out->memory_bytes = limit;
    }
    else if (limit != UINT64_MAX) {
        set_limit(out, limit);
    }
}

static uint64_t
mismatches(const ml_trial_result *result)
{
    return result->mismatched_addresses + result->mismatched_segments +
           result->mismatched_blocks;
}

/* Tries OPTIONS; keeps them and their result if they agree better. */
static int
try(const ml_workload *workload, const ml_trial_options *options,
    ml_trial_options *best, ml_trial_result *out)
{
    ml_trial_options with = *options;
    ml_trial_result result;
    with.enough_mismatches = mismatches(out);
    int error = ml_trial_run(workload, &with, &result);
    if (error == 0 && mismatches(&result) < mismatches(out)) {
        *best = *options;
        *out = result;
    }
    return error;
}

/* Whether a trial takes the same steps with both.  Other differences between versions
 * matter only where a pool is begun, which no trial does. */
static bool
runs_alike(const ml_allocator_settings *a, const ml_allocator_settings *b)
{
    ml_allocator_settings other = *b;
    bool limits_alike = !a->limited || a->memory_fraction < 1 ||
                        (a->version <= 208) == (b->version <= 208);
    other.version = a->version;
    other.lend_first = a->lend_first;
    other.pools_stop_release = a->pools_stop_release;
    return limits_alike && memcmp(a, &other, sizeof(other)) == 0;
}

static int
try_versions(const ml_workload *workload, ml_trial_options *best, ml_trial_result *out)
{
    static const unsigned versions[] = {213, 212, 208};
    const ml_allocator_settings first = best->settings;
    int error = 0;
    for (size_t i = 0; i < sizeof(versions) / sizeof(*versions) && error == 0; i++) {
        ml_trial_options other = *best;
        bool limited = other.settings.limited;
        double fraction = other.settings.memory_fraction;
        if (mismatches(out) == 0) {
            break;
        }
        read_settings(workload->recording, versions[i], &other.settings);
        other.settings.limited = limited;
        other.settings.memory_fraction = fraction;
        error =
            runs_alike(&first, &other.settings) ? 0 : try(workload, &other, best, out);
    }
    return error;
}

/* Limits to try.  Where garbage was collected, the limit decided what was released.  It
 * lies little below the bytes at the first collection. */
#define LIMITS_TRIED 24

static int
try_limits(const ml_workload *workload, ml_trial_options *best, ml_trial_result *out)
{
    uint64_t high = limit_of(workload, best->settings.gc_threshold);
    uint64_t step = (high - workload->peak.reserved) / 4 / LIMITS_TRIED;
    int error = 0;
    for (unsigned i = 1; i <= LIMITS_TRIED && error == 0 && mismatches(out) != 0; i++) {
        ml_trial_options other = *best;
        set_limit(&other, high - i * step);
        error = try(workload, &other, best, out);
    }
    return error;
}

int
ml_trial_check(const ml_workload *workload, ml_trial_options *options,
               ml_trial_result *out)
{
    int error = ml_trial_run(workload, options, out);
    if (error == 0) {
        error = try_versions(workload, options, out);
    }
    if (error == 0 && options->settings.gc_threshold > 0 &&
        workload->collected != UINT64_MAX && mismatches(out) != 0) {
        error = try_limits(workload, options, out);
    }
    return error;
}
