/* Merges the lanes of an unordered source into one history, and finds the memory at its
 * end.
 *
 * There is no instant at which events and memory can be read as a whole.  So the memory
 * is walked first, and the events are copied after.  For an address in the events, the
 * last event decides whether it is live at the end; for other addresses, the walk
 * decides.  One case is missed: an allocation in progress on another thread, at an
 * address without events, looks older than all events. */
#include <string.h>

#include "base/base.h"
#include "ledger/replay/unordered_events.h"
#include "record/window.h"

/* Merges by time, newest events first, back to a lane's loss of events. */
static int
merge_lanes(const ml_window *window, ml_device_trace *trace)
{
    const ml_feed *feed = window->feed;
    uint64_t limit = atomic_load(&window->entry_limit);
    size_t capacity = 0;
    uint64_t recorded = 0;
    uint64_t whole_from = 0; /* time from which on no lane lacks an event */
    for (int i = 0; i < ML_FEED_LANES; i++) {
        ml_lane *lane = &feed->threads[i].lane;
        uint64_t end = ml_lane_end(lane);
        uint64_t total = end - window->marks[i];
        uint64_t kept = end - ml_lane_oldest(lane);
        uint64_t room = total < limit ? total : limit;
        room = room < kept ? room : kept;
        int result = ml_grow((void **)&trace->events.plain, &capacity,
                             trace->event_count + (size_t)room, sizeof(ml_event));
        if (result < 0) {
            return result;
        }
        if (room > 0) {
            ml_event *copy = trace->events.plain + trace->event_count;
            size_t count = ml_lane_copy(lane, window->marks[i], end, room, copy);
            if (count < total && count > 0 && copy[0].time > whole_from) {
                whole_from = copy[0].time;
            }
            trace->event_count += count;
            recorded += total;
        }
    }
    if (ml_unordered_events_sort(trace->events.plain, trace->event_count) < 0) {
        return ML_ENOMEM;
    }
    size_t excess = trace->event_count > limit ? trace->event_count - (size_t)limit : 0;
    while (excess < trace->event_count &&
           ml_events_time(&trace->events, excess) < whole_from) {
        excess++;
    }
    if (excess > 0) {
        trace->event_count -= excess;
        memmove(trace->events.plain, trace->events.plain + excess,
                trace->event_count * sizeof(ml_event));
    }
    trace->overwritten_events = recorded - trace->event_count;
    return 0;
}

int
ml_window_freeze_lanes(const ml_window *window, ml_device_trace *trace)
{
    int result = merge_lanes(window, trace);
    if (result < 0) {
        return result;
    }
    ml_window_copy_counts(window, 0, trace);
    return ml_unordered_events_end_memory(trace);
}
