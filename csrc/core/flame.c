/* Flame graphs.  See flame.h.
 *
 * What a picture cannot show is not drawn: of boxes side by side those narrower than
 * a tenth of a pixel become one, named as what it is. */
#include "flame.h"

#include <string.h>

#include "flame_tree.h"
#include "stack_facts.h"

/* ---- The picture ---- */

/* In hundredths of a pixel, but for ROW and LETTER. */
#define WIDTH 120000u
#define MARGIN 1000u
#define NARROWEST 10u
#define ROW 17u
#define TOP 58u
#define LETTER 662u /* of the monospaced letter at 11 pixels */

static const char *const state_names[] = {
    [ML_BLOCK_INACTIVE] = "free, kept by the allocator",
    [ML_BLOCK_ALLOCATED] = "allocated",
    [ML_BLOCK_PENDING_FREE] = "freed, awaiting its streams"};

static const char style[] =
    "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
    "fill:#1b1f27}.back{fill:#ffffff}.said{fill:#1b1f27}.head{font-size:15px}"
    "g{cursor:pointer}g rect{stroke:#ffffff;stroke-width:.4;stroke-opacity:.5}"
    ".u{fill:#f0b94d}.p{fill:#8cc8e8}.l{fill:#c3ccd9}.n{fill:#d9cbb5}.a{fill:#c9b8e2}"
    ".f{fill:#e6e9ee}g:hover rect{stroke:#000000;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){.f{fill:#8d96a5}.back{fill:#14171c}.said{fill:#"
    "e7eaf0}"
    "g rect{stroke:#14171c}g:hover rect{stroke:#ffffff}}";

/* A click makes a box as wide as the picture, Escape the first one.  It reads what is drawn
 * and sets texts and numbers alone. */
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

/* The colour: whose code it is. */
static const char *
class_of(const ml_flame_tree *t, const ml_flame_node *n)
{
    if (n->is.kind != ML_FLAME_KIND_FRAME) {
        return ml_flame_is_unused(n) || n->is.kind == ML_FLAME_KIND_NO_STACK ? "f"
                                                                             : "a";
    }
    switch (ml_frame_place_of(t->recording, (uint32_t)n->is.value)) {
    case ML_PLACE_USER:
        return "u";
    case ML_PLACE_PACKAGE:
        return "p";
    case ML_PLACE_LIBRARY:
        return "l";
    default:
        return "n";
    }
}

static void
put_segment_name(const ml_flame_tree *t, const ml_segment *segment, ml_buffer *out)
{
    /* Without segments, each block stands for one. */
    ml_markup(out, t->recording->rules.has_segments ? "segment " : "block ");
    ml_markup_address(out, segment->addr);
    ml_markup(out, " of ");
    ml_markup_size(out, segment->total);
}

/* Unescaped; WHOLE: with the path of a frame's file. */
static void
put_name(const ml_flame_tree *t, const ml_flame_node *n, bool whole, ml_buffer *out)
{
    char label[ML_DEVICE_LABEL];
    switch ((enum ml_flame_kind)n->is.kind) {
    case ML_FLAME_KIND_ROOT:
        ml_markup(out, "all memory");
        break;
    case ML_FLAME_KIND_DEVICE:
        ml_device_label(t->recording, n->is.value, "device", label);
        ml_markup(out, label);
        break;
    case ML_FLAME_KIND_STREAM:
        ml_markup(out, "stream ");
        ml_markup_unsigned(out, n->is.value);
        break;
    case ML_FLAME_KIND_SEGMENT:
        put_segment_name(t, &t->recording->devices[n->device].segments[n->is.value],
                         out);
        break;
    case ML_FLAME_KIND_STATE:
        ml_markup(out, state_names[n->is.value]);
        break;
    case ML_FLAME_KIND_FRAME:
        ml_markup_frame(out, t->recording, (uint32_t)n->is.value, whole);
        break;
    case ML_FLAME_KIND_ROUNDING:
        ml_markup(out, "lost to rounding");
        break;
    default:
        ml_markup(out, "no stack recorded");
        break;
    }
}

static void
put_bytes(const ml_flame_tree *t, uint64_t bytes, ml_buffer *out)
{
    ml_markup_exact_size(out, bytes);
    ml_markup(out, ", ");
    ml_markup_share(out, bytes, t->nodes[0].bytes);
}

static void
begin_box(ml_buffer *out)
{
    ml_markup(out, "<g><title>");
}

/* The box itself, after its title; NAME is cut to what has room. */
static void
end_box(ml_buffer *out, const char *class, uint64_t x, uint64_t width, uint32_t depth,
        const ml_buffer *name)
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

static void
draw(const ml_flame_tree *t, const ml_flame_node *n, ml_buffer *name, ml_buffer *out)
{
    begin_box(out);
    name->length = 0;
    put_name(t, n, true, name);
    ml_markup_text(out, name->bytes, name->length);
    ml_markup(out, "\n");
    put_bytes(t, n->bytes, out);
    if (n->blocks > 0) {
        ml_markup(out, n->blocks == 1 ? ", 1 block" : ", ");
        if (n->blocks > 1) {
            ml_markup_count(out, n->blocks);
            ml_markup(out, " blocks");
        }
    }
    name->length = 0;
    put_name(t, n, false, name);
    end_box(out, class_of(t, n), n->x, n->width, n->depth, name);
}

/* COUNT nodes side by side, up to END, that are too narrow one by one. */
static void
draw_rest(const ml_flame_tree *t, const ml_flame_node *above, uint64_t end,
          size_t count, uint64_t bytes, ml_buffer *name, ml_buffer *out)
{
    uint64_t width = ml_markup_scale(bytes, t->nodes[0].bytes, WIDTH);
    if (width < NARROWEST) {
        return;
    }
    begin_box(out);
    name->length = 0;
    ml_markup_count(name, count);
    ml_markup(name, " smaller");
    ml_buffer_append(out, name->bytes, name->length);
    ml_markup(out, "\n");
    put_bytes(t, bytes, out);
    end_box(out, "f", end - width, width, above->depth + 1, name);
}

/* Places the children of a node that is drawn, and draws what stands for those that are
 * too narrow. */
static void
place_children(ml_flame_tree *t, const ml_flame_node *above, ml_buffer *name,
               ml_buffer *out)
{
    uint64_t total = t->nodes[0].bytes;
    uint64_t before = 0;
    uint64_t small_bytes = 0; /* of the last SMALL children before */
    size_t small = 0;
    for (size_t i = 0; i <= above->child_count; i++) {
        uint64_t x = above->x + ml_markup_scale(before, total, WIDTH);
        ml_flame_node *n = i == above->child_count
                               ? NULL
                               : &t->nodes[t->children[above->first_child + i]];
        uint64_t width = n == NULL ? 0 : ml_markup_scale(n->bytes, total, WIDTH);
        if (n != NULL && width < NARROWEST) {
            small++;
            small_bytes = ml_markup_add(small_bytes, n->bytes);
        }
        else {
            draw_rest(t, above, x, small, small_bytes, name, out);
            small = 0;
            small_bytes = 0;
        }
        if (n != NULL) {
            n->x = x;
            n->width = width < NARROWEST ? 0 : width;
            before = ml_markup_add(before, n->bytes);
        }
    }
}

static void
put_legend(ml_buffer *out)
{
    static const struct {
        const char *class, *text;
    } items[] = {{"u", "your code"},        {"p", "packages"},
                 {"l", "torch and Python"}, {"n", "native"},
                 {"a", "allocator"},        {"f", "not in use, or without a stack"}};
    unsigned x = 10;
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
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

static void
put_head(const ml_flame_tree *t, size_t device, uint32_t deepest, ml_buffer *out)
{
    uint64_t height = TOP + (uint64_t)ROW * (deepest + 1) + 10 + (t->full ? ROW : 0);
    ml_markup(out,
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1220\" height=\"");
    ml_markup_unsigned(out, height);
    ml_markup(out, "\" viewBox=\"0 0 1220 ");
    ml_markup_unsigned(out, height);
    ml_markup(out, "\">\n<style>");
    ml_markup(out, style);
    ml_markup(out, "</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
                   "<text class=\"said head\" x=\"10\" y=\"22\">");
    ml_markup(out, t->by_segment ? "Memory by segment and stack" : "Memory by stack");
    if (device != ML_ALL_DEVICES) {
        char label[ML_DEVICE_LABEL];
        ml_device_label(t->recording, device, "device", label);
        ml_markup(out, ", ");
        ml_markup_text(out, label, strlen(label));
    }
    ml_markup(out, ": ");
    ml_markup_exact_size(out, t->nodes[0].bytes);
    ml_markup(out, " reserved at the end of the recording</text>\n");
    put_legend(out);
    if (t->full) {
        ml_markup(out, "<text class=\"said\" x=\"10\" y=\"");
        ml_markup_unsigned(out, height - 8);
        ml_markup(out, "\">Not all frames are shown: stacks are very deep, or very "
                       "many.</text>\n");
    }
}

/* Where each node is, first its parents; the boxes into BOXES. */
static uint32_t
draw_all(ml_flame_tree *t, ml_buffer *name, ml_buffer *boxes)
{
    uint32_t deepest = 0;
    t->nodes[0].width = t->nodes[0].bytes > 0 ? WIDTH : 0;
    for (size_t i = 0; i < t->nodes_by_key.count; i++) {
        const ml_flame_node *n = &t->nodes[i];
        if (n->width != 0) {
            deepest = n->depth > deepest ? n->depth : deepest;
            draw(t, n, name, boxes);
            place_children(t, n, name, boxes);
        }
    }
    return deepest;
}

static int
take_error(ml_buffer *out, const ml_buffer *part)
{
    if (out->error == 0) {
        out->error = part->error;
    }
    return out->error;
}

int
ml_flame_svg(const ml_recording *recording, size_t device, enum ml_flame_what what,
             ml_buffer *out)
{
    ml_flame_tree t;
    ml_buffer name = {0};
    ml_buffer boxes = {0};
    int error = ml_flame_tree_init(&t, recording, device, what == ML_FLAME_SEGMENTS);
    if (error == 0) {
        uint32_t deepest = draw_all(&t, &name, &boxes);
        put_head(&t, device, deepest, out);
        ml_buffer_append(out, boxes.bytes, boxes.length);
        ml_markup(out, "<script><![CDATA[\n");
        ml_markup(out, zoom);
        ml_markup(out, "]]></script>\n</svg>\n");
        error = take_error(out, &boxes) != 0 ? out->error : take_error(out, &name);
    }
    ml_flame_tree_fini(&t);
    ml_buffer_fini(&name);
    ml_buffer_fini(&boxes);
    return error;
}

/* ---- Folded lines ---- */

typedef struct folding {
    const ml_recording *recording; /* borrowed */
    ml_buffer *out;
    ml_buffer prefix;
    uint32_t *path; /* owned; frames of one stack */
    size_t path_capacity;
    uint8_t *noise;      /* owned; see ml_flame_is_noise */
    uint32_t last_stack; /* whose text FRAMES is */
    ml_buffer frames;
} folding;

static void
put_signed(ml_buffer *out, uint64_t value)
{
    int64_t number = (int64_t)value;
    if (number < 0) {
        ml_markup(out, "-");
        value = 0 - value;
    }
    ml_markup_unsigned(out, value);
}

/* torch's order and its base names: "file:line:function". */
static void
put_folded_frame(ml_buffer *out, const ml_recording *recording, uint32_t frame)
{
    const ml_frame *f = &recording->frames[frame];
    ml_string file = recording->strings[f->filename];
    ml_string name = recording->strings[f->name];
    uint32_t start = file.length;
    while (start > 0 && file.bytes[start - 1] != '/') {
        start--;
    }
    ml_buffer_append(out, file.bytes + start, file.length - start);
    ml_markup(out, ":");
    put_signed(out, (uint64_t)f->line);
    ml_markup(out, ":");
    ml_buffer_append(out, name.bytes, name.length);
}

static int
fold_frames(folding *f, uint32_t stack)
{
    const ml_stack *stacks = f->recording->stacks;
    size_t length = 0;
    f->frames.length = 0;
    if (stack == 0) {
        ml_markup(&f->frames, "<non-python>");
        return 0;
    }
    for (; stack != 0; stack = stacks[stack].parent) {
        if (ml_grow((void **)&f->path, &f->path_capacity, length + 1,
                    sizeof(*f->path)) < 0) {
            return ML_ENOMEM;
        }
        f->path[length++] = stacks[stack].frame;
    }
    bool first = true;
    while (length-- > 0) {
        if (!ml_flame_is_noise(f->recording, f->noise, f->path[length])) {
            ml_markup(&f->frames, first ? "" : ";");
            put_folded_frame(&f->frames, f->recording, f->path[length]);
            first = false;
        }
    }
    return 0;
}

static void
put_line(folding *f, const char *state, const ml_buffer *frames, uint64_t bytes)
{
    ml_buffer_append(f->out, f->prefix.bytes, f->prefix.length);
    ml_markup(f->out, ";");
    ml_markup(f->out, state);
    ml_markup(f->out, ";");
    if (frames != NULL) {
        ml_buffer_append(f->out, frames->bytes, frames->length);
    }
    else {
        ml_markup(f->out, "<gaps>");
    }
    ml_markup(f->out, " ");
    put_signed(f->out, bytes);
    ml_markup(f->out, "\n");
}

static int
fold_segment(folding *f, const ml_device_trace *trace, const ml_segment *segment,
             enum ml_flame_what what)
{
    static const char *const states[] = {[ML_BLOCK_INACTIVE] = "inactive",
                                         [ML_BLOCK_ALLOCATED] = "active_allocated",
                                         [ML_BLOCK_PENDING_FREE] =
                                             "active_pending_free"};
    f->prefix.length = 0;
    ml_markup(&f->prefix, "stream_");
    put_signed(&f->prefix, segment->stream);
    if (what == ML_FLAME_SEGMENTS) {
        ml_markup(&f->prefix, ";seg_");
        put_signed(&f->prefix, segment->addr);
    }
    for (size_t b = 0; b < segment->block_count; b++) {
        const ml_block *block = &trace->blocks[segment->first_block + b];
        if (block->stack != f->last_stack || f->frames.length == 0) {
            int error = fold_frames(f, block->stack);
            if (error < 0) {
                return error;
            }
            f->last_stack = block->stack;
        }
        put_line(f, states[block->state], &f->frames, block->requested);
        if (block->size != block->requested) {
            put_line(f, states[block->state], NULL, block->size - block->requested);
        }
    }
    return 0;
}

int
ml_flame_folded(const ml_recording *recording, size_t device, enum ml_flame_what what,
                ml_buffer *out)
{
    folding f = {.recording = recording,
                 .out = out,
                 .noise = ml_alloc_zeroed(recording->frame_count, 1)};
    int error = f.noise == NULL ? ML_ENOMEM : 0;
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        bool wanted_device = device == ML_ALL_DEVICES || device == d;
        for (size_t i = 0; wanted_device && i < trace->segment_count && error == 0;
             i++) {
            error = fold_segment(&f, trace, &trace->segments[i], what);
        }
    }
    if (error == 0) {
        error =
            take_error(out, &f.prefix) != 0 ? out->error : take_error(out, &f.frames);
    }
    ml_buffer_fini(&f.prefix);
    ml_buffer_fini(&f.frames);
    ml_free(f.path);
    ml_free(f.noise);
    return error;
}
