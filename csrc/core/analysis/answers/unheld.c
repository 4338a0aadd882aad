/* Finds allocated memory without a known holder.  See unheld.h. */
#include "analysis/answers/unheld.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "analysis/attribution/workspace.h"
#include "base/base.h"

/* Of an unheld block. */
typedef struct block_place {
    uint32_t segment; /* index */
    uint32_t stack;   /* id; 0: unknown */
} block_place;

typedef struct unheld_work {
    const ml_recording *memory;
    size_t device;
    ml_unheld *unheld;
    const ml_device_trace *trace;
    ml_claim *claims; /* owned; by address, each once */
    size_t claim_count;
    uint8_t *in_block;   /* owned; of each claim: it lies in an allocated block */
    ml_peak_block *own;  /* owned; of the unheld blocks */
    block_place *places; /* owned; of each of them */
    size_t own_count;
} unheld_work;

/* ---- Claims ---- */

static int
compare_claims(const void *a, const void *b)
{
    const ml_claim *x = a;
    const ml_claim *y = b;
    if (x->addr != y->addr) {
        return x->addr < y->addr ? -1 : 1;
    }
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

/* Sorts claims; of one address, the largest stays. */
static int
take_claims(unheld_work *w, const ml_claim *claims, size_t count)
{
    w->claims = ml_alloc_zeroed(count + 1, sizeof(ml_claim));
    w->in_block = ml_alloc_zeroed(count + 1, 1);
    if (w->claims == NULL || w->in_block == NULL) {
        return ML_ENOMEM;
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (claims[i].bytes != 0) {
            w->claims[kept++] = claims[i];
        }
    }
    qsort(w->claims, kept, sizeof(ml_claim), compare_claims);
    for (size_t i = 0; i < kept; i++) {
        if (i == 0 || w->claims[i].addr != w->claims[i - 1].addr) {
            w->claims[w->claim_count++] = w->claims[i];
        }
    }
    return 0;
}

static uint64_t
end_of(uint64_t addr, uint64_t bytes)
{
    return bytes > UINT64_MAX - addr ? UINT64_MAX : addr + bytes;
}

/* Bytes of BLOCK covered by claims that begin in it; UINT64_MAX: no claim begins in
 * it. */
static uint64_t
cover(unheld_work *w, const ml_block *block)
{
    uint64_t end = end_of(block->addr, block->size);
    uint64_t covered = 0;
    uint64_t from = block->addr;
    size_t first =
        ml_find_address(w->claims, sizeof(*w->claims), w->claim_count, block->addr);
    size_t i = first;
    for (; i < w->claim_count && w->claims[i].addr < end; i++) {
        uint64_t low = w->claims[i].addr > from ? w->claims[i].addr : from;
        uint64_t high = end_of(w->claims[i].addr, w->claims[i].bytes);
        high = high < end ? high : end;
        if (high > low) {
            covered += high - low;
            from = high;
        }
        w->in_block[i] = 1;
    }
    return i == first ? UINT64_MAX : covered;
}

static void
count_outside(unheld_work *w)
{
    uint64_t from = 0;
    for (size_t i = 0; i < w->claim_count; i++) {
        uint64_t end = end_of(w->claims[i].addr, w->claims[i].bytes);
        if (w->in_block[i]) {
            from = end > from ? end : from;
            continue;
        }
        uint64_t low = w->claims[i].addr > from ? w->claims[i].addr : from;
        w->unheld->outside += end > low ? end - low : 0;
        from = end > from ? end : from;
        w->unheld->outside_claims++;
    }
}

/* ---- Blocks ---- */

static void
add_unheld(unheld_work *w, const ml_block *block, size_t segment)
{
    w->unheld->unheld += block->size;
    w->unheld->unheld_blocks++;
    w->places[w->own_count] = (block_place){(uint32_t)segment, block->stack};
    /* If events do not lead to the actual memory, nothing is known about it. */
    w->own[w->own_count++] =
        (ml_peak_block){.addr = block->addr,
                        .size = block->size,
                        .requested = block->requested,
                        .event = -1,
                        .cause = {.phase = ML_PHASE_UNKNOWN,
                                  .no_module = ML_NO_MODULE_STACK,
                                  .no_line = ML_NO_LINE_NOT_RECORDED},
                        .verdict = {.category = ML_CATEGORY_UNKNOWN}};
}

static void
take_block(unheld_work *w, const ml_block *block, size_t segment)
{
    ml_unheld *unheld = w->unheld;
    if (block->state == ML_BLOCK_PENDING_FREE) {
        unheld->awaiting += block->size;
        return;
    }
    if (block->state != ML_BLOCK_ALLOCATED) {
        const ml_segment *of = &w->trace->segments[segment];
        unheld->cached += block->size;
        /* As torch counts inactive_split_bytes. */
        unheld->remainders += of->block_count > 1 && !of->expandable ? block->size : 0;
        return;
    }
    unheld->allocated += block->size;
    uint64_t covered = cover(w, block);
    if (covered == UINT64_MAX) {
        add_unheld(w, block, segment);
        return;
    }
    unheld->held += block->size;
    unheld->held_blocks++;
    unheld->claimed += covered;
}

static int
take_blocks(unheld_work *w)
{
    const ml_device_trace *trace = w->trace;
    w->own = ml_alloc_zeroed(trace->block_count + 1, sizeof(*w->own));
    w->places = ml_alloc_zeroed(trace->block_count + 1, sizeof(*w->places));
    if (w->own == NULL || w->places == NULL) {
        return ML_ENOMEM;
    }
    for (size_t s = 0; s < trace->segment_count; s++) {
        const ml_segment *segment = &trace->segments[s];
        w->unheld->reserved += segment->total;
        for (size_t i = 0; i < segment->block_count; i++) {
            take_block(w, &trace->blocks[segment->first_block + i], s);
        }
    }
    w->unheld->slack = w->unheld->held - w->unheld->claimed;
    return 0;
}

/* ---- Where unheld blocks come from ---- */

static int
explain_before(unheld_work *w)
{
    const ml_causes *causes;
    int result = ml_analysis_causes(w->memory, &causes);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < w->own_count; i++) {
        w->own[i].cause = ml_causes_before(causes, w->places[i].stack);
        w->own[i].verdict =
            (ml_verdict){ML_CATEGORY_BEFORE_RECORDING, ML_WHY_KNOWN, .exact = true};
    }
    return 0;
}

static int
explain_by_events(unheld_work *w)
{
    ml_peak *peak;
    int result = ml_peak_new_at(w->memory, w->device, w->trace->event_count, &peak);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < w->own_count; i++) {
        ml_peak_block *own = &w->own[i];
        size_t at = ml_find_address(peak->blocks, sizeof(*peak->blocks),
                                    peak->block_count, own->addr);
        if (at < peak->block_count && peak->blocks[at].addr == own->addr) {
            own->event = peak->blocks[at].event;
            own->cause = peak->blocks[at].cause;
            own->verdict = peak->blocks[at].verdict;
        }
    }
    ml_peak_free(peak);
    return 0;
}

static int
explain(unheld_work *w)
{
    if (w->own_count == 0) {
        return 0;
    }
    /* Blocks without event or tag are from before, whatever lies beside them: so no
     * replay of all memory is needed. */
    bool told = w->trace->event_count > 0 || w->trace->tag_count > 0;
    return told ? explain_by_events(w) : explain_before(w);
}

/* ---- Rows: blocks of one keeper, pool and module, by line ---- */

/* The common properties of some rows' blocks. */
typedef struct kind {
    ml_unheld_row like;
    uint32_t module; /* string */
} kind;

static enum ml_keeper
keeper_of(const unheld_work *w, size_t block)
{
    const uint64_t *pool = w->trace->segments[w->places[block].segment].pool;
    const ml_peak_block *own = &w->own[block];
    bool before = own->verdict.category == ML_CATEGORY_BEFORE_RECORDING;
    if (own->verdict.category == ML_CATEGORY_WORKSPACE ||
        (before && pool[0] == 0 && pool[1] == 0 && ml_workspace_has_size(own->size))) {
        return ML_KEEPER_WORKSPACE;
    }
    /* torch's first number counts pools made by captures, the second, pools made on
     * request. */
    return pool[0] != 0   ? ML_KEEPER_GRAPH
           : pool[1] != 0 ? ML_KEEPER_POOL
                          : ML_KEEPER_UNKNOWN;
}

static bool
belongs(const unheld_work *w, size_t block, const kind *of)
{
    const uint64_t *pool = w->trace->segments[w->places[block].segment].pool;
    return w->own[block].cause.module == of->module &&
           keeper_of(w, block) == of->like.keeper && pool[0] == of->like.pool[0] &&
           pool[1] == of->like.pool[1];
}

/* Adds the lines of PART as rows like LIKE. */
static int
add_rows(ml_unheld *unheld, size_t *capacity, ml_peak *part, const ml_unheld_row *like)
{
    int result = ml_grow((void **)&unheld->rows, capacity,
                         unheld->row_count + part->line_count, sizeof(*unheld->rows));
    for (size_t i = 0; result == 0 && i < part->line_count; i++) {
        ml_unheld_row *row = &unheld->rows[unheld->row_count++];
        *row = *like;
        row->line = part->lines[i];
        part->lines[i].module = NULL;
    }
    return result;
}

/* Makes the rows of all blocks like the first ungrouped one; removes these. */
static int
group_next(unheld_work *w, size_t *capacity)
{
    const ml_segment *segment = &w->trace->segments[w->places[0].segment];
    kind of = {.like = {.pool = {segment->pool[0], segment->pool[1]},
                        .keeper = (uint8_t)keeper_of(w, 0)},
               .module = w->own[0].cause.module};
    ml_peak *part = ml_alloc_zeroed(1, sizeof(*part));
    ml_peak_block *blocks = ml_alloc_zeroed(w->own_count, sizeof(*blocks));
    if (part == NULL || blocks == NULL) {
        ml_free(part);
        ml_free(blocks);
        return ML_ENOMEM;
    }
    part->blocks = blocks;
    size_t left = 0;
    for (size_t i = 0; i < w->own_count; i++) {
        if (belongs(w, i, &of)) {
            blocks[part->block_count++] = w->own[i];
            continue;
        }
        w->places[left] = w->places[i];
        w->own[left++] = w->own[i];
    }
    w->own_count = left;
    int result = ml_peak_group(part, w->memory);
    if (result == 0) {
        result = add_rows(w->unheld, capacity, part, &of.like);
    }
    ml_peak_free(part);
    return result;
}

static int
compare_rows(const void *a, const void *b)
{
    const ml_unheld_row *x = a;
    const ml_unheld_row *y = b;
    if (x->line.bytes != y->line.bytes) {
        return x->line.bytes > y->line.bytes ? -1 : 1;
    }
    int order = ml_string_compare(x->line.file, y->line.file);
    if (order != 0) {
        return order;
    }
    if (x->line.line != y->line.line) {
        return x->line.line < y->line.line ? -1 : 1;
    }
    if (x->keeper != y->keeper) {
        return x->keeper < y->keeper ? -1 : 1;
    }
    if (x->line.phase != y->line.phase) {
        return x->line.phase < y->line.phase ? -1 : 1;
    }
    return strcmp(x->line.module != NULL ? x->line.module : "",
                  y->line.module != NULL ? y->line.module : "");
}

/* ---- The whole ---- */

static int
fill_unheld(unheld_work *w, const ml_claim *claims, size_t count)
{
    int result = take_claims(w, claims, count);
    if (result == 0 && w->device < w->memory->device_count) {
        w->trace = &w->memory->devices[w->device];
        result = take_blocks(w);
        if (result == 0) {
            result = explain(w);
        }
    }
    if (result < 0) {
        return result;
    }
    count_outside(w);
    size_t capacity = 0;
    while (w->own_count > 0 && result == 0) {
        result = group_next(w, &capacity);
    }
    if (w->unheld->row_count > 0) {
        qsort(w->unheld->rows, w->unheld->row_count, sizeof(ml_unheld_row),
              compare_rows);
    }
    return result;
}

int
ml_unheld_new(const ml_recording *memory, size_t device, const ml_claim *claims,
              size_t count, ml_unheld **out)
{
    unheld_work w = {.memory = memory,
                     .device = device,
                     .unheld = ml_alloc_zeroed(1, sizeof(ml_unheld))};
    if (w.unheld == NULL) {
        return ML_ENOMEM;
    }
    int result = fill_unheld(&w, claims, count);
    ml_free(w.claims);
    ml_free(w.in_block);
    ml_free(w.own);
    ml_free(w.places);
    if (result < 0) {
        ml_unheld_free(w.unheld);
        return result;
    }
    *out = w.unheld;
    return 0;
}

void
ml_unheld_free(ml_unheld *unheld)
{
    if (unheld != NULL) {
        for (size_t i = 0; i < unheld->row_count; i++) {
            ml_free(unheld->rows[i].line.module);
        }
        ml_free(unheld->rows);
        ml_free(unheld);
    }
}

const char *
ml_keeper_text(unsigned keeper)
{
    static const char *const texts[] = {ML_KEEPERS(ML_LISTED_TEXT)};
    return keeper < ML_KEEPER_COUNT ? texts[keeper] : "";
}
