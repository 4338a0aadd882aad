/* Computes the difference of two devices' memory.  See difference.h. */
#include "compare/diff/difference.h"

#include <string.h>

#include "base/base.h"
#include "compare/diff/difference_rows.h"

typedef struct difference_work {
    const ml_difference_ask *ask;
    ml_string_pool texts;
    ml_sites sites[2];
    ml_match match;
    ml_difference *made; /* owned */
    size_t part_capacity;
} difference_work;

/* The events of a side's step, or of all steps: from FIRST to before LAST. */
typedef struct span {
    size_t first;
    size_t last;
} span;

/* ---- Instants ---- */

/* The step around POSITION. */
static span
step_at(const ml_sites *sites, uint64_t position)
{
    if (sites->event_count == 0) {
        return (span){0, 0};
    }
    size_t step = ml_sites_step(sites, position == 0 ? 0 : (size_t)position - 1);
    bool last = step + 1 == sites->step_count;
    return (span){sites->steps[step].event,
                  last ? sites->event_count : sites->steps[step + 1].event};
}

/* Events to look through, and the places of notes among them. */
typedef struct stretch {
    span in;
    size_t *noted; /* owned; by note, the first event after it */
} stretch;

static int
find_notes(stretch *over, const ml_sites *sites)
{
    const ml_recording *recording = sites->recording;
    const ml_events *events = &sites->analysis->trace->events;
    over->noted = ml_alloc_zeroed(recording->note_count + 1, sizeof(size_t));
    if (over->noted == NULL) {
        return ML_ENOMEM;
    }
    size_t at = over->in.first;
    for (size_t note = 0; note < recording->note_count; note++) {
        at = ml_events_reach(events, over->in.last, at, recording->notes[note].time);
        over->noted[note] = at;
    }
    return 0;
}

/* The first instant of the most allocated bytes. */
typedef struct most {
    bool found;
    uint64_t bytes;
    uint64_t position;
} most;

static void
take_most(most *out, const ml_lifetime *begun)
{
    if (!out->found || begun->allocated > out->bytes) {
        *out = (most){true, begun->allocated, begun->birth};
    }
}

/* By enum ml_phase.  Of allocations only: the phase of other events is unknown. */
static void
find_phases(const ml_sites *sites, span in, most out[ML_PHASE_COUNT])
{
    const ml_analysis *analysis = sites->analysis;
    const ml_lifetimes *lifetimes = &analysis->lifetimes;
    size_t i;
    ML_SEARCH(i, lifetimes->count, lifetimes->rows[i].start <= in.first);
    for (; i < lifetimes->count && lifetimes->rows[i].start <= in.last; i++) {
        const ml_lifetime *row = &lifetimes->rows[i];
        if (row->birth != 0 && ml_lifetimes_is_first(lifetimes, i)) {
            take_most(&out[ml_causes_phase(analysis->causes, analysis->device,
                                           row->birth - 1)],
                      row);
        }
    }
}

static void
look_through(const ml_sites *sites, span in, most *out)
{
    for (size_t i = in.first; i < in.last; i++) {
        const ml_lifetime *begun = ml_sites_begun(sites, i);
        if (begun != NULL) {
            take_most(out, begun);
        }
    }
}

/* In the phases of that NAME. */
static most
find_named(const ml_sites *sites, ml_string name, const stretch *over)
{
    const ml_recording *recording = sites->recording;
    most out = {0};
    size_t open = 0;
    size_t from = over->in.first;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        bool begins = note->kind == ML_NOTE_PHASE_BEGIN;
        if ((!begins && note->kind != ML_NOTE_PHASE_END) ||
            ml_string_compare(recording->strings[note->name], name) != 0) {
            continue;
        }
        if (open > 0) {
            look_through(sites, (span){from, over->noted[i]}, &out);
        }
        from = over->noted[i];
        open = begins ? open + 1 : open - (open > 0);
    }
    if (open > 0) {
        look_through(sites, (span){from, over->in.last}, &out);
    }
    return out;
}

static ml_difference_instant
describe(const ml_sites *sites, uint64_t position)
{
    ml_difference_instant at = {
        .known = true, .position = position, .phase = ML_PHASE_UNKNOWN};
    if (sites->event_count != 0) {
        size_t event = position == 0 ? 0 : (size_t)position - 1;
        at.time = ml_events_time(&sites->analysis->trace->events, event);
        at.step = sites->steps[ml_sites_step(sites, event)].step;
        at.phase = position == 0 ? (uint8_t)ML_PHASE_UNKNOWN
                                 : (uint8_t)ml_sites_phase(sites, event);
    }
    return at;
}

/* ---- Parts ---- */

/* Whether both instants are in one course of events, where additional memory at the
 * later instant came in between.  Two steps are compared like two runs. */
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
add_phase(difference_work *w, ml_string name, most first, most second)
{
    const most found[2] = {first, second};
    ml_difference_instant at[2] = {{0}, {0}};
    for (unsigned side = 0; side < 2; side++) {
        if (found[side].found) {
            at[side] = describe(&w->sites[side], found[side].position);
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

/* The names of both sides' phases, in the order of their starts. */
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
add_each(difference_work *w, const stretch over[2])
{
    static const uint8_t phases[] = {ML_PHASE_FORWARD, ML_PHASE_BACKWARD,
                                     ML_PHASE_OPTIMIZER};
    most of[2][ML_PHASE_COUNT] = {0};
    for (unsigned side = 0; side < 2; side++) {
        find_phases(&w->sites[side], over[side].in, of[side]);
    }
    int result = 0;
    for (size_t i = 0; i < sizeof(phases) && result == 0; i++) {
        const char *text = ml_phase_text(phases[i]);
        ml_string name = {.bytes = text, .length = (uint32_t)strlen(text)};
        result = add_phase(w, name, of[0][phases[i]], of[1][phases[i]]);
    }
    ml_string names[ML_DIFFERENCE_PHASES_MAX];
    size_t count = result == 0 ? list_names(w, names) : 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = add_phase(w, names[i], find_named(&w->sites[0], names[i], &over[0]),
                           find_named(&w->sites[1], names[i], &over[1]));
    }
    return result;
}

static int
add_phases(difference_work *w)
{
    stretch over[2] = {{{0, 0}, NULL}, {{0, 0}, NULL}};
    int result = 0;
    for (unsigned side = 0; side < 2 && result == 0; side++) {
        const ml_sites *sites = &w->sites[side];
        over[side].in = (span){0, sites->event_count};
        if (w->ask->one_step) {
            over[side].in = step_at(sites, w->made->parts[0].at[side].position);
        }
        result = find_notes(&over[side], sites);
    }
    if (result == 0) {
        result = add_each(w, over);
    }
    ml_free(over[0].noted);
    ml_free(over[1].noted);
    return result;
}

/* ---- The whole ---- */

static int
compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int
compare_texts(const ml_recording *a, const ml_recording *b)
{
    int order = compare_numbers(a->string_count, b->string_count);
    for (size_t i = 0; i < a->string_count && order == 0; i++) {
        order = ml_string_compare(a->strings[i], b->strings[i]);
    }
    if (order == 0) {
        order = compare_numbers(a->frame_count, b->frame_count);
    }
    for (size_t i = 0; i < a->frame_count && order == 0; i++) {
        order =
            compare_numbers((uint64_t)a->frames[i].line, (uint64_t)b->frames[i].line);
    }
    return order;
}

static int
compare_events(const ml_device_trace *x, const ml_device_trace *y)
{
    int order = 0;
    for (size_t i = 0; i < x->event_count && order == 0; i += ML_EVENTS_CHUNK) {
        uint64_t sizes[2][ML_EVENTS_CHUNK];
        uint64_t addrs[2][ML_EVENTS_CHUNK];
        size_t count = ml_events_get_column(&x->events, x->event_count, i,
                                            ML_EVENT_MEMBER_size, sizes[0]);
        ml_events_get_column(&y->events, x->event_count, i, ML_EVENT_MEMBER_size,
                             sizes[1]);
        ml_events_get_column(&x->events, x->event_count, i, ML_EVENT_MEMBER_addr,
                             addrs[0]);
        ml_events_get_column(&y->events, x->event_count, i, ML_EVENT_MEMBER_addr,
                             addrs[1]);
        for (size_t k = 0; k < count && order == 0; k++) {
            order = compare_numbers(sizes[0][k], sizes[1][k]);
            order = order == 0 ? compare_numbers(addrs[0][k], addrs[1][k]) : order;
        }
    }
    return order;
}

/* The sides are looked at in this order, so that what is left open between two answers is
 * decided alike whichever of them comes first, and in each process. */
static int
compare_sides(const ml_difference_side *a, const ml_difference_side *b)
{
    const ml_device_trace *x = &a->recording->devices[a->device];
    const ml_device_trace *y = &b->recording->devices[b->device];
    int order = x == y ? 0 : compare_numbers(x->event_count, y->event_count);
    if (order == 0 && a->recording != b->recording) {
        order = compare_texts(a->recording, b->recording);
    }
    return order == 0 && x != y ? compare_events(x, y) : order;
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
fill_difference(difference_work *w)
{
    const ml_difference_side *sides = w->ask->sides;
    unsigned first = compare_sides(&sides[0], &sides[1]) > 0;
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
        result = fill_difference(&w);
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
    static const char *const texts[] = {ML_CHANGES(ML_LISTED_TEXT)};
    return change < ML_CHANGE_COUNT ? texts[change] : "";
}

const char *
ml_move_text(unsigned move)
{
    static const char *const texts[] = {ML_MOVES(ML_LISTED_TEXT)};
    return move < ML_MOVE_COUNT ? texts[move] : "";
}
