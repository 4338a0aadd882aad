/* Writes the segments as a page.  See segments_page.h.
 *
 * All rows are equally wide, so that gaps show in small segments too.  The bar below a
 * row has the common scale.  A segment of many blocks, such as an expandable one,
 * continues in further lines.  Blocks narrower than a pixel, or than a few if there are
 * very many, are drawn with their neighbours.  Their colour is that of most of their
 * bytes. */
#include "show/draw/segments_page.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/analysis.h"

/* Lines drawn for a device, largest segments first, and for one segment. */
#define MOST_LINES 2000u
#define MOST_OF_SEGMENT 40u
#define BLOCKS_A_LINE 250u
/* Each time the blocks reach this many more, the narrowest box grows by a pixel. */
#define MANY_BLOCKS 50000u
/* Most frames shown for a block. */
#define MOST_FRAMES 12u
/* Hundredths of a pixel, except LINE. */
#define BAR_LEFT 30000u
#define BAR_WIDTH 90000u
#define LINE 24u

#define STATE_COUNT (ML_BLOCK_PENDING_FREE + 1)

static const struct {
    const char *text, *paint;
} states[STATE_COUNT] = {
    [ML_BLOCK_INACTIVE] = {"inactive", "class=\"free edge\""},
    [ML_BLOCK_ALLOCATED] = {"allocated", "class=\"edge\" fill=\"#0072b2\""},
    [ML_BLOCK_PENDING_FREE] = {"awaiting free", "class=\"edge\" fill=\"#e69f00\""},
};

typedef struct left_block {
    uint64_t addr;
    size_t row; /* row of the lifetimes */
} left_block;

typedef struct segments_page_work {
    const ml_recording *recording; /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    const ml_analysis *analysis;   /* borrowed */
    left_block *left;              /* owned; the blocks in use at the end, by address */
    size_t left_count;
    size_t left_capacity;
    uint64_t largest;   /* segment, bytes */
    uint64_t narrowest; /* narrowest box, hundredths of a pixel */
    ml_buffer *out;
} segments_page_work;

/* ---- What blocks are for ---- */

static int
compare_left(const void *a, const void *b)
{
    const left_block *x = a;
    const left_block *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static int
find_left(segments_page_work *w, size_t device)
{
    int error = ml_analysis_of(w->recording, device, &w->analysis);
    if (error == 0) {
        error = ml_analysis_judge(w->analysis);
    }
    if (error < 0) {
        return error;
    }
    const ml_lifetimes *lifetimes = &w->analysis->lifetimes;
    for (size_t i = 0; i < lifetimes->count; i++) {
        if (lifetimes->rows[i].end != ML_NEVER) {
            continue;
        }
        if (ml_grow((void **)&w->left, &w->left_capacity, w->left_count + 1,
                    sizeof(left_block)) < 0) {
            return ML_ENOMEM;
        }
        w->left[w->left_count++] =
            (left_block){ml_lifetimes_request(lifetimes, i).addr, i};
    }
    if (w->left_count != 0) {
        qsort(w->left, w->left_count, sizeof(left_block), compare_left);
    }
    return 0;
}

static unsigned
category_of(const segments_page_work *w, const ml_block *block)
{
    size_t at =
        ml_find_address(w->left, sizeof(left_block), w->left_count, block->addr);
    return at == w->left_count || w->left[at].addr != block->addr
               ? ML_CATEGORY_UNKNOWN
               : ml_analysis_category(w->analysis, w->left[at].row);
}

/* ---- Sums ---- */

typedef struct page_sums {
    uint64_t bytes[STATE_COUNT];
    uint64_t blocks[STATE_COUNT];
} page_sums;

/* Adds BYTES of a block. */
static void
sum_block(page_sums *s, const ml_block *block, uint64_t bytes)
{
    s->bytes[block->state] = ml_markup_add(s->bytes[block->state], bytes);
    s->blocks[block->state]++;
}

static void
put_blocks(ml_buffer *out, uint64_t count)
{
    ml_markup_count(out, count);
    ml_markup(out, count == 1 ? " block" : " blocks");
}

static void
put_sum_row(ml_buffer *out, unsigned state, uint64_t bytes, uint64_t blocks,
            uint64_t whole)
{
    ml_markup(out, "<tr><th>");
    if (state < STATE_COUNT) {
        ml_markup(out, "<svg width=\"12\" height=\"12\" class=\"key\"><rect "
                       "width=\"12\" height=\"12\" ");
        ml_markup(out, states[state].paint);
        ml_markup(out, "/></svg>");
    }
    ml_markup(out, state < STATE_COUNT ? states[state].text : "reserved");
    ml_markup(out, "</th><td>");
    ml_markup_size(out, bytes);
    ml_markup(out, "</td><td>");
    ml_markup_count(out, bytes);
    ml_markup(out, " bytes</td><td>");
    ml_markup_share(out, bytes, whole);
    ml_markup(out, "</td><td>");
    put_blocks(out, blocks);
    ml_markup(out, "</td></tr>\n");
}

static void
put_sums(const segments_page_work *w)
{
    page_sums s = {0};
    uint64_t reserved = 0;
    for (size_t i = 0; i < w->trace->block_count; i++) {
        sum_block(&s, &w->trace->blocks[i], w->trace->blocks[i].size);
    }
    for (size_t i = 0; i < w->trace->segment_count; i++) {
        reserved = ml_markup_add(reserved, w->trace->segments[i].total);
    }
    ml_markup(w->out, "<table>\n");
    put_sum_row(w->out, STATE_COUNT, reserved, w->trace->block_count, reserved);
    for (unsigned i = ML_BLOCK_ALLOCATED; i <= ML_BLOCK_PENDING_FREE; i++) {
        put_sum_row(w->out, i, s.bytes[i], s.blocks[i], reserved);
    }
    put_sum_row(w->out, ML_BLOCK_INACTIVE, s.bytes[ML_BLOCK_INACTIVE],
                s.blocks[ML_BLOCK_INACTIVE], reserved);
    ml_markup(w->out, "</table>\n");
}

/* ---- Blocks ---- */

/* Neighbouring blocks that are drawn as one. */
typedef struct run {
    const ml_block *first;
    uint64_t left; /* hundredths of a pixel */
    uint64_t right;
    page_sums s;
} run;

static void
put_block_title(const segments_page_work *w, const ml_block *block)
{
    ml_markup_exact_size(w->out, block->size);
    ml_markup(w->out, " ");
    ml_markup(w->out, states[block->state].text);
    ml_markup(w->out, " at ");
    ml_markup_address(w->out, block->addr);
    if (block->state == ML_BLOCK_INACTIVE) {
        return;
    }
    ml_markup(w->out, "\nasked for ");
    ml_markup_exact_size(w->out, block->requested);
    ml_markup(w->out, "\n");
    ml_markup_category(w->out, category_of(w, block));
    ml_markup_stack(w->out, w->recording, block->stack, MOST_FRAMES);
}

static void
put_run_title(const segments_page_work *w, const run *r)
{
    for (unsigned i = 0, lines = 0; i < STATE_COUNT; i++) {
        if (r->s.blocks[i] > 0) {
            ml_markup(w->out, lines++ > 0 ? "\n" : "");
            put_blocks(w->out, r->s.blocks[i]);
            ml_markup(w->out, " ");
            ml_markup(w->out, states[i].text);
            ml_markup(w->out, ", ");
            ml_markup_exact_size(w->out, r->s.bytes[i]);
        }
    }
}

static void
put_run(const segments_page_work *w, const run *r, uint64_t top)
{
    unsigned most = ML_BLOCK_INACTIVE;
    uint64_t blocks = 0;
    for (unsigned i = 0; i < STATE_COUNT; i++) {
        most = r->s.bytes[i] > r->s.bytes[most] ? i : most;
        blocks += r->s.blocks[i];
    }
    ml_markup(w->out, "<rect ");
    ml_markup(w->out, states[most].paint);
    ml_markup(w->out, " x=\"");
    ml_markup_fixed(w->out, BAR_LEFT + r->left);
    ml_markup(w->out, "\" y=\"");
    ml_markup_unsigned(w->out, top);
    ml_markup(w->out, "\" width=\"");
    ml_markup_fixed(w->out, r->right - r->left);
    ml_markup(w->out, "\" height=\"15\"><title>");
    if (blocks == 1) {
        put_block_title(w, r->first);
    }
    else {
        put_run_title(w, r);
    }
    ml_markup(w->out, "</title></rect>\n");
}

/* A line of a segment: its bytes from LOW on; LENGTH bytes would fill it. */
typedef struct line {
    const ml_segment *segment;
    uint64_t low;
    uint64_t length;
    uint64_t top; /* pixels */
} line;

static uint64_t
end_of(const line *l)
{
    uint64_t rest = l->segment->total - l->low;
    return l->low + (rest < l->length ? rest : l->length);
}

static uint64_t
place_on(const line *l, uint64_t offset)
{
    return ml_markup_scale(offset - l->low, l->length, BAR_WIDTH);
}

/* Draws the blocks on L from *NEXT on, up to its end.  A block joins the current run if
 * both are too narrow. */
static void
put_line_blocks(const segments_page_work *w, const line *l, size_t *next)
{
    const ml_segment *segment = l->segment;
    const ml_block *blocks = &w->trace->blocks[segment->first_block];
    uint64_t end = end_of(l);
    run r = {0};
    for (size_t i = *next; i < segment->block_count; i++) {
        uint64_t from = blocks[i].addr - segment->addr;
        uint64_t to = from + blocks[i].size;
        if (from >= end) {
            break;
        }
        from = from > l->low ? from : l->low;
        uint64_t right = place_on(l, to < end ? to : end);
        uint64_t left = place_on(l, from);
        if (r.first != NULL &&
            (right - left >= w->narrowest || right - r.left > w->narrowest)) {
            put_run(w, &r, l->top);
            r = (run){0};
        }
        if (r.first == NULL) {
            r.first = &blocks[i];
            r.left = left;
        }
        r.right = right;
        sum_block(&r.s, &blocks[i], (to < end ? to : end) - from);
        *next = to > end ? i : i + 1;
    }
    if (r.first != NULL) {
        put_run(w, &r, l->top);
    }
}

/* ---- Rows ---- */

static size_t
lines_of(const ml_segment *segment)
{
    size_t lines = 1 + segment->block_count / BLOCKS_A_LINE;
    return lines < MOST_OF_SEGMENT ? lines : MOST_OF_SEGMENT;
}

/* Draws the lines of SEGMENT; the first is the page's line FIRST. */
static void
put_lines(const segments_page_work *w, const ml_segment *segment, size_t first)
{
    uint64_t length = (segment->total - 1) / lines_of(segment) + 1;
    size_t next = 0;
    line l = {segment, 0, length, (uint64_t)first * LINE};
    while (l.low < segment->total) {
        if (l.low > 0) {
            ml_markup(w->out, "<text class=\"quiet\" x=\"20\" y=\"");
            ml_markup_unsigned(w->out, l.top + 12);
            ml_markup(w->out, "\">from ");
            ml_markup_size(w->out, l.low);
            ml_markup(w->out, " on</text>\n");
        }
        put_line_blocks(w, &l, &next);
        l.top += LINE;
        l.low = end_of(&l);
    }
}

static void
put_pool(ml_buffer *out, const ml_segment *segment)
{
    ml_markup(out, segment->small ? ", small pool" : ", large pool");
    if (segment->pool[0] != 0 || segment->pool[1] != 0) {
        ml_markup(out, " (");
        ml_markup_unsigned(out, segment->pool[0]);
        ml_markup(out, ", ");
        ml_markup_unsigned(out, segment->pool[1]);
        ml_markup(out, ")");
    }
    ml_markup(out, segment->expandable ? ", expandable" : "");
    ml_markup(out, ", stream ");
    ml_markup_unsigned(out, segment->stream);
}

static void
put_row(const segments_page_work *w, const ml_segment *segment, size_t first)
{
    uint64_t top = (uint64_t)first * LINE;
    ml_markup(w->out, "<text x=\"0\" y=\"");
    ml_markup_unsigned(w->out, top + 12);
    ml_markup(w->out, "\">");
    ml_markup_size(w->out, segment->total);
    if (w->recording->rules.has_segments) {
        put_pool(w->out, segment);
    }
    ml_markup(w->out, "<title>at ");
    ml_markup_address(w->out, segment->addr);
    ml_markup(w->out, ": ");
    ml_markup_exact_size(w->out, segment->total);
    ml_markup(w->out, ", ");
    ml_markup_exact_size(w->out, segment->allocated);
    ml_markup(w->out, " allocated");
    ml_markup_stack(w->out, w->recording, segment->stack, MOST_FRAMES);
    ml_markup(w->out, "</title></text>\n");
    put_lines(w, segment, first);
    ml_markup(w->out, "<rect fill=\"#7c8799\" x=\"300\" y=\"");
    ml_markup_unsigned(w->out, top + 16);
    ml_markup(w->out, "\" width=\"");
    ml_markup_fixed(w->out, ml_markup_scale(segment->total, w->largest, BAR_WIDTH));
    ml_markup(w->out, "\" height=\"2\"/>\n");
}

static int
compare_segments(const void *left, const void *right)
{
    const ml_segment *a = *(const ml_segment *const *)left;
    const ml_segment *b = *(const ml_segment *const *)right;
    if (a->total != b->total) {
        return a->total > b->total ? -1 : 1;
    }
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int
put_rows(segments_page_work *w)
{
    size_t count = w->trace->segment_count;
    const ml_segment **rows = ml_alloc_zeroed(count, sizeof(*rows));
    if (rows == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        rows[i] = &w->trace->segments[i];
    }
    qsort(rows, count, sizeof(*rows), compare_segments);
    w->largest = rows[0]->total > 0 ? rows[0]->total : 1;
    w->narrowest = 100 * (1 + w->trace->block_count / MANY_BLOCKS);
    size_t drawn = 0;
    size_t lines = 0;
    while (drawn < count && rows[drawn]->total > 0 && lines < MOST_LINES) {
        lines += lines_of(rows[drawn++]);
    }
    uint64_t height = (uint64_t)lines * LINE;
    ml_markup(w->out, "<svg width=\"1200\" height=\"");
    ml_markup_unsigned(w->out, height);
    ml_markup(w->out, "\" viewBox=\"0 0 1200 ");
    ml_markup_unsigned(w->out, height);
    ml_markup(w->out, "\">\n");
    lines = 0;
    for (size_t i = 0; i < drawn; i++) {
        put_row(w, rows[i], lines);
        lines += lines_of(rows[i]);
    }
    ml_markup(w->out, "</svg>\n");
    if (drawn < count) {
        uint64_t rest = 0;
        for (size_t i = drawn; i < count; i++) {
            rest = ml_markup_add(rest, rows[i]->total);
        }
        ml_markup(w->out, "<p>");
        ml_markup_count(w->out, count - drawn);
        ml_markup(w->out, " smaller segments, ");
        ml_markup_exact_size(w->out, rest);
        ml_markup(w->out, " in all, are not drawn.</p>\n");
    }
    ml_free(rows);
    return 0;
}

static int
put_device(const ml_recording *recording, size_t device, ml_buffer *out)
{
    size_t own = device;
    const ml_recording *part = ml_recording_part(recording, &own);
    segments_page_work w = {
        .recording = part, .trace = &part->devices[own], .out = out};
    char label[ML_DEVICE_LABEL];
    ml_device_label(recording, device, "Device", label);
    ml_markup(out, "<h2>");
    ml_markup_text(out, label, strlen(label));
    ml_markup(out, ": ");
    ml_markup_count(out, w.trace->segment_count);
    /* Without segments, each block counts as one. */
    ml_markup(out, part->rules.has_segments ? " segment" : " block");
    ml_markup(out, w.trace->segment_count == 1 ? "" : "s");
    ml_markup(out, " at the end of the recording</h2>\n");
    put_sums(&w);
    int error = 0;
    if (w.trace->segment_count > 0) {
        error = find_left(&w, own);
        error = error < 0 ? error : put_rows(&w);
    }
    ml_free(w.left);
    return error;
}

int
ml_segments_page_write(const ml_recording *recording, size_t device, ml_buffer *out)
{
    static const char title[] = "Segments of the allocator";
    int error = 0;
    ml_markup_page_begin(out, title, sizeof(title) - 1);
    ml_markup(out,
              "<p class=\"quiet\">A row is a segment, of any size; the bar below it "
              "is as long as the segment is large.</p>\n");
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        if (device == d ||
            (device == ML_ALL_DEVICES && recording->devices[d].segment_count > 0)) {
            error = put_device(recording, d, out);
        }
    }
    ml_markup_page_end(out);
    return error < 0 ? error : out->error;
}
