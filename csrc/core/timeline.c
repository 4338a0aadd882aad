/* Where a recording's program was at a time.  See timeline.h. */
#include "timeline.h"

#include <string.h>

#include "base.h"

typedef struct open_phase {
    uint64_t number;
    uint32_t name;
} open_phase;

struct ml_timeline {
    const ml_recording *recording; /* borrowed */
    size_t next;                   /* the first note that has not happened */
    uint64_t step;
    bool has_steps;
    open_phase *open; /* owned; room for all phases of the recording */
    size_t open_count;
};

static void
begin_phase(ml_timeline *timeline, const ml_note *note)
{
    timeline->open[timeline->open_count++] =
        (open_phase){.number = note->values[0], .name = note->name};
}

/* False where it is not open. */
static bool
end_phase(ml_timeline *timeline, uint64_t number)
{
    size_t i = timeline->open_count;
    while (i > 0 && timeline->open[i - 1].number != number) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    size_t behind = timeline->open_count - i;
    memmove(&timeline->open[i - 1], &timeline->open[i], behind * sizeof(open_phase));
    timeline->open_count--;
    return true;
}

/* Phases that end without a begin; of those that end first the last to begin. */
static void
open_the_first(ml_timeline *timeline)
{
    const ml_recording *recording = timeline->recording;
    size_t early = 0;
    open_phase *found = timeline->open + recording->note_count;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_PHASE_BEGIN) {
            begin_phase(timeline, note);
        }
        else if (note->kind == ML_NOTE_PHASE_END &&
                 !end_phase(timeline, note->values[0])) {
            found[-(ptrdiff_t)++early] =
                (open_phase){.number = note->values[0], .name = note->name};
        }
        timeline->has_steps |= note->kind == ML_NOTE_STEP;
    }
    memmove(timeline->open, found - early, early * sizeof(open_phase));
    timeline->open_count = early;
}

int
ml_timeline_new(const ml_recording *recording, ml_timeline **out)
{
    ml_timeline *timeline = ml_alloc_zeroed(1, sizeof(*timeline));
    if (timeline == NULL) {
        return ML_ENOMEM;
    }
    timeline->recording = recording;
    timeline->open = ml_alloc_zeroed(recording->note_count + 1, sizeof(open_phase));
    if (timeline->open == NULL) {
        ml_free(timeline);
        return ML_ENOMEM;
    }
    open_the_first(timeline);
    /* Of steps whose notes had to make room only the numbers are known. */
    for (size_t i = 0; i < recording->note_count; i++) {
        if (recording->notes[i].kind == ML_NOTE_STEP) {
            timeline->step = recording->notes[i].values[0];
            break;
        }
    }
    *out = timeline;
    return 0;
}

void
ml_timeline_free(ml_timeline *timeline)
{
    if (timeline != NULL) {
        ml_free(timeline->open);
        ml_free(timeline);
    }
}

ml_moment
ml_timeline_at(ml_timeline *timeline, uint64_t time)
{
    const ml_recording *recording = timeline->recording;
    while (timeline->next < recording->note_count &&
           recording->notes[timeline->next].time <= time) {
        const ml_note *note = &recording->notes[timeline->next++];
        switch (note->kind) {
        case ML_NOTE_STEP:
            timeline->step = note->values[0] + 1;
            break;
        case ML_NOTE_PHASE_BEGIN:
            begin_phase(timeline, note);
            break;
        case ML_NOTE_PHASE_END:
            end_phase(timeline, note->values[0]);
            break;
        default:
            break;
        }
    }
    ml_moment moment = {.step = timeline->step, .has_steps = timeline->has_steps};
    if (timeline->open_count > 0) {
        moment.in_phase = true;
        moment.phase = timeline->open[timeline->open_count - 1].name;
    }
    return moment;
}

int
ml_notes_at(const ml_recording *recording, uint64_t time, ml_moment *out)
{
    ml_timeline *timeline;
    int result = ml_timeline_new(recording, &timeline);
    if (result == 0) {
        *out = ml_timeline_at(timeline, time);
        ml_timeline_free(timeline);
    }
    return result;
}
