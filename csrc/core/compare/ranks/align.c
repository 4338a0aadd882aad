/* Aligns the clocks of ranks with the first one's.  See align.h. */
#include "compare/ranks/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

uint64_t
ml_align_time(uint64_t time, int64_t offset)
{
    if (offset >= 0) {
        return time > (uint64_t)offset ? time - (uint64_t)offset : 0;
    }
    uint64_t behind = 0 - (uint64_t)offset;
    return time < UINT64_MAX - behind ? time + behind : UINT64_MAX;
}

/* A - B, saturated. */
static int64_t
difference(uint64_t a, uint64_t b)
{
    uint64_t apart = a > b ? a - b : b - a;
    int64_t held = apart > INT64_MAX ? INT64_MAX : (int64_t)apart;
    return a > b ? held : -held;
}

static uint64_t
magnitude(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

static bool
same_clock(const ml_rank *a, const ml_rank *b)
{
    if (a->boot != 0 && b->boot != 0) {
        return a->boot == b->boot;
    }
    return a->host != 0 && a->host == b->host;
}

/* ---- One host ---- */

/* The difference of A's and B's times for one moment: each told when the kernel's clock
 * began. */
static uint64_t
clocks_apart(const ml_rank *a, const ml_rank *b)
{
    if (a->boot == 0 || b->boot == 0 || a->anchor_boot == 0 || b->anchor_boot == 0) {
        return ML_NOTE_UNKNOWN;
    }
    return magnitude(
        difference(a->anchor_time - a->anchor_boot, b->anchor_time - b->anchor_boot));
}

/* ---- Hosts by steps ---- */

typedef struct step_end {
    uint64_t number;
    uint64_t time;
} step_end;

static int
compare_ends(const void *a, const void *b)
{
    const step_end *x = a;
    const step_end *y = b;
    if (x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    return x->time < y->time ? -1 : x->time > y->time;
}

typedef struct step_ends {
    step_end *items; /* owned; by number, without duplicates */
    size_t count;
} step_ends;

/* Appends the ends of steps of RECORDING; of equal numbers the first counts. */
static int
find_ends(const ml_recording *recording, step_ends *ends)
{
    size_t count = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        count += recording->notes[i].kind == ML_NOTE_STEP;
    }
    ends->items = ml_alloc_zeroed(count + 1, sizeof(step_end));
    if (ends->items == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_STEP) {
            ends->items[ends->count++] = (step_end){note->values[0], note->time};
        }
    }
    qsort(ends->items, ends->count, sizeof(step_end), compare_ends);
    size_t kept = 0;
    for (size_t i = 0; i < ends->count; i++) {
        if (kept == 0 || ends->items[kept - 1].number != ends->items[i].number) {
            ends->items[kept++] = ends->items[i];
        }
    }
    ends->count = kept;
    return 0;
}

typedef struct differences {
    int64_t *items; /* owned */
    size_t count;
    size_t capacity;
} differences;

/* Adds the lead of RANK's clock over REFERENCE's at the end of each common step. */
static int
add_differences(differences *all, const ml_rank *rank, const step_ends *reference)
{
    step_ends own = {0};
    int result = find_ends(rank->part, &own);
    for (size_t i = 0, k = 0; i < own.count && k < reference->count && result == 0;) {
        const step_end *mine = &own.items[i];
        const step_end *other = &reference->items[k];
        if (mine->number == other->number) {
            result = ml_grow((void **)&all->items, &all->capacity, all->count + 1,
                             sizeof(*all->items));
            if (result == 0) {
                all->items[all->count++] = difference(mine->time, other->time);
            }
        }
        i += mine->number <= other->number;
        k += other->number <= mine->number;
    }
    ml_free(own.items);
    return result;
}

static int
compare_differences(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The distance from MIDDLE that contains nine in ten of the sorted ALL. */
static uint64_t
spread_of(const differences *all, int64_t middle)
{
    size_t wanted = all->count - all->count / 10;
    size_t low = 0, high = all->count - 1;
    /* Drops the farthest first, on either side. */
    for (size_t left = all->count; left > wanted; left--) {
        bool below = (uint64_t)middle - (uint64_t)all->items[low] >
                     (uint64_t)all->items[high] - (uint64_t)middle;
        low += below;
        high -= !below;
    }
    uint64_t under = (uint64_t)middle - (uint64_t)all->items[low];
    uint64_t over = (uint64_t)all->items[high] - (uint64_t)middle;
    return under > over ? under : over;
}

static bool
goes_with(const ml_rank *ranks, size_t first, size_t i)
{
    return i == first || (ranks[i].alignment == ML_ALIGNMENT_NONE &&
                          same_clock(&ranks[first], &ranks[i]));
}

/* Aligns the clock of the host of RANKS[FIRST], for all of its ranks. */
static int
align_host(ml_rank *ranks, size_t count, size_t first, const step_ends *reference)
{
    differences all = {0};
    int result = 0;
    for (size_t i = first; i < count && result == 0; i++) {
        if (goes_with(ranks, first, i)) {
            result = add_differences(&all, &ranks[i], reference);
        }
    }
    if (result < 0) {
        ml_free(all.items);
        return result;
    }
    ml_rank set = {.alignment = ML_ALIGNMENT_WALL, .bound = ML_NOTE_UNKNOWN};
    if (all.count >= ML_ALIGN_STEPS) {
        qsort(all.items, all.count, sizeof(*all.items), compare_differences);
        set.alignment = ML_ALIGNMENT_STEPS;
        set.offset = all.items[(all.count - 1) / 2];
        set.bound = spread_of(&all, set.offset);
        set.common_steps = all.count < UINT32_MAX ? (uint32_t)all.count : UINT32_MAX;
    }
    ml_free(all.items);
    /* The first comes last: it identifies the others. */
    for (size_t i = count; i-- > first;) {
        if (goes_with(ranks, first, i)) {
            ranks[i].alignment = set.alignment;
            ranks[i].offset = set.offset;
            ranks[i].bound = set.bound;
            ranks[i].common_steps = set.common_steps;
        }
    }
    return 0;
}

int
ml_align(ml_rank *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ranks[i].alignment = ML_ALIGNMENT_NONE;
        ranks[i].offset = 0;
        ranks[i].bound = 0;
        ranks[i].common_steps = 0;
        if (i == 0) {
            ranks[i].alignment = ML_ALIGNMENT_REFERENCE;
        }
        else if (same_clock(&ranks[0], &ranks[i])) {
            ranks[i].alignment = ML_ALIGNMENT_HOST;
            ranks[i].bound = clocks_apart(&ranks[0], &ranks[i]);
        }
    }
    step_ends reference = {0};
    int result = count > 0 ? find_ends(ranks[0].part, &reference) : 0;
    for (size_t i = 1; i < count && result == 0; i++) {
        if (ranks[i].alignment == ML_ALIGNMENT_NONE) {
            result = align_host(ranks, count, i, &reference);
        }
    }
    ml_free(reference.items);
    return result;
}
