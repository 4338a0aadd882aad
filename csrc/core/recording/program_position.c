/* Finds the program's position at a time.  See program_position.h.
 *
 * A phase's end belongs to the last open one with its number.  Numbers are unique,
 * except in a forged file.  So for each number, waiting begins or ends are counted, and
 * each note is visited once. */
#include "recording/program_position.h"

#include <string.h>

#include "base/base.h"

typedef struct number_waiting {
    uint64_t number;
    size_t count;
} number_waiting;

/* By number of a phase, how many notes of one kind wait for the other kind. */
typedef struct waiting {
    ml_intern table;
    number_waiting *numbers; /* owned; by id of the table */
    size_t capacity;
} waiting;

typedef struct sought_phase {
    const waiting *among;
    uint64_t number;
} sought_phase;

static bool
has_number(const void *context, uint32_t id)
{
    const sought_phase *phase = context;
    return phase->among->numbers[id].number == phase->number;
}

/* One more of NUMBER waits.  0 or ML_ENOMEM. */
static int
add_waiting(waiting *all, uint64_t number)
{
    sought_phase phase = {all, number};
    uint64_t hash = ml_hash_u64(number);
    uint32_t id;
    if (ml_intern_find(&all->table, hash, has_number, &phase, &id)) {
        all->numbers[id].count++;
        return 0;
    }
    if (ml_grow((void **)&all->numbers, &all->capacity, all->table.count + 1,
                sizeof(*all->numbers)) < 0) {
        return ML_ENOMEM;
    }
    all->numbers[all->table.count] = (number_waiting){number, 1};
    return ml_intern_add(&all->table, hash) < 0 ? ML_ENOMEM : 0;
}

/* Matches one that waits; false: none does. */
static bool
meet(waiting *all, uint64_t number)
{
    sought_phase phase = {all, number};
    uint32_t id;
    if (!ml_intern_find(&all->table, ml_hash_u64(number), has_number, &phase, &id) ||
        all->numbers[id].count == 0) {
        return false;
    }
    all->numbers[id].count--;
    return true;
}

static void
waiting_fini(waiting *all)
{
    ml_intern_fini(&all->table);
    ml_free(all->numbers);
}

/* The last begin among the first COUNT notes that is not ended within them. */
static int
find_begun(const ml_recording *recording, size_t count, const ml_note **found)
{
    waiting ends = {0};
    int result = 0;
    for (size_t i = count; i-- > 0 && result == 0 && *found == NULL;) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_PHASE_END) {
            result = add_waiting(&ends, note->values[0]);
        }
        else if (note->kind == ML_NOTE_PHASE_BEGIN && !meet(&ends, note->values[0])) {
            *found = note;
        }
    }
    waiting_fini(&ends);
    return result;
}

/* The first end from note COUNT on without a begin before it.  Of phases open from the
 * start, the first to end was the last to begin. */
static int
find_early(const ml_recording *recording, size_t count, const ml_note **found)
{
    waiting begins = {0};
    int result = 0;
    for (size_t i = 0; i < recording->note_count && result == 0 && *found == NULL;
         i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_PHASE_BEGIN) {
            result = add_waiting(&begins, note->values[0]);
        }
        else if (note->kind == ML_NOTE_PHASE_END && !meet(&begins, note->values[0]) &&
                 i >= count) {
            *found = note;
        }
    }
    waiting_fini(&begins);
    return result;
}

/* The step after the first COUNT notes. */
static void
find_step(const ml_recording *recording, size_t count, ml_program_position *out)
{
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind != ML_NOTE_STEP) {
            continue;
        }
        if (i < count) {
            out->step = note->values[0] + 1;
        }
        else if (!out->has_steps) {
            /* Overwritten steps leave only their number. */
            out->step = note->values[0];
        }
        out->has_steps = true;
    }
}

int
ml_program_position_at(const ml_recording *recording, uint64_t time,
                       ml_program_position *out)
{
    size_t count = 0;
    while (count < recording->note_count && recording->notes[count].time <= time) {
        count++;
    }
    ml_program_position moment = {0};
    find_step(recording, count, &moment);
    const ml_note *phase = NULL;
    int result = find_begun(recording, count, &phase);
    if (result == 0 && phase == NULL) {
        result = find_early(recording, count, &phase);
    }
    if (result < 0) {
        return result;
    }
    moment.in_phase = phase != NULL;
    moment.phase = phase != NULL ? phase->name : 0;
    *out = moment;
    return 0;
}
