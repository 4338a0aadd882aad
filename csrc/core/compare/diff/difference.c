/* What of one device's memory is more than of another's.  See difference.h. */
#include "compare/diff/difference.h"

#include <string.h>

#include "base/base.h"
#include "compare/diff/difference_rows.h"

/* Of a phase that has no enum ml_phase: a named one. */
#define NAMED ML_PHASE_COUNT

typedef struct difference_work {
    const ml_difference_ask *ask;
    ml_string_pool texts;
    ml_sites sites[2];
    ml_match match;
    ml_difference *made; /* owned */
    size_t part_capacity;
} difference_work;

/* The events of a step of a side, or of all: from FIRST up to before LAST. */
typedef struct span {
    size_t first;
    size_t last;
} span;

/* ---- Instants ---- */

/* What the events that count must be of. */
typedef struct filter {
    unsigned phase; /* enum ml_phase, or NAMED */
    ml_string name; /* of a named one */
} filter;

/* How many phases of NAME are open, moved on to TIME. */
static void
move_on(const ml_recording *recording, ml_string name, uint64_t time, size_t *note,
        size_t *open)
{
    for (; *note < recording->note_count && recording->notes[*note].time <= time;
         (*note)++) {
        const ml_note *now = &recording->notes[*note];
        bool begins = now->kind == ML_NOTE_PHASE_BEGIN;
        if ((begins || now->kind == ML_NOTE_PHASE_END) &&
            ml_string_compare(recording->strings[now->name], name) == 0) {
            *open = begins ? *open + 1 : *open - (*open > 0);
        }
    }
}

/* The first instant in IN of the most allocated bytes that FILTER lets through; false:
 * there is none. */
static bool
find_most(const ml_sites *sites, const filter *through, span in, uint64_t *position)
{
    const ml_recording *recording = sites->recording;
    const ml_events *events = &sites->analysis->trace->events;
    bool found = false;
    uint64_t most = 0;
    *position = in.first;
    size_t note = 0, open = 0;
    for (size_t i = in.first; i < in.last; i++) {
        /* Of what allocates nothing the phase is unknown. */
        bool counts = sites->phase[i] == through->phase;
        if (through->phase == NAMED) {
            move_on(recording, through->name, ml_events_time(events, i), &note, &open);
            counts = ml_events_action(events, i) == ML_ACTION_ALLOC && open > 0;
        }
        if (counts && (!found || sites->allocated[i] > most)) {
            found = true;
            most = sites->allocated[i];
            *position = i + 1;
        }
    }
    return found;
}

/* The step around POSITION. */
static span
step_at(const ml_sites *sites, uint64_t position)
{
    size_t count = sites->event_count;
    size_t event = position == 0 ? 0 : (size_t)position - 1;
    span in = {event, event};
    while (in.first > 0 && sites->step[in.first - 1] == sites->step[event]) {
        in.first--;
    }
    while (in.last < count && sites->step[in.last] == sites->step[event]) {
        in.last++;
    }
    return in;
}

static ml_difference_instant
describe(const ml_sites *sites, uint64_t position)
{
    ml_difference_instant at = {
        .known = true, .position = position, .phase = ML_PHASE_UNKNOWN};
    if (sites->event_count != 0) {
        size_t event = position == 0 ? 0 : (size_t)position - 1;
        at.time = ml_events_time(&sites->analysis->trace->events, event);
        at.step = sites->step[event];
        at.phase = position == 0 ? ML_PHASE_UNKNOWN : sites->phase[event];
    }
    return at;
}

/* ---- Parts ---- */

/* Whether both instants are of one course of events, where what is more at the later
 * one came since then; two steps are compared as if each were a run. */
static bool
one_course(const ml_difference_ask *ask)
{
    return ask->sides[0].recording == ask->sides[1].recording &&
           ask->sides[0].device == ask->sides[1].device && !ask->one_step;
}

static int
add_part(difference_work *w, ml_string phase, const ml_difference_instant at[2])
{
    ml_difference *made = w->made;
    int result = ml_grow((void **)&made->parts, &w->part_capacity, made->part_count + 1,
                         sizeof(*made->parts));
    if (result < 0) {
        return result;
    }
    ml_difference_part *part = &made->parts[made->part_count++];
    *part = (ml_difference_part){.phase = phase, .at = {at[0], at[1]}};
    ml_site_live *live[2] = {NULL, NULL};
    for (unsigned side = 0; side < 2 && result == 0; side++) {
        if (at[side].known) {
            span in = step_at(&w->sites[side], at[side].position);
            result = ml_sites_live(&w->sites[side], (size_t)at[side].position, in.first,
                                   in.last, &live[side]);
        }
    }
    if (result == 0 && at[0].known && at[1].known) {
        ml_difference_view view = {.texts = &w->texts,
                                   .sites = {&w->sites[0], &w->sites[1]},
                                   .match = &w->match,
                                   .live = {live[0], live[1]},
                                   .no_moves = one_course(w->ask)};
        result = ml_difference_rows(&view, part);
    }
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; live[side] != NULL && result == 0 &&
                           i < w->sites[side].count && !(at[0].known && at[1].known);
             i++) {
            part->whole.bytes[side] += live[side][i].bytes;
            part->whole.blocks[side] += live[side][i].blocks;
        }
        ml_free(live[side]);
    }
    return result;
}

static int
add_instant(difference_work *w)
{
    ml_difference_instant at[2];
    for (unsigned side = 0; side < 2; side++) {
        uint64_t position = w->ask->sides[side].position;
        const ml_sites *sites = &w->sites[side];
        if (position == ML_DIFFERENCE_PEAK) {
            position = sites->analysis->peak;
        }
        at[side] = describe(sites, position);
    }
    return add_part(w, (ml_string){.bytes = ""}, at);
}

static int
add_phase(difference_work *w, const filter *through, ml_string name)
{
    ml_difference_instant at[2] = {{0}, {0}};
    for (unsigned side = 0; side < 2; side++) {
        const ml_sites *sites = &w->sites[side];
        span in = {0, sites->event_count};
        if (w->ask->one_step) {
            in = step_at(sites, w->made->parts[0].at[side].position);
        }
        uint64_t position;
        if (find_most(sites, through, in, &position)) {
            at[side] = describe(sites, position);
        }
    }
    return at[0].known || at[1].known ? add_part(w, name, at) : 0;
}

static bool
has_name(const ml_string *names, size_t count, ml_string name)
{
    for (size_t i = 0; i < count; i++) {
        if (ml_string_compare(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* The names of phases of both sides, in the order in which they begin. */
static size_t
list_names(difference_work *w, ml_string names[ML_DIFFERENCE_PHASES_MAX])
{
    size_t count = 0;
    for (unsigned side = 0; side < 2; side++) {
        const ml_recording *recording = w->ask->sides[side].recording;
        for (size_t i = 0; i < recording->note_count; i++) {
            ml_string name = recording->strings[recording->notes[i].name];
            if (recording->notes[i].kind != ML_NOTE_PHASE_BEGIN ||
                has_name(names, count, name)) {
                continue;
            }
            if (count == ML_DIFFERENCE_PHASES_MAX) {
                w->made->phases_left_out++;
                continue;
            }
            names[count++] = name;
        }
    }
    return count;
}

static int
add_phases(difference_work *w)
{
    static const uint8_t phases[] = {ML_PHASE_FORWARD, ML_PHASE_BACKWARD,
                                     ML_PHASE_OPTIMIZER};
    int result = 0;
    for (size_t i = 0; i < sizeof(phases) && result == 0; i++) {
        filter through = {.phase = phases[i]};
        const char *text = ml_phase_text(phases[i]);
        result = add_phase(
            w, &through, (ml_string){.bytes = text, .length = (uint32_t)strlen(text)});
    }
    ml_string names[ML_DIFFERENCE_PHASES_MAX];
    size_t count = result == 0 ? list_names(w, names) : 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        filter through = {.phase = NAMED, .name = names[i]};
        result = add_phase(w, &through, names[i]);
    }
    return result;
}

/* ---- The whole ---- */

/* A number of what a side says: the sides are looked at in the order of these, so
 * that what is left open between two answers is decided alike whichever of them
 * comes first. */
static uint64_t
digest(const ml_difference_side *side)
{
    const ml_recording *recording = side->recording;
    const ml_device_trace *trace = &recording->devices[side->device];
    uint64_t hash = trace->event_count;
    for (size_t i = 0; i < recording->string_count; i++) {
        ml_string text = recording->strings[i];
        hash = ml_hash_u64(hash ^ ml_hash_bytes(text.bytes, text.length));
    }
    for (size_t i = 0; i < recording->frame_count; i++) {
        hash = ml_hash_u64(hash ^ (uint64_t)recording->frames[i].line);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        hash = ml_hash_u64(hash ^ ml_events_size(&trace->events, i) ^
                           ml_events_addr(&trace->events, i) << 1);
    }
    return hash;
}

static void
turn(ml_match *match)
{
    ml_match was = *match;
    for (unsigned side = 0; side < 2; side++) {
        match->partner[side] = was.partner[!side];
        match->beside[side] = was.beside[!side];
        match->rule[side] = was.rule[!side];
    }
}

static int
fill(difference_work *w)
{
    const ml_difference_side *sides = w->ask->sides;
    unsigned first = digest(&sides[0]) > digest(&sides[1]);
    int result = 0;
    for (unsigned i = 0; i < 2 && result == 0; i++) {
        unsigned side = i == 0 ? first : !first;
        result = ml_sites_init(&w->sites[side], &w->texts, sides[side].recording,
                               sides[side].device);
    }
    if (result == 0) {
        result = ml_match_init(&w->match, &w->texts, &w->sites[first],
                               &w->sites[!first], w->ask->same_code);
    }
    if (result == 0 && first == 1) {
        turn(&w->match);
    }
    if (result == 0) {
        result = add_instant(w);
    }
    if (result == 0 && w->ask->phases) {
        result = add_phases(w);
    }
    return result;
}

static bool
exists(const ml_difference_side *side)
{
    return side->device < side->recording->device_count &&
           (side->position == ML_DIFFERENCE_PEAK ||
            side->position <= side->recording->devices[side->device].event_count);
}

int
ml_difference_new(const ml_difference_ask *ask, ml_difference **out)
{
    if (!exists(&ask->sides[0]) || !exists(&ask->sides[1])) {
        return ML_EINVALID;
    }
    difference_work w = {.ask = ask, .made = ml_alloc_zeroed(1, sizeof(ml_difference))};
    int result = w.made == NULL ? ML_ENOMEM : ml_string_pool_init(&w.texts);
    if (result == 0) {
        result = fill(&w);
    }
    ml_match_fini(&w.match);
    ml_sites_fini(&w.sites[0]);
    ml_sites_fini(&w.sites[1]);
    ml_string_pool_fini(&w.texts);
    if (result < 0) {
        ml_difference_free(w.made);
        return result;
    }
    *out = w.made;
    return 0;
}

void
ml_difference_free(ml_difference *difference)
{
    if (difference == NULL) {
        return;
    }
    for (size_t i = 0; i < difference->part_count; i++) {
        ml_difference_part_fini(&difference->parts[i]);
    }
    ml_free(difference->parts);
    ml_free(difference);
}

const char *
ml_change_text(unsigned change)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_CHANGES(XX)
#undef XX
    };
    return change < ML_CHANGE_COUNT ? texts[change] : "";
}

const char *
ml_move_text(unsigned move)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_MOVES(XX)
#undef XX
    };
    return move < ML_MOVE_COUNT ? texts[move] : "";
}
