/* The ordered sets of the allocator model: for each stream, keys by ranges of sizes, in each
 * range in leaves of neighbours, and a list of the leaves.
 *
 * Most ranges have few keys, and bits say which have any, so a search has few steps, of
 * which most have no branch.  Keys are copied into the leaves, so it reads few lines of the
 * cache. */
#include <string.h>

#include "lab/simulator/allocator_parts.h"

__extension__ typedef unsigned __int128 wide;

static inline ml_set_key
key_of(const ml_allocator *a, uint32_t index)
{
    const ml_node *node = &a->nodes[index];
    bool counted = node->mapped && a->settings.order != ML_ORDER_ADDRESS;
    return (ml_set_key){.size = node->mapped ? node->size : 0,
                        .first = counted ? node->counter : node->addr,
                        .addr = node->addr,
                        .node = index};
}

/* ---- Places ---- */

static inline wide
wide_of(const ml_set_key *key)
{
    return (wide)key->size << 64 | key->first;
}

/* 1 if the key at KEY, of a set or a branch, is below WANTED by size and first, else 0. */
static inline size_t
is_below(const char *key, wide wanted)
{
    return (size_t)(wide_of((const ml_set_key *)key) < wanted);
}

/* The first of COUNT KEYS, STRIDE bytes apart, that is not below WANTED by size and first.
 * A step compares three keys at once, and so waits for memory half as often as if it halved
 * the rest. */
static inline size_t
find_first(const void *keys, size_t stride, size_t count, wide wanted)
{
    const char *low = keys;
    size_t found = 0;
    while (count > 3) {
        size_t part = count / 4;
        const char *last = low + (part - 1) * stride;
        size_t below = is_below(last, wanted) + is_below(last + part * stride, wanted) +
                       is_below(last + 2 * part * stride, wanted);
        found += below * part;
        low += below * part * stride;
        count -= 3 * part;
    }
    size_t below = 0;
    for (size_t i = 0; i < count; i++) {
        below += is_below(low + i * stride, wanted);
    }
    return found + below;
}

/* Whether A, of the same size and first as B, comes before B or is B. */
static bool
is_up_to(const ml_set_key *a, const ml_set_key *b)
{
    return a->addr != b->addr ? a->addr < b->addr : a->node <= b->node;
}

static inline size_t
find_stream(const ml_set *set, uint64_t stream)
{
    /* Most sets have one. */
    if (set->count == 1) {
        return (size_t)(set->streams[0].stream < stream);
    }
    size_t found;
    ML_SEARCH(found, set->count, set->streams[found].stream < stream);
    return found;
}

/* Grows with SIZE. */
static inline uint32_t
class_of(uint64_t size)
{
    uint64_t units = size / ML_MINIMUM_BLOCK;
    if (units < 8) {
        return (uint32_t)units;
    }
    unsigned log = 63u - (unsigned)__builtin_clzll(units);
    uint32_t class = (log - 2) * 8 + (uint32_t)(units >> (log - 3) & 7);
    return class < ML_SET_CLASSES ? class : ML_SET_CLASSES - 1;
}

static inline void
set_used(ml_set_stream *of, uint32_t class, bool used)
{
    uint64_t bit = UINT64_C(1) << (class % 64);
    uint64_t *word = &of->used[class / 64];
    *word = used ? *word | bit : *word & ~bit;
}

/* The first class with nodes from CLASS on; ML_SET_CLASSES: none. */
static inline uint32_t
class_from(const ml_set_stream *of, uint32_t class)
{
    for (uint32_t from = class; from < ML_SET_CLASSES; from = (from | 63) + 1) {
        uint64_t bits = of->used[from / 64] >> (from % 64);
        if (bits != 0) {
            return from + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return ML_SET_CLASSES;
}

/* The last class with nodes before CLASS; ML_SET_CLASSES: none. */
static uint32_t
class_before(const ml_set_stream *of, uint32_t class)
{
    while (class -- > 0) {
        if ((of->used[class / 64] >> (class % 64) & 1) != 0) {
            return class;
        }
    }
    return ML_SET_CLASSES;
}

/* The leaf of KEY among those OF a class, which has one. */
static inline size_t
find_branch(const ml_set_class *of, const ml_set_key *key)
{
    if (of->count == 1) {
        return 0;
    }
    wide wanted = wide_of(key);
    /* The first leaf takes what is before all others. */
    const ml_set_branch *later = of->branches + 1;
    size_t branch = find_first(later, sizeof(*later), of->count - 1, wanted);
    while (branch + 1 < of->count && wide_of(&later[branch].from) == wanted &&
           is_up_to(&later[branch].from, key)) {
        branch++;
    }
    return branch;
}

#define FEW_KEYS 4

/* The first of the keys of LEAF that is not before KEY, or, if AFTER, that is after KEY. */
static inline size_t
find_key(const ml_set_leaf *leaf, const ml_set_key *key, bool after)
{
    const ml_set_key *keys = leaf->keys;
    wide wanted = wide_of(key);
    size_t in = 0;
    if (leaf->count > FEW_KEYS) {
        /* Of all places, which is always as many steps. */
        in = find_first(keys, sizeof(*keys), ML_SET_LEAF_KEYS, wanted);
    }
    else {
        while (in < leaf->count && wide_of(&keys[in]) < wanted) {
            in++;
        }
    }
    while (in < leaf->count && wide_of(&keys[in]) == wanted &&
           is_up_to(&keys[in], key) && (after || keys[in].node != key->node)) {
        in++;
    }
    return in;
}

/* The place of the first key of the stream AT that is not before KEY, or, if AFTER, that is
 * after KEY. */
static inline ml_set_place
find_place(const ml_set *set, size_t at, const ml_set_key *key, bool after)
{
    uint32_t class = class_of(key->size);
    const ml_set_class *of = &set->streams[at].classes[class];
    if (of->count == 0) {
        return (ml_set_place){(uint32_t)at, class, 0, 0};
    }
    size_t branch = find_branch(of, key);
    size_t in = find_key(of->branches[branch].leaf, key, after);
    return (ml_set_place){(uint32_t)at, class, (uint32_t)branch, (uint32_t)in};
}

/* The node at PLACE, or the one after it, whose place PLACE becomes; 0: none. */
static inline uint32_t
node_from(const ml_set *set, ml_set_place *from)
{
    while (from->stream < set->count) {
        const ml_set_stream *stream = &set->streams[from->stream];
        const ml_set_class *of = &stream->classes[from->class];
        if (from->branch < of->count) {
            const ml_set_leaf *leaf = of->branches[from->branch].leaf;
            if (from->at < leaf->count) {
                return leaf->keys[from->at].node;
            }
        }
        if (from->branch + 1 < of->count) {
            from->branch++;
            from->at = 0;
            continue;
        }
        uint32_t class = class_from(stream, from->class + 1);
        bool last = class == ML_SET_CLASSES;
        *from = (ml_set_place){from->stream + last, last ? 0 : class, 0, 0};
    }
    return 0;
}

/* The last node of CLASS; 0: none. */
static uint32_t
last_node(const ml_set_class *class, size_t branches)
{
    const ml_set_leaf *leaf = branches != 0 ? class->branches[branches - 1].leaf : NULL;
    return leaf != NULL && leaf->count != 0 ? leaf->keys[leaf->count - 1].node : 0;
}

/* The node before PLACE; 0: none. */
static uint32_t
node_before(const ml_set *set, ml_set_place from)
{
    uint32_t class = from.class;
    if (from.stream < set->count) {
        const ml_set_class *of = &set->streams[from.stream].classes[class];
        uint32_t found = from.at != 0
                             ? of->branches[from.branch].leaf->keys[from.at - 1].node
                             : last_node(of, from.branch);
        if (found != 0) {
            return found;
        }
    }
    for (size_t i = from.stream + (size_t)(from.stream < set->count); i > 0; i--) {
        const ml_set_stream *stream = &set->streams[i - 1];
        class = class_before(stream, i - 1 == from.stream ? class : ML_SET_CLASSES);
        if (class != ML_SET_CLASSES) {
            const ml_set_class *of = &stream->classes[class];
            return last_node(of, of->count);
        }
    }
    return 0;
}

/* ---- Changes ---- */

/* Empties the places of LEAF from FROM on up to END. */
static void
clear(ml_set_leaf *leaf, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        leaf->keys[i] = (ml_set_key){.size = UINT64_MAX, .first = UINT64_MAX};
    }
}

/* Adds an empty leaf at BRANCH for keys from FROM on; NULL: no memory. */
static ml_set_leaf *
add_leaf(ml_set_class *of, size_t branch, const ml_set_key *from)
{
    ml_set_leaf *leaf = ml_alloc(sizeof(*leaf));
    if (leaf == NULL || ml_grow((void **)&of->branches, &of->capacity, of->count + 1,
                                sizeof(*of->branches)) < 0) {
        ml_free(leaf);
        return NULL;
    }
    ml_set_branch *at = &of->branches[branch];
    memmove(at + 1, at, (of->count - branch) * sizeof(*at));
    *at = (ml_set_branch){*from, leaf};
    of->count++;
    leaf->count = 0;
    clear(leaf, 0, ML_SET_LEAF_KEYS);
    return leaf;
}

static void
drop_leaf(ml_set_class *of, size_t branch)
{
    ml_set_branch *at = &of->branches[branch];
    ml_free(at->leaf);
    of->count--;
    memmove(at, at + 1, (of->count - branch) * sizeof(*at));
}

/* Adds STREAM, which the set lacks, AT its place.  0 or ML_ENOMEM. */
static int
add_stream(ml_set *set, size_t at, uint64_t stream)
{
    ml_set_stream added = {.stream = stream,
                           .classes =
                               ml_alloc_zeroed(ML_SET_CLASSES, sizeof(ml_set_class))};
    if (added.classes == NULL || ml_grow((void **)&set->streams, &set->capacity,
                                         set->count + 1, sizeof(*set->streams)) < 0) {
        ml_free(added.classes);
        return ML_ENOMEM;
    }
    ml_set_stream *to = &set->streams[at];
    memmove(to + 1, to, (set->count - at) * sizeof(*to));
    *to = added;
    set->count++;
    return 0;
}

/* Adds the COUNT keys of FROM to LEAF, after its own. */
static void
append_keys(ml_allocator *a, ml_set_leaf *leaf, const ml_set_key *from, size_t count)
{
    memcpy(leaf->keys + leaf->count, from, count * sizeof(*from));
    leaf->count += count;
    for (size_t i = 0; i < count; i++) {
        a->nodes[from[i].node].leaf = leaf;
    }
}

/* Moves the upper half of a full leaf to a new one after it.  0 or ML_ENOMEM. */
static int
split_leaf(ml_allocator *a, ml_set_class *of, size_t branch)
{
    size_t half = ML_SET_LEAF_KEYS / 2;
    ml_set_leaf *low = of->branches[branch].leaf;
    ml_set_leaf *high = add_leaf(of, branch + 1, &low->keys[half]);
    if (high == NULL) {
        return ML_ENOMEM;
    }
    append_keys(a, high, &low->keys[half], ML_SET_LEAF_KEYS - half);
    low->count = half;
    clear(low, half, ML_SET_LEAF_KEYS);
    return 0;
}

/* A leaf of the class OF with room for KEY, which is in none; NULL: no memory. */
static inline ml_set_leaf *
open_leaf(ml_allocator *a, ml_set_class *of, const ml_set_key *key)
{
    if (of->count == 0) {
        return add_leaf(of, 0, key);
    }
    size_t branch = find_branch(of, key);
    if (of->branches[branch].leaf->count == ML_SET_LEAF_KEYS) {
        if (split_leaf(a, of, branch) < 0) {
            return NULL;
        }
        branch = find_branch(of, key);
    }
    return of->branches[branch].leaf;
}

/* That of STREAM, added where the set lacks it; NULL: no memory. */
static inline ml_set_stream *
open_stream(ml_set *set, uint64_t stream)
{
    size_t at = find_stream(set, stream);
    bool has = at < set->count && set->streams[at].stream == stream;
    return has || add_stream(set, at, stream) == 0 ? &set->streams[at] : NULL;
}

void
ml_set_insert(ml_allocator *a, ml_set *set, uint32_t index)
{
    ml_set_key key = key_of(a, index);
    uint32_t class = class_of(key.size);
    ml_set_stream *of = open_stream(set, a->nodes[index].stream);
    ml_set_leaf *leaf = of != NULL ? open_leaf(a, &of->classes[class], &key) : NULL;
    a->nodes[index].leaf = leaf;
    if (leaf == NULL) {
        a->error = ML_ENOMEM;
        return;
    }
    size_t in = find_key(leaf, &key, false);
    ml_set_key *at = &leaf->keys[in];
    memmove(at + 1, at, (leaf->count - in) * sizeof(*at));
    *at = key;
    leaf->count++;
    set_used(of, class, true);
}

/* Takes key AT out of LEAF.  Returns whether none is left. */
static inline bool
take_key(ml_set_leaf *leaf, size_t at)
{
    ml_set_key *key = &leaf->keys[at];
    leaf->count--;
    memmove(key, key + 1, (leaf->count - at) * sizeof(*key));
    clear(leaf, leaf->count, leaf->count + 1);
    return leaf->count == 0;
}

/* The last leaf of a class stays, for the next key. */
static void
leave_empty(ml_set_stream *of, uint32_t class, size_t branch)
{
    if (of->classes[class].count > 1) {
        drop_leaf(&of->classes[class], branch);
    }
    else {
        set_used(of, class, false);
    }
}

void
ml_set_take(ml_set *set, ml_set_place from)
{
    ml_set_stream *of = &set->streams[from.stream];
    if (take_key(of->classes[from.class].branches[from.branch].leaf, from.at)) {
        leave_empty(of, from.class, from.branch);
    }
}

/* A node knows its leaf: no search, unless that is empty then. */
void
ml_set_remove(ml_allocator *a, ml_set *set, uint32_t index)
{
    ml_set_leaf *leaf = a->nodes[index].leaf;
    size_t at = 0;
    while (leaf != NULL && at < leaf->count && leaf->keys[at].node != index) {
        at++;
    }
    if (leaf == NULL || at == leaf->count) {
        ML_ASSERT(a->error != 0);
        return;
    }
    ml_set_key key = leaf->keys[at];
    if (take_key(leaf, at)) {
        ml_set_stream *of = &set->streams[find_stream(set, a->nodes[index].stream)];
        uint32_t class = class_of(key.size);
        size_t branch = find_branch(&of->classes[class], &key);
        ML_ASSERT(of->classes[class].branches[branch].leaf == leaf);
        leave_empty(of, class, branch);
    }
}

void
ml_set_fini(ml_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        for (size_t k = 0; k < ML_SET_CLASSES; k++) {
            ml_set_class *of = &set->streams[i].classes[k];
            while (of->count > 0) {
                drop_leaf(of, of->count - 1);
            }
            ml_free(of->branches);
        }
        ml_free(set->streams[i].classes);
    }
    ml_free(set->streams);
}

/* ---- Questions ---- */

bool
ml_set_is_empty(const ml_set *set)
{
    ml_set_place first = {0};
    return node_from(set, &first) == 0;
}

uint32_t
ml_set_find(const ml_set *set, uint64_t stream, uint64_t size, ml_set_place *place)
{
    size_t at = find_stream(set, stream);
    ml_set_key key = {.size = size};
    bool has = at < set->count && set->streams[at].stream == stream;
    *place =
        has ? find_place(set, at, &key, false) : (ml_set_place){.stream = (uint32_t)at};
    return node_from(set, place);
}

uint32_t
ml_set_step(const ml_set *set, ml_set_place *place)
{
    place->at++;
    return node_from(set, place);
}

uint32_t
ml_set_find_range(const ml_set *set, uint64_t stream, uint64_t addr)
{
    size_t at = find_stream(set, stream);
    if (at == set->count || set->streams[at].stream != stream) {
        return 0;
    }
    ml_set_key key = {.first = addr, .addr = addr, .node = UINT32_MAX};
    ml_set_place from = find_place(set, at, &key, true);
    return from.branch != 0 || from.at != 0 ? node_before(set, from) : 0;
}

uint32_t
ml_set_next(const ml_allocator *a, const ml_set *set, uint32_t index)
{
    ml_set_place from = {0};
    if (index != 0 && set->count != 0) {
        ml_set_key key = key_of(a, index);
        from = find_place(set, find_stream(set, a->nodes[index].stream), &key, true);
    }
    return node_from(set, &from);
}

uint32_t
ml_set_previous(const ml_allocator *a, const ml_set *set, uint32_t index)
{
    ml_set_place from = {.stream = (uint32_t)set->count};
    if (index != 0 && set->count != 0) {
        ml_set_key key = key_of(a, index);
        from = find_place(set, find_stream(set, a->nodes[index].stream), &key, false);
    }
    return node_before(set, from);
}
