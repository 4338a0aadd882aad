/* Takes the events of one source from the callback to the lanes.  See feed.h.
 *
 * Everything reachable from ml_feed_record obeys the rule of the allocator's callback:
 * no lock, memory, GIL or I/O.  tests/native/test_hot_path.py proves it from the
 * relocations of the object files. */
#include "record/feed.h"

#include <string.h>

#include "base/base.h"
#include "base/system/thread_number.h"
#include "stacks/torchscript.h"

/* Initial-exec: the first touch of lazily allocated TLS would call malloc in the
 * callback.  Small, because the static TLS block has little room for late libraries. */
static __thread struct {
    ml_feed_walk *walk;
    uint32_t number; /* of this thread, from 1; 0: not numbered yet */
    uint32_t lane;   /* of an unordered source, that it used last */
    int busy;        /* inside the callback */
} self __attribute__((tls_model("initial-exec")));

void
ml_feed_set_walk(ml_feed_walk *walk)
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

static ML_RARE uint32_t
number_thread(void)
{
    self.number = ml_thread_number();
    self.lane = self.number % ML_FEED_LANES;
    return self.number;
}

uint32_t
ml_feed_thread_number(void)
{
    return self.number != 0 ? self.number : number_thread();
}

/* The frames of other languages on top of STACK. */
static ML_RARE uint32_t
capture_more(ml_feed *feed, unsigned wanted, uint32_t stack, uint8_t *flags)
{
    ml_torchscript_frames script =
        atomic_load_explicit(&feed->torchscript, memory_order_acquire);
    if (script != NULL) {
        stack = ml_torchscript_extend(feed->stacks, stack, script, flags);
    }
    if (wanted & ML_CAPTURE_NATIVE) {
        ml_native_walker native =
            atomic_load_explicit(&feed->native_walker, memory_order_acquire);
        if (native != NULL) {
            stack = native(feed->stacks, stack, flags);
        }
    }
    return stack;
}

/* In anomaly mode. */
static ML_RARE void
capture_forward(ml_feed *feed, ml_event *record, const ml_event_text *text)
{
    if (feed->forward != NULL && record->action != ML_ACTION_OTHER) {
        record->other = feed->forward(feed->stacks, text->anomaly);
    }
}

/* Fills in the stack and its flags.  DELAYED: the free of a segment, or of a block
 * whose free was requested earlier.  Such events are rare; if an allocation caused
 * them, they have its context. */
static inline __attribute__((always_inline)) void
capture(ml_feed *feed, ml_event *record, const ml_event_text *text, bool delayed)
{
    unsigned wanted = atomic_load_explicit(&feed->capture, memory_order_relaxed);
    if (wanted == 0) {
        return;
    }
    unsigned kind =
        ml_action_frees(record->action) ? ML_CAPTURE_FREE : ML_CAPTURE_ALLOC;
    kind |= delayed ? ML_CAPTURE_ALLOC : 0;
    if (!(wanted & kind) || record->action == ML_ACTION_SNAPSHOT) {
        return;
    }
    uint8_t flags = ML_EVENT_CONTEXT;
    uint32_t stack = feed->walker != NULL ? feed->walker(feed->stacks, &flags) : 0;
    if ((wanted & ML_CAPTURE_NATIVE) ||
        atomic_load_explicit(&feed->torchscript, memory_order_relaxed) != NULL) {
        stack = capture_more(feed, wanted, stack, &flags);
    }
    record->stack = stack;
    record->flags |= flags;
    if (text != NULL && text->anomaly != NULL) {
        capture_forward(feed, record, text);
    }
}

_Static_assert(ML_NODE_NAMES == 1 << (64 - 58), "a slot is the top bits of a hash");

static ML_RARE uint32_t
new_node_id(ml_feed *feed, ml_node_names *names, uint64_t slot, const char *name)
{
    uint32_t id = ml_stacks_string(feed->stacks, name, strlen(name));
    if (id != ML_STACK_LOST) {
        names->slots[slot].name = name;
        names->slots[slot].id = id;
    }
    return id;
}

/* The string id of NAME, static. */
static inline uint32_t
node_id(ml_feed *feed, ml_node_names *names, const char *name)
{
    uint64_t slot = ml_hash_high((uintptr_t)name) >> 58;
    return names->slots[slot].name == name ? names->slots[slot].id
                                           : new_node_id(feed, names, slot, name);
}

static ML_RARE void
set_texts(ml_feed *feed, ml_event *record, const ml_event_text *text)
{
#define XX(member) \
    if (text->member##_bytes > 0) { \
        record->member = \
            ml_stacks_string(feed->stacks, text->member, text->member##_bytes); \
    }
    ML_EVENT_TEXTS(XX)
#undef XX
}

/* Fills in what every event has. */
static inline void
begin_record(ml_feed *feed, ml_event *record, const ml_event_text *text)
{
    record->stack = 0;
    record->unused = 0;
    record->thread = ml_feed_thread_number();
    record->node = 0;
#define XX(member) record->member = 0;
    ML_EVENT_TEXTS(XX)
#undef XX
#define XX(member) | text->member##_bytes
    if (text != NULL && (0 ML_EVENT_TEXTS(XX)) != 0) {
        set_texts(feed, record, text);
    }
#undef XX
}

/* Separate, so that an event without a file reserves no room for its record. */
static __attribute__((noinline)) int
push_to_files(ml_feed *feed, ml_lane *lane, unsigned number, const ml_event *record)
{
    ml_packed_event packed;
    ml_journal_turns turns;
    ml_journal_port_begin(&feed->port, number, record, &lane->state, &turns);
    int result = ml_lane_push_shared(lane, record, &packed);
    ml_journal_port_record(&feed->port, number, record, &packed, &turns);
    return result;
}

/* Keeps RECORD in LANE, number NUMBER of the feed, and with the same bytes in the
 * files.  0, or ML_EFULL if LANE has no memory. */
static inline int
push(ml_feed *feed, ml_lane *lane, unsigned number, const ml_event *record)
{
    return ml_journal_port_open(&feed->port) ? push_to_files(feed, lane, number, record)
                                             : ml_lane_push(lane, record);
}

/* ---- Ordered sources ---- */

static void
raise_window_peaks(ml_feed *feed, ml_device_log *log)
{
    unsigned windows = atomic_load_explicit(&feed->windows, memory_order_relaxed);
    const ml_totals *now = ml_ledger_current(log->ledger);
    while (windows != 0) {
        ml_totals *peak = &log->window_peak[__builtin_ctz(windows)];
        windows &= windows - 1;
        /* Stores only a new peak: those are rare. */
#define XX(name) \
    if (now->name > peak->name) { \
        peak->name = now->name; \
    }
        ML_TOTALS(XX)
#undef XX
    }
}

static ML_RARE void
update_meter(ml_feed *feed, ml_device_log *log)
{
    if (!atomic_load_explicit(&feed->metering, memory_order_relaxed)) {
        ml_ledger_stop_counting(log->ledger);
        log->counting = false;
        return;
    }
    ml_meter *meter = atomic_load_explicit(&log->meter, memory_order_acquire);
    const ml_pool_stats *counts = ml_ledger_pool_stats(log->ledger);
    if (meter != NULL && counts != NULL) {
        ml_meter_follow(meter, ml_feed_thread_number(), counts);
    }
}

/* Blocks of a private pool are a CUDA graph's, which uses them without operators. */
static ML_RARE void
follow_uses(ml_device_log *log, ml_event *record)
{
    ml_uses *uses = atomic_load_explicit(&log->uses, memory_order_acquire);
    if (uses == NULL) {
        return;
    }
    if ((record->pool[0] | record->pool[1]) != 0) {
        ml_uses_blind(uses);
    }
    if (record->action == ML_ACTION_ALLOC) {
        ml_uses_begin(uses, record->addr, ml_lane_end(&log->lane));
    }
    else if (record->action == ML_ACTION_FREE_REQUESTED) {
        uint64_t last = ml_uses_end(uses, record->addr, record->block_bytes);
        uint64_t now = ml_lane_end(&log->lane);
        if (last != ML_USE_UNKNOWN) {
            uint64_t unused = last < now ? now - last : 0;
            record->unused = unused < UINT32_MAX ? (uint32_t)unused + 1 : UINT32_MAX;
        }
    }
}

/* ADDR 0: any block of the device. */
static void
mark_use(ml_device_log *log, uint64_t addr, bool inner)
{
    ml_uses *uses = atomic_load_explicit(&log->uses, memory_order_acquire);
    if (uses == NULL) {
        return;
    }
    /* Pending events count among the lane's once they are there.  In this order, an
     * event counts twice while it moves, and never not at all. */
    uint64_t position = atomic_load_explicit(&log->pending, memory_order_acquire);
    position += ml_lane_end(&log->lane);
    if (addr == 0) {
        ml_uses_mark_all(uses, position);
    }
    else {
        ml_uses_mark(uses, addr, position, inner);
    }
}

void
ml_feed_used(ml_feed *feed, const ml_use_mark *marks, size_t count)
{
    if (!atomic_load_explicit(&feed->using, memory_order_acquire)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const ml_use_mark *mark = &marks[i];
        if (mark->device < 0) {
            for (int d = 0; d < ML_DEVICE_MAX; d++) {
                mark_use(&feed->logs[d], 0, true);
            }
        }
        else if (mark->device < ML_DEVICE_MAX) {
            mark_use(&feed->logs[mark->device], mark->addr, mark->inner != 0);
        }
    }
}

void
ml_feed_use_unseen(ml_feed *feed)
{
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        ml_uses *uses = atomic_load_explicit(&feed->logs[i].uses, memory_order_acquire);
        if (uses != NULL) {
            ml_uses_blind(uses);
        }
    }
}

/* The ledger finishes RECORD, and the lane and the files keep it. */
static inline __attribute__((always_inline)) void
keep_event(ml_feed *feed, ml_device_log *log, ml_event *record)
{
    if (ml_ledger_apply(log->ledger, record) != 0) {
        count_alone(&log->inconsistencies);
    }
    if (!ml_action_frees(record->action)) {
        raise_window_peaks(feed, log);
    }
    if (log->counting) {
        update_meter(feed, log);
    }
    record->unused = 0;
    if (atomic_load_explicit(&feed->using, memory_order_acquire)) {
        follow_uses(log, record);
    }
    if (push(feed, &log->lane, (unsigned)(log - feed->logs), record) != 0) {
        count(&log->dropped);
    }
}

static ML_RARE void
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

ML_RARE void
ml_feed_catch_up(ml_feed *feed, ml_device_log *log)
{
    int state = atomic_load_explicit(&log->state, memory_order_acquire);
    if (state == ML_LOG_LIVE) {
        restart_forgotten_peaks(log);
    }
    if (state != ML_LOG_SEEDED) {
        return;
    }
    ml_event *pending = log->pending_region.base;
    uint32_t total = atomic_load_explicit(&log->pending, memory_order_relaxed);
    for (uint32_t i = 0; i < total; i++) {
        keep_event(feed, log, &pending[i]);
    }
    atomic_store_explicit(&log->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&log->state, ML_LOG_LIVE, memory_order_release);
}

/* Without room for RECORD, events no longer lead from the seed to now.  The next
 * seeding finds the log off and starts again. */
static ML_RARE void
put_off(ml_device_log *log, const ml_event *record)
{
    uint32_t total = atomic_load_explicit(&log->pending, memory_order_relaxed);
    if ((total + 1) * sizeof(*record) > log->pending_region.bytes) {
        atomic_store_explicit(&log->state, ML_LOG_OFF, memory_order_release);
        return;
    }
    ml_event *pending = log->pending_region.base;
    pending[total] = *record;
    atomic_store_explicit(&log->pending, total + 1, memory_order_relaxed);
}

static inline uint32_t
record_ordered(ml_feed *feed, ml_device_log *log, ml_event *record,
               const ml_event_text *text)
{
    begin_record(feed, record, text);
    int state = atomic_load_explicit(&log->state, memory_order_acquire);
    if (state != ML_LOG_LIVE ||
        atomic_load_explicit(&log->peaks_forgotten, memory_order_relaxed) != 0) {
        ml_feed_catch_up(feed, log);
        state = atomic_load_explicit(&log->state, memory_order_acquire);
        if (state == ML_LOG_OFF) {
            return 0;
        }
    }
    if (state == ML_LOG_LIVE) {
        ml_ledger_expect_next(log->ledger, record);
    }
    if (text != NULL && text->node != NULL) {
        record->node = node_id(feed, &log->names, text->node);
    }
    /* The two events of a free are captured separately: the second may come much later,
     * from any call that finds the other streams done. */
    bool asked = record->action == ML_ACTION_FREE_REQUESTED;
    capture(feed, record, text,
            ml_action_frees(record->action) && !asked && record->addr != log->freeing);
    log->freeing = asked ? record->addr : 0;
    if (record->flags & ML_EVENT_STACK_LOST) {
        count_alone(&log->lost_stacks);
    }
    if (state == ML_LOG_LIVE) {
        keep_event(feed, log, record);
    }
    else {
        put_off(log, record);
    }
    return record->stack;
}

/* ---- Unordered sources ---- */

uint64_t
ml_feed_thread_events(const ml_feed *feed)
{
    uint64_t events = 0;
    for (int i = 0; i < ML_FEED_LANES; i++) {
        events += ml_lane_end(&feed->threads[i].lane);
    }
    return events;
}

/* A log whose lane belongs to this thread until released; NULL: all are taken.  A
 * thread keeps its last lane.  So two threads that collide separate for good, and the
 * events of one free stay together. */
static ml_thread_log *
claim_log(ml_feed *feed)
{
    for (uint32_t i = 0; i < ML_FEED_LANES; i++) {
        uint32_t place = (self.lane + i) % ML_FEED_LANES;
        if (ml_lane_claim(&feed->threads[place].lane)) {
            self.lane = place;
            return &feed->threads[place];
        }
    }
    return NULL;
}

/* A block's free is one event or two; the last one removes it. */
static void
meter_block(const ml_feed *feed, const ml_event *event)
{
    ml_meter *meter = atomic_load_explicit(&feed->meter, memory_order_acquire);
    if (meter == NULL) {
        return;
    }
    if (event->action == ML_ACTION_ALLOC || event->action == ML_ACTION_FREE_COMPLETED) {
        ml_meter_add(meter, event->thread, event->block_bytes,
                     event->action != ML_ACTION_ALLOC);
    }
}

static __attribute__((noinline)) uint32_t
record_unordered(ml_feed *feed, const ml_event *event, const ml_event_text *text)
{
    ml_event own = *event;
    ml_event *record = &own;
    const char *node = text != NULL ? text->node : NULL;
    begin_record(feed, record, text);
    capture(feed, record, text, false);
    if (record->flags & ML_EVENT_STACK_LOST) {
        count(&feed->lost_stacks);
    }
    if (atomic_load_explicit(&feed->metering, memory_order_relaxed)) {
        meter_block(feed, record);
    }
    ml_thread_log *log = claim_log(feed);
    if (log == NULL) {
        count(&feed->dropped);
        return record->stack;
    }
    if (node != NULL) {
        record->node = node_id(feed, &log->names, node);
    }
    if (push(feed, &log->lane, (unsigned)(log - feed->threads), record) != 0) {
        count(&feed->dropped);
    }
    ml_lane_release(&log->lane);
    return record->stack;
}

/* Whether memlab's own walk takes the event. */
static ML_RARE bool
arrives_for_walk(const ml_feed *feed, int device)
{
    if (self.walk == NULL || self.walk->feed != feed) {
        return false;
    }
    self.walk->arrive(self.walk, device);
    return self.walk->silent;
}

static ML_RARE uint32_t
drop(ml_feed *feed, int device)
{
    bool known = device >= 0 && device < ML_DEVICE_MAX && feed->logs != NULL;
    count(known ? &feed->logs[device].dropped : &feed->dropped);
    return 0;
}

uint32_t
ml_feed_record(ml_feed *feed, int device, ml_event *event, const ml_event_text *text)
{
    if (event->action == ML_ACTION_SNAPSHOT && arrives_for_walk(feed, device)) {
        return 0;
    }
    if (!atomic_load_explicit(&feed->enabled, memory_order_acquire)) {
        return 0;
    }
    /* A signal handler or walker that allocates device memory comes here again, with
     * lane and ledger half updated. */
    if (device < 0 || device >= ML_DEVICE_MAX || self.busy) {
        return drop(feed, device);
    }
    self.busy = 1;
    uint32_t stack = feed->logs != NULL
                         ? record_ordered(feed, &feed->logs[device], event, text)
                         : record_unordered(feed, event, text);
    self.busy = 0;
    return stack;
}

/* ---- The end ---- */

static void
log_fini(ml_device_log *log)
{
    ml_uses *uses = atomic_load(&log->uses);
    ml_lane_fini(&log->lane);
    ml_ledger_free(log->ledger);
    ml_region_fini(&log->pending_region);
    ml_free(atomic_load(&log->meter));
    if (uses != NULL) {
        ml_uses_fini(uses);
        ml_free(uses);
    }
}

void
ml_feed_fini(ml_feed *feed)
{
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        log_fini(&feed->logs[i]);
    }
    for (unsigned i = 0; feed->threads != NULL && i < ML_FEED_LANES; i++) {
        ml_lane_fini(&feed->threads[i].lane);
    }
    ml_free(feed->logs);
    ml_free(feed->threads);
    ml_free(atomic_load(&feed->meter));
}
