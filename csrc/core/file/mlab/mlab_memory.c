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

/* An event from before the ledger followed its device lacks the ledger's facts. */
static bool
is_incomplete(const ml_event *event, const ml_event *followed)
{
    return (event->block_bytes == 0 && (followed->flags & ML_EVENT_BLOCK_KNOWN) != 0) ||
           (event->origin_stack == 0 && followed->origin_stack != 0);
}

static void
complete(ml_event *event, const ml_event *followed)
{
    if (event->block_bytes == 0 && (followed->flags & ML_EVENT_BLOCK_KNOWN) != 0) {
        event->block_bytes = followed->block_bytes;
        event->flags |= ML_EVENT_BLOCK_KNOWN;
    }
    if (event->origin_stack == 0) {
        event->origin_stack = followed->origin_stack;
    }
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
follow(ml_device_trace *trace, const mlab_start *start, const ml_allocator_rules *rules,
       uint64_t *misfits)
{
    ml_ledger *ledger;
    int result = ml_ledger_new(
        &ledger, rules,
        2 * (start->segment_count + start->block_count + trace->event_count) + 1);
    if (result < 0) {
        return result;
    }
    result = seed(ledger, start, misfits);
    ml_ledger_reset_peaks(ledger);
    trace->peak = *ml_ledger_current(ledger);
    ml_event_editor editor;
    ml_event_editor_init(&editor, &trace->events, ML_EVENT_MEMORY,
                         ML_EVENT_BIT(block_bytes) | ML_EVENT_BIT(flags) |
                             ML_EVENT_BIT(origin_stack));
    for (size_t i = 0; i < trace->event_count && result == 0; i++) {
        const ml_event *told = ml_event_editor_see(&editor, i);
        ml_event followed = *told;
        ml_ledger_follow(ledger, &followed);
        if (is_incomplete(told, &followed)) {
            complete(ml_event_editor_at(&editor, i), &followed);
        }
        add_to_peak(trace, ml_ledger_current(ledger));
    }
    int edited = ml_event_editor_end(&editor);
    result = result == 0 ? edited : result;
    if (result == 0) {
        memory to = {.trace = trace};
        ml_ledger_visitor visitor = {&to, keep_segment, keep_block};
        result = ml_ledger_visit(ledger, &visitor);
    }
    ml_ledger_free(ledger);
    return result;
}

/* The memory at an instant is unknown.  The walk at the start and the events together
 * tell the memory at the end; undoing the events then gives that at the start. */
static int
settle(mlab_reader *reader, ml_device_trace *trace, mlab_start *start)
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

static ml_allocator_rules
rules_of(const mlab_start *start)
{
    ml_allocator_rules rules = {.max_split_bytes = UINT64_MAX, .has_segments = 1};
    if (start->known) {
        rules.max_split_bytes = start->head.max_split_bytes;
        memcpy(rules.roundup_divisions, start->head.roundup_divisions,
               sizeof(rules.roundup_divisions));
        rules.expandable_segments = start->head.expandable_segments;
        rules.has_segments = start->head.has_segments;
    }
    return rules;
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
    recording->rules = rules_of(&reader->starts[told]);
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        mlab_start *start = &reader->starts[d];
        ml_allocator_rules rules = rules_of(start);
        ml_device_trace *trace = &recording->devices[d];
        bool recorded =
            start->known || trace->event_count > 0 || trace->dropped_events > 0;
        reader->info->unknown_starts += recorded && !start->complete;
        reader->info->repeated_starts += start->repeated;
        result = reader->ordered
                     ? follow(trace, start, &rules, &reader->info->unread_records)
                     : settle(reader, trace, start);
    }
    return result;
}
