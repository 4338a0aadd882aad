/* Writes text for pictures.  See markup.h.
 *
 * Numbers are written digit by digit, because printf's decimal point depends on the
 * locale. */
#include "show/text/markup.h"

#include <stdio.h>
#include <string.h>

#define REPLACEMENT 0xfffdu
/* The first control picture. */
#define PICTURES 0x2400u
#define DELETE_PICTURE 0x2421u
#define ELLIPSIS "\xe2\x80\xa6"
#define KIB 1024u

void
ml_markup(ml_buffer *out, const char *text)
{
    ml_buffer_append(out, text, strlen(text));
}

/* ---- Text from outside ---- */

/* Directional marks and overrides, and separators that break lines. */
static bool
is_steering(unsigned c)
{
    return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* The character to show for C. */
static unsigned
shown(unsigned c)
{
    if (c < 0x20) {
        return PICTURES + c;
    }
    if (c == 0x7f) {
        return DELETE_PICTURE;
    }
    bool no_text = (c >= 0x80 && c < 0xa0) || (c >= 0xd800 && c < 0xe000) ||
                   (c & 0xfffeu) == 0xfffeu;
    return no_text || is_steering(c) ? REPLACEMENT : c;
}

static void
put_character(ml_buffer *out, unsigned c)
{
    char bytes[ML_UTF8_MAX];
    ml_buffer_append(out, bytes, ml_utf8_encode(bytes, c));
}

static const char *
entity(unsigned c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Sets *C to the character at AT and returns its length.  An invalid byte becomes a
 * replacement character. */
static size_t
next_character(const char *bytes, size_t length, size_t at, unsigned *c)
{
    size_t step = ml_utf8_decode((const unsigned char *)bytes + at, length - at, c);
    if (step == 0) {
        *c = REPLACEMENT;
        return 1;
    }
    return step;
}

void
ml_markup_text(ml_buffer *out, const char *bytes, size_t length)
{
    size_t done = 0;
    for (size_t at = 0; at < length;) {
        unsigned c;
        size_t step = next_character(bytes, length, at, &c);
        bool valid = step > 1 || c < 0x80;
        const char *instead = entity(c);
        if (valid && instead == NULL && shown(c) == c) {
            at += step;
            continue;
        }
        ml_buffer_append(out, bytes + done, at - done);
        if (instead != NULL) {
            ml_markup(out, instead);
        }
        else {
            put_character(out, shown(c));
        }
        at += step;
        done = at;
    }
    ml_buffer_append(out, bytes + done, length - done);
}

/* Scripts of East Asia and emoji are two columns wide.  A wrong guess only moves the
 * cut a little. */
static size_t
columns_of(unsigned c)
{
    return (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) ||
                   (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
                   (c >= 0xff01 && c < 0xff61) || c >= 0x1f000
               ? 2
               : 1;
}

void
ml_markup_cut(ml_buffer *out, const char *bytes, size_t length, size_t columns)
{
    size_t used = 0;
    size_t fits = 0; /* bytes that leave one column for the ellipsis */
    for (size_t at = 0; at < length;) {
        unsigned c;
        size_t step = next_character(bytes, length, at, &c);
        used += columns_of(c);
        if (used > columns) {
            if (columns > 0) {
                ml_markup_text(out, bytes, fits);
                ml_markup(out, ELLIPSIS);
            }
            return;
        }
        at += step;
        fits = used < columns ? at : fits;
    }
    ml_markup_text(out, bytes, length);
}

/* ---- Numbers ---- */

/* VALUE; GROUPED: with a comma before every third digit. */
static void
put_digits(ml_buffer *out, uint64_t value, bool grouped)
{
    char text[32];
    size_t at = sizeof(text);
    for (size_t digits = 0; digits == 0 || value != 0; digits++) {
        if (grouped && digits > 0 && digits % 3 == 0) {
            text[--at] = ',';
        }
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    }
    ml_buffer_append(out, text + at, sizeof(text) - at);
}

void
ml_markup_unsigned(ml_buffer *out, uint64_t value)
{
    put_digits(out, value, false);
}

void
ml_markup_count(ml_buffer *out, uint64_t value)
{
    put_digits(out, value, true);
}

void
ml_markup_address(ml_buffer *out, uint64_t addr)
{
    char text[16];
    size_t at = sizeof(text);
    do {
        text[--at] = "0123456789abcdef"[addr & 0xf];
        addr >>= 4;
    } while (addr != 0);
    ml_markup(out, "0x");
    ml_buffer_append(out, text + at, sizeof(text) - at);
}

static void
put_two_digits(ml_buffer *out, uint64_t value)
{
    char text[2] = {(char)('0' + value / 10), (char)('0' + value % 10)};
    ml_buffer_append(out, text, sizeof(text));
}

/* WHOLE + REST / UNIT, below 1000, with three significant digits. */
static void
put_three_digits(ml_buffer *out, uint64_t whole, uint64_t rest, uint64_t unit)
{
    unsigned digits = whole >= 100 ? 0 : whole >= 10 ? 1 : whole >= 1 ? 2 : 3;
    uint64_t scale = 1;
    for (unsigned i = 0; i < digits; i++) {
        scale *= 10;
    }
    /* Makes room for the product; a remainder that is no tie never becomes one. */
    while (unit > UINT64_MAX / 2000) {
        unit >>= 1;
        rest = rest >> 1 | (rest & 1);
    }
    uint64_t value = whole * scale + rest * scale / unit;
    rest = rest * scale % unit;
    /* Rounds ties to even, as Python does in the reports. */
    if (rest * 2 > unit || (rest * 2 == unit && value % 2 == 1)) {
        value++;
    }
    if (value == 1000 && digits > 0) {
        value /= 10;
        scale /= 10;
        digits--;
    }
    ml_markup_unsigned(out, value / scale);
    if (digits > 0) {
        ml_markup(out, ".");
        for (scale /= 10; scale > 0; scale /= 10) {
            ml_markup_unsigned(out, value / scale % 10);
        }
    }
}

void
ml_markup_size(ml_buffer *out, uint64_t bytes)
{
    static const char *const names[] = {" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    if (bytes < KIB) {
        ml_markup_unsigned(out, bytes);
        ml_markup(out, " B");
        return;
    }
    size_t name = 0;
    uint64_t unit = KIB;
    /* From 999.5 on, the number would have four digits. */
    while (name < 5 && bytes / unit * 2 + (bytes % unit * 2 >= unit) >= 1999) {
        unit *= KIB;
        name++;
    }
    put_three_digits(out, bytes / unit, bytes % unit, unit);
    ml_markup(out, names[name]);
}

void
ml_markup_torch_size(ml_buffer *out, uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned power = 0;
    while (power < 6 && bytes >> (10 * power) >= KIB) {
        power++;
    }
    uint64_t unit = UINT64_C(1) << (10 * power);
    uint64_t rest = bytes % unit;
    /* Below 2^60, so ten times it fits. */
    uint64_t tenths = rest * 10 / unit;
    rest = rest * 10 % unit;
    if (rest * 2 > unit || (rest * 2 == unit && tenths % 2 == 1)) {
        tenths++;
    }
    ml_markup_unsigned(out, bytes / unit + tenths / 10);
    ml_markup(out, ".");
    ml_markup_unsigned(out, tenths % 10);
    ml_markup(out, names[power]);
}

void
ml_markup_exact_size(ml_buffer *out, uint64_t bytes)
{
    ml_markup_size(out, bytes);
    if (bytes >= KIB) {
        ml_markup(out, " (");
        ml_markup_count(out, bytes);
        ml_markup(out, " bytes)");
    }
}

void
ml_markup_share(ml_buffer *out, uint64_t part, uint64_t whole)
{
    uint64_t thousandths = whole == 0 ? 0 : ml_markup_scale(part, whole, 1000);
    ml_markup_unsigned(out, thousandths / 10);
    ml_markup(out, ".");
    ml_markup_unsigned(out, thousandths % 10);
    ml_markup(out, " %");
}

void
ml_markup_fixed(ml_buffer *out, uint64_t hundredths)
{
    ml_markup_unsigned(out, hundredths / 100);
    uint64_t rest = hundredths % 100;
    if (rest != 0) {
        ml_markup(out, ".");
        if (rest % 10 == 0) {
            ml_markup_unsigned(out, rest / 10);
        }
        else {
            put_two_digits(out, rest);
        }
    }
}

/* ---- Names ---- */

void
ml_markup_category(ml_buffer *out, unsigned category)
{
    for (const char *at = ml_category_text(category); *at != '\0'; at++) {
        ml_buffer_append(out, *at == '_' ? " " : at, 1);
    }
}

void
ml_device_label(const ml_recording *recording, size_t device, const char *word,
                char out[ML_DEVICE_LABEL])
{
    if (ml_recording_is_merged(recording)) {
        ml_recording_device_name(recording, device, out, ML_DEVICE_LABEL);
    }
    else {
        snprintf(out, ML_DEVICE_LABEL, "%s %zu", word, device);
    }
}

static ml_string
base_name(ml_string path)
{
    for (uint32_t i = path.length; i > 0; i--) {
        if (path.bytes[i - 1] == '/') {
            return (ml_string){path.bytes + i, path.length - i};
        }
    }
    return path;
}

void
ml_markup_frame(ml_buffer *out, const ml_recording *recording, uint32_t frame,
                bool whole)
{
    const ml_frame *f = &recording->frames[frame];
    ml_string name = recording->strings[f->name];
    ml_string file = recording->strings[f->filename];
    file = whole ? file : base_name(file);
    if (name.length == 0) {
        ml_markup(out, "(unknown)");
    }
    ml_buffer_append(out, name.bytes, name.length);
    if (file.length > 0) {
        ml_markup(out, " ");
        ml_buffer_append(out, file.bytes, file.length);
        if (f->line > 0) {
            ml_markup(out, ":");
            ml_markup_unsigned(out, (uint64_t)f->line);
        }
    }
}

void
ml_markup_stack(ml_buffer *out, const ml_recording *recording, uint32_t stack,
                size_t most)
{
    ml_buffer line = {0};
    while (stack != 0 && most > 0) {
        line.length = 0;
        ml_markup_frame(&line, recording, recording->stacks[stack].frame, true);
        ml_markup(out, "\n");
        ml_markup_text(out, line.bytes, line.length);
        stack = recording->stacks[stack].parent;
        most--;
    }
    if (stack != 0) {
        ml_markup(out, "\n...");
    }
    if (line.error != 0 && out->error == 0) {
        out->error = line.error;
    }
    ml_buffer_fini(&line);
}

/* ---- Pages ---- */

/* If the style changes, tests/export/test_pictures.py tells the new hash. */
#define STYLE_HASH "sha256-thKNqvhahHfaVcxAoOkxeKFnQoxKlDM4clIaH+Qvl+Q="

static const char style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--text:#1b1f27;--quiet:#5a6372;"
    "--line:#d5d9e0;--grid:#e4e7ec;--free:#dfe3ea;--edge:#ffffff}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14171c;--text:#e7eaf0;"
    "--quiet:#9aa4b5;--line:#343b47;--grid:#2a303a;--free:#333a46;--edge:#14171c}}\n"
    "body{margin:16px 24px;background:var(--page);color:var(--text);"
    "font:13px/1.4 system-ui,'Segoe UI','DejaVu Sans',sans-serif}\n"
    "h1{font-size:17px}h2{font-size:14px;margin:20px 0 6px}p{margin:4px 0}\n"
    "table{border-collapse:collapse;margin:6px 0}th{text-align:left;font-weight:normal;"
    "color:var(--quiet)}td{text-align:right;font-variant-numeric:tabular-nums}"
    "th,td{padding:1px 14px 1px 0}\n"
    "svg{display:block;max-width:100%;height:auto}.key{display:inline-block;"
    "margin-right:6px;vertical-align:-2px}text{fill:var(--text);font-size:11px}"
    ".quiet{fill:var(--quiet);color:var(--quiet)}.grid{stroke:var(--grid)}"
    ".axis{stroke:var(--quiet)}.free{fill:var(--free)}.edge{stroke:var(--edge);"
    "stroke-width:.5}.line{fill:none;stroke:var(--text)}.hit{fill:transparent}"
    ".hit:hover{fill:var(--quiet);fill-opacity:.25}\n";

void
ml_markup_page_begin(ml_buffer *out, const char *title, size_t length)
{
    ml_markup(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                   "<meta charset=\"utf-8\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" "
                   "content=\"default-src 'none'; style-src '" STYLE_HASH "'; "
                   "base-uri 'none'; form-action 'none'\">\n"
                   "<meta name=\"viewport\" "
                   "content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    ml_markup_text(out, title, length);
    ml_markup(out, "</title>\n<style>");
    ml_markup(out, style);
    ml_markup(out, "</style>\n</head>\n<body>\n<h1>");
    ml_markup_text(out, title, length);
    ml_markup(out, "</h1>\n");
}

void
ml_markup_page_end(ml_buffer *out)
{
    ml_markup(out, "</body>\n</html>\n");
}
