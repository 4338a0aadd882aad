/* The sums of a peak by line, by stack and by category.
 *
 * Blocks are sorted by a 64-bit key that equal groups share, summed in one pass, and the
 * sums sorted by size. */
#include "analysis/answers/peak_groups.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/frame_lines.h"
#include "base/base.h"

/* ---- Sorting and summing ---- */

typedef struct keyed {
    uint64_t key;
    size_t block;
} keyed;

static int
compare_keyed(const void *a, const void *b)
{
    const keyed *x = a;
    const keyed *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->block < y->block ? -1 : x->block > y->block;
}

/* The id in the upper half distinguishes groups, and so do phase, way and reason. */
static uint64_t
make_key(uint32_t id, const ml_cause *cause)
{
    return (uint64_t)id << 32 | (uint64_t)cause->how << 16 |
           (uint64_t)cause->phase << 8 | cause->no_line;
}

static size_t
count_groups(const keyed *keys, size_t count)
{
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) {
        groups += i == 0 || keys[i].key != keys[i - 1].key;
    }
    return groups;
}

static int
compare_lines(const void *a, const void *b)
{
    const ml_peak_line *x = a;
    const ml_peak_line *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    int order = ml_code_place_compare((ml_code_place){x->file, x->line, x->function},
                                      (ml_code_place){y->file, y->line, y->function});
    if (order != 0) {
        return order;
    }
    if (x->phase != y->phase) {
        return x->phase < y->phase ? -1 : 1;
    }
    if (x->how != y->how) {
        return x->how < y->how ? -1 : 1;
    }
    return x->no_line < y->no_line ? -1 : x->no_line > y->no_line;
}

static int
compare_stacks(const void *a, const void *b)
{
    const ml_peak_stack *x = a;
    const ml_peak_stack *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->stack != y->stack) {
        return x->stack < y->stack ? -1 : 1;
    }
    if (x->phase != y->phase) {
        return x->phase < y->phase ? -1 : 1;
    }
    if (x->how != y->how) {
        return x->how < y->how ? -1 : 1;
    }
    return x->no_line < y->no_line ? -1 : x->no_line > y->no_line;
}

/* A line on the way: where its blocks are among the keys, to tell them its place. */
typedef struct line_sum {
    ml_peak_line line; /* first, so that the lines' order is that of the sums */
    size_t first_key;
} line_sum;

static int
key_lines(const ml_peak *peak, ml_frame_lines *lines, keyed *keys)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_cause *cause = &peak->blocks[i].cause;
        uint32_t line = 0;
        int error = 0;
        if (cause->how != ML_HOW_NONE) {
            error = ml_frame_lines_first(lines, cause->frame, &line);
        }
        if (error < 0) {
            return error;
        }
        keys[i] = (keyed){make_key(line, cause), i};
    }
    return 0;
}

static line_sum
new_line(const ml_recording *recording, const keyed *keys, size_t first,
         const ml_cause *cause)
{
    line_sum sum = {.first_key = first,
                    .line = {.file.bytes = "",
                             .function.bytes = "",
                             .phase = cause->phase,
                             .how = cause->how,
                             .no_line = cause->no_line}};
    if (cause->how != ML_HOW_NONE) {
        ml_frame frame = recording->frames[keys[first].key >> 32];
        sum.line.file = recording->strings[frame.filename];
        sum.line.function = recording->strings[frame.name];
        sum.line.line = frame.line;
    }
    return sum;
}

/* Of all blocks of LINE: one that goes round a loop goes past all that do not. */
static void
widen_until(ml_peak_line *line, int64_t until)
{
    bool round = until < line->line;
    if (line->until == 0 || (round && line->until >= line->line) ||
        (round == (line->until < line->line) && until > line->until)) {
        line->until = until;
    }
}

void
ml_module_widen(char *pattern, ml_string name)
{
    const char *end = name.bytes + name.length;
    const char *from = name.bytes;
    char *to = pattern; /* never passes what is read of the pattern */
    const char *old = pattern;
    for (;;) {
        size_t had = strcspn(old, ".");
        const char *dot = memchr(from, '.', (size_t)(end - from));
        size_t has = (size_t)((dot != NULL ? dot : end) - from);
        bool last = old[had] == '\0';
        bool differs = had != has || memcmp(old, from, had) != 0;
        if (differs || last != (dot == NULL)) {
            if (!differs) {
                memmove(to, old, had);
                to += had;
                *to++ = '.';
            }
            *to++ = '*';
            /* A part of no characters has no room for a "*" of its own. */
            if (last || dot == NULL || had == 0) {
                break;
            }
        }
        else {
            memmove(to, old, had);
            to += had;
            if (last) {
                break;
            }
        }
        *to++ = '.';
        old += had + 1;
        from = dot + 1;
    }
    *to = '\0';
}

int
ml_module_note(char **pattern, ml_string name)
{
    if (*pattern != NULL) {
        ml_module_widen(*pattern, name);
        return 0;
    }
    /* Room for ".*" behind. */
    *pattern = ml_alloc_zeroed(name.length + 3, 1);
    if (*pattern == NULL) {
        return ML_ENOMEM;
    }
    memcpy(*pattern, name.bytes, name.length);
    return 0;
}

/* The modules of LINE's blocks, which KEYS list, as one name. */
static int
name_modules(const ml_peak *peak, const ml_recording *recording, const keyed *keys,
             ml_peak_line *line)
{
    uint32_t last = 0;
    for (uint64_t i = 0; i < line->blocks; i++) {
        uint32_t module = peak->blocks[keys[i].block].cause.module;
        if (module == 0 || module == last) {
            continue;
        }
        last = module;
        if (ml_module_note(&line->module, recording->strings[module]) < 0) {
            return ML_ENOMEM;
        }
    }
    return 0;
}

static int
group_lines(ml_peak *peak, ml_frame_lines *lines, keyed *keys)
{
    const ml_recording *recording = lines->recording;
    int error = key_lines(peak, lines, keys);
    if (error < 0) {
        return error;
    }
    qsort(keys, peak->block_count, sizeof(keyed), compare_keyed);
    size_t count = count_groups(keys, peak->block_count);
    line_sum *sums = ml_alloc_zeroed(count + 1, sizeof(line_sum));
    peak->lines = ml_alloc_zeroed(count + 1, sizeof(ml_peak_line));
    if (sums == NULL || peak->lines == NULL) {
        ml_free(sums);
        return ML_ENOMEM;
    }
    size_t next = 0;
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_peak_block *block = &peak->blocks[keys[i].block];
        if (i == 0 || keys[i].key != keys[i - 1].key) {
            sums[next++] = new_line(recording, keys, i, &block->cause);
        }
        ml_peak_line *line = &sums[next - 1].line;
        line->bytes += block->size;
        line->blocks++;
        line->categories[block->verdict.category] += block->size;
        if (block->cause.until != 0) {
            widen_until(line, recording->frames[block->cause.until].line);
        }
    }
    qsort(sums, count, sizeof(line_sum), compare_lines);
    for (size_t i = 0; i < count; i++) {
        peak->lines[i] = sums[i].line;
        peak->unattributed +=
            sums[i].line.no_line != ML_NO_LINE_NONE ? sums[i].line.bytes : 0;
        for (uint64_t j = 0; j < sums[i].line.blocks; j++) {
            peak->blocks[keys[sums[i].first_key + j].block].line = (uint32_t)i;
        }
        peak->line_count = i + 1;
        if (error == 0) {
            error = name_modules(peak, recording, &keys[sums[i].first_key],
                                 &peak->lines[i]);
        }
    }
    ml_free(sums);
    return error;
}

static int
group_stacks(ml_peak *peak, keyed *keys)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_cause *cause = &peak->blocks[i].cause;
        keys[i] = (keyed){make_key(cause->stack, cause), i};
    }
    qsort(keys, peak->block_count, sizeof(keyed), compare_keyed);
    size_t count = count_groups(keys, peak->block_count);
    peak->stacks = ml_alloc_zeroed(count + 1, sizeof(ml_peak_stack));
    if (peak->stacks == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_peak_block *block = &peak->blocks[keys[i].block];
        if (i == 0 || keys[i].key != keys[i - 1].key) {
            peak->stacks[peak->stack_count++] =
                (ml_peak_stack){.stack = block->cause.stack,
                                .phase = block->cause.phase,
                                .how = block->cause.how,
                                .no_line = block->cause.no_line};
        }
        peak->stacks[peak->stack_count - 1].bytes += block->size;
        peak->stacks[peak->stack_count - 1].blocks++;
    }
    qsort(peak->stacks, peak->stack_count, sizeof(ml_peak_stack), compare_stacks);
    return 0;
}

static int
compare_modules(const void *a, const void *b)
{
    const ml_peak_module *x = a;
    const ml_peak_module *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->module != y->module) {
        return x->module < y->module ? -1 : 1;
    }
    return x->no_module < y->no_module ? -1 : x->no_module > y->no_module;
}

static int
group_modules(ml_peak *peak, keyed *keys)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_cause *cause = &peak->blocks[i].cause;
        keys[i] = (keyed){(uint64_t)cause->module << 8 | cause->no_module, i};
    }
    qsort(keys, peak->block_count, sizeof(keyed), compare_keyed);
    size_t count = count_groups(keys, peak->block_count);
    peak->modules = ml_alloc_zeroed(count + 1, sizeof(ml_peak_module));
    if (peak->modules == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < peak->block_count; i++) {
        if (i == 0 || keys[i].key != keys[i - 1].key) {
            peak->modules[peak->module_count++] =
                (ml_peak_module){.module = (uint32_t)(keys[i].key >> 8),
                                 .no_module = (uint8_t)keys[i].key};
        }
        peak->modules[peak->module_count - 1].bytes += peak->blocks[keys[i].block].size;
        peak->modules[peak->module_count - 1].blocks++;
    }
    qsort(peak->modules, peak->module_count, sizeof(ml_peak_module), compare_modules);
    return 0;
}

unsigned
ml_peak_size_group(uint64_t size)
{
    return size == 0 ? 0 : (unsigned)(63 - __builtin_clzll(size)) / 2 + 1;
}

uint64_t
ml_peak_size_least(unsigned group)
{
    return group == 0 ? 0 : UINT64_C(1) << 2 * (group - 1);
}

static void
add_up(ml_peak_sum *sum, const ml_peak_block *block)
{
    sum->bytes += block->size;
    sum->blocks++;
}

static void
group_kinds(ml_peak *peak)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_peak_block *block = &peak->blocks[i];
        add_up(&peak->categories[block->verdict.category], block);
        add_up(&peak->phases[block->cause.phase], block);
        add_up(&peak->hows[block->cause.how], block);
        add_up(&peak->no_modules[block->cause.no_module], block);
        add_up(&peak->sizes[ml_peak_size_group(block->size)], block);
        if (block->verdict.category == ML_CATEGORY_UNKNOWN) {
            add_up(&peak->whys[block->verdict.why], block);
        }
        peak->inexact += block->verdict.exact ? 0 : block->size;
    }
}

int
ml_peak_group(ml_peak *peak, const ml_recording *recording)
{
    ml_frame_lines lines;
    int error = ml_frame_lines_init(&lines, recording);
    if (error < 0) {
        return error;
    }
    keyed *keys = ml_alloc_zeroed(peak->block_count, sizeof(keyed));
    error = keys == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        error = group_lines(peak, &lines, keys);
    }
    if (error == 0) {
        error = group_stacks(peak, keys);
    }
    if (error == 0) {
        error = group_modules(peak, keys);
    }
    if (error == 0) {
        group_kinds(peak);
    }
    ml_free(keys);
    ml_frame_lines_fini(&lines);
    return error;
}
