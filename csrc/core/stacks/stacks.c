/* Keeps call stacks as small numbers.  See stacks.h.
 *
 * Four insert-only hash tables of one shape (nodes, codes, strings, objects) have an
 * array of records, and an array of slots with record ids, at least twice as many, so
 * that a probe always ends.  A record is written first and then published by a compare
 * and swap of its slot, so a reader of an id sees the record.  Two threads that add the
 * same thing both write a record; one stays unused.  Nothing is ever changed or
 * removed, so no lock is needed.
 *
 * A node's parent is published before the node takes its own number.  Hence parent <
 * child everywhere. */

#include "stacks/stacks.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "base/system/region.h"
#include "stacks/stack_cache.h"
#include "stacks/stacks_records.h"

/* Odd constants with well-spread bits; they make one multiplication a hash. */
#define MIX_CODE 0x9e3779b97f4a7c15u
#define MIX_FINGERPRINT 0xc2b2ae3d27d4eb4fu
#define MIX_PARENT 0xd6e8feb86659fd93u

/* A smaller table is useless; its absence must be reported. */
#define LEAST_NODES 1024u

static const ml_stacks_limits default_limits = {
    .nodes = (size_t)1 << 20,
    .codes = (size_t)1 << 18,
    .strings = (size_t)1 << 19,
    .objects = (size_t)1 << 18,
    .text_bytes = (size_t)1 << 27,
};

/* ---- tables ---- */

static void
table_fini(ml_stack_table *table)
{
    ml_region_fini(&table->records);
    ml_region_fini(&table->slots);
}

static int
table_init(ml_stack_table *table, size_t limit, size_t record_bytes)
{
    size_t slots = 16;
    unsigned shift = 64 - 4;

    /* Record 0 is the empty stack, code or string. */
    limit++;
    while (slots < limit * 2) {
        slots *= 2;
        shift--;
    }
    size_t bytes = limit * record_bytes;
    int error = ml_region_init(&table->records, bytes, bytes);
    if (error == 0) {
        bytes = slots * sizeof(ml_stack_slot);
        error = ml_region_init(&table->slots, bytes, bytes);
    }
    table->limit = (uint32_t)limit;
    table->mask = (uint32_t)(slots - 1);
    table->shift = shift;
    atomic_init(&table->count, 1);
    return error;
}

/* ---- strings ---- */

/* Takes LENGTH bytes of text; SIZE_MAX: no room. */
static size_t
text_take(ml_stacks *stacks, size_t length)
{
    size_t used = atomic_load_explicit(&stacks->text_used, memory_order_relaxed);

    do {
        if (length > stacks->text.bytes - used) {
            return SIZE_MAX;
        }
    } while (!atomic_compare_exchange_weak_explicit(&stacks->text_used, &used,
                                                    used + length, memory_order_relaxed,
                                                    memory_order_relaxed));
    return used;
}

static uint32_t
string_intern(ml_stacks *stacks, const char *bytes, size_t length)
{
    ml_stack_table *table = &stacks->strings;

    if (length == 0) {
        return 0;
    }
    uint64_t hash = ml_hash_bytes(bytes, length);
    uint32_t mine = 0;
    uint32_t at = (uint32_t)(ml_hash_u64(hash) >> table->shift);
    for (;;) {
        ml_stack_slot *slot = table_slot(table, at);
        uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
        if (id == 0) {
            if (mine == 0) {
                size_t start = text_take(stacks, length);
                if (start == SIZE_MAX || (mine = table_take(table)) == 0) {
                    return ML_STACK_LOST;
                }
                memcpy((char *)stacks->text.base + start, bytes, length);
                *string_at(stacks, mine) = (ml_stack_string){
                    .hash = hash, .start = (uint32_t)start, .length = (uint32_t)length};
            }
            if (slot_publish(slot, mine, &id)) {
                return mine;
            }
        }
        const ml_stack_string *string = string_at(stacks, id);
        if (string->hash == hash && string->length == length &&
            memcmp((char *)stacks->text.base + string->start, bytes, length) == 0) {
            return id;
        }
        at = (at + 1) & table->mask;
    }
}

uint32_t
ml_stacks_string(ml_stacks *stacks, const char *bytes, size_t length)
{
    uint32_t id = string_intern(stacks, bytes, length);
    return id != ML_STACK_LOST ? id : lose_name(stacks);
}

/* ---- codes ---- */

/* The id of a code object; 0: unknown, and TEXT is NULL. */
static uint32_t
code_intern(ml_stacks *stacks, const ml_frame_key *key, const ml_code_text *text)
{
    ml_stack_table *table = &stacks->codes;
    uint64_t hash = key->code * MIX_CODE + key->fingerprint * MIX_FINGERPRINT;
    uint32_t mine = 0;
    uint32_t at = (uint32_t)(ml_hash_u64(hash) >> table->shift);

    for (;;) {
        ml_stack_slot *slot = table_slot(table, at);
        uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
        if (id == 0) {
            if (text == NULL) {
                return 0;
            }
            if (mine == 0) {
                uint32_t name =
                    string_intern(stacks, text->name.bytes, text->name.length);
                uint32_t filename =
                    string_intern(stacks, text->filename.bytes, text->filename.length);
                uint32_t linetable = string_intern(stacks, text->linetable.bytes,
                                                   text->linetable.length);
                if (name == ML_STACK_LOST || filename == ML_STACK_LOST ||
                    linetable == ML_STACK_LOST || (mine = table_take(table)) == 0) {
                    return ML_STACK_LOST;
                }
                *code_at(stacks, mine) = (ml_stack_code){
                    .code = key->code,
                    .fingerprint = key->fingerprint,
                    .name = name,
                    .filename = filename,
                    .linetable = linetable,
                    .firstlineno = text->firstlineno,
                    .python_minor = text->python_minor,
                };
            }
            if (slot_publish(slot, mine, &id)) {
                return mine;
            }
        }
        const ml_stack_code *code = code_at(stacks, id);
        if (code->code == key->code && code->fingerprint == key->fingerprint) {
            return id;
        }
        at = (at + 1) & table->mask;
    }
}

/* ---- nodes ---- */

/* The parent enters last and cheaply, because a walk down the trie waits for it. */
static inline uint64_t
key_hash(const ml_frame_key *key)
{
    uint64_t place = (uint64_t)key->object << 32 | key->offset;
    uint64_t hash = key->code * MIX_CODE + (key->fingerprint ^ place) * MIX_FINGERPRINT;
    return (hash ^ (hash >> 29)) * MIX_CODE;
}

static inline bool
node_is(const ml_stack_node *node, const ml_frame_key *key)
{
    return node->code == key->code && node->fingerprint == key->fingerprint &&
           node->offset == key->offset && node->object == key->object;
}

/* Finds the node (0: none); *AT is its slot, or the free one for it. */
static inline uint32_t
node_find(const ml_stacks *stacks, uint32_t parent, const ml_frame_key *key,
          uint32_t *at)
{
    const ml_stack_table *table = &stacks->nodes;

    for (;; *at = (*at + 1) & table->mask) {
        uint32_t id =
            atomic_load_explicit(table_slot(table, *at), memory_order_acquire);
        if (id == 0) {
            return 0;
        }
        const ml_stack_node *node = node_at(stacks, id);
        if (node->parent == parent && node_is(node, key)) {
            return id;
        }
    }
}

static inline uint32_t
node_start(const ml_stacks *stacks, uint32_t parent, uint64_t hash)
{
    return (uint32_t)((hash + parent * MIX_PARENT) >> stacks->nodes.shift);
}

static uint32_t
node_intern(ml_stacks *stacks, uint32_t parent, const ml_frame_key *key,
            uint32_t code_id)
{
    uint32_t mine = 0;
    uint32_t at = node_start(stacks, parent, key_hash(key));

    for (;;) {
        uint32_t id = node_find(stacks, parent, key, &at);
        if (id != 0) {
            return id;
        }
        if (mine == 0) {
            mine = table_take(&stacks->nodes);
            if (mine == 0) {
                return ML_STACK_LOST;
            }
            *node_at(stacks, mine) = (ml_stack_node){
                .code = key->code,
                .fingerprint = key->fingerprint,
                .offset = key->offset,
                .parent = parent,
                .code_id = code_id,
                .object = key->object,
            };
        }
        if (slot_publish(table_slot(&stacks->nodes, at), mine, &id)) {
            return mine;
        }
    }
}

uint32_t
ml_stacks_find(const ml_stacks *stacks, uint32_t parent, const ml_frame_key *key)
{
    uint32_t at = node_start(stacks, parent, key_hash(key));
    return node_find(stacks, parent, key, &at);
}

uint32_t
ml_stacks_add(ml_stacks *stacks, uint32_t parent, const ml_frame_key *key,
              const ml_code_text *text)
{
    uint32_t id = ml_stacks_find(stacks, parent, key);
    if (id != 0) {
        return id;
    }
    uint32_t code_id = code_intern(stacks, key, text);
    if (code_id == 0) {
        return 0;
    }
    if (code_id == ML_STACK_LOST) {
        return ML_STACK_LOST;
    }
    return node_intern(stacks, parent, key, code_id);
}

uint32_t
ml_stacks_native(ml_stacks *stacks, uint32_t parent, uint64_t pc)
{
    ml_frame_key key = {.code = 0, .fingerprint = pc, .offset = 0};
    return node_intern(stacks, parent, &key, 0);
}

ml_slice
ml_stacks_text(const ml_stacks *stacks, uint32_t id)
{
    if (id == 0 || id >= ml_stacks_string_count(stacks)) {
        return (ml_slice){.bytes = "", .length = 0};
    }
    const ml_stack_string *string = string_at(stacks, id);
    return (ml_slice){.bytes = (const char *)stacks->text.base + string->start,
                      .length = string->length};
}

/* ---- life and numbers ---- */

static void
regions_fini(ml_stacks *stacks)
{
    table_fini(&stacks->nodes);
    table_fini(&stacks->codes);
    table_fini(&stacks->strings);
    table_fini(&stacks->objects);
    ml_region_fini(&stacks->text);
    ml_region_fini(&stacks->caches);
}

static int
regions_init(ml_stacks *stacks, const ml_stacks_limits *limits)
{
    int error = table_init(&stacks->nodes, limits->nodes, sizeof(ml_stack_node));

    if (error == 0) {
        error = table_init(&stacks->codes, limits->codes, sizeof(ml_stack_code));
    }
    if (error == 0) {
        error = table_init(&stacks->strings, limits->strings, sizeof(ml_stack_string));
    }
    if (error == 0) {
        error = table_init(&stacks->objects, limits->objects, sizeof(ml_stack_object));
    }
    if (error == 0) {
        error = ml_region_init(&stacks->text, limits->text_bytes, limits->text_bytes);
    }
    if (error != 0) {
        regions_fini(stacks);
    }
    return error;
}

static bool
limits_valid(const ml_stacks_limits *limits)
{
    const size_t most = (size_t)1 << 30;
    return limits->nodes >= 1 && limits->nodes <= most && limits->codes >= 1 &&
           limits->codes <= most && limits->strings >= 1 && limits->strings <= most &&
           limits->objects >= 1 && limits->objects <= most && limits->text_bytes >= 1 &&
           limits->text_bytes <= UINT32_MAX;
}

int
ml_stacks_new(ml_stacks **out, const ml_stacks_limits *limits)
{
    ml_stacks_limits now = limits != NULL ? *limits : default_limits;

    if (!limits_valid(&now)) {
        return ML_EINVALID;
    }
    ml_stacks *stacks = ml_alloc_zeroed(1, sizeof(*stacks));
    if (stacks == NULL) {
        return ML_ENOMEM;
    }
    /* All tables shrink together: a large one is useless if another is full. */
    int error = regions_init(stacks, &now);
    while (error != 0 && now.nodes / 2 >= LEAST_NODES && now.codes > 1 &&
           now.strings > 1 && now.objects > 1 && now.text_bytes > 1) {
        now.nodes /= 2;
        now.codes /= 2;
        now.strings /= 2;
        now.objects /= 2;
        now.text_bytes /= 2;
        error = regions_init(stacks, &now);
    }
    if (error != 0) {
        ml_free(stacks);
        return error;
    }
    stacks_new_epoch(stacks);
    /* If the system refuses, stacks are only slower to capture. */
    (void)ml_stack_caches_init(&stacks->caches);
    *out = stacks;
    return 0;
}

void
ml_stacks_free(ml_stacks *stacks)
{
    if (stacks != NULL) {
        regions_fini(stacks);
        ml_origins_fini(&stacks->origins);
        ml_free(stacks);
    }
}

ml_origins *
ml_stacks_origins(ml_stacks *stacks)
{
    return &stacks->origins;
}

uint64_t
ml_stacks_lost_names(const ml_stacks *stacks)
{
    return atomic_load_explicit(&stacks->lost_names, memory_order_relaxed);
}

uint32_t
ml_stacks_count(const ml_stacks *stacks)
{
    uint32_t count = atomic_load_explicit(&stacks->nodes.count, memory_order_acquire);
    return count < stacks->nodes.limit ? count : stacks->nodes.limit;
}

uint32_t
ml_stacks_string_count(const ml_stacks *stacks)
{
    uint32_t count = atomic_load_explicit(&stacks->strings.count, memory_order_acquire);
    return count < stacks->strings.limit ? count : stacks->strings.limit;
}
