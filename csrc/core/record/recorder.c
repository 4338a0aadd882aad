/* The recorder: where recordings begin and end.  See recorder.h; start.c learns the memory
 * there is when one begins, freeze.c turns a window into a recording. */
#include "record/recorder.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "record/sampler.h"
#include "record/start.h"
#include "record/window.h"
#include "stacks/origins.h"

#define SOURCE_MAX 8

static struct {
    pthread_mutex_t lock;
    ml_stacks *stacks; /* owned, for ever: ids live in lanes that callbacks may read */
    ml_stack_walker walker;
    ml_native_walker native_walker;
    ml_symbolizer symbolizer;
    ml_feed feeds[SOURCE_MAX];
    _Atomic int feed_count; /* grows only; feeds below it are complete */
    ml_window *windows[ML_WINDOW_MAX];
} hub = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread char error_text[512];

const char *
ml_recorder_error(void)
{
    return error_text[0] != '\0' ? error_text : "unknown error";
}

int
ml_recorder_fail(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof(error_text), format, arguments);
    va_end(arguments);
    return error;
}

int
ml_recorder_fail_source(const ml_feed *feed, int error)
{
    const ml_source *source = feed->source;
    const char *text = source->error != NULL ? source->error(source->self) : NULL;
    return ml_recorder_fail(error, "%s source: %s", source->name,
                            text != NULL && text[0] != '\0' ? text
                                                            : ml_strerror(error));
}

/* Whether FEED was recorded, or is of a source whose threads may be anywhere. */
static bool
was_used(const ml_feed *feed)
{
    bool used = feed->forked || feed->logs == NULL;
    for (int i = 0; i < ML_DEVICE_MAX && !used; i++) {
        used = feed->logs[i].ledger != NULL;
    }
    return used;
}

static void
forked_ledgers(ml_feed *feed)
{
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        if (feed->logs[i].ledger != NULL) {
            ml_ledger_forked(feed->logs[i].ledger);
        }
    }
}

/* A child of fork shares nothing with the parent's recordings, and the locks may have been
 * held by threads that it does not have.  It may record what the parent has not: of that
 * nothing is half done, for whoever begins holds the lock.  The stack table waits for no
 * thread, whatever one was doing. */
static void
forked(void)
{
    bool quiet = pthread_mutex_trylock(&hub.lock) == 0;
    pthread_mutex_init(&hub.lock, NULL);
    ml_notes_forked();
    ml_sampler_forked();
    for (int i = 0; i < ML_WINDOW_MAX; i++) {
        if (hub.windows[i] != NULL) {
            pthread_mutex_init(&hub.windows[i]->tags_lock, NULL);
            ml_journal_forked(hub.windows[i]->journal);
            hub.windows[i]->forked = true;
            hub.windows[i] = NULL;
        }
    }
    int count = atomic_load(&hub.feed_count);
    for (int i = 0; i < count; i++) {
        atomic_store(&hub.feeds[i].enabled, 0);
        ml_journal_port_forked(&hub.feeds[i].port);
        forked_ledgers(&hub.feeds[i]);
        hub.feeds[i].forked = !quiet || was_used(&hub.feeds[i]);
    }
}

int
ml_recorder_init(ml_stack_walker walker)
{
    int result = 0;
    ml_crc32c_choose();
    pthread_mutex_lock(&hub.lock);
    if (hub.stacks == NULL) {
        result = ml_stacks_new(&hub.stacks, NULL);
        if (result == 0) {
            hub.walker = walker;
            pthread_atfork(NULL, NULL, forked);
        }
    }
    pthread_mutex_unlock(&hub.lock);
    return result;
}

void
ml_recorder_set_native(ml_native_walker walker, const ml_symbolizer *symbolizer)
{
    pthread_mutex_lock(&hub.lock);
    hub.symbolizer = *symbolizer;
    hub.native_walker = walker;
    int count = atomic_load(&hub.feed_count);
    for (int i = 0; i < count; i++) {
        atomic_store(&hub.feeds[i].native_walker, walker);
    }
    pthread_mutex_unlock(&hub.lock);
}

ml_stacks *
ml_recorder_stacks(void)
{
    return hub.stacks;
}

const ml_symbolizer *
ml_recorder_symbolizer(void)
{
    return &hub.symbolizer;
}

void
ml_recorder_lock(void)
{
    pthread_mutex_lock(&hub.lock);
}

void
ml_recorder_unlock(void)
{
    pthread_mutex_unlock(&hub.lock);
}

ml_window *
ml_recorder_window(unsigned slot)
{
    return hub.windows[slot];
}

ml_feed *
ml_recorder_feed(const ml_source *source)
{
    int count = atomic_load_explicit(&hub.feed_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        if (hub.feeds[i].source == source) {
            return &hub.feeds[i];
        }
    }
    return NULL;
}

void
ml_recorder_name_object(uint32_t id, const char *name, size_t length)
{
    ml_stacks_name_object(hub.stacks, id, name, length);
    int count = atomic_load(&hub.feed_count);
    for (int i = 0; i < count; i++) {
        ml_journal_port_name(&hub.feeds[i].port, id, name, length);
    }
}

static int
add_origins(ml_origins *origins, ml_slice path, const ml_made_line *lines, size_t count)
{
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        uint32_t frame;
        result = ml_origins_add_trace(origins, lines[i].trace, &frame);
        if (result == 0) {
            result = ml_origins_add_line(origins, path, lines[i].line, frame);
        }
    }
    return result;
}

int
ml_recorder_add_origins(ml_slice path, const ml_made_line *lines, size_t count)
{
    int result = 0;
    pthread_mutex_lock(&hub.lock);
    ml_origins *origins = ml_stacks_origins(hub.stacks);
    if (ml_origins_file(origins, path) == NULL) {
        result = add_origins(origins, path, lines, count);
        int feeds = atomic_load(&hub.feed_count);
        for (int i = 0; i < feeds; i++) {
            ml_journal_port_origins(&hub.feeds[i].port);
        }
    }
    pthread_mutex_unlock(&hub.lock);
    return result;
}

ml_journal_port *
ml_recorder_port(const ml_source *source)
{
    return &ml_recorder_feed(source)->port;
}

const ml_source *
ml_recorder_source(const char *name)
{
    int count = atomic_load(&hub.feed_count);
    for (int i = 0; i < count; i++) {
        if (strcmp(hub.feeds[i].source->name, name) == 0) {
            return hub.feeds[i].source;
        }
    }
    return NULL;
}

int
ml_recorder_add_source(const ml_source *source)
{
    if (source->size < sizeof(ml_source) || source->version != ML_ABI_VERSION) {
        return ml_recorder_fail(ML_EINVALID,
                                "source built for another memlab (ABI %u, size %u)",
                                source->version, source->size);
    }
    if (ml_recorder_source(source->name) != NULL) {
        return ml_recorder_fail(ML_ESTATE, "a source named %s exists already",
                                source->name);
    }
    pthread_mutex_lock(&hub.lock);
    int count = atomic_load(&hub.feed_count);
    int result = count < SOURCE_MAX && hub.stacks != NULL ? 0 : ML_EFULL;
    if (result == 0) {
        ml_feed *feed = &hub.feeds[count];
        feed->source = source;
        feed->stacks = hub.stacks;
        feed->walker = hub.walker;
        pthread_mutex_init(&feed->port.control, NULL);
        atomic_init(&feed->native_walker, hub.native_walker);
        if (source->ordered) {
            feed->logs = ml_alloc_zeroed(ML_DEVICE_MAX, sizeof(*feed->logs));
        }
        else {
            feed->threads = ml_alloc_zeroed(ML_FEED_LANES, sizeof(*feed->threads));
        }
        result = feed->logs != NULL || feed->threads != NULL ? 0 : ML_ENOMEM;
    }
    if (result == 0) {
        atomic_store(&hub.feed_count, count + 1);
    }
    pthread_mutex_unlock(&hub.lock);
    return result;
}

uint32_t
ml_recorder_record(const ml_source *source, int device, ml_event *event,
                   const ml_event_text *text)
{
    ml_feed *feed = ml_recorder_feed(source);
    if (feed == NULL) {
        return 0;
    }
    return ml_feed_record(feed, device, event, text);
}

int
ml_recorder_enabled(const ml_source *source)
{
    ml_feed *feed = ml_recorder_feed(source);
    return feed != NULL && atomic_load_explicit(&feed->enabled, memory_order_relaxed);
}

int
ml_recorder_walk(ml_feed *feed, ml_walk *walk, const ml_walk_visitor *visitor)
{
    walk->feed = feed;
    ml_feed_set_walk(walk);
    int result = feed->source->walk(feed->source->self, visitor);
    ml_feed_set_walk(NULL);
    return result < 0 ? ml_recorder_fail_source(feed, result) : result;
}

/* ---- What all windows of a feed want together ---- */

static unsigned
capture_wanted(const ml_window_options *options)
{
    static const unsigned by_context[] = {0, ML_CAPTURE_ALLOC, ML_CAPTURE_ALLOC,
                                          ML_CAPTURE_ALLOC | ML_CAPTURE_FREE};
    unsigned wanted = by_context[options->context];
    return options->native && wanted != 0 ? wanted | ML_CAPTURE_NATIVE : wanted;
}

/* Tables, once there, stay: whoever marks a use may be late.  A device for which there is no
 * memory has no last uses. */
static void
follow_uses(ml_feed *feed, bool wanted)
{
    const ml_source *source = feed->source;
    if (feed->logs == NULL || source->watch_uses == NULL ||
        atomic_load(&feed->using) == wanted) {
        return;
    }
    int devices = wanted ? source->device_count(source->self) : ML_DEVICE_MAX;
    for (int i = 0; i < devices && i < ML_DEVICE_MAX; i++) {
        ml_uses *uses = atomic_load(&feed->logs[i].uses);
        if (uses != NULL) {
            ml_uses_clear(uses);
        }
        else if (wanted && (uses = ml_alloc_zeroed(1, sizeof(*uses))) != NULL) {
            if (ml_uses_init(uses) < 0) {
                ml_free(uses);
                uses = NULL;
            }
            atomic_store(&feed->logs[i].uses, uses);
        }
    }
    atomic_store(&feed->using, wanted);
    source->watch_uses(source->self, wanted);
}

static unsigned
update_feed(ml_feed *feed)
{
    unsigned capture = 0, windows = 0;
    bool metering = false, using = false;
    for (unsigned i = 0; i < ML_WINDOW_MAX; i++) {
        const ml_window *window = hub.windows[i];
        if (window != NULL && window->feed == feed && window->listening) {
            capture |= capture_wanted(&window->options);
            windows |= 1u << i;
            metering = metering || window->options.meter;
            using = using || window->options.uses;
        }
    }
    atomic_store(&feed->capture, capture);
    atomic_store(&feed->metering, metering);
    atomic_store(&feed->windows, windows);
    follow_uses(feed, using);
    return windows;
}

/* Nobody may be listening any more: then what is kept is of no use, and a later start
 * learns the memory afresh. */
static void
settle(ml_feed *feed)
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
begin(ml_window *window)
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
    result = ml_start_take(window);
    if (result < 0) {
        window->listening = false;
        settle(feed);
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
    uint64_t dropped; /* that the lane has not, but the file may have */
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

/* When what is live was last used: no event will tell the file. */
static void
tell_uses(ml_window *window)
{
    ml_feed *feed = window->feed;
    bool wanted =
        window->options.uses && feed->logs != NULL && atomic_load(&window->begun);
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
    hub.windows[window->slot] = NULL;
    ml_notes_end(window->feed->source);
    if (window->journal != NULL) {
        tell_uses(window);
        ml_journal_detach(&window->feed->port, window->journal);
    }
    if (window->listening) {
        settle(window->feed);
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
    /* As torch: a history of state alone keeps one event. */
    atomic_store(&window->entry_limit, options->keep_events ? options->max_entries : 1);
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
        .device = options->device,
        .keys = options->keys,
        .uses = options->uses && window->feed->logs != NULL,
        .wanted = {options->context, options->native},
        .place = options->place,
        .warn = options->warn,
    };
    char text[sizeof(error_text)];
    int result = ml_journal_open(&window->journal, window->feed->source, hub.stacks,
                                 &how, text, sizeof(text));
    return result < 0 ? ml_recorder_fail(result, "%s", text) : 0;
}

/* Nothing can refuse the recording any more: only now an older one may go. */
static int
keep_file(ml_window *window)
{
    char text[sizeof(error_text)];
    int result = window->journal != NULL
                     ? ml_journal_keep(window->journal, text, sizeof(text))
                     : 0;
    return result < 0 ? ml_recorder_fail(result, "%s", text) : 0;
}

/* A place among the windows, and for one that waits among the source's files as well. */
static int
take_slot(ml_window *window)
{
    const ml_source *source = window->feed->source;
    unsigned files = 0;
    unsigned slot = ML_WINDOW_MAX;
    for (unsigned i = ML_WINDOW_MAX; i-- > 0;) {
        const ml_window *other = hub.windows[i];
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
    hub.windows[slot] = window;
    window->notes = ml_notes_begin(source);
    return 0;
}

int
ml_window_start(const ml_source *source, const ml_window_options *options,
                ml_window **out)
{
    ml_feed *feed = ml_recorder_feed(source);
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
    pthread_mutex_lock(&hub.lock);
    result = take_slot(window);
    if (result == 0 && source->device_count(source->self) > 0) {
        result = begin(window);
    }
    if (result == 0) {
        result = add_phase(window);
    }
    if (result < 0 && hub.windows[window->slot] == window) {
        retire(window);
    }
    pthread_mutex_unlock(&hub.lock);
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
    ml_feed *feed = ml_recorder_feed(source);
    if (feed == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    if (feed->forked) {
        /* What waits is the parent's. */
        return 0;
    }
    int result = 0;
    pthread_mutex_lock(&hub.lock);
    for (unsigned i = 0; i < ML_WINDOW_MAX; i++) {
        ml_window *window = hub.windows[i];
        if (window != NULL && window->feed == feed && !window->listening) {
            /* One that cannot begin keeps no other from it. */
            int error = begin(window);
            result = result == 0 ? error : result;
        }
    }
    pthread_mutex_unlock(&hub.lock);
    return result;
}

int
ml_window_configure(ml_window *window, const ml_window_options *options)
{
    int result = 0;
    pthread_mutex_lock(&hub.lock);
    ml_feed *feed = window->feed;
    ml_window_options before = window->options;
    set_options(window, options);
    if (window->listening) {
        result = ml_start_reserve(feed, options->max_entries);
    }
    if (result == 0) {
        result = add_phase(window);
    }
    if (result < 0) {
        set_options(window, &before);
    }
    update_feed(feed);
    pthread_mutex_unlock(&hub.lock);
    return result;
}

void
ml_window_clear(ml_window *window)
{
    pthread_mutex_lock(&hub.lock);
    ml_feed *feed = window->feed;
    for (int i = 0; window->listening && i < ML_DEVICE_MAX; i++) {
        /* Other threads go on recording: the new mark says how many were before it. */
        int device = feed->logs != NULL ? i : 0;
        uint64_t mark = ml_lane_end(feed->logs != NULL ? &feed->logs[i].lane
                                                       : &feed->threads[i].lane);
        window->base_forgotten[device] += mark - window->marks[i];
        window->marks[i] = mark;
        window->counts[device] = ml_window_counts_now(feed, device);
        if (feed->logs != NULL) {
            /* Only who holds the device's lock may set a peak. */
            atomic_fetch_or(&feed->logs[i].peaks_forgotten, 1u << window->slot);
        }
    }
    window->notes = ml_notes_now(feed->source);
    pthread_mutex_unlock(&hub.lock);
}

int
ml_window_freeze(ml_window *window, uint32_t keys, ml_recording **out)
{
    if (window->forked) {
        /* To look at the source's memory it would take locks that the parent's threads
         * held. */
        return ml_recorder_fail(ML_ESTATE, "a forked child cannot read its parent's "
                                           "recording");
    }
    pthread_mutex_lock(&hub.lock);
    int result = ml_window_freeze_locked(window, keys, out, NULL);
    pthread_mutex_unlock(&hub.lock);
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
        /* No one adds origins meanwhile, which would move those that are read. */
        pthread_mutex_lock(&hub.lock);
        result = ml_journal_frames(window->journal, recording);
        pthread_mutex_unlock(&hub.lock);
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
    pthread_mutex_lock(&hub.lock);
    if (window->journal != NULL && !window->forked) {
        ml_journal_place(window->journal, place);
    }
    pthread_mutex_unlock(&hub.lock);
}

void
ml_window_stop(ml_window *window)
{
    if (window == NULL) {
        return;
    }
    pthread_mutex_lock(&hub.lock);
    retire(window);
    pthread_mutex_unlock(&hub.lock);
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
    out->lost_names = ml_stacks_lost_names(hub.stacks);
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

ml_meter *
ml_recorder_meter(const ml_source *source, int device)
{
    ml_feed *feed = ml_recorder_feed(source);
    if (feed == NULL || device < 0 ||
        device >= (feed->logs != NULL ? ML_DEVICE_MAX : 1)) {
        return NULL;
    }
    _Atomic(ml_meter *) *slot =
        feed->logs != NULL ? &feed->logs[device].meter : &feed->meter;
    ml_meter *meter = atomic_load(slot);
    if (meter == NULL) {
        ml_meter *made = ml_alloc_zeroed(1, sizeof(*made));
        if (made == NULL || atomic_compare_exchange_strong(slot, &meter, made)) {
            return made;
        }
        ml_free(made);
    }
    return meter;
}

void
ml_recorder_used(const ml_source *source, const ml_use_mark *marks, size_t count)
{
    ml_feed *feed = ml_recorder_feed(source);
    if (feed != NULL) {
        ml_feed_used(feed, marks, count);
    }
}

void
ml_recorder_use_unseen(const ml_source *source)
{
    ml_feed *feed = ml_recorder_feed(source);
    if (feed != NULL) {
        ml_feed_use_unseen(feed);
    }
}

uint32_t
ml_recorder_thread(void)
{
    return ml_feed_thread_number();
}

int
ml_recorder_stats_of(const ml_source *source, int device, ml_recorder_stats *out)
{
    ml_feed *feed = ml_recorder_feed(source);
    if (feed == NULL) {
        return ml_recorder_fail(ML_EINVALID, "source is not registered");
    }
    pthread_mutex_lock(&hub.lock);
    int result = read_stats(feed, device, out);
    pthread_mutex_unlock(&hub.lock);
    return result;
}
