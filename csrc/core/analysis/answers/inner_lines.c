/* Finds the model's own lines behind a line of the user's.  See inner_lines.h. */
#include "analysis/answers/inner_lines.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "analysis/attribution/frame_lines.h"
#include "base/base.h"

typedef struct keyed {
    uint32_t line;  /* index into the peak's lines */
    uint32_t frame; /* the first of its text */
    size_t block;
} keyed;

static int
compare_keyed(const void *a, const void *b)
{
    const keyed *x = a;
    const keyed *y = b;
    if (x->line != y->line) {
        return x->line < y->line ? -1 : 1;
    }
    if (x->frame != y->frame) {
        return x->frame < y->frame ? -1 : 1;
    }
    return x->block < y->block ? -1 : x->block > y->block;
}

static int
compare_inner(const void *a, const void *b)
{
    const ml_peak_inner *x = a;
    const ml_peak_inner *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return ml_code_place_compare((ml_code_place){x->file, x->line, x->function},
                                 (ml_code_place){y->file, y->line, y->function});
}

static int
key_blocks(const ml_peak *peak, ml_frame_lines *lines, keyed *keys)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        const ml_cause *cause = &peak->blocks[i].cause;
        uint32_t first = 0;
        int error = 0;
        if (cause->how != ML_HOW_NONE) {
            error = ml_frame_lines_first(lines, cause->model, &first);
        }
        if (error < 0) {
            return error;
        }
        keys[i] = (keyed){peak->blocks[i].line, first, i};
    }
    return 0;
}

static int
add_block(const ml_recording *recording, ml_peak_inner *inner,
          const ml_peak_block *block)
{
    inner->bytes += block->size;
    inner->blocks++;
    inner->categories[block->verdict.category] += block->size;
    if (block->cause.module == 0) {
        return 0;
    }
    return ml_module_note(&inner->module, recording->strings[block->cause.module]);
}

/* Whether INNER says what LINE, around it, says. */
static bool
is_line(const ml_peak_inner *inner, const ml_peak_line *line)
{
    return ml_code_place_compare(
               (ml_code_place){inner->file, inner->line, inner->function},
               (ml_code_place){line->file, line->line, line->function}) == 0;
}

static int
sum_up(ml_peak *peak, const ml_recording *recording, const keyed *keys)
{
    int error = 0;
    size_t from = 0;
    for (size_t i = 0; i < peak->block_count && error == 0; i++) {
        const keyed *key = &keys[i];
        ml_peak_line *line = &peak->lines[key->line];
        bool new_line = i == 0 || key->line != keys[i - 1].line;
        if (new_line) {
            from = peak->inner_count;
        }
        if (new_line || key->frame != keys[i - 1].frame) {
            ml_frame frame = recording->frames[key->frame];
            bool has = line->no_line == ML_NO_LINE_NONE;
            peak->inner[peak->inner_count++] = (ml_peak_inner){
                .file = has ? recording->strings[frame.filename] : (ml_string){"", 0},
                .function = has ? recording->strings[frame.name] : (ml_string){"", 0},
                .line = has ? frame.line : 0};
        }
        error = add_block(recording, &peak->inner[peak->inner_count - 1],
                          &peak->blocks[key->block]);
        line->first_inner = from;
        line->inner_count = peak->inner_count - from;
    }
    for (size_t i = 0; i < peak->line_count; i++) {
        ml_peak_line *line = &peak->lines[i];
        ml_peak_inner *inner = &peak->inner[line->first_inner];
        qsort(inner, line->inner_count, sizeof(*inner), compare_inner);
        if (line->inner_count == 1 && is_line(inner, line)) {
            line->inner_count = 0;
        }
    }
    return error;
}

int
ml_inner_lines_find(ml_peak *peak, const ml_recording *recording)
{
    ml_frame_lines lines;
    int error = ml_frame_lines_init(&lines, recording);
    if (error < 0) {
        return error;
    }
    keyed *keys = ml_alloc_zeroed(peak->block_count + 1, sizeof(keyed));
    peak->inner = ml_alloc_zeroed(peak->block_count + 1, sizeof(ml_peak_inner));
    error = keys == NULL || peak->inner == NULL ? ML_ENOMEM
                                                : key_blocks(peak, &lines, keys);
    if (error == 0) {
        qsort(keys, peak->block_count, sizeof(keyed), compare_keyed);
        error = sum_up(peak, recording, keys);
    }
    ml_free(keys);
    ml_frame_lines_fini(&lines);
    return error;
}
