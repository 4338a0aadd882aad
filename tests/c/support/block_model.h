/* A slow model of an allocator, for random tests.
 *
 * It keeps its memory as a plain sorted array and looks everything up by going through
 * it.  It takes any free block that is large enough, at random, which the real one does
 * not; nobody who follows addresses may care. */
#ifndef ML_BLOCK_MODEL_H
#define ML_BLOCK_MODEL_H

#include <stdbool.h>
#include <string.h>

#include "ledger/ledger.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)

static inline ml_event
make_event(enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event event = {.addr = addr, .size = size, .action = (uint8_t)action};
    return event;
}

#define MODEL_BLOCKS 4096

typedef struct model_block {
    uint64_t addr, size, requested;
    uint32_t segment; /* number of the reservation */
    bool small;       /* of the pool for small blocks */
    char state;       /* '.' free, '*' allocated, '~' pending, ' ' not mapped */
} model_block;

typedef struct model {
    model_block blocks[MODEL_BLOCKS];
    size_t count;
    uint64_t random;
    uint64_t next_base;
    uint32_t segments;
    bool expandable;
} model;

static inline uint64_t
next_random(model *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

static inline void
model_insert(model *m, size_t at, model_block block)
{
    memmove(&m->blocks[at + 1], &m->blocks[at], (m->count - at) * sizeof(block));
    m->blocks[at] = block;
    m->count++;
}

static inline void
model_remove(model *m, size_t at)
{
    m->count--;
    memmove(&m->blocks[at], &m->blocks[at + 1], (m->count - at) * sizeof(m->blocks[0]));
}

static inline void
model_merge(model *m)
{
    for (size_t i = 0; i + 1 < m->count;) {
        model_block *a = &m->blocks[i], *b = &m->blocks[i + 1];
        if (a->segment == b->segment && a->state == b->state &&
            (a->state == '.' || a->state == ' ')) {
            a->size += b->size;
            model_remove(m, i + 1);
        }
        else {
            i++;
        }
    }
}

static inline uint64_t
model_round(uint64_t size)
{
    return size < 512 ? 512 : (size + 511) / 512 * 512;
}

/* What a reservation is mapped and unmapped by. */
static inline uint64_t
model_page(const model_block *block)
{
    return block->small ? 2 * MIB : 20 * MIB;
}

/* Makes the next event and does it; events of no effect are OOM. */
static inline ml_event
model_step(model *m)
{
    uint64_t dice = next_random(m) % 100;
    size_t pick = m->count == 0 ? 0 : next_random(m) % m->count;
    if (m->count + 4 > MODEL_BLOCKS) {
        dice = 60;
    }
    if (m->count == 0 || dice < 4) {
        if (m->expandable) {
            /* A reservation of 200 MiB, as yet unmapped, with a gap after it. */
            bool small = next_random(m) % 2 != 0;
            model_block block = {m->next_base, 200 * MIB, 0, ++m->segments, small, ' '};
            m->next_base += 300 * MIB;
            model_insert(m, m->count, block);
            return make_event(ML_ACTION_OOM, 0, 0);
        }
        uint64_t size =
            next_random(m) % 2 ? 2 * MIB : (10 + next_random(m) % 8) * 2 * MIB;
        model_block block = {m->next_base,    size, 0, ++m->segments,
                             size == 2 * MIB, '.'};
        /* Touching the one before now and then: they must not merge. */
        m->next_base += size + (next_random(m) % 2 ? 0 : 2 * MIB);
        model_insert(m, m->count, block);
        return make_event(ML_ACTION_SEGMENT_ALLOC, block.addr, size);
    }
    model_block *b = &m->blocks[pick];
    uint64_t room = b->size;
    if (b->state == ' ' && dice < 60) {
        /* Maps pages in the middle of it: one where no request takes more. */
        uint64_t page = model_page(b);
        uint64_t pages = room / page;
        uint64_t from = next_random(m) % pages;
        uint64_t many = b->small ? 1 : 1 + next_random(m) % (pages - from);
        model_block before = *b, after = *b;
        before.size = from * page;
        after.addr = b->addr + (from + many) * page;
        after.size = b->size - (from + many) * page;
        b->addr += before.size;
        b->size = many * page;
        b->state = '.';
        ml_event event = make_event(ML_ACTION_SEGMENT_MAP, b->addr, b->size);
        if (after.size != 0) {
            model_insert(m, pick + 1, after);
        }
        if (before.size != 0) {
            model_insert(m, pick, before);
        }
        model_merge(m);
        return event;
    }
    if (b->state == '.' && dice < 80 && (b->small || room > MIB)) {
        bool small = b->small;
        uint64_t most = small && room > MIB ? MIB : room;
        uint64_t size = 1 + next_random(m) % most;
        if (!small && size <= MIB) {
            size = MIB + 1 < room ? MIB + 1 : room;
        }
        if (next_random(m) % 3 == 0) {
            size = most; /* a perfect fit */
        }
        uint64_t bytes = model_round(size);
        uint64_t rest = bytes > room ? 0 : room - bytes;
        bool splits = bytes <= MIB || m->expandable ? rest >= 512 : rest > MIB;
        b->state = '*';
        b->requested = size;
        ml_event event = make_event(ML_ACTION_ALLOC, b->addr, size);
        if (splits) {
            model_block tail = {b->addr + bytes, rest, 0, b->segment, small, '.'};
            b->size = bytes;
            model_insert(m, pick + 1, tail);
        }
        return event;
    }
    if (b->state == '*') {
        b->state = '~';
        return make_event(ML_ACTION_FREE_REQUESTED, b->addr, b->requested);
    }
    if (b->state == '~') {
        b->state = '.';
        ml_event event = make_event(ML_ACTION_FREE_COMPLETED, b->addr, b->requested);
        model_merge(m);
        return event;
    }
    if (b->state == '.' && m->expandable) {
        uint64_t base = BASE + (b->segment - 1) * 300 * MIB;
        uint64_t page = model_page(b);
        uint64_t low = base + (b->addr - base + page - 1) / page * page;
        uint64_t high = base + (b->addr + b->size - base) / page * page;
        if (low < high) {
            model_block before = *b, after = *b;
            before.size = low - b->addr;
            after.addr = high;
            after.size = b->addr + b->size - high;
            b->addr = low;
            b->size = high - low;
            b->state = ' ';
            if (after.size != 0) {
                model_insert(m, pick + 1, after);
            }
            if (before.size != 0) {
                model_insert(m, pick, before);
            }
            model_merge(m);
            return make_event(ML_ACTION_SEGMENT_UNMAP, low, high - low);
        }
    }
    else if (b->state == '.' && (pick == 0 || b[-1].segment != b->segment) &&
             (pick + 1 == m->count || b[1].segment != b->segment)) {
        ml_event event = make_event(ML_ACTION_SEGMENT_FREE, b->addr, b->size);
        model_remove(m, pick);
        return event;
    }
    return make_event(ML_ACTION_OOM, 0, 0);
}

#endif
