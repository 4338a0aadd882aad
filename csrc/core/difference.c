/* Why one peak is higher than another.  See difference.h.
 *
 * Texts of both sides get ids of their own; blocks are summed by what says all of a line
 * and its module, and these sums by line and by module. */
#include "difference.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "peak_groups.h"

/* What one block is of; without padding, to be compared as bytes. */
typedef struct key {
    int64_t line;
    uint32_t file; /* texts */
    uint32_t function;
    uint32_t module;
    uint8_t category;
    uint8_t phase;
    uint8_t no_line;
    uint8_t no_module;
} key;

typedef struct sum {
    key of;
    ml_two two;
} sum;

/* Sums by key, in the order in which the keys came first. */
typedef struct sums {
    ml_intern table;
    sum *items; /* owned */
    size_t count;
    size_t capacity;
} sums;

typedef struct work {
    ml_intern table;
    ml_string *texts; /* owned; text 0 is empty */
    size_t text_count;
    size_t text_capacity;
    uint32_t *text_of; /* owned; of the strings of one side: text + 1; 0: not asked */
    sums all;
    ml_difference *made; /* owned */
} work;

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

/* ---- Texts ---- */

typedef struct text_query {
    const work *w;
    ml_string text;
} text_query;

static bool
same_text(const void *context, uint32_t id)
{
    const text_query *query = context;
    return ml_string_compare(query->w->texts[id], query->text) == 0;
}

static int
find_text(work *w, ml_string text, uint32_t *id)
{
    uint64_t hash = ml_hash_bytes(text.bytes, text.length);
    text_query query = {w, text};
    if (ml_intern_find(&w->table, hash, same_text, &query, id)) {
        return 0;
    }
    int result = ml_grow((void **)&w->texts, &w->text_capacity, w->text_count + 1,
                         sizeof(*w->texts));
    if (result == 0) {
        result = ml_intern_add(&w->table, hash);
    }
    if (result == 0) {
        *id = (uint32_t)w->text_count;
        w->texts[w->text_count++] = text;
    }
    return result;
}

static int
text_of(work *w, const ml_recording *recording, uint32_t string, uint32_t *text)
{
    uint32_t *known = &w->text_of[string];
    if (*known == 0) {
        int result = find_text(w, recording->strings[string], text);
        if (result < 0) {
            return result;
        }
        *known = *text + 1;
    }
    *text = *known - 1;
    return 0;
}

/* ---- Sums ---- */

typedef struct key_query {
    const sums *all;
    const key *of;
} key_query;

static bool
same_key(const void *context, uint32_t id)
{
    const key_query *query = context;
    return memcmp(&query->all->items[id].of, query->of, sizeof(key)) == 0;
}

/* Where OF is summed; NULL: no memory. */
static sum *
sum_of(sums *all, const key *of)
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
    all->items[all->count] = (sum){.of = *of};
    return &all->items[all->count++];
}

static void
sums_fini(sums *all)
{
    ml_intern_fini(&all->table);
    ml_free(all->items);
}

static int
key_of(work *w, const ml_recording *recording, const ml_peak_block *block, key *of)
{
    const ml_cause *cause = &block->cause;
    *of = (key){.category = block->verdict.category,
                .phase = cause->phase,
                .no_line = cause->no_line,
                .no_module = cause->no_module};
    int result = text_of(w, recording, cause->module, &of->module);
    if (result == 0 && cause->how != ML_HOW_NONE) {
        const ml_frame *frame = &recording->frames[cause->frame];
        of->line = frame->line;
        result = text_of(w, recording, frame->filename, &of->file);
        if (result == 0) {
            result = text_of(w, recording, frame->name, &of->function);
        }
    }
    return result;
}

static int
add_side(work *w, const ml_recording *recording, const ml_peak *peak, unsigned side)
{
    w->text_of = ml_alloc_zeroed(recording->string_count, sizeof(uint32_t));
    int result = w->text_of == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < peak->block_count && result == 0; i++) {
        const ml_peak_block *block = &peak->blocks[i];
        key of;
        result = key_of(w, recording, block, &of);
        sum *to = result == 0 ? sum_of(&w->all, &of) : NULL;
        if (to == NULL) {
            result = ML_ENOMEM;
            break;
        }
        to->two.bytes[side] += block->size;
        to->two.blocks[side]++;
    }
    ml_free(w->text_of);
    w->text_of = NULL;
    return result;
}

/* ---- The answer ---- */

/* PATTERN, which may be NULL, that fits NAME too; owned by the caller.  0 or ML_ENOMEM. */
static int
fit(char **pattern, ml_string name)
{
    if (name.length == 0) {
        return 0;
    }
    if (*pattern != NULL) {
        ml_module_widen(*pattern, name);
        return 0;
    }
    /* Room for ".*" behind. */
    *pattern = ml_alloc_zeroed((size_t)name.length + 3, 1);
    if (*pattern == NULL) {
        return ML_ENOMEM;
    }
    memcpy(*pattern, name.bytes, name.length);
    return 0;
}

static int
compare_sizes(const ml_two *a, const ml_two *b)
{
    uint64_t x = magnitude(a);
    uint64_t y = magnitude(b);
    return x != y ? (x > y ? -1 : 1) : 0;
}

static int
compare_lines(const void *a, const void *b)
{
    const ml_difference_line *x = a;
    const ml_difference_line *y = b;
    int order = compare_sizes(&x->two, &y->two);
    order = order != 0 ? order : ml_string_compare(x->file, y->file);
    if (order == 0 && x->line != y->line) {
        order = x->line < y->line ? -1 : 1;
    }
    order = order != 0 ? order : ml_string_compare(x->function, y->function);
    order = order != 0 ? order : (int)x->category - (int)y->category;
    order = order != 0 ? order : (int)x->phase - (int)y->phase;
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

/* The sums of ALL by what KEEP leaves of their keys. */
static int
fold(const sums *all, void (*keep)(key *of), sums *folded)
{
    for (size_t i = 0; i < all->count; i++) {
        key of = all->items[i].of;
        keep(&of);
        sum *to = sum_of(folded, &of);
        if (to == NULL) {
            return ML_ENOMEM;
        }
        add_two(&to->two, &all->items[i].two);
    }
    return 0;
}

static void
keep_line(key *of)
{
    of->module = 0;
    of->no_module = 0;
}

static void
keep_module(key *of)
{
    *of = (key){.module = of->module, .no_module = of->no_module};
}

/* The modules of what differs in ALL, for the lines that BY_LINE has in their order. */
static int
name_modules(const work *w, sums *by_line, const uint32_t *places)
{
    int result = 0;
    for (size_t i = 0; i < w->all.count && result == 0; i++) {
        const sum *part = &w->all.items[i];
        key of = part->of;
        keep_line(&of);
        const sum *line = sum_of(by_line, &of); /* there */
        uint32_t place = places[line - by_line->items];
        if (place != 0 && magnitude(&part->two) != 0) {
            result = fit(&w->made->lines[place - 1].module, w->texts[part->of.module]);
        }
    }
    return result;
}

static int
fill_lines(work *w, sums *by_line)
{
    ml_difference *made = w->made;
    made->lines = ml_alloc_zeroed(by_line->count + 1, sizeof(*made->lines));
    uint32_t *places = ml_alloc_zeroed(by_line->count + 1, sizeof(uint32_t));
    int result = made->lines == NULL || places == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; result == 0 && i < by_line->count; i++) {
        const sum *from = &by_line->items[i];
        if (magnitude(&from->two) != 0) {
            made->lines[made->line_count++] =
                (ml_difference_line){.file = w->texts[from->of.file],
                                     .function = w->texts[from->of.function],
                                     .line = from->of.line,
                                     .two = from->two,
                                     .category = from->of.category,
                                     .phase = from->of.phase,
                                     .no_line = from->of.no_line};
            places[i] = (uint32_t)made->line_count;
        }
    }
    if (result == 0) {
        result = name_modules(w, by_line, places);
    }
    ml_free(places);
    if (result == 0) {
        qsort(made->lines, made->line_count, sizeof(*made->lines), compare_lines);
    }
    return result;
}

static int
fill_modules(const work *w, const sums *by_module)
{
    ml_difference *made = w->made;
    made->modules = ml_alloc_zeroed(by_module->count + 1, sizeof(*made->modules));
    if (made->modules == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < by_module->count; i++) {
        const sum *from = &by_module->items[i];
        if (magnitude(&from->two) != 0) {
            made->modules[made->module_count++] =
                (ml_difference_module){.module = w->texts[from->of.module],
                                       .no_module = from->of.no_module,
                                       .two = from->two};
        }
    }
    qsort(made->modules, made->module_count, sizeof(*made->modules), compare_modules);
    return 0;
}

static int
fill(work *w)
{
    sums by_line = {0}, by_module = {0};
    for (size_t i = 0; i < w->all.count; i++) {
        const sum *part = &w->all.items[i];
        add_two(&w->made->whole, &part->two);
        add_two(&w->made->categories[part->of.category], &part->two);
    }
    int result = fold(&w->all, keep_line, &by_line);
    if (result == 0) {
        result = fold(&w->all, keep_module, &by_module);
    }
    if (result == 0) {
        result = fill_lines(w, &by_line);
    }
    if (result == 0) {
        result = fill_modules(w, &by_module);
    }
    sums_fini(&by_line);
    sums_fini(&by_module);
    return result;
}

int
ml_difference_new(const ml_recording *of_before, const ml_peak *before,
                  const ml_recording *of_after, const ml_peak *after,
                  ml_difference **out)
{
    uint32_t empty;
    work w = {.made = ml_alloc_zeroed(1, sizeof(ml_difference))};
    int result = w.made == NULL ? ML_ENOMEM : 0;
    if (result == 0) {
        result = find_text(&w, (ml_string){.bytes = ""}, &empty);
    }
    if (result == 0) {
        result = add_side(&w, of_before, before, 0);
    }
    if (result == 0) {
        result = add_side(&w, of_after, after, 1);
    }
    if (result == 0) {
        result = fill(&w);
    }
    ml_intern_fini(&w.table);
    ml_free(w.texts);
    sums_fini(&w.all);
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
    for (size_t i = 0; i < difference->line_count; i++) {
        ml_free(difference->lines[i].module);
    }
    ml_free(difference->lines);
    ml_free(difference->modules);
    ml_free(difference);
}
