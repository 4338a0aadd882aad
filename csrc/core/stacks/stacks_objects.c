/* Keeps the objects that frames work on, and their names.  See stacks.h.
 *
 * The table is like the three of stacks.c: insert-only, and a record is written before
 * its slot names it.  Only a record's name and its mark as gone change later, each in
 * one atomic word.  All records of an address share one chain of slots, because the
 * address alone is hashed.  So forgetting an object is one walk along it. */

#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "stacks/stacks.h"
#include "stacks/stacks_records.h"

/* A dead type may have left its address, and its object's, to others. */
static bool
is_named(const ml_stacks *stacks, const ml_stack_object *object, const ml_slice *name)
{
    const ml_stack_string *string = string_at(stacks, object->type_name);
    return name == NULL || (string->length == name->length &&
                            memcmp((const char *)stacks->text.base + string->start,
                                   name->bytes, name->length) == 0);
}

/* The slot of KEY's live record, or the free one for it; *ID is 0 then. */
static uint32_t
find_object(const ml_stacks *stacks, ml_object_key key, const ml_slice *type_name,
            uint32_t *id)
{
    const ml_stack_table *table = &stacks->objects;
    uint32_t at = (uint32_t)(ml_hash_u64(key.address) >> table->shift);

    for (;; at = (at + 1) & table->mask) {
        *id = atomic_load_explicit(table_slot(table, at), memory_order_acquire);
        if (*id == 0) {
            return at;
        }
        const ml_stack_object *object = object_in(table, *id);
        if (object->address == key.address && object->type == key.type &&
            !atomic_load_explicit(&object->gone, memory_order_relaxed) &&
            is_named(stacks, object, type_name)) {
            return at;
        }
    }
}

uint32_t
ml_stacks_object(ml_stacks *stacks, ml_object_key key, const ml_slice *type_name)
{
    ml_stack_table *table = &stacks->objects;
    uint32_t mine = 0;

    for (;;) {
        uint32_t id;
        uint32_t at = find_object(stacks, key, type_name, &id);
        if (id != 0 || type_name == NULL) {
            return id;
        }
        if (mine == 0) {
            uint32_t name =
                ml_stacks_string(stacks, type_name->bytes, type_name->length);
            if (name == ML_STACK_LOST) {
                return ML_STACK_LOST;
            }
            mine = table_take(table);
            if (mine == 0) {
                return lose_name(stacks);
            }
            ml_stack_object *object = object_in(table, mine);
            object->address = key.address;
            object->type = key.type;
            object->type_name = name;
        }
        if (slot_publish(table_slot(table, at), mine, &id)) {
            return mine;
        }
    }
}

int
ml_stacks_name_object(ml_stacks *stacks, uint32_t id, const char *name, size_t length)
{
    if (id == 0 || id >= ml_stacks_object_count(stacks)) {
        return ML_EINVALID;
    }
    uint32_t string = ml_stacks_string(stacks, name, length);
    if (string == ML_STACK_LOST) {
        return ML_EFULL;
    }
    atomic_store_explicit(&object_in(&stacks->objects, id)->name, string,
                          memory_order_release);
    return 0;
}

uint32_t
ml_stacks_object_name(const ml_stacks *stacks, uint32_t id)
{
    return id != 0 && id < ml_stacks_object_count(stacks)
               ? atomic_load_explicit(&object_in(&stacks->objects, id)->name,
                                      memory_order_acquire)
               : 0;
}

void
ml_stacks_forget_object(ml_stacks *stacks, uint64_t address)
{
    ml_stack_table *table = &stacks->objects;
    uint32_t at = (uint32_t)(ml_hash_u64(address) >> table->shift);
    uint32_t id;

    while ((id = atomic_load_explicit(table_slot(table, at), memory_order_acquire))) {
        ml_stack_object *object = object_in(table, id);
        if (object->address == address) {
            atomic_store_explicit(&object->gone, 1, memory_order_relaxed);
        }
        at = (at + 1) & table->mask;
    }
    stacks_new_epoch(stacks);
}

uint32_t
ml_stacks_object_count(const ml_stacks *stacks)
{
    uint32_t count = atomic_load_explicit(&stacks->objects.count, memory_order_acquire);
    return count < stacks->objects.limit ? count : stacks->objects.limit;
}
