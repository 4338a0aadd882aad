/* Samples the memory of the host and of whole GPUs.  See sampler.h. */
#include "record/sampler.h"

#include <string.h>

#include "base/system/clock.h"
#include "base/system/this_process.h"
#include "gpu/gpu_memory.h"
#include "record/registry.h"

/* torch's totals may move while the driver is asked: then it is asked again. */
#define ATTEMPTS 3

static bool
has_gpus(const ml_source *source)
{
    return strcmp(source->name, "cuda") == 0;
}

/* ---- One sample ---- */

void
ml_sampler_host(const ml_source *source, uint64_t values[ML_NOTE_VALUES])
{
    for (unsigned i = 0; i < ML_NOTE_VALUES; i++) {
        values[i] = 0;
    }
    values[0] = ml_this_process_resident();
    if (source->pinned != NULL &&
        source->pinned(source->self, &values[1], &values[2]) < 0) {
        values[1] = values[2] = ML_NOTE_UNKNOWN;
    }
}

/* Both are of one instant if torch's totals are the same before and after. */
static int
read_device(const ml_source *source, int device, ml_totals *torch, ml_gpu_memory *gpu,
            const char **reason)
{
    ml_totals before, peak;
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        if (source->totals(source->self, device, &before, &peak) < 0) {
            *reason = source->error(source->self);
            return ML_ESOURCE;
        }
        int result = ml_gpu_memory_read(device, gpu, reason);
        if (result < 0) {
            return result;
        }
        if (source->totals(source->self, device, torch, &peak) < 0) {
            *reason = source->error(source->self);
            return ML_ESOURCE;
        }
        if (torch->reserved == before.reserved) {
            break;
        }
    }
    return 0;
}

static void
keep_mark(const ml_note **mark, ml_note *kept)
{
    if (*mark != NULL && *mark != kept) {
        *kept = **mark;
        *mark = kept;
    }
}

/* A note of DEVICE, with torch's totals; all unknown, with *REASON, if it cannot be
 * read. */
static int
sample_device(const ml_source *source, int device, ml_note *note, ml_totals *torch,
              const char **reason)
{
    ml_gpu_memory gpu;
    *note = (ml_note){.kind = ML_NOTE_GPU, .device = device};
    int result = read_device(source, device, torch, &gpu, reason);
    if (result < 0) {
        memset(note->values, 0xff, sizeof(note->values));
        return result;
    }
    const uint64_t values[ML_NOTE_VALUES] = {
        gpu.used,    gpu.total,       gpu.own,         gpu.others,
        gpu.reserve, torch->reserved, torch->allocated};
    memcpy(note->values, values, sizeof(values));
    /* Notes get their final time later; marks need only the order. */
    note->time = ml_clock_steady_ns();
    ml_sampled_device *sampled = &ml_registered.sampler.devices[device];
    ml_gpu_account_mark(&sampled->marks, note, ml_registered.sampler.steps > 0);
    keep_mark(&sampled->marks.start, &sampled->start);
    keep_mark(&sampled->marks.step, &sampled->step);
    keep_mark(&sampled->marks.context, &sampled->context);
    return 0;
}

static void
note_device(const ml_source *source, int device)
{
    ml_note note;
    ml_totals torch;
    const char *reason = NULL;
    int result = sample_device(source, device, &note, &torch, &reason);
    if (result == ML_ESTATE) {
        /* The context is given back for a while; there will be something to note
         * then. */
        return;
    }
    if (result < 0) {
        ml_registered.sampler.devices[device].failed = true;
        ml_recorder_note(source, &note, reason, reason != NULL ? strlen(reason) : 0);
        return;
    }
    ml_recorder_note(source, &note, NULL, 0);
}

/* ALL: also devices without a context, which this process has not used. */
static void
sample(const ml_source *source, bool all)
{
    uint64_t began = ml_clock_steady_ns();
    ml_note host = {.kind = ML_NOTE_HOST, .device = -1};
    ml_sampler_host(source, host.values);
    ml_recorder_note(source, &host, NULL, 0);
    int count = has_gpus(source) ? source->device_count(source->self) : 0;
    for (int i = 0; i < count && i < ML_DEVICE_MAX; i++) {
        if (!ml_registered.sampler.devices[i].failed &&
            (all || ml_gpu_memory_has_context(i))) {
            note_device(source, i);
        }
    }
    ml_registered.sampler.last_ns = ml_clock_steady_ns();
    ml_registered.sampler.cost_ns = ml_registered.sampler.last_ns - began;
}

/* ---- When ---- */

static bool
has_new_peak(const ml_source *source)
{
    bool grew = false;
    int count = source->device_count(source->self);
    for (int i = 0; i < count && i < ML_DEVICE_MAX; i++) {
        ml_totals current, peak;
        ml_sampled_device *sampled = &ml_registered.sampler.devices[i];
        if (source->totals(source->self, i, &current, &peak) == 0) {
            grew |= peak.allocated > sampled->peak;
            /* It falls if the program resets torch's peaks. */
            sampled->peak = peak.allocated;
        }
    }
    return grew;
}

void
ml_sampler_begin(const ml_source *source)
{
    pthread_mutex_lock(&ml_registered.sampler.lock);
    ml_registered.sampler.steps = 0;
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_registered.sampler.devices[i].failed = false;
    }
    sample(source, true);
    pthread_mutex_unlock(&ml_registered.sampler.lock);
}

void
ml_sampler_step(const ml_source *source)
{
    /* A sample in progress in another thread suffices. */
    if (!ml_recorder_enabled(source) ||
        pthread_mutex_trylock(&ml_registered.sampler.lock) != 0) {
        return;
    }
    uint64_t passed = ml_clock_steady_ns() - ml_registered.sampler.last_ns;
    ml_registered.sampler.steps++;
    bool peak = has_gpus(source) && has_new_peak(source);
    bool rested = passed >= ML_SAMPLER_REST * ml_registered.sampler.cost_ns &&
                  passed >= ML_SAMPLER_REST_NS;
    if (ml_registered.sampler.steps <= ML_SAMPLER_STEPS || rested ||
        (peak && passed >= ML_SAMPLER_PEAK_REST * ml_registered.sampler.cost_ns)) {
        sample(source, false);
    }
    pthread_mutex_unlock(&ml_registered.sampler.lock);
}

void
ml_sampler_read(const ml_source *source)
{
    pthread_mutex_lock(&ml_registered.sampler.lock);
    sample(source, false);
    pthread_mutex_unlock(&ml_registered.sampler.lock);
}

/* A thread that the child lacks may have held the lock. */
void
ml_sampler_forked(void)
{
    pthread_mutex_init(&ml_registered.sampler.lock, NULL);
}

int
ml_sampler_account(const ml_source *source, int device, ml_gpu_account *out,
                   const char **reason)
{
    ml_note note;
    ml_totals torch;
    pthread_mutex_lock(&ml_registered.sampler.lock);
    int result = sample_device(source, device, &note, &torch, reason);
    if (result == 0) {
        ml_gpu_account_of(&ml_registered.sampler.devices[device].marks, &note,
                          note.time, &torch, out);
    }
    pthread_mutex_unlock(&ml_registered.sampler.lock);
    return result;
}
