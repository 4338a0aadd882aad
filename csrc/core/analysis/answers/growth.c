/* Finds the lines that leave memory behind step by step.  See growth.h. */
#include "analysis/answers/growth.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/answers/growth_parts.h"
#include "base/base.h"

#define STEPS_AHEAD 1000
/* Instead of a place among the lines that are told. */
#define NOT_TOLD UINT32_MAX

/* ---- One line ---- */

/* Whether the block AT, of those FIRST up to END, is a library's workspace.  The first tensor of
 * such a size may look like one: then its step made one tensor less than others. */
static bool
is_workspace(const growth_work *f, size_t at, size_t first, size_t end)
{
    const ml_kept *of = &f->kept.list[at];
    size_t own = 0, other = 0, most = 0;
    uint32_t step = of->step;
    for (size_t i = first; i < end && of->workspace; i++) {
        const ml_kept *tensor = &f->kept.list[i];
        if (tensor->workspace || tensor->bytes != of->bytes) {
            continue;
        }
        other = tensor->step == step ? other + 1 : 1;
        step = tensor->step;
        own += step == of->step;
        most = step != of->step && other > most ? other : most;
    }
    return of->workspace && own >= most;
}

/* Finds what each step left of the blocks FIRST up to END; returns how many steps left
 * something. */
static size_t
find_lefts(growth_work *f, size_t first, size_t end)
{
    size_t count = 0;
    for (size_t i = first; i < end; i++) {
        const ml_kept *block = &f->kept.list[i];
        if (!ml_kept_is_left(f, block) || (f->streams && block->first) ||
            is_workspace(f, i, first, end)) {
            continue;
        }
        if (count == 0 || f->lefts[count - 1].step != block->step) {
            f->lefts[count++] = (left){.step = block->step};
        }
        f->lefts[count - 1].bytes += block->bytes;
        f->lefts[count - 1].blocks++;
    }
    return count;
}

/* Whether the blocks FIRST up to END keep more than ever before STEP, by half of the
 * BYTES left since. */
static bool
has_grown(growth_work *f, size_t first, size_t end, uint32_t step, uint64_t bytes)
{
    size_t count = f->steps.count;
    memset(f->sums, 0, (count + 1) * sizeof(*f->sums));
    for (size_t i = first; i < end; i++) {
        /* Sums of differences: they wrap around and back. */
        f->sums[f->kept.list[i].step] += f->kept.list[i].bytes;
        f->sums[f->kept.list[i].until] -= f->kept.list[i].bytes;
    }
    uint64_t most = 0;
    for (size_t i = 1; i < count; i++) {
        f->sums[i] += f->sums[i - 1];
    }
    for (size_t i = 0; i < step; i++) {
        most = f->sums[i] > most ? f->sums[i] : most;
    }
    return f->sums[count - 1] >= most + bytes / 2;
}

static int
judge_line(growth_work *f, size_t first, size_t end)
{
    size_t count = find_lefts(f, first, end);
    if (count < ML_GROWTH_FEWEST) {
        return 0;
    }
    size_t from = ml_growth_run(f, count);
    if (count - from < ML_GROWTH_FEWEST) {
        return 0;
    }
    size_t recent = count - from > ML_GROWTH_STEPS ? count - ML_GROWTH_STEPS : from;
    uint64_t bytes = 0;
    for (size_t i = recent; i < count; i++) {
        bytes += f->lefts[i].bytes;
    }
    found line = {.first = first, .end = end, .line.lines = 1};
    if (!has_grown(f, first, end, f->lefts[recent].step, bytes) ||
        !ml_growth_measure(f, from, count, &line)) {
        return 0;
    }
    void *list = f->list;
    if (ml_grow(&list, &f->found_capacity, f->found_count + 1, sizeof(found)) < 0) {
        return ML_ENOMEM;
    }
    f->list = list;
    f->list[f->found_count++] = line;
    return 0;
}

static int
judge_lines(growth_work *f)
{
    int error = 0;
    size_t first = 0;
    for (size_t i = 1; error == 0 && i <= f->kept.count; i++) {
        if (i == f->kept.count ||
            ml_kept_compare_lines(&f->kept.list[i], &f->kept.list[first]) != 0) {
            error = judge_line(f, first, i);
            first = i;
        }
    }
    return error;
}

/* ---- All of them ---- */

/* The cause of LINE's newest block that is left. */
static ml_cause
cause_of(const growth_work *f, const found *line)
{
    const ml_analysis *a = f->analysis;
    size_t newest = f->kept.list[line->end - 1].row;
    for (size_t i = line->end; i > line->first; i--) {
        const ml_kept *block = &f->kept.list[i - 1];
        if (ml_kept_is_left(f, block)) {
            newest = block->row;
            break;
        }
    }
    return ml_causes_of(a->causes, a->device, a->lifetimes.rows[newest].birth - 1);
}

/* Blocks to look up holders by, those of earlier steps first. */
static void
name_rows(const growth_work *f, found *line)
{
    const ml_lifetimes *lifetimes = &f->analysis->lifetimes;
    ml_growing *out = &line->line;
    out->cause = cause_of(f, line);
    for (size_t i = line->end; i > line->first; i--) {
        const ml_kept *block = &f->kept.list[i - 1];
        const ml_lifetime *life = &lifetimes->rows[block->row];
        if (block->step < line->last && out->row_count < ML_GROWING_BLOCKS &&
            ml_lifetime_last(lifetimes, life)->requested == ML_NEVER) {
            out->rows[out->row_count++] = block->row;
        }
    }
}

static bool
matters(const growth_work *f, const found *line)
{
    uint64_t peak = f->analysis->peaks.allocated;
    return line->line.per_step != 0 &&
           line->line.per_step >= peak / 100 * ML_GROWTH_PERCENT / STEPS_AHEAD;
}

static int
compare_found(const void *a, const void *b)
{
    const ml_growing *x = &(*(found *const *)a)->line;
    const ml_growing *y = &(*(found *const *)b)->line;
    if (x->certain != y->certain) {
        return x->certain ? -1 : 1;
    }
    if (x->per_step != y->per_step) {
        return x->per_step > y->per_step ? -1 : 1;
    }
    return (x->cause.stack > y->cause.stack) - (x->cause.stack < y->cause.stack);
}

/* Fills *OUT, which has room, in ORDER, which has room too. */
static void
tell(growth_work *f, found **order, ml_growth *out)
{
    for (size_t i = 0; i < f->found_count; i++) {
        found *line = &f->list[i];
        line->place = NOT_TOLD;
        if (!line->folded && matters(f, line)) {
            name_rows(f, line);
            ml_growth_name_holder(f, line);
            order[out->count++] = line;
        }
    }
    if (out->count != 0) {
        qsort(order, out->count, sizeof(*order), compare_found);
    }
    for (size_t i = 0; i < out->count; i++) {
        order[i]->place = (uint32_t)i;
        out->lines[i] = order[i]->line;
    }
    for (size_t i = 0; i < f->found_count; i++) {
        const found *line = &f->list[i];
        uint32_t place = line->folded ? f->list[line->into].place : line->place;
        if (place != NOT_TOLD) {
            out->growers[out->grower_count++] =
                (ml_grower){.cause = cause_of(f, line), .line = place};
        }
    }
}

static int
take_lines(growth_work *f, ml_growth *out)
{
    ml_growth_fold_graphs(f);
    out->lines = ml_alloc_zeroed(f->found_count + 1, sizeof(*out->lines));
    out->growers = ml_alloc_zeroed(f->found_count + 1, sizeof(*out->growers));
    found **order = ml_alloc_zeroed(f->found_count + 1, sizeof(*order));
    bool room = out->lines != NULL && out->growers != NULL && order != NULL;
    if (room) {
        tell(f, order, out);
    }
    ml_free(order);
    return room ? 0 : ML_ENOMEM;
}

static int
find_all(growth_work *f, ml_growth *out)
{
    int error = ml_growth_steps_find(f->analysis, &f->steps);
    out->by = f->steps.by;
    out->steps = f->steps.count;
    if (error < 0 || f->steps.count == 0) {
        return error;
    }
    out->last = ml_growth_step_number(&f->steps, f->steps.count - 1);
    error = ml_kept_find(f->analysis, &f->steps, &f->kept);
    if (error == 0 && f->kept.count != 0) {
        f->lefts = ml_alloc_zeroed(f->steps.count, sizeof(*f->lefts));
        f->sums = ml_alloc_zeroed(f->steps.count + 1, sizeof(*f->sums));
        error = f->lefts == NULL || f->sums == NULL
                    ? ML_ENOMEM
                    : ml_growth_find_streams(f, &out->workspaces);
        error = error == 0 ? judge_lines(f) : error;
    }
    return error < 0 ? error : take_lines(f, out);
}

static void
free_growth(ml_attached *attached)
{
    ml_growth *growth = (ml_growth *)attached;
    ml_free(growth->lines);
    ml_free(growth->growers);
    ml_free(growth);
}

static int
make(const ml_analysis *analysis, ml_growth **out)
{
    ml_growth *growth = ml_alloc_zeroed(1, sizeof(*growth));
    if (growth == NULL) {
        return ML_ENOMEM;
    }
    growth->attached.free = free_growth;
    growth_work f = {.analysis = analysis};
    int error = find_all(&f, growth);
    ml_growth_steps_fini(&f.steps);
    ml_free(f.kept.list);
    ml_free(f.lefts);
    ml_free(f.sums);
    ml_free(f.list);
    if (error < 0) {
        free_growth(&growth->attached);
        return error;
    }
    *out = growth;
    return 0;
}

int
ml_growth_of(const ml_analysis *analysis, const ml_growth **out)
{
    ml_analysis *place = (ml_analysis *)(uintptr_t)analysis;
    ml_attached *there = atomic_load(&place->growth);
    if (there == NULL) {
        ml_growth *made;
        int error = make(analysis, &made);
        if (error < 0) {
            return error;
        }
        if (atomic_compare_exchange_strong(&place->growth, &there, &made->attached)) {
            there = &made->attached;
        }
        else {
            free_growth(&made->attached);
        }
    }
    *out = (const ml_growth *)there;
    return 0;
}

const ml_growing *
ml_growth_find(const ml_growth *growth, const ml_cause *cause)
{
    for (size_t i = 0; i < growth->grower_count && cause->frame != 0; i++) {
        const ml_grower *made = &growth->growers[i];
        if (growth->lines[made->line].certain && made->cause.frame == cause->frame &&
            (made->cause.phase == ML_PHASE_BACKWARD) ==
                (cause->phase == ML_PHASE_BACKWARD)) {
            return &growth->lines[made->line];
        }
    }
    return NULL;
}

bool
ml_growth_has(const ml_growth *growth, const ml_cause *cause)
{
    const ml_growing *line = ml_growth_find(growth, cause);
    return line != NULL && !line->graph;
}

void
ml_growth_tell(const ml_growth *growth, const ml_cause *cause, ml_verdict *verdict)
{
    if (verdict->why == ML_WHY_SEVERAL && ml_growth_has(growth, cause)) {
        verdict->why = ML_WHY_GROWS;
    }
}

const char *
ml_growth_by_text(unsigned by)
{
    static const char *const texts[] = {ML_GROWTH_BYS(ML_LISTED_TEXT)};
    return by < ML_GROWTH_BY_COUNT ? texts[by] : "";
}
