/* Variables that hold what nothing reads any more.  See held_variables.h. */
#include "lab/advice/held_variables.h"

#include <string.h>

#include "base/base.h"

/* The demand at ADDR that lives right before event MOMENT; NULL: none. */
static const ml_demand *
find_demand(const ml_workload *workload, uint64_t addr, size_t moment)
{
    for (size_t i = workload->count; i > workload->before_count; i--) {
        const ml_demand *demand = &workload->demands[i - 1];
        if (demand->addr == addr && demand->born < moment) {
            return demand->freed >= moment ? demand : NULL;
        }
    }
    return NULL;
}

/* Whether SAID begins with "NAME of FUNCTION", alone or before a semicolon. */
static bool
is_of(ml_string said, ml_string function)
{
    size_t at = ml_held_variable_name(said) + 4;
    size_t end = at + function.length;
    return end <= said.length &&
           memcmp(said.bytes + at, function.bytes, function.length) == 0 &&
           (end == said.length || said.bytes[end] == ';');
}

/* The frame of STACK at the line that sets the variable of NOTE; 0: none. */
static uint32_t
find_frame(const ml_recording *recording, uint32_t stack, const ml_note *note)
{
    const ml_string *strings = recording->strings;
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        uint32_t frame = recording->stacks[stack].frame;
        const ml_frame *at = &recording->frames[frame];
        if ((uint64_t)at->line == note->values[1] &&
            is_of(strings[note->name], strings[at->name])) {
            return frame;
        }
    }
    return 0;
}

static bool
is_end(const ml_growth_steps *steps, size_t moment)
{
    bool found = false;
    for (size_t i = 0; i < steps->count && !found; i++) {
        found = steps->moments[i] == moment;
    }
    return steps->by == ML_GROWTH_BY_NOTES && found;
}

int
ml_held_variables_find(const ml_analysis *analysis, const ml_workload *workload,
                       ml_held_variables *all)
{
    const ml_recording *recording = analysis->recording;
    size_t room = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        room += note->kind == ML_NOTE_HOLDER && note->values[1] != 0 &&
                note->device == (int32_t)analysis->device;
    }
    if (room == 0) {
        return 0;
    }
    all->list = ml_alloc_zeroed(room, sizeof(*all->list));
    int error =
        all->list == NULL ? ML_ENOMEM : ml_growth_steps_find(analysis, &all->steps);
    for (size_t i = 0; error == 0 && i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind != ML_NOTE_HOLDER || note->values[1] == 0 ||
            note->device != (int32_t)analysis->device) {
            continue;
        }
        size_t moment = ml_device_trace_until(analysis->trace, note->time);
        const ml_demand *demand = find_demand(workload, note->values[0], moment);
        if (demand != NULL && demand->stack != 0) {
            all->list[all->count++] =
                (ml_held_variable){.stack = demand->stack,
                                   .name = note->name,
                                   .frame = find_frame(recording, demand->stack, note),
                                   .ends = is_end(&all->steps, moment)};
        }
    }
    return error;
}

size_t
ml_held_variable_name(ml_string said)
{
    size_t length = 0;
    while (length + 4 <= said.length && memcmp(said.bytes + length, " of ", 4) != 0) {
        length++;
    }
    return length + 4 <= said.length ? length : said.length;
}

void
ml_held_variables_fini(ml_held_variables *all)
{
    ml_free(all->list);
    ml_growth_steps_fini(&all->steps);
}

const ml_held_variable *
ml_held_variable_of(const ml_held_variables *all, const ml_demand *demand)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i].stack == demand->stack) {
            return &all->list[i];
        }
    }
    return NULL;
}

bool
ml_held_variable_ends(const ml_held_variables *all, const ml_held_variable *of,
                      const ml_demand *demand, size_t *until)
{
    const ml_growth_steps *steps = &all->steps;
    size_t step = ml_growth_step_of(steps, demand->born);
    if (!of->ends || step == steps->count || demand->freed < steps->moments[step] ||
        (step + 1 < steps->count && demand->freed >= steps->moments[step + 1])) {
        return false;
    }
    *until = steps->moments[step];
    return true;
}
