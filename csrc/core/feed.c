/* A feed: the events of one source, from the callback to the lanes.  See feed.h.
 *
 * Everything reachable from ml_feed_record is held to the rule of the allocator's
 * callback (no lock, memory, GIL or I/O); tests/test_hot_path.py proves it from the
 * relocations of the object files. */
#include "feed.h"

#include <string.h>

/* Initial-exec: the first touch of lazily allocated TLS would call malloc in the
 * callback.  Small, because the static TLS block has little room for late libraries. */
static __thread struct {
    ml_walk *walk;
    uint32_t number; /* of this thread, from 1; 0: not numbered yet */
    int busy;        /* inside the callback */
} self __attribute__((tls_model("initial-exec")));

static _Atomic uint32_t thread_count;

void
ml_feed_set_walk(ml_walk *walk)
{
    self.walk = walk;
}

static void
count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* For a counter that only the holder of the device's lock writes. */
static void
count_alone(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

uint32_t
ml_feed_thread_number(void)
{
    if (self.number == 0) {
        self.number =
            atomic_fetch_add_explicit(&thread_count, 1, memory_order_relaxed) + 1;
    }
    return self.number;
}

static bool
is_free(uint8_t action)
{
    return action == ML_ACTION_FREE_REQUESTED || action == ML_ACTION_FREE_COMPLETED ||
           action == ML_ACTION_SEGMENT_FREE || action == ML_ACTION_SEGMENT_UNMAP;
}

/* Fills stack and the flags that say what became of it. */
static void
capture(ml_feed *feed, ml_event *record)
{
    unsigned wanted = atomic_load_explicit(&feed->capture, memory_order_relaxed);
    unsigned kind = is_free(record->action) ? ML_CAPTURE_FREE : ML_CAPTURE_ALLOC;
    if (!(wanted & kind) || record->action == ML_ACTION_SNAPSHOT) {
        return;
    }
    uint8_t flags = ML_EVENT_CONTEXT;
    uint32_t stack = feed->walker != NULL ? feed->walker(feed->stacks, &flags) : 0;
    if (wanted & ML_CAPTURE_NATIVE) {
        ml_native_walker native =
            atomic_load_explicit(&feed->native_walker, memory_order_acquire);
        if (native != NULL) {
            stack = native(feed->stacks, stack, &flags);
        }
    }
    record->stack = stack;
    record->flags |= flags;
}

static void
raise_window_peaks(ml_feed *feed, ml_device_log *log)
{
    unsigned windows = atomic_load_explicit(&feed->windows, memory_order_relaxed);
    const ml_totals *now = ml_ledger_current(log->ledger);
    while (windows != 0) {
        ml_totals *peak = &log->window_peak[__builtin_ctz(windows)];
        windows &= windows - 1;
#define XX(name) peak->name = now->name > peak->name ? now->name : peak->name;
        ML_TOTALS(XX)
#undef XX
    }
}

static void
apply(ml_device_log *log, ml_event *record)
{
    if (ml_ledger_apply(log->ledger, record) != 0) {
        count_alone(&log->inconsistencies);
    }
}

static void
restart_forgotten_peaks(ml_device_log *log)
{
    if (atomic_load_explicit(&log->peaks_forgotten, memory_order_relaxed) == 0) {
        return;
    }
    unsigned forgotten = atomic_exchange(&log->peaks_forgotten, 0);
    for (; forgotten != 0; forgotten &= forgotten - 1) {
        log->window_peak[__builtin_ctz(forgotten)] = *ml_ledger_current(log->ledger);
    }
}

void
ml_feed_catch_up(ml_feed *feed, ml_device_log *log)
{
    int state = atomic_load_explicit(&log->state, memory_order_acquire);
    if (state == ML_LOG_LIVE) {
        restart_forgotten_peaks(log);
    }
    if (state != ML_LOG_SEEDED) {
        return;
    }
    if (ml_lane_passed(&log->lane, log->seed)) {
        /* The events that lead from the seed to now are gone: whoever seeds finds the
         * log off and does it again. */
        atomic_store_explicit(&log->state, ML_LOG_OFF, memory_order_release);
        return;
    }
    ml_event *record;
    ml_lane_mark mark = log->seed;
    while ((record = ml_lane_next(&log->lane, &mark)) != NULL) {
        apply(log, record);
        raise_window_peaks(feed, log);
    }
    atomic_store_explicit(&log->state, ML_LOG_LIVE, memory_order_release);
}

static void
record_ordered(ml_feed *feed, ml_device_log *log, ml_event *record)
{
    ml_feed_catch_up(feed, log);
    int state = atomic_load_explicit(&log->state, memory_order_acquire);
    if (state == ML_LOG_OFF) {
        return;
    }
    /* The events of one free are captured one by one: the second may come much later,
     * from whatever call finds that the other streams are done with the block. */
    capture(feed, record);
    if (state == ML_LOG_LIVE) {
        apply(log, record);
        raise_window_peaks(feed, log);
    }
    if (record->flags & ML_EVENT_STACK_LOST) {
        count_alone(&log->lost_stacks);
    }
    count_alone(&log->events);
    if (ml_lane_push(&log->lane, record) != 0) {
        count(&log->dropped);
    }
}

static void
record_unordered(ml_feed *feed, ml_event *record)
{
    capture(feed, record);
    if (record->flags & ML_EVENT_STACK_LOST) {
        count(&feed->lost_stacks);
    }
    count(&feed->events);
    ml_lane *lane = &feed->lanes[record->thread % ML_FEED_LANES];
    if (ml_lane_push_shared(lane, record) != 0) {
        count(&feed->dropped);
    }
}

uint32_t
ml_feed_record(ml_feed *feed, int device, const ml_event *event,
               const ml_event_text *text)
{
    if (event->action == ML_ACTION_SNAPSHOT && self.walk != NULL &&
        self.walk->feed == feed) {
        self.walk->arrive(self.walk, device);
        if (self.walk->silent) {
            return 0;
        }
    }
    if (!atomic_load_explicit(&feed->enabled, memory_order_acquire)) {
        return 0;
    }
    if (device < 0 || device >= ML_DEVICE_MAX) {
        count(&feed->dropped);
        return 0;
    }
    /* A signal handler or a walker that allocates device memory lands here again, with
     * lane and ledger half updated. */
    if (self.busy) {
        count(feed->logs != NULL ? &feed->logs[device].dropped : &feed->dropped);
        return 0;
    }
    self.busy = 1;
    ml_event record = *event;
    record.stack = 0;
    record.flags &= (uint8_t)~ML_EVENT_COMMITTED;
    record.thread = (uint16_t)ml_feed_thread_number();
    record.metadata = 0;
    record.node = 0;
    if (text != NULL && text->metadata_bytes > 0) {
        record.metadata =
            ml_stacks_string(feed->stacks, text->metadata, text->metadata_bytes);
    }
    if (text != NULL && text->node != NULL) {
        record.node = ml_stacks_string(feed->stacks, text->node, strlen(text->node));
    }
    if (feed->source->ordered) {
        record_ordered(feed, &feed->logs[device], &record);
    }
    else {
        record_unordered(feed, &record);
    }
    self.busy = 0;
    return record.stack;
}
