/* Keeps a window's place among the events, and its tags.
 *
 * Nothing here takes the recorder's lock: tags come from threads that hold the GIL. */
#include "record/window.h"

#include <string.h>

#include "base/base.h"

bool
ml_window_begun(const ml_window *window)
{
    return atomic_load(&window->begun);
}

uint64_t
ml_window_reach(const ml_window_options *options)
{
    uint64_t most = options->max_entries;
    if (options->skipped == 0) {
        return most;
    }
    most = most < UINT64_MAX / 64 ? most * 64 : UINT64_MAX;
    return most > (1u << 20) ? most : 1u << 20;
}

bool
ml_window_wants(const ml_window *window, int device)
{
    return window->options.device < 0 || window->options.device == device;
}

uint64_t
ml_window_position(const ml_window *window, int device)
{
    const ml_feed *feed = window->feed;
    if (!atomic_load(&window->begun)) {
        return 0;
    }
    if (feed->logs != NULL) {
        return ml_lane_end(&feed->logs[device].lane) - window->event_base[device];
    }
    return device == 0 ? ml_feed_thread_events(feed) - window->event_base[0] : 0;
}

ml_window_counts
ml_window_counts_now(const ml_feed *feed, int device)
{
    if (feed->logs == NULL) {
        return (ml_window_counts){atomic_load(&feed->dropped),
                                  atomic_load(&feed->lost_stacks)};
    }
    const ml_device_log *log = &feed->logs[device];
    return (ml_window_counts){atomic_load(&log->dropped),
                              atomic_load(&log->lost_stacks)};
}

void
ml_window_copy_counts(const ml_window *window, int device, ml_device_trace *trace)
{
    ml_window_counts now = ml_window_counts_now(window->feed, device);
    trace->dropped_events = now.dropped - window->counts[device].dropped;
    trace->lost_stacks = now.lost_stacks - window->counts[device].lost_stacks;
}

/* ---- Tags ---- */

/* The kept tag of an id: tags are visited from the newest back. */
typedef struct kept_tags {
    const ml_tag *end;
    const ml_tag *wanted;
} kept_tags;

static bool
is_wanted(const void *context, uint32_t id)
{
    const kept_tags *kept = context;
    const ml_tag *tag = kept->end - 1 - id;
    return tag->addr == kept->wanted->addr && tag->position == kept->wanted->position &&
           tag->name == kept->wanted->name && tag->module == kept->wanted->module &&
           tag->category == kept->wanted->category;
}

/* Drops tags of events no longer kept, and repetitions at one position.  A program
 * whose steps allocate nothing repeats tags endlessly.  Of repeated tags the last
 * counts. */
static void
prune_tags(ml_window_tags *tags, uint64_t position, uint64_t entry_limit)
{
    uint64_t first = position > entry_limit ? position - entry_limit : 0;
    ml_tag *end = tags->items + tags->count;
    ml_tag *to = end;
    ml_intern seen = {0};
    kept_tags kept = {.end = end};
    int result = 0;
    for (ml_tag *at = end; at > tags->items && at[-1].position >= first; at--) {
        kept.wanted = at - 1;
        uint64_t hash = ml_hash_u64(at[-1].addr ^ ml_hash_u64(at[-1].position));
        uint32_t id;
        if (result == 0 && ml_intern_find(&seen, hash, is_wanted, &kept, &id)) {
            continue;
        }
        /* Without memory for the table, repetitions stay. */
        result = result == 0 ? ml_intern_add(&seen, hash) : result;
        *--to = at[-1];
    }
    ml_intern_fini(&seen);
    tags->count = (size_t)(end - to);
    memmove(tags->items, to, tags->count * sizeof(*to));
}

int
ml_window_tag(ml_window *window, int device, uint64_t addr, const ml_owner *owner)
{
    if (device < 0 || device >= ML_DEVICE_MAX ||
        owner->category > ML_CATEGORY_TAG_LAST) {
        return ml_recorder_fail(ML_EINVALID, "tag of device %d, category %u", device,
                                (unsigned)owner->category);
    }
    if (window->forked) {
        /* The child's memory is not the parent's. */
        return 0;
    }
    ml_tag tag = {
        .addr = addr,
        .name = owner->name,
        .module = owner->module,
        .category = (uint8_t)owner->category,
    };
    pthread_mutex_lock(&window->tags_lock);
    ml_window_tags *tags = &window->tags[device];
    tag.position = ml_window_position(window, device);
    int result = 0;
    if (tags->count == tags->capacity) {
        if (tags->count > 0) {
            prune_tags(tags, tag.position, atomic_load(&window->entry_limit));
        }
        if (tags->count >= tags->capacity / 2) {
            /* Otherwise each of the next tags would prune for one place. */
            result = ml_grow((void **)&tags->items, &tags->capacity,
                             tags->count * 2 + 1, sizeof(tag));
        }
    }
    if (tags->count < tags->capacity) {
        tags->items[tags->count++] = tag;
        result = 0;
    }
    pthread_mutex_unlock(&window->tags_lock);
    if (window->journal != NULL) {
        ml_journal_tag(&window->feed->port, window->journal, device, &tag);
    }
    return result < 0 ? ml_recorder_fail(result, "%s", ml_strerror(result)) : 0;
}

int
ml_window_copy_tags(ml_window *window, int device, ml_tag **out, size_t *count)
{
    pthread_mutex_lock(&window->tags_lock);
    const ml_window_tags *tags = &window->tags[device];
    ml_tag *copy = ml_alloc_zeroed(tags->count + 1, sizeof(*copy));
    if (copy != NULL && tags->count > 0) {
        memcpy(copy, tags->items, tags->count * sizeof(*copy));
    }
    *count = copy != NULL ? tags->count : 0;
    pthread_mutex_unlock(&window->tags_lock);
    *out = copy;
    return copy != NULL ? 0 : ML_ENOMEM;
}

void
ml_window_tell_code(ml_window *window, const ml_recording *recording)
{
    for (size_t i = 0; i < recording->code_line_count; i++) {
        ml_journal_code_line(&window->feed->port, window->journal, recording,
                             &recording->code_lines[i]);
    }
}
