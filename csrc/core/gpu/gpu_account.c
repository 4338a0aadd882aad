/* Accounts for the memory of a whole GPU.  See gpu_account.h. */
#include "gpu/gpu_account.h"

/* Values of ML_NOTE_GPU, as recording.h lists them. */
enum {
    USED,
    TOTAL,
    OWN,
    OTHERS,
    RESERVE,
    RESERVED,
    ALLOCATED
};

static bool
has(const ml_note *sample, unsigned value)
{
    return sample->values[value] != ML_NOTE_UNKNOWN;
}

/* A sample with a reason instead has no figures. */
static bool
is_sample(const ml_note *note, int device)
{
    return note->kind == ML_NOTE_GPU && note->device == device && has(note, USED);
}

static int64_t
value(const ml_note *sample, unsigned index)
{
    return (int64_t)sample->values[index];
}

uint64_t
ml_gpu_account_usable(const ml_note *sample)
{
    uint64_t total = sample->values[TOTAL], reserve = sample->values[RESERVE];
    bool known = total != ML_NOTE_UNKNOWN && reserve != ML_NOTE_UNKNOWN;
    return known && reserve < total ? total - reserve : total;
}

static int64_t
outside(const ml_note *sample)
{
    return value(sample, OWN) - value(sample, RESERVED);
}

static int64_t
of_no_process(const ml_note *sample)
{
    return value(sample, USED) - value(sample, OWN) - value(sample, OTHERS);
}

void
ml_gpu_account_mark(ml_gpu_account_marks *marks, const ml_note *sample, bool at_step)
{
    if (marks->start == NULL) {
        marks->start = sample;
    }
    if (marks->step == NULL && at_step) {
        marks->step = sample;
    }
    if (marks->context == NULL && has(sample, OWN) && value(sample, OWN) != 0 &&
        has(sample, OTHERS)) {
        marks->context = sample;
    }
}

static void
set(ml_gpu_account *out, enum ml_gpu_account_line line, int64_t bytes)
{
    out->bytes[line] = bytes;
    out->known[line] = true;
    out->used += bytes;
}

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Memory outside torch at an earlier sample counts to that time as long as it exists.
 * If some was freed, the newest is assumed to be gone. */
static void
set_outside(const ml_gpu_account_marks *marks, const ml_note *sample,
            ml_gpu_account *out)
{
    if (!has(sample, OWN)) {
        return;
    }
    int64_t now = outside(sample), early = 0, first = 0;
    if (marks->start != NULL && has(marks->start, OWN)) {
        early = least(outside(marks->start), now);
        set(out, ML_LINE_outside_at_start, early);
        if (marks->step == NULL || sample->time < marks->step->time) {
            first = now - early;
        }
        else if (has(marks->step, OWN) && outside(marks->step) > early) {
            first = least(outside(marks->step), now) - early;
        }
        set(out, ML_LINE_outside_first_step, first);
    }
    set(out, ML_LINE_outside_later, now - early - first);
}

void
ml_gpu_account_of(const ml_gpu_account_marks *marks, const ml_note *sample,
                  uint64_t time, const ml_totals *torch, ml_gpu_account *out)
{
    *out =
        (ml_gpu_account){.total = sample->values[TOTAL],
                         .reserve = sample->values[RESERVE],
                         .usable = ml_gpu_account_usable(sample),
                         .time = sample->time,
                         .after = (int64_t)(sample->time - time),
                         .moved = (int64_t)torch->reserved - value(sample, RESERVED)};
    set(out, ML_LINE_torch_allocated, (int64_t)torch->allocated);
    set(out, ML_LINE_torch_pending_free, (int64_t)(torch->active - torch->allocated));
    set(out, ML_LINE_torch_cached, (int64_t)(torch->reserved - torch->active));
    set_outside(marks, sample, out);
    if (has(sample, OTHERS)) {
        set(out, ML_LINE_other_processes, value(sample, OTHERS));
    }
    if (marks->context != NULL && has(sample, OWN) && has(sample, OTHERS)) {
        set(out, ML_LINE_driver, of_no_process(marks->context));
    }
    set(out, ML_LINE_unknown, value(sample, USED) + out->moved - out->used);
}

/* Of the notes for which WANTED holds, the first at or after TIME, else the last
 * before; NULL: none. */
static const ml_note *
nearest(const ml_recording *recording, uint64_t time,
        bool (*wanted)(const ml_note *, int), int device)
{
    const ml_note *found = NULL;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (wanted(note, device)) {
            found = note;
            if (note->time >= time) {
                break;
            }
        }
    }
    return found;
}

/* The reason noted instead of samples; 0: none. */
static uint32_t
reason_of(const ml_recording *recording, int device)
{
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_GPU && note->device == device) {
            return note->name;
        }
    }
    return 0;
}

bool
ml_gpu_account_at(const ml_recording *recording, int device, uint64_t time,
                  const ml_totals *torch, ml_gpu_account *out, uint32_t *reason)
{
    const ml_note *sample = nearest(recording, time, is_sample, device);
    if (sample == NULL) {
        *reason = reason_of(recording, device);
        return false;
    }
    ml_gpu_account_marks marks = {0};
    bool stepped = false;
    for (size_t i = 0; i < recording->note_count; i++) {
        stepped |= recording->notes[i].kind == ML_NOTE_STEP;
        if (is_sample(&recording->notes[i], device)) {
            ml_gpu_account_mark(&marks, &recording->notes[i], stepped);
        }
    }
    if (recording->lost_notes > 0) {
        /* The lost notes may include the first samples. */
        marks.start = marks.step = NULL;
    }
    ml_gpu_account_of(&marks, sample, time, torch, out);
    return true;
}

static bool
is_host(const ml_note *note, int device)
{
    (void)device;
    return note->kind == ML_NOTE_HOST;
}

const ml_note *
ml_gpu_account_host_at(const ml_recording *recording, uint64_t time)
{
    return nearest(recording, time, is_host, -1);
}

const char *
ml_gpu_account_line_text(unsigned line)
{
    static const char *const texts[ML_LINE_COUNT] = {
#define XX(name) #name,
        ML_GPU_ACCOUNT_LINES(XX)
#undef XX
    };
    return line < ML_LINE_COUNT ? texts[line] : "";
}
