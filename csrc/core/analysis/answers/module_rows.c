/* The rows of a module tree.  See module_rows.h.
 *
 * The largest nodes are shown, as many as there are rows for: of a node without a larger one
 * in it a row is all, of another what these leave.  A parent comes before its children, so
 * that one more node is at most one row more. */
#include "analysis/answers/module_rows.h"

#include <stdlib.h>

typedef struct shown {
    const ml_module_node *node;
    uint32_t id;
    uint32_t parent;  /* shown */
    uint32_t inside;  /* items: children that are shown */
    ml_peak_sum left; /* by them */
    bool passed;      /* LEFT has what shown children left */
} shown;

static int
compare_shown(const void *a, const void *b)
{
    const shown *x = a;
    const shown *y = b;
    if (x->node->all.bytes != y->node->all.bytes) {
        return x->node->all.bytes > y->node->all.bytes ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool
has_row(const shown *at, size_t index, uint64_t least)
{
    return at->left.bytes != 0 &&
           (index == 0 || at->inside == 0 || at->left.bytes >= least);
}

/* Of the first COUNT of LIST those that have rows, into ROWS, which may be NULL; how many they
 * are.  What is LEFT of less than LEAST bytes goes to the parent. */
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

/* The nodes of TREE of LEAST bytes or more, and the root, as they are shown.  0 or
 * ML_ENOMEM. */
static int
order_nodes(const ml_module_tree *tree, uint64_t least, shown **list, size_t *count)
{
    shown *made = ml_alloc_zeroed(tree->count, sizeof(shown));
    uint32_t *places = ml_alloc_zeroed(tree->count, sizeof(uint32_t));
    if (made == NULL || places == NULL) {
        ml_free(made);
        ml_free(places);
        return ML_ENOMEM;
    }
    *count = 0;
    for (uint32_t i = 0; i < tree->count; i++) {
        uint64_t bytes = tree->nodes[i].all.bytes;
        if (i == 0 || (bytes != 0 && bytes >= least)) {
            made[(*count)++] = (shown){.node = &tree->nodes[i], .id = i};
        }
    }
    qsort(made, *count, sizeof(shown), compare_shown);
    for (uint32_t i = 0; i < *count; i++) {
        places[made[i].id] = i;
        made[i].parent = places[made[i].node->parent];
    }
    ml_free(places);
    *list = made;
    return 0;
}

int
ml_module_rows(const ml_module_tree *tree, ml_module_row *rows, size_t most,
               size_t *count)
{
    uint64_t least = tree->nodes[0].all.bytes / 100;
    shown *list;
    size_t nodes;
    int error = order_nodes(tree, least, &list, &nodes);
    if (error < 0) {
        return error;
    }
    size_t at = 0;
    ML_SEARCH(at, nodes, count_rows(list, at + 1, least, NULL) <= most);
    *count = at == 0 ? 0 : count_rows(list, at, least, rows);
    for (size_t i = 0; i < *count; i++) {
        /* Numbers in which all of a module lies say no more than it. */
        const ml_module_node *node = &tree->nodes[rows[i].node];
        if (node->each && node->parent != 0 &&
            tree->nodes[node->parent].all.bytes == node->all.bytes) {
            rows[i].node = node->parent;
        }
    }
    ml_free(list);
    if (*count != 0) {
        qsort(rows, *count, sizeof(ml_module_row), compare_rows);
    }
    return 0;
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

_Static_assert(ML_IS_NUMBERED(ML_MODULE_SHARES, ML_MODULE_SHARE_COUNT),
               "a number is missing or twice");

const char *
ml_module_share_text(unsigned share)
{
    static const char *const texts[] = {
#define XX(name, number, text) [number] = text,
        ML_MODULE_SHARES(XX)
#undef XX
    };
    return share < ML_MODULE_SHARE_COUNT ? texts[share] : "";
}
