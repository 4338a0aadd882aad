/* The rows of a module tree.  See module_rows.h. */
#include "analysis/answers/module_rows.h"

#include <stdlib.h>

/* Of NODE's children those that have a row of their own are the first, if there is room. */
static size_t
large_children(const ml_module_tree *tree, uint32_t node)
{
    const ml_module_node *of = &tree->nodes[node];
    size_t count = 0;
    while (count < of->children && tree->nodes[of->first + count].all.bytes != 0 &&
           tree->nodes[of->first + count].all.bytes >= tree->nodes[0].all.bytes / 100) {
        count++;
    }
    return count;
}

/* Puts the first SHOWN children of the node of ROW behind the COUNT ROWS; what is left
 * becomes ROW's, which goes where nothing is.  How many rows there are then. */
static size_t
unfold(const ml_module_tree *tree, ml_module_row *rows, size_t count, size_t row,
       size_t shown)
{
    const ml_module_node *of = &tree->nodes[rows[row].node];
    ml_module_row left = rows[row];
    for (size_t i = 0; i < shown; i++) {
        ml_peak_sum sum = tree->nodes[of->first + i].all;
        left.sum.bytes -= sum.bytes;
        left.sum.blocks -= sum.blocks;
    }
    left.share = shown == of->children ? ML_MODULE_OWN : ML_MODULE_REST;
    size_t from = 0;
    if (left.sum.bytes == 0) {
        uint32_t child = of->first + (uint32_t)from++;
        left = (ml_module_row){.node = child, .sum = tree->nodes[child].all};
    }
    rows[row] = left;
    for (; from < shown; from++) {
        uint32_t child = of->first + (uint32_t)from;
        rows[count++] = (ml_module_row){.node = child, .sum = tree->nodes[child].all};
    }
    return count;
}

/* How many children of ROW's node can have rows beside COUNT rows, of MOST; 0: it stays. */
static size_t
room_for(const ml_module_tree *tree, const ml_module_row *row, size_t count,
         size_t most)
{
    size_t large = row->share == ML_MODULE_ALL ? large_children(tree, row->node) : 0;
    ml_peak_sum left = row->sum;
    for (size_t i = 0; i < large; i++) {
        left.bytes -= tree->nodes[tree->nodes[row->node].first + i].all.bytes;
    }
    if (count + large - (left.bytes == 0) <= most) {
        return large;
    }
    /* One child and the rest say little. */
    size_t room = most - count;
    return room >= 2 || (row->node == 0 && room != 0) ? room : 0;
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

size_t
ml_module_rows(const ml_module_tree *tree, ml_module_row *rows, size_t most)
{
    if (tree->nodes[0].all.bytes == 0 || most == 0) {
        return 0;
    }
    size_t count = 1;
    rows[0] = (ml_module_row){.sum = tree->nodes[0].all};
    for (;;) {
        size_t best = most;
        size_t shown = 0;
        for (size_t i = 0; i < count; i++) {
            size_t can = room_for(tree, &rows[i], count, most);
            if (can != 0 &&
                (best == most || rows[i].sum.bytes > rows[best].sum.bytes)) {
                best = i;
                shown = can;
            }
        }
        if (best == most) {
            break;
        }
        count = unfold(tree, rows, count, best, shown);
    }
    for (size_t i = 0; i < count; i++) {
        /* Numbers that all of a module lies in, and that have no rows, say nothing more. */
        const ml_module_node *node = &tree->nodes[rows[i].node];
        bool all = node->parent != 0 &&
                   tree->nodes[node->parent].all.bytes == rows[i].sum.bytes;
        if (node->each && rows[i].share == ML_MODULE_ALL && all) {
            rows[i].node = node->parent;
        }
    }
    qsort(rows, count, sizeof(ml_module_row), compare_rows);
    return count;
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
