/* Finds the lifetimes of the blocks of one device.  See lifetimes.h.
 *
 * An event names its block.  If it contradicts the state and changes other blocks, the
 * totals show that.  Then all existing rows are compared with the ledger. */
#include "analysis/lifetimes/lifetimes.h"

#include <stdlib.h>

#include "analysis/lifetimes/segment_lifetimes.h"
#include "base/base.h"

struct ml_lifetimes_work {
    ml_lifetimes *lifetimes; /* borrowed */
    ml_replay *replay;       /* borrowed, with the next two */
    const ml_ledger *ledger;
    const ml_totals *totals;
    bool has_segments;
    ml_mapped_pieces pieces;
    size_t next_tag;
    uint64_t stream; /* of the last visited segment */
    uint32_t *there; /* owned; existing rows; a row's `rest` is its index here */
    size_t there_count;
    size_t there_capacity;
    uint64_t allocated; /* bytes of rows */
    uint64_t active;
};

/* ---- Rows that come and go ---- */

static int
add_row(ml_lifetimes_work *w, ml_lifetime row, size_t *index)
{
    ml_lifetimes *lifetimes = w->lifetimes;
    void *list = lifetimes->rows;
    void *there = w->there;
    int error =
        ml_grow(&list, &lifetimes->capacity, lifetimes->count + 1, sizeof(ml_lifetime));
    if (error < 0) {
        return error;
    }
    lifetimes->rows = list;
    error = ml_grow(&there, &w->there_capacity, w->there_count + 1, sizeof(uint32_t));
    if (error < 0) {
        return error;
    }
    w->there = there;
    *index = lifetimes->count++;
    row.rest = (uint32_t)w->there_count;
    w->there[w->there_count++] = (uint32_t)*index;
    lifetimes->rows[*index] = row;
    w->active += row.bytes;
    w->allocated += row.requested == ML_NEVER ? row.bytes : 0;
    return 0;
}

static void
request_row(ml_lifetimes_work *w, size_t index, uint32_t moment)
{
    ml_lifetime *row = &w->lifetimes->rows[index];
    if (row->requested == ML_NEVER) {
        row->requested = moment;
        w->allocated -= row->bytes;
    }
}

static void
end_row(ml_lifetimes_work *w, size_t index, uint32_t moment)
{
    ml_lifetime *row = &w->lifetimes->rows[index];
    request_row(w, index, moment);
    row->end = moment;
    w->active -= row->bytes;
    uint32_t last = w->there[--w->there_count];
    w->there[row->rest] = last;
    w->lifetimes->rows[last].rest = row->rest;
    row->rest = 0;
}

static size_t
last_of(const ml_lifetimes *lifetimes, size_t index)
{
    while (lifetimes->rows[index].end != ML_NEVER && lifetimes->rows[index].rest != 0) {
        index = lifetimes->rows[index].rest;
    }
    return index;
}

size_t
ml_lifetimes_earlier(const ml_lifetimes *lifetimes, uint64_t addr)
{
    size_t count = lifetimes->earlier_count;
    size_t at =
        ml_find_address(lifetimes->earlier, sizeof(ml_earlier_block), count, addr);
    return at < count && lifetimes->earlier[at].addr == addr ? at : SIZE_MAX;
}

/* The row of the block in use of BIRTH that starts at ADDR; SIZE_MAX: none. */
static size_t
row_of(const ml_lifetimes *lifetimes, uint64_t birth, uint64_t addr)
{
    size_t index = birth == ML_BEFORE_EVENTS ? ml_lifetimes_earlier(lifetimes, addr)
                                             : ml_lifetimes_row(lifetimes, birth);
    return index == SIZE_MAX ? index : last_of(lifetimes, index);
}

static int
note_change(ml_lifetimes_work *w, size_t row, uint32_t moment)
{
    ml_lifetimes *lifetimes = w->lifetimes;
    void *changes = lifetimes->changes;
    int error = ml_grow(&changes, &lifetimes->change_capacity,
                        lifetimes->change_count + 1, sizeof(ml_lifetime_change));
    if (error == 0) {
        lifetimes->changes = changes;
        lifetimes->changes[lifetimes->change_count++] =
            (ml_lifetime_change){moment, (uint32_t)row};
    }
    return error;
}

/* ---- Where an event changed more than its block ---- */

/* BYTES are left of row INDEX. */
static int
cut_row(ml_lifetimes_work *w, size_t index, uint64_t bytes, uint32_t moment)
{
    ml_lifetime rest = w->lifetimes->rows[index];
    bool requested = rest.requested != ML_NEVER;
    end_row(w, index, moment);
    rest.start = moment;
    rest.requested = requested ? moment : ML_NEVER;
    rest.bytes = bytes;
    size_t added;
    int error = add_row(w, rest, &added);
    if (error == 0) {
        w->lifetimes->rows[index].rest = (uint32_t)added;
        error = note_change(w, added, moment);
    }
    return error;
}

static int
compare_row(ml_lifetimes_work *w, size_t index, uint32_t moment)
{
    const ml_lifetimes *lifetimes = w->lifetimes;
    const ml_lifetime *row = &lifetimes->rows[index];
    uint64_t birth = row->birth == 0 ? ML_BEFORE_EVENTS : row->birth - 1;
    uint64_t addr = ml_lifetimes_request(lifetimes, index).addr;
    ml_ledger_place place;
    bool found = ml_ledger_locate(w->ledger, addr, &place) &&
                 place.block.addr == addr && place.birth == birth &&
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
compare_rows(ml_lifetimes_work *w, uint32_t moment)
{
    int error = 0;
    /* A row that replaced an ended one was compared before. */
    for (size_t i = w->there_count; i-- > 0 && error == 0;) {
        error = compare_row(w, w->there[i], moment);
    }
    return error;
}

/* ---- Before the first event ---- */

static int
visit_segment(void *context, const ml_segment *segment)
{
    ml_lifetimes_work *w = context;
    w->stream = segment->stream;
    return 0;
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    ml_lifetimes_work *w = context;
    ml_lifetimes *lifetimes = w->lifetimes;
    (void)birth;
    if (block->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    size_t index;
    int error = add_row(
        w,
        (ml_lifetime){.bytes = block->size,
                      .earlier = lifetimes->earlier_count,
                      .requested = block->state == ML_BLOCK_ALLOCATED ? ML_NEVER : 0,
                      .end = ML_NEVER,
                      .tag = ML_CATEGORY_COUNT},
        &index);
    void *earlier = lifetimes->earlier;
    if (error == 0) {
        error = ml_grow(&earlier, &lifetimes->earlier_capacity, lifetimes->count,
                        sizeof(ml_earlier_block));
    }
    if (error == 0) {
        lifetimes->earlier = earlier;
        lifetimes->earlier[index] = (ml_earlier_block){.addr = block->addr,
                                                       .size = block->requested,
                                                       .stream = w->stream,
                                                       .stack = block->stack};
        lifetimes->earlier_count = lifetimes->count;
    }
    return error;
}

/* Without segments, reserved bytes are the allocated ones. */
static int
note_reserved(ml_lifetimes_work *w, uint32_t moment)
{
    ml_lifetimes *lifetimes = w->lifetimes;
    uint64_t bytes = w->totals->reserved;
    if (!w->has_segments ||
        (lifetimes->reserved_count != 0 &&
         lifetimes->reserved[lifetimes->reserved_count - 1].bytes == bytes)) {
        return 0;
    }
    void *reserved = lifetimes->reserved;
    int error = ml_grow(&reserved, &lifetimes->reserved_capacity,
                        lifetimes->reserved_count + 1, sizeof(ml_reserved_change));
    if (error == 0) {
        lifetimes->reserved = reserved;
        lifetimes->reserved[lifetimes->reserved_count++] =
            (ml_reserved_change){moment, bytes};
    }
    return error;
}

static int
begin_lifetimes(ml_lifetimes_work *w)
{
    ml_lifetimes *lifetimes = w->lifetimes;
    lifetimes->of_event =
        ml_alloc_zeroed(lifetimes->trace->event_count + 1, sizeof(uint32_t));
    if (lifetimes->of_event == NULL) {
        return ML_ENOMEM;
    }
    ml_ledger_visitor visitor = {w, visit_segment, visit_block};
    int error = ml_ledger_visit(w->ledger, &visitor);
    if (error == 0 && w->has_segments) {
        error = ml_mapped_pieces_begin(&w->pieces, lifetimes, w->ledger);
    }
    return error == 0 ? note_reserved(w, 0) : error;
}

int
ml_lifetimes_begin(ml_lifetimes *lifetimes, const ml_device_trace *trace,
                   ml_replay *replay, ml_lifetimes_work **out)
{
    if (trace->event_count > ML_LIFETIMES_EVENTS_MAX) {
        return ML_ELIMIT;
    }
    ml_lifetimes_work *w = ml_alloc_zeroed(1, sizeof(*w));
    if (w == NULL) {
        return ML_ENOMEM;
    }
    lifetimes->trace = trace;
    w->lifetimes = lifetimes;
    w->replay = replay;
    w->ledger = ml_replay_ledger(replay);
    w->totals = ml_ledger_current(w->ledger);
    w->has_segments = ml_replay_has_segments(replay);
    int error = begin_lifetimes(w);
    if (error < 0) {
        ml_lifetimes_end(w);
        return error;
    }
    *out = w;
    return 0;
}

/* ---- Tags ---- */

/* The row of the block in use at ADDR; NULL: none. */
static ml_lifetime *
row_at(const ml_lifetimes_work *w, uint64_t addr)
{
    ml_ledger_place place;
    if (!ml_ledger_locate(w->ledger, addr, &place) ||
        place.block.state == ML_BLOCK_INACTIVE) {
        return NULL;
    }
    size_t index = row_of(w->lifetimes, place.birth, place.block.addr);
    return index == SIZE_MAX ? NULL : &w->lifetimes->rows[index];
}

static void
apply_tag(const ml_lifetimes_work *w, const ml_tag *tag)
{
    ml_lifetime *row = row_at(w, tag->addr);
    /* A block that waits for its free has no owner. */
    if (row == NULL || row->requested != ML_NEVER) {
        return;
    }
    /* A module that is passed a tensor does not own it. */
    if (tag->category == ML_CATEGORY_INPUT
            ? row->tag == ML_CATEGORY_COUNT
            : row->tag != ML_CATEGORY_PARAMETER ||
                  tag->category == ML_CATEGORY_PARAMETER) {
        row->tag = tag->category;
        row->name = tag->name;
        row->module = tag->module;
    }
}

/* Applies the tags right before event INDEX. */
static void
apply_tags(ml_lifetimes_work *w, size_t index)
{
    const ml_device_trace *trace = w->lifetimes->trace;
    for (; w->next_tag < trace->tag_count && trace->tags[w->next_tag].position == index;
         w->next_tag++) {
        apply_tag(w, &trace->tags[w->next_tag]);
    }
}

/* ---- Event by event ---- */

/* The row of the block in use that EVENT, the last one, freed or replaced; SIZE_MAX:
 * none. */
static size_t
find_row(const ml_lifetimes_work *w, const ml_event *event)
{
    uint64_t birth;
    return ml_ledger_named(w->ledger, &birth) ? row_of(w->lifetimes, birth, event->addr)
                                              : SIZE_MAX;
}

/* Whether EVENT, at INDEX, completed or allocated a block, and of how many BYTES: the
 * ledger may have had no room for it. */
static bool
is_placed(const ml_lifetimes_work *w, const ml_event *event, size_t index,
          uint64_t *bytes)
{
    ml_ledger_place place;
    *bytes = event->block_bytes;
    if (ml_replay_fits(w->replay)) {
        return true;
    }
    bool placed = ml_ledger_locate(w->ledger, event->addr, &place) &&
                  place.block.addr == event->addr && place.birth == index &&
                  place.block.state != ML_BLOCK_INACTIVE;
    *bytes = placed ? place.block.size : 0;
    return placed;
}

/* TAKEN: the row that EVENT's allocation replaces, or SIZE_MAX. */
static int
follow_alloc(ml_lifetimes_work *w, const ml_event *event, size_t index, size_t taken)
{
    uint32_t moment = (uint32_t)index + 1;
    uint64_t bytes;
    bool placed = is_placed(w, event, index, &bytes);
    int error = 0;
    if (placed && taken != SIZE_MAX) {
        error = note_change(w, taken, moment);
        end_row(w, taken, moment);
    }
    size_t row;
    if (error == 0) {
        error = add_row(w,
                        (ml_lifetime){.bytes = bytes,
                                      .allocated = w->totals->allocated,
                                      .birth = moment,
                                      .start = moment,
                                      .requested = ML_NEVER,
                                      .end = ML_NEVER,
                                      .tag = ML_CATEGORY_COUNT},
                        &row);
    }
    if (error == 0) {
        w->lifetimes->of_event[index] = (uint32_t)row + 1;
    }
    if (error == 0 && !placed) {
        end_row(w, row, moment);
    }
    return error;
}

static void
follow_free(ml_lifetimes_work *w, const ml_event *event, size_t index, size_t row)
{
    w->lifetimes->of_event[index] = (uint32_t)row + 1;
    request_row(w, row, (uint32_t)index + 1);
    if (event->action == ML_ACTION_FREE_COMPLETED) {
        end_row(w, row, (uint32_t)index + 1);
    }
}

int
ml_lifetimes_next(ml_lifetimes_work *w)
{
    ml_lifetimes *lifetimes = w->lifetimes;
    size_t index = ml_replay_position(w->replay);
    uint32_t moment = (uint32_t)index + 1;
    apply_tags(w, index);
    if (index == lifetimes->trace->event_count) {
        return 0;
    }
    const ml_event *event = ml_replay_next(w->replay);
    size_t row = find_row(w, event);
    int error = 0;
    if (event->action == ML_ACTION_ALLOC) {
        error = follow_alloc(w, event, index, row);
    }
    else if (row != SIZE_MAX) {
        follow_free(w, event, index, row);
    }
    const ml_totals *totals = w->totals;
    if (error == 0 &&
        (totals->allocated != w->allocated || totals->active != w->active)) {
        error = compare_rows(w, moment);
    }
    /* Few events change what is mapped. */
    bool mapped =
        event->action > ML_ACTION_FREE_COMPLETED || totals->reserved != w->pieces.bytes;
    if (error == 0 && mapped && w->has_segments) {
        error = ml_mapped_pieces_follow(&w->pieces, event, w->ledger, moment);
    }
    if (error == 0 && mapped) {
        error = note_reserved(w, moment);
    }
    return error < 0 ? error : 1;
}

void
ml_lifetimes_end(ml_lifetimes_work *w)
{
    if (w != NULL) {
        for (size_t i = 0; i < w->there_count; i++) {
            w->lifetimes->rows[w->there[i]].rest = 0;
        }
        ml_mapped_pieces_fini(&w->pieces);
        ml_free(w->there);
        ml_free(w);
    }
}

void
ml_lifetimes_fini(ml_lifetimes *lifetimes)
{
    ml_free(lifetimes->rows);
    ml_free(lifetimes->of_event);
    ml_free(lifetimes->earlier);
    ml_free(lifetimes->changes);
    ml_free(lifetimes->reserved);
    ml_free(lifetimes->segments);
    *lifetimes = (ml_lifetimes){0};
}

/* ---- What a row is of ---- */

const ml_lifetime *
ml_lifetime_last(const ml_lifetimes *lifetimes, const ml_lifetime *row)
{
    return row->rest == 0
               ? row
               : &lifetimes
                      ->rows[last_of(lifetimes, ml_lifetimes_index(lifetimes, row))];
}

int
ml_lifetimes_parameters(const ml_lifetimes *lifetimes, uint64_t **sizes, size_t *count)
{
    *count = 0;
    *sizes = ml_alloc((lifetimes->count + 1) * sizeof(uint64_t));
    if (*sizes == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < lifetimes->count; i++) {
        const ml_lifetime *row = &lifetimes->rows[i];
        if (row->tag == ML_CATEGORY_PARAMETER) {
            (*sizes)[(*count)++] = ml_lifetimes_requested(lifetimes, row);
        }
    }
    qsort(*sizes, *count, sizeof(uint64_t), ml_compare_u64);
    return 0;
}
