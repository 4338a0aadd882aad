/* Who holds what grows, as notes tell it: a search in the program made them.  See growth.h. */
#include "analysis/answers/growth_parts.h"

/* Whether LINE made the block at ADDR before the first event, and it was there at
 * MOMENT. */
static bool
made_earlier(const growth_work *f, const found *line, uint64_t addr, size_t moment)
{
    const ml_analysis *a = f->analysis;
    const ml_recording *recording = a->recording;
    size_t row = ml_lifetimes_earlier(&a->lifetimes, addr);
    if (row == SIZE_MAX ||
        moment >= ml_lifetime_last(&a->lifetimes, &a->lifetimes.rows[row])->requested) {
        return false;
    }
    uint32_t stack = ml_lifetimes_request(&a->lifetimes, row).stack;
    const ml_frame *frame =
        &recording->frames[ml_causes_before(a->causes, stack).frame];
    const ml_kept *made = &f->kept.list[line->first];
    return frame->line == made->line &&
           ml_string_compare(recording->strings[frame->filename], made->file) == 0 &&
           ml_string_compare(recording->strings[frame->name], made->function) == 0;
}

/* Whether LINE has the block at NOTE's address at its time. */
static bool
is_named(const growth_work *f, const found *line, const ml_note *note)
{
    const ml_lifetimes *lifetimes = &f->analysis->lifetimes;
    size_t moment = ml_device_trace_until(f->analysis->trace, note->time);
    if (made_earlier(f, line, note->values[0], moment)) {
        return true;
    }
    for (size_t i = line->first; i < line->end; i++) {
        const ml_lifetime *life = &lifetimes->rows[f->kept.list[i].row];
        if (ml_events_addr(&lifetimes->trace->events, life->birth - 1) ==
                note->values[0] &&
            life->birth <= moment &&
            moment < ml_lifetime_last(lifetimes, life)->requested) {
            return true;
        }
    }
    return false;
}

void
ml_growth_name_holder(const growth_work *f, found *line)
{
    const ml_recording *recording = f->analysis->recording;
    for (size_t i = recording->note_count; i > 0 && line->line.holder == 0; i--) {
        const ml_note *note = &recording->notes[i - 1];
        if (note->kind == ML_NOTE_HOLDER && note->values[1] == 0 &&
            note->device == (int32_t)f->analysis->device && is_named(f, line, note)) {
            line->line.holder = note->name;
        }
    }
}

bool
ml_growing_is_garbage(const ml_recording *recording, const ml_growing *growing)
{
    /* The name is of memlab/_run/growing.py. */
    static const char cycle[] = "a reference cycle";
    ml_string holder = recording->strings[growing->holder];
    return holder.length == sizeof(cycle) - 1 &&
           memcmp(holder.bytes, cycle, holder.length) == 0;
}
