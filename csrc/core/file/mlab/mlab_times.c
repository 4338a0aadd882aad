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

/* By ticks, each once, and time never runs backwards. */
void
mlab_sort_clocks(mlab_reader *reader)
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
    reader->line = (mlab_line){0};
}

/* The line from the last anchor but one that is not above TICKS, or the first. */
static const mlab_line *
line_at(mlab_reader *reader, uint64_t ticks)
{
    const ml_mlab_clock *clocks = reader->clocks;
    mlab_line *line = &reader->line;
    size_t at = line->low;
    if (clocks[at].ticks > ticks || clocks[at + 1].ticks <= ticks) {
        ML_SEARCH(at, reader->clock_count - 2, clocks[at + 1].ticks <= ticks);
    }
    if (at != line->low || line->ticks == 0) {
        uint64_t ns = clocks[at + 1].unix_ns - clocks[at].unix_ns;
        uint64_t length = clocks[at + 1].ticks - clocks[at].ticks;
        *line = (mlab_line){.low = at,
                            .ns = ns,
                            .ticks = length,
                            .whole = ns / length,
                            .part = (uint64_t)(((wide)(ns % length) << 64) / length)};
    }
    return line;
}

/* The line's ns * SINCE / ticks, without a division: the cut part makes it one too low at
 * most, as the rest then says. */
static uint64_t
rise_of(const mlab_line *line, uint64_t since)
{
    uint64_t rise = line->whole * since + (uint64_t)((wide)line->part * since >> 64);
    uint64_t rest = line->ns * since - rise * line->ticks;
    return rise + (rest >= line->ticks);
}

/* On the line through the anchors beside it. */
uint64_t
mlab_unix_ns(mlab_reader *reader, uint64_t ticks)
{
    size_t count = reader->clock_count;
    if (count < 2) {
        return count == 0 ? ticks
                          : reader->clocks[0].unix_ns + ticks - reader->clocks[0].ticks;
    }
    const mlab_line *line = &reader->line;
    const ml_mlab_clock *low = &reader->clocks[line->low];
    if (ticks - low->ticks >= line->ticks) {
        line = line_at(reader, ticks);
        low = &reader->clocks[line->low];
    }
    bool before = ticks < low->ticks;
    uint64_t rise = rise_of(line, before ? low->ticks - ticks : ticks - low->ticks);
    return before ? low->unix_ns - rise : low->unix_ns + rise;
}

void
mlab_tell_times(mlab_reader *reader, ml_event *events, size_t count)
{
    mlab_line line = {0}; /* a copy: events cannot change it */
    uint64_t low_ticks = 0, low_ns = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t since = events[i].time - low_ticks;
        if (since < line.ticks) {
            events[i].time = low_ns + rise_of(&line, since);
            continue;
        }
        events[i].time = mlab_unix_ns(reader, events[i].time);
        if (reader->clock_count >= 2) {
            line = reader->line;
            low_ticks = reader->clocks[line.low].ticks;
            low_ns = reader->clocks[line.low].unix_ns;
        }
    }
}

/* Steps are numbered per process; a recording's begin with 0. */
static int
finish_notes(mlab_reader *reader)
{
    ml_recording *recording = reader->recording;
    ml_note *told = recording->notes;
    size_t count = recording->note_count;
    size_t capacity = 0;
    bool stepped = reader->trim.steps > 0;
    uint64_t first_step = reader->trim.first_step;
    int result = 0;
    recording->notes = NULL;
    recording->note_count = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        told[i].time = mlab_unix_ns(reader, told[i].time);
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
    mlab_sort_clocks(reader);
    if (reader->trims != 0) {
        reader->info->gone_until = mlab_unix_ns(reader, reader->trim.ticks);
    }
    for (size_t d = 0; reader->writer == NULL && d < recording->device_count; d++) {
        ml_device_trace *trace = &recording->devices[d];
        mlab_tell_times(reader, trace->events.plain, trace->event_count);
    }
    int result = finish_notes(reader);
    for (size_t i = 0; i < reader->tag_count && !reader->ordered; i++) {
        reader->tags[i].place = mlab_unix_ns(reader, reader->tags[i].place);
    }
    return result;
}
