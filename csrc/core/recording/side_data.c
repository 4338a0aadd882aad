/* Adds a recording's side data.  See side_data.h. */
#include "recording/side_data.h"

#include <string.h>

#include "base/base.h"

/* The search is linear; torch has about twenty. */
#define SETTINGS_MOST 1000u

int
ml_recording_add_setting(ml_recording *recording, size_t *capacity,
                         const ml_setting *setting)
{
    if (setting->kind == '\0' || strchr("bifsd", setting->kind) == NULL) {
        return ML_EFORMAT;
    }
    for (size_t i = 0; i < recording->setting_count; i++) {
        if (recording->settings[i].key == setting->key) {
            recording->settings[i] = *setting;
            return 0;
        }
    }
    if (recording->setting_count >= SETTINGS_MOST) {
        return ML_EFORMAT;
    }
    if (ml_grow((void **)&recording->settings, capacity, recording->setting_count + 1,
                sizeof(*setting)) < 0) {
        return ML_ENOMEM;
    }
    recording->settings[recording->setting_count++] = *setting;
    return 0;
}

int
ml_recording_add_note(ml_recording *recording, size_t *capacity, const ml_note *note)
{
    size_t count = recording->note_count;
    if (count > 0 && note->time < recording->notes[count - 1].time) {
        return ML_EFORMAT;
    }
    if (ml_grow((void **)&recording->notes, capacity, count + 1, sizeof(*note)) < 0) {
        return ML_ENOMEM;
    }
    recording->notes[recording->note_count++] = *note;
    return 0;
}

int
ml_device_trace_add_tag(ml_device_trace *trace, size_t *capacity, const ml_tag *tag)
{
    size_t count = trace->tag_count;
    if (tag->position > trace->event_count ||
        (count > 0 && tag->position < trace->tags[count - 1].position)) {
        return ML_EFORMAT;
    }
    if (ml_grow((void **)&trace->tags, capacity, count + 1, sizeof(*tag)) < 0) {
        return ML_ENOMEM;
    }
    trace->tags[trace->tag_count++] = *tag;
    return 0;
}

int
ml_device_trace_add_use(ml_device_trace *trace, size_t *capacity, const ml_use *use)
{
    size_t count = trace->use_count;
    if (use->position > trace->event_count ||
        (count > 0 && use->addr <= trace->uses[count - 1].addr)) {
        return ML_EFORMAT;
    }
    if (ml_grow((void **)&trace->uses, capacity, count + 1, sizeof(*use)) < 0) {
        return ML_ENOMEM;
    }
    trace->uses[trace->use_count++] = *use;
    return 0;
}
