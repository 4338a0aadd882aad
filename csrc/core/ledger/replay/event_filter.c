/* Removes some events of a recording.  See event_filter.h. */
#include "ledger/replay/event_filter.h"

#include <stdlib.h>

#include "base/base.h"
#include "ledger/replay/replay.h"

/* ---- What is not freed ---- */

/* The open events at an address, plus 1; 0: none. */
typedef struct open_block {
    uint64_t addr;
    size_t alloc;
    size_t request;
} open_block;

typedef struct pairing {
    ml_intern addresses;
    open_block *blocks; /* owned; by id */
    size_t capacity;
    bool *gone; /* owned; by event */
} pairing;

typedef struct sought_block {
    const pairing *among;
    uint64_t addr;
} sought_block;

static bool
is_at(const void *context, uint32_t id)
{
    const sought_block *w = context;
    return w->among->blocks[id].addr == w->addr;
}

static int
block_at(pairing *p, uint64_t addr, open_block **out)
{
    sought_block w = {p, addr};
    uint64_t hash = ml_hash_u64(addr);
    uint32_t id;
    if (!ml_intern_find(&p->addresses, hash, is_at, &w, &id)) {
        id = (uint32_t)p->addresses.count;
        if (ml_grow((void **)&p->blocks, &p->capacity, (size_t)id + 1,
                    sizeof(*p->blocks)) < 0 ||
            ml_intern_add(&p->addresses, hash) < 0) {
            return ML_ENOMEM;
        }
        p->blocks[id] = (open_block){.addr = addr};
    }
    *out = &p->blocks[id];
    return 0;
}

static int
pair_up(pairing *p, const ml_device_trace *trace)
{
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        open_block *block;
        if (event->action > ML_ACTION_FREE_COMPLETED) {
            continue;
        }
        int error = block_at(p, event->addr, &block);
        if (error < 0) {
            return error;
        }
        if (event->action == ML_ACTION_ALLOC) {
            block->alloc = i + 1;
            block->request = 0;
        }
        else if (block->alloc == 0) {
            /* It existed before. */
        }
        else if (event->action == ML_ACTION_FREE_REQUESTED) {
            block->request = i + 1;
        }
        else {
            p->gone[i] = p->gone[block->alloc - 1] = true;
            if (block->request > 0) {
                p->gone[block->request - 1] = true;
            }
            block->alloc = 0;
            block->request = 0;
        }
    }
    return 0;
}

/* Removes the marked events; a tag's position counts the events before it. */
static void
drop_gone(ml_device_trace *trace, const bool *gone)
{
    size_t kept = 0;
    size_t tag = 0;
    for (size_t i = 0; i <= trace->event_count; i++) {
        for (; tag < trace->tag_count && trace->tags[tag].position == i; tag++) {
            trace->tags[tag].position = kept;
        }
        if (i < trace->event_count && !gone[i]) {
            trace->events.plain[kept] = trace->events.plain[i];
            trace->events.plain[kept++].unused = 0;
        }
    }
    trace->event_count = kept;
    trace->begins_empty = false;
    /* Last uses are distances in events. */
    trace->use_count = 0;
}

/* Stores each block's size, which follows from its neighbours: these may be removed
 * later. */
static int
measure_blocks(const ml_recording *recording, size_t device)
{
    ml_device_trace *trace = &recording->devices[device];
    const ml_recording *part = ml_recording_part(recording, &device);
    ml_replay *replay;
    int error = ml_replay_new(part, device, &replay);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *applied = ml_replay_next(replay);
        if (applied->action <= ML_ACTION_FREE_COMPLETED) {
            trace->events.plain[i].block_bytes = applied->block_bytes;
            trace->events.plain[i].flags = applied->flags;
        }
    }
    ml_replay_free(replay);
    return 0;
}

int
ml_event_filter_unfreed(ml_recording *recording)
{
    int error = 0;
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        ml_device_trace *trace = &recording->devices[d];
        pairing p = {.gone = ml_alloc_zeroed(trace->event_count + 1, sizeof(bool))};
        bool plain = ml_events_unpack(&trace->events, trace->event_count) != NULL;
        error = p.gone == NULL || !plain ? ML_ENOMEM : measure_blocks(recording, d);
        error = error < 0 ? error : pair_up(&p, trace);
        if (error == 0) {
            drop_gone(trace, p.gone);
        }
        ml_intern_fini(&p.addresses);
        ml_free(p.blocks);
        ml_free(p.gone);
    }
    return error < 0 ? error : ml_recording_pack(recording);
}

/* ---- Segments as blocks ---- */

/* Pages may be mapped and unmapped in different runs: a run is cut wherever another
 * begins or ends. */
typedef struct edges {
    uint64_t *at; /* owned; sorted, each once */
    size_t count;
} edges;

typedef struct column {
    ml_event *events; /* owned */
    size_t count;
    size_t capacity;
} column;

/* Runs that overlap each other in all ways give a quadratic number of pieces. */
#define MOST_PIECES(runs) (UINT64_C(16) * (runs) + (1u << 20))

static int
compare_edges(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static bool
maps(unsigned action)
{
    return action == ML_ACTION_SEGMENT_MAP || action == ML_ACTION_SEGMENT_UNMAP;
}

static int
find_edges(const ml_device_trace *trace, edges *out)
{
    size_t count = 0;
    uint64_t *at =
        ml_alloc_zeroed(trace->event_count + trace->segment_count + 1, 2 * sizeof(*at));
    if (at == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        if (maps(ml_events_action(&trace->events, i))) {
            at[count++] = ml_events_addr(&trace->events, i);
            at[count++] =
                ml_events_addr(&trace->events, i) + ml_events_size(&trace->events, i);
        }
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].expandable) {
            at[count++] = trace->segments[i].addr;
            at[count++] = trace->segments[i].addr + trace->segments[i].total;
        }
    }
    qsort(at, count, sizeof(*at), compare_edges);
    out->at = at;
    for (size_t i = 0; i < count; i++) {
        if (out->count == 0 || at[out->count - 1] != at[i]) {
            at[out->count++] = at[i];
        }
    }
    return 0;
}

/* The end of the piece that begins at ADDR, at most END. */
static uint64_t
piece_end(const edges *e, uint64_t addr, uint64_t end)
{
    size_t next = ml_find_address(e->at, sizeof(*e->at), e->count, addr);
    next += next < e->count && e->at[next] == addr;
    return next < e->count && e->at[next] < end ? e->at[next] : end;
}

static int
add_event(column *c, ml_event event, uint8_t action)
{
    if (ml_grow((void **)&c->events, &c->capacity, c->count + 1, sizeof(*c->events)) <
        0) {
        return ML_ENOMEM;
    }
    event.action = action;
    event.block_bytes = event.size;
    event.flags |= ML_EVENT_BLOCK_KNOWN;
    c->events[c->count++] = event;
    return 0;
}

static int
add_piece(column *c, const ml_event *event)
{
    if (event->action == ML_ACTION_SEGMENT_ALLOC ||
        event->action == ML_ACTION_SEGMENT_MAP) {
        return add_event(c, *event, ML_ACTION_ALLOC);
    }
    int error = add_event(c, *event, ML_ACTION_FREE_REQUESTED);
    return error < 0 ? error : add_event(c, *event, ML_ACTION_FREE_COMPLETED);
}

static int
convert_events(const ml_device_trace *trace, const edges *e, column *c)
{
    uint64_t most = MOST_PIECES(trace->event_count);
    int error = 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        ml_event event = *ml_event_cursor_at(&cursor, i);
        if (event.action <= ML_ACTION_FREE_COMPLETED ||
            event.action > ML_ACTION_SEGMENT_UNMAP) {
            if (event.action > ML_ACTION_SEGMENT_UNMAP) {
                error = add_event(c, event, event.action);
            }
            continue;
        }
        uint64_t end = event.addr + event.size;
        while (event.addr < end && error == 0) {
            event.size =
                (maps(event.action) ? piece_end(e, event.addr, end) : end) - event.addr;
            error = c->count > most ? ML_ELIMIT : add_piece(c, &event);
            event.addr += event.size;
        }
    }
    return error;
}

typedef struct memory {
    ml_segment *segments; /* owned */
    size_t segment_capacity;
    ml_block *blocks; /* owned; one for each segment */
    size_t block_capacity;
    size_t count;
} memory;

static int
add_segment(memory *m, ml_segment segment)
{
    if (ml_grow((void **)&m->segments, &m->segment_capacity, m->count + 1,
                sizeof(*m->segments)) < 0 ||
        ml_grow((void **)&m->blocks, &m->block_capacity, m->count + 1,
                sizeof(*m->blocks)) < 0) {
        return ML_ENOMEM;
    }
    segment.allocated = segment.active = segment.requested = segment.total;
    segment.expandable = 0;
    segment.first_block = m->count;
    segment.block_count = 1;
    m->blocks[m->count] = (ml_block){.addr = segment.addr,
                                     .size = segment.total,
                                     .requested = segment.total,
                                     .stack = segment.stack,
                                     .state = ML_BLOCK_ALLOCATED};
    m->segments[m->count++] = segment;
    return 0;
}

static int
convert_memory(const ml_device_trace *trace, const edges *e, memory *m)
{
    uint64_t most = MOST_PIECES(trace->event_count + trace->segment_count);
    int error = 0;
    for (size_t i = 0; i < trace->segment_count && error == 0; i++) {
        ml_segment segment = trace->segments[i];
        uint64_t end = segment.addr + segment.total;
        /* Segments of a forged file may overlap. */
        uint64_t low =
            m->count == 0 ? 0
                          : m->blocks[m->count - 1].addr + m->blocks[m->count - 1].size;
        segment.addr = segment.addr < low ? low : segment.addr;
        while (segment.addr < end && error == 0) {
            segment.total =
                (segment.expandable ? piece_end(e, segment.addr, end) : end) -
                segment.addr;
            error = m->count > most ? ML_ELIMIT : add_segment(m, segment);
            segment.addr += segment.total;
            segment.expandable = trace->segments[i].expandable;
        }
    }
    return error;
}

static int
convert_device(ml_device_trace *trace)
{
    edges e = {0};
    column c = {0};
    memory m = {0};
    int error = find_edges(trace, &e);
    error = error < 0 ? error : convert_events(trace, &e, &c);
    error = error < 0 ? error : convert_memory(trace, &e, &m);
    ml_free(e.at);
    if (error < 0) {
        ml_free(c.events);
        ml_free(m.segments);
        ml_free(m.blocks);
        return error;
    }
    ml_events_free(&trace->events);
    ml_free(trace->segments);
    ml_free(trace->blocks);
    trace->begins_empty = false;
    trace->events.plain = c.events;
    trace->event_count = c.count;
    trace->segments = m.segments;
    trace->blocks = m.blocks;
    trace->segment_count = trace->block_count = m.count;
    trace->tag_count = 0;
    uint64_t most = trace->peak.reserved;
    trace->peak = (ml_totals){most, most, most, most};
    return 0;
}

int
ml_event_filter_segments(ml_recording *recording)
{
    int error = 0;
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        error = convert_device(&recording->devices[d]);
    }
    recording->rules = (ml_allocator_rules){.max_split_bytes = UINT64_MAX};
    for (size_t i = 0; i < recording->rank_count; i++) {
        if (recording->ranks[i].part != NULL) {
            recording->ranks[i].part->rules = recording->rules;
        }
    }
    return error < 0 ? error : ml_recording_pack(recording);
}
