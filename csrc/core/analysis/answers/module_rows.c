/* Chooses the rows of a module tree.  See module_rows.h.
 *
 * The largest nodes are shown, one per row.  A node without a shown descendant is a row
 * with all its bytes; another one has what its shown descendants leave.  A parent comes
 * before its children, so one more node is at most one more row.  If the root would
 * keep much, its children come earlier than by their size.  Of numbers alike in size that do
 * not all find room none is shown: layers.* x48 tells more than three of them. */
#include "analysis/answers/module_rows.h"

#include <stdlib.h>
#include <string.h>

/* The root may keep one byte in this many. */
#define REST_MOST 20
/* The most by which its children's weight may be multiplied. */
#define BOOST_MOST 64

typedef struct shown {
    const ml_module_node *node;
    double weight; /* by which they are sorted */
    uint32_t id;
    uint32_t parent;  /* shown */
    uint32_t inside;  /* number of shown children */
    ml_peak_sum left; /* by them */
    bool passed;      /* LEFT includes what shown children passed up */
    uint64_t largest; /* bytes, of the numbers among its children that are shown */
    uint64_t hidden;  /* bytes, of the others that could be */
} shown;

static int
compare_shown(const void *a, const void *b)
{
    const shown *x = a;
    const shown *y = b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool
has_row(const shown *at, size_t index, uint64_t least)
{
    return at->left.bytes != 0 &&
           (index == 0 || at->inside == 0 || at->left.bytes >= least);
}

/* Selects from the first COUNT of LIST those with rows, into ROWS, which may be NULL;
 * returns their number.  A rest below LEAST bytes goes to the parent. */
static size_t
count_rows(shown *list, size_t count, uint64_t least, ml_module_row *rows)
{
    for (size_t i = 0; i < count; i++) {
        list[i].left = list[i].node->all;
        list[i].inside = 0;
        list[i].passed = false;
        if (i != 0) {
            shown *parent = &list[list[i].parent];
            parent->inside++;
            parent->left.bytes -= list[i].left.bytes;
            parent->left.blocks -= list[i].left.blocks;
        }
    }
    size_t found = 0;
    for (size_t i = count; i-- > 0;) {
        const shown *at = &list[i];
        if (has_row(at, i, least)) {
            bool own = !at->passed && at->inside == at->node->children;
            if (rows != NULL) {
                rows[found] =
                    (ml_module_row){.node = at->id,
                                    .share = (uint8_t)(at->inside == 0 ? ML_MODULE_ALL
                                                       : own           ? ML_MODULE_OWN
                                                             : ML_MODULE_REST),
                                    .sum = at->left};
            }
            found++;
        }
        else if (i != 0 && at->left.bytes != 0) {
            shown *parent = &list[at->parent];
            ml_peak_sum_add(&parent->left, at->left);
            parent->passed = true;
        }
    }
    return found;
}

static int
compare_rows(const void *a, const void *b)
{
    const ml_module_row *x = a;
    const ml_module_row *y = b;
    if ((x->node == 0) != (y->node == 0)) {
        return x->node == 0 ? 1 : -1;
    }
    if (x->sum.bytes != y->sum.bytes) {
        return x->sum.bytes > y->sum.bytes ? -1 : 1;
    }
    return x->node < y->node ? -1 : x->node > y->node;
}

typedef struct choice {
    const ml_module_tree *tree;
    uint64_t least; /* bytes of a row */
    /* owned; the root, and nodes of LEAST bytes or more that are in none that is folded */
    shown *list;
    size_t count;
    uint32_t *places; /* owned; by node: index into LIST */
    bool *folded;     /* owned; by node: itself, or one around it */
} choice;

static int
choice_init(choice *c, const ml_module_tree *tree)
{
    *c = (choice){.tree = tree,
                  .least = tree->nodes[0].all.bytes / 100,
                  .list = ml_alloc_zeroed(tree->count, sizeof(shown)),
                  .places = ml_alloc_zeroed(tree->count, sizeof(uint32_t)),
                  .folded = ml_alloc_zeroed(tree->count, sizeof(bool))};
    return c->list == NULL || c->places == NULL || c->folded == NULL ? ML_ENOMEM : 0;
}

static void
list_nodes(choice *c, unsigned boost)
{
    const ml_module_tree *tree = c->tree;
    c->count = 0;
    for (uint32_t i = 0; i < tree->count; i++) {
        const ml_module_node *node = &tree->nodes[i];
        bool hidden = i != 0 && c->folded[node->parent];
        c->folded[i] = c->folded[i] || hidden;
        if (i == 0 ||
            (!hidden && node->all.bytes != 0 && node->all.bytes >= c->least)) {
            double weight = (double)node->all.bytes * (node->parent == 0 ? boost : 1);
            c->list[c->count++] = (shown){.node = node, .id = i, .weight = weight};
        }
    }
    qsort(c->list, c->count, sizeof(shown), compare_shown);
    for (uint32_t i = 0; i < c->count; i++) {
        c->places[c->list[i].id] = i;
        c->list[i].parent = c->places[c->list[i].node->parent];
    }
}

/* Folds the numbers of which some are among the first COUNT of the list, and others that are
 * nearly as large are not.  Whether there are such. */
static bool
fold(choice *c, size_t count)
{
    for (size_t i = 1; i < c->count; i++) {
        const shown *at = &c->list[i];
        shown *parent = &c->list[at->parent];
        uint64_t *most = i < count ? &parent->largest : &parent->hidden;
        if (parent->node->each && at->node->all.bytes > *most) {
            *most = at->node->all.bytes;
        }
    }
    bool some = false;
    for (size_t i = 0; i < count; i++) {
        const shown *at = &c->list[i];
        if (at->largest != 0 && at->hidden >= at->largest / 4 * 3) {
            c->folded[at->id] = some = true;
        }
    }
    return some;
}

/* The rows if the root's children weigh BOOST times as much; returns their number. */
static size_t
choose_rows(choice *c, unsigned boost, size_t most, ml_module_row *rows)
{
    size_t at = 0;
    memset(c->folded, 0, c->tree->count * sizeof(bool));
    do {
        list_nodes(c, boost);
        ML_SEARCH(at, c->count, count_rows(c->list, at + 1, c->least, NULL) <= most);
    } while (fold(c, at));
    size_t count = at == 0 ? 0 : count_rows(c->list, at, c->least, rows);
    if (count != 0) {
        qsort(rows, count, sizeof(ml_module_row), compare_rows);
    }
    return count;
}

/* RIGHT leaves less than LEFT does, and has no row larger than a quarter of ALL bytes, or than
 * the largest of LEFT and what RIGHT leaves less: a name tells more than the rest. */
static bool
is_better(const ml_module_row *left, size_t left_count, const ml_module_row *right,
          size_t right_count, uint64_t all)
{
    const ml_module_row *a = &left[left_count - 1];
    const ml_module_row *b = &right[right_count - 1];
    uint64_t rest = b->node != 0 ? 0 : b->sum.bytes;
    if (rest >= a->sum.bytes) {
        return false;
    }
    uint64_t most = left[0].sum.bytes + (a->sum.bytes - rest);
    return right[0].sum.bytes <= (most > all / 4 ? most : all / 4);
}

static bool
leaves_much(const choice *c, const ml_module_row *rows, size_t count)
{
    return count > 1 && rows[count - 1].node == 0 &&
           rows[count - 1].sum.bytes > c->tree->nodes[0].all.bytes / REST_MOST;
}

/* The child of NODE that has all but a REST_MOST of its bytes; 0: none. */
static uint32_t
most_of(const ml_module_tree *tree, const ml_module_node *node)
{
    for (uint32_t i = node->first; i < node->first + node->children; i++) {
        if (tree->nodes[i].all.bytes >= node->all.bytes - node->all.bytes / REST_MOST) {
            return i;
        }
    }
    return 0;
}

/* A module of which one child has nearly all is named by the child, as that tells more.  What the
 * child leaves goes to the row above. */
static void
name_closer(const ml_module_tree *tree, ml_module_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ml_module_row *row = &rows[i];
        while (row->node != 0 && row->share == ML_MODULE_ALL) {
            const ml_module_node *node = &tree->nodes[row->node];
            uint32_t child = most_of(tree, node);
            size_t above = ml_module_row_of(tree, rows, count, node->parent);
            bool whole = child != 0 && tree->nodes[child].all.bytes == node->all.bytes;
            if (child == 0 || (!whole && above == count)) {
                break;
            }
            if (!whole) {
                rows[above].sum.bytes += node->all.bytes - tree->nodes[child].all.bytes;
                rows[above].sum.blocks +=
                    node->all.blocks - tree->nodes[child].all.blocks;
                rows[above].share = ML_MODULE_REST;
            }
            row->node = child;
            row->sum = tree->nodes[child].all;
        }
    }
    qsort(rows, count, sizeof(ml_module_row), compare_rows);
}

int
ml_module_rows(const ml_module_tree *tree, ml_module_row *rows, size_t most,
               size_t *count)
{
    choice c;
    int error = choice_init(&c, tree);
    *count = error < 0 ? 0 : choose_rows(&c, 1, most, rows);
    for (unsigned boost = 2; boost <= BOOST_MOST && leaves_much(&c, rows, *count);
         boost *= 2) {
        ml_module_row others[ML_MODULE_ROWS];
        size_t found = choose_rows(&c, boost, most, others);
        if (is_better(rows, *count, others, found, tree->nodes[0].all.bytes)) {
            memcpy(rows, others, found * sizeof(*rows));
            *count = found;
        }
    }
    ml_free(c.list);
    ml_free(c.places);
    ml_free(c.folded);
    name_closer(tree, rows, *count);
    for (size_t i = 0; i < *count; i++) {
        /* What a module's numbers leave, if all of it is in them, is the module's. */
        const ml_module_node *node = &tree->nodes[rows[i].node];
        if (rows[i].share != ML_MODULE_ALL && node->each && node->parent != 0 &&
            tree->nodes[node->parent].all.bytes == node->all.bytes) {
            rows[i].node = node->parent;
        }
    }
    return error;
}

size_t
ml_module_row_of(const ml_module_tree *tree, const ml_module_row *rows, size_t count,
                 uint32_t node)
{
    for (;;) {
        for (size_t i = 0; i < count; i++) {
            if (rows[i].node == node) {
                return i;
            }
        }
        if (node == 0) {
            return count;
        }
        node = tree->nodes[node].parent;
    }
}

const char *
ml_module_share_text(unsigned share)
{
    static const char *const texts[] = {ML_MODULE_SHARES(ML_LISTED_TEXT)};
    return share < ML_MODULE_SHARE_COUNT ? texts[share] : "";
}
