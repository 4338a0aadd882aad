/* Pairs the sites of two recordings.  See match.h. */
#include "compare/diff/match.h"

#include <stdlib.h>

#include "base/base.h"
#include "compare/diff/match_lines.h"

typedef struct entry {
    uint64_t key;
    uint32_t site;
} entry;

typedef struct match_work {
    ml_match *match;
    const ml_string_pool *texts;
    const ml_sites *sites[2];
    /* By site: its pair of lines, from 1 on; 0: its line has no partner; WITHOUT: no
     * line. */
    uint32_t *pair[2];
    uint8_t *has_module[2]; /* by text */
} match_work;

#define WITHOUT UINT32_MAX

/* The properties by which a round pairs sites. */
enum {
    BY_PAIR = 0x01, /* by lines, which they must have */
    BY_MODULE = 0x02,
    BY_OPERATION = 0x04,
    BY_SIZE = 0x08,
    BY_FUNCTION = 0x10,
    ONLY_NEW = 0x20, /* with a module that the other side lacks */
    WITH_MODULE = 0x40
};

static const unsigned rounds[] = {
    BY_PAIR | BY_MODULE | BY_OPERATION,
    BY_PAIR | BY_MODULE,
    BY_PAIR | ONLY_NEW | BY_OPERATION | BY_SIZE,
    BY_PAIR | ONLY_NEW | BY_OPERATION,
    BY_FUNCTION | BY_MODULE | BY_OPERATION | WITH_MODULE,
    BY_MODULE | BY_OPERATION | WITH_MODULE,
};

/* ---- Joining ---- */

static int
compare_entries(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->site < y->site ? -1 : x->site > y->site;
}

/* Whether SITE takes part in a round, and its key. */
static bool
key_of(const match_work *w, unsigned side, size_t site, unsigned by, uint64_t *key)
{
    const ml_site *of = &w->sites[side]->items[site];
    const ml_site_key *says = &of->key;
    if (w->match->partner[side][site] != ML_NO_SITE ||
        ((by & BY_PAIR) != 0 && w->pair[side][site] == 0) ||
        ((by & BY_PAIR) == 0 && says->file == 0) ||
        ((by & WITH_MODULE) != 0 && says->module == 0) ||
        ((by & ONLY_NEW) != 0 &&
         (says->module == 0 || w->has_module[!side][says->module]))) {
        return false;
    }
    uint64_t parts[8] = {
        (by & BY_PAIR) != 0 ? w->pair[side][site] : 0,
        (by & BY_MODULE) != 0 ? says->module : 0,
        (by & BY_OPERATION) != 0 ? says->operation : 0,
        (by & BY_SIZE) != 0 ? of->largest : 0,
        (by & BY_FUNCTION) != 0 ? says->function : 0,
        says->backward,
        says->category,
        says->no_line,
    };
    *key = ml_hash_bytes(parts, sizeof(parts));
    return true;
}

static size_t
list_side(const match_work *w, unsigned side, unsigned by, entry *entries)
{
    size_t count = 0;
    for (size_t i = 0; i < w->sites[side]->count; i++) {
        if (key_of(w, side, i, by, &entries[count].key)) {
            entries[count++].site = (uint32_t)i;
        }
    }
    qsort(entries, count, sizeof(*entries), compare_entries);
    return count;
}

static enum ml_match_rule
rule_of_lines(const match_work *w, const ml_site_key *a, const ml_site_key *b)
{
    if (a->file != b->file &&
        ml_match_tail(w->texts->items[a->file], w->texts->items[b->file]) == 0) {
        return ML_MATCH_FILE;
    }
    return a->function != b->function ? ML_MATCH_FUNCTION
           : a->line != b->line       ? ML_MATCH_ORDER
                                      : ML_MATCH_LINE;
}

static void
pair_sites(match_work *w, uint32_t a, uint32_t b, unsigned by)
{
    ml_match *match = w->match;
    enum ml_match_rule rule = ML_MATCH_MODULE;
    if ((by & BY_PAIR) != 0) {
        rule = rule_of_lines(w, &w->sites[0]->items[a].key, &w->sites[1]->items[b].key);
    }
    match->partner[0][a] = b;
    match->partner[1][b] = a;
    match->rule[0][a] = match->rule[1][b] = (uint8_t)rule;
}

static void
play_round(match_work *w, unsigned by, entry *entries[2])
{
    size_t counts[2] = {list_side(w, 0, by, entries[0]),
                        list_side(w, 1, by, entries[1])};
    for (size_t i = 0, j = 0; i < counts[0] && j < counts[1];) {
        uint64_t a = entries[0][i].key;
        uint64_t b = entries[1][j].key;
        if (a == b) {
            pair_sites(w, entries[0][i].site, entries[1][j].site, by);
        }
        i += a <= b;
        j += a >= b;
    }
}

/* ---- Lines ---- */

static void
note_modules(match_work *w)
{
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < w->sites[side]->count; i++) {
            w->has_module[side][w->sites[side]->items[i].key.module] = 1;
        }
    }
}

static void
note_pairs(match_work *w, const ml_match_lines lines[2])
{
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < w->sites[side]->count; i++) {
            const ml_site_key *key = &w->sites[side]->items[i].key;
            w->pair[side][i] = key->file == 0 ? WITHOUT : 0;
        }
        for (size_t i = 0; i < lines[side].count; i++) {
            const ml_match_line *line = &lines[side].items[i];
            if (line->partner == ML_NO_LINE) {
                continue;
            }
            const ml_match_line *other = &lines[!side].items[line->partner];
            for (size_t k = 0; k < line->site_count; k++) {
                uint32_t site = lines[side].order[line->first_site + k];
                w->pair[side][site] = (uint32_t)(side == 0 ? i : line->partner) + 1;
                w->match->beside[side][site] = lines[!side].order[other->first_site];
            }
        }
    }
}

static int
pair_lines(match_work *w, bool same_code)
{
    ml_match_lines lines[2] = {{0}, {0}};
    note_modules(w);
    int result = ml_match_lines_init(&lines[0], w->sites[0], w->has_module[1]);
    if (result == 0) {
        result = ml_match_lines_init(&lines[1], w->sites[1], w->has_module[0]);
    }
    if (result == 0) {
        result = ml_match_lines_pair(&lines[0], &lines[1], w->texts, same_code);
    }
    if (result == 0) {
        note_pairs(w, lines);
    }
    ml_match_lines_fini(&lines[0]);
    ml_match_lines_fini(&lines[1]);
    return result;
}

/* ---- The whole ---- */

static int
alloc_entries(match_work *w, entry *entries[2])
{
    bool all = true;
    for (unsigned side = 0; side < 2; side++) {
        size_t count = w->sites[side]->count + 1;
        ml_match *match = w->match;
        match->partner[side] = ml_alloc(count * sizeof(uint32_t));
        match->beside[side] = ml_alloc(count * sizeof(uint32_t));
        match->rule[side] = ml_alloc_zeroed(count, 1);
        w->pair[side] = ml_alloc_zeroed(count, sizeof(uint32_t));
        w->has_module[side] = ml_alloc_zeroed(w->texts->count, 1);
        entries[side] = ml_alloc_zeroed(count, sizeof(entry));
        all = all && match->partner[side] != NULL && match->beside[side] != NULL &&
              match->rule[side] != NULL && w->pair[side] != NULL &&
              w->has_module[side] != NULL && entries[side] != NULL;
        for (size_t i = 0; all && i < count; i++) {
            match->partner[side][i] = match->beside[side][i] = ML_NO_SITE;
        }
    }
    return all ? 0 : ML_ENOMEM;
}

int
ml_match_init(ml_match *match, const ml_string_pool *texts, const ml_sites *before,
              const ml_sites *after, bool same_code)
{
    match_work w = {.match = match, .texts = texts, .sites = {before, after}};
    entry *entries[2] = {NULL, NULL};
    *match = (ml_match){{NULL, NULL}, {NULL, NULL}, {NULL, NULL}};
    int result = alloc_entries(&w, entries);
    if (result == 0) {
        result = pair_lines(&w, same_code);
    }
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]) && result == 0; i++) {
        play_round(&w, rounds[i], entries);
    }
    for (unsigned side = 0; side < 2; side++) {
        ml_free(w.pair[side]);
        ml_free(w.has_module[side]);
        ml_free(entries[side]);
    }
    if (result < 0) {
        ml_match_fini(match);
    }
    return result;
}

void
ml_match_fini(ml_match *match)
{
    for (unsigned side = 0; side < 2; side++) {
        ml_free(match->partner[side]);
        ml_free(match->beside[side]);
        ml_free(match->rule[side]);
    }
    *match = (ml_match){{NULL, NULL}, {NULL, NULL}, {NULL, NULL}};
}

const char *
ml_match_rule_text(unsigned rule)
{
    static const char *const texts[] = {ML_MATCH_RULES(ML_LISTED_TEXT)};
    return texts[rule < ML_MATCH_RULE_COUNT ? rule : ML_MATCH_NONE];
}
