/* Converts the ticks of a .mlab file to unix ns by its clocks.  See mlab_parts.h. */
#include <stdlib.h>

#include "file/mlab/mlab_parts.h"
#include "recording/side_data.h"

__extension__ typedef unsigned __int128 wide;

static int
compare_clocks(const void *a, const void *b)
{
    uint64_t left = ((const ml_mlab_clock *)a)->ticks;
    uint64_t right = ((const ml_mlab_clock *)b)->ticks;
    return (left > right) - (left < right);
}

/* By ticks, without duplicates; time never runs backwards. */
static void
sort_clocks(mlab_reader *reader)
{
    if (reader->clock_count == 0) {
        return;
    }
    qsort(reader->clocks, reader->clock_count, sizeof(*reader->clocks), compare_clocks);
    size_t count = 0;
    for (size_t i = 0; i < reader->clock_count; i++) {
        const ml_mlab_clock *clock = &reader->clocks[i];
        const ml_mlab_clock *last = count > 0 ? &reader->clocks[count - 1] : NULL;
        if (last == NULL ||
            (clock->ticks > last->ticks && clock->unix_ns >= last->unix_ns)) {
            reader->clocks[count++] = *clock;
        }
    }
    reader->clock_count = count;
}

/* The last anchor, except the very last, that is not above TICKS, or the first; *NEAR
 * has the previous result. */
static size_t
anchor_below(const mlab_reader *reader, uint64_t ticks, size_t *near)
{
    const ml_mlab_clock *clocks = reader->clocks;
    size_t at = *near;
    if (clocks[at].ticks > ticks || clocks[at + 1].ticks <= ticks) {
        ML_SEARCH(at, reader->clock_count - 2, clocks[at + 1].ticks <= ticks);
    }
    *near = at;
    return at;
}

/* NS * SINCE / TICKS; if 64 bits hold the product, the division is faster. */
static uint64_t
share_of(uint64_t ns, uint64_t since, uint64_t ticks)
{
    uint64_t product;
    return __builtin_mul_overflow(ns, since, &product)
               ? (uint64_t)((wide)ns * since / ticks)
               : product / ticks;
}

/* On the line through the neighbouring anchors. */
static uint64_t
unix_ns(const mlab_reader *reader, uint64_t ticks, size_t *near)
{
    size_t count = reader->clock_count;
    if (count < 2) {
        return count == 0 ? ticks
                          : reader->clocks[0].unix_ns + ticks - reader->clocks[0].ticks;
    }
    size_t at = anchor_below(reader, ticks, near);
    const ml_mlab_clock *low = &reader->clocks[at];
    const ml_mlab_clock *high = &reader->clocks[at + 1];
    bool before = ticks < low->ticks;
    uint64_t since = before ? low->ticks - ticks : ticks - low->ticks;
    uint64_t rise =
        share_of(high->unix_ns - low->unix_ns, since, high->ticks - low->ticks);
    return before ? low->unix_ns - rise : low->unix_ns + rise;
}

/* Steps are numbered per process; a recording's begin with 0. */
static int
finish_notes(mlab_reader *reader, size_t *near)
{
    ml_recording *recording = reader->recording;
    ml_note *told = recording->notes;
    size_t count = recording->note_count;
    size_t capacity = 0;
    bool stepped = false;
    uint64_t first_step = 0;
    int result = 0;
    recording->notes = NULL;
    recording->note_count = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        told[i].time = unix_ns(reader, told[i].time, near);
        result = ml_recording_add_note(recording, &capacity, &told[i]);
        if (result == ML_EFORMAT) {
            /* memlab writes them in order. */
            reader->info->unread_records++;
            result = 0;
        }
        else if (result == 0 && told[i].kind == ML_NOTE_STEP) {
            first_step = stepped ? first_step : told[i].values[0];
            stepped = true;
            recording->notes[recording->note_count - 1].values[0] -= first_step;
        }
    }
    ml_free(told);
    return result;
}

int
mlab_finish_times(mlab_reader *reader)
{
    ml_recording *recording = reader->recording;
    size_t near = 0;
    int result = 0;
    sort_clocks(reader);
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        ml_device_trace *trace = &recording->devices[d];
        ml_event_editor editor;
        ml_event_editor_init(&editor, &trace->events, 0, ML_EVENT_BIT(time));
        for (size_t i = 0; i < trace->event_count; i++) {
            ml_event *event = ml_event_editor_at(&editor, i);
            event->time = unix_ns(reader, event->time, &near);
        }
        result = ml_event_editor_end(&editor);
    }
    result = result == 0 ? finish_notes(reader, &near) : result;
    for (size_t i = 0; i < reader->tag_count && !reader->ordered; i++) {
        reader->tags[i].place = unix_ns(reader, reader->tags[i].place, &near);
    }
    return result;
}
