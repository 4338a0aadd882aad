/* Searches the unused cache for memory that could have served.  See oom_cache.h. */
#include "analysis/answers/oom_cache.h"

#include <string.h>

#include "base/base.h"

/* A request above max_split_size takes a free block whole if the rest is below this. */
#define MAX_NON_SPLIT_ROUNDING (UINT64_C(20) << 20)

/* One block of a segment, free ones too. */
typedef struct piece {
    ml_block block;
    uint64_t birth;
    size_t segment;
} piece;

typedef struct memory {
    ml_oom *oom;
    const ml_device_trace *trace;
    uint64_t max_split;
    ml_segment *segments; /* owned */
    size_t segment_count;
    size_t segment_capacity;
    piece *pieces; /* owned; by address */
    size_t piece_count;
    size_t piece_capacity;
} memory;

/* Finds the memory pool of a segment made while recording.  torch 2.12 on and memlab's
 * recordings tell it.  Else the memory at the end does, if the segment still exists. */
static void
settle_segment(const memory *m, ml_segment *segment)
{
    if (m->oom->pool_known) {
        return;
    }
    size_t low; /* the earlier segments that begin at or before this one */
    ML_SEARCH(low, m->trace->segment_count,
              m->trace->segments[low].addr <= segment->addr);
    const ml_segment *end = low > 0 ? &m->trace->segments[low - 1] : NULL;
    if (end != NULL && segment->addr - end->addr < end->total) {
        segment->pool[0] = end->pool[0];
        segment->pool[1] = end->pool[1];
    }
}

static int
keep_segment(void *context, const ml_segment *segment)
{
    memory *m = context;
    void *segments = m->segments;
    int error = ml_grow(&segments, &m->segment_capacity, m->segment_count + 1,
                        sizeof(ml_segment));
    if (error < 0) {
        return error;
    }
    m->segments = segments;
    m->segments[m->segment_count] = *segment;
    settle_segment(m, &m->segments[m->segment_count]);
    m->segment_count++;
    return 0;
}

static int
keep_piece(void *context, const ml_block *block, uint64_t birth)
{
    memory *m = context;
    void *pieces = m->pieces;
    int error = ml_grow(&pieces, &m->piece_capacity, m->piece_count + 1, sizeof(piece));
    if (error < 0) {
        return error;
    }
    m->pieces = pieces;
    m->pieces[m->piece_count++] = (piece){*block, birth, m->segment_count - 1};
    return 0;
}

/* The index of PIECE among the state's blocks; -1: not allocated. */
static int64_t
find_place(const ml_peak *state, const piece *p)
{
    size_t low;
    ML_SEARCH(low, state->block_count, state->blocks[low].addr < p->block.addr);
    bool there = low < state->block_count && state->blocks[low].addr == p->block.addr &&
                 p->block.state == ML_BLOCK_ALLOCATED;
    return there ? (int64_t)low : -1;
}

static ml_oom_block
show_block(const memory *m, const piece *p)
{
    return (ml_oom_block){.addr = p->block.addr,
                          .size = p->block.size,
                          .event =
                              p->birth == ML_BEFORE_EVENTS ? -1 : (int64_t)p->birth,
                          .place = find_place(m->oom->state, p)};
}

/* The neighbour of piece I in its segment, one before or after it. */
static ml_oom_block
neighbour(const memory *m, size_t i, bool after)
{
    size_t at = after ? i + 1 : i - 1;
    if ((!after && i == 0) || at == m->piece_count ||
        m->pieces[at].segment != m->pieces[i].segment) {
        return (ml_oom_block){.event = -1, .place = -1};
    }
    return show_block(m, &m->pieces[at]);
}

/* ---- The unused cache ---- */

static enum ml_oom_unused_kind
kind_of(const memory *m, const ml_segment *segment)
{
    const ml_oom *oom = m->oom;
    if (segment->pool[0] != oom->pool[0] || segment->pool[1] != oom->pool[1]) {
        return ML_OOM_UNUSED_OTHER_POOL;
    }
    if ((segment->small != 0) != oom->small) {
        return ML_OOM_UNUSED_OTHER_SIZE;
    }
    return segment->stream != oom->stream ? ML_OOM_UNUSED_OTHER_STREAM
                                          : ML_OOM_UNUSED_ELIGIBLE;
}

static bool
is_oversize(const memory *m, const ml_block *block)
{
    uint64_t most = m->max_split;
    uint64_t requested = m->oom->requested;
    return block->size >= requested &&
           (requested < most ? block->size >= most
                             : block->size - requested >= MAX_NON_SPLIT_ROUNDING);
}

static void
keep_hole(memory *m, size_t i)
{
    ml_oom *oom = m->oom;
    const ml_block *block = &m->pieces[i].block;
    size_t at = oom->hole_count;
    while (at > 0 && oom->holes[at - 1].size < block->size) {
        at--;
    }
    if (at == ML_OOM_HOLES) {
        return;
    }
    size_t kept =
        oom->hole_count < ML_OOM_HOLES ? oom->hole_count : (size_t)ML_OOM_HOLES - 1;
    memmove(&oom->holes[at + 1], &oom->holes[at], (kept - at) * sizeof(oom->holes[0]));
    oom->holes[at] =
        (ml_oom_hole){.addr = block->addr,
                      .size = block->size,
                      .segment_bytes = m->segments[m->pieces[i].segment].total,
                      .before = neighbour(m, i, false),
                      .after = neighbour(m, i, true)};
    oom->hole_count = kept + 1;
}

static void
sort_cache(memory *m)
{
    for (size_t i = 0; i < m->piece_count; i++) {
        const ml_block *block = &m->pieces[i].block;
        if (block->state == ML_BLOCK_PENDING_FREE) {
            m->oom->pending += block->size;
        }
        if (block->state != ML_BLOCK_INACTIVE) {
            continue;
        }
        enum ml_oom_unused_kind kind = kind_of(m, &m->segments[m->pieces[i].segment]);
        if (kind == ML_OOM_UNUSED_ELIGIBLE && is_oversize(m, block)) {
            kind = ML_OOM_UNUSED_OVERSIZE;
        }
        ml_oom_unused *unused = &m->oom->unused[kind];
        unused->bytes += block->size;
        unused->pieces++;
        unused->largest = unused->largest < block->size ? block->size : unused->largest;
        if (kind == ML_OOM_UNUSED_ELIGIBLE) {
            keep_hole(m, i);
        }
    }
}

/* ---- The nearest fit ---- */

/* Pieces first..last of one segment. */
typedef struct stretch {
    size_t first;
    size_t last;
    uint64_t size;
    uint64_t used;
} stretch;

static uint64_t
used_bytes(const piece *p)
{
    return p->block.state == ML_BLOCK_INACTIVE ? 0 : p->block.size;
}

/* Of the ranges of at least WANTED bytes that end at a piece, the shortest has least in
 * use.  As the end advances, its start only moves forward. */
static void
search_segment(const memory *m, size_t first, size_t end, stretch *best)
{
    stretch s = {.first = first};
    for (s.last = first; s.last < end; s.last++) {
        s.size += m->pieces[s.last].block.size;
        s.used += used_bytes(&m->pieces[s.last]);
        while (s.size - m->pieces[s.first].block.size >= m->oom->requested) {
            s.size -= m->pieces[s.first].block.size;
            s.used -= used_bytes(&m->pieces[s.first]);
            s.first++;
        }
        if (s.size >= m->oom->requested && (best->size == 0 || s.used < best->used)) {
            *best = s;
        }
    }
}

static void
keep_largest(const memory *m, const piece *p, ml_oom_fit *fit)
{
    size_t at = ML_OOM_HOLES;
    while (at > 0 && fit->largest[at - 1].size < p->block.size) {
        at--;
    }
    if (at < ML_OOM_HOLES) {
        memmove(&fit->largest[at + 1], &fit->largest[at],
                (ML_OOM_HOLES - 1 - at) * sizeof(fit->largest[0]));
        fit->largest[at] = show_block(m, p);
    }
}

static void
find_fit(memory *m)
{
    stretch best = {0};
    /* A forged file may have a request of 0 bytes, which fits anywhere. */
    for (size_t i = 0; i < m->piece_count && m->oom->requested != 0;) {
        size_t segment = m->pieces[i].segment;
        size_t end = i;
        while (end < m->piece_count && m->pieces[end].segment == segment) {
            end++;
        }
        if (m->segments[segment].total >= m->oom->requested &&
            kind_of(m, &m->segments[segment]) == ML_OOM_UNUSED_ELIGIBLE) {
            search_segment(m, i, end, &best);
        }
        i = end;
    }
    /* A range without a free byte is a block to free, not a hole to widen. */
    if (best.size == 0 || best.used == best.size) {
        return;
    }
    ml_oom_fit *fit = &m->oom->fit;
    fit->addr = m->pieces[best.first].block.addr;
    fit->size = best.size;
    fit->used = best.used;
    for (size_t i = best.first; i <= best.last; i++) {
        if (m->pieces[i].block.state != ML_BLOCK_INACTIVE) {
            fit->used_blocks++;
            keep_largest(m, &m->pieces[i], fit);
        }
    }
}

int
ml_oom_fill_cache(ml_oom *oom, const ml_recording *recording, size_t device,
                  const ml_ledger *ledger)
{
    memory m = {.oom = oom,
                .trace = &recording->devices[device],
                .max_split = recording->rules.max_split_bytes};
    ml_ledger_visitor visitor = {&m, keep_segment, keep_piece};
    int error = ml_ledger_visit(ledger, &visitor);
    /* Without segments nothing is cached: a block is all of its memory. */
    if (error == 0 && recording->rules.has_segments) {
        sort_cache(&m);
        find_fit(&m);
    }
    ml_free(m.segments);
    ml_free(m.pieces);
    return error;
}
