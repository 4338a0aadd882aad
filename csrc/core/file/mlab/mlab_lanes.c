/* Reads the lanes of a .mlab file, chunk by chunk, and counts missing events.  See
 * mlab_reader.h. */
#include "file/mlab/mlab_parts.h"

unsigned
mlab_lane_of(const mlab_reader *reader, const ml_chunk *chunk)
{
    switch (chunk->kind) {
    case ML_MLAB_CONTROL:
        return ML_MLAB_LANES;
    case ML_MLAB_START_DEFINITIONS:
        return MLAB_START_DEFINITIONS;
    case ML_MLAB_START_CONTROL:
        return MLAB_START_CONTROL;
    default:
        break;
    }
    unsigned number = reader->ordered ? chunk->device : chunk->lane;
    unsigned other = reader->ordered ? chunk->lane : chunk->device;
    return chunk->kind == ML_MLAB_EVENTS && number < ML_MLAB_LANES && other == 0
               ? number
               : MLAB_NO_LANE;
}

static int
add_gap(mlab_reader *reader, unsigned device, uint64_t position, uint64_t dropped,
        uint64_t lost)
{
    ml_mlab_info *info = reader->info;
    if (dropped == 0 && lost == 0) {
        return 0;
    }
    if (ml_grow((void **)&info->gaps, &reader->gap_capacity, info->gap_count + 1,
                sizeof(*info->gaps)) < 0) {
        return ML_ENOMEM;
    }
    info->gaps[info->gap_count++] = (ml_mlab_gap){
        .position = position, .dropped = dropped, .lost = lost, .device = device};
    return 0;
}

static int
add_place(mlab_reader *reader, unsigned device, uint64_t ordinal, uint64_t index)
{
    if (ml_grow((void **)&reader->places[device], &reader->place_capacity[device],
                reader->place_count[device] + 1, sizeof(mlab_place)) < 0) {
        return ML_ENOMEM;
    }
    reader->places[device][reader->place_count[device]++] =
        (mlab_place){ordinal, index};
    return 0;
}

/* The events between the part of LANE read so far and ORDINAL are missing; at most
 * DROPPED of them were never stored.  Events before the final start do not count. */
static int
skip_to(mlab_reader *reader, mlab_lane *lane, uint64_t ordinal, uint64_t dropped)
{
    ml_device_trace *trace = ml_recording_add_device(reader->recording, lane->device);
    if (trace == NULL) {
        return ML_ENOMEM;
    }
    uint64_t missing = ordinal > lane->ordinal ? ordinal - lane->ordinal : 0;
    dropped = dropped < missing ? dropped : missing;
    lane->dropped += dropped;
    uint64_t start = reader->ordered ? reader->starts[lane->device].head.events : 0;
    uint64_t before = start > lane->ordinal ? start - lane->ordinal : 0;
    lane->ordinal += missing;
    missing = missing > before ? missing - before : 0;
    dropped = dropped < missing ? dropped : missing;
    return add_gap(reader, lane->device, trace->event_count, dropped,
                   missing - dropped);
}

/* Counts the events missing between the part read so far and the chunk HEADER. */
static int
skip_gap(mlab_reader *reader, const ml_device_trace *trace, mlab_lane *lane,
         const ml_chunk *header)
{
    int result = skip_to(reader, lane, header->first, header->dropped);
    if (result == 0 && reader->ordered) {
        result = add_place(reader, lane->device, lane->ordinal, trace->event_count);
    }
    return result;
}

/* An event with an invalid size changes no memory, as in a snapshot. */
static void
check_sizes(mlab_reader *reader, ml_event *event)
{
    if (event->size > ML_SIZE_MOST) {
        reader->recording->unread[ML_UNREAD_EVENT_SIZE]++;
        event->size = 0;
        event->action = ML_ACTION_OTHER;
    }
    if (event->action == ML_ACTION_OOM && event->addr > ML_SIZE_MOST) {
        reader->recording->unread[ML_UNREAD_EVENT_ADDR]++;
        event->addr = 0;
        event->action = ML_ACTION_OTHER;
    }
    if (event->block_bytes > ML_SIZE_MOST) {
        reader->recording->unread[ML_UNREAD_MEMLAB_EVENT]++;
        event->block_bytes = 0;
        event->flags &= (uint8_t)~ML_EVENT_BLOCK_KNOWN;
    }
}

/* The place of the next event of TRACE, of DEVICE; NULL: no memory. */
static ml_event *
next_event(mlab_reader *reader, ml_device_trace *trace, unsigned device)
{
    if (reader->writer != NULL) {
        reader->writer->events = &trace->events;
        bool full = reader->writer->count == ML_EVENTS_CHUNK;
        return full && mlab_pack_events(reader, device) < 0
                   ? NULL
                   : ml_event_writer_next(reader->writer);
    }
    return ml_grow((void **)&trace->events.plain, &reader->event_capacity[device],
                   trace->event_count + 1, sizeof(ml_event)) == 0
               ? &trace->events.plain[trace->event_count]
               : NULL;
}

/* Keeps EVENT, which next_event() gave. */
static void
keep_event(mlab_reader *reader, ml_device_trace *trace, mlab_lane *lane,
           ml_event *event)
{
    uint64_t start = reader->starts[lane->device].head.events;
    if (lane->ordinal++ < start && reader->ordered) {
        /* From before the memory was read for good. */
        return;
    }
    trace->event_count++;
    if (!reader->tells_uses) {
        /* Wanted by a recording beside this one, which shares its records. */
        event->unused = 0;
    }
    check_sizes(reader, event);
    if (reader->writer != NULL) {
        ml_event_writer_keep(reader->writer);
    }
}

int
mlab_begin_lane(mlab_reader *reader, mlab_lane *lane, unsigned number)
{
    bool events = number < ML_MLAB_LANES;
    *lane =
        (mlab_lane){.number = number, .device = reader->ordered && events ? number : 0};
    if (!events || reader->trims == 0) {
        return 0;
    }
    const ml_mlab_trim_lane *trim = &reader->trim_lanes[number];
    uint64_t dropped = trim->dropped < trim->missing ? trim->dropped : trim->missing;
    lane->ordinal = trim->events;
    lane->dropped = trim->dropped;
    if (trim->gone != 0 &&
        ml_recording_add_device(reader->recording, lane->device) == NULL) {
        return ML_ENOMEM;
    }
    return add_gap(reader, lane->device, 0, dropped, trim->missing - dropped);
}

/* Counts the events missing before the chunk HEADER. */
int
mlab_begin_chunk(mlab_reader *reader, mlab_lane *lane, const ml_chunk *header)
{
    if (lane->number > ML_MLAB_LANES) {
        return 0;
    }
    if (lane->number == ML_MLAB_LANES) {
        uint64_t from = reader->trim_lanes[ML_MLAB_LANES].events;
        from = header->first < from ? header->first : from;
        lane->ordinal = lane->ordinal > from ? lane->ordinal : from;
        uint64_t missing =
            header->first > lane->ordinal ? header->first - lane->ordinal : 0;
        reader->info->lost_records += missing;
        lane->ordinal += missing;
        return 0;
    }
    ml_device_trace *trace = ml_recording_add_device(reader->recording, lane->device);
    return trace != NULL ? skip_gap(reader, trace, lane, header) : ML_ENOMEM;
}

static int
read_events(mlab_reader *reader, mlab_lane *lane, ml_chunk_reader *chunk)
{
    ml_device_trace *trace = ml_recording_add_device(reader->recording, lane->device);
    const uint8_t *before = chunk->at;
    while (trace != NULL) {
        ml_event *event = next_event(reader, trace, lane->device);
        if (event == NULL) {
            return ML_ENOMEM;
        }
        ml_packed_other other;
        int found = ml_chunk_next(chunk, event, &other);
        uint64_t bytes = (uint64_t)(chunk->at - before);
        before = chunk->at;
        if (found == ML_PACKED_EVENT) {
            reader->info->event_bytes += bytes;
            keep_event(reader, trace, lane, event);
        }
        else if (found == ML_PACKED_OTHER) {
            reader->info->definition_bytes += bytes;
            mlab_define(reader, &other);
        }
        else {
            /* Committed and with the right checksum, yet invalid. */
            reader->info->damaged_chunks += found < 0;
            reader->info->unread_records += chunk->state.skipped;
            return 0;
        }
    }
    return ML_ENOMEM;
}

static int
read_control(mlab_reader *reader, mlab_lane *lane, ml_chunk_reader *chunk)
{
    ml_event event;
    ml_packed_other other;
    int found = ML_PACKED_END;
    int result = 0;
    const uint8_t *before = chunk->at;
    uint64_t from = reader->trim_lanes[ML_MLAB_LANES].events;
    while (result == 0 && (found = ml_chunk_next(chunk, &event, &other)) > 0) {
        if (found != ML_PACKED_OTHER) {
            continue;
        }
        if (lane->number == MLAB_START_CONTROL || lane->ordinal++ >= from) {
            result = mlab_control(reader, &other);
        }
    }
    reader->info->damaged_chunks += found < 0;
    reader->info->control_bytes += (uint64_t)(chunk->at - before);
    return result;
}

static void
read_definitions(mlab_reader *reader, ml_chunk_reader *chunk)
{
    ml_event event;
    ml_packed_other other;
    int found;
    const uint8_t *before = chunk->at;
    while ((found = ml_chunk_next(chunk, &event, &other)) > 0) {
        if (found == ML_PACKED_OTHER) {
            mlab_define(reader, &other);
        }
    }
    reader->info->damaged_chunks += found < 0;
    reader->info->definition_bytes += (uint64_t)(chunk->at - before);
}

int
mlab_read_chunk(mlab_reader *reader, mlab_lane *lane, ml_chunk_reader *chunk)
{
    if (lane->number == MLAB_START_DEFINITIONS) {
        read_definitions(reader, chunk);
        return 0;
    }
    return lane->number < ML_MLAB_LANES ? read_events(reader, lane, chunk)
                                        : read_control(reader, lane, chunk);
}

int
mlab_end_lane(mlab_reader *reader, mlab_lane *lane, const ml_mlab_lane *counted)
{
    uint64_t events = atomic_load(&counted->events);
    uint64_t dropped = atomic_load(&counted->dropped);
    if (events <= lane->ordinal) {
        return 0;
    }
    if (lane->number == ML_MLAB_LANES) {
        reader->info->lost_records += events - lane->ordinal;
        lane->ordinal = events;
        return 0;
    }
    return skip_to(reader, lane, events,
                   dropped > lane->dropped ? dropped - lane->dropped : 0);
}
