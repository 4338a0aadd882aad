/* Trees of plain data: nodes in chunks of memory under one limit, and the check that
 * makes a tree safe to walk. */
#include "file/snapshot/value.h"

#include <string.h>

#include "base/base.h"

#define CHUNK_BYTES ((size_t)64 * 1024)
/* Arrays from this size on are grown in place by realloc.  Copies within the chunks
 * would pile up. */
#define LARGE_VALUES 512u

struct ml_tree_chunk {
    struct ml_tree_chunk *next;
    size_t used; /* bytes */
    size_t size; /* bytes */
    uint64_t words[];
};

/* Remembers an array whose items are an allocation of their own. */
struct ml_tree_large {
    struct ml_tree_large *next;
    ml_array *array; /* borrowed from the chunks */
};

void
ml_tree_init(ml_tree *tree, size_t byte_limit)
{
    *tree = (ml_tree){.root = ML_VALUE_OF_NONE, .byte_limit = byte_limit};
}

void
ml_tree_fini(ml_tree *tree)
{
    /* The list of large arrays lies in the chunks, so it goes first. */
    for (struct ml_tree_large *at = tree->large; at != NULL; at = at->next) {
        ml_free(at->array->items);
    }
    struct ml_tree_chunk *chunk = tree->chunks;
    while (chunk != NULL) {
        struct ml_tree_chunk *next = chunk->next;
        ml_free(chunk);
        chunk = next;
    }
    *tree = (ml_tree){.root = ML_VALUE_OF_NONE};
}

int
ml_tree_charge(ml_tree *tree, size_t bytes)
{
    if (bytes > tree->byte_limit - tree->bytes) {
        return ML_ELIMIT;
    }
    tree->bytes += bytes;
    return 0;
}

static int
take_room(ml_tree *tree, size_t bytes, void **out)
{
    bytes = (bytes + 7) & ~(size_t)7;
    struct ml_tree_chunk *chunk = tree->chunks;
    if (chunk == NULL || chunk->size - chunk->used < bytes) {
        size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        int error = ml_tree_charge(tree, size);
        if (error != 0) {
            return error;
        }
        chunk = ml_alloc(sizeof(*chunk) + size);
        if (chunk == NULL) {
            return ML_ENOMEM;
        }
        chunk->next = tree->chunks;
        chunk->used = 0;
        chunk->size = size;
        tree->chunks = chunk;
    }
    *out = (char *)chunk->words + chunk->used;
    chunk->used += bytes;
    return 0;
}

static int
next_id(ml_tree *tree, uint32_t *id)
{
    if (tree->node_count >= UINT32_MAX) {
        return ML_ELIMIT;
    }
    *id = (uint32_t)tree->node_count++;
    return 0;
}

static int
take_scalar(ml_tree *tree, ml_scalar scalar, ml_value *out)
{
    void *node;
    int error = take_room(tree, sizeof(scalar), &node);
    if (error == 0) {
        memcpy(node, &scalar, sizeof(scalar));
        out->bits = (uint64_t)(uintptr_t)node;
    }
    return error;
}

int
ml_value_int(ml_tree *tree, int64_t integer, ml_value *out)
{
    const int64_t bound = (int64_t)1 << 60;
    if (integer >= -bound && integer < bound) {
        out->bits = (uint64_t)integer << 3 | 1;
        return 0;
    }
    ml_scalar scalar = {.node.kind = ML_VALUE_INT, .as.integer = integer};
    return take_scalar(tree, scalar, out);
}

int
ml_value_unsigned(ml_tree *tree, uint64_t natural, ml_value *out)
{
    ml_scalar scalar = {.node.kind = ML_VALUE_UNSIGNED, .as.natural = natural};
    return take_scalar(tree, scalar, out);
}

int
ml_value_real(ml_tree *tree, double real, ml_value *out)
{
    ml_scalar scalar = {.node.kind = ML_VALUE_REAL, .as.real = real};
    return take_scalar(tree, scalar, out);
}

int
ml_value_text(ml_tree *tree, enum ml_value_kind kind, const char *bytes, size_t length,
              ml_value *out)
{
    void *node;
    ml_text text = {.node.kind = kind, .bytes = bytes, .length = length};
    int error = take_room(tree, sizeof(text), &node);
    if (error != 0 || (error = next_id(tree, &text.node.id)) != 0) {
        return error;
    }
    memcpy(node, &text, sizeof(text));
    out->bits = (uint64_t)(uintptr_t)node;
    return 0;
}

static int
grow_array(ml_tree *tree, ml_array *array, size_t capacity)
{
    if (capacity > UINT32_MAX) {
        return ML_ELIMIT;
    }
    size_t old_bytes = array->capacity * sizeof(ml_value);
    size_t new_bytes = capacity * sizeof(ml_value);
    void *items;
    if (array->capacity >= LARGE_VALUES) {
        int error = ml_tree_charge(tree, new_bytes - old_bytes);
        if (error != 0) {
            return error;
        }
        items = ml_realloc(array->items, new_bytes);
        if (items == NULL) {
            return ML_ENOMEM;
        }
    }
    else if (capacity >= LARGE_VALUES) {
        void *large;
        int error = take_room(tree, sizeof(struct ml_tree_large), &large);
        if (error != 0 || (error = ml_tree_charge(tree, new_bytes)) != 0) {
            return error;
        }
        items = ml_alloc(new_bytes);
        if (items == NULL) {
            return ML_ENOMEM;
        }
        *(struct ml_tree_large *)large =
            (struct ml_tree_large){.next = tree->large, .array = array};
        tree->large = large;
    }
    else {
        int error = take_room(tree, new_bytes, &items);
        if (error != 0) {
            return error;
        }
    }
    if (array->capacity < LARGE_VALUES && array->count != 0) {
        memcpy(items, array->items, array->count * sizeof(ml_value));
    }
    array->items = items;
    array->capacity = (uint32_t)capacity;
    return 0;
}

int
ml_value_array(ml_tree *tree, enum ml_value_kind kind, size_t count, ml_value *out)
{
    void *node;
    int error = take_room(tree, sizeof(ml_array), &node);
    if (error != 0) {
        return error;
    }
    ml_array *array = node;
    *array = (ml_array){.node.kind = kind};
    if ((error = next_id(tree, &array->node.id)) != 0 ||
        (count != 0 && (error = grow_array(tree, array, count)) != 0)) {
        return error;
    }
    out->bits = (uint64_t)(uintptr_t)array;
    return 0;
}

int
ml_array_add(ml_tree *tree, ml_array *array, const ml_value *items, size_t count)
{
    if (count == 0) {
        return 0;
    }
    if (count > UINT32_MAX - array->count) {
        return ML_ELIMIT;
    }
    size_t needed = array->count + count;
    if (needed > array->capacity) {
        size_t wanted = (size_t)array->capacity + array->capacity / 2;
        int error = grow_array(tree, array, wanted > needed ? wanted : needed);
        if (error != 0) {
            return error;
        }
    }
    memcpy(array->items + array->count, items, count * sizeof(*items));
    array->count = (uint32_t)needed;
    return 0;
}

/* The depth of the tree below each node: 0: not visited; OPEN: on the current path. */
enum {
    OPEN = 255
};

int
ml_tree_check(const ml_tree *tree, ml_read_error *error)
{
    if (!ml_kind_is_array(ml_value_kind(tree->root))) {
        return 0;
    }
    uint8_t *heights = ml_alloc_zeroed(tree->node_count, 1);
    if (heights == NULL) {
        return ml_read_fail(error, ML_ENOMEM, 0, "%s", ml_strerror(ML_ENOMEM));
    }
    struct {
        const ml_array *array;
        uint32_t next;
        uint8_t height;
    } path[ML_DEPTH_MAX + 1];
    size_t depth = 0;
    int result = 0;
    path[0].array = ml_value_as_array(tree->root);
    path[0].next = 0;
    path[0].height = 1;
    heights[path[0].array->node.id] = OPEN;
    for (;;) {
        const ml_array *array = path[depth].array;
        if (path[depth].next == array->count) {
            uint8_t height = path[depth].height;
            heights[array->node.id] = height;
            if (depth == 0) {
                break;
            }
            depth--;
            if (path[depth].height < height + 1) {
                path[depth].height = (uint8_t)(height + 1);
            }
            continue;
        }
        ml_value item = array->items[path[depth].next++];
        if (!ml_kind_is_array(ml_value_kind(item))) {
            continue;
        }
        const ml_array *child = ml_value_as_array(item);
        uint8_t height = heights[child->node.id];
        if (height == OPEN) {
            result = ml_read_fail(error, ML_EFORMAT, 0, "%s contains itself",
                                  ml_kind_text((enum ml_value_kind)child->node.kind));
            break;
        }
        if (depth + 1 + (height != 0 ? height : 1) > ML_DEPTH_MAX) {
            result = ml_read_fail(error, ML_ELIMIT, 0,
                                  "the data nest deeper than %d levels", ML_DEPTH_MAX);
            break;
        }
        if (height != 0) {
            if (path[depth].height < height + 1) {
                path[depth].height = (uint8_t)(height + 1);
            }
            continue;
        }
        depth++;
        path[depth].array = child;
        path[depth].next = 0;
        path[depth].height = 1;
        heights[child->node.id] = OPEN;
    }
    ml_free(heights);
    return result;
}

const char *
ml_kind_text(enum ml_value_kind kind)
{
    static const char *const texts[] = {
        [ML_VALUE_NONE] = "None",        [ML_VALUE_BOOL] = "a bool",
        [ML_VALUE_INT] = "an integer",   [ML_VALUE_UNSIGNED] = "an integer",
        [ML_VALUE_REAL] = "a float",     [ML_VALUE_STRING] = "a string",
        [ML_VALUE_HUGE] = "an integer",  [ML_VALUE_BYTES] = "bytes",
        [ML_VALUE_LIST] = "a list",      [ML_VALUE_TUPLE] = "a tuple",
        [ML_VALUE_DICT] = "a dictionary"};
    return texts[kind];
}
