/* The records inside ml_stacks, shared by the files that fill them (stacks.c,
 * stacks_objects.c) and the one that names them later (stacks_resolve.c). */
#ifndef ML_STACKS_RECORDS_H
#define ML_STACKS_RECORDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/region.h"
#include "stacks/origins.h"
#include "stacks/stacks.h"

typedef _Atomic uint32_t ml_stack_slot;

/* Two to a cache line. */
typedef struct ml_stack_node {
    uint64_t code;        /* 0: a native frame */
    uint64_t fingerprint; /* for a native frame, its program counter */
    uint32_t offset;
    uint32_t parent;
    uint32_t code_id; /* 0: a native frame */
    uint32_t object;  /* id; 0: none */
} ml_stack_node;

typedef struct ml_stack_code {
    uint64_t code;
    uint64_t fingerprint;
    uint32_t name; /* string ids */
    uint32_t filename;
    uint32_t linetable;
    int32_t firstlineno;
    int32_t python_minor;
    uint32_t pad;
} ml_stack_code;

typedef struct ml_stack_string {
    uint64_t hash;
    uint32_t start; /* in the text, bytes */
    uint32_t length;
} ml_stack_string;

typedef struct ml_stack_object {
    uint64_t address;
    uint64_t type;
    uint32_t type_name;    /* string id */
    _Atomic uint32_t name; /* string id; 0: not named */
    _Atomic uint32_t gone; /* 1: it died, and another may have its address */
    uint32_t pad;
} ml_stack_object;

typedef struct ml_stack_table {
    ml_region records;      /* by id; each written once, before its slot names it */
    ml_region slots;        /* ml_stack_slot, a power of two of them */
    uint32_t limit;         /* records */
    uint32_t mask;          /* number of slots minus one */
    unsigned shift;         /* turns a 64-bit hash into a slot */
    _Atomic uint32_t count; /* ids used; may exceed the limit by a few */
} ml_stack_table;

struct ml_stacks {
    ml_stack_table nodes;
    ml_stack_table codes;
    ml_stack_table strings;
    ml_stack_table objects;
    ml_region text;
    _Atomic size_t text_used;
    _Atomic uint64_t lost_names;
    _Atomic uint64_t epoch; /* from 1 */
    ml_region caches;   /* what threads saw at their last walk; base NULL: no room */
    ml_origins origins; /* the recorder's: guarded by its lock */
};

static inline ml_stack_slot *
table_slot(const ml_stack_table *table, uint32_t at)
{
    return (ml_stack_slot *)table->slots.base + at;
}

static inline ml_stack_node *
node_at(const ml_stacks *stacks, uint32_t id)
{
    return (ml_stack_node *)stacks->nodes.records.base + id;
}

static inline ml_stack_code *
code_at(const ml_stacks *stacks, uint32_t id)
{
    return (ml_stack_code *)stacks->codes.records.base + id;
}

static inline ml_stack_string *
string_at(const ml_stacks *stacks, uint32_t id)
{
    return (ml_stack_string *)stacks->strings.records.base + id;
}

static inline ml_stack_object *
object_in(const ml_stack_table *objects, uint32_t id)
{
    return (ml_stack_object *)objects->records.base + id;
}

/* Takes a record; 0: none left. */
static inline uint32_t
table_take(ml_stack_table *table)
{
    /* Checking first keeps the count from growing once the table is full. */
    if (atomic_load_explicit(&table->count, memory_order_relaxed) >= table->limit) {
        return 0;
    }
    uint32_t id = atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
    return id < table->limit ? id : 0;
}

/* Publishes record ID in *SLOT.  True, or false with the id found there instead. */
static inline int
slot_publish(ml_stack_slot *slot, uint32_t id, uint32_t *found)
{
    *found = 0;
    return atomic_compare_exchange_strong_explicit(
        slot, found, id, memory_order_acq_rel, memory_order_acquire);
}

/* Counts a name without room. */
static inline uint32_t
lose_name(ml_stacks *stacks)
{
    atomic_fetch_add_explicit(&stacks->lost_names, 1, memory_order_relaxed);
    return ML_STACK_LOST;
}

/* HOT.  Not 0.  Changes whenever an object is forgotten: remembered ids are valid while
 * it stays. */
static inline uint64_t
stacks_epoch(const ml_stacks *stacks)
{
    return atomic_load_explicit(&stacks->epoch, memory_order_acquire);
}

static inline void
stacks_new_epoch(ml_stacks *stacks)
{
    atomic_fetch_add_explicit(&stacks->epoch, 1, memory_order_release);
}

#endif
