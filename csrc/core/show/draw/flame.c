/* Draws flame graphs.  See flame.h.
 *
 * Neighbouring boxes narrower than a tenth of a pixel are drawn as one, with a name
 * that says so. */
#include "show/draw/flame.h"

#include <string.h>

#include "analysis/attribution/stack_facts.h"
#include "show/draw/flame_draw.h"
#include "show/draw/flame_tree.h"

/* ---- The picture ---- */

/* The colour, by the owner of the code. */
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
put_bytes(const ml_flame_tree *t, uint64_t bytes, ml_buffer *out)
{
    ml_markup_exact_size(out, bytes);
    ml_markup(out, ", ");
    ml_markup_share(out, bytes, t->nodes[0].bytes);
}

static void
draw(const ml_flame_tree *t, const ml_flame_node *n, ml_buffer *name, ml_buffer *out)
{
    ml_flame_box_begin(out);
    name->length = 0;
    ml_flame_node_name(t, n, true, name);
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
    ml_flame_node_name(t, n, false, name);
    ml_flame_box_end(out, class_of(t, n), n->x, n->width, n->depth, name);
}

/* Draws COUNT neighbouring nodes, up to END, that are too narrow to draw alone. */
static void
draw_rest(const ml_flame_tree *t, const ml_flame_node *above, uint64_t end,
          size_t count, uint64_t bytes, ml_buffer *name, ml_buffer *out)
{
    uint64_t width = ml_markup_scale(bytes, t->nodes[0].bytes, ML_FLAME_WIDTH);
    if (width < ML_FLAME_NARROWEST) {
        return;
    }
    ml_flame_box_begin(out);
    name->length = 0;
    ml_markup_count(name, count);
    ml_markup(name, " smaller");
    ml_buffer_append(out, name->bytes, name->length);
    ml_markup(out, "\n");
    put_bytes(t, bytes, out);
    ml_flame_box_end(out, "f", end - width, width, above->depth + 1, name);
}

/* Places the children of a drawn node, and draws one box for those too narrow. */
static void
place_children(ml_flame_tree *t, const ml_flame_node *above, ml_buffer *name,
               ml_buffer *out)
{
    uint64_t total = t->nodes[0].bytes;
    uint64_t before = 0;
    uint64_t small_bytes = 0; /* bytes of the last SMALL children */
    size_t small = 0;
    for (size_t i = 0; i <= above->child_count; i++) {
        uint64_t x = above->x + ml_markup_scale(before, total, ML_FLAME_WIDTH);
        ml_flame_node *n = i == above->child_count
                               ? NULL
                               : &t->nodes[t->children[above->first_child + i]];
        uint64_t width =
            n == NULL ? 0 : ml_markup_scale(n->bytes, total, ML_FLAME_WIDTH);
        if (n != NULL && width < ML_FLAME_NARROWEST) {
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
            n->width = width < ML_FLAME_NARROWEST ? 0 : width;
            before = ml_markup_add(before, n->bytes);
        }
    }
}

static void
put_head(const ml_flame_tree *t, size_t device, uint32_t deepest, ml_buffer *title,
         ml_buffer *out)
{
    static const ml_flame_key_item items[] = {
        {"u", "your code"},        {"p", "packages"},
        {"l", "torch and Python"}, {"n", "native"},
        {"a", "allocator"},        {"f", "not in use, or without a stack"}};
    title->length = 0;
    ml_markup(title, t->by_segment ? "Memory by segment and stack" : "Memory by stack");
    if (device != ML_ALL_DEVICES) {
        char label[ML_DEVICE_LABEL];
        ml_device_label(t->recording, device, "device", label);
        ml_markup(title, ", ");
        ml_markup_text(title, label, strlen(label));
    }
    ml_markup(title, ": ");
    ml_markup_exact_size(title, t->nodes[0].bytes);
    ml_markup(title, " reserved at the end of the recording");
    ml_flame_begin(out, deepest, "", title, t->full ? ML_FLAME_NOT_ALL : NULL);
    ml_flame_legend(out, items, sizeof(items) / sizeof(items[0]));
}

/* Places nodes, parents first, and writes their boxes to BOXES. */
static uint32_t
draw_all(ml_flame_tree *t, ml_buffer *name, ml_buffer *boxes)
{
    uint32_t deepest = 0;
    t->nodes[0].width = t->nodes[0].bytes > 0 ? ML_FLAME_WIDTH : 0;
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

int
ml_flame_svg(const ml_recording *recording, size_t device, enum ml_flame_what what,
             ml_buffer *out)
{
    ml_flame_tree t;
    ml_buffer name = {0};
    ml_buffer boxes = {0};
    bool several = ml_flame_device_count(recording, device) > 1;
    int error =
        ml_flame_tree_init(&t, recording, device, what == ML_FLAME_SEGMENTS, several);
    if (error == 0) {
        uint32_t deepest = draw_all(&t, &name, &boxes);
        put_head(&t, device, deepest, &name, out);
        ml_buffer_append(out, boxes.bytes, boxes.length);
        ml_flame_end(out);
        error = boxes.error != 0 ? boxes.error : name.error;
        error = error != 0 ? error : out->error;
    }
    ml_flame_tree_fini(&t);
    ml_buffer_fini(&name);
    ml_buffer_fini(&boxes);
    return error;
}
