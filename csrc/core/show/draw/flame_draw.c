/* The look of flame graphs.  See flame_draw.h. */
#include "show/draw/flame_draw.h"

#include <string.h>

/* In hundredths of a pixel, except ROW and LETTER. */
#define MARGIN 1000u
#define ROW 17u
#define TOP 58u
#define LETTER 662u /* width of a monospaced letter at 11 pixels */

static const char common[] =
    "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
    "fill:#1b1f27}.back{fill:#ffffff}.said{fill:#1b1f27}.head{font-size:15px}"
    "g{cursor:pointer}g rect{stroke:#ffffff;stroke-width:.4;stroke-opacity:.5}"
    ".u{fill:#f0b94d}.p{fill:#8cc8e8}.l{fill:#c3ccd9}.n{fill:#d9cbb5}.a{fill:#c9b8e2}"
    ".f{fill:#e6e9ee}g:hover rect{stroke:#000000;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){.f{fill:#8d96a5}.back{fill:#14171c}.said{fill:#"
    "e7eaf0}"
    "g rect{stroke:#14171c}g:hover rect{stroke:#ffffff}}";

/* A click widens a box to the whole picture; Escape restores it.  The script reads the
 * drawing and sets only texts and numbers. */
static const char zoom[] =
    "(() => {\n"
    "  \"use strict\";\n"
    "  const svg = document.currentScript.ownerSVGElement;\n"
    "  const LEFT = 10, WIDTH = 1200, LETTER = 6.62, SLACK = 0.015;\n"
    "  const boxes = [...svg.querySelectorAll(\"g\")].map((group) => {\n"
    "    const rect = group.querySelector(\"rect\");\n"
    "    const [x, y, width] = [\"x\", \"y\", \"width\"].map((name) => "
    "Number(rect.getAttribute(name)));\n"
    "    const name = group.querySelector(\"title\").textContent.split(\"\\n\")[0];\n"
    "    const path = /[upln]/.test(rect.getAttribute(\"class\"));\n"
    "    return { group, rect, x, y, end: x + width,\n"
    "             label: path ? name.replace(/ [^ ]*\\//, \" \") : name,\n"
    "             text: group.querySelector(\"text\") };\n"
    "  });\n"
    "  function write(box, x, width) {\n"
    "    const room = Math.floor((width - 6) / LETTER);\n"
    "    if (box.text === null && room >= 3) {\n"
    "      box.text = document.createElementNS(svg.namespaceURI, \"text\");\n"
    "      box.text.setAttribute(\"y\", box.y + 12);\n"
    "      box.group.append(box.text);\n"
    "    }\n"
    "    if (box.text !== null) {\n"
    "      box.text.setAttribute(\"x\", x + 3);\n"
    "      box.text.textContent = room < 3 ? \"\"\n"
    "        : box.label.length <= room ? box.label : box.label.slice(0, room - 1) + "
    "\"\\u2026\";\n"
    "    }\n"
    "  }\n"
    "  function zoom(to) {\n"
    "    const scale = WIDTH / (to.end - to.x);\n"
    "    for (const box of boxes) {\n"
    "      const above = box.y < to.y && box.x <= to.x + SLACK && box.end >= to.end - "
    "SLACK;\n"
    "      const inside = box.y >= to.y && box.x >= to.x - SLACK && box.end <= to.end "
    "+ SLACK;\n"
    "      box.group.setAttribute(\"display\", above || inside ? \"inline\" : "
    "\"none\");\n"
    "      box.group.setAttribute(\"opacity\", above ? 0.5 : 1);\n"
    "      const x = above ? LEFT : LEFT + (box.x - to.x) * scale;\n"
    "      const width = above ? WIDTH : (box.end - box.x) * scale;\n"
    "      box.rect.setAttribute(\"x\", x);\n"
    "      box.rect.setAttribute(\"width\", width);\n"
    "      write(box, x, width);\n"
    "    }\n"
    "  }\n"
    "  for (const box of boxes) {\n"
    "    box.group.addEventListener(\"click\", () => zoom(box));\n"
    "  }\n"
    "  document.addEventListener(\"keydown\", (event) => {\n"
    "    if (event.key === \"Escape\" && boxes.length > 0) {\n"
    "      zoom(boxes[0]);\n"
    "    }\n"
    "  });\n"
    "})();\n";

void
ml_flame_legend(ml_buffer *out, const ml_flame_key_item *items, size_t count)
{
    unsigned x = 10;
    for (size_t i = 0; i < count; i++) {
        ml_markup(out, "<rect class=\"");
        ml_markup(out, items[i].class);
        ml_markup(out, "\" x=\"");
        ml_markup_unsigned(out, x);
        ml_markup(out,
                  "\" y=\"36\" width=\"12\" height=\"12\"/><text class=\"said\" x=\"");
        ml_markup_unsigned(out, x + 17);
        ml_markup(out, "\" y=\"46\">");
        ml_markup(out, items[i].text);
        ml_markup(out, "</text>\n");
        x += 36 + 7 * (unsigned)strlen(items[i].text);
    }
}

void
ml_flame_begin(ml_buffer *out, uint32_t deepest, const char *style,
               const ml_buffer *title, const char *note)
{
    uint64_t height =
        TOP + (uint64_t)ROW * (deepest + 1) + 10 + (note != NULL ? ROW : 0);
    ml_markup(out,
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1220\" height=\"");
    ml_markup_unsigned(out, height);
    ml_markup(out, "\" viewBox=\"0 0 1220 ");
    ml_markup_unsigned(out, height);
    ml_markup(out, "\">\n<style>");
    ml_markup(out, common);
    ml_markup(out, style);
    ml_markup(out, "</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
                   "<text class=\"said head\" x=\"10\" y=\"22\">");
    ml_buffer_append(out, title->bytes, title->length);
    ml_markup(out, "</text>\n");
    if (note != NULL) {
        ml_markup(out, "<text class=\"said\" x=\"10\" y=\"");
        ml_markup_unsigned(out, height - 8);
        ml_markup(out, "\">");
        ml_markup(out, note);
        ml_markup(out, "</text>\n");
    }
}

void
ml_flame_end(ml_buffer *out)
{
    ml_markup(out, "<script><![CDATA[\n");
    ml_markup(out, zoom);
    ml_markup(out, "]]></script>\n</svg>\n");
}

void
ml_flame_box_begin(ml_buffer *out)
{
    ml_markup(out, "<g><title>");
}

void
ml_flame_box_end(ml_buffer *out, const char *class, uint64_t x, uint64_t width,
                 uint32_t depth, const ml_buffer *name)
{
    uint64_t top = TOP + (uint64_t)ROW * depth;
    ml_markup(out, "</title><rect class=\"");
    ml_markup(out, class);
    ml_markup(out, "\" x=\"");
    ml_markup_fixed(out, MARGIN + x);
    ml_markup(out, "\" y=\"");
    ml_markup_unsigned(out, top);
    ml_markup(out, "\" width=\"");
    ml_markup_fixed(out, width);
    ml_markup(out, "\" height=\"16\" rx=\"1\"/>");
    size_t columns = width > 800 ? (width - 600) / LETTER : 0;
    if (columns >= 3) {
        ml_markup(out, "<text x=\"");
        ml_markup_fixed(out, MARGIN + x + 300);
        ml_markup(out, "\" y=\"");
        ml_markup_unsigned(out, top + 12);
        ml_markup(out, "\">");
        ml_markup_cut(out, name->bytes, name->length, columns);
        ml_markup(out, "</text>");
    }
    ml_markup(out, "</g>\n");
}
