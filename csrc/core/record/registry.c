/* The objects for recording that a process has once.  See registry.h; recorder.h has
 * the functions for Python and the sources. */
#include "record/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "record/recorder.h"
#include "stacks/origins.h"

ml_registry ml_registered = {.lock = PTHREAD_MUTEX_INITIALIZER,
                             .notes.lock = PTHREAD_MUTEX_INITIALIZER,
                             .sampler.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread char error_text[ML_RECORDER_TEXT];

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

void
ml_recorder_set_forward(ml_forward_reader reader)
{
    ml_registered.forward = reader;
}

void
ml_recorder_set_native(ml_native_walker walker, const ml_symbolizer *symbolizer)
{
    pthread_mutex_lock(&ml_registered.lock);
    ml_registered.symbolizer = *symbolizer;
    ml_registered.native_walker = walker;
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        atomic_store(&ml_registered.feeds[i].native_walker, walker);
    }
    pthread_mutex_unlock(&ml_registered.lock);
}

/* Without the lock: the thread may hold the GIL.  A source that is added meanwhile takes
 * FRAMES itself. */
void
ml_recorder_torchscript_begun(ml_torchscript_frames frames)
{
    atomic_store(&ml_registered.torchscript, frames);
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        atomic_store(&ml_registered.feeds[i].torchscript, frames);
    }
}

ml_stacks *
ml_recorder_stacks(void)
{
    return ml_registered.stacks;
}

const ml_symbolizer *
ml_recorder_symbolizer(void)
{
    return &ml_registered.symbolizer;
}

void
ml_recorder_lock(void)
{
    pthread_mutex_lock(&ml_registered.lock);
}

void
ml_recorder_unlock(void)
{
    pthread_mutex_unlock(&ml_registered.lock);
}

ml_window *
ml_recorder_window(unsigned slot)
{
    return ml_registered.windows[slot];
}

void
ml_recorder_name_object(uint32_t id, const char *name, size_t length)
{
    ml_stacks_name_object(ml_registered.stacks, id, name, length);
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        ml_journal_port_name(&ml_registered.feeds[i].port, id, name, length);
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
    pthread_mutex_lock(&ml_registered.lock);
    ml_origins *origins = ml_stacks_origins(ml_registered.stacks);
    if (ml_origins_file(origins, path) == NULL) {
        result = add_origins(origins, path, lines, count);
        int feeds = atomic_load(&ml_registered.feed_count);
        for (int i = 0; i < feeds; i++) {
            ml_journal_port_origins(&ml_registered.feeds[i].port);
        }
    }
    pthread_mutex_unlock(&ml_registered.lock);
    return result;
}

const ml_source *
ml_recorder_source(const char *name)
{
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        if (strcmp(ml_registered.feeds[i].source->name, name) == 0) {
            return ml_registered.feeds[i].source;
        }
    }
    return NULL;
}

int
ml_recorder_add_source(ml_source *source)
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
    pthread_mutex_lock(&ml_registered.lock);
    int count = atomic_load(&ml_registered.feed_count);
    int result = count < ML_SOURCE_MAX && ml_registered.stacks != NULL ? 0 : ML_EFULL;
    if (result == 0) {
        ml_feed *feed = &ml_registered.feeds[count];
        feed->source = source;
        feed->stacks = ml_registered.stacks;
        feed->walker = ml_registered.walker;
        feed->forward = ml_registered.forward;
        pthread_mutex_init(&feed->port.control, NULL);
        atomic_init(&feed->native_walker, ml_registered.native_walker);
        if (source->ordered) {
            feed->logs = ml_alloc_zeroed(ML_DEVICE_MAX, sizeof(*feed->logs));
        }
        else {
            feed->threads = ml_alloc_zeroed(ML_FEED_LANES, sizeof(*feed->threads));
        }
        result = feed->logs != NULL || feed->threads != NULL ? 0 : ML_ENOMEM;
    }
    if (result == 0) {
        source->feed = &ml_registered.feeds[count];
        atomic_store(&ml_registered.feed_count, count + 1);
        atomic_store(&ml_registered.feeds[count].torchscript,
                     atomic_load(&ml_registered.torchscript));
    }
    pthread_mutex_unlock(&ml_registered.lock);
    return result;
}

uint32_t
ml_recorder_record(const ml_source *source, int device, ml_event *event,
                   const ml_event_text *text)
{
    return source->feed != NULL ? ml_feed_record(source->feed, device, event, text) : 0;
}

int
ml_recorder_enabled(const ml_source *source)
{
    const ml_feed *feed = source->feed;
    return feed != NULL && atomic_load_explicit(&feed->enabled, memory_order_relaxed);
}

int
ml_recorder_walk(ml_feed *feed, ml_feed_walk *walk, const ml_walk_visitor *visitor)
{
    walk->feed = feed;
    ml_feed_set_walk(walk);
    int result = feed->source->walk(feed->source->self, visitor);
    ml_feed_set_walk(NULL);
    return result < 0 ? ml_recorder_fail_source(feed, result) : result;
}

ml_meter *
ml_recorder_meter(const ml_source *source, int device)
{
    ml_feed *feed = source->feed;
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
    if (source->feed != NULL) {
        ml_feed_used(source->feed, marks, count);
    }
}

void
ml_recorder_use_unseen(const ml_source *source)
{
    if (source->feed != NULL) {
        ml_feed_use_unseen(source->feed);
    }
}
