/* The flame graph of two recordings.  See flame.h.
 *
 * Each side's tree is made alone.  Equal nodes below equal parents form a pair.  A pair
 * is as wide as everything below it plus, of its own memory, the larger side.  So boxes
 * always nest. */
#include "show/draw/flame.h"

#include <stdlib.h>
#include <string.h>

#include "show/draw/flame_draw.h"
#include "show/draw/flame_tree.h"

#define NO_NODE UINT32_MAX

typedef struct pair {
    uint32_t node[2]; /* of the trees before and after, or NO_NODE */
    uint32_t parent;
    uint32_t depth;
    uint64_t bytes[2]; /* including everything below */
    uint64_t own[2];   /* without */
    uint64_t weight;
    uint64_t x;
    uint64_t width;
    size_t first_child; /* index into children */
    size_t child_count;
} pair;

typedef struct flame_difference_work {
    const ml_recording *recordings[2];
    ml_flame_tree trees[2];
    ml_intern by_key;
    pair *pairs; /* owned; by id of by_key */
    size_t pair_capacity;
    uint32_t *pair_of[2]; /* owned; by node of each tree */
    uint32_t *children;   /* owned; pairs by parent, widest first */
} flame_difference_work;

/* ---- Pairs ---- */

/* A node of one tree, and its parent's pair. */
typedef struct sought_pair {
    const flame_difference_work *w;
    unsigned side;
    uint32_t node;
    uint32_t parent;
} sought_pair;

static const ml_flame_node *
node_of(const flame_difference_work *w, unsigned side, uint32_t node)
{
    return &w->trees[side].nodes[node];
}

static ml_string
text_of(const flame_difference_work *w, unsigned side, uint32_t string)
{
    return w->recordings[side]->strings[string];
}

static const ml_frame *
frame_of(const flame_difference_work *w, unsigned side, const ml_flame_node *n)
{
    return &w->recordings[side]->frames[n->is.value];
}

static uint64_t
hash_of(const sought_pair *a)
{
    const ml_flame_node *n = node_of(a->w, a->side, a->node);
    uint64_t hash = n->is.value;
    if (n->is.kind == ML_FLAME_KIND_FRAME) {
        const ml_frame *frame = frame_of(a->w, a->side, n);
        ml_string name = text_of(a->w, a->side, frame->name);
        ml_string file = text_of(a->w, a->side, frame->filename);
        hash =
            ml_hash_bytes(name.bytes, name.length) ^
            ml_hash_u64(ml_hash_bytes(file.bytes, file.length) + (uint64_t)frame->line);
    }
    return ml_hash_u64(hash ^ ml_hash_u64((uint64_t)a->parent << 8 | n->is.kind));
}

static bool
is_pair(const void *context, uint32_t id)
{
    const sought_pair *a = context;
    const pair *p = &a->w->pairs[id];
    unsigned side = p->node[0] != NO_NODE ? 0 : 1;
    const ml_flame_node *n = node_of(a->w, a->side, a->node);
    const ml_flame_node *m = node_of(a->w, side, p->node[side]);
    if (p->parent != a->parent || n->is.kind != m->is.kind) {
        return false;
    }
    if (n->is.kind != ML_FLAME_KIND_FRAME) {
        return n->is.value == m->is.value;
    }
    const ml_frame *f = frame_of(a->w, a->side, n);
    const ml_frame *g = frame_of(a->w, side, m);
    return f->line == g->line &&
           ml_string_compare(text_of(a->w, a->side, f->name),
                             text_of(a->w, side, g->name)) == 0 &&
           ml_string_compare(text_of(a->w, a->side, f->filename),
                             text_of(a->w, side, g->filename)) == 0;
}

static int
find_pair(flame_difference_work *w, unsigned side, uint32_t node, uint32_t *out)
{
    const ml_flame_node *n = node_of(w, side, node);
    sought_pair a = {w, side, node, node == 0 ? 0 : w->pair_of[side][n->is.parent]};
    uint64_t hash = hash_of(&a);
    if (ml_intern_find(&w->by_key, hash, is_pair, &a, out)) {
        return 0;
    }
    uint32_t id = (uint32_t)w->by_key.count;
    if (ml_grow((void **)&w->pairs, &w->pair_capacity, (size_t)id + 1, sizeof(pair)) <
        0) {
        return ML_ENOMEM;
    }
    w->pairs[id] =
        (pair){.node = {NO_NODE, NO_NODE}, .parent = a.parent, .depth = n->depth};
    w->pairs[id].node[side] = node;
    *out = id;
    return ml_intern_add(&w->by_key, hash);
}

/* A node's number is above its parent's. */
static int
add_tree(flame_difference_work *w, unsigned side)
{
    const ml_flame_tree *t = &w->trees[side];
    size_t count = t->nodes_by_key.count;
    w->pair_of[side] = ml_alloc_zeroed(count, sizeof(uint32_t));
    if (w->pair_of[side] == NULL) {
        return ML_ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        const ml_flame_node *n = &t->nodes[i];
        uint32_t id;
        int error = find_pair(w, side, i, &id);
        if (error < 0) {
            return error;
        }
        pair *p = &w->pairs[id];
        w->pair_of[side][i] = id;
        p->node[side] = i;
        p->bytes[side] = p->own[side] = n->bytes;
        if (i > 0) {
            /* Sums in a file may have reached their limit. */
            uint64_t *own = &w->pairs[p->parent].own[side];
            *own -= n->bytes < *own ? n->bytes : *own;
        }
    }
    return 0;
}

/* ---- Places ---- */

static uint64_t
larger(const uint64_t bytes[2])
{
    return bytes[0] > bytes[1] ? bytes[0] : bytes[1];
}

static const ml_flame_node *
shown_node(const flame_difference_work *w, const pair *p, unsigned *side)
{
    *side = p->node[1] != NO_NODE ? 1 : 0;
    return node_of(w, *side, p->node[*side]);
}

/* A pair's number is above its parent's, in either tree. */
static int
arrange(flame_difference_work *w)
{
    size_t count = w->by_key.count;
    ml_flame_ranked *all = ml_alloc_zeroed(count, sizeof(*all));
    w->children = ml_alloc_zeroed(count, sizeof(uint32_t));
    if (all == NULL || w->children == NULL) {
        ml_free(all);
        return ML_ENOMEM;
    }
    for (size_t i = count; i-- > 0;) {
        pair *p = &w->pairs[i];
        unsigned side;
        p->weight = ml_markup_add(p->weight, larger(p->own));
        if (i > 0) {
            pair *parent = &w->pairs[p->parent];
            parent->weight = ml_markup_add(parent->weight, p->weight);
            all[i - 1] = (ml_flame_ranked){p->parent, (uint32_t)i, p->weight,
                                           ml_flame_is_unused(shown_node(w, p, &side))};
        }
    }
    qsort(all, count - 1, sizeof(*all), ml_flame_compare_ranked);
    for (size_t i = 0; i < count - 1; i++) {
        pair *parent = &w->pairs[all[i].parent];
        w->children[i] = all[i].id;
        if (parent->child_count++ == 0) {
            parent->first_child = i;
        }
    }
    ml_free(all);
    return 0;
}

/* ---- The picture ---- */

/* The letter marks names with a file's path; the rest tells the change. */
static const char style[] =
    ".g1{fill:#f9dcc4}.g2{fill:#f0a878}.g3{fill:#e8834a}"
    ".s1{fill:#d3e6f3}.s2{fill:#8fc3e6}.s3{fill:#5aa9dc}.e{fill:#e6e9ee}";

static const ml_flame_key_item legend[] = {
    {"g3", "grew by half or more, or is new"},
    {"g1", "grew"},
    {"e", "as before"},
    {"s1", "shrank"},
    {"s3", "shrank by half or more, or is gone"}};

/* Growth as a share of the larger side. */
static unsigned
degree_of(const pair *p)
{
    uint64_t most = larger(p->bytes);
    uint64_t least = p->bytes[0] < p->bytes[1] ? p->bytes[0] : p->bytes[1];
    uint64_t change = most - least;
    return change == 0 ? 0 : change >= most - change ? 3 : change >= most / 10 ? 2 : 1;
}

static void
put_change(ml_buffer *out, const uint64_t bytes[2], bool exact)
{
    bool grew = bytes[1] >= bytes[0];
    uint64_t change = grew ? bytes[1] - bytes[0] : bytes[0] - bytes[1];
    ml_markup(out, change == 0 ? "\xc2\xb1" : grew ? "+" : "\xe2\x88\x92");
    (exact ? ml_markup_exact_size : ml_markup_size)(out, change);
}

static void
put_bytes(ml_buffer *out, const uint64_t bytes[2])
{
    ml_markup(out, "before: ");
    ml_markup_exact_size(out, bytes[0]);
    ml_markup(out, "\nafter: ");
    ml_markup_exact_size(out, bytes[1]);
    ml_markup(out, "\ndifference: ");
    put_change(out, bytes, true);
}

static void
put_pair_name(const flame_difference_work *w, const pair *p, bool whole, ml_buffer *out)
{
    unsigned side;
    const ml_flame_node *n = shown_node(w, p, &side);
    out->length = 0;
    ml_flame_node_name(&w->trees[side], n, whole, out);
    ml_markup(out, ", ");
    put_change(out, p->bytes, false);
}

static void
draw(const flame_difference_work *w, const pair *p, ml_buffer *name, ml_buffer *out)
{
    static const char *const grown[] = {"l e", "l g1", "l g2", "l g3"};
    static const char *const shrunk[] = {"l e", "l s1", "l s2", "l s3"};
    unsigned side;
    const char *class = (p->bytes[1] > p->bytes[0] ? grown : shrunk)[degree_of(p)];
    bool has_path = shown_node(w, p, &side)->is.kind == ML_FLAME_KIND_FRAME;
    ml_flame_box_begin(out);
    put_pair_name(w, p, true, name);
    ml_markup_text(out, name->bytes, name->length);
    ml_markup(out, "\n");
    put_bytes(out, p->bytes);
    put_pair_name(w, p, false, name);
    ml_flame_box_end(out, has_path ? class : class + 2, p->x, p->width, p->depth, name);
}

/* Draws COUNT neighbouring pairs, up to END, that are too narrow to draw alone. */
static void
draw_rest(const flame_difference_work *w, const pair *above, uint64_t end,
          const pair *rest, ml_buffer *name, ml_buffer *out)
{
    uint64_t width = ml_markup_scale(rest->weight, w->pairs[0].weight, ML_FLAME_WIDTH);
    if (width < ML_FLAME_NARROWEST) {
        return;
    }
    ml_flame_box_begin(out);
    name->length = 0;
    ml_markup_count(name, rest->child_count);
    ml_markup(name, " smaller, ");
    put_change(name, rest->bytes, false);
    ml_buffer_append(out, name->bytes, name->length);
    ml_markup(out, "\n");
    put_bytes(out, rest->bytes);
    ml_flame_box_end(out, "e", end - width, width, above->depth + 1, name);
}

/* As in flame.c, by weights. */
static void
place_children(flame_difference_work *w, const pair *above, ml_buffer *name,
               ml_buffer *out)
{
    uint64_t total = w->pairs[0].weight;
    uint64_t before = 0;
    pair rest = {0};
    for (size_t i = 0; i <= above->child_count; i++) {
        uint64_t x = above->x + ml_markup_scale(before, total, ML_FLAME_WIDTH);
        pair *p = i == above->child_count
                      ? NULL
                      : &w->pairs[w->children[above->first_child + i]];
        uint64_t width =
            p == NULL ? 0 : ml_markup_scale(p->weight, total, ML_FLAME_WIDTH);
        if (p != NULL && width < ML_FLAME_NARROWEST) {
            rest.child_count++;
            rest.weight = ml_markup_add(rest.weight, p->weight);
            rest.bytes[0] = ml_markup_add(rest.bytes[0], p->bytes[0]);
            rest.bytes[1] = ml_markup_add(rest.bytes[1], p->bytes[1]);
        }
        else {
            draw_rest(w, above, x, &rest, name, out);
            rest = (pair){0};
        }
        if (p != NULL) {
            p->x = x;
            p->width = width < ML_FLAME_NARROWEST ? 0 : width;
            before = ml_markup_add(before, p->weight);
        }
    }
}

/* A pair's number is above its parent's, so places are set in ascending order. */
static uint32_t
draw_all(flame_difference_work *w, ml_buffer *name, ml_buffer *boxes)
{
    uint32_t deepest = 0;
    w->pairs[0].width = w->pairs[0].weight > 0 ? ML_FLAME_WIDTH : 0;
    for (size_t i = 0; i < w->by_key.count; i++) {
        const pair *p = &w->pairs[i];
        if (p->width != 0) {
            deepest = p->depth > deepest ? p->depth : deepest;
            draw(w, p, name, boxes);
            place_children(w, p, name, boxes);
        }
    }
    return deepest;
}

static void
put_all(flame_difference_work *w, ml_buffer *name, ml_buffer *boxes, ml_buffer *out)
{
    uint32_t deepest = draw_all(w, name, boxes);
    const uint64_t *bytes = w->pairs[0].bytes;
    bool full = w->trees[0].full || w->trees[1].full;
    name->length = 0;
    ml_markup(name, "Memory before and after: ");
    ml_markup_exact_size(name, bytes[0]);
    ml_markup(name, ", then ");
    ml_markup_exact_size(name, bytes[1]);
    ml_markup(name, " reserved at the end, ");
    put_change(name, bytes, false);
    ml_flame_begin(out, deepest, style, name, full ? ML_FLAME_NOT_ALL : NULL);
    ml_flame_legend(out, legend, sizeof(legend) / sizeof(legend[0]));
    ml_buffer_append(out, boxes->bytes, boxes->length);
    ml_flame_end(out);
}

int
ml_flame_difference(const ml_recording *before, const ml_recording *after,
                    ml_buffer *out)
{
    flame_difference_work w = {.recordings = {before, after}};
    ml_buffer name = {0};
    ml_buffer boxes = {0};
    bool several = ml_flame_device_count(before, ML_ALL_DEVICES) > 1 ||
                   ml_flame_device_count(after, ML_ALL_DEVICES) > 1;
    int error = 0;
    for (unsigned side = 0; side < 2 && error == 0; side++) {
        error = ml_flame_tree_init(&w.trees[side], w.recordings[side], ML_ALL_DEVICES,
                                   false, several);
        error = error < 0 ? error : add_tree(&w, side);
    }
    error = error < 0 ? error : arrange(&w);
    if (error == 0) {
        put_all(&w, &name, &boxes, out);
        error = boxes.error != 0 ? boxes.error : name.error;
        error = error != 0 ? error : out->error;
    }
    for (unsigned side = 0; side < 2; side++) {
        ml_flame_tree_fini(&w.trees[side]);
        ml_free(w.pair_of[side]);
    }
    ml_intern_fini(&w.by_key);
    ml_free(w.pairs);
    ml_free(w.children);
    ml_buffer_fini(&name);
    ml_buffer_fini(&boxes);
    return error;
}
