/* The driver of a trial.  See trial_driver.h.
 *
 * At recorded addresses it repeats the recording's driver.  A segment gets its recorded
 * base.  Where the recording first gives memory back, there is none left until the
 * model does so too.  Differences are counted, and both sides continue.  Unrecorded
 * segments get address space of their own. */
#include "lab/whatif/trial_driver.h"

#include "base/base.h"

/* Far above a driver's addresses, so that nothing recorded lies there. */
#define SEGMENT_BASE (UINT64_C(1) << 56)
#define SEGMENT_SPACE (UINT64_C(1) << 60)
#define SPACE_BASE (UINT64_C(1) << 61)
#define SPACE_SPACE (UINT64_C(1) << 61)
/* Alignment of blocks' addresses, and of segments, which begin with blocks. */
#define BLOCK_ALIGNMENT 512
/* How often torch retries one segment. */
#define REFUSALS_MAX 2

/* ---- As recorded ---- */

static bool
is_of_segments(unsigned action)
{
    return action == ML_ACTION_SEGMENT_ALLOC || action == ML_ACTION_SEGMENT_FREE ||
           action == ML_ACTION_SEGMENT_MAP || action == ML_ACTION_SEGMENT_UNMAP;
}

/* The next segment event of the step, until the next call; NULL: none left. */
static const ml_event *
expected(ml_trial_driver *driver)
{
    const ml_events *events = &driver->trace->events;
    while (driver->next < driver->until &&
           !is_of_segments(ml_events_action(events, driver->next))) {
        driver->next++;
    }
    if (driver->next == driver->until) {
        return NULL;
    }
    driver->expected = ml_events_at(events, driver->next);
    return &driver->expected;
}

/* Whether this is the recording's next segment event.  If so it is consumed; else it is
 * counted. */
static bool
match_event(ml_trial_driver *driver, unsigned action, uint64_t addr, uint64_t bytes)
{
    const ml_event *event = expected(driver);
    if (event != NULL && event->action == action && event->size == bytes &&
        event->addr == addr) {
        driver->next++;
        return true;
    }
    driver->mismatched_segments++;
    return false;
}

/* Whether the recording's driver had no memory at this point. */
static bool
refuses(ml_trial_driver *driver)
{
    const ml_event *event = expected(driver);
    if (event == NULL) {
        return driver->failing;
    }
    bool releases = event->action == ML_ACTION_SEGMENT_FREE ||
                    event->action == ML_ACTION_SEGMENT_UNMAP;
    if (releases && driver->refusals < REFUSALS_MAX) {
        driver->refusals++;
        return true;
    }
    while (event != NULL && (event->action == ML_ACTION_SEGMENT_FREE ||
                             event->action == ML_ACTION_SEGMENT_UNMAP)) {
        driver->mismatched_segments++;
        driver->next++;
        event = expected(driver);
    }
    return false;
}

void
ml_trial_driver_begin(ml_trial_driver *driver, size_t until, bool failing)
{
    driver->until = until;
    driver->failing = failing;
    driver->refusals = 0;
}

void
ml_trial_driver_end(ml_trial_driver *driver)
{
    while (expected(driver) != NULL) {
        driver->mismatched_segments++;
        driver->next++;
    }
}

/* ---- What the model calls ---- */

static uint64_t
place(ml_trial_driver *driver, ml_placement *placement, uint64_t bytes)
{
    if (driver->placed == ML_TRIAL_SEGMENTS_MAX) {
        driver->error = ML_ELIMIT;
        return 0;
    }
    driver->asked |= placement == driver->segments;
    uint64_t addr = ml_placement_take(placement, bytes, ML_PLACEMENT_GRANULE);
    if (addr == 0 && ml_placement_error(placement) != 0) {
        driver->error = ML_ENOMEM;
    }
    driver->placed += addr != 0;
    return addr;
}

static bool
has_room(const ml_trial_driver *driver, uint64_t bytes)
{
    uint64_t memory = driver->options->memory_bytes;
    return driver->used <= memory && bytes <= memory - driver->used;
}

/* Takes the recorded addresses, unless they are invalid or taken; returns whether it
 * did. */
static bool
take_range(ml_trial_driver *driver, uint64_t addr, uint64_t bytes)
{
    if (addr == 0 || addr % BLOCK_ALIGNMENT != 0 || addr >= SEGMENT_BASE ||
        bytes > SEGMENT_BASE - addr) {
        return false;
    }
    if (driver->taken.count >= ML_TRIAL_SEGMENTS_MAX) {
        driver->error = ML_ELIMIT;
        return false;
    }
    int result = ml_ranges_take(&driver->taken, addr, bytes);
    driver->error = result < 0 ? result : driver->error;
    return result > 0;
}

static void
give(ml_trial_driver *driver, uint64_t addr, uint64_t bytes)
{
    int result = ml_ranges_give(&driver->taken, addr, bytes);
    driver->error = result < 0 ? result : driver->error;
}

int
ml_trial_driver_seed(ml_trial_driver *driver, const ml_segment *segment)
{
    if (driver->used > UINT64_MAX - segment->total) {
        return 0;
    }
    driver->used += segment->total;
    bool taken = take_range(driver, segment->addr, segment->total);
    return driver->error < 0 ? driver->error : taken;
}

static uint64_t
alloc_segment(void *self, uint64_t bytes, uint64_t stream, const uint32_t pool[2],
              bool small)
{
    ml_trial_driver *driver = self;
    (void)stream, (void)pool, (void)small;
    uint64_t addr = 0;
    driver->calls++;
    if (!driver->options->recorded_addresses) {
        addr = has_room(driver, bytes) ? place(driver, driver->segments, bytes) : 0;
    }
    else if (!refuses(driver)) {
        const ml_event *event = expected(driver);
        addr = event != NULL ? event->addr : 0;
        if (!match_event(driver, ML_ACTION_SEGMENT_ALLOC, addr, bytes) ||
            !take_range(driver, addr, bytes)) {
            addr = place(driver, driver->segments, bytes);
        }
    }
    driver->used += addr != 0 ? bytes : 0;
    driver->denied |= addr == 0;
    return addr;
}

static void
free_segment(void *self, uint64_t addr, uint64_t bytes)
{
    ml_trial_driver *driver = self;
    driver->calls++;
    driver->used -= bytes;
    if (driver->options->recorded_addresses) {
        match_event(driver, ML_ACTION_SEGMENT_FREE, addr, bytes);
    }
    if (addr >= SEGMENT_BASE) {
        driver->placed -= ml_placement_give(driver->segments, addr) != 0;
    }
    else {
        give(driver, addr, bytes);
    }
}

static uint64_t
reserve(void *self, uint64_t bytes, uint64_t stream, const uint32_t pool[2], bool small)
{
    ml_trial_driver *driver = self;
    (void)stream, (void)pool, (void)small;
    if (driver->options->recorded_addresses && !refuses(driver)) {
        /* Its first page is mapped first. */
        const ml_event *event = expected(driver);
        bool fits = event != NULL && event->action == ML_ACTION_SEGMENT_MAP &&
                    event->addr != 0 && event->addr % ML_PLACEMENT_GRANULE == 0 &&
                    event->addr < SEGMENT_BASE && bytes <= SEGMENT_BASE - event->addr;
        if (fits) {
            return event->addr;
        }
    }
    return place(driver, driver->spaces, bytes);
}

static void
release(void *self, uint64_t addr, uint64_t bytes)
{
    ml_trial_driver *driver = self;
    (void)bytes;
    if (addr >= SPACE_BASE) {
        driver->placed -= ml_placement_give(driver->spaces, addr) != 0;
    }
}

static bool
map(void *self, uint64_t addr, uint64_t bytes)
{
    ml_trial_driver *driver = self;
    driver->calls++;
    if (driver->options->recorded_addresses) {
        if (refuses(driver) ||
            (addr < SEGMENT_BASE && !take_range(driver, addr, bytes))) {
            return false;
        }
        match_event(driver, ML_ACTION_SEGMENT_MAP, addr, bytes);
    }
    else if (!has_room(driver, bytes)) {
        return false;
    }
    driver->used += bytes;
    return true;
}

static void
unmap(void *self, uint64_t addr, uint64_t bytes)
{
    ml_trial_driver *driver = self;
    driver->calls++;
    driver->used -= bytes;
    if (driver->options->recorded_addresses) {
        match_event(driver, ML_ACTION_SEGMENT_UNMAP, addr, bytes);
        give(driver, addr, bytes);
    }
}

static uint64_t
free_bytes(void *self)
{
    const ml_trial_driver *driver = self;
    return driver->options->memory_bytes - driver->used;
}

ml_allocator_driver
ml_trial_driver_table(ml_trial_driver *driver)
{
    return (ml_allocator_driver){.self = driver,
                                 .segment_alloc = alloc_segment,
                                 .segment_free = free_segment,
                                 .reserve = reserve,
                                 .release = release,
                                 .map = map,
                                 .unmap = unmap,
                                 .free_bytes = free_bytes};
}

int
ml_trial_driver_init(ml_trial_driver *driver, const ml_workload *workload,
                     const ml_trial_options *options)
{
    *driver = (ml_trial_driver){.options = options, .trace = workload->trace};
    int error = ml_placement_new(SEGMENT_BASE, SEGMENT_SPACE, options->placement,
                                 options->seed, &driver->segments);
    if (error == 0) {
        error = ml_placement_new(SPACE_BASE, SPACE_SPACE, ML_PLACEMENT_ASCENDING, 0,
                                 &driver->spaces);
    }
    if (error < 0) {
        ml_trial_driver_fini(driver);
    }
    return error;
}

void
ml_trial_driver_fini(ml_trial_driver *driver)
{
    ml_placement_free(driver->segments);
    ml_placement_free(driver->spaces);
    ml_ranges_fini(&driver->taken);
    driver->segments = NULL;
    driver->spaces = NULL;
}
