/* Takes the start of a window.  See window_start.h. */
#include "record/window_start.h"

#include <string.h>

#include "base/base.h"

/* Walks until the ledgers have caught up with threads that allocate meanwhile.  Two are
 * enough, unless a thread was delayed for thousands of events. */
#define ATTEMPTS 16

/* A thread on the cpu source keeps at most this many events: 64 lanes of them are
 * 26 GiB of address space. */
#define SHARED_LANE_MAXIMUM (UINT64_C(1) << 22)

/* The walk at a window's start: marks its place on every lane, and learns the memory of
 * devices not recorded before. */
typedef struct start_walk {
    ml_feed_walk base;
    ml_window *window;
    int seeding; /* the device whose segments are arriving; -1: none wanted */
    bool begun[ML_DEVICE_MAX]; /* the window has its mark on the device's lane */
    bool store[ML_DEVICE_MAX]; /* this walk begins the device in the window's file */
    bool told[ML_DEVICE_MAX];  /* the file has the device's rules, of this walk */
    bool seed[ML_DEVICE_MAX];  /* this walk seeds the device's ledger */
    ml_allocator_rules rules[ML_DEVICE_MAX];
} start_walk;

/* The ledger is at the lane's end, or seeded, and constant now. */
static void
set_meter(const ml_feed *feed, ml_device_log *log)
{
    ml_meter *meter = atomic_load(&log->meter);
    if (meter != NULL && atomic_load(&feed->metering) &&
        ml_ledger_pool_stats(log->ledger) == NULL) {
        ml_ledger_start_counting(log->ledger);
        log->counting = true;
        ml_meter_set(meter, ml_ledger_pool_stats(log->ledger));
    }
}

static void
arrive(ml_feed_walk *base, int device)
{
    start_walk *walk = (start_walk *)base;
    if (device < 0 || device >= ML_DEVICE_MAX) {
        return;
    }
    ml_device_log *log = &walk->window->feed->logs[device];
    if (log->ledger == NULL) {
        return;
    }
    ml_feed_catch_up(walk->window->feed, log);
    ml_window *window = walk->window;
    bool off = atomic_load(&log->state) == ML_LOG_OFF;
    if (walk->begun[device] && !off) {
        return;
    }
    walk->begun[device] = true;
    if (window->journal != NULL && ml_window_wants(window, device)) {
        ml_journal_begin_lane(window->journal, (unsigned)device);
        walk->store[device] = true;
    }
    window->marks[device] = ml_lane_end(&log->lane);
    window->event_base[device] = window->marks[device];
    window->counts[device] = ml_window_counts_now(window->feed, device);
    if (off) {
        /* Only now has every writer of an earlier recording left the ledger. */
        ml_ledger_clear(log->ledger, &walk->rules[device]);
        walk->seed[device] = true;
        atomic_store(&log->pending, 0);
        atomic_store_explicit(&log->state, ML_LOG_BUFFERING, memory_order_release);
    }
    else {
        log->window_peak[window->slot] = *ml_ledger_current(log->ledger);
        set_meter(window->feed, log);
    }
}

/* Whether the walk's data of DEVICE go to the window's file from here on. */
static bool
stores(start_walk *walk, int device)
{
    if (walk->window->journal == NULL || device < 0 || device >= ML_DEVICE_MAX ||
        !walk->store[device]) {
        return false;
    }
    if (!walk->told[device]) {
        /* Once: each start of a device in the file replaces its memory. */
        ml_journal_start(walk->window->journal, device, &walk->rules[device]);
        walk->told[device] = true;
    }
    return true;
}

static int
take_segment(void *context, int device, const ml_segment *segment)
{
    start_walk *walk = context;
    walk->seeding = -1;
    if (stores(walk, device)) {
        ml_journal_start_segment(walk->window->journal, device, segment);
    }
    if (device < 0 || device >= ML_DEVICE_MAX || !walk->seed[device]) {
        return 0;
    }
    walk->seeding = device;
    return ml_ledger_seed_segment(walk->window->feed->logs[device].ledger, segment);
}

static int
take_block(void *context, int device, const ml_block *block)
{
    start_walk *walk = context;
    if (stores(walk, device)) {
        ml_journal_start_block(walk->window->journal, device, block);
    }
    if (walk->seeding != device || device < 0) {
        return 0;
    }
    return ml_ledger_seed_block(walk->window->feed->logs[device].ledger, block);
}

static int
take_setting(void *context, const char *key, char kind, int64_t integer, double real,
             const char *text, const uint64_t *divisions)
{
    const start_walk *walk = context;
    if (walk->window->journal != NULL) {
        ml_journal_setting(walk->window->journal, key, kind, integer, real, text,
                           divisions);
    }
    return 0;
}

/* The start of every device in the file is complete. */
static void
finish_file(start_walk *walk, int devices)
{
    for (int device = 0; device < devices; device++) {
        if (stores(walk, device)) {
            ml_journal_started(walk->window->journal, device);
        }
    }
}

/* One walk over the memory of this many devices. */
static int
take_memory(start_walk *walk, int devices)
{
    ml_walk_visitor visitor = {.context = walk,
                               .segment = take_segment,
                               .block = take_block,
                               .setting = take_setting};
    int result = ml_recorder_walk(walk->window->feed, &walk->base, &visitor);
    finish_file(walk, devices);
    return result;
}

/* ---- Sources that a lock orders ---- */

static int
reserve_device(ml_feed *feed, int device, uint64_t capacity)
{
    int result = ml_lane_reserve(&feed->logs[device].lane, capacity);
    return result < 0
               ? ml_recorder_fail(result, "device %d: %s", device, ml_strerror(result))
               : 0;
}

static int
prepare_log(ml_feed *feed, int device, uint64_t capacity, ml_allocator_rules *rules)
{
    ml_device_log *log = &feed->logs[device];
    int result = feed->source->rules(feed->source->self, device, rules);
    if (result < 0) {
        return ml_recorder_fail_source(feed, result);
    }
    if (log->ledger == NULL) {
        result = ml_ledger_new(&log->ledger, rules, 0);
    }
    if (result == 0 && log->pending_region.base == NULL) {
        result = ml_region_init(&log->pending_region,
                                ML_FEED_PENDING * sizeof(ml_event), sizeof(ml_event));
    }
    return result < 0
               ? ml_recorder_fail(result, "device %d: %s", device, ml_strerror(result))
               : reserve_device(feed, device, capacity);
}

/* One walk that marks places and seeds ledgers that are off.  *AGAIN: another must
 * follow, because other threads allocated meanwhile. */
static int
take_devices(start_walk *walk, int devices, bool *again)
{
    ml_feed *feed = walk->window->feed;
    walk->seeding = -1;
    memset(walk->told, 0, sizeof(walk->told));
    memset(walk->seed, 0, sizeof(walk->seed));
    memset(walk->store, 0, sizeof(walk->store));
    int result = take_memory(walk, devices);
    *again = false;
    for (int device = 0; device < devices; device++) {
        ml_device_log *log = &feed->logs[device];
        if (walk->seed[device]) {
            log->window_peak[walk->window->slot] = *ml_ledger_current(log->ledger);
            ml_ledger_reset_peaks(log->ledger);
            set_meter(feed, log);
            int state = ML_LOG_BUFFERING;
            atomic_compare_exchange_strong(&log->state, &state, ML_LOG_SEEDED);
            *again |= atomic_load(&log->pending) != 0;
        }
        *again |= atomic_load(&log->state) == ML_LOG_OFF;
    }
    return result;
}

static int
take_ordered(ml_window *window)
{
    ml_feed *feed = window->feed;
    int devices = feed->source->device_count(feed->source->self);
    if (devices > ML_DEVICE_MAX) {
        return ml_recorder_fail(ML_EUNSUPPORTED, "%d devices; memlab records up to %d",
                                devices, ML_DEVICE_MAX);
    }
    start_walk walk = {.base = {.arrive = arrive, .silent = true}, .window = window};
    for (int device = 0; device < devices; device++) {
        int result = prepare_log(feed, device, ml_window_reach(&window->options),
                                 &walk.rules[device]);
        if (result == 0 && window->options.meter &&
            ml_recorder_meter(feed->source, device) == NULL) {
            result = ml_recorder_fail(ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
        }
        if (result < 0) {
            return result;
        }
    }
    atomic_store(&feed->enabled, 1);
    bool again = true;
    for (int attempt = 0; attempt < ATTEMPTS && again; attempt++) {
        int result = take_devices(&walk, devices, &again);
        if (result < 0) {
            return result;
        }
    }
    if (again) {
        return ml_recorder_fail(
            ML_ESTATE, "other threads allocate faster than their memory can be "
                       "read");
    }
    return 0;
}

/* ---- Sources that no lock orders ---- */

static int
reserve_shared(ml_feed *feed, uint64_t capacity)
{
    if (capacity > SHARED_LANE_MAXIMUM) {
        capacity = SHARED_LANE_MAXIMUM;
    }
    for (int i = 0; i < ML_FEED_LANES; i++) {
        int result = ml_lane_reserve(&feed->threads[i].lane, capacity);
        if (result < 0) {
            return ml_recorder_fail(result, "%s", ml_strerror(result));
        }
    }
    return 0;
}

/* The existing memory goes to the window's file.  It is walked while events are
 * recorded; the reader uses it for addresses without events. */
static int
store_memory(ml_window *window)
{
    ml_feed *feed = window->feed;
    start_walk walk = {.base = {.silent = true}, .window = window, .seeding = -1};
    int result = feed->source->rules(feed->source->self, 0, &walk.rules[0]);
    if (result < 0) {
        return ml_recorder_fail_source(feed, result);
    }
    walk.store[0] = true;
    return take_memory(&walk, 1);
}

static int
count_block(void *context, int device, const ml_block *block)
{
    ml_pool_stats *counts = context;
    (void)device;
    uint64_t *of = counts->of[ML_POOL_LARGE];
    of[ML_POOL_STAT_allocation]++;
    of[ML_POOL_STAT_segment]++;
    of[ML_POOL_STAT_active]++;
    of[ML_POOL_STAT_allocated_bytes] += block->size;
    of[ML_POOL_STAT_reserved_bytes] += block->size;
    of[ML_POOL_STAT_active_bytes] += block->size;
    of[ML_POOL_STAT_requested_bytes] += block->size;
    return 0;
}

/* Allocations of other threads during the walk may count twice or not at all while they
 * live: no lock orders them. */
static int
start_meter(ml_feed *feed)
{
    ml_pool_stats counts = {{{0}}};
    ml_feed_walk walk = {.silent = true};
    ml_walk_visitor visitor = {.context = &counts, .block = count_block};
    ml_meter *meter = ml_recorder_meter(feed->source, 0);
    if (meter == NULL) {
        return ml_recorder_fail(ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
    }
    int result = ml_recorder_walk(feed, &walk, &visitor);
    if (result == 0) {
        ml_meter_set(meter, &counts);
    }
    return result;
}

static int
take_unordered(ml_window *window)
{
    ml_feed *feed = window->feed;
    int result = reserve_shared(feed, ml_window_reach(&window->options));
    if (result < 0) {
        return result;
    }
    for (int i = 0; i < ML_FEED_LANES; i++) {
        window->marks[i] = ml_lane_end(&feed->threads[i].lane);
    }
    window->event_base[0] = ml_feed_thread_events(feed);
    window->counts[0] = ml_window_counts_now(feed, 0);
    for (unsigned i = 0; i < ML_FEED_LANES && window->journal != NULL; i++) {
        ml_journal_begin_lane(window->journal, i);
    }
    atomic_store(&feed->enabled, 1);
    if (window->options.meter) {
        result = start_meter(feed);
    }
    return result == 0 && window->journal != NULL ? store_memory(window) : result;
}

/* ---- Either ---- */

int
ml_window_start_take(ml_window *window)
{
    int result =
        window->feed->source->ordered ? take_ordered(window) : take_unordered(window);
    if (result == 0 && window->journal != NULL) {
        ml_journal_began(window->journal);
    }
    return result;
}

int
ml_window_start_reserve(ml_feed *feed, uint64_t capacity)
{
    if (feed->logs == NULL) {
        return reserve_shared(feed, capacity);
    }
    int result = 0;
    for (int i = 0; i < ML_DEVICE_MAX && result == 0; i++) {
        if (feed->logs[i].ledger != NULL) {
            result = reserve_device(feed, i, capacity);
        }
    }
    return result;
}
