/* Builds the tree of a flame graph.  See flame_tree.h.
 *
 * A parent and a value identify a node.  The node of each stack is kept, so each stack
 * is walked once per segment.  A node's number is above its parent's: sums go in
 * descending order, places in ascending. */
#include "show/draw/flame_tree.h"

#include <stdlib.h>
#include <string.h>

#include "show/text/markup.h"

/* Limits on outermost frames of a stack and on nodes: a file may be forged. */
#define DEEPEST 512u
#define MOST_NODES (UINT32_C(1) << 20)

/* ---- Frames that say nothing ---- */

/* Frames of the interpreter and torch's dispatcher that say nothing.  torch's own
 * pictures leave them out too. */
static const char *const noisy_names[] = {
    "unwind::unwind",    "CapturedTraceback::gather",
    "gather_with_cpp",   "_start",
    "__libc_start_main", "PyEval_",
    "PyObject_",         "PyFunction_"};
static const char *const noisy_files[] = {"core/boxing",
                                          "/Register",
                                          "/Redispatch",
                                          "pythonrun.c",
                                          "Modules/main.c",
                                          "Objects/call.c",
                                          "Objects/methodobject.c",
                                          "pycore_ceval.h",
                                          "ceval.c",
                                          "cpython/abstract.h"};

static bool
looks_noisy(const ml_recording *recording, uint32_t frame)
{
    ml_string name = ml_frame_name(recording, frame);
    ml_string file = ml_frame_file(recording, frame);
    for (size_t i = 0; i < sizeof(noisy_names) / sizeof(noisy_names[0]); i++) {
        if (ml_string_holds(name, noisy_names[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(noisy_files) / sizeof(noisy_files[0]); i++) {
        if (ml_string_holds(file, noisy_files[i])) {
            return true;
        }
    }
    return false;
}

bool
ml_flame_is_noise(const ml_recording *recording, uint8_t *noise, uint32_t frame)
{
    enum {
        UNASKED,
        TELLS,
        NOISY
    };
    if (noise[frame] == UNASKED) {
        noise[frame] = looks_noisy(recording, frame) ? NOISY : TELLS;
    }
    return noise[frame] == NOISY;
}

/* ---- The tree ---- */

typedef struct sought_child {
    const ml_flame_tree *t;
    ml_flame_key is;
} sought_child;

static bool
same_key(ml_flame_key a, ml_flame_key b)
{
    return a.value == b.value && a.parent == b.parent && a.kind == b.kind;
}

static bool
node_is(const void *context, uint32_t id)
{
    const sought_child *w = context;
    return same_key(w->t->nodes[id].is, w->is);
}

static bool
stack_is(const void *context, uint32_t id)
{
    const sought_child *w = context;
    return same_key(w->t->stack_keys[id], w->is);
}

static uint64_t
hash_key(ml_flame_key is)
{
    return ml_hash_u64(is.value ^ ml_hash_u64((uint64_t)is.parent << 8 | is.kind));
}

/* The child of PARENT for VALUE; PARENT itself if there is no room. */
static int
child_of(ml_flame_tree *t, uint32_t parent, enum ml_flame_kind kind, uint64_t value,
         uint32_t *out)
{
    sought_child w = {t, {.value = value, .parent = parent, .kind = kind}};
    uint64_t hash = hash_key(w.is);
    if (ml_intern_find(&t->nodes_by_key, hash, node_is, &w, out)) {
        return 0;
    }
    uint32_t id = (uint32_t)t->nodes_by_key.count;
    if (id >= MOST_NODES) {
        t->full = true;
        *out = parent;
        return 0;
    }
    if (ml_grow((void **)&t->nodes, &t->node_capacity, (size_t)id + 1,
                sizeof(ml_flame_node)) < 0) {
        return ML_ENOMEM;
    }
    const ml_flame_node *above = &t->nodes[parent];
    uint32_t depth = kind == ML_FLAME_KIND_ROOT ? 0 : above->depth + 1;
    uint32_t device = kind == ML_FLAME_KIND_ROOT     ? 0
                      : kind == ML_FLAME_KIND_DEVICE ? (uint32_t)value
                                                     : above->device;
    t->nodes[id] = (ml_flame_node){.is = w.is, .device = device, .depth = depth};
    *out = id;
    return ml_intern_add(&t->nodes_by_key, hash);
}

static int
remember_stack(ml_flame_tree *t, ml_flame_key is, uint32_t leads_to)
{
    size_t count = t->stacks_by_key.count + 1;
    if (ml_grow((void **)&t->stack_keys, &t->stack_key_capacity, count,
                sizeof(ml_flame_key)) < 0 ||
        ml_grow((void **)&t->stack_nodes, &t->stack_node_capacity, count,
                sizeof(uint32_t)) < 0) {
        return ML_ENOMEM;
    }
    t->stack_keys[count - 1] = is;
    t->stack_nodes[count - 1] = leads_to;
    return ml_intern_add(&t->stacks_by_key, hash_key(is));
}

/* Moves *AT to its child for FRAME, unless FRAME is noise. */
static int
go_to_frame(ml_flame_tree *t, uint32_t frame, uint32_t *at)
{
    uint32_t first;
    if (ml_flame_is_noise(t->recording, t->noise, frame)) {
        return 0;
    }
    int error = ml_frame_lines_first(&t->lines, frame, &first);
    return error < 0 ? error : child_of(t, *at, ML_FLAME_KIND_FRAME, first, at);
}

/* The node of STACK below GROUP. */
static int
stack_node(ml_flame_tree *t, uint32_t group, uint32_t stack, uint32_t *out)
{
    if (stack != t->cut[stack]) {
        stack = t->cut[stack];
        t->full = true;
    }
    size_t length = 0;
    uint32_t at = group;
    for (; stack != 0; stack = t->recording->stacks[stack].parent) {
        sought_child w = {
            t, {.value = stack, .parent = group, .kind = ML_FLAME_KIND_STACK}};
        uint32_t known;
        if (ml_intern_find(&t->stacks_by_key, hash_key(w.is), stack_is, &w, &known)) {
            at = t->stack_nodes[known];
            break;
        }
        t->path[length++] = stack;
    }
    int error = 0;
    while (length-- > 0 && error == 0) {
        ml_flame_key is = {
            .value = t->path[length], .parent = group, .kind = ML_FLAME_KIND_STACK};
        error = go_to_frame(t, t->recording->stacks[t->path[length]].frame, &at);
        if (error == 0) {
            error = remember_stack(t, is, at);
        }
    }
    if (error == 0 && at == group) {
        error = child_of(t, group, ML_FLAME_KIND_NO_STACK, 0, &at);
    }
    *out = at;
    return error;
}

/* BLOCK's requested bytes.  Files of older torch lack them; then its size. */
static uint64_t
asked_for(const ml_block *block)
{
    return block->requested == 0 || block->requested > block->size ? block->size
                                                                   : block->requested;
}

static int
add_block(ml_flame_tree *t, uint32_t above, const ml_block *block)
{
    uint32_t state;
    int error = child_of(t, above, ML_FLAME_KIND_STATE, block->state, &state);
    if (error < 0) {
        return error;
    }
    uint64_t bytes = block->size;
    uint32_t at = state;
    if (block->state != ML_BLOCK_INACTIVE) {
        bytes = asked_for(block);
        error = stack_node(t, state, block->stack, &at);
    }
    if (error == 0) {
        t->nodes[at].bytes = ml_markup_add(t->nodes[at].bytes, bytes);
        t->nodes[at].blocks++;
    }
    if (error == 0 && bytes < block->size) {
        error = child_of(t, state, ML_FLAME_KIND_ROUNDING, 0, &at);
        if (error == 0) {
            t->nodes[at].bytes = ml_markup_add(t->nodes[at].bytes, block->size - bytes);
        }
    }
    return error;
}

static int
add_device(ml_flame_tree *t, size_t device, bool several)
{
    const ml_device_trace *trace = &t->recording->devices[device];
    uint32_t above = 0;
    int error = several ? child_of(t, 0, ML_FLAME_KIND_DEVICE, device, &above) : 0;
    t->nodes[0].device = several ? 0 : (uint32_t)device;
    for (size_t i = 0; i < trace->segment_count && error == 0; i++) {
        const ml_segment *segment = &trace->segments[i];
        uint32_t at;
        error = child_of(t, above, ML_FLAME_KIND_STREAM, segment->stream, &at);
        if (error == 0 && t->by_segment) {
            error = child_of(t, at, ML_FLAME_KIND_SEGMENT, i, &at);
        }
        for (size_t b = 0; b < segment->block_count && error == 0; b++) {
            error = add_block(t, at, &trace->blocks[segment->first_block + b]);
        }
    }
    return error;
}

void
ml_flame_tree_fini(ml_flame_tree *t)
{
    ml_frame_lines_fini(&t->lines);
    ml_intern_fini(&t->nodes_by_key);
    ml_intern_fini(&t->stacks_by_key);
    ml_free(t->nodes);
    ml_free(t->stack_keys);
    ml_free(t->stack_nodes);
    ml_free(t->cut);
    ml_free(t->path);
    ml_free(t->noise);
    ml_free(t->children);
}

static void
cut_stacks(ml_flame_tree *t, uint32_t *depths)
{
    for (uint32_t i = 1; i < t->recording->stack_count; i++) {
        uint32_t parent = t->recording->stacks[i].parent;
        depths[i] = depths[parent] < DEEPEST ? depths[parent] + 1 : DEEPEST;
        t->cut[i] = depths[parent] < DEEPEST ? i : t->cut[parent];
    }
}

static int
begin_tree(ml_flame_tree *t, const ml_recording *recording, bool by_segment)
{
    *t = (ml_flame_tree){.recording = recording, .by_segment = by_segment};
    uint32_t *depths = ml_alloc_zeroed(recording->stack_count, sizeof(uint32_t));
    uint32_t root;
    int error = ml_frame_lines_init(&t->lines, recording);
    t->cut = ml_alloc_zeroed(recording->stack_count, sizeof(uint32_t));
    t->path = ml_alloc_zeroed(DEEPEST, sizeof(uint32_t));
    t->noise = ml_alloc_zeroed(recording->frame_count, 1);
    if (depths == NULL || t->cut == NULL || t->path == NULL || t->noise == NULL) {
        error = ML_ENOMEM;
    }
    if (error == 0) {
        cut_stacks(t, depths);
        error = child_of(t, 0, ML_FLAME_KIND_ROOT, 0, &root);
    }
    ml_free(depths);
    return error;
}

size_t
ml_flame_device_count(const ml_recording *recording, size_t device)
{
    size_t count = 0;
    for (size_t d = 0; d < recording->device_count; d++) {
        count += (device == ML_ALL_DEVICES || device == d) &&
                 recording->devices[d].segment_count > 0;
    }
    return count;
}

/* ---- Places ---- */

int
ml_flame_compare_ranked(const void *left, const void *right)
{
    const ml_flame_ranked *a = left;
    const ml_flame_ranked *b = right;
    if (a->parent != b->parent) {
        return a->parent < b->parent ? -1 : 1;
    }
    if (a->last != b->last) {
        return a->last ? 1 : -1;
    }
    if (a->weight != b->weight) {
        return a->weight > b->weight ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

bool
ml_flame_is_unused(const ml_flame_node *n)
{
    return n->is.kind == ML_FLAME_KIND_ROUNDING ||
           (n->is.kind == ML_FLAME_KIND_STATE && n->is.value == ML_BLOCK_INACTIVE);
}

/* Sums and sorts each node's children, largest first. */
static int
arrange(ml_flame_tree *t)
{
    size_t count = t->nodes_by_key.count;
    ml_flame_ranked *all = ml_alloc_zeroed(count, sizeof(*all));
    t->children = ml_alloc_zeroed(count, sizeof(uint32_t));
    if (all == NULL || t->children == NULL) {
        ml_free(all);
        return ML_ENOMEM;
    }
    for (size_t i = count - 1; i > 0; i--) {
        const ml_flame_node *n = &t->nodes[i];
        ml_flame_node *parent = &t->nodes[n->is.parent];
        parent->bytes = ml_markup_add(parent->bytes, n->bytes);
        parent->blocks += n->blocks;
        all[i - 1] = (ml_flame_ranked){n->is.parent, (uint32_t)i, n->bytes,
                                       ml_flame_is_unused(n)};
    }
    qsort(all, count - 1, sizeof(*all), ml_flame_compare_ranked);
    for (size_t i = 0; i < count - 1; i++) {
        ml_flame_node *parent = &t->nodes[all[i].parent];
        t->children[i] = all[i].id;
        if (parent->child_count++ == 0) {
            parent->first_child = i;
        }
    }
    ml_free(all);
    return 0;
}

int
ml_flame_tree_init(ml_flame_tree *t, const ml_recording *recording, size_t device,
                   bool by_segment, bool by_device)
{
    int error = begin_tree(t, recording, by_segment);
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        if ((device == ML_ALL_DEVICES || device == d) &&
            recording->devices[d].segment_count > 0) {
            error = add_device(t, d, by_device);
        }
    }
    return error < 0 ? error : arrange(t);
}

/* ---- Names ---- */

static const char *const state_names[] = {
    [ML_BLOCK_INACTIVE] = "free, kept by the allocator",
    [ML_BLOCK_ALLOCATED] = "allocated",
    [ML_BLOCK_PENDING_FREE] = "freed, awaiting its streams"};

static void
put_segment_name(const ml_flame_tree *t, const ml_segment *segment, ml_buffer *out)
{
    /* Without segments, each block counts as one. */
    ml_markup(out, t->recording->rules.has_segments ? "segment " : "block ");
    ml_markup_address(out, segment->addr);
    ml_markup(out, " of ");
    ml_markup_size(out, segment->total);
}

void
ml_flame_node_name(const ml_flame_tree *t, const ml_flame_node *n, bool whole,
                   ml_buffer *out)
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
