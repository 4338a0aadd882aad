/* Begins and ends recordings.  See recorder.h.  registry.c has the shared state;
 * window_start.c learns the memory at a start; window_freeze.c turns a window into a
 * recording. */
#include "record/recorder.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "record/registry.h"
#include "record/sampler.h"
#include "record/window_start.h"
#include "record/window.h"

/* ---- What all windows of a feed want together ---- */

static unsigned
capture_wanted(const ml_window_options *options)
{
    static const unsigned by_context[] = {0, ML_CAPTURE_ALLOC, ML_CAPTURE_ALLOC,
                                          ML_CAPTURE_ALLOC | ML_CAPTURE_FREE};
    unsigned wanted = by_context[options->context];
    return options->native && wanted != 0 ? wanted | ML_CAPTURE_NATIVE : wanted;
}

static unsigned
update_feed(ml_feed *feed)
{
    unsigned capture = 0, windows = 0, uses = 0;
    bool metering = false;
    for (unsigned i = 0; i < ML_WINDOW_MAX; i++) {
        const ml_window *window = ml_registered.windows[i];
        if (window != NULL && window->feed == feed && window->listening) {
            capture |= capture_wanted(&window->options);
            windows |= 1u << i;
            metering = metering || window->options.meter;
            unsigned wanted = window->options.uses;
            uses = uses == 0 || (wanted != 0 && wanted < uses) ? wanted : uses;
        }
    }
    atomic_store(&feed->capture, capture);
    atomic_store(&feed->metering, metering);
    atomic_store(&feed->windows, windows);
    ml_use_turns_set(feed, uses);
    return windows;
}

/* With no listener left, kept events are useless; a later start learns the memory
 * afresh. */
static void
update_or_disable(ml_feed *feed)
{
    if (update_feed(feed) != 0) {
        return;
    }
    atomic_store(&feed->enabled, 0);
    feed->source->enable(feed->source->self, 0);
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        atomic_store(&feed->logs[i].state, ML_LOG_OFF);
        ml_lane_discard(&feed->logs[i].lane);
        ml_region_discard(&feed->logs[i].pending_region);
    }
    for (int i = 0; feed->threads != NULL && i < ML_FEED_LANES; i++) {
        ml_lane_discard(&feed->threads[i].lane);
    }
}

/* ---- Windows ---- */

static int
fail_files(const ml_source *source)
{
    return ml_recorder_fail(ML_EFULL,
                            "%d recordings of %s go to files already; stop one of them "
                            "first, or record without a file",
                            ML_PORT_JOURNALS, source->name);
}

static int
begin_window(ml_window *window)
{
    ml_feed *feed = window->feed;
    const ml_source *source = feed->source;
    int result = source->attach(source->self);
    if (result < 0) {
        return ml_recorder_fail_source(feed, result);
    }
    if (window->journal != NULL) {
        result = ml_journal_attach(&feed->port, window->journal);
        if (result < 0) {
            return fail_files(source);
        }
    }
    window->listening = true;
    update_feed(feed);
    source->enable(source->self, 1);
    result = ml_window_start_take(window);
    if (result < 0) {
        window->listening = false;
        update_or_disable(feed);
        if (window->journal != NULL) {
            ml_journal_detach(&feed->port, window->journal);
        }
        return result;
    }
    if (window->journal != NULL) {
        ml_journal_port_origins(&feed->port);
    }
    atomic_store(&window->begun, true);
    return 0;
}

typedef struct use_writer {
    ml_window *window;
    int device;
    uint64_t dropped; /* missing from the lane, but perhaps in the file */
} use_writer;

static int
tell_use(void *context, uint64_t addr, uint64_t position)
{
    const use_writer *writer = context;
    uint64_t base = writer->window->event_base[writer->device];
    uint64_t events = (position > base ? position - base : 0) + writer->dropped;
    ml_journal_use(writer->window->journal, writer->device, addr, events);
    return 0;
}

/* Last uses of live blocks: no event will tell the file. */
static void
tell_uses(ml_window *window)
{
    ml_feed *feed = window->feed;
    bool wanted =
        window->options.uses != 0 && feed->logs != NULL && atomic_load(&window->begun);
    for (int i = 0; wanted && i < ML_DEVICE_MAX; i++) {
        const ml_uses *uses = atomic_load(&feed->logs[i].uses);
        if (uses != NULL && ml_window_wants(window, i)) {
            ml_window_counts now = ml_window_counts_now(feed, i);
            use_writer writer = {window, i, now.dropped - window->counts[i].dropped};
            ml_uses_visit(uses, tell_use, &writer);
        }
    }
}

static void
retire(ml_window *window)
{
    if (window->forked) {
        return;
    }
    ml_registered.windows[window->slot] = NULL;
    ml_notes_end(window->feed->source);
    if (window->journal != NULL) {
        tell_uses(window);
        ml_journal_detach(&window->feed->port, window->journal);
    }
    if (window->listening) {
        update_or_disable(window->feed);
    }
}

static void
window_free(ml_window *window)
{
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_free(window->tags[i].items);
    }
    ml_journal_close(window->journal);
    pthread_mutex_destroy(&window->tags_lock);
    ml_free(window->phases);
    ml_free(window);
}

static void
set_options(ml_window *window, const ml_window_options *options)
{
    window->options = *options;
    window->options.file = NULL;
    /* As in torch: a history of "state" keeps one event. */
    window->options.max_entries = options->keep_events ? options->max_entries : 1;
    atomic_store(&window->entry_limit, ml_window_reach(&window->options));
}

static int
add_phase(ml_window *window)
{
    if (window->phase_count > 0) {
        const ml_window_phase *last = &window->phases[window->phase_count - 1];
        if (last->wanted.context == window->options.context &&
            last->wanted.native == window->options.native) {
            return 0;
        }
    }
    if (ml_grow((void **)&window->phases, &window->phase_capacity,
                window->phase_count + 1, sizeof(*window->phases)) < 0) {
        return ml_recorder_fail(ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
    }
    ml_window_phase *phase = &window->phases[window->phase_count];
    phase->wanted = (ml_wanted){window->options.context, window->options.native};
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        phase->position[i] = ml_window_position(window, i);
    }
    window->phase_count++;
    return 0;
}

static int
open_file(ml_window *window, const ml_window_options *options)
{
    if (options->file == NULL) {
        return 0;
    }
    ml_journal_options how = {
        .path = options->file,
        .limit_bytes = options->file_bytes,
        .kept_steps = options->kept_steps,
        .device = options->device,
        .keys = options->keys,
        .uses = window->feed->logs != NULL ? options->uses : 0,
        .wanted = {options->context, options->native},
        .place = options->place,
        .warn = options->warn,
    };
    char text[ML_RECORDER_TEXT];
    int result = ml_journal_open(&window->journal, window->feed->source,
                                 ml_registered.stacks, &how, text, sizeof(text));
    return result < 0 ? ml_recorder_fail(result, "%s", text) : 0;
}

/* The recording can no longer fail, so an older file may go. */
static int
keep_file(ml_window *window)
{
    char text[ML_RECORDER_TEXT];
    int result = window->journal != NULL
                     ? ml_journal_keep(window->journal, text, sizeof(text))
                     : 0;
    return result < 0 ? ml_recorder_fail(result, "%s", text) : 0;
}

/* A slot among the windows; a waiting window also gets one among the source's files. */
static int
take_slot(ml_window *window)
{
    const ml_source *source = window->feed->source;
    unsigned files = 0;
    unsigned slot = ML_WINDOW_MAX;
    for (unsigned i = ML_WINDOW_MAX; i-- > 0;) {
        const ml_window *other = ml_registered.windows[i];
        files += other != NULL && other->feed == window->feed && other->journal != NULL;
        slot = other == NULL ? i : slot;
    }
    if (slot == ML_WINDOW_MAX) {
        return ml_recorder_fail(ML_EFULL,
                                "%d recordings are under way already; stop one of them "
                                "first",
                                ML_WINDOW_MAX);
    }
    if (window->journal != NULL && files == ML_PORT_JOURNALS) {
        return fail_files(source);
    }
    window->slot = slot;
    ml_registered.windows[slot] = window;
    window->notes = ml_notes_begin(source);
    return 0;
}

int
ml_window_start(const ml_source *source, const ml_window_options *options,
                ml_window **out)
{
    ml_feed *feed = source->feed;
    if (feed == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    if (feed->forked) {
        return ml_recorder_fail(ML_ESTATE, "a forked child of a process that "
                                           "records this source records nothing; start "
                                           "a new one");
    }
    ml_window *window = ml_alloc_zeroed(1, sizeof(*window));
    if (window == NULL) {
        return ml_recorder_fail(ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
    }
    window->feed = feed;
    pthread_mutex_init(&window->tags_lock, NULL);
    set_options(window, options);
    int result = open_file(window, options);
    if (result < 0) {
        window_free(window);
        return result;
    }
    ml_recorder_lock();
    result = take_slot(window);
    if (result == 0 && source->device_count(source->self) > 0) {
        result = begin_window(window);
    }
    if (result == 0) {
        result = add_phase(window);
    }
    if (result < 0 && ml_registered.windows[window->slot] == window) {
        retire(window);
    }
    ml_recorder_unlock();
    if (result < 0) {
        window_free(window);
        return result;
    }
    result = keep_file(window);
    if (result < 0) {
        ml_window_stop(window);
        return result;
    }
    *out = window;
    return 0;
}

int
ml_recorder_ready(const ml_source *source)
{
    ml_feed *feed = source->feed;
    if (feed == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    if (feed->forked) {
        /* Waiting windows are the parent's. */
        return 0;
    }
    int result = 0;
    ml_recorder_lock();
    for (unsigned i = 0; i < ML_WINDOW_MAX; i++) {
        ml_window *window = ml_registered.windows[i];
        if (window != NULL && window->feed == feed && !window->listening) {
            /* A window that cannot begin does not keep others from it. */
            int error = begin_window(window);
            result = result == 0 ? error : result;
        }
    }
    ml_recorder_unlock();
    return result;
}

int
ml_window_configure(ml_window *window, const ml_window_options *options)
{
    int result = 0;
    ml_recorder_lock();
    ml_feed *feed = window->feed;
    ml_window_options before = window->options;
    set_options(window, options);
    if (window->listening) {
        result = ml_window_start_reserve(feed, ml_window_reach(options));
    }
    if (result == 0) {
        result = add_phase(window);
    }
    if (result < 0) {
        set_options(window, &before);
    }
    update_feed(feed);
    ml_recorder_unlock();
    return result;
}

void
ml_window_clear(ml_window *window)
{
    ml_recorder_lock();
    ml_feed *feed = window->feed;
    for (int i = 0; window->listening && i < ML_DEVICE_MAX; i++) {
        /* Other threads still record: the new mark counts their earlier events. */
        int device = feed->logs != NULL ? i : 0;
        uint64_t mark = ml_lane_end(feed->logs != NULL ? &feed->logs[i].lane
                                                       : &feed->threads[i].lane);
        window->base_forgotten[device] += mark - window->marks[i];
        window->marks[i] = mark;
        window->counts[device] = ml_window_counts_now(feed, device);
        if (feed->logs != NULL) {
            /* Only the holder of the device's lock may set a peak. */
            atomic_fetch_or(&feed->logs[i].peaks_forgotten, 1u << window->slot);
        }
    }
    window->notes = ml_notes_now(feed->source);
    ml_recorder_unlock();
}

int
ml_window_freeze(ml_window *window, uint32_t keys, ml_recording **out)
{
    if (window->forked) {
        /* To look at the source's memory takes locks that the parent's threads held. */
        return ml_recorder_fail(ML_ESTATE, "a forked child cannot read its parent's "
                                           "recording");
    }
    ml_recorder_lock();
    int result = ml_window_freeze_locked(window, keys, out, NULL);
    ml_recorder_unlock();
    return result;
}

int
ml_window_file_frames(const ml_window *window, ml_recording **out)
{
    *out = NULL;
    if (window->journal == NULL || window->forked) {
        return 0;
    }
    ml_recording *recording = NULL;
    int result = ml_recording_new(&recording);
    if (result == 0) {
        /* The lock prevents new origins, which would move those being read. */
        ml_recorder_lock();
        result = ml_journal_frames(window->journal, recording);
        ml_recorder_unlock();
    }
    if (result == 0) {
        *out = recording;
    }
    else {
        ml_recording_free(recording);
    }
    return result;
}

void
ml_window_place(ml_window *window, ml_process_place place)
{
    ml_recorder_lock();
    if (window->journal != NULL && !window->forked) {
        ml_journal_place(window->journal, place);
    }
    ml_recorder_unlock();
}

void
ml_window_stop(ml_window *window)
{
    if (window == NULL) {
        return;
    }
    ml_recorder_lock();
    retire(window);
    ml_recorder_unlock();
    window_free(window);
}

static void
read_lane(ml_lane *lane, ml_recorder_stats *out)
{
    uint64_t end = ml_lane_end(lane);
    uint64_t oldest = ml_lane_oldest(lane);
    out->events += end;
    out->lane_events += end > oldest ? end - oldest : 0;
    out->lane_bytes += ml_lane_bytes(lane);
}

static int
read_stats(ml_feed *feed, int device, ml_recorder_stats *out)
{
    const ml_source *source = feed->source;
    memset(out, 0, sizeof(*out));
    out->lost_names = ml_stacks_lost_names(ml_registered.stacks);
    if (feed->logs == NULL) {
        if (device != 0) {
            return ml_recorder_fail(ML_EINVALID, "%s has device 0 only, not %d",
                                    source->name, device);
        }
        for (int i = 0; i < ML_FEED_LANES; i++) {
            read_lane(&feed->threads[i].lane, out);
        }
        out->dropped_events = atomic_load(&feed->dropped);
        out->lost_stacks = atomic_load(&feed->lost_stacks);
        int result = source->totals(source->self, 0, &out->current, &out->peak);
        return result < 0 ? ml_recorder_fail_source(feed, result) : 0;
    }
    if (device < 0 || device >= ML_DEVICE_MAX || feed->logs[device].ledger == NULL) {
        return ml_recorder_fail(
            ML_EINVALID, "nothing was recorded on %s:%d; start a recording first",
            source->name, device);
    }
    ml_device_log *log = &feed->logs[device];
    read_lane(&log->lane, out);
    out->dropped_events = atomic_load(&log->dropped) + atomic_load(&feed->dropped);
    out->lost_stacks = atomic_load(&log->lost_stacks);
    out->inconsistencies = atomic_load(&log->inconsistencies);
    ml_ledger_read_totals(log->ledger, &out->current, &out->peak);
    return 0;
}

uint32_t
ml_recorder_thread(void)
{
    return ml_feed_thread_number();
}

int
ml_recorder_stats_of(const ml_source *source, int device, ml_recorder_stats *out)
{
    ml_feed *feed = source->feed;
    if (feed == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    ml_recorder_lock();
    int result = read_stats(feed, device, out);
    ml_recorder_unlock();
    return result;
}
