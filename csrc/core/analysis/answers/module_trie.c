/* Makes the trie of modules' paths.  See module_trie.h. */
#include "analysis/answers/module_trie.h"

#include <string.h>

typedef struct sought {
    const ml_module_trie *trie;
    ml_string text;
    uint32_t parent, part;
} sought;

static bool
same_part(const void *context, uint32_t id)
{
    const sought *s = context;
    return ml_string_compare(s->trie->parts[id], s->text) == 0;
}

static bool
same_place(const void *context, uint32_t id)
{
    const sought *s = context;
    const ml_module_place *at = &s->trie->places[id + 1];
    return at->parent == s->parent && at->part == s->part;
}

static int
find_part(ml_module_trie *trie, ml_string text, uint32_t *part)
{
    sought s = {.trie = trie, .text = text};
    uint64_t hash = ml_hash_bytes(text.bytes, text.length);
    if (ml_intern_find(&trie->part_ids, hash, same_part, &s, part)) {
        return 0;
    }
    *part = (uint32_t)trie->part_ids.count;
    void *parts = trie->parts;
    if (ml_grow(&parts, &trie->part_capacity, (size_t)*part + 1, sizeof(ml_string)) <
        0) {
        return ML_ENOMEM;
    }
    trie->parts = parts;
    trie->parts[*part] = text;
    return ml_intern_add(&trie->part_ids, hash);
}

/* Moves *AT, a place, to its child for the part TEXT. */
static int
descend(ml_module_trie *trie, ml_string text, uint32_t *at)
{
    sought s = {.trie = trie, .parent = *at};
    if (find_part(trie, text, &s.part) < 0) {
        return ML_ENOMEM;
    }
    uint64_t hash = ml_hash_u64((uint64_t)s.parent << 32 | s.part);
    uint32_t id;
    if (ml_intern_find(&trie->place_ids, hash, same_place, &s, &id)) {
        *at = id + 1;
        return 0;
    }
    void *places = trie->places;
    if (ml_grow(&places, &trie->capacity, trie->count + 1, sizeof(ml_module_place)) <
        0) {
        return ML_ENOMEM;
    }
    trie->places = places;
    *at = (uint32_t)trie->count++;
    ml_module_place *parent = &trie->places[s.parent];
    trie->places[*at] = (ml_module_place){.parent = s.parent,
                                          .part = s.part,
                                          .next = parent->first,
                                          .depth = parent->depth + 1};
    parent->first = *at;
    return ml_intern_add(&trie->place_ids, hash);
}

/* Puts MODULE, a string, into the trie, once. */
static int
add_module(ml_module_trie *trie, uint32_t module)
{
    ml_string path = trie->recording->strings[module];
    const char *from = path.bytes;
    const char *end = path.bytes + path.length;
    uint32_t at = 0;
    while (trie->ends[module] == 0) {
        const char *dot = memchr(from, '.', (size_t)(end - from));
        const char *to = dot != NULL ? dot : end;
        if (descend(trie, (ml_string){from, (uint32_t)(to - from)}, &at) < 0) {
            return ML_ENOMEM;
        }
        if (dot == NULL || trie->places[at].depth == ML_MODULE_DEPTH) {
            trie->ends[module] = at;
        }
        from = to + 1;
    }
    return 0;
}

void
ml_peak_sum_add(ml_peak_sum *sum, ml_peak_sum more)
{
    sum->bytes += more.bytes;
    sum->blocks += more.blocks;
}

static int
plant(ml_module_trie *trie, const ml_peak_module *modules, size_t count)
{
    const ml_recording *recording = trie->recording;
    void *places = NULL;
    int error = ml_grow(&places, &trie->capacity, 1, sizeof(ml_module_place));
    if (error < 0) {
        return error;
    }
    trie->places = places;
    trie->places[0] = (ml_module_place){0};
    trie->count = 1;
    for (size_t i = 0; i < recording->stack_count && error == 0; i++) {
        if (recording->stacks[i].module != 0) {
            error = add_module(trie, recording->stacks[i].module);
        }
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        if (modules[i].module == 0) {
            continue;
        }
        error = add_module(trie, modules[i].module);
        if (error == 0) {
            ml_module_place *at = &trie->places[trie->ends[modules[i].module]];
            at->given = true;
            ml_peak_sum_add(&at->own,
                            (ml_peak_sum){modules[i].bytes, modules[i].blocks});
        }
    }
    for (size_t i = trie->count; error == 0 && i-- > 1;) {
        ml_module_place *at = &trie->places[i];
        ml_module_place *parent = &trie->places[at->parent];
        ml_peak_sum_add(&at->all, at->own);
        ml_peak_sum_add(&parent->all, at->all);
        parent->given = parent->given || at->given;
    }
    return error;
}

int
ml_module_trie_init(ml_module_trie *trie, const ml_recording *recording,
                    const ml_peak_module *modules, size_t count)
{
    *trie = (ml_module_trie){
        .recording = recording,
        .ends = ml_alloc_zeroed(recording->string_count, sizeof(uint32_t))};
    return trie->ends == NULL ? ML_ENOMEM : plant(trie, modules, count);
}

void
ml_module_trie_fini(ml_module_trie *trie)
{
    ml_free(trie->places);
    ml_free(trie->parts);
    ml_intern_fini(&trie->part_ids);
    ml_intern_fini(&trie->place_ids);
    ml_free(trie->ends);
    *trie = (ml_module_trie){0};
}
