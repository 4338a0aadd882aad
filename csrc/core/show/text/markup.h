/* Text for pictures: what SVG and HTML show of a recording.
 *
 * Owns the escaping that keeps any string inside its element, how sizes and frames
 * read, the letters' width, and the head that all pages share.  Whatever goes wrong is
 * remembered by the buffer. */
#ifndef ML_MARKUP_H
#define ML_MARKUP_H

#include "base/base.h"
#include "recording/recording.h"

/* For the device of a picture: all of them. */
#define ML_ALL_DEVICES SIZE_MAX

/* TEXT is ours and may hold markup. */
void ml_markup(ml_buffer *out, const char *text);

/* Text from outside: valid in XML and HTML, in elements and in quoted attributes.  What
 * XML has no place for, and what could turn the direction of the text around, shows as
 * a control picture or U+FFFD. */
void ml_markup_text(ml_buffer *out, const char *bytes, size_t length);
/* The first of it, up to COLUMNS of a letter's width; then the last shown is U+2026. */
void ml_markup_cut(ml_buffer *out, const char *bytes, size_t length, size_t columns);

void ml_markup_unsigned(ml_buffer *out, uint64_t value);
/* 1234567 as "1,234,567". */
void ml_markup_count(ml_buffer *out, uint64_t value);
/* In hexadecimal, as "0x7f". */
void ml_markup_address(ml_buffer *out, uint64_t addr);
/* 1536 bytes as "1.50 KiB": three significant digits, in the least unit with a value
 * below 1000; below 1 KiB all. */
void ml_markup_size(ml_buffer *out, uint64_t bytes);
/* 1536 bytes as "1.5KiB", as torch's own reports write it. */
void ml_markup_torch_size(ml_buffer *out, uint64_t bytes);
/* As ml_markup_size and, from 1024 on, " (1,536 bytes)". */
void ml_markup_exact_size(ml_buffer *out, uint64_t bytes);
/* PART of WHOLE as "12.3 %"; "0.0 %" of nothing. */
void ml_markup_share(ml_buffer *out, uint64_t part, uint64_t whole);
/* A coordinate, in hundredths: 1250 as "12.5". */
void ml_markup_fixed(ml_buffer *out, uint64_t hundredths);

#define ML_DEVICE_LABEL 200

/* What people call DEVICE, unescaped: WORD and its number, of a merged recording the rank
 * too. */
void ml_device_label(const ml_recording *recording, size_t device, const char *word,
                     char out[ML_DEVICE_LABEL]);

/* An enum ml_category, as in "optimizer state". */
void ml_markup_category(ml_buffer *out, unsigned category);

/* "function file:line", not escaped: the file's name alone, or where WHOLE its path. */
void ml_markup_frame(ml_buffer *out, const ml_recording *recording, uint32_t frame,
                     bool whole);
/* A line for each frame of STACK, the innermost first, escaped; "..." for those beyond
 * MOST. */
void ml_markup_stack(ml_buffer *out, const ml_recording *recording, uint32_t stack,
                     size_t most);

/* What begins and ends a page without scripts, under a policy that allows nothing but
 * its style.  TITLE from outside. */
void ml_markup_page_begin(ml_buffer *out, const char *title, size_t length);
void ml_markup_page_end(ml_buffer *out);

/* The sum, or UINT64_MAX: sizes in a file may say anything. */
static inline uint64_t
ml_markup_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* PART of WHOLE, which is not 0, on a scale of LENGTH hundredths. */
static inline uint64_t
ml_markup_scale(uint64_t part, uint64_t whole, uint64_t length)
{
    double scaled = (double)part / (double)whole * (double)length;
    return scaled >= (double)length ? length : (uint64_t)(scaled + 0.5);
}

#endif
