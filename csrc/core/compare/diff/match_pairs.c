/* Pairs the lines of two recordings.  See match_lines.h. */
#include "compare/diff/match_lines.h"

#include <stdlib.h>

#include "base/base.h"

/* The scale of likeness. */
#define ALIKE 1000u
/* Less similar lines are not paired, in the order of a file and out of it. */
#define LEAST_IN_ORDER 300u
#define LEAST_ANYWHERE 600u
/* For two files without a common name. */
#define LEAST_OF_FILES 300u
/* Breaks ties: the line before moved by the same number, or neither moved. */
#define SAME_SHIFT 100u
#define NO_SHIFT 50u
/* Above this many pairs of lines, or features to visit, only equal lines are paired,
 * and only files of one name. */
#define MOST_PAIRS ((size_t)1 << 22)
#define MOST_FEATURES ((size_t)1 << 26)
#define MOST_FILES ((size_t)1 << 14)

/* ---- Likeness ---- */

/* The likeness of two lists of features, up to ALIKE; *STRONG: they share a strong
 * one. */
static uint32_t
likeness(const ml_match_feature *a, size_t a_count, uint64_t a_weight,
         const ml_match_feature *b, size_t b_count, uint64_t b_weight, bool *strong)
{
    uint64_t shared = 0;
    *strong = false;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        if (a[i].hash == b[j].hash) {
            shared += a[i].weight;
            *strong |= a[i].strong;
            i++;
            j++;
        }
        else if (a[i].hash < b[j].hash) {
            i++;
        }
        else {
            j++;
        }
    }
    uint64_t whole = a_weight + b_weight;
    return whole == 0 ? 0 : (uint32_t)(2 * ALIKE * shared / whole);
}

typedef struct sides {
    ml_match_lines *of[2];
    const ml_string_pool *texts;
} sides;

static uint32_t
alike(const sides *s, size_t a, size_t b, bool *strong)
{
    const ml_match_line *x = &s->of[0]->items[a];
    const ml_match_line *y = &s->of[1]->items[b];
    return likeness(s->of[0]->features + x->first_feature, x->feature_count, x->weight,
                    s->of[1]->features + y->first_feature, y->feature_count, y->weight,
                    strong);
}

static void
join(const sides *s, size_t a, size_t b)
{
    s->of[0]->items[a].partner = (uint32_t)b;
    s->of[1]->items[b].partner = (uint32_t)a;
}

static int
compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int
compare_lines(const ml_match_line *x, const ml_match_line *y)
{
    int order = compare_numbers(x->file, y->file);
    if (order == 0 && x->line != y->line) {
        order = x->line < y->line ? -1 : 1;
    }
    return order != 0 ? order : compare_numbers(x->function, y->function);
}

/* Pairs equal lines, of A and B up to those before A_END and B_END. */
static void
pair_the_same(const sides *s, size_t a, size_t a_end, size_t b, size_t b_end)
{
    while (a < a_end && b < b_end) {
        int order = compare_lines(&s->of[0]->items[a], &s->of[1]->items[b]);
        if (order == 0) {
            join(s, a, b);
        }
        a += order <= 0;
        b += order >= 0;
    }
}

/* ---- Files ---- */

/* A file's lines, which are consecutive. */
typedef struct file {
    uint32_t text;
    size_t first;
    size_t count;
    bool paired;
} file;

typedef struct candidate {
    uint64_t score;
    uint32_t a;
    uint32_t b;
} candidate;

typedef struct candidates {
    candidate *items; /* owned */
    size_t count;
    size_t capacity;
} candidates;

static int
compare_candidates(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    int order = compare_numbers(y->score, x->score);
    order = order != 0 ? order : compare_numbers(x->a, y->a);
    return order != 0 ? order : compare_numbers(x->b, y->b);
}

/* The best first. */
static void
rank_candidates(candidates *all)
{
    if (all->count != 0) {
        qsort(all->items, all->count, sizeof(*all->items), compare_candidates);
    }
}

static int
add_candidate(candidates *all, uint64_t score, size_t a, size_t b)
{
    int result = ml_grow((void **)&all->items, &all->capacity, all->count + 1,
                         sizeof(*all->items));
    if (result == 0) {
        all->items[all->count++] = (candidate){score, (uint32_t)a, (uint32_t)b};
    }
    return result;
}

static file *
list_files(const ml_match_lines *lines, size_t *count)
{
    file *files = ml_alloc_zeroed(lines->count + 1, sizeof(*files));
    *count = 0;
    for (size_t i = 0; files != NULL && i < lines->count; i++) {
        if (*count == 0 || files[*count - 1].text != lines->items[i].file) {
            files[(*count)++] = (file){.text = lines->items[i].file, .first = i};
        }
        files[*count - 1].count++;
    }
    return files;
}

size_t
ml_match_tail(ml_string a, ml_string b)
{
    size_t same = 0;
    uint32_t at = 0;
    for (; at < a.length && at < b.length; at++) {
        char x = a.bytes[a.length - 1 - at];
        if (x != b.bytes[b.length - 1 - at]) {
            return same;
        }
        same += x == '/';
    }
    /* Whether the shorter path's first part begins in the other at a part, too. */
    bool whole = (at == a.length || a.bytes[a.length - 1 - at] == '/') &&
                 (at == b.length || b.bytes[b.length - 1 - at] == '/');
    return same + (whole && at > 0);
}

/* The likeness of two files' lines: each line's best, up to a few lines. */
static uint32_t
alike_files(const sides *s, const file *a, const file *b)
{
    enum {
        LOOKED_AT = 24
    };
    size_t count = a->count < LOOKED_AT ? a->count : LOOKED_AT;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t best = 0;
        for (size_t j = 0; j < b->count && j < 4 * LOOKED_AT; j++) {
            bool strong;
            uint32_t now = alike(s, a->first + i, b->first + j, &strong);
            best = now > best ? now : best;
        }
        sum += best;
    }
    return count == 0 ? 0 : (uint32_t)(sum / count);
}

/* ---- Lines in their order ---- */

/* Cells for lines I of one file and J of the other: the best sum of likeness up to
 * there, and the best that ends with the pair. */
typedef struct table {
    size_t width;
    uint32_t *best;
    uint32_t *paired; /* 0: not a pair */
} table;

static uint32_t
value_of_pair(const sides *s, const table *t, size_t a, size_t b, size_t i, size_t j)
{
    bool strong;
    uint32_t like = alike(s, a + i - 1, b + j - 1, &strong);
    if (like < LEAST_IN_ORDER) {
        return 0;
    }
    const ml_match_line *x = &s->of[0]->items[a + i - 1];
    const ml_match_line *y = &s->of[1]->items[b + j - 1];
    uint32_t before = t->best[(i - 1) * t->width + j - 1];
    if (i > 1 && j > 1) {
        uint32_t neighbours = t->paired[(i - 1) * t->width + j - 1];
        /* Forged lines may have any number: unsigned differences are defined. */
        bool same_shift = (uint64_t)y->line - (uint64_t)x->line ==
                          (uint64_t)y[-1].line - (uint64_t)x[-1].line;
        if (neighbours != 0 && same_shift && neighbours + SAME_SHIFT > before) {
            before = neighbours + SAME_SHIFT;
        }
    }
    return before + like + (x->line == y->line ? NO_SHIFT : 0);
}

static void
trace_back(const sides *s, const table *t, size_t a, size_t i, size_t b, size_t j)
{
    bool ends_here = false; /* the best way ends with the pair (i, j) */
    while (i > 0 && j > 0) {
        size_t cell = i * t->width + j;
        if (!ends_here && t->best[cell] != t->paired[cell]) {
            bool up = t->best[cell] == t->best[cell - t->width];
            i -= up;
            j -= !up;
            continue;
        }
        join(s, a + i - 1, b + j - 1);
        /* Reached from the neighbours' pair, if that gives the value. */
        size_t corner = cell - t->width - 1;
        uint32_t neighbours = t->paired[corner];
        const ml_match_line *x = &s->of[0]->items[a + i - 1];
        const ml_match_line *y = &s->of[1]->items[b + j - 1];
        bool same_shift = i > 1 && j > 1 &&
                          (uint64_t)y->line - (uint64_t)x->line ==
                              (uint64_t)y[-1].line - (uint64_t)x[-1].line;
        ends_here =
            neighbours != 0 && same_shift && neighbours + SAME_SHIFT > t->best[corner];
        i--;
        j--;
    }
}

static size_t
count_features(const ml_match_lines *lines, const file *of)
{
    const ml_match_line *last = &lines->items[of->first + of->count - 1];
    return last->first_feature + last->feature_count -
           lines->items[of->first].first_feature;
}

static int
pair_in_order(const sides *s, const file *x, const file *y)
{
    size_t width = y->count + 1;
    if (x->count + 1 > MOST_PAIRS / width ||
        count_features(s->of[0], x) > MOST_FEATURES / width ||
        count_features(s->of[1], y) > MOST_FEATURES / (x->count + 1)) {
        pair_the_same(s, x->first, x->first + x->count, y->first, y->first + y->count);
        return 0;
    }
    table t = {.width = width,
               .best = ml_alloc_zeroed((x->count + 1) * width, sizeof(*t.best)),
               .paired = ml_alloc_zeroed((x->count + 1) * width, sizeof(*t.paired))};
    int result = t.best == NULL || t.paired == NULL ? ML_ENOMEM : 0;
    for (size_t i = 1; result == 0 && i <= x->count; i++) {
        for (size_t j = 1; j <= y->count; j++) {
            size_t cell = i * width + j;
            uint32_t best = t.best[cell - width];
            best = t.best[cell - 1] > best ? t.best[cell - 1] : best;
            t.paired[cell] = value_of_pair(s, &t, x->first, y->first, i, j);
            t.best[cell] = t.paired[cell] > best ? t.paired[cell] : best;
        }
    }
    if (result == 0) {
        trace_back(s, &t, x->first, x->count, y->first, y->count);
    }
    ml_free(t.best);
    ml_free(t.paired);
    return result;
}

/* ---- All ---- */

/* Pairs the FILES with the first candidates, and their lines. */
static int
take_files(const sides *s, file *files[2], candidates *all)
{
    int result = 0;
    rank_candidates(all);
    for (size_t i = 0; i < all->count && result == 0; i++) {
        file *x = &files[0][all->items[i].a];
        file *y = &files[1][all->items[i].b];
        if (!x->paired && !y->paired) {
            x->paired = y->paired = true;
            result = pair_in_order(s, x, y);
        }
    }
    return result;
}

static int
pair_files_of_one_name(const sides *s, file *files[2], const size_t counts[2])
{
    int result = 0;
    for (size_t i = 0, j = 0; i < counts[0] && j < counts[1] && result == 0;) {
        file *x = &files[0][i];
        file *y = &files[1][j];
        i += x->text <= y->text;
        j += x->text >= y->text;
        if (x->text == y->text) {
            x->paired = y->paired = true;
            result = pair_in_order(s, x, y);
        }
    }
    return result;
}

/* The numbers of the files or lines not paired yet.  Searching for them repeatedly
 * would be quadratic. */
typedef struct left {
    uint32_t *items; /* owned */
    size_t count;
} left;

static int
list_left_files(const file *files, size_t count, left *out)
{
    *out = (left){.items = ml_alloc_zeroed(count + 1, sizeof(*out->items))};
    for (size_t i = 0; out->items != NULL && i < count; i++) {
        if (!files[i].paired) {
            out->items[out->count++] = (uint32_t)i;
        }
    }
    return out->items == NULL ? ML_ENOMEM : 0;
}

static int
list_left_lines(const ml_match_lines *lines, left *out)
{
    *out = (left){.items = ml_alloc_zeroed(lines->count + 1, sizeof(*out->items))};
    for (size_t i = 0; out->items != NULL && i < lines->count; i++) {
        if (lines->items[i].partner == ML_NO_LINE) {
            out->items[out->count++] = (uint32_t)i;
        }
    }
    return out->items == NULL ? ML_ENOMEM : 0;
}

/* Pairs those that are left: with BY_TAIL by the tails of their paths, else by their
 * lines. */
static int
pair_files_by(const sides *s, file *files[2], const left of[2], bool by_tail)
{
    candidates all = {0};
    int result = 0;
    for (size_t i = 0; i < of[0].count && result == 0; i++) {
        for (size_t j = 0; j < of[1].count && result == 0; j++) {
            const file *x = &files[0][of[0].items[i]];
            const file *y = &files[1][of[1].items[j]];
            size_t tail =
                ml_match_tail(s->texts->items[x->text], s->texts->items[y->text]);
            if (by_tail && tail == 0) {
                continue;
            }
            uint32_t like = alike_files(s, x, y);
            if (by_tail || like >= LEAST_OF_FILES) {
                result = add_candidate(&all, tail * 2 * ALIKE + like, of[0].items[i],
                                       of[1].items[j]);
            }
        }
    }
    if (result == 0) {
        result = take_files(s, files, &all);
    }
    ml_free(all.items);
    return result;
}

static int
pair_files(const sides *s, file *files[2], const size_t counts[2])
{
    int result = pair_files_of_one_name(s, files, counts);
    for (unsigned by_tail = 2; by_tail-- > 0 && result == 0;) {
        size_t most = by_tail ? MOST_PAIRS / 4 : MOST_FILES;
        left of[2] = {{0}, {0}};
        result = list_left_files(files[0], counts[0], &of[0]);
        if (result == 0) {
            result = list_left_files(files[1], counts[1], &of[1]);
        }
        if (result == 0 && of[0].count <= most / (of[1].count + 1)) {
            result = pair_files_by(s, files, of, by_tail != 0);
        }
        ml_free(of[0].items);
        ml_free(of[1].items);
    }
    return result;
}

/* By function's text: whether one of its lines is already paired; the caller frees
 * it. */
static uint8_t *
find_settled(const sides *s)
{
    uint8_t *settled = ml_alloc_zeroed(s->texts->count, 1);
    for (size_t i = 0; settled != NULL && i < s->of[0]->count; i++) {
        const ml_match_line *line = &s->of[0]->items[i];
        if (line->partner != ML_NO_LINE) {
            settled[line->function] = 1;
            settled[s->of[1]->items[line->partner].function] = 1;
        }
    }
    return settled;
}

/* Whether two unordered lines may be one that moved: by the operations there, or with
 * its whole function. */
static bool
may_have_moved(const sides *s, const uint8_t *settled, size_t a, size_t b, bool strong)
{
    const ml_match_line *x = &s->of[0]->items[a];
    const ml_match_line *y = &s->of[1]->items[b];
    return strong || (x->function == y->function && !settled[x->function]);
}

/* Possible pairs among the remaining lines, best first. */
static int
find_moved(const sides *s, const left of[2], candidates *all)
{
    uint8_t *settled = find_settled(s);
    int result = settled == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < of[0].count && result == 0; i++) {
        for (size_t j = 0; j < of[1].count && result == 0; j++) {
            size_t a = of[0].items[i];
            size_t b = of[1].items[j];
            bool strong;
            uint32_t like = alike(s, a, b, &strong);
            if (like >= LEAST_ANYWHERE && may_have_moved(s, settled, a, b, strong)) {
                result = add_candidate(all, like, a, b);
            }
        }
    }
    rank_candidates(all);
    ml_free(settled);
    return result;
}

static int
pair_the_rest(const sides *s)
{
    candidates all = {0};
    left of[2] = {{0}, {0}};
    int result = list_left_lines(s->of[0], &of[0]);
    if (result == 0) {
        result = list_left_lines(s->of[1], &of[1]);
    }
    if (result == 0 && of[0].count <= MOST_PAIRS / 4 / (of[1].count + 1)) {
        result = find_moved(s, of, &all);
    }
    for (size_t i = 0; i < all.count && result == 0; i++) {
        const candidate *one = &all.items[i];
        if (s->of[0]->items[one->a].partner == ML_NO_LINE &&
            s->of[1]->items[one->b].partner == ML_NO_LINE) {
            join(s, one->a, one->b);
        }
    }
    ml_free(all.items);
    ml_free(of[0].items);
    ml_free(of[1].items);
    return result;
}

int
ml_match_lines_pair(ml_match_lines *before, ml_match_lines *after,
                    const ml_string_pool *texts, bool same_code)
{
    sides s = {{before, after}, texts};
    if (same_code) {
        pair_the_same(&s, 0, before->count, 0, after->count);
        return 0;
    }
    size_t counts[2];
    file *files[2] = {list_files(before, &counts[0]), list_files(after, &counts[1])};
    int result = files[0] == NULL || files[1] == NULL ? ML_ENOMEM
                                                      : pair_files(&s, files, counts);
    if (result == 0) {
        result = pair_the_rest(&s);
    }
    ml_free(files[0]);
    ml_free(files[1]);
    return result;
}
