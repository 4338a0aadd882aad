/* Writes how full the segments are.  See torch_segsum.h. */
#include "show/draw/torch_segsum.h"

#include <stdlib.h>

#include "show/text/markup.h"

#define PAGE_BYTES (UINT64_C(20) << 20)
/* Longest row; a segment in a file may have any size. */
#define MOST_PAGES 4096u

/* Bytes of a segment, or of all segments. */
typedef struct segment_sums {
    uint64_t reserved;
    uint64_t allocated; /* asked for */
    uint64_t external;  /* in free blocks */
    uint64_t internal;  /* in used blocks, beyond the request */
} segment_sums;

typedef struct row {
    const ml_device_trace *trace;
    const ml_segment *segment;
    size_t device;
    size_t index; /* among all segments */
    uint64_t in_use;
} row;

/* Requested bytes of a block; a forged file may have more than its size. */
static uint64_t
asked_for(const ml_block *block)
{
    return block->requested < block->size ? block->requested : block->size;
}

static uint64_t
bytes_in_use(const ml_device_trace *trace, const ml_segment *segment)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < segment->block_count; i++) {
        const ml_block *block = &trace->blocks[segment->first_block + i];
        if (block->state == ML_BLOCK_ALLOCATED) {
            bytes = ml_markup_add(bytes, block->size);
        }
    }
    return bytes;
}

static int
compare_rows(const void *left, const void *right)
{
    const row *a = left;
    const row *b = right;
    if (a->segment->total != b->segment->total) {
        return a->segment->total < b->segment->total ? -1 : 1;
    }
    if (a->in_use != b->in_use) {
        return a->in_use < b->in_use ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

static segment_sums
sum_up(const row *r)
{
    segment_sums s = {.reserved = r->segment->total};
    uint64_t used = 0;
    for (size_t i = 0; i < r->segment->block_count; i++) {
        const ml_block *block = &r->trace->blocks[r->segment->first_block + i];
        if (block->state == ML_BLOCK_ALLOCATED) {
            s.allocated += asked_for(block);
            used += block->size;
        }
    }
    s.internal = used - s.allocated;
    /* Bytes that no block covers are free too. */
    s.external = s.reserved - used;
    return s;
}

/* ---- The pages of a segment ---- */

typedef struct page {
    uint64_t bytes; /* of blocks on the page */
    char mark;      /* ' ': not yet set */
} page;

/* Marks the pages of used block NUMBER, from START to FINISH in its segment. */
static void
fill_pages(page *pages, size_t count, uint64_t start, uint64_t finish, size_t number)
{
    for (size_t i = (size_t)(start / PAGE_BYTES); i < count; i++) {
        uint64_t low = i * PAGE_BYTES;
        if (low >= finish) {
            return;
        }
        uint64_t from = start > low ? start : low;
        uint64_t to = finish - low < PAGE_BYTES ? finish : low + PAGE_BYTES;
        pages[i].bytes += to - from;
        pages[i].mark = pages[i].mark != ' '
                            ? "0123456789*"[pages[i].bytes * 10 / PAGE_BYTES]
                            : (char)('a' + number % 26);
    }
}

static int
put_pages(ml_buffer *out, const row *r)
{
    uint64_t wanted = (r->segment->total - 1) / PAGE_BYTES + 1;
    size_t count = wanted < MOST_PAGES ? (size_t)wanted : MOST_PAGES;
    page *pages = ml_alloc_zeroed(count, sizeof(*pages));
    if (pages == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        pages[i].mark = ' ';
    }
    size_t number = 0;
    for (size_t i = 0; i < r->segment->block_count; i++) {
        const ml_block *block = &r->trace->blocks[r->segment->first_block + i];
        if (block->state == ML_BLOCK_ALLOCATED) {
            uint64_t start = block->addr - r->segment->addr;
            fill_pages(pages, count, start, start + asked_for(block), number++);
        }
    }
    for (size_t i = 0; i < count; i++) {
        ml_buffer_append(out, &pages[i].mark, 1);
    }
    ml_markup(out, count < wanted ? "..." : "");
    ml_free(pages);
    return 0;
}

/* ---- The text ---- */

/* Writes 100 * PART / WHOLE with one decimal, as Python does. */
static void
put_percent(ml_buffer *out, uint64_t part, uint64_t whole)
{
    double tenths = (double)part / (double)whole * 100 * 10;
    uint64_t number = (uint64_t)tenths;
    double rest = tenths - (double)number;
    number += rest > 0.5 || (rest >= 0.5 && number % 2 == 1);
    ml_markup_unsigned(out, number / 10);
    ml_markup(out, ".");
    ml_markup_unsigned(out, number % 10);
    ml_markup(out, "%");
}

static void
put_free(ml_buffer *out, const segment_sums *s)
{
    uint64_t total = ml_markup_add(s->external, s->internal);
    ml_markup_torch_size(out, total);
    if (total != 0) {
        ml_markup(out, " (");
        put_percent(out, s->internal, total);
        ml_markup(out, " internal)");
    }
}

static int
put_row(ml_buffer *out, const row *r, const segment_sums *s)
{
    ml_markup(out, "[");
    int error = put_pages(out, r);
    ml_markup(out, "] ");
    ml_markup_torch_size(out, s->reserved);
    ml_markup(out, " allocated, ");
    put_free(out, s);
    ml_markup(out, " free");
    if (r->segment->stream != 0) {
        ml_markup(out, " stream_");
        ml_markup_unsigned(out, r->segment->stream);
    }
    if (r->device != 0) {
        ml_markup(out, " device_");
        ml_markup_unsigned(out, r->device);
    }
    ml_markup(out, "\n");
    return error;
}

static void
put_total(ml_buffer *out, const char *name, uint64_t bytes)
{
    ml_markup(out, name);
    ml_markup_torch_size(out, bytes);
    ml_markup(out, "\n");
}

static int
put_rows(ml_buffer *out, const row *rows, size_t count)
{
    segment_sums all = {0};
    ml_markup(out, "Summary of segments >= 20.0MiB in size\n");
    for (size_t i = 0; i < count; i++) {
        segment_sums s = sum_up(&rows[i]);
        int error = s.reserved < PAGE_BYTES ? 0 : put_row(out, &rows[i], &s);
        if (error < 0) {
            return error;
        }
        all.reserved = ml_markup_add(all.reserved, s.reserved);
        all.allocated = ml_markup_add(all.allocated, s.allocated);
        all.external = ml_markup_add(all.external, s.external);
        all.internal = ml_markup_add(all.internal, s.internal);
    }
    ml_markup(out, "segments: ");
    ml_markup_unsigned(out, count);
    put_total(out, "\ntotal_reserved: ", all.reserved);
    put_total(out, "total_allocated: ", all.allocated);
    ml_markup(out, "total_free: ");
    put_free(out, &all);
    ml_markup(
        out,
        "\n\nLegend:\n"
        "    [a     ] - a segment in the allocator\n"
        "     ^-- a page 20.0MiB of memory in the segment\n"
        "    a-z: pages filled with a single block's content\n"
        "    ' ': page is completely free\n"
        "    *: page if completely full with multiple blocks\n"
        "    0-9: page is partially full with tensors of multiple blocks (9 == 90% "
        "full)\n"
        "    (X% internal) - of the free memory, X% is free because we rounded the "
        "size of the allocation.\n");
    return out->error;
}

int
ml_torch_segsum(const ml_recording *recording, ml_buffer *out)
{
    size_t count = 0;
    for (size_t d = 0; d < recording->device_count; d++) {
        count += recording->devices[d].segment_count;
    }
    row *rows = ml_alloc_zeroed(count + 1, sizeof(*rows));
    if (rows == NULL) {
        return ML_ENOMEM;
    }
    size_t index = 0;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->segment_count; i++) {
            const ml_segment *segment = &trace->segments[i];
            rows[index] = (row){.trace = trace,
                                .segment = segment,
                                .device = d,
                                .index = index,
                                .in_use = bytes_in_use(trace, segment)};
            index++;
        }
    }
    qsort(rows, count, sizeof(*rows), compare_rows);
    int error = put_rows(out, rows, count);
    ml_free(rows);
    return error;
}
