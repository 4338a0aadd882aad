/* Makes the tree of modules' memory.  See module_tree.h.
 *
 * First all paths go into a trie.  Then nodes are made from the root on.  Each
 * represents several places of the trie; its children are theirs, merged by name, and
 * numbers by repetition. */
#include "analysis/answers/module_tree.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Numbered places of one node. */
typedef struct numbered {
    uint32_t at;      /* place */
    uint32_t like;    /* index into numbered: an equivalent one, or itself */
    uint32_t child;   /* index into children, for the first of equivalent ones */
    uint32_t members; /* likewise */
} numbered;

/* A future node. */
typedef struct child {
    ml_module_node node;
    uint32_t first; /* place */
    uint32_t last;  /* place */
} child;

/* The role of a part in the node being made. */
typedef struct part_mark {
    uint32_t child_of; /* 1 + the node to which CHILD belongs */
    uint32_t child;
    uint32_t number_of; /* 1 + the node whose first such number is NUMBER */
    uint32_t number;
    uint32_t held_by; /* 1 + the node whose first number with this part is HOLDER */
    uint32_t holder;
} part_mark;

typedef struct work {
    ml_module_trie trie;
    ml_module_tree *tree;
    size_t node_capacity;
    uint32_t *followers; /* owned; by place: the next one of the same node; 0: none */
    uint32_t *node_of;   /* owned; by place */
    part_mark *marks;    /* owned; by part */
    uint32_t *firsts;    /* owned; by node: place */
    size_t first_capacity;
    numbered *numbers; /* owned; of the node being made */
    size_t number_count, number_capacity;
    child *children; /* owned; likewise */
    size_t child_count, child_capacity;
} work;

/* ---- What repeats ---- */

static bool
is_number(ml_string part)
{
    for (uint32_t i = 0; i < part.length; i++) {
        if (part.bytes[i] < '0' || part.bytes[i] > '9') {
            return false;
        }
    }
    return part.length != 0;
}

static int
compare_numbers(ml_string a, ml_string b)
{
    if (a.length != b.length) {
        return a.length < b.length ? -1 : 1;
    }
    return ml_string_compare(a, b);
}

static uint32_t
find_like(work *w, uint32_t number)
{
    numbered *all = w->numbers;
    while (all[number].like != number) {
        all[number].like = all[all[number].like].like;
        number = all[number].like;
    }
    return number;
}

static void
join(work *w, uint32_t a, uint32_t b)
{
    a = find_like(w, a);
    b = find_like(w, b);
    if (a != b) {
        w->numbers[b].like = a;
        w->numbers[a].members += w->numbers[b].members;
    }
}

/* Joins NUMBER of NODE with the first, which *FIRST has if *OF is NODE plus 1. */
static void
join_first(work *w, uint32_t node, uint32_t number, uint32_t *of, uint32_t *first)
{
    if (*of == node + 1) {
        join(w, *first, number);
    }
    else {
        *of = node + 1;
        *first = number;
    }
}

/* Joins the numbers of NODE that are equal or have parts of one name.  Numbers without
 * parts form one more group, or join the largest group that outnumbers them.  At some
 * instants, and in some programs, only some layers show parts. */
static void
find_alike(work *w, uint32_t node)
{
    const ml_module_place *places = w->trie.places;
    uint32_t bare = NONE;
    uint32_t bares = 0;
    for (uint32_t i = 0; i < w->number_count; i++) {
        const ml_module_place *at = &places[w->numbers[i].at];
        part_mark *mark = &w->marks[at->part];
        join_first(w, node, i, &mark->number_of, &mark->number);
        if (at->first == 0) {
            bare = bare == NONE ? i : bare;
            join(w, bare, i);
            bares++;
        }
        for (uint32_t in = at->first; in != 0; in = places[in].next) {
            mark = &w->marks[places[in].part];
            join_first(w, node, i, &mark->held_by, &mark->holder);
        }
    }
    if (bares == 0 || w->numbers[find_like(w, bare)].members != bares) {
        return;
    }
    uint32_t most = find_like(w, bare);
    for (uint32_t i = 0; i < w->number_count; i++) {
        uint32_t like = find_like(w, i);
        most = w->numbers[like].members > w->numbers[most].members ? like : most;
    }
    join(w, most, bare);
}

/* ---- The nodes ---- */

static int
new_child(work *w, ml_string part, uint32_t *index)
{
    void *children = w->children;
    if (ml_grow(&children, &w->child_capacity, w->child_count + 1, sizeof(child)) < 0) {
        return ML_ENOMEM;
    }
    w->children = children;
    *index = (uint32_t)w->child_count++;
    w->children[*index] = (child){.node = {.part = part}};
    return 0;
}

static void
add_place(work *w, uint32_t index, uint32_t at)
{
    child *to = &w->children[index];
    const ml_module_place *it = &w->trie.places[at];
    w->followers[at] = 0;
    if (to->first == 0) {
        to->first = at;
    }
    else {
        w->followers[to->last] = at;
    }
    to->last = at;
    to->node.modules++;
    ml_peak_sum_add(&to->node.own, it->own);
    ml_peak_sum_add(&to->node.all, it->all);
}

static int
add_named(work *w, uint32_t node, uint32_t at)
{
    part_mark *mark = &w->marks[w->trie.places[at].part];
    if (mark->child_of != node + 1) {
        mark->child_of = node + 1;
        if (new_child(w, w->trie.parts[w->trie.places[at].part], &mark->child) < 0) {
            return ML_ENOMEM;
        }
    }
    add_place(w, mark->child, at);
    return 0;
}

static int
add_number(work *w, uint32_t at)
{
    void *numbers = w->numbers;
    if (ml_grow(&numbers, &w->number_capacity, w->number_count + 1, sizeof(numbered)) <
        0) {
        return ML_ENOMEM;
    }
    w->numbers = numbers;
    w->numbers[w->number_count] = (numbered){
        .at = at, .like = (uint32_t)w->number_count, .child = NONE, .members = 1};
    w->number_count++;
    return 0;
}

static void
widen(ml_module_node *node, ml_string number)
{
    static const ml_string star = {"*", 1};
    if (node->least.bytes == NULL) {
        node->least = node->greatest = number;
        return;
    }
    node->least = compare_numbers(number, node->least) < 0 ? number : node->least;
    node->greatest =
        compare_numbers(number, node->greatest) > 0 ? number : node->greatest;
    if (compare_numbers(node->least, node->greatest) != 0) {
        node->several = true;
        node->part = star;
    }
}

static int
add_numbers(work *w, uint32_t node)
{
    find_alike(w, node);
    size_t from = w->child_count;
    for (uint32_t i = 0; i < w->number_count; i++) {
        const ml_module_place *at = &w->trie.places[w->numbers[i].at];
        numbered *like = &w->numbers[find_like(w, i)];
        if (like->child == NONE) {
            if (new_child(w, w->trie.parts[at->part], &like->child) < 0) {
                return ML_ENOMEM;
            }
            w->children[like->child].node.each = true;
        }
        ml_module_node *to = &w->children[like->child].node;
        to->each = to->each && at->first == 0;
        add_place(w, like->child, w->numbers[i].at);
        widen(to, w->trie.parts[at->part]);
    }
    size_t groups = 0;
    for (size_t i = from; i < w->child_count; i++) {
        groups += w->children[i].node.several;
    }
    for (size_t i = from; i < w->child_count; i++) {
        ml_module_node *to = &w->children[i].node;
        to->each = to->each && to->several;
        if (to->each) {
            to->own = (ml_peak_sum){0};
        }
        to->beside = to->several && groups > 1;
    }
    return 0;
}

static int
compare_children(const void *a, const void *b)
{
    const ml_module_node *x = &((const child *)a)->node;
    const ml_module_node *y = &((const child *)b)->node;
    if (x->all.bytes != y->all.bytes) {
        return x->all.bytes > y->all.bytes ? -1 : 1;
    }
    int order = ml_string_compare(x->part, y->part);
    if (order != 0) {
        return order;
    }
    order = (int)x->no_module - (int)y->no_module;
    return order != 0 ? order : compare_numbers(x->least, y->least);
}

/* Appends them after all others, as the children of NODE. */
static int
append_children(work *w, uint32_t node)
{
    ml_module_tree *tree = w->tree;
    size_t count = tree->count + w->child_count;
    void *nodes = tree->nodes;
    void *firsts = w->firsts;
    if (ml_grow(&nodes, &w->node_capacity, count, sizeof(ml_module_node)) < 0) {
        return ML_ENOMEM;
    }
    tree->nodes = nodes;
    if (ml_grow(&firsts, &w->first_capacity, count, sizeof(uint32_t)) < 0) {
        return ML_ENOMEM;
    }
    w->firsts = firsts;
    if (w->child_count != 0) {
        qsort(w->children, w->child_count, sizeof(child), compare_children);
    }
    tree->nodes[node].first = (uint32_t)tree->count;
    tree->nodes[node].children = (uint32_t)w->child_count;
    for (size_t i = 0; i < w->child_count; i++) {
        child *it = &w->children[i];
        uint32_t id = (uint32_t)tree->count++;
        it->node.parent = node;
        tree->nodes[id] = it->node;
        w->firsts[id] = it->first;
        tree->of_reason[it->node.no_module] = it->node.no_module != 0 ? id : 0;
        for (uint32_t at = it->first; at != 0; at = w->followers[at]) {
            w->node_of[at] = id;
        }
    }
    return 0;
}

static int
add_reasons(work *w, const ml_peak_module *modules, size_t count)
{
    uint32_t of_reason[ML_NO_MODULE_COUNT] = {0}; /* plus 1 */
    for (size_t i = 0; i < count; i++) {
        uint8_t reason = modules[i].no_module;
        if (modules[i].module != 0) {
            continue;
        }
        if (of_reason[reason] == 0) {
            if (new_child(w, (ml_string){"", 0}, &of_reason[reason]) < 0) {
                return ML_ENOMEM;
            }
            of_reason[reason]++;
        }
        ml_module_node *node = &w->children[of_reason[reason] - 1].node;
        ml_peak_sum sum = {modules[i].bytes, modules[i].blocks};
        node->no_module = reason;
        ml_peak_sum_add(&node->own, sum);
        ml_peak_sum_add(&node->all, sum);
    }
    return 0;
}

static int
add_children(work *w, uint32_t node)
{
    bool each = w->tree->nodes[node].each;
    uint32_t at = w->firsts[node];
    int error = 0;
    w->number_count = 0;
    do {
        /* Who is added to a child follows others from then on. */
        uint32_t follower = w->followers[at];
        if (each) {
            error = add_named(w, node, at);
        }
        uint32_t inner = each ? 0 : w->trie.places[at].first;
        for (; inner != 0 && error == 0; inner = w->trie.places[inner].next) {
            if (w->trie.places[inner].given) {
                error = is_number(w->trie.parts[w->trie.places[inner].part])
                            ? add_number(w, inner)
                            : add_named(w, node, inner);
            }
        }
        at = follower;
    } while (at != 0 && error == 0);
    if (error == 0) {
        error = add_numbers(w, node);
    }
    return error < 0 ? error : append_children(w, node);
}

static int
make_nodes(work *w, const ml_peak_module *modules, size_t count)
{
    ml_module_tree *tree = w->tree;
    void *nodes = NULL;
    void *firsts = NULL;
    if (ml_grow(&nodes, &w->node_capacity, 1, sizeof(ml_module_node)) < 0) {
        return ML_ENOMEM;
    }
    tree->nodes = nodes;
    if (ml_grow(&firsts, &w->first_capacity, 1, sizeof(uint32_t)) < 0) {
        return ML_ENOMEM;
    }
    w->firsts = firsts;
    w->firsts[0] = 0;
    tree->nodes[0] = (ml_module_node){.part = {"", 0}};
    tree->count = 1;
    int error = add_reasons(w, modules, count);
    for (uint32_t i = 0; i < tree->count && error == 0; i++) {
        if (i == 0 || w->firsts[i] != 0) {
            error = add_children(w, i);
        }
        w->child_count = 0;
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        tree->nodes[0].all.bytes += modules[i].bytes;
        tree->nodes[0].all.blocks += modules[i].blocks;
        if (modules[i].module != 0) {
            tree->of_module[modules[i].module] =
                w->node_of[w->trie.ends[modules[i].module]];
        }
    }
    return error;
}

int
ml_module_tree_new(const ml_recording *recording, const ml_peak_module *modules,
                   size_t count, ml_module_tree **out)
{
    work w = {.tree = ml_alloc_zeroed(1, sizeof(ml_module_tree))};
    int error = w.tree == NULL
                    ? ML_ENOMEM
                    : ml_module_trie_init(&w.trie, recording, modules, count);
    if (error == 0) {
        w.tree->of_module = ml_alloc_zeroed(recording->string_count, sizeof(uint32_t));
        w.followers = ml_alloc_zeroed(w.trie.count, sizeof(uint32_t));
        w.node_of = ml_alloc_zeroed(w.trie.count, sizeof(uint32_t));
        w.marks = ml_alloc_zeroed(w.trie.part_ids.count + 1, sizeof(part_mark));
        error = w.tree->of_module == NULL || w.followers == NULL || w.node_of == NULL ||
                        w.marks == NULL
                    ? ML_ENOMEM
                    : make_nodes(&w, modules, count);
    }
    ml_module_trie_fini(&w.trie);
    ml_free(w.followers);
    ml_free(w.node_of);
    ml_free(w.marks);
    ml_free(w.firsts);
    ml_free(w.numbers);
    ml_free(w.children);
    if (error < 0) {
        ml_module_tree_free(w.tree);
        return error;
    }
    *out = w.tree;
    return 0;
}

void
ml_module_tree_free(ml_module_tree *tree)
{
    if (tree != NULL) {
        ml_free(tree->nodes);
        ml_free(tree->of_module);
        ml_free(tree);
    }
}

void
ml_module_path(const ml_module_tree *tree, uint32_t node, ml_buffer *out)
{
    uint32_t path[ML_MODULE_DEPTH] = {0};
    size_t length = 0;
    for (uint32_t at = node; at != 0; at = tree->nodes[at].parent) {
        uint32_t parent = tree->nodes[at].parent;
        path[length++] = at;
        at = parent != 0 && tree->nodes[parent].each ? parent : at;
    }
    while (length-- > 0) {
        const ml_module_node *at = &tree->nodes[path[length]];
        if (at->beside) {
            ml_buffer_append(out, "[", 1);
            ml_buffer_append(out, at->least.bytes, at->least.length);
            ml_buffer_append(out, "-", 1);
            ml_buffer_append(out, at->greatest.bytes, at->greatest.length);
            ml_buffer_append(out, "]", 1);
        }
        else {
            ml_buffer_append(out, at->part.bytes, at->part.length);
        }
        if (length != 0) {
            ml_buffer_append(out, ".", 1);
        }
    }
}
