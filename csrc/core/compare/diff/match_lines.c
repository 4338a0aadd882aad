/* Lists the lines of a recording with their features.  See match_lines.h. */
#include "compare/diff/match_lines.h"

#include <stdlib.h>

#include "base/base.h"

/* ---- Lines and what they are like ---- */

/* Represents any module that the other recording lacks.  Otherwise a line where many
 * modules ran would hardly resemble itself after they were renamed. */
#define NEW_MODULE UINT64_MAX

typedef struct site_place {
    int64_t line;
    uint32_t file;
    uint32_t function;
    uint32_t site;
} site_place;

static int
compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int
compare_places(const void *a, const void *b)
{
    const site_place *x = a;
    const site_place *y = b;
    int order = compare_numbers(x->file, y->file);
    if (order == 0 && x->line != y->line) {
        order = x->line < y->line ? -1 : 1;
    }
    order = order != 0 ? order : compare_numbers(x->function, y->function);
    return order != 0 ? order : compare_numbers(x->site, y->site);
}

static int
compare_features(const void *a, const void *b)
{
    const ml_match_feature *x = a;
    const ml_match_feature *y = b;
    int order = compare_numbers(x->hash, y->hash);
    return order != 0 ? order : compare_numbers(y->weight, x->weight);
}

/* KIND distinguishes features with the same values. */
static int
add_feature(ml_match_lines *lines, uint64_t kind, uint64_t a, uint64_t b, uint64_t c,
            uint32_t weight, bool strong)
{
    uint64_t values[4] = {kind, a, b, c};
    int result = ml_grow((void **)&lines->features, &lines->feature_capacity,
                         lines->feature_count + 1, sizeof(*lines->features));
    if (result == 0) {
        lines->features[lines->feature_count++] =
            (ml_match_feature){ml_hash_bytes(values, sizeof(values)), weight, strong};
    }
    return result;
}

static int
add_site_features(ml_match_lines *lines, const ml_site *site, const uint8_t *known)
{
    const ml_site_key *key = &site->key;
    uint64_t module = known[key->module] != 0 ? key->module : NEW_MODULE;
    bool strong = (key->module != 0 && module != NEW_MODULE) || key->operation != 0;
    int result =
        add_feature(lines, 1, module, key->operation, key->backward, 4, strong);
    if (result == 0 && key->operation != 0) {
        result = add_feature(lines, 2, key->operation, key->backward, 0, 2, false);
    }
    if (result == 0) {
        result = add_feature(lines, 3, site->largest, key->backward, 0, 1, false);
    }
    for (unsigned i = 0; i < ML_CATEGORY_COUNT && result == 0; i++) {
        if ((site->kinds >> i & 1) != 0) {
            result = add_feature(lines, 4, i, key->backward, 0, 1, false);
        }
    }
    return result;
}

/* Sorts the features from FIRST on and removes duplicates; returns the sum of their
 * weights. */
static uint32_t
settle_features(ml_match_lines *lines, size_t first)
{
    ml_match_feature *features = lines->features;
    uint32_t weight = 0;
    qsort(features + first, lines->feature_count - first, sizeof(*features),
          compare_features);
    size_t kept = first;
    for (size_t i = first; i < lines->feature_count; i++) {
        if (kept == first || features[kept - 1].hash != features[i].hash) {
            features[kept++] = features[i];
            weight += features[i].weight;
        }
    }
    lines->feature_count = kept;
    return weight;
}

static int
describe_line(ml_match_lines *lines, const ml_sites *sites, const uint8_t *known,
              ml_match_line *line)
{
    line->first_feature = lines->feature_count;
    int result = add_feature(lines, 5, line->function, 0, 0, 3, false);
    for (size_t i = 0; i < line->site_count && result == 0; i++) {
        uint32_t site = lines->order[line->first_site + i];
        result = add_site_features(lines, &sites->items[site], known);
    }
    if (result == 0) {
        line->weight = settle_features(lines, line->first_feature);
        line->feature_count = lines->feature_count - line->first_feature;
    }
    return result;
}

static int
fill_lines(ml_match_lines *lines, const ml_sites *sites, const uint8_t *known,
           site_place *places)
{
    for (size_t i = 0; i < sites->count; i++) {
        const ml_site_key *key = &sites->items[i].key;
        places[i] = (site_place){key->line, key->file, key->function, (uint32_t)i};
    }
    qsort(places, sites->count, sizeof(*places), compare_places);
    for (size_t i = 0; i < sites->count; i++) {
        lines->order[i] = places[i].site;
        const site_place *now = &places[i];
        if (now->file == 0) {
            continue;
        }
        ml_match_line *last =
            lines->count == 0 ? NULL : &lines->items[lines->count - 1];
        if (last != NULL && last->file == now->file && last->line == now->line &&
            last->function == now->function) {
            last->site_count++;
            continue;
        }
        lines->items[lines->count++] = (ml_match_line){.line = now->line,
                                                       .file = now->file,
                                                       .function = now->function,
                                                       .first_site = i,
                                                       .site_count = 1,
                                                       .partner = ML_NO_LINE};
    }
    int result = 0;
    for (size_t i = 0; i < lines->count && result == 0; i++) {
        result = describe_line(lines, sites, known, &lines->items[i]);
    }
    return result;
}

int
ml_match_lines_init(ml_match_lines *lines, const ml_sites *sites, const uint8_t *known)
{
    site_place *places = ml_alloc_zeroed(sites->count + 1, sizeof(*places));
    *lines = (ml_match_lines){
        .order = ml_alloc_zeroed(sites->count + 1, sizeof(*lines->order)),
        .items = ml_alloc_zeroed(sites->count + 1, sizeof(*lines->items))};
    int result = ML_ENOMEM;
    if (places != NULL && lines->order != NULL && lines->items != NULL) {
        result = fill_lines(lines, sites, known, places);
    }
    ml_free(places);
    if (result < 0) {
        ml_match_lines_fini(lines);
    }
    return result;
}

void
ml_match_lines_fini(ml_match_lines *lines)
{
    ml_free(lines->order);
    ml_free(lines->items);
    ml_free(lines->features);
    *lines = (ml_match_lines){0};
}
