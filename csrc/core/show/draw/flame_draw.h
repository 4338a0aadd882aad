/* The look of flame graphs: their file, their boxes, the effect of a click.
 *
 * Owns the measures, the style and the script of the SVG.  Widths and horizontal places
 * are in hundredths of a pixel, depths in rows. */
#ifndef ML_FLAME_DRAW_H
#define ML_FLAME_DRAW_H

#include "show/text/markup.h"

#define ML_FLAME_WIDTH 120000u
/* Narrower boxes are not drawn alone. */
#define ML_FLAME_NARROWEST 10u

#define ML_FLAME_NOT_ALL "Not all frames are shown: stacks are very deep, or very many."

typedef struct ml_flame_key_item {
    const char *class, *text;
} ml_flame_key_item;

/* Begins the file.  TITLE is escaped; STYLE adds to the common style; NOTE, unless
 * NULL, stands at the foot. */
void ml_flame_begin(ml_buffer *out, uint32_t deepest, const char *style,
                    const ml_buffer *title, const char *note);
void ml_flame_legend(ml_buffer *out, const ml_flame_key_item *items, size_t count);
void ml_flame_end(ml_buffer *out);

/* Between the two calls comes the box's title, whose first line is its name.  NAME is
 * cut to the box.  The class of a box with a file's path in its name contains u, p, l
 * or n. */
void ml_flame_box_begin(ml_buffer *out);
void ml_flame_box_end(ml_buffer *out, const char *class, uint64_t x, uint64_t width,
                      uint32_t depth, const ml_buffer *name);

#endif
