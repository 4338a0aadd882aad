/* The recorded run's conditions.  See trial.h.
 *
 * A recording has the allocator's settings, but neither torch's version nor a limit by
 * set_per_process_memory_fraction().  The order of free blocks shows the version.
 * Refused requests and garbage collections show a limit. */
#include <string.h>

#include "base/base.h"
#include "gpu/gpu_account.h"
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
            ml_gpu_account_usable(note) != ML_NOTE_UNKNOWN) {
            return ml_gpu_account_usable(note);
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

/* ---- The version of torch ---- */

#define VERSIONS 4
/* Some steps of a training.  Longer recordings are tried in part before all of it. */
#define FIRST_DEMANDS 8192

typedef struct attempt {
    ml_trial_options options;
    ml_trial_result result;
    bool ended; /* tried to the end, or until it was worse than another */
} attempt;

static int
try_first(const ml_workload *workload, attempt *it)
{
    ml_trial_options with = it->options;
    with.most_demands = FIRST_DEMANDS;
    int error = ml_trial_run(workload, &with, &it->result);
    it->ended = error == 0 && !it->result.cut;
    return error;
}

/* Tries IT to the end, unless it is worse than *BEST (NULL: none), which IT becomes if it is
 * not.  Of two that agree equally well, the first in their list is better. */
static int
try_all(const ml_workload *workload, attempt *it, attempt **best)
{
    uint64_t most = *best != NULL ? mismatches(&(*best)->result) + (it < *best) : 0;
    ml_trial_options with = it->options;
    with.enough_mismatches = most;
    int error = it->ended ? 0 : ml_trial_run(workload, &with, &it->result);
    it->ended = true;
    if (error == 0 && (*best == NULL || mismatches(&it->result) < most)) {
        *best = it;
    }
    return error;
}

/* Whether a trial that was cut follows nothing of the recording: nearly all addresses
 * differ.  What else differs later is chance. */
static bool
has_parted(const attempt *it)
{
    const ml_trial_result *result = &it->result;
    return result->cut &&
           result->mismatched_addresses > result->demands - result->demands / 16;
}

/* Of the COUNT ATTEMPTS to be tried to the end, the one that agrees best so far; NULL: none. */
static attempt *
choose_next(attempt *attempts, size_t count, bool parted)
{
    attempt *next = NULL;
    for (size_t i = 0; i < count; i++) {
        attempt *it = &attempts[i];
        if (!it->ended && (parted || !has_parted(it)) &&
            (next == NULL || mismatches(&it->result) < mismatches(&next->result))) {
            next = it;
        }
    }
    return next;
}

/* Adds the first demands' trial of each version that runs otherwise than the first one.
 * *BEST: the one that agrees everywhere, if one does; its count is the last. */
static int
try_firsts(const ml_workload *workload, const ml_trial_options *options,
           attempt *attempts, size_t *count, attempt **best)
{
    static const unsigned versions[VERSIONS] = {211, 213, 212, 208};
    int error = 0;
    for (size_t i = 0; i < VERSIONS && error == 0; i++) {
        attempt *it = &attempts[*count];
        *it = (attempt){.options = *options};
        ml_allocator_settings *settings = &it->options.settings;
        read_settings(workload->recording, versions[i], settings);
        settings->limited = options->settings.limited;
        settings->memory_fraction = options->settings.memory_fraction;
        if (i != 0 && runs_alike(&attempts[0].options.settings, settings)) {
            continue;
        }
        ++*count;
        error = try_first(workload, it);
        if (error == 0 && (it->ended || mismatches(&it->result) == 0)) {
            error = try_all(workload, it, best);
        }
        if (error == 0 && *best != NULL && mismatches(&(*best)->result) == 0) {
            break;
        }
    }
    return error;
}

static int
try_versions(const ml_workload *workload, ml_trial_options *options,
             ml_trial_result *out)
{
    attempt attempts[VERSIONS];
    size_t count = 0;
    attempt *best = NULL;
    int error = try_firsts(workload, options, attempts, &count, &best);
    bool parted = best == NULL && choose_next(attempts, count, false) == NULL;
    while (error == 0 && (best == NULL || mismatches(&best->result) != 0)) {
        attempt *next = choose_next(attempts, count, parted);
        if (next == NULL) {
            break;
        }
        error = try_all(workload, next, &best);
        if (parted) {
            break;
        }
    }
    if (error == 0) {
        *options = best->options;
        *out = best->result;
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
    int error = try_versions(workload, options, out);
    if (error == 0 && options->settings.gc_threshold > 0 &&
        workload->collected != UINT64_MAX && mismatches(out) != 0) {
        error = try_limits(workload, options, out);
    }
    return error;
}
