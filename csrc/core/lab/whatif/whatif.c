/* Answers what if.  See whatif.h. */
#include "lab/whatif/whatif.h"

#include <stdio.h>

#include "base/base.h"

/* Driver placements tried: the likeliest, up, down, and random ones. */
#define SHUFFLES 4

static uint64_t
mismatches(const ml_trial_result *result)
{
    return result->mismatched_addresses + result->mismatched_segments +
           result->mismatched_blocks;
}

int
ml_whatif_spread(const ml_workload *workload, const ml_trial_options *options,
                 const ml_trial_result *result, uint64_t enough, uint64_t *low,
                 uint64_t *high)
{
    *low = *high = result->peak.reserved;
    if (options->settings.order != ML_ORDER_ADDRESS || options->recorded_addresses ||
        !result->placed) {
        return 0;
    }
    int error = 0;
    for (unsigned i = 0; i < 2 + SHUFFLES && error == 0; i++) {
        ml_trial_options other = *options;
        ml_trial_result came;
        other.placement = i == 0   ? ML_PLACEMENT_ASCENDING
                          : i == 1 ? ML_PLACEMENT_DESCENDING
                                   : ML_PLACEMENT_SHUFFLED;
        other.seed = i;
        other.enough = enough;
        error = ml_trial_run(workload, &other, &came);
        if (error == 0) {
            *low = came.peak.reserved < *low ? came.peak.reserved : *low;
            *high = came.peak.reserved > *high ? came.peak.reserved : *high;
        }
        if (error == 0 && came.too_much) {
            break;
        }
    }
    return error;
}

int
ml_whatif_range(const ml_workload *workload, const ml_trial_options *options,
                ml_trial_result *result, uint64_t *low, uint64_t *high)
{
    int error = ml_trial_run(workload, options, result);
    return error < 0 ? error
                     : ml_whatif_spread(workload, options, result, 0, low, high);
}

void
ml_whatif_options(const ml_whatif *whatif, uint64_t memory, ml_trial_options *options)
{
    const ml_trial_options *own = &whatif->own;
    ml_allocator_settings *settings = &options->settings;
    options->recorded_addresses = false;
    options->recorded_start = false;
    options->go_on = false;
    options->placement = ML_PLACEMENT_DRIVER;
    options->seed = 0;
    if (memory != ML_WHATIF_RECORDED) {
        options->memory_bytes = memory;
        options->device_bytes = memory;
        /* A process with a limit has this one. */
        if (own->settings.limited &&
            settings->memory_fraction == own->settings.memory_fraction) {
            settings->memory_fraction = 1;
        }
        return;
    }
    options->memory_bytes = own->memory_bytes;
    options->device_bytes = own->device_bytes;
    settings->limited = own->settings.limited;
    settings->memory_fraction = own->settings.memory_fraction;
    /* Of the bounds of a limit, the lower one: that much was certainly available.  A
     * garbage collection gives a better figure. */
    if (settings->limited && whatif->workload->limit == UINT64_MAX &&
        own->settings.gc_threshold <= 0) {
        settings->memory_fraction =
            (double)whatif->workload->peak.reserved / (double)own->device_bytes;
    }
}

int
ml_whatif_freed_soon(const ml_whatif *whatif, uint64_t *peak)
{
    ml_workload *copy;
    ml_trial_options options = whatif->options;
    ml_trial_result result;
    *peak = UINT64_MAX;
    if (whatif->workload->trace->uses_sampled) {
        return 0; /* a bound is no estimate */
    }
    int error = ml_workload_copy(whatif->workload, &copy);
    if (error < 0) {
        return error;
    }
    if (ml_workload_free_at_last_use(copy) != 0) {
        ml_whatif_options(whatif, ML_WHATIF_RECORDED, &options);
        options.memory_bytes = UINT64_MAX;
        options.settings.limited = false;
        error = ml_trial_run(copy, &options, &result);
        *peak = error == 0 ? result.peak.allocated : UINT64_MAX;
    }
    ml_workload_free(copy);
    return error;
}

static int
ask_how_much(char *problem, size_t problem_bytes)
{
    snprintf(problem, problem_bytes,
             "per_process_memory_fraction: of how much? Say how much memory there is");
    return ML_EINVALID;
}

/* The settings of CONF, which starts from those of the same torch. */
static int
parse(ml_whatif *whatif, const char *conf, uint64_t memory, char *problem,
      size_t problem_bytes)
{
    ml_allocator_settings *settings = &whatif->options.settings;
    int error = ml_allocator_settings_default(settings, whatif->own.settings.version);
    if (error == 0) {
        error = ml_allocator_settings_parse(settings, conf, problem, problem_bytes);
    }
    if (error == 0 && settings->limited && memory == ML_WHATIF_RECORDED) {
        error = ask_how_much(problem, problem_bytes);
    }
    return error;
}

/* The limit that was asked for: a fraction of MEMORY, else of the GPU's memory. */
static void
set_fraction(ml_whatif *whatif, uint64_t memory)
{
    ml_trial_options *options = &whatif->options;
    if (whatif->fraction == ML_WHATIF_RECORDED_FRACTION) {
        return;
    }
    options->device_bytes =
        memory == ML_WHATIF_RECORDED ? ml_trial_gpu_memory(whatif->workload) : memory;
    options->memory_bytes = options->device_bytes;
    options->settings.limited = true;
    options->settings.memory_fraction = whatif->fraction;
}

/* Whether the trial's limit is the recorded one, of which only bounds are known. */
static bool
is_limit_inferred(const ml_whatif *whatif)
{
    const ml_trial_options *options = &whatif->options;
    return options->settings.limited && options->memory_bytes == UINT64_MAX &&
           whatif->workload->limit == UINT64_MAX;
}

uint64_t
ml_whatif_memory(const ml_whatif *whatif)
{
    const ml_trial_options *options = &whatif->options;
    if (is_limit_inferred(whatif)) {
        return whatif->workload->peak.reserved;
    }
    double allowed = options->settings.memory_fraction * (double)options->device_bytes;
    return options->settings.limited && allowed < (double)options->memory_bytes
               ? (uint64_t)allowed
               : options->memory_bytes;
}

static void
settle_doubts(ml_whatif *whatif)
{
    uint32_t doubts = whatif->workload->doubts;
    if (!whatif->asked) {
        doubts &= ~(1u << ML_DOUBT_BEFORE | 1u << ML_DOUBT_DEFERRED |
                    1u << ML_DOUBT_UNCERTAIN);
    }
    else if (whatif->workload->failed) {
        doubts |= 1u << ML_DOUBT_FAILED;
    }
    const ml_trial_result *result = &whatif->result;
    bool tight = result->ooms != 0 || result->retries != 0 ||
                 whatif->options.settings.gc_threshold > 0;
    bool matters = tight && (whatif->asked || result->ooms != 0);
    doubts |= (uint32_t)(mismatches(&whatif->check) != 0) << ML_DOUBT_MODEL |
              (uint32_t)(matters && is_limit_inferred(whatif)) << ML_DOUBT_LIMIT |
              (uint32_t)(whatif->low != whatif->high) << ML_DOUBT_ADDRESSES;
    whatif->doubts = doubts;
}

static int
answer(ml_whatif *whatif, bool own_settings, uint64_t memory)
{
    const ml_workload *workload = whatif->workload;
    int error = 0;
    if (whatif->asked) {
        ml_whatif_options(whatif, memory, &whatif->options);
        set_fraction(whatif, memory);
        whatif->options.recorded_start = own_settings;
        error = ml_whatif_range(workload, &whatif->options, &whatif->result,
                                &whatif->low, &whatif->high);
    }
    else {
        whatif->result = whatif->check;
        whatif->low = whatif->high = whatif->result.peak.reserved;
    }
    if (error == 0 && whatif->result.ooms != 0) {
        ml_trial_options options = whatif->options;
        options.settings.limited = false;
        options.settings.memory_fraction = 1;
        options.recorded_addresses = false;
        error = ml_trial_least_memory(workload, &options, &whatif->least_memory);
    }
    settle_doubts(whatif);
    return error;
}

int
ml_whatif_new(const ml_recording *recording, size_t device, const char *conf,
              uint64_t memory, double fraction, ml_whatif **out, char *problem,
              size_t problem_bytes)
{
    if (problem_bytes > 0) {
        problem[0] = '\0';
    }
    ml_whatif *whatif = ml_alloc_zeroed(1, sizeof(*whatif));
    if (whatif == NULL) {
        return ML_ENOMEM;
    }
    whatif->asked = conf != NULL || memory != ML_WHATIF_RECORDED ||
                    fraction != ML_WHATIF_RECORDED_FRACTION;
    whatif->fraction = fraction;
    int error = ml_workload_new(recording, device, &whatif->workload);
    if (error == 0) {
        error = ml_schedule_init(&whatif->schedule, whatif->workload);
    }
    if (error == 0) {
        ml_trial_options_of(whatif->workload, &whatif->own);
        whatif->own.schedule = &whatif->schedule;
        error = ml_trial_check(whatif->workload, &whatif->own, &whatif->check);
    }
    if (error == 0) {
        whatif->options = whatif->own;
        error = conf != NULL ? parse(whatif, conf, memory, problem, problem_bytes) : 0;
    }
    if (error == 0 && fraction != ML_WHATIF_RECORDED_FRACTION &&
        memory == ML_WHATIF_RECORDED && ml_trial_gpu_memory(whatif->workload) == 0) {
        error = ask_how_much(problem, problem_bytes);
    }
    if (error == 0) {
        error = answer(whatif, conf == NULL, memory);
    }
    if (error < 0) {
        ml_whatif_free(whatif);
        return error;
    }
    *out = whatif;
    return 0;
}

int
ml_whatif_of(ml_workload *workload, const ml_trial_options *own,
             const ml_trial_result *check, ml_whatif **out)
{
    ml_whatif *whatif = ml_alloc_zeroed(1, sizeof(*whatif));
    if (whatif == NULL) {
        return ML_ENOMEM;
    }
    *whatif = (ml_whatif){.workload = workload,
                          .borrowed = true,
                          .own = *own,
                          .check = *check,
                          .options = *own,
                          .result = *check,
                          .low = check->peak.reserved,
                          .high = check->peak.reserved};
    settle_doubts(whatif);
    *out = whatif;
    return 0;
}

void
ml_whatif_free(ml_whatif *whatif)
{
    if (whatif != NULL) {
        ml_schedule_fini(&whatif->schedule);
        ml_workload_free(whatif->borrowed ? NULL : whatif->workload);
        ml_free(whatif);
    }
}
