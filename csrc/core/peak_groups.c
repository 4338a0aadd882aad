/* The sums of a peak by line, by stack and by category.
 *
 * Blocks are sorted by a 64-bit key that equal groups share, summed in one pass, and the
 * sums sorted by size.  Frames are compared by what they say, not by id: a recording may
 * hold equal ones twice. */
#include "peak_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"

/* ---- Which frame stands for a stack ---- */

enum place {
    PLACE_USER,
    PLACE_LIBRARY, /* of Python, or an installed package */
    PLACE_NATIVE   /* not Python */
};

static bool
holds(ml_string text, const char *part)
{
    size_t length = strlen(part);
    for (size_t i = 0; i + length <= text.length; i++) {
        if (memcmp(text.bytes + i, part, length) == 0) {
            return true;
        }
    }
    return false;
}

static bool
ends(ml_string text, const char *part)
{
    size_t length = strlen(part);
    return text.length >= length &&
           memcmp(text.bytes + text.length - length, part, length) == 0;
}

static enum place
place_of(ml_string file)
{
    static const char *const native[] = {".c",  ".cc",  ".cpp", ".cxx", ".cu", ".h",
                                         ".hh", ".hpp", ".cuh", ".S",   ".so", "??"};
    static const char *const library[] = {"site-packages/", "dist-packages/",
                                          "lib/python3.", "<frozen "};
    for (size_t i = 0; i < sizeof(native) / sizeof(native[0]); i++) {
        if (ends(file, native[i])) {
            return PLACE_NATIVE;
        }
    }
    for (size_t i = 0; i < sizeof(library) / sizeof(library[0]); i++) {
        if (holds(file, library[i])) {
            return PLACE_LIBRARY;
        }
    }
    /* Torch's own tools shorten paths to this. */
    if (file.length >= 6 && memcmp(file.bytes, "torch/", 6) == 0) {
        return PLACE_LIBRARY;
    }
    return file.length == 0 ? PLACE_NATIVE : PLACE_USER;
}

typedef struct tables {
    const ml_recording *recording;
    uint8_t *places;   /* of each string as a file name, plus 1; 0 not looked at yet */
    uint32_t *chosen;  /* frame that stands for each stack */
    uint8_t *standing; /* its enum place */
    uint32_t *lines;   /* of each frame, the first frame that says the same, plus 1 */
    ml_intern interned;
    uint32_t *first; /* frame of each interned line */
    size_t first_capacity;
} tables;

static enum place
frame_place(tables *t, uint32_t frame)
{
    uint32_t file = t->recording->frames[frame].filename;
    if (t->places[file] == 0) {
        t->places[file] = (uint8_t)(place_of(t->recording->strings[file]) + 1);
    }
    return (enum place)(t->places[file] - 1);
}

/* The callers' stack has the lower id, so it has been chosen for already. */
static void
choose_frames(tables *t)
{
    const ml_recording *recording = t->recording;
    for (size_t i = 1; i < recording->stack_count; i++) {
        ml_stack stack = recording->stacks[i];
        enum place own = frame_place(t, stack.frame);
        /* The nearest user frame wins over a library's further in, Python over native
         * frames; among equals the innermost. */
        if (stack.parent != 0 && t->standing[stack.parent] < (uint8_t)own) {
            t->chosen[i] = t->chosen[stack.parent];
            t->standing[i] = t->standing[stack.parent];
        }
        else {
            t->chosen[i] = stack.frame;
            t->standing[i] = (uint8_t)own;
        }
    }
}

uint32_t
ml_peak_frame_of(const ml_recording *recording, uint32_t stack)
{
    uint32_t library = 0;
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        uint32_t frame = recording->stacks[stack].frame;
        enum place place =
            place_of(recording->strings[recording->frames[frame].filename]);
        if (place == PLACE_USER) {
            return frame;
        }
        if (place == PLACE_LIBRARY && library == 0) {
            library = frame;
        }
    }
    return library;
}

/* ---- Lines ---- */

static int
compare_strings(ml_string a, ml_string b)
{
    size_t shared = a.length < b.length ? a.length : b.length;
    int order = shared == 0 ? 0 : memcmp(a.bytes, b.bytes, shared);
    if (order != 0) {
        return order;
    }
    return a.length < b.length ? -1 : a.length > b.length;
}

typedef struct sought {
    const tables *t;
    uint32_t frame;
} sought;

static bool
same_line(const void *context, uint32_t id)
{
    const sought *s = context;
    const ml_recording *recording = s->t->recording;
    ml_frame a = recording->frames[s->frame];
    ml_frame b = recording->frames[s->t->first[id]];
    return a.line == b.line &&
           compare_strings(recording->strings[a.filename],
                           recording->strings[b.filename]) == 0 &&
           compare_strings(recording->strings[a.name], recording->strings[b.name]) == 0;
}

/* The first frame that says what FRAME says. */
static int
line_of(tables *t, uint32_t frame, uint32_t *out)
{
    if (t->lines[frame] != 0) {
        *out = t->lines[frame] - 1;
        return 0;
    }
    ml_frame f = t->recording->frames[frame];
    ml_string file = t->recording->strings[f.filename];
    ml_string name = t->recording->strings[f.name];
    uint64_t hash = ml_hash_bytes(file.bytes, file.length) * 3 +
                    ml_hash_bytes(name.bytes, name.length) * 5 +
                    ml_hash_u64((uint64_t)f.line);
    sought s = {t, frame};
    uint32_t id;
    if (!ml_intern_find(&t->interned, hash, same_line, &s, &id)) {
        id = (uint32_t)t->interned.count;
        void *first = t->first;
        int error =
            ml_grow(&first, &t->first_capacity, (size_t)id + 1, sizeof(uint32_t));
        if (error < 0) {
            return error;
        }
        t->first = first;
        t->first[id] = frame;
        error = ml_intern_add(&t->interned, hash);
        if (error < 0) {
            return error;
        }
    }
    t->lines[frame] = t->first[id] + 1;
    *out = t->first[id];
    return 0;
}

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

/* What stands in the upper half tells groups apart, and so do phase and reason. */
static uint64_t
make_key(uint32_t id, const ml_peak_block *block)
{
    return (uint64_t)id << 32 | (uint64_t)block->phase << 8 | block->no_line;
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
    int order = compare_strings(x->file, y->file);
    if (order != 0) {
        return order;
    }
    if (x->line != y->line) {
        return x->line < y->line ? -1 : 1;
    }
    order = compare_strings(x->function, y->function);
    if (order != 0) {
        return order;
    }
    if (x->phase != y->phase) {
        return x->phase < y->phase ? -1 : 1;
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
    return x->no_line < y->no_line ? -1 : x->no_line > y->no_line;
}

/* A line on the way: where its blocks are among the keys, to tell them its place. */
typedef struct line_sum {
    ml_peak_line line; /* first, so that the lines' order is that of the sums */
    size_t first_key;
} line_sum;

static int
group_lines(ml_peak *peak, tables *t, keyed *keys)
{
    const ml_recording *recording = t->recording;
    for (size_t i = 0; i < peak->block_count; i++) {
        ml_peak_block *block = &peak->blocks[i];
        uint32_t line = 0;
        if (block->stack != 0 && t->standing[block->stack] == PLACE_NATIVE) {
            /* A place in somebody's library is no line to go to. */
            block->no_line = block->phase == ML_PHASE_BACKWARD ? ML_NO_LINE_BACKWARD
                                                               : ML_NO_LINE_NO_PYTHON;
        }
        else if (block->stack != 0) {
            int error = line_of(t, t->chosen[block->stack], &line);
            if (error < 0) {
                return error;
            }
        }
        keys[i] = (keyed){make_key(line, block), i};
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
            line_sum *sum = &sums[next++];
            sum->first_key = i;
            sum->line.file.bytes = "";
            sum->line.function.bytes = "";
            sum->line.phase = block->phase;
            sum->line.no_line = block->no_line;
            if (block->no_line == ML_NO_LINE_NONE) {
                ml_frame frame = recording->frames[keys[i].key >> 32];
                sum->line.file = recording->strings[frame.filename];
                sum->line.function = recording->strings[frame.name];
                sum->line.line = frame.line;
            }
        }
        sums[next - 1].line.bytes += block->size;
        sums[next - 1].line.blocks++;
    }
    qsort(sums, count, sizeof(line_sum), compare_lines);
    for (size_t i = 0; i < count; i++) {
        peak->lines[i] = sums[i].line;
        peak->unattributed +=
            sums[i].line.no_line != ML_NO_LINE_NONE ? sums[i].line.bytes : 0;
        for (uint64_t j = 0; j < sums[i].line.blocks; j++) {
            peak->blocks[keys[sums[i].first_key + j].block].line = (uint32_t)i;
        }
    }
    peak->line_count = count;
    ml_free(sums);
    return 0;
}

static int
group_stacks(ml_peak *peak, keyed *keys)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        keys[i] = (keyed){make_key(peak->blocks[i].stack, &peak->blocks[i]), i};
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
                (ml_peak_stack){.stack = block->stack,
                                .phase = block->phase,
                                .no_line = block->no_line};
        }
        peak->stacks[peak->stack_count - 1].bytes += block->size;
        peak->stacks[peak->stack_count - 1].blocks++;
    }
    qsort(peak->stacks, peak->stack_count, sizeof(ml_peak_stack), compare_stacks);
    return 0;
}

static void
group_categories(ml_peak *peak)
{
    for (size_t i = 0; i < peak->block_count; i++) {
        ml_peak_category *category = &peak->categories[peak->blocks[i].category];
        category->bytes += peak->blocks[i].size;
        category->blocks++;
    }
}

int
ml_peak_group(ml_peak *peak, const ml_recording *recording)
{
    tables t = {.recording = recording,
                .places = ml_alloc_zeroed(recording->string_count, 1),
                .chosen = ml_alloc_zeroed(recording->stack_count, sizeof(uint32_t)),
                .standing = ml_alloc_zeroed(recording->stack_count, 1),
                .lines = ml_alloc_zeroed(recording->frame_count, sizeof(uint32_t))};
    keyed *keys = ml_alloc_zeroed(peak->block_count, sizeof(keyed));
    int error = ML_ENOMEM;
    if (t.places != NULL && t.chosen != NULL && t.standing != NULL && t.lines != NULL &&
        keys != NULL) {
        choose_frames(&t);
        error = group_lines(peak, &t, keys);
    }
    if (error == 0) {
        error = group_stacks(peak, keys);
    }
    if (error == 0) {
        group_categories(peak);
    }
    ml_free(keys);
    ml_free(t.places);
    ml_free(t.chosen);
    ml_free(t.standing);
    ml_free(t.lines);
    ml_free(t.first);
    ml_intern_fini(&t.interned);
    return error;
}
