/* Draws a timeline's curves.  See timeline_plot.h. */
#include "show/draw/timeline_plot.h"

#define NS_PER_MS 1000000u

/* Colours as in viewer/colors.js. */
const ml_timeline_layer ml_timeline_layers[ML_TIMELINE_LAYERS] = {
    {ML_CATEGORY_BEFORE_RECORDING, "#7c8799"},
    {ML_CATEGORY_PARAMETER, "#0072b2"},
    {ML_CATEGORY_BUFFER, "#56b4e9"},
    {ML_CATEGORY_OPTIMIZER_STATE, "#e69f00"},
    {ML_CATEGORY_WORKSPACE, "#7a5fb5"},
    {ML_CATEGORY_COMMUNICATION, "#8c6d46"},
    {ML_CATEGORY_INPUT, "#c9bb1c"},
    {ML_CATEGORY_OTHER, "#4f8a8b"},
    {ML_CATEGORY_GRADIENT, "#009e73"},
    {ML_CATEGORY_ACTIVATION, "#d55e00"},
    {ML_CATEGORY_TEMPORARY, "#cc79a7"},
    {ML_CATEGORY_UNKNOWN, "#a3adbd"},
};

uint64_t
ml_timeline_most(const ml_timeline *timeline)
{
    uint64_t allocated = timeline->columns[timeline->peak].allocated;
    return timeline->max_reserved > allocated ? timeline->max_reserved : allocated;
}

bool
ml_timeline_lacks(const ml_timeline *timeline, size_t layer)
{
    for (size_t i = 0; i < timeline->column_count; i++) {
        if (timeline->columns[i].of[ml_timeline_layers[layer].category] != 0) {
            return false;
        }
    }
    return true;
}

/* ---- Places ---- */

uint64_t
ml_timeline_x(const ml_timeline_plot *plot, size_t column)
{
    return plot->left +
           ml_markup_scale(column, plot->timeline->column_count, plot->width);
}

static void
put_x(const ml_timeline_plot *plot, size_t column)
{
    ml_markup_fixed(plot->out, ml_timeline_x(plot, column));
}

static uint64_t
y_of(const ml_timeline_plot *plot, uint64_t bytes)
{
    return plot->top + plot->height - ml_markup_scale(bytes, plot->most, plot->height);
}

/* Bytes of the layers below LAYER in a column. */
static uint64_t
below(const ml_timeline_column *column, size_t layer)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < layer; i++) {
        bytes += column->of[ml_timeline_layers[i].category];
    }
    return bytes;
}

/* ---- Curves ---- */

/* The upper edge of the layers below LAYER, a step for each column; BACK: from right to
 * left, as the lower edge of an area. */
static void
put_edge(const ml_timeline_plot *plot, size_t layer, bool back)
{
    const ml_timeline *t = plot->timeline;
    uint64_t last = UINT64_MAX;
    for (size_t n = 0; n < t->column_count; n++) {
        size_t i = back ? t->column_count - 1 - n : n;
        uint64_t y = y_of(plot, below(&t->columns[i], layer));
        if (y == last) {
            continue;
        }
        if (last == UINT64_MAX && !back) {
            ml_markup(plot->out, "M");
            put_x(plot, 0);
            ml_markup(plot->out, " ");
        }
        else {
            if (last != UINT64_MAX) {
                ml_markup(plot->out, "H");
                put_x(plot, back ? i + 1 : i);
            }
            ml_markup(plot->out, "V");
        }
        ml_markup_fixed(plot->out, y);
        last = y;
    }
    ml_markup(plot->out, "H");
    put_x(plot, back ? 0 : t->column_count);
}

static void
put_area(const ml_timeline_plot *plot, size_t layer)
{
    ml_markup(plot->out, "<path fill=\"");
    ml_markup(plot->out, ml_timeline_layers[layer].color);
    ml_markup(plot->out, "\" d=\"");
    put_edge(plot, layer + 1, false);
    put_edge(plot, layer, true);
    ml_markup(plot->out, "Z\"/>\n");
}

void
ml_timeline_put_areas(const ml_timeline_plot *plot)
{
    for (size_t i = 0; i < ML_TIMELINE_LAYERS; i++) {
        if (!ml_timeline_lacks(plot->timeline, i)) {
            put_area(plot, i);
        }
    }
}

void
ml_timeline_put_reserved(const ml_timeline_plot *plot, const char *attributes)
{
    const ml_timeline *t = plot->timeline;
    ml_markup(plot->out, "<path ");
    ml_markup(plot->out, attributes);
    ml_markup(plot->out, " d=\"M");
    put_x(plot, 0);
    for (size_t i = 0; i < t->column_count; i++) {
        if (i == 0 || t->columns[i].reserved != t->columns[i - 1].reserved) {
            if (i > 0) {
                ml_markup(plot->out, "H");
                put_x(plot, i);
            }
            ml_markup(plot->out, i > 0 ? "V" : " ");
            ml_markup_fixed(plot->out, y_of(plot, t->columns[i].reserved));
        }
    }
    ml_markup(plot->out, "H");
    put_x(plot, t->column_count);
    ml_markup(plot->out, "\"/>\n");
}

/* ---- Times ---- */

void
ml_timeline_put_ms(ml_buffer *out, uint64_t ns)
{
    char digits[4] = {'.', (char)('0' + ns / 100000 % 10),
                      (char)('0' + ns / 10000 % 10), (char)('0' + ns / 1000 % 10)};
    ml_markup_count(out, ns / NS_PER_MS);
    ml_buffer_append(out, digits, sizeof(digits));
    ml_markup(out, " ms");
}
