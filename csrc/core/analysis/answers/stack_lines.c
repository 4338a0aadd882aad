/* Makes the tables of lines from a recording's stacks.  See stack_lines.h.
 *
 * Allocations are summed by stack.  A stack is its innermost frame and its caller's
 * stack, so callers' sums follow by adding each stack to its caller.  A line has the
 * sums of its outermost frames in the trie.  This takes one walk over the trie,
 * whatever the depth of the stacks. */
#include "analysis/answers/stack_lines.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/frame_lines.h"
#include "base/base.h"

/* Represents no block. */
#define NO_BLOCK SIZE_MAX

typedef struct stack_lines_work {
    const ml_recording *recording;
    const ml_peak *peak;
    size_t device;
    ml_stack_line_figures *stacks; /* of each stack */
    ml_stack_line_figures *lines;  /* by line, that is, by its representative frame */
    uint32_t *line_of;             /* of each frame */
    uint32_t *running;             /* by line: how often the walk is inside it */
    uint32_t *first_callee;        /* of each stack; 0: none */
    uint32_t *next_callee; /* by stack: the next callee of its caller; 0: none */
    /* By stack, the first block of the peak that a backward pass made and whose line
     * follows from the stack; and by block, the next of its stack. */
    size_t *first_block;
    size_t *next_block;
} stack_lines_work;

static void
add_figures(ml_stack_line_figures *to, const ml_stack_line_figures *from)
{
#define XX(name, key) to->name += from->name;
    ML_STACK_LINE_SUMS(XX)
#undef XX
    to->peak = to->peak < from->peak ? from->peak : to->peak;
}

/* ---- By stack ---- */

static int
add_events(stack_lines_work *w)
{
    const ml_analysis *analysis;
    int error = ml_analysis_of(w->recording, w->device, &analysis);
    if (error < 0) {
        return error;
    }
    const ml_lifetimes *lifetimes = &analysis->lifetimes;
    for (size_t i = 0; i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        if (life->birth == 0) {
            continue;
        }
        ml_stack_line_figures own = {0};
        if (life->start == life->birth) {
            own.allocated = life->bytes;
            own.allocations = 1;
            own.peak = life->allocated;
        }
        if (life->requested == ML_NEVER && life->end == ML_NEVER) {
            own.left = life->bytes;
        }
        add_figures(
            &w->stacks[ml_events_stack(&lifetimes->trace->events, life->birth - 1)],
            &own);
    }
    return 0;
}

static void
add_blocks(stack_lines_work *w)
{
    const ml_events *events = &w->recording->devices[w->device].events;
    for (size_t i = 0; i < w->peak->block_count; i++) {
        const ml_peak_block *block = &w->peak->blocks[i];
        const ml_cause *cause = &block->cause;
        uint32_t own = block->event < 0 ? cause->stack
                                        : ml_events_stack(events, (size_t)block->event);
        w->stacks[own].at_peak += block->size;
        if (cause->how == ML_HOW_NONE) {
            continue;
        }
        if (cause->stack != own) {
            w->stacks[cause->stack].backward += block->size;
        }
        if (cause->phase == ML_PHASE_BACKWARD) {
            w->next_block[i] = w->first_block[cause->stack];
            w->first_block[cause->stack] = i;
        }
    }
}

/* Callers have lower ids. */
static void
add_to_callers(stack_lines_work *w)
{
    for (size_t i = w->recording->stack_count; i-- > 1;) {
        uint32_t caller = w->recording->stacks[i].parent;
        add_figures(&w->stacks[caller], &w->stacks[i]);
        w->next_callee[i] = w->first_callee[caller];
        w->first_callee[caller] = (uint32_t)i;
    }
}

/* ---- By line ---- */

/* Blocks whose line (see ml_stack_facts_line) is in none of their own frames: for
 * example, a module's code rerun by a checkpoint. */
static void
add_called_elsewhere(stack_lines_work *w, uint32_t stack)
{
    for (size_t i = w->first_block[stack]; i != NO_BLOCK; i = w->next_block[i]) {
        uint32_t line = w->line_of[w->peak->blocks[i].cause.frame];
        if (w->running[line] == 0) {
            w->lines[line].backward += w->peak->blocks[i].size;
        }
    }
}

static void
enter(stack_lines_work *w, uint32_t stack)
{
    uint32_t line = w->line_of[w->recording->stacks[stack].frame];
    if (w->running[line]++ == 0) {
        add_figures(&w->lines[line], &w->stacks[stack]);
    }
    add_called_elsewhere(w, stack);
}

static void
leave(stack_lines_work *w, uint32_t stack)
{
    w->running[w->line_of[w->recording->stacks[stack].frame]]--;
}

static void
walk(stack_lines_work *w)
{
    uint32_t stack = w->first_callee[0];
    while (stack != 0) {
        enter(w, stack);
        if (w->first_callee[stack] != 0) {
            stack = w->first_callee[stack];
            continue;
        }
        while (stack != 0 && w->next_callee[stack] == 0) {
            leave(w, stack);
            stack = w->recording->stacks[stack].parent;
        }
        if (stack != 0) {
            leave(w, stack);
            stack = w->next_callee[stack];
        }
    }
}

static int
number_lines(stack_lines_work *w)
{
    ml_frame_lines frames;
    int error = ml_frame_lines_init(&frames, w->recording);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; error == 0 && i < w->recording->frame_count; i++) {
        error = ml_frame_lines_first(&frames, (uint32_t)i, &w->line_of[i]);
    }
    ml_frame_lines_fini(&frames);
    return error;
}

/* ---- The answer ---- */

static int
compare_lines(const void *a, const void *b)
{
    const ml_stack_line *x = a;
    const ml_stack_line *y = b;
    int order = ml_string_compare(x->file, y->file);
    if (order == 0) {
        order = ml_string_compare(x->function, y->function);
    }
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static bool
any_figure(const ml_stack_line_figures *figures)
{
    return figures->allocations != 0 || figures->at_peak != 0 || figures->backward != 0;
}

static int
collect_lines(const stack_lines_work *w, ml_stack_lines *all)
{
    const ml_recording *recording = w->recording;
    size_t count = 0;
    for (size_t i = 0; i < recording->frame_count; i++) {
        count += any_figure(&w->lines[i]);
    }
    all->lines = ml_alloc_zeroed(count + 1, sizeof(ml_stack_line));
    if (all->lines == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < recording->frame_count; i++) {
        if (!any_figure(&w->lines[i])) {
            continue;
        }
        enum ml_frame_place place = ml_frame_place_of(recording, (uint32_t)i);
        if (place < ML_PLACE_NATIVE) {
            ml_frame frame = recording->frames[i];
            all->lines[all->count++] =
                (ml_stack_line){.file = recording->strings[frame.filename],
                                .function = recording->strings[frame.name],
                                .line = frame.line,
                                .place = (uint8_t)place,
                                .figures = w->lines[i]};
        }
    }
    qsort(all->lines, all->count, sizeof(ml_stack_line), compare_lines);
    return 0;
}

static int
alloc_lines(stack_lines_work *w)
{
    size_t stacks = w->recording->stack_count;
    size_t frames = w->recording->frame_count;
    size_t blocks = w->peak->block_count;
    w->stacks = ml_alloc_zeroed(stacks, sizeof(ml_stack_line_figures));
    w->lines = ml_alloc_zeroed(frames, sizeof(ml_stack_line_figures));
    w->line_of = ml_alloc_zeroed(frames, sizeof(uint32_t));
    w->running = ml_alloc_zeroed(frames, sizeof(uint32_t));
    w->first_callee = ml_alloc_zeroed(stacks, sizeof(uint32_t));
    w->next_callee = ml_alloc_zeroed(stacks, sizeof(uint32_t));
    w->first_block = ml_alloc_zeroed(stacks, sizeof(size_t));
    w->next_block = ml_alloc_zeroed(blocks + 1, sizeof(size_t));
    if (w->stacks == NULL || w->lines == NULL || w->line_of == NULL ||
        w->running == NULL || w->first_callee == NULL || w->next_callee == NULL ||
        w->first_block == NULL || w->next_block == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < stacks; i++) {
        w->first_block[i] = NO_BLOCK;
    }
    return 0;
}

static void
clean_up(stack_lines_work *w)
{
    ml_free(w->stacks);
    ml_free(w->lines);
    ml_free(w->line_of);
    ml_free(w->running);
    ml_free(w->first_callee);
    ml_free(w->next_callee);
    ml_free(w->first_block);
    ml_free(w->next_block);
}

int
ml_stack_lines_init(ml_stack_lines *all, const ml_recording *recording, size_t device,
                    const ml_peak *peak)
{
    *all = (ml_stack_lines){0};
    stack_lines_work w = {.recording = recording, .peak = peak, .device = device};
    int error = alloc_lines(&w);
    if (error == 0) {
        error = number_lines(&w);
    }
    if (error == 0) {
        error = add_events(&w);
    }
    if (error == 0) {
        add_blocks(&w);
        add_to_callers(&w);
        walk(&w);
        error = collect_lines(&w, all);
    }
    clean_up(&w);
    return error;
}

void
ml_stack_lines_fini(ml_stack_lines *all)
{
    ml_free(all->lines);
    *all = (ml_stack_lines){0};
}
