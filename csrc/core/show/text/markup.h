/* Text for pictures in SVG and HTML.
 *
 * Owns the escaping that keeps any string inside its element, the form of sizes and
 * frames, letters' widths, and the common head of pages.  The buffer remembers
 * errors. */
#ifndef ML_MARKUP_H
#define ML_MARKUP_H

#include "base/base.h"
#include "recording/recording.h"

/* As a picture's device: all devices. */
#define ML_ALL_DEVICES SIZE_MAX

/* Writes TEXT, memlab's own, unescaped: it may contain markup. */
void ml_markup(ml_buffer *out, const char *text);

/* Writes untrusted text, valid in XML and HTML, in elements and quoted attributes.
 * Characters that XML forbids or that change the text's direction become control
 * pictures or U+FFFD. */
void ml_markup_text(ml_buffer *out, const char *bytes, size_t length);
/* Cuts the text to COLUMNS; a cut text ends with U+2026. */
void ml_markup_cut(ml_buffer *out, const char *bytes, size_t length, size_t columns);

void ml_markup_unsigned(ml_buffer *out, uint64_t value);
/* 1234567 as "1,234,567". */
void ml_markup_count(ml_buffer *out, uint64_t value);
/* In hexadecimal, as "0x7f". */
void ml_markup_address(ml_buffer *out, uint64_t addr);
/* 1536 bytes as "1.50 KiB": three significant digits in the smallest unit below 1000;
 * below 1 KiB all digits. */
void ml_markup_size(ml_buffer *out, uint64_t bytes);
/* 1536 bytes as "1.5KiB", the form of torch's own reports. */
void ml_markup_torch_size(ml_buffer *out, uint64_t bytes);
/* As ml_markup_size; from 1024 on with " (1,536 bytes)". */
void ml_markup_exact_size(ml_buffer *out, uint64_t bytes);
/* PART of WHOLE as "12.3 %"; for WHOLE 0 "0.0 %". */
void ml_markup_share(ml_buffer *out, uint64_t part, uint64_t whole);
/* A coordinate in hundredths: 1250 is "12.5". */
void ml_markup_fixed(ml_buffer *out, uint64_t hundredths);

#define ML_DEVICE_LABEL 200

/* The name of DEVICE, unescaped: WORD and its number; in a merged recording also the
 * rank. */
void ml_device_label(const ml_recording *recording, size_t device, const char *word,
                     char out[ML_DEVICE_LABEL]);

/* An enum ml_category, as in "optimizer state". */
void ml_markup_category(ml_buffer *out, unsigned category);

/* "function file:line", unescaped.  WHOLE: with the file's path, else its name. */
void ml_markup_frame(ml_buffer *out, const ml_recording *recording, uint32_t frame,
                     bool whole);
/* A line for each frame of STACK, innermost first, escaped; "..." for frames beyond
 * MOST. */
void ml_markup_stack(ml_buffer *out, const ml_recording *recording, uint32_t stack,
                     size_t most);

/* Begin and end a page without scripts.  Its policy allows nothing but its style.
 * TITLE is untrusted. */
void ml_markup_page_begin(ml_buffer *out, const char *title, size_t length);
void ml_markup_page_end(ml_buffer *out);

/* The sum, or UINT64_MAX: sizes in a file may overflow. */
static inline uint64_t
ml_markup_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* PART of WHOLE (not 0), scaled to LENGTH hundredths. */
static inline uint64_t
ml_markup_scale(uint64_t part, uint64_t whole, uint64_t length)
{
    double scaled = (double)part / (double)whole * (double)length;
    return scaled >= (double)length ? length : (uint64_t)(scaled + 0.5);
}

#endif
