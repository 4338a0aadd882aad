/* The memory of a file's devices, moved from one start to a later one.  See
 * journal_trim.h.
 *
 * A ledger follows the events as a reader of the file would: so the new start says what a
 * reader of the whole file finds there. */
#include <string.h>

#include "file/journal/journal_trim_parts.h"

/* A chunk has thousands: a mark at its end alone may be too late to tell a block's birth
 * from a note shortly after. */
#define EVENTS_OF_A_MARK 256

static ml_allocator_rules
rules_of(const trim_device *device)
{
    return ml_mlab_start_rules(device->known ? &device->start : NULL);
}

static int
begin_ledger(trim_device *device)
{
    ml_allocator_rules rules = rules_of(device);
    if (device->ledger != NULL) {
        ml_ledger_clear(device->ledger, &rules);
        return 0;
    }
    return ml_ledger_new(&device->ledger, &rules, 0);
}

/* ---- The start that the file has ---- */

static int
take_start(ml_trim *trim, const ml_packed_other *record)
{
    ml_mlab_start start;
    memcpy(&start, record->bytes, sizeof(start));
    trim_device *device = &trim->devices[start.device % ML_DEVICE_MAX];
    device->start = start;
    device->known = true;
    device->complete = false;
    return begin_ledger(device);
}

static int
take_segment(ml_trim *trim, const ml_packed_other *record)
{
    uint32_t device;
    ml_segment segment;
    if (!ml_mlab_segment_read(record, &device, &segment)) {
        return 0;
    }
    ml_ledger *ledger = trim->devices[device % ML_DEVICE_MAX].ledger;
    return ledger != NULL ? ml_ledger_seed_segment(ledger, &segment) : 0;
}

static int
take_block(ml_trim *trim, const ml_packed_other *record)
{
    uint32_t device;
    ml_block block;
    if (!ml_mlab_block_read(record, &device, &block)) {
        return 0;
    }
    ml_ledger *ledger = trim->devices[device % ML_DEVICE_MAX].ledger;
    return ledger != NULL ? ml_ledger_seed_block(ledger, &block) : 0;
}

int
trim_take_start(ml_trim *trim, const ml_packed_other *record)
{
    ml_mlab_device started;
    switch (record->kind) {
    case ML_MLAB_START:
        return take_start(trim, record);
    case ML_MLAB_SEGMENT:
        return take_segment(trim, record) == ML_EFULL ? ML_ENOMEM : 0;
    case ML_MLAB_BLOCK:
        return take_block(trim, record) == ML_EFULL ? ML_ENOMEM : 0;
    case ML_MLAB_STARTED:
        memcpy(&started, record->bytes, sizeof(started));
        trim->devices[started.device % ML_DEVICE_MAX].complete = true;
        return 0;
    default:
        return 0;
    }
}

/* ---- The events ---- */

/* Those between the events followed so far and the chunk HEADER are missing. */
static int
skip(trim_device *device, ml_mlab_trim_lane *lane, const ml_chunk *header)
{
    uint64_t start = device->start.events;
    uint64_t from = lane->events > start ? lane->events : start;
    lane->dropped += header->dropped;
    lane->events = header->first;
    if (header->first <= from) {
        return 0;
    }
    uint64_t missing = header->first - from;
    uint64_t before =
        device->gap_count > 0 ? device->gaps[device->gap_count - 1].missing : 0;
    if (ml_grow((void **)&device->gaps, &device->gap_capacity, device->gap_count + 1,
                sizeof(*device->gaps)) < 0) {
        return ML_ENOMEM;
    }
    device->gaps[device->gap_count++] = (trim_gap){header->first, before + missing};
    lane->gone += missing;
    lane->missing += missing;
    return 0;
}

static int
put_mark(trim_device *device)
{
    if (ml_grow((void **)&device->marks, &device->mark_capacity, device->mark_count + 1,
                sizeof(*device->marks)) < 0) {
        return ML_ENOMEM;
    }
    device->marks[device->mark_count++] = (trim_mark){device->followed, device->ticks};
    return 0;
}

int
trim_follow(ml_trim *trim, unsigned number, ml_chunk_reader *chunk,
            const ml_chunk *header)
{
    trim_device *device = &trim->devices[number];
    ml_mlab_trim_lane *lane = &trim->lanes[number];
    int result = skip(device, lane, header);
    if (result == 0 && device->ledger == NULL) {
        result = begin_ledger(device);
    }
    if (result < 0) {
        return result;
    }
    ml_event event;
    ml_packed_other other;
    int found;
    while ((found = ml_chunk_next(chunk, &event, &other)) > 0) {
        if (found == ML_PACKED_EVENT && lane->events++ >= device->start.events) {
            device->ticks = event.time;
            device->followed++;
            lane->gone++;
            ml_ledger_follow(device->ledger, &event);
            if (device->followed % EVENTS_OF_A_MARK == 0 && put_mark(device) < 0) {
                return ML_ENOMEM;
            }
        }
    }
    if (put_mark(device) < 0) {
        return ML_ENOMEM;
    }
    lane->chunk++;
    return found;
}

uint64_t
trim_events(const ml_trim *trim, unsigned device)
{
    uint64_t start = trim->devices[device].start.events;
    uint64_t events = trim->lanes[device].events;
    return events > start ? events : start;
}

uint64_t
trim_last_ticks(const ml_trim *trim)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < ML_DEVICE_MAX; i++) {
        uint64_t ticks = trim->devices[i].ticks;
        last = ticks > last ? ticks : last;
    }
    return last;
}

/* Whether a block holds ADDR now; *BIRTH is as for a visitor of the ledger. */
static bool
find_live(const trim_device *device, uint64_t addr, uint64_t *birth)
{
    ml_ledger_place place;
    if (device->ledger == NULL || !ml_ledger_locate(device->ledger, addr, &place)) {
        return false;
    }
    *birth = place.birth;
    return place.block.state != ML_BLOCK_INACTIVE;
}

bool
trim_lives_since(const ml_trim *trim, unsigned number, uint64_t addr, uint64_t ticks)
{
    const trim_device *device = &trim->devices[number];
    uint64_t birth;
    size_t at;
    if (!find_live(device, addr, &birth)) {
        return false;
    }
    ML_SEARCH(at, device->mark_count, device->marks[at].followed <= birth);
    return birth == ML_BEFORE_EVENTS ||
           (at < device->mark_count && device->marks[at].ticks <= ticks);
}

bool
trim_lives(const ml_trim *trim, unsigned number, uint64_t addr, uint64_t events)
{
    const trim_device *device = &trim->devices[number];
    uint64_t birth;
    if (!find_live(device, addr, &birth)) {
        return false;
    }
    if (birth == ML_BEFORE_EVENTS) {
        return true;
    }
    /* The ledger counts the events that it followed. */
    uint64_t missing = 0;
    for (size_t i = 0; i < device->gap_count && device->gaps[i].events <= events; i++) {
        missing = device->gaps[i].missing;
    }
    uint64_t since = events > device->start.events ? events - device->start.events : 0;
    return birth + missing < since;
}

/* ---- The new start ---- */

typedef struct memory_writer {
    ml_journal *journal;
    unsigned device;
} memory_writer;

static int
put_segment(void *context, const ml_segment *segment)
{
    const memory_writer *writer = context;
    struct {
        ml_mlab_segment segment;
        uint32_t stack;
    } record = {
        .segment =
            {
                .addr = segment->addr,
                .total = segment->total,
                .stream = segment->stream,
                .pool = {segment->pool[0], segment->pool[1]},
                .device = writer->device,
                .small = segment->small,
                .expandable = segment->expandable,
            },
        .stack = segment->stack,
    };
    trim_put(writer->journal, ML_MLAB_SEGMENT, &record,
             sizeof(record.segment) + sizeof(record.stack));
    return 0;
}

static int
put_block(void *context, const ml_block *block, uint64_t birth)
{
    const memory_writer *writer = context;
    (void)birth;
    if (block->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    struct {
        ml_mlab_block block;
        uint32_t stack;
    } record = {
        .block =
            {
                .addr = block->addr,
                .size = block->size,
                .requested = block->requested,
                .device = writer->device,
                .state = block->state,
            },
        .stack = block->stack,
    };
    trim_put(writer->journal, ML_MLAB_BLOCK, &record,
             sizeof(record.block) + sizeof(record.stack));
    return 0;
}

void
trim_put_memory(ml_journal *journal)
{
    const ml_trim *trim = journal->trimmer->trim;
    for (unsigned i = 0; i < ML_DEVICE_MAX; i++) {
        const trim_device *device = &trim->devices[i];
        if (device->ledger == NULL) {
            continue;
        }
        ml_allocator_rules rules = rules_of(device);
        ml_mlab_start start = {
            .events = trim_events(trim, i),
            .max_split_bytes = rules.max_split_bytes,
            .device = i,
            .expandable_segments = rules.expandable_segments,
            .has_segments = rules.has_segments,
        };
        memcpy(start.roundup_divisions, rules.roundup_divisions,
               sizeof(start.roundup_divisions));
        trim_put(journal, ML_MLAB_START, &start, sizeof(start));
        memory_writer writer = {journal, i};
        ml_ledger_visitor visitor = {&writer, put_segment, put_block};
        ml_ledger_visit(device->ledger, &visitor);
        if (device->complete) {
            ml_mlab_device started = {.device = i};
            trim_put(journal, ML_MLAB_STARTED, &started, sizeof(started));
        }
    }
}
