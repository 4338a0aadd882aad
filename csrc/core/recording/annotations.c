/* Makes the annotations of a recording from its notes.  See annotations.h. */
#include "recording/annotations.h"

#include <string.h>

#include "base/base.h"

/* torch's callback and memlab's run one after the other for a region.  Between them the
 * thread may wait for a processor, and the clocks' readings differ.  The region's own
 * sequence tells it from the next one of its name, which may be nearer. */
#define SAME_NS UINT64_C(100000000)

/* Stages that a note shows as; a mark is an instant: both. */
static unsigned
stages(const ml_note *note, uint8_t ends[2])
{
    switch (note->kind) {
    case ML_NOTE_PHASE_BEGIN:
    case ML_NOTE_REGION_BEGIN:
        ends[0] = 0;
        return 1;
    case ML_NOTE_PHASE_END:
    case ML_NOTE_REGION_END:
        ends[0] = 1;
        return 1;
    case ML_NOTE_MARK:
        ends[0] = 0;
        ends[1] = 1;
        return 2;
    default:
        return 0;
    }
}

static bool
same_region(const ml_recording *recording, const ml_note *note,
            const ml_annotation *torchs)
{
    uint8_t kind = torchs->end ? ML_NOTE_REGION_END : ML_NOTE_REGION_BEGIN;
    const ml_string *a = &recording->strings[note->name];
    const ml_string *b = &recording->strings[torchs->name];
    return note->kind == kind && a->length == b->length &&
           memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* Marks in TAKEN, one byte per note, the notes that torch has too.  Either recorder may
 * have begun first, so regions of a name are paired from the last one back. */
static void
find_torchs(const ml_recording *recording, char *taken)
{
    size_t last = recording->note_count;
    for (size_t i = recording->annotation_count; i-- > 0;) {
        const ml_annotation *torchs = &recording->annotations[i];
        while (last > 0 && (taken[last - 1] ||
                            recording->notes[last - 1].time > torchs->time + SAME_NS)) {
            last--;
        }
        for (size_t k = last; k > 0; k--) {
            const ml_note *note = &recording->notes[k - 1];
            if (note->time + SAME_NS < torchs->time) {
                break;
            }
            if (!taken[k - 1] && same_region(recording, note, torchs)) {
                taken[k - 1] = 1;
                break;
            }
        }
    }
}

/* Both lists are sorted by time; at equal times torch's come first. */
static size_t
merge(const ml_recording *recording, const char *taken, ml_annotation *out)
{
    size_t count = 0, torchs = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        uint8_t ends[2];
        unsigned shown = taken[i] ? 0 : stages(note, ends);
        for (unsigned k = 0; k < shown; k++) {
            while (torchs < recording->annotation_count &&
                   recording->annotations[torchs].time <= note->time) {
                out[count++] = recording->annotations[torchs++];
            }
            /* torch's schema has no annotation without a device. */
            out[count++] =
                (ml_annotation){.time = note->time,
                                .name = note->name,
                                .device = note->device < 0 ? 0 : note->device,
                                .end = ends[k]};
        }
    }
    while (torchs < recording->annotation_count) {
        out[count++] = recording->annotations[torchs++];
    }
    return count;
}

int
ml_annotations_add_notes(ml_recording *recording)
{
    if (recording->note_count == 0) {
        return 0;
    }
    char *taken = ml_alloc_zeroed(recording->note_count, 1);
    ml_annotation *merged = ml_alloc_zeroed(
        recording->annotation_count + 2 * recording->note_count, sizeof(*merged));
    if (taken == NULL || merged == NULL) {
        ml_free(taken);
        ml_free(merged);
        return ML_ENOMEM;
    }
    find_torchs(recording, taken);
    recording->annotation_count = merge(recording, taken, merged);
    ml_free(recording->annotations);
    recording->annotations = merged;
    ml_free(taken);
    return 0;
}
