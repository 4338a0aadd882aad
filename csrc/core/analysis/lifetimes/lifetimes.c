/* The allocations of one device as rows.  See page_rows.h.
 *
 * An event says which block it is about; what else it changed, because it did not fit,
 * shows in the totals, and then all rows that are there are held against the ledger. */
#include "analysis/lifetimes/lifetimes.h"

#include <string.h>

#include "analysis/lifetimes/segment_lifetimes.h"
#include "base/base.h"

typedef struct work {
    ml_page_rows *rows;
    ml_replay *replay;
    ml_page_pieces pieces;
    bool has_segments;
    uint64_t stream; /* of the segment visited last */
    uint32_t *there; /* owned; rows that are there */
    size_t there_count;
    size_t there_capacity;
    uint64_t allocated; /* bytes of rows */
    uint64_t active;
    size_t initial_capacity;
    size_t stream_capacity;
} work;

/* ---- Rows that come and go ---- */

static int
add_row(work *w, ml_page_row row, uint32_t *index)
{
    ml_page_rows *rows = w->rows;
    void *list = rows->rows;
    void *there = w->there;
    int error = ml_grow(&list, &rows->capacity, rows->count + 1, sizeof(ml_page_row));
    if (error < 0) {
        return error;
    }
    rows->rows = list;
    error = ml_grow(&there, &w->there_capacity, w->there_count + 1, sizeof(uint32_t));
    if (error < 0) {
        return error;
    }
    w->there = there;
    row.place = (uint32_t)w->there_count;
    *index = (uint32_t)rows->count;
    w->there[w->there_count++] = *index;
    rows->rows[rows->count++] = row;
    w->active += row.bytes;
    w->allocated += row.requested == ML_PAGE_NEVER ? row.bytes : 0;
    return 0;
}

static void
request_row(work *w, uint32_t index, uint32_t moment)
{
    ml_page_row *row = &w->rows->rows[index];
    if (row->requested == ML_PAGE_NEVER) {
        row->requested = moment;
        w->allocated -= row->bytes;
    }
}

static void
end_row(work *w, uint32_t index, uint32_t moment)
{
    ml_page_row *row = &w->rows->rows[index];
    request_row(w, index, moment);
    row->end = moment;
    w->active -= row->bytes;
    uint32_t last = w->there[--w->there_count];
    w->there[row->place] = last;
    w->rows->rows[last].place = row->place;
}

/* The row of the block of BIRTH at ADDR, plus 1; 0: there is none. */
static uint32_t
row_of(const ml_page_rows *rows, uint64_t birth, uint64_t addr)
{
    uint32_t index;
    if (birth == ML_BEFORE_EVENTS) {
        size_t at =
            ml_find_address(rows->rows, sizeof(ml_page_row), rows->initial_count, addr);
        if (at == rows->initial_count || rows->rows[at].addr != addr) {
            return 0;
        }
        index = (uint32_t)at;
    }
    else {
        if (rows->of_event[birth] == 0) {
            return 0;
        }
        index = rows->of_event[birth] - 1;
    }
    while (rows->rows[index].rest != 0) {
        index = rows->rows[index].rest;
    }
    return index + 1;
}

static int
note_change(work *w, uint32_t row, uint32_t moment)
{
    ml_page_rows *rows = w->rows;
    void *changes = rows->changes;
    int error = ml_grow(&changes, &rows->change_capacity, rows->change_count + 1,
                        sizeof(ml_page_change));
    if (error == 0) {
        rows->changes = changes;
        rows->changes[rows->change_count++] = (ml_page_change){moment, row};
    }
    return error;
}

/* ---- Where an event changed more than its block ---- */

/* BLOCK is what is left of row INDEX. */
static int
cut_row(work *w, uint32_t index, uint64_t bytes, uint32_t moment)
{
    ml_page_row rest = w->rows->rows[index];
    bool requested = rest.requested != ML_PAGE_NEVER;
    end_row(w, index, moment);
    rest.start = moment;
    rest.requested = requested ? moment : ML_PAGE_NEVER;
    rest.bytes = bytes;
    uint32_t added;
    int error = add_row(w, rest, &added);
    if (error == 0) {
        w->rows->rows[index].rest = added;
        error = note_change(w, added, moment);
    }
    return error;
}

static int
compare_row(work *w, uint32_t index, uint32_t moment)
{
    const ml_page_row *row = &w->rows->rows[index];
    uint64_t birth = row->birth == 0 ? ML_BEFORE_EVENTS : row->birth - 1;
    ml_ledger_place place;
    bool found = ml_ledger_locate(ml_replay_ledger(w->replay), row->addr, &place) &&
                 place.block.addr == row->addr && place.birth == birth &&
                 place.block.state != ML_BLOCK_INACTIVE;
    if (found && place.block.size == row->bytes) {
        return 0;
    }
    int error = note_change(w, index, moment);
    if (error == 0 && found) {
        return cut_row(w, index, place.block.size, moment);
    }
    end_row(w, index, moment);
    return error;
}

static int
compare_rows(work *w, uint32_t moment)
{
    int error = 0;
    /* What takes the place of a row that ended was compared before. */
    for (size_t i = w->there_count; i-- > 0 && error == 0;) {
        error = compare_row(w, w->there[i], moment);
    }
    return error;
}

/* ---- Before the first event ---- */

static int
visit_segment(void *context, const ml_segment *segment)
{
    work *w = context;
    w->stream = segment->stream;
    return 0;
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    work *w = context;
    ml_page_rows *rows = w->rows;
    (void)birth;
    if (block->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    bool allocated = block->state == ML_BLOCK_ALLOCATED;
    uint32_t index;
    int error = add_row(w,
                        (ml_page_row){.addr = block->addr,
                                      .bytes = block->size,
                                      .size = block->requested,
                                      .requested = allocated ? ML_PAGE_NEVER : 0,
                                      .end = ML_PAGE_NEVER},
                        &index);
    void *stacks = rows->initial_stacks;
    if (error == 0) {
        error = ml_grow(&stacks, &w->initial_capacity, rows->count, sizeof(uint32_t));
    }
    if (error < 0) {
        return error;
    }
    rows->initial_stacks = stacks;
    void *streams = rows->initial_streams;
    error = ml_grow(&streams, &w->stream_capacity, rows->count, sizeof(uint64_t));
    if (error < 0) {
        return error;
    }
    rows->initial_streams = streams;
    rows->initial_stacks[index] = block->stack;
    rows->initial_streams[index] = w->stream;
    rows->initial_count = rows->count;
    return 0;
}

static int
note_reserved(work *w, uint32_t moment)
{
    ml_page_rows *rows = w->rows;
    uint64_t bytes = ml_replay_totals(w->replay)->reserved;
    if (rows->reserved_count != 0 &&
        rows->reserved[rows->reserved_count - 1].bytes == bytes) {
        return 0;
    }
    void *reserved = rows->reserved;
    int error = ml_grow(&reserved, &rows->reserved_capacity, rows->reserved_count + 1,
                        sizeof(ml_page_reserved));
    if (error == 0) {
        rows->reserved = reserved;
        rows->reserved[rows->reserved_count++] = (ml_page_reserved){moment, bytes};
    }
    return error;
}

static int
begin(work *w)
{
    ml_page_rows *rows = w->rows;
    const ml_ledger *ledger = ml_replay_ledger(w->replay);
    size_t events = rows->trace->event_count;
    rows->of_event = ml_alloc_zeroed(events + 1, sizeof(uint32_t));
    int error = rows->of_event == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        ml_ledger_visitor visitor = {w, visit_segment, visit_block};
        error = ml_ledger_visit(ledger, &visitor);
    }
    if (error == 0 && w->has_segments) {
        error = ml_page_pieces_begin(&w->pieces, rows, ledger);
    }
    return error == 0 ? note_reserved(w, 0) : error;
}

/* ---- Event by event ---- */

/* The row of the block in use that EVENT, not yet applied, frees or takes the place of,
 * plus 1; 0: none. */
static uint32_t
find_row(const work *w, const ml_event *event)
{
    ml_ledger_place place;
    if (event->action > ML_ACTION_FREE_COMPLETED ||
        !ml_ledger_locate(ml_replay_ledger(w->replay), event->addr, &place) ||
        place.block.addr != event->addr || place.block.state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    return row_of(w->rows, place.birth, event->addr);
}

/* TAKEN is the row in whose place EVENT allocates, plus 1, or 0. */
static int
follow_alloc(work *w, const ml_event *event, size_t index, uint32_t taken)
{
    uint32_t moment = (uint32_t)index + 1;
    ml_ledger_place place;
    if (!ml_ledger_locate(ml_replay_ledger(w->replay), event->addr, &place) ||
        place.block.addr != event->addr || place.birth != index ||
        place.block.state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    uint32_t row;
    int error = taken != 0 ? note_change(w, taken - 1, moment) : 0;
    if (error < 0) {
        return error;
    }
    if (taken != 0) {
        end_row(w, taken - 1, moment);
    }
    error = add_row(w,
                    (ml_page_row){.addr = event->addr,
                                  .bytes = place.block.size,
                                  .size = event->size,
                                  .start = moment,
                                  .requested = ML_PAGE_NEVER,
                                  .end = ML_PAGE_NEVER,
                                  .birth = moment},
                    &row);
    if (error == 0) {
        w->rows->of_event[index] = row + 1;
    }
    return error;
}

static int
follow_event(work *w, size_t index)
{
    ml_page_rows *rows = w->rows;
    uint32_t moment = (uint32_t)index + 1;
    uint32_t row = find_row(w, &rows->trace->events[index]);
    const ml_event *event = ml_replay_next(w->replay);
    int error = 0;
    if (event->action == ML_ACTION_ALLOC) {
        error = follow_alloc(w, event, index, row);
    }
    else if (row != 0) {
        rows->of_event[index] = row;
        request_row(w, row - 1, moment);
        if (event->action == ML_ACTION_FREE_COMPLETED) {
            end_row(w, row - 1, moment);
        }
    }
    const ml_totals *totals = ml_replay_totals(w->replay);
    if (error == 0 &&
        (totals->allocated != w->allocated || totals->active != w->active)) {
        error = compare_rows(w, moment);
    }
    if (error == 0 && w->has_segments) {
        error = ml_page_pieces_follow(&w->pieces, event, ml_replay_ledger(w->replay),
                                      moment);
    }
    return error == 0 ? note_reserved(w, moment) : error;
}

static int
follow(work *w)
{
    ml_page_rows *rows = w->rows;
    int error = begin(w);
    for (size_t i = 0; error == 0 && i < rows->trace->event_count; i++) {
        error = follow_event(w, i);
    }
    return error;
}

/* ---- How often an address was given out ---- */

typedef struct seen {
    uint64_t addr;
    uint32_t count; /* 0: the slot is empty */
} seen;

static int
number_rows(ml_page_rows *rows)
{
    size_t slots = 16;
    while (slots < 2 * rows->count) {
        slots *= 2;
    }
    seen *table = ml_alloc_zeroed(slots, sizeof(seen));
    if (table == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < rows->count; i++) {
        ml_page_row *row = &rows->rows[i];
        size_t at = (size_t)ml_hash_u64(row->addr) & (slots - 1);
        while (table[at].count != 0 && table[at].addr != row->addr) {
            at = (at + 1) & (slots - 1);
        }
        table[at].addr = row->addr;
        /* What another event left of an allocation is none of its own. */
        table[at].count += row->birth == row->start;
        row->ordinal = table[at].count - 1;
    }
    ml_free(table);
    return 0;
}

/* ---- The whole ---- */

int
ml_page_rows_init(ml_page_rows *rows, const ml_recording *recording, size_t device)
{
    *rows = (ml_page_rows){0};
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    rows->trace = &recording->devices[device];
    if (rows->trace->event_count > ML_PAGE_EVENTS_MAX) {
        return ML_ELIMIT;
    }
    work w = {.rows = rows, .has_segments = recording->rules.has_segments != 0};
    const ml_analysis *analysis;
    int error = ml_analysis_of(recording, device, &analysis);
    if (error == 0) {
        error = ml_analysis_replay(analysis, 0, &w.replay);
    }
    if (error == 0) {
        error = follow(&w);
    }
    if (error == 0) {
        error = number_rows(rows);
    }
    ml_replay_free(w.replay);
    ml_page_pieces_fini(&w.pieces);
    ml_free(w.there);
    if (error < 0) {
        ml_page_rows_fini(rows);
    }
    return error;
}

void
ml_page_rows_fini(ml_page_rows *rows)
{
    ml_free(rows->rows);
    ml_free(rows->of_event);
    ml_free(rows->changes);
    ml_free(rows->reserved);
    ml_free(rows->segments);
    ml_free(rows->initial_stacks);
    ml_free(rows->initial_streams);
    *rows = (ml_page_rows){0};
}
