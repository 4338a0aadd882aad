/* A timeline's curves in SVG: an area for each category, and the line of reserved bytes.
 *
 * Owns the order of the categories, their colours, and where a column and bytes are in a
 * plot; the pages around it own its axes and words. */
#ifndef ML_TIMELINE_PLOT_H
#define ML_TIMELINE_PLOT_H

#include "show/draw/timeline.h"
#include "show/text/markup.h"

/* The plot's place, in hundredths of a pixel. */
typedef struct ml_timeline_plot {
    const ml_timeline *timeline; /* borrowed */
    uint64_t most;               /* bytes at the top of the plot; not 0 */
    uint64_t left, top, width, height;
    ml_buffer *out;
} ml_timeline_plot;

typedef struct ml_timeline_layer {
    uint8_t category;
    const char *color;
} ml_timeline_layer;

/* Long-lived layers at the bottom, short-lived above. */
#define ML_TIMELINE_LAYERS ML_CATEGORY_COUNT
extern const ml_timeline_layer ml_timeline_layers[ML_TIMELINE_LAYERS];

/* The most bytes of TIMELINE, allocated or reserved; 0 if it has none. */
uint64_t ml_timeline_most(const ml_timeline *timeline);
/* Whether no column of TIMELINE has a byte of LAYER, an index. */
bool ml_timeline_lacks(const ml_timeline *timeline, size_t layer);

/* The left edge of COLUMN. */
uint64_t ml_timeline_x(const ml_timeline_plot *plot, size_t column);
void ml_timeline_put_areas(const ml_timeline_plot *plot);
/* ATTRIBUTES of the line, memlab's own, as in "class=\"line\"". */
void ml_timeline_put_reserved(const ml_timeline_plot *plot, const char *attributes);
/* NS as "12.345 ms". */
void ml_timeline_put_ms(ml_buffer *out, uint64_t ns);

#endif
