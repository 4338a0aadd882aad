/* Keeps the last uses of blocks.  See uses.h.
 *
 * Slots are found by hash and linear probing, within PROBES: a longer search would cost
 * the program more than one block's last use is worth.  Only the callback changes
 * addresses, so each is there once.  A late mark, after its block is gone, only makes
 * another block's use later, which is harmless. */
#include "ledger/uses.h"

#include <string.h>

#include "base/base.h"

#define SLOTS (UINT64_C(1) << 18)
#define PROBES 64u
#define GONE UINT64_C(1)

int
ml_uses_init(ml_uses *uses)
{
    return ml_region_init(&uses->region, SLOTS * sizeof(ml_use_slot),
                          SLOTS * sizeof(ml_use_slot));
}

void
ml_uses_fini(ml_uses *uses)
{
    ml_region_fini(&uses->region);
}

void
ml_uses_clear(ml_uses *uses)
{
    ml_region_discard(&uses->region);
    for (unsigned i = 0; i < ML_USES_INNER; i++) {
        atomic_store(&uses->inner[i].addr, 0);
        atomic_store(&uses->inner[i].last, 0);
    }
    atomic_store(&uses->inner_count, 0);
    atomic_store(&uses->all, 0);
    atomic_store(&uses->known_from, 0);
    atomic_store(&uses->turn_count, 0);
    atomic_store(&uses->blind, false);
    atomic_store(&uses->lost, 0);
}

static ml_use_slot *
slot_at(const ml_uses *uses, uint64_t hash, unsigned probe)
{
    return (ml_use_slot *)uses->region.base + ((hash + probe) & (SLOTS - 1));
}

/* The slot of ADDR, or NULL; *FREE becomes a slot where it could be put. */
static ml_use_slot *
find_use(const ml_uses *uses, uint64_t addr, ml_use_slot **free)
{
    uint64_t hash = ml_hash_u64(addr);
    *free = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        ml_use_slot *slot = slot_at(uses, hash, i);
        uint64_t there = atomic_load_explicit(&slot->addr, memory_order_acquire);
        if (there == addr) {
            return slot;
        }
        if (there <= GONE && *free == NULL) {
            *free = slot;
        }
        if (there == 0) {
            break;
        }
    }
    return NULL;
}

static void
raise_to(_Atomic uint64_t *place, uint64_t value)
{
    uint64_t there = atomic_load_explicit(place, memory_order_relaxed);
    while (there < value &&
           !atomic_compare_exchange_weak_explicit(
               place, &there, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

void
ml_uses_begin(ml_uses *uses, uint64_t addr, uint64_t position)
{
    ml_use_slot *free;
    ml_use_slot *slot = find_use(uses, addr, &free);
    slot = slot != NULL ? slot : free;
    if (slot == NULL) {
        atomic_fetch_add_explicit(&uses->lost, 1, memory_order_relaxed);
        return;
    }
    /* Between turns it may be used unseen from now on. */
    bool unseen =
        atomic_load_explicit(&uses->known_from, memory_order_relaxed) == UINT64_MAX;
    atomic_store_explicit(&slot->last, unseen ? position + 1 : 0, memory_order_relaxed);
    atomic_store_explicit(&slot->addr, addr, memory_order_release);
}

static bool
is_inside(uint64_t addr, uint64_t start, uint64_t bytes)
{
    return addr >= start && addr - start < bytes;
}

/* The last use of a block's inner addresses, as in a slot. */
static uint64_t
last_inside(const ml_uses *uses, uint64_t addr, uint64_t bytes)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < ML_USES_INNER; i++) {
        const ml_use_slot *slot = &uses->inner[i];
        if (is_inside(atomic_load(&slot->addr), addr, bytes)) {
            uint64_t here = atomic_load(&slot->last);
            last = here > last ? here : last;
        }
    }
    return last;
}

static uint64_t
turn_at(const ml_uses *uses, uint64_t number)
{
    return atomic_load(&uses->turns[number % ML_USES_TURNS]);
}

/* The begin of the first turn after LAST among those that are remembered and have ended,
 * plus 1; ML_USE_UNKNOWN: none has. */
static uint64_t
turn_after(const ml_uses *uses, uint64_t last)
{
    uint64_t count = atomic_load(&uses->turn_count);
    uint64_t first = count > ML_USES_TURNS ? count - ML_USES_TURNS : 0;
    size_t at;
    ML_SEARCH(at, count - first, turn_at(uses, first + at) <= last);
    return first + at < count ? turn_at(uses, first + at) : ML_USE_UNKNOWN;
}

static uint64_t
last_of(const ml_uses *uses, const ml_use_slot *slot, uint64_t addr, uint64_t bytes)
{
    uint64_t last =
        slot != NULL ? atomic_load_explicit(&slot->last, memory_order_relaxed) : 0;
    if (last == 0 || atomic_load_explicit(&uses->blind, memory_order_relaxed)) {
        return ML_USE_UNKNOWN;
    }
    if (atomic_load(&uses->inner_count) != 0) {
        uint64_t inside = last_inside(uses, addr, bytes);
        last = inside > last ? inside : last;
    }
    if (last <= atomic_load_explicit(&uses->known_from, memory_order_relaxed)) {
        last = turn_after(uses, last);
        if (last == ML_USE_UNKNOWN) {
            return last;
        }
    }
    uint64_t all = atomic_load_explicit(&uses->all, memory_order_relaxed);
    last = all > last ? all : last;
    return last - 1;
}

uint64_t
ml_uses_look(const ml_uses *uses, uint64_t addr, uint64_t bytes)
{
    ml_use_slot *free;
    return last_of(uses, find_use(uses, addr, &free), addr, bytes);
}

/* The block is gone, and with it the uses inside it. */
static void
forget_inside(ml_uses *uses, uint64_t addr, uint64_t bytes)
{
    for (unsigned i = 0; i < ML_USES_INNER; i++) {
        ml_use_slot *slot = &uses->inner[i];
        uint64_t there = atomic_load(&slot->addr);
        if (there != 0 && is_inside(there, addr, bytes)) {
            atomic_store(&slot->last, 0);
            atomic_store(&slot->addr, 0);
            atomic_fetch_sub(&uses->inner_count, 1);
        }
    }
}

uint64_t
ml_uses_end(ml_uses *uses, uint64_t addr, uint64_t bytes)
{
    ml_use_slot *free;
    ml_use_slot *slot = find_use(uses, addr, &free);
    uint64_t last = last_of(uses, slot, addr, bytes);
    if (slot != NULL) {
        atomic_store_explicit(&slot->addr, GONE, memory_order_release);
    }
    if (atomic_load_explicit(&uses->inner_count, memory_order_relaxed) != 0) {
        forget_inside(uses, addr, bytes);
    }
    return last;
}

static void
mark_inner(ml_uses *uses, uint64_t addr, uint64_t last)
{
    for (unsigned i = 0; i < ML_USES_INNER; i++) {
        ml_use_slot *slot = &uses->inner[i];
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&slot->addr, &there, addr)) {
            atomic_fetch_add(&uses->inner_count, 1);
            there = addr;
        }
        if (there == addr) {
            raise_to(&slot->last, last);
            return;
        }
    }
    raise_to(&uses->all, last);
}

void
ml_uses_mark(ml_uses *uses, uint64_t addr, uint64_t position, bool inner)
{
    ml_use_slot *free;
    ml_use_slot *slot = find_use(uses, addr, &free);
    if (slot != NULL) {
        raise_to(&slot->last, position + 1);
    }
    if (inner && addr > GONE) {
        mark_inner(uses, addr, position + 1);
    }
}

void
ml_uses_mark_all(ml_uses *uses, uint64_t position)
{
    raise_to(&uses->all, position + 1);
}

void
ml_uses_blind(ml_uses *uses)
{
    atomic_store_explicit(&uses->blind, true, memory_order_relaxed);
}

void
ml_uses_resume(ml_uses *uses, uint64_t position)
{
    atomic_store_explicit(&uses->known_from, position + 1, memory_order_relaxed);
}

void
ml_uses_pause(ml_uses *uses)
{
    uint64_t count = atomic_load(&uses->turn_count);
    atomic_store(&uses->turns[count % ML_USES_TURNS], atomic_load(&uses->known_from));
    atomic_store(&uses->turn_count, count + 1);
    atomic_store(&uses->known_from, UINT64_MAX);
}

/* Blocks' sizes are unknown here: an inner use may be inside any of them. */
int
ml_uses_visit(const ml_uses *uses, ml_use_visitor visit, void *context)
{
    int result = 0;
    for (uint64_t i = 0; i < SLOTS && result == 0; i++) {
        const ml_use_slot *slot = (const ml_use_slot *)uses->region.base + i;
        uint64_t addr = atomic_load_explicit(&slot->addr, memory_order_acquire);
        uint64_t last =
            addr > GONE ? last_of(uses, slot, 1, UINT64_MAX) : ML_USE_UNKNOWN;
        if (last != ML_USE_UNKNOWN) {
            result = visit(context, addr, last);
        }
    }
    return result;
}
