/* Numbers the allocations of one device for a page.  See allocation_rows.h. */
#include "analysis/allocations/allocation_rows.h"

#include "base/base.h"

/* ---- What the rows are ---- */

int
ml_allocation_row_kind(const ml_allocation_rows *rows, size_t index,
                       ml_allocation_kinds *kinds, uint32_t *kind)
{
    ml_earlier_block of = ml_lifetimes_request(rows->lifetimes, index);
    ml_explained it = ml_explain_row(rows->analysis, index);
    ml_growth_tell(rows->growth, &it.cause, &it.verdict);
    uint32_t stream;
    int error = ml_allocation_kinds_stream(kinds, of.stream, &stream);
    return error == 0 ? ml_allocation_kinds_add(kinds, of.stack, stream, &it, kind)
                      : error;
}

/* ---- How often an address was given out ---- */

typedef struct seen {
    uint64_t addr;
    uint32_t count; /* 0: the slot is empty */
    uint32_t last;  /* row */
} seen;

/* Addresses are few, as they are given out again and again. */
typedef struct seen_table {
    seen *slots; /* owned */
    size_t slot_count;
    size_t count;
} seen_table;

/* The slot of ADDR in TABLE: that of its entry, or an empty one. */
static seen *
find_seen(const seen_table *table, uint64_t addr)
{
    size_t mask = table->slot_count - 1;
    size_t at = (size_t)ml_hash_u64(addr) & mask;
    while (table->slots[at].count != 0 && table->slots[at].addr != addr) {
        at = (at + 1) & mask;
    }
    return &table->slots[at];
}

/* Keeps one slot in two empty.  0 or ML_ENOMEM. */
static int
grow_seen(seen_table *table)
{
    if (2 * (table->count + 1) <= table->slot_count) {
        return 0;
    }
    size_t count = table->slot_count == 0 ? 1024 : 2 * table->slot_count;
    seen_table more = {.slots = ml_alloc_zeroed(count, sizeof(seen)),
                       .slot_count = count,
                       .count = table->count};
    if (more.slots == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i].count != 0) {
            *find_seen(&more, table->slots[i].addr) = table->slots[i];
        }
    }
    ml_free(table->slots);
    *table = more;
    return 0;
}

static int
number_rows(ml_allocation_rows *rows)
{
    const ml_lifetimes *lifetimes = rows->lifetimes;
    seen_table table = {0};
    int error = 0;
    for (size_t i = 0; error == 0 && i < lifetimes->count; i++) {
        const ml_lifetime *row = &lifetimes->rows[i];
        uint64_t addr = ml_lifetimes_request(lifetimes, i).addr;
        error = grow_seen(&table);
        if (error < 0) {
            break;
        }
        seen *at = find_seen(&table, addr);
        rows->before[i] = at->count != 0 ? at->last + 1 : 0;
        table.count += at->count == 0;
        at->addr = addr;
        at->last = (uint32_t)i;
        /* The rest of an allocation that another event cut is no allocation of its
         * own. */
        at->count += row->birth == row->start;
        rows->ordinals[i] = at->count - 1;
    }
    ml_free(table.slots);
    return error;
}

/* ---- The whole ---- */

static int
fill_rows(ml_allocation_rows *rows, ml_allocation_kinds *kinds)
{
    size_t count = rows->lifetimes->count;
    rows->ordinals = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
    rows->before = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
    int error =
        rows->ordinals == NULL || rows->before == NULL ? ML_ENOMEM : number_rows(rows);
    error = error < 0 ? error : ml_growth_of(rows->analysis, &rows->growth);
    if (error < 0 || kinds == NULL) {
        return error;
    }
    rows->kinds = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
    error = rows->kinds == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        error = ml_allocation_row_kind(rows, i, kinds, &rows->kinds[i]);
    }
    return error;
}

int
ml_allocation_rows_init(ml_allocation_rows *rows, ml_allocation_kinds *kinds,
                        const ml_recording *recording, size_t device)
{
    *rows = (ml_allocation_rows){0};
    const ml_analysis *analysis;
    if (device < recording->device_count &&
        recording->devices[device].event_count > ML_PAGE_EVENTS_MAX) {
        return ML_ELIMIT;
    }
    int error = ml_analysis_of(recording, device, &analysis);
    if (error < 0) {
        return error;
    }
    rows->analysis = analysis;
    rows->trace = analysis->trace;
    rows->lifetimes = &analysis->lifetimes;
    error = fill_rows(rows, kinds);
    if (error < 0) {
        ml_allocation_rows_fini(rows);
    }
    return error;
}

void
ml_allocation_rows_fini(ml_allocation_rows *rows)
{
    ml_free(rows->kinds);
    ml_free(rows->ordinals);
    ml_free(rows->before);
    *rows = (ml_allocation_rows){0};
}
