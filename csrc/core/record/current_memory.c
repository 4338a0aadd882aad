/* Reads the memory of a source as it is now.  See current_memory.h. */
#include "record/current_memory.h"

#include "base/base.h"
#include "record/window.h"

/* ---- The recording that tells most ---- */

/* Number of WINDOW's kept events. */
static uint64_t
kept_events(const ml_window *window)
{
    ml_feed *feed = window->feed;
    uint64_t limit = atomic_load(&window->entry_limit);
    uint64_t total = 0;
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        const ml_lane *lane =
            feed->logs != NULL ? &feed->logs[i].lane : &feed->threads[i].lane;
        uint64_t count = ml_lane_end(lane) - window->marks[i];
        total += count < limit ? count : limit;
    }
    return total;
}

/* Higher if the window knows more about a block's origin. */
static int
rank(const ml_window *window)
{
    int rank = window->options.device < 0 ? 1 : 0;
    if (window->options.context != ML_CONTEXT_NONE) {
        rank += 2;
    }
    if (window->options.context >= ML_CONTEXT_ALLOC && window->options.keep_events) {
        /* Allocations of a backward pass have no stack but their forward's events. */
        rank += 4;
    }
    return rank;
}

static ml_window *
choose_window(const ml_feed *feed)
{
    ml_window *best = NULL;
    for (unsigned i = 0; i < ML_WINDOW_MAX; i++) {
        ml_window *window = ml_recorder_window(i);
        if (window == NULL || window->feed != feed || !ml_window_begun(window)) {
            continue;
        }
        if (best == NULL || rank(window) > rank(best) ||
            (rank(window) == rank(best) && kept_events(window) > kept_events(best))) {
            best = window;
        }
    }
    return best;
}

/* ---- Marks ---- */

/* The end of each lane of an ordered source; for another source, all lanes' events in
 * slot 0. */
static void
mark_events(const ml_feed *feed, ml_memory_mark *mark)
{
    *mark = (ml_memory_mark){.by = ML_MARKED_BY_EVENTS};
    if (feed->logs == NULL) {
        mark->of[0] = ml_feed_thread_events(feed);
        return;
    }
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        mark->of[i] = ml_lane_end(&feed->logs[i].lane);
    }
}

static int
mark_changes(ml_feed *feed, ml_memory_mark *mark)
{
    const ml_source *source = feed->source;
    int count = source->device_count(source->self);
    *mark = (ml_memory_mark){.by = ML_MARKED_BY_CHANGES};
    for (int i = 0; i < count && i < ML_DEVICE_MAX; i++) {
        int result = source->changes(source->self, i, &mark->of[i]);
        if (result < 0) {
            return ml_recorder_fail_source(feed, result);
        }
    }
    return 0;
}

static uint64_t
mix(uint64_t sum, uint64_t value)
{
    return ml_hash_u64(sum ^ value) + value;
}

static void
mark_memory(const ml_recording *memory, ml_memory_mark *mark)
{
    *mark = (ml_memory_mark){.by = ML_MARKED_BY_MEMORY};
    for (size_t d = 0; d < memory->device_count && d < ML_DEVICE_MAX; d++) {
        const ml_device_trace *trace = &memory->devices[d];
        uint64_t sum = 0;
        for (size_t i = 0; i < trace->block_count; i++) {
            const ml_block *block = &trace->blocks[i];
            sum = mix(mix(sum, block->addr), block->size);
            sum = mix(mix(sum, block->requested), block->state);
        }
        mark->of[d] = sum;
    }
}

bool
ml_memory_same(const ml_memory_mark *a, const ml_memory_mark *b, int device)
{
    return a->by == b->by && a->of[device] == b->of[device];
}

/* ---- Looks ---- */

static int
read_bare(ml_feed *feed, ml_memory_mark *mark, ml_recording **out)
{
    ml_recording *memory;
    int result = ml_feed_freeze_locked(feed, &memory);
    if (result < 0) {
        return result;
    }
    if (feed->source->changes == NULL) {
        mark_memory(memory, mark);
    }
    else {
        /* Whatever came while it was read counts. */
        result = mark_changes(feed, mark);
    }
    if (result == 0) {
        *out = memory;
    }
    else {
        ml_recording_free(memory);
    }
    return result;
}

static int
read_window(ml_window *window, ml_memory_mark *mark, ml_recording **out)
{
    const ml_feed *feed = window->feed;
    ml_memory_mark now;
    mark_events(feed, &now);
    int result = ml_window_freeze_locked(window, 0, out, now.of);
    if (result == 0) {
        if (feed->logs == NULL) {
            /* It has no instant: events during the reading count as changes. */
            mark_events(feed, &now);
        }
        *mark = now;
    }
    return result;
}

static int
read_locked(ml_feed *feed, ml_memory_mark *mark, bool *recorded, ml_recording **out)
{
    ml_window *window = choose_window(feed);
    *recorded = window != NULL;
    if (window == NULL) {
        return read_bare(feed, mark, out);
    }
    return read_window(window, mark, out);
}

static int
mark_locked(ml_feed *feed, ml_memory_mark *out)
{
    if (choose_window(feed) != NULL) {
        mark_events(feed, out);
        return 0;
    }
    if (feed->source->changes != NULL) {
        return mark_changes(feed, out);
    }
    ml_recording *memory;
    int result = read_bare(feed, out, &memory);
    if (result == 0) {
        ml_recording_free(memory);
    }
    return result;
}

static int
find_feed(const ml_source *source, ml_feed **out)
{
    *out = source->feed;
    if (*out == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    return (*out)->forked ? ml_recorder_fail(ML_ESTATE, "a forked child cannot read "
                                                        "its parent's memory")
                          : 0;
}

int
ml_memory_mark_now(const ml_source *source, ml_memory_mark *out)
{
    ml_feed *feed;
    int result = find_feed(source, &feed);
    if (result == 0) {
        ml_recorder_lock();
        result = mark_locked(feed, out);
        ml_recorder_unlock();
    }
    return result;
}

int
ml_memory_read(const ml_source *source, ml_memory_mark *now, bool *recorded,
               ml_recording **out)
{
    ml_feed *feed;
    int result = find_feed(source, &feed);
    if (result == 0) {
        ml_recorder_lock();
        result = read_locked(feed, now, recorded, out);
        ml_recorder_unlock();
    }
    return result;
}
