/* Computes the memory at the end of a .mlab file from the start and the events.  See
 * mlab_reader.h. */
#include <string.h>

#include "file/mlab/mlab_parts.h"
#include "ledger/ledger.h"
#include "ledger/replay/replay.h"
#include "ledger/replay/unordered_events.h"

typedef struct memory {
    ml_device_trace *trace;
    size_t segment_capacity;
    size_t block_capacity;
} memory;

static int
keep_segment(void *context, const ml_segment *segment)
{
    memory *to = context;
    ml_device_trace *trace = to->trace;
    if (ml_grow((void **)&trace->segments, &to->segment_capacity,
                trace->segment_count + 1, sizeof(*segment)) < 0) {
        return ML_ENOMEM;
    }
    ml_segment *copy = &trace->segments[trace->segment_count++];
    *copy = *segment;
    copy->first_block = trace->block_count;
    copy->block_count = 0;
    return 0;
}

static int
keep_block(void *context, const ml_block *block, uint64_t birth)
{
    memory *to = context;
    ml_device_trace *trace = to->trace;
    (void)birth;
    if (ml_grow((void **)&trace->blocks, &to->block_capacity, trace->block_count + 1,
                sizeof(*block)) < 0) {
        return ML_ENOMEM;
    }
    ml_block *copy = &trace->blocks[trace->block_count++];
    *copy = *block;
    if (block->state == ML_BLOCK_INACTIVE) {
        copy->stack = 0;
    }
    trace->segments[trace->segment_count - 1].block_count++;
    return 0;
}

/* Overlapping or misplaced parts are left out and counted in *MISFITS. */
static int
seed(ml_ledger *ledger, const mlab_start *start, uint64_t *misfits)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        const ml_segment *segment = &start->segments[i];
        int result = ml_ledger_seed_segment(ledger, segment);
        if (result == ML_EFULL) {
            return ML_ENOMEM;
        }
        *misfits += result < 0;
        for (size_t b = 0; b < segment->block_count && result == 0; b++) {
            const ml_block *block = &start->blocks[segment->first_block + b];
            int seeded = ml_ledger_seed_block(ledger, block);
            if (seeded == ML_EFULL) {
                return ML_ENOMEM;
            }
            *misfits += seeded < 0;
        }
    }
    return 0;
}

int
mlab_begin_memory(mlab_reader *reader, unsigned device, size_t events)
{
    const mlab_start *start = &reader->starts[device];
    ml_allocator_rules rules = ml_mlab_start_rules(start->known ? &start->head : NULL);
    ml_ledger **ledger = &reader->ledgers[device];
    int result = ml_ledger_new(
        ledger, &rules, 2 * (start->segment_count + start->block_count + events) + 1);
    if (result == 0) {
        result = seed(*ledger, start, &reader->info->unread_records);
        ml_ledger_reset_peaks(*ledger);
    }
    return result;
}

/* An event from before the recorder's ledger followed the device lacks its facts; others
 * keep theirs. */
static void
complete(ml_ledger *ledger, ml_event *event)
{
    uint64_t bytes = event->block_bytes;
    uint32_t origin = event->origin_stack;
    uint8_t flags = event->flags;
    ml_ledger_follow(ledger, event);
    if (bytes != 0) {
        event->block_bytes = bytes;
        event->flags = flags;
    }
    event->origin_stack = origin != 0 ? origin : event->origin_stack;
}

void
mlab_follow_memory(mlab_reader *reader, unsigned device, ml_event *events, size_t count)
{
    ml_ledger *ledger = reader->ledgers[device];
    for (size_t i = 0; i < count; i++) {
        ml_ledger_expect(ledger, &events[i], count - i);
        complete(ledger, &events[i]);
    }
}

int
mlab_pack_events(mlab_reader *reader, unsigned device)
{
    ml_event_writer *writer = reader->writer;
    mlab_tell_times(reader, writer->window, writer->count);
    mlab_follow_memory(reader, device, writer->window, writer->count);
    return ml_event_writer_flush(writer);
}

static void
add_to_peak(ml_device_trace *trace, const ml_totals *now)
{
#define XX(name) \
    trace->peak.name = now->name > trace->peak.name ? now->name : trace->peak.name;
    ML_TOTALS(XX)
#undef XX
}

static int
tell_memory(const ml_ledger *ledger, const mlab_start *start, ml_device_trace *trace)
{
    ml_ledger_totals totals = ml_ledger_get_totals(ledger);
    trace->peak = totals.peak;
    trace->begins_empty = start->complete && start->segment_count == 0 &&
                          totals.inconsistencies == 0 && trace->dropped_events == 0;
    memory to = {.trace = trace};
    ml_ledger_visitor visitor = {&to, keep_segment, keep_block};
    return ml_ledger_visit(ledger, &visitor);
}

/* What the file told of the time before its start. */
static void
tell_dropped(const ml_mlab_trim_lane *trim, ml_device_trace *trace)
{
    ml_totals peaks = {trim->peaks[0], trim->peaks[1], trim->peaks[2], trim->peaks[3]};
    add_to_peak(trace, &peaks);
    trace->overwritten_events = trim->gone - trim->missing;
}

/* The events are plain where no writer packed them. */
static int
follow_device(mlab_reader *reader, unsigned device)
{
    ml_device_trace *trace = &reader->recording->devices[device];
    int result = 0;
    if (reader->ledgers[device] == NULL) {
        result = mlab_begin_memory(reader, device, trace->event_count);
        if (result == 0) {
            mlab_follow_memory(reader, device, trace->events.plain, trace->event_count);
        }
    }
    if (result == 0) {
        result = tell_memory(reader->ledgers[device], &reader->starts[device], trace);
        tell_dropped(&reader->trim_lanes[device], trace);
    }
    ml_ledger_free(reader->ledgers[device]);
    reader->ledgers[device] = NULL;
    return result;
}

/* The memory at an instant is unknown.  The walk at the start and the events together
 * tell the memory at the end; undoing the events then gives that at the start. */
static int
find_start_memory(mlab_reader *reader, ml_device_trace *trace, mlab_start *start)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        ml_segment *segment = &start->segments[i];
        bool held = segment->block_count > 0;
        const ml_block *block = held ? &start->blocks[segment->first_block] : NULL;
        segment->requested = held ? block->requested : segment->total;
        segment->active = segment->total;
        segment->stack = held ? block->stack : 0;
        segment->allocated =
            held && block->state != ML_BLOCK_ALLOCATED ? 0 : segment->total;
    }
    trace->segments = start->segments;
    trace->segment_count = start->segment_count;
    start->segments = NULL;
    start->segment_count = 0;
    int result = ml_unordered_events_end_memory(trace);
    ml_replay *replay = NULL;
    if (result == 0) {
        result = ml_replay_new(reader->recording, 0, &replay);
    }
    while (result == 0) {
        add_to_peak(trace, ml_replay_totals(replay));
        if (ml_replay_next(replay) == NULL) {
            break;
        }
    }
    ml_replay_free(replay);
    return result;
}

int
mlab_finish_memory(mlab_reader *reader)
{
    ml_recording *recording = reader->recording;
    int result = 0;
    for (unsigned d = 0; d < ML_DEVICE_MAX && result == 0; d++) {
        const mlab_start *start = &reader->starts[d];
        if (start->known && ml_recording_add_device(reader->recording, d) == NULL) {
            return ML_ENOMEM;
        }
    }
    /* All recorded devices have the same; other devices' are unknown. */
    size_t told = 0;
    while (told + 1 < recording->device_count && !reader->starts[told].known) {
        told++;
    }
    const mlab_start *first = &reader->starts[told];
    recording->rules = ml_mlab_start_rules(first->known ? &first->head : NULL);
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        mlab_start *start = &reader->starts[d];
        ml_device_trace *trace = &recording->devices[d];
        bool recorded =
            start->known || trace->event_count > 0 || trace->dropped_events > 0;
        reader->info->unknown_starts += recorded && !start->complete;
        reader->info->repeated_starts += start->repeated;
        result = reader->ordered ? follow_device(reader, (unsigned)d)
                                 : find_start_memory(reader, trace, start);
    }
    return result;
}
