/* Makes the rows of one part of a difference.  See difference_rows.h.
 *
 * A unit is a site with its partner, or one without; rows are the sums of units. */
#include "compare/diff/difference_rows.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "base/base.h"

typedef struct unit {
    uint32_t site[2]; /* ML_NO_SITE: none */
    ml_two two;
    bool moved;   /* enum ml_change would be MOVED */
    uint8_t rule; /* enum ml_match_rule */
} unit;

/* What a row represents; without padding, because it is compared as bytes. */
typedef struct key {
    int64_t line[2];
    uint32_t file[2]; /* texts */
    uint32_t function[2];
    uint32_t module;
    uint8_t backward;
    uint8_t category;
    uint8_t no_line;
    uint8_t no_module;
} key;

typedef struct sum {
    key of;
    ml_two two;
    int64_t kinds[ML_CATEGORY_COUNT]; /* differences of bytes; they wrap if sizes do */
    uint64_t greatest;                /* of the units' differences */
    const unit *shown;                /* of the greatest */
    uint8_t phase;
    uint8_t rule;
    bool has[2]; /* the side has sites */
    bool all_moved;
} sum;

/* Sums by key, in the order of the keys' first appearance. */
typedef struct unit_sums {
    ml_intern table;
    sum *items; /* owned */
    size_t count;
    size_t capacity;
} unit_sums;

typedef struct difference_rows_work {
    const ml_difference_view *view;
    ml_difference_part *part;
    unit *units; /* owned */
    size_t unit_count;
} difference_rows_work;

static uint64_t
magnitude(const ml_two *two)
{
    return two->bytes[0] > two->bytes[1] ? two->bytes[0] - two->bytes[1]
                                         : two->bytes[1] - two->bytes[0];
}

static void
add_two(ml_two *to, const ml_two *from)
{
    for (unsigned side = 0; side < 2; side++) {
        to->bytes[side] += from->bytes[side];
        to->blocks[side] += from->blocks[side];
    }
}

/* ---- Units ---- */

static uint64_t
most_of(const ml_site_live *live)
{
    return live->most_before > live->most_after ? live->most_before : live->most_after;
}

static void
add_unit(difference_rows_work *w, uint32_t before, uint32_t after, uint8_t rule)
{
    unit *u = &w->units[w->unit_count++];
    *u = (unit){.site = {before, after}, .rule = rule};
    for (unsigned side = 0; side < 2; side++) {
        if (u->site[side] != ML_NO_SITE) {
            u->two.bytes[side] = w->view->live[side][u->site[side]].bytes;
            u->two.blocks[side] = w->view->live[side][u->site[side]].blocks;
        }
    }
    u->moved = !w->view->no_moves && before != ML_NO_SITE && after != ML_NO_SITE &&
               most_of(&w->view->live[0][before]) == most_of(&w->view->live[1][after]);
}

static void
list_units(difference_rows_work *w)
{
    const ml_match *match = w->view->match;
    for (size_t i = 0; i < w->view->sites[0]->count; i++) {
        add_unit(w, (uint32_t)i, match->partner[0][i], match->rule[0][i]);
    }
    for (size_t i = 0; i < w->view->sites[1]->count; i++) {
        if (match->partner[1][i] == ML_NO_SITE) {
            add_unit(w, ML_NO_SITE, (uint32_t)i, ML_MATCH_NONE);
        }
    }
}

/* How the memory of U, which moved, moved. */
static enum ml_move
move_of(const difference_rows_work *w, const unit *u)
{
    bool more = u->two.bytes[1] > u->two.bytes[0];
    /* Whether the side with less at its instant had as much before. */
    const ml_site_live *less = &w->view->live[more ? 0 : 1][u->site[more ? 0 : 1]];
    bool had = less->most_before >= u->two.bytes[more ? 1 : 0];
    return more ? (had ? ML_MOVE_FREED_LATER : ML_MOVE_ALLOCATED_EARLIER)
                : (had ? ML_MOVE_FREED_EARLIER : ML_MOVE_ALLOCATED_LATER);
}

/* ---- Sums ---- */

typedef struct key_query {
    const unit_sums *all;
    const key *of;
} key_query;

static bool
same_key(const void *context, uint32_t id)
{
    const key_query *query = context;
    return memcmp(&query->all->items[id].of, query->of, sizeof(key)) == 0;
}

/* The sum for OF; NULL: no memory. */
static sum *
sum_of(unit_sums *all, const key *of)
{
    uint64_t hash = ml_hash_bytes(of, sizeof(*of));
    key_query query = {all, of};
    uint32_t id;
    if (ml_intern_find(&all->table, hash, same_key, &query, &id)) {
        return &all->items[id];
    }
    if (ml_grow((void **)&all->items, &all->capacity, all->count + 1,
                sizeof(*all->items)) < 0 ||
        ml_intern_add(&all->table, hash) < 0) {
        return NULL;
    }
    all->items[all->count] = (sum){.of = *of, .all_moved = true};
    return &all->items[all->count++];
}

static void
sums_fini(unit_sums *all)
{
    ml_intern_fini(&all->table);
    ml_free(all->items);
}

/* The key of U's row: its line on both sides, if its line has one on the other side,
 * even if the site itself has none. */
static key
line_key(const difference_rows_work *w, const unit *u)
{
    const ml_match *match = w->view->match;
    uint32_t at[2] = {u->site[0], u->site[1]};
    if (at[0] == ML_NO_SITE) {
        at[0] = match->beside[1][at[1]];
    }
    else if (at[1] == ML_NO_SITE) {
        at[1] = match->beside[0][at[0]];
    }
    key of = {.backward = 0};
    for (unsigned side = 0; side < 2; side++) {
        if (at[side] != ML_NO_SITE) {
            const ml_site_key *site = &w->view->sites[side]->items[at[side]].key;
            of.file[side] = site->file;
            of.function[side] = site->function;
            of.line[side] = site->line;
        }
        if (u->site[side] != ML_NO_SITE) {
            const ml_site_key *site = &w->view->sites[side]->items[u->site[side]].key;
            of.backward = site->backward;
            of.category = site->category;
            of.no_line = site->no_line;
        }
    }
    return of;
}

static key
module_key(const difference_rows_work *w, const unit *u)
{
    unsigned side = u->site[1] != ML_NO_SITE;
    const ml_site_key *site = &w->view->sites[side]->items[u->site[side]].key;
    return (key){.module = site->module, .no_module = site->no_module};
}

static void
add_unit_to(const difference_rows_work *w, sum *to, const unit *u)
{
    add_two(&to->two, &u->two);
    for (unsigned side = 0; side < 2; side++) {
        if (u->site[side] == ML_NO_SITE) {
            continue;
        }
        const ml_site_live *live = &w->view->live[side][u->site[side]];
        to->has[side] = true;
        for (unsigned i = 0; i < ML_CATEGORY_COUNT; i++) {
            uint64_t was = (uint64_t)to->kinds[i];
            to->kinds[i] = (int64_t)(side == 0 ? was - live->of[i] : was + live->of[i]);
        }
        to->phase = w->view->sites[side]->items[u->site[side]].phase;
    }
    if (u->two.bytes[0] != u->two.bytes[1]) {
        uint64_t now = magnitude(&u->two);
        to->all_moved = to->all_moved && u->moved;
        to->rule = u->rule > to->rule ? u->rule : to->rule;
        if (to->shown == NULL || now > to->greatest) {
            to->greatest = now;
            to->shown = u;
        }
    }
}

static int
add_up(const difference_rows_work *w, unit_sums *by_line, unit_sums *by_module)
{
    ml_difference_part *part = w->part;
    for (size_t i = 0; i < w->unit_count; i++) {
        const unit *u = &w->units[i];
        key of = line_key(w, u);
        sum *line = sum_of(by_line, &of);
        if (line == NULL) {
            return ML_ENOMEM;
        }
        add_unit_to(w, line, u);
        of = module_key(w, u);
        sum *module = sum_of(by_module, &of);
        if (module == NULL) {
            return ML_ENOMEM;
        }
        add_two(&module->two, &u->two);
        add_two(&part->whole, &u->two);
    }
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < w->view->sites[side]->count; i++) {
            const uint64_t *of = w->view->live[side][i].of;
            for (unsigned k = 0; k < ML_CATEGORY_COUNT; k++) {
                part->categories[k].bytes[side] += of[k];
            }
        }
    }
    return 0;
}

/* ---- The answer ---- */

static int
compare_sizes(const ml_two *a, const ml_two *b)
{
    uint64_t x = magnitude(a);
    uint64_t y = magnitude(b);
    return x != y ? (x > y ? -1 : 1) : 0;
}

/* A line's place now, or its earlier one. */
static const ml_difference_place *
place_of(const ml_difference_line *line)
{
    return &line->at[line->at[1].file.length != 0];
}

static int
compare_lines(const void *a, const void *b)
{
    const ml_difference_line *x = a;
    const ml_difference_line *y = b;
    const ml_difference_place *p = place_of(x);
    const ml_difference_place *q = place_of(y);
    int order = compare_sizes(&x->two, &y->two);
    if (order == 0) {
        order = ml_code_place_compare((ml_code_place){p->file, p->line, p->function},
                                      (ml_code_place){q->file, q->line, q->function});
    }
    order = order != 0 ? order : (int)x->category - (int)y->category;
    order = order != 0 ? order : (int)x->phase - (int)y->phase;
    order = order != 0 ? order : (int)x->change - (int)y->change;
    return order != 0 ? order : (int)x->no_line - (int)y->no_line;
}

static int
compare_modules(const void *a, const void *b)
{
    const ml_difference_module *x = a;
    const ml_difference_module *y = b;
    int order = compare_sizes(&x->two, &y->two);
    order = order != 0 ? order : ml_string_compare(x->module, y->module);
    return order != 0 ? order : (int)x->no_module - (int)y->no_module;
}

/* The category of the most of the difference of SUMMED. */
static uint8_t
category_of(const sum *summed)
{
    bool more = summed->two.bytes[1] > summed->two.bytes[0];
    uint8_t best = 0;
    uint64_t most = 0;
    for (uint8_t i = 0; i < ML_CATEGORY_COUNT; i++) {
        uint64_t part = (uint64_t)summed->kinds[i];
        part = more ? part : 0 - part;
        if (part <= INT64_MAX && part > most) {
            most = part;
            best = i;
        }
    }
    return most != 0 ? best : ML_CATEGORY_UNKNOWN;
}

static enum ml_change
change_of(const sum *summed)
{
    if (!summed->has[0] && summed->of.file[0] == 0) {
        return ML_CHANGE_APPEARED;
    }
    if (!summed->has[1] && summed->of.file[1] == 0) {
        return ML_CHANGE_GONE;
    }
    if (summed->all_moved) {
        return ML_CHANGE_MOVED;
    }
    return summed->two.bytes[1] > summed->two.bytes[0] ? ML_CHANGE_GREW
                                                       : ML_CHANGE_SHRANK;
}

static ml_difference_line
line_of(const difference_rows_work *w, const sum *from)
{
    const ml_string_pool *texts = w->view->texts;
    ml_difference_line line = {.two = from->two,
                               .change = (uint8_t)change_of(from),
                               .rule = from->rule,
                               .category = category_of(from),
                               .phase = from->phase,
                               .no_line = from->of.no_line};
    for (unsigned side = 0; side < 2; side++) {
        line.at[side] =
            (ml_difference_place){.file = texts->items[from->of.file[side]],
                                  .function = texts->items[from->of.function[side]],
                                  .line = from->of.line[side]};
    }
    if (line.change == ML_CHANGE_MOVED) {
        line.move = (uint8_t)move_of(w, from->shown);
    }
    return line;
}

/* The modules of what differs, for the lines that BY_LINE has in their order. */
static int
name_modules(const difference_rows_work *w, unit_sums *by_line, const uint32_t *places)
{
    int result = 0;
    for (size_t i = 0; i < w->unit_count && result == 0; i++) {
        const unit *u = &w->units[i];
        key of = line_key(w, u);
        const sum *line = sum_of(by_line, &of); /* there */
        uint32_t place = places[line - by_line->items];
        if (place != 0 && u->two.bytes[0] != u->two.bytes[1]) {
            of = module_key(w, u);
            ml_string name = w->view->texts->items[of.module];
            result = name.length == 0
                         ? 0
                         : ml_module_note(&w->part->lines[place - 1].module, name);
        }
    }
    return result;
}

static int
fill_lines(const difference_rows_work *w, unit_sums *by_line)
{
    ml_difference_part *part = w->part;
    part->lines = ml_alloc_zeroed(by_line->count + 1, sizeof(*part->lines));
    uint32_t *places = ml_alloc_zeroed(by_line->count + 1, sizeof(uint32_t));
    int result = part->lines == NULL || places == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; result == 0 && i < by_line->count; i++) {
        if (magnitude(&by_line->items[i].two) != 0) {
            part->lines[part->line_count++] = line_of(w, &by_line->items[i]);
            places[i] = (uint32_t)part->line_count;
        }
    }
    if (result == 0) {
        result = name_modules(w, by_line, places);
    }
    ml_free(places);
    if (result == 0) {
        qsort(part->lines, part->line_count, sizeof(*part->lines), compare_lines);
    }
    return result;
}

static int
fill_modules(const difference_rows_work *w, const unit_sums *by_module)
{
    ml_difference_part *part = w->part;
    part->modules = ml_alloc_zeroed(by_module->count + 1, sizeof(*part->modules));
    if (part->modules == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < by_module->count; i++) {
        const sum *from = &by_module->items[i];
        if (magnitude(&from->two) != 0) {
            part->modules[part->module_count++] =
                (ml_difference_module){.module = w->view->texts->items[from->of.module],
                                       .no_module = from->of.no_module,
                                       .two = from->two};
        }
    }
    qsort(part->modules, part->module_count, sizeof(*part->modules), compare_modules);
    return 0;
}

int
ml_difference_rows(const ml_difference_view *view, ml_difference_part *part)
{
    unit_sums by_line = {0}, by_module = {0};
    difference_rows_work w = {
        .view = view,
        .part = part,
        .units = ml_alloc_zeroed(view->sites[0]->count + view->sites[1]->count + 1,
                                 sizeof(unit))};
    int result = w.units == NULL ? ML_ENOMEM : 0;
    if (result == 0) {
        list_units(&w);
        result = add_up(&w, &by_line, &by_module);
    }
    if (result == 0) {
        result = fill_lines(&w, &by_line);
    }
    if (result == 0) {
        result = fill_modules(&w, &by_module);
    }
    sums_fini(&by_line);
    sums_fini(&by_module);
    ml_free(w.units);
    return result;
}

void
ml_difference_part_fini(ml_difference_part *part)
{
    for (size_t i = 0; part->lines != NULL && i < part->line_count; i++) {
        ml_free(part->lines[i].module);
    }
    ml_free(part->lines);
    ml_free(part->modules);
}
