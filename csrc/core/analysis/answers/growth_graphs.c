/* Autograd graphs that steps leave: a loss that is kept, and all that hangs on it.  See
 * growth.h.
 *
 * The inputs of a graph grow with it, though no forward made them.  Where a note says that
 * something other than a node of autograd holds them, they are no part of it. */
#include "analysis/answers/growth_parts.h"

#include "analysis/attribution/passes.h"

#include <string.h>

/* Blocks that a graph has besides its end. */
#define GRAPH_BLOCKS 2

/* The newest block of LINE that STEP left; NULL: none. */
static const ml_kept *
newest_of(const growth_work *f, const found *line, uint32_t step)
{
    const ml_kept *newest = NULL;
    for (size_t i = line->first; i < line->end; i++) {
        const ml_kept *block = &f->kept.list[i];
        if (ml_kept_is_left(f, block) && block->step == step) {
            newest = block;
        }
    }
    return newest;
}

static bool
is_scalar(const growth_work *f, const ml_kept *block)
{
    const ml_lifetimes *lifetimes = &f->analysis->lifetimes;
    return ml_events_size(&lifetimes->trace->events,
                          lifetimes->rows[block->row].birth - 1) <= ML_LOSS_VALUE_BYTES;
}

/* Blocks of a forward, larger than a value, that a step left and made up to ROW. */
static size_t
saved_until(const growth_work *f, const found *line, uint32_t step, size_t row)
{
    size_t count = 0;
    for (size_t i = line->first; i < line->end; i++) {
        const ml_kept *block = &f->kept.list[i];
        count += ml_kept_is_left(f, block) && block->step == step && block->forward &&
                 block->row < row && !is_scalar(f, block);
    }
    return count;
}

static bool
grow_together(const found *a, const found *b)
{
    uint64_t apart = a->begin > b->begin ? a->begin - b->begin : b->begin - a->begin;
    uint64_t differ = a->line.steps > b->line.steps ? a->line.steps - b->line.steps
                                                    : b->line.steps - a->line.steps;
    return apart <= 1 && differ <= 1;
}

/* Whether LINE left something of the program's own, such as an input, before ROW in STEP.  An
 * evaluation comes behind the optimizer's step, and so in the next one than its input. */
static bool
gave_until(const growth_work *f, const found *line, uint32_t step, size_t row)
{
    bool gave = false;
    for (size_t i = line->first; i < line->end && !gave; i++) {
        const ml_kept *block = &f->kept.list[i];
        gave = ml_kept_is_left(f, block) && block->step <= step &&
               block->step + 1 >= step && block->given && block->row < row &&
               !is_scalar(f, block);
    }
    return gave;
}

/* Whether a note says that a node of autograd, or something else, holds the blocks of LINE. */
static bool
is_held_by(const growth_work *f, found *line, bool node)
{
    static const char begins[] = "autograd node ";
    ml_growth_name_holder(f, line);
    ml_string holder = f->analysis->recording->strings[line->line.holder];
    return holder.length != 0 &&
           (holder.length >= sizeof(begins) - 1 &&
            memcmp(holder.bytes, begins, sizeof(begins) - 1) == 0) == node;
}

/* Blocks of OTHER in the graph that ends with ROW in STEP.  An input is none by itself, as the
 * program may keep both it and a loss; held by a node, it is proof of a graph. */
static size_t
blocks_of(const growth_work *f, found *other, uint32_t step, size_t row)
{
    size_t saved = saved_until(f, other, step, row);
    bool proof = gave_until(f, other, step, row) && is_held_by(f, other, true);
    return proof ? saved + GRAPH_BLOCKS : saved;
}

static bool
is_part(const growth_work *f, found *other, uint32_t step, size_t row)
{
    return saved_until(f, other, step, row) != 0 ||
           (gave_until(f, other, step, row) && !is_held_by(f, other, false));
}

/* The newest forward's block that LINE left, of the step before the last: the last still has
 * everything.  NULL: none. */
static const ml_kept *
newest_left(const growth_work *f, const found *line)
{
    const ml_kept *blocks = &f->kept.list[line->first];
    uint32_t step = 0;
    for (size_t i = 0; i < line->end - line->first; i++) {
        if (ml_kept_is_left(f, &blocks[i]) && blocks[i].step < line->last) {
            step = blocks[i].step;
        }
    }
    const ml_kept *newest = newest_of(f, line, step);
    return newest != NULL && newest->forward ? newest : NULL;
}

/* Makes all lines with blocks in the graph that ends with END, of LINE, part of LINE. */
static void
fold(growth_work *f, found *line, const ml_kept *end)
{
    size_t saved = 0;
    for (size_t i = 0; i < f->found_count; i++) {
        if (!f->list[i].folded && grow_together(line, &f->list[i])) {
            saved += blocks_of(f, &f->list[i], end->step, end->row);
        }
    }
    if (is_scalar(f, end) && saved < GRAPH_BLOCKS) {
        return;
    }
    line->line.graph = true;
    for (size_t i = 0; i < f->found_count; i++) {
        found *other = &f->list[i];
        if (other != line && !other->folded && !other->line.graph &&
            grow_together(line, other) && is_part(f, other, end->step, end->row)) {
            other->folded = true;
            other->into = (size_t)(line - f->list);
            line->line.holder =
                line->line.holder == 0 ? other->line.holder : line->line.holder;
            line->line.bytes += other->line.bytes;
            line->line.blocks += other->line.blocks;
            line->line.per_step += other->line.per_step;
            line->line.lines++;
        }
    }
}

/* The last line that nodes hold and that is of no graph yet; *END: its newest block.  NULL:
 * none. */
static found *
last_of_nodes(growth_work *f, const ml_kept **end)
{
    found *last = NULL;
    for (size_t i = 0; i < f->found_count; i++) {
        found *line = &f->list[i];
        const ml_kept *newest = newest_left(f, line);
        if (!line->folded && !line->line.graph && newest != NULL &&
            !is_scalar(f, newest) && (last == NULL || newest->row > (*end)->row) &&
            is_held_by(f, line, true)) {
            last = line;
            *end = newest;
        }
    }
    return last;
}

void
ml_growth_fold_graphs(growth_work *f)
{
    for (size_t i = 0; i < f->found_count; i++) {
        found *line = &f->list[i];
        const ml_kept *loss = line->folded ? NULL : newest_left(f, line);
        if (loss != NULL && is_scalar(f, loss)) {
            fold(f, line, loss);
        }
    }
    /* Of a sum of losses no loss is kept. */
    const ml_kept *end = NULL;
    found *line = last_of_nodes(f, &end);
    while (line != NULL) {
        fold(f, line, end);
        line = last_of_nodes(f, &end);
    }
}
