/* Writes a difference as a page.  See difference_page.h. */
#include "show/draw/difference_page.h"

#include <string.h>

#include "base/base.h"

/* Rows of a table; further rows are summed. */
#define MOST_ROWS 200

static const char slack[] = "blocks larger than was asked for, not split";

const char *
ml_difference_no_line_text(unsigned no_line)
{
    return no_line == ML_NO_LINE_SLACK ? slack : ml_no_line_text(no_line);
}

const char *
ml_difference_no_module_text(unsigned no_module)
{
    return no_module == ML_NO_MODULE_SLACK ? slack : ml_no_module_text(no_module);
}

static void
put_text(ml_buffer *out, ml_string text)
{
    ml_markup_text(out, text.bytes, text.length);
}

/* Writes TEXT, memlab's own, with spaces for underscores. */
static void
put_words(ml_buffer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        char c = *text == '_' ? ' ' : *text;
        ml_buffer_append(out, &c, 1);
    }
}

static void
put_more(ml_buffer *out, const ml_two *two)
{
    bool less = two->bytes[1] < two->bytes[0];
    ml_markup(out, less ? "-" : "+");
    ml_markup_size(out, less ? two->bytes[0] - two->bytes[1]
                             : two->bytes[1] - two->bytes[0]);
}

static void
put_amounts(ml_buffer *out, const ml_two *two)
{
    ml_markup(out, "<td>");
    put_more(out, two);
    ml_markup(out, "</td>");
    for (unsigned side = 0; side < 2; side++) {
        ml_markup(out, "<td>");
        ml_markup_size(out, two->bytes[side]);
        ml_markup(out, "</td>");
    }
}

static void
put_row_begin(ml_buffer *out, const ml_two *two)
{
    ml_markup(out, "<tr>");
    put_amounts(out, two);
}

/* ---- Lines ---- */

static void
put_place(ml_buffer *out, const ml_difference_place *at)
{
    put_text(out, at->file);
    ml_markup(out, ":");
    if (at->line < 0) {
        ml_markup(out, "-");
    }
    ml_markup_unsigned(out, at->line < 0 ? 0 - (uint64_t)at->line : (uint64_t)at->line);
    ml_markup(out, " ");
    put_text(out, at->function);
}

static void
put_line(ml_buffer *out, const ml_difference_line *line)
{
    const ml_difference_place *is = &line->at[line->at[1].file.length != 0];
    bool moved = line->change == ML_CHANGE_MOVED;
    put_row_begin(out, &line->two);
    ml_markup(out, "<th>");
    put_words(out, ml_change_text(line->change));
    if (moved) {
        ml_markup(out, ": ");
        put_words(out, ml_move_text(line->move));
    }
    ml_markup(out, "</th><th>");
    ml_markup_category(out, line->category);
    ml_markup(out, "</th><th>");
    if (is->file.length == 0) {
        ml_markup(out, "(");
        ml_markup(out, ml_difference_no_line_text(line->no_line));
        ml_markup(out, ")");
    }
    else {
        put_place(out, is);
    }
    if (line->module != NULL) {
        ml_markup(out, " [");
        ml_markup_text(out, line->module, strlen(line->module));
        ml_markup(out, "]");
    }
    if (line->phase == ML_PHASE_BACKWARD && is->file.length != 0) {
        ml_markup(out, " (backward)");
    }
    if (line->rule > ML_MATCH_LINE && line->change != ML_CHANGE_GONE) {
        ml_markup(out, "<br>was ");
        put_place(out, &line->at[0]);
        ml_markup(out, ", matched by ");
        ml_markup(out, ml_match_rule_text(line->rule));
    }
    ml_markup(out, "</th></tr>\n");
}

static void
put_lines(ml_buffer *out, const ml_difference_part *part)
{
    ml_markup(out, "<table><tr><th>bytes</th><th>before</th><th>after</th>"
                   "<th>change</th><th>category</th><th>line</th></tr>\n");
    for (size_t i = 0; i < part->line_count && i < MOST_ROWS; i++) {
        put_line(out, &part->lines[i]);
    }
    ml_two rest = {{0, 0}, {0, 0}};
    for (size_t i = MOST_ROWS; i < part->line_count; i++) {
        rest.bytes[0] += part->lines[i].two.bytes[0];
        rest.bytes[1] += part->lines[i].two.bytes[1];
    }
    if (part->line_count > MOST_ROWS) {
        put_row_begin(out, &rest);
        ml_markup(out, "<th></th><th></th><th>in ");
        ml_markup_count(out, part->line_count - MOST_ROWS);
        ml_markup(out, " more</th></tr>\n");
    }
    ml_markup(out, "</table>\n");
}

/* ---- Modules and categories ---- */

static void
put_modules(ml_buffer *out, const ml_difference_part *part)
{
    ml_markup(out, "<table><tr><th>bytes</th><th>before</th><th>after</th>"
                   "<th>module</th></tr>\n");
    for (size_t i = 0; i < part->module_count && i < MOST_ROWS; i++) {
        const ml_difference_module *module = &part->modules[i];
        put_row_begin(out, &module->two);
        ml_markup(out, "<th>");
        if (module->module.length != 0) {
            put_text(out, module->module);
        }
        else {
            ml_markup(out, "(");
            ml_markup(out, ml_difference_no_module_text(module->no_module));
            ml_markup(out, ")");
        }
        ml_markup(out, "</th></tr>\n");
    }
    ml_markup(out, "</table>\n");
}

static void
put_categories(ml_buffer *out, const ml_difference_part *part)
{
    ml_markup(out, "<table><tr><th>bytes</th><th>before</th><th>after</th>"
                   "<th>category</th></tr>\n");
    for (unsigned i = 0; i < ML_CATEGORY_COUNT; i++) {
        if (part->categories[i].bytes[0] != part->categories[i].bytes[1]) {
            put_row_begin(out, &part->categories[i]);
            ml_markup(out, "<th>");
            ml_markup_category(out, i);
            ml_markup(out, "</th></tr>\n");
        }
    }
    ml_markup(out, "</table>\n");
}

/* ---- Parts ---- */

static void
put_sides(ml_buffer *out, const ml_difference_part *part)
{
    static const char *const names[] = {"Before: ", "After: "};
    for (unsigned side = 0; side < 2; side++) {
        ml_markup(out, "<p>");
        ml_markup(out, names[side]);
        ml_markup(out, "step ");
        ml_markup_unsigned(out, part->at[side].step);
        ml_markup(out, ", ");
        ml_markup_exact_size(out, part->whole.bytes[side]);
        ml_markup(out, ".</p>\n");
    }
}

static void
put_heading(ml_buffer *out, const ml_difference_part *part)
{
    ml_markup(out, "<h2>");
    if (part->phase.length != 0) {
        ml_markup(out, "Where most was allocated in phase ");
        put_text(out, part->phase);
        ml_markup(out, ": ");
    }
    if (part->at[0].known && part->at[1].known) {
        put_more(out, &part->whole);
        ml_markup(out, ", from ");
        ml_markup_size(out, part->whole.bytes[0]);
        ml_markup(out, " to ");
        ml_markup_size(out, part->whole.bytes[1]);
    }
    else {
        ml_markup(out, part->at[0].known ? "only before" : "only after");
    }
    ml_markup(out, "</h2>\n");
}

static void
put_part(ml_buffer *out, const ml_difference_part *part)
{
    put_heading(out, part);
    if (part->phase.length == 0) {
        put_sides(out, part);
    }
    if (part->line_count != 0) {
        put_lines(out, part);
    }
    if (part->phase.length == 0 && part->line_count != 0) {
        ml_markup(out, "<h2>By module</h2>\n");
        put_modules(out, part);
        ml_markup(out, "<h2>By category</h2>\n");
        put_categories(out, part);
    }
}

int
ml_difference_page_write(const ml_difference *difference, ml_string title,
                         ml_string said, ml_buffer *out)
{
    ml_markup_page_begin(out, title.bytes, title.length);
    ml_markup(out, "<p>");
    put_text(out, said);
    ml_markup(out, "</p>\n");
    for (size_t i = 0; i < difference->part_count; i++) {
        put_part(out, &difference->parts[i]);
    }
    if (difference->phases_left_out != 0) {
        ml_markup(out, "<p>Names of phases that were left out: ");
        ml_markup_count(out, difference->phases_left_out);
        ml_markup(out, ".</p>\n");
    }
    ml_markup_page_end(out);
    return out->error;
}
