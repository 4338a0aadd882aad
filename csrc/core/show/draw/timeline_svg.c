/* Draws the timeline as a small picture.  See timeline_svg.h. */
#include "show/draw/timeline_svg.h"

#include <string.h>

#include "base/base.h"
#include "show/draw/timeline_plot.h"

/* Hundredths of a pixel, except COLUMNS. */
#define COLUMNS 320u
#define WIDTH 64000u
#define TOP 1800u
#define HEIGHT 9600u
#define BOTTOM (TOP + HEIGHT)
/* The first row of the legend, and each row. */
#define LEGEND (BOTTOM + 3200u)
#define ROW 1800u
/* A letter of 11 pixels, a square with its gap, and the space behind a name. */
#define LETTER 620u
#define SQUARE 1400u
#define GAP 1200u
#define RESERVED "stroke=\"currentColor\" stroke-opacity=\"0.6\" fill=\"none\""

static void
put_number(ml_buffer *out, const char *before, uint64_t hundredths, const char *after)
{
    ml_markup(out, before);
    ml_markup_fixed(out, hundredths);
    ml_markup(out, after);
}

/* ---- The legend ---- */

typedef struct legend {
    ml_buffer *out; /* NULL: only the places are found */
    uint64_t x, y;  /* of the next entry */
} legend;

/* Moves on by an entry with LETTERS; its place is in X and Y. */
static void
take_place(legend *l, size_t letters, uint64_t *x, uint64_t *y)
{
    uint64_t width = SQUARE + letters * LETTER;
    if (l->x > 0 && l->x + width > WIDTH) {
        l->x = 0;
        l->y += ROW;
    }
    *x = l->x;
    *y = l->y;
    l->x += width + GAP;
}

static void
put_layer(legend *l, size_t layer)
{
    const ml_timeline_layer *the = &ml_timeline_layers[layer];
    uint64_t x, y;
    take_place(l, strlen(ml_category_text(the->category)), &x, &y);
    if (l->out == NULL) {
        return;
    }
    put_number(l->out, "<rect width=\"9\" height=\"9\" x=\"", x, "");
    put_number(l->out, "\" y=\"", y - 900, "\" fill=\"");
    ml_markup(l->out, the->color);
    put_number(l->out, "\"/><text x=\"", x + SQUARE, "");
    put_number(l->out, "\" y=\"", y, "\">");
    ml_markup_category(l->out, the->category);
    ml_markup(l->out, "</text>\n");
}

static void
put_line_key(legend *l)
{
    uint64_t x, y;
    take_place(l, strlen("reserved"), &x, &y);
    if (l->out == NULL) {
        return;
    }
    put_number(l->out, "<path " RESERVED " d=\"M", x, "");
    put_number(l->out, " ", y - 400, "h9\"/>");
    put_number(l->out, "<text x=\"", x + SQUARE, "");
    put_number(l->out, "\" y=\"", y, "\">reserved</text>\n");
}

/* What is drawn of T, top layer first.  The lowest row's place. */
static uint64_t
put_legend(const ml_timeline *t, ml_buffer *out)
{
    legend l = {out, 0, LEGEND};
    for (size_t i = ML_TIMELINE_LAYERS; i-- > 0;) {
        if (!ml_timeline_lacks(t, i)) {
            put_layer(&l, i);
        }
    }
    put_line_key(&l);
    return l.y;
}

/* ---- The picture ---- */

static void
put_peak(const ml_timeline_plot *p)
{
    const ml_timeline *t = p->timeline;
    const ml_timeline_column *peak = &t->columns[t->peak];
    uint64_t x = ml_timeline_x(p, t->peak);
    bool left = x < WIDTH / 2;
    put_number(p->out, "<path stroke=\"currentColor\" stroke-dasharray=\"2\" d=\"M", x,
               "");
    put_number(p->out, " ", TOP - 1500, "V");
    ml_markup_fixed(p->out, BOTTOM);
    put_number(p->out, "\"/><text x=\"", left ? x + 400 : x - 400, "");
    put_number(p->out, "\" y=\"", TOP - 600, left ? "\">" : "\" text-anchor=\"end\">");
    ml_markup(p->out, "peak ");
    ml_markup_size(p->out, peak->allocated);
    ml_markup(p->out, " at ");
    ml_timeline_put_ms(p->out, peak->time - t->start);
    ml_markup(p->out, "</text>\n");
}

static void
put_axis(const ml_timeline_plot *p)
{
    put_number(p->out, "<path stroke=\"currentColor\" d=\"M0 ", BOTTOM, "H640\"/>");
    put_number(p->out, "<text x=\"0\" y=\"", BOTTOM + 1300, "\">0 ms</text>");
    put_number(p->out, "<text x=\"640\" y=\"", BOTTOM + 1300,
               "\" text-anchor=\"end\">");
    ml_timeline_put_ms(p->out, p->timeline->span_ns);
    ml_markup(p->out, "</text>\n");
}

static void
put_picture(const ml_timeline *t, ml_buffer *out)
{
    ml_timeline_plot p = {t, ml_timeline_most(t), 0, TOP, WIDTH, HEIGHT, out};
    if (p.most == 0) {
        return;
    }
    put_number(out, "<svg width=\"640\" viewBox=\"0 0 640 ", put_legend(t, NULL) + 600,
               "\" style=\"max-width: 100%\" font-family=\"sans-serif\" "
               "font-size=\"11\" fill=\"currentColor\" role=\"img\" "
               "aria-label=\"Allocated bytes by category over time\">\n");
    ml_timeline_put_areas(&p);
    ml_timeline_put_reserved(&p, RESERVED);
    put_axis(&p);
    put_peak(&p);
    put_legend(t, out);
    ml_markup(out, "</svg>\n");
}

int
ml_timeline_svg(const ml_recording *recording, size_t device, ml_buffer *out)
{
    size_t own = device;
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    const ml_recording *part = ml_recording_part(recording, &own);
    ml_timeline *t;
    int error = ml_timeline_new(part, own, COLUMNS, &t);
    if (error < 0) {
        return error;
    }
    put_picture(t, out);
    ml_timeline_free(t);
    return out->error;
}
