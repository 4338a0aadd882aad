/* Writes the timeline as a page.  See timeline_page.h. */
#include "show/draw/timeline_page.h"

#include <string.h>

#include "show/draw/timeline_plot.h"
#include "show/text/markup.h"

/* Hundredths of a pixel, except COLUMNS. */
#define COLUMNS 1000u
#define PLOT_WIDTH 100000u
#define PLOT_HEIGHT 36000u
#define LEFT 7000u
#define TOP 1500u
#define GIB (UINT64_C(1) << 30)
#define NS_PER_MS 1000000u
/* Fewest labels of an axis. */
#define FEWEST_TICKS 4

/* ---- Axes ---- */

/* Steps of 1, 2 or 5 times a power of ten. */
typedef struct ticks {
    unsigned mantissa;
    int exponent;
    double step;
} ticks;

/* From FEWEST_TICKS steps on, up to MOST, which is above 0. */
static ticks
choose_ticks(double most)
{
    static const unsigned mantissas[] = {5, 2, 1};
    ticks t = {.step = 1.0};
    double power = 1.0;
    while (power * FEWEST_TICKS <= most) {
        power *= 10.0;
        t.exponent++;
    }
    do {
        power /= 10.0;
        t.exponent--;
        for (size_t i = 0; i < 3; i++) {
            t.mantissa = mantissas[i];
            t.step = power * t.mantissa;
            if (t.step * FEWEST_TICKS <= most) {
                return t;
            }
        }
    } while (t.exponent > -30);
    return t;
}

/* Writes INDEX steps, digit by digit. */
static void
put_tick(ml_buffer *out, const ticks *t, unsigned index)
{
    unsigned value = index * t->mantissa;
    if (value == 0) {
        ml_markup(out, "0");
        return;
    }
    if (t->exponent >= 0) {
        ml_markup_unsigned(out, value);
        for (int i = 0; i < t->exponent; i++) {
            ml_markup(out, "0");
        }
        return;
    }
    char text[48];
    size_t at = sizeof(text);
    bool significant = false;
    for (int i = 0; i < -t->exponent || value != 0 || i == -t->exponent; i++) {
        if (i == -t->exponent && significant) {
            text[--at] = '.';
        }
        unsigned digit = value % 10;
        value /= 10;
        if (digit != 0 || significant || i >= -t->exponent) {
            text[--at] = (char)('0' + digit);
            significant = true;
        }
    }
    ml_buffer_append(out, text + at, sizeof(text) - at);
}

static void
put_y_axis(const ml_timeline_plot *c)
{
    double most = (double)c->most / (double)GIB;
    ticks t = choose_ticks(most);
    for (unsigned i = 0; t.step * i <= most; i++) {
        uint64_t y =
            TOP + PLOT_HEIGHT - (uint64_t)(t.step * i / most * PLOT_HEIGHT + 0.5);
        ml_markup(c->out, "<path class=\"grid\" d=\"M70 ");
        ml_markup_fixed(c->out, y);
        ml_markup(c->out, "H1070\"/><text class=\"quiet\" x=\"64\" y=\"");
        ml_markup_fixed(c->out, y + 400);
        ml_markup(c->out, "\" text-anchor=\"end\">");
        put_tick(c->out, &t, i);
        ml_markup(c->out, "</text>\n");
    }
    ml_markup(c->out, "<text class=\"quiet\" x=\"64\" y=\"11\" text-anchor=\"end\">"
                      "GiB</text>\n");
}

static void
put_x_axis(const ml_timeline_plot *c)
{
    const ml_timeline *timeline = c->timeline;
    /* The axis ends with the last column. */
    double most =
        (double)timeline->column_ns / NS_PER_MS * (double)timeline->column_count;
    ticks t = choose_ticks(most);
    for (unsigned i = 0; t.step * i <= most; i++) {
        uint64_t x = LEFT + (uint64_t)(t.step * i / most * PLOT_WIDTH + 0.5);
        ml_markup(c->out, "<path class=\"axis\" d=\"M");
        ml_markup_fixed(c->out, x);
        ml_markup(c->out, " 375v4\"/><text class=\"quiet\" x=\"");
        ml_markup_fixed(c->out, x);
        ml_markup(c->out, "\" y=\"391\" text-anchor=\"middle\">");
        put_tick(c->out, &t, i);
        ml_markup(c->out, "</text>\n");
    }
    ml_markup(c->out, "<path class=\"axis\" d=\"M70 375H1070\"/>"
                      "<text class=\"quiet\" x=\"1070\" y=\"406\" text-anchor=\"end\">"
                      "time in ms</text>\n");
}

/* ---- What a pointer finds ---- */

static bool
same_memory(const ml_timeline_column *a, const ml_timeline_column *b)
{
    bool same = a->allocated == b->allocated && a->reserved == b->reserved;
    for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
        same = same && a->of[i] == b->of[i];
    }
    return same;
}

/* Draws the equal columns from FIRST up to END. */
static void
put_hit(const ml_timeline_plot *c, size_t first, size_t end)
{
    const ml_timeline_column *column = &c->timeline->columns[first];
    ml_markup(c->out, "<rect class=\"hit\" y=\"15\" height=\"360\" x=\"");
    ml_markup_fixed(c->out, ml_timeline_x(c, first));
    ml_markup(c->out, "\" width=\"");
    ml_markup_fixed(
        c->out, ml_markup_scale(end - first, c->timeline->column_count, PLOT_WIDTH));
    ml_markup(c->out, "\"><title>");
    ml_timeline_put_ms(c->out, column->time - c->timeline->start);
    ml_markup(c->out, "\nallocated ");
    ml_markup_exact_size(c->out, column->allocated);
    ml_markup(c->out, "\nreserved ");
    ml_markup_size(c->out, column->reserved);
    for (size_t i = ML_TIMELINE_LAYERS; i-- > 0;) {
        uint64_t bytes = column->of[ml_timeline_layers[i].category];
        if (bytes > 0) {
            ml_markup(c->out, "\n");
            ml_markup_category(c->out, ml_timeline_layers[i].category);
            ml_markup(c->out, " ");
            ml_markup_size(c->out, bytes);
        }
    }
    ml_markup(c->out, "</title></rect>\n");
}

static void
put_hits(const ml_timeline_plot *c)
{
    const ml_timeline *t = c->timeline;
    size_t end;
    for (size_t i = 0; i < t->column_count; i = end) {
        end = i + 1;
        while (end < t->column_count && same_memory(&t->columns[i], &t->columns[end])) {
            end++;
        }
        put_hit(c, i, end);
    }
}

/* ---- The whole ---- */

static void
put_chart(const ml_timeline *t, ml_buffer *out)
{
    ml_timeline_plot c = {t,          ml_timeline_most(t), LEFT, TOP,
                          PLOT_WIDTH, PLOT_HEIGHT,         out};
    if (c.most == 0) {
        ml_markup(out, "<p>No memory was allocated.</p>\n");
        return;
    }
    ml_markup(out, "<svg width=\"1080\" height=\"412\" viewBox=\"0 0 1080 412\" "
                   "role=\"img\" aria-label=\"Allocated bytes by category over "
                   "time\">\n");
    put_y_axis(&c);
    ml_timeline_put_areas(&c);
    ml_timeline_put_reserved(&c, "class=\"line\"");
    put_x_axis(&c);
    put_hits(&c);
    ml_markup(out, "</svg>\n");
}

/* ML_TIMELINE_LAYERS: all layers. */
static void
put_row(ml_buffer *out, size_t layer, uint64_t bytes, uint64_t whole)
{
    ml_markup(out, "<tr><th>");
    if (layer < ML_TIMELINE_LAYERS) {
        ml_markup(out, "<svg width=\"12\" height=\"12\" class=\"key\"><rect "
                       "width=\"12\" height=\"12\" fill=\"");
        ml_markup(out, ml_timeline_layers[layer].color);
        ml_markup(out, "\"/></svg>");
        ml_markup_category(out, ml_timeline_layers[layer].category);
    }
    else {
        ml_markup(out, "allocated");
    }
    ml_markup(out, "</th><td>");
    ml_markup_size(out, bytes);
    ml_markup(out, "</td><td>");
    ml_markup_count(out, bytes);
    ml_markup(out, "</td><td>");
    ml_markup_share(out, bytes, whole);
    ml_markup(out, "</td></tr>\n");
}

static void
put_table(const ml_timeline *t, ml_buffer *out)
{
    const ml_timeline_column *peak = &t->columns[t->peak];
    ml_markup(out, "<table>\n<tr><th>at the peak, ");
    ml_timeline_put_ms(out, peak->time - t->start);
    ml_markup(out, "</th><td></td><td>bytes</td><td></td></tr>\n");
    for (size_t i = ML_TIMELINE_LAYERS; i-- > 0;) {
        if (!ml_timeline_lacks(t, i)) {
            put_row(out, i, peak->of[ml_timeline_layers[i].category], peak->allocated);
        }
    }
    put_row(out, ML_TIMELINE_LAYERS, peak->allocated, peak->allocated);
    ml_markup(out, "</table>\n");
}

static void
put_loss(ml_buffer *out, const char *what, uint64_t count)
{
    if (count > 0) {
        ml_markup(out, "<p>");
        ml_markup(out, what);
        ml_markup(out, ": ");
        ml_markup_count(out, count);
        ml_markup(out, ".</p>\n");
    }
}

static int
put_device(const ml_recording *recording, size_t device, ml_buffer *out)
{
    const ml_device_trace *trace = &recording->devices[device];
    size_t own = device;
    const ml_recording *part = ml_recording_part(recording, &own);
    ml_timeline *t;
    int error = ml_timeline_new(part, own, COLUMNS, &t);
    if (error < 0) {
        return error;
    }
    char label[ML_DEVICE_LABEL];
    ml_device_label(recording, device, "Device", label);
    ml_markup(out, "<h2>");
    ml_markup_text(out, label, strlen(label));
    ml_markup(out, ": max allocated ");
    ml_markup_exact_size(out, t->columns[t->peak].allocated);
    ml_markup(out, ", max reserved ");
    ml_markup_exact_size(out, t->max_reserved);
    ml_markup(out, "</h2>\n");
    if (trace->peak.allocated > t->columns[t->peak].allocated) {
        ml_markup(out, "<p>Before the first event that was kept, ");
        ml_markup_exact_size(out, trace->peak.allocated);
        ml_markup(out, " were allocated.</p>\n");
    }
    put_loss(out, "Older events that made room for newer ones, and are not drawn",
             trace->overwritten_events);
    put_loss(out, "Events that were lost, so that the figures are too low",
             trace->dropped_events);
    put_loss(out, "Events that do not fit the memory that there was", t->misfits);
    put_chart(t, out);
    put_table(t, out);
    ml_markup(out,
              "<p class=\"quiet\">The line is what is reserved. Each column of the "
              "chart shows the instant of most allocated bytes in it.</p>\n");
    ml_timeline_free(t);
    return 0;
}

int
ml_timeline_page_write(const ml_recording *recording, size_t device, const char *title,
                       size_t title_length, ml_buffer *out)
{
    int error = 0;
    ml_markup_page_begin(out, title, title_length);
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        bool has_some = trace->event_count > 0 || trace->segment_count > 0;
        if (device == d || (device == ML_ALL_DEVICES && has_some)) {
            error = put_device(recording, d, out);
        }
    }
    ml_markup_page_end(out);
    return error < 0 ? error : out->error;
}
