/* Turns a window into a recording: copies the lanes' events, the memory now, and the
 * stacks, strings and times of both.
 *
 * The copies are made inside a walk over the source's memory, at the instant at which
 * the source's lock is held and its SNAPSHOT event arrives.  So events, ledger and
 * segments describe one moment.  A source without such a lock has no such instant: see
 * window_freeze_lanes.c. */
#include <string.h>

#include "base/base.h"
#include "record/window.h"
#include "recording/side_data.h"
#include "stacks/id_remap.h"
#include "stacks/stacks_records.h"

/* The stack of live memory: from the ledger, by address. */
typedef struct live_stack {
    uint64_t addr;
    uint32_t stack;
} live_stack;

typedef struct live_stacks {
    live_stack *items; /* owned; by address */
    size_t count;
    size_t capacity;
} live_stacks;

typedef struct freeze_walk {
    ml_feed_walk base;
    ml_window *window;       /* NULL: only the memory */
    ml_recording *recording; /* under construction; one trace a device */
    live_stacks segments[ML_DEVICE_MAX];
    live_stacks blocks[ML_DEVICE_MAX];
    ml_uses *uses;      /* of the current device; borrowed; NULL: not kept */
    uint64_t uses_from; /* the ordinal of its first event in the recording */
    size_t use_capacity;
    uint64_t first[ML_DEVICE_MAX]; /* position of the first kept event */
    uint64_t *ends;                /* borrowed; NULL: not asked for */
    int visiting;                  /* the device whose ledger is being visited */
    uint64_t begin;                /* births from here on are in the window */
    ml_window_phase wide;          /* widest_phase */
    size_t segment_capacity;
    size_t block_capacity;
    size_t setting_capacity;
    size_t annotation_capacity;
    size_t device_capacity;
    int error;
} freeze_walk;

static void
note_error(freeze_walk *walk, int result)
{
    if (result < 0 && walk->error == 0) {
        walk->error = ml_recorder_fail(result, "%s", ml_strerror(result));
    }
}

static ml_device_trace *
trace_of(freeze_walk *walk, int device)
{
    ml_recording *recording = walk->recording;
    size_t needed = (size_t)device + 1;
    if (needed <= recording->device_count) {
        return &recording->devices[device];
    }
    int result = ml_grow((void **)&recording->devices, &walk->device_capacity, needed,
                         sizeof(*recording->devices));
    if (result < 0) {
        note_error(walk, result);
        return NULL;
    }
    memset(&recording->devices[recording->device_count], 0,
           (needed - recording->device_count) * sizeof(*recording->devices));
    recording->device_count = needed;
    return &recording->devices[device];
}

/* ---- Stacks as their window wanted them ----
 *
 * What is captured is what all windows together want: another one may have had more. */

static uint32_t
stack_wanted(const ml_window_phase *phase, uint32_t stack)
{
    return ml_wanted_stack(&phase->wanted, ml_recorder_stacks(), stack);
}

/* The phase in which the event at POSITION fell. */
static const ml_window_phase *
phase_at(const ml_window *window, int device, uint64_t position)
{
    const ml_window_phase *phase = &window->phases[0];
    for (size_t i = 1; i < window->phase_count; i++) {
        if (window->phases[i].position[device] <= position) {
            phase = &window->phases[i];
        }
    }
    return phase;
}

/* The widest context of any phase, for memory of unknown age. */
static ml_window_phase
widest_phase(const ml_window *window)
{
    ml_window_phase widest = {.wanted = {.context = ML_CONTEXT_NONE}};
    for (size_t i = 0; i < window->phase_count; i++) {
        const ml_wanted *wanted = &window->phases[i].wanted;
        if (wanted->context != ML_CONTEXT_NONE) {
            widest.wanted.native |= wanted->native;
        }
        if (wanted->context > widest.wanted.context) {
            widest.wanted.context = wanted->context;
        }
    }
    return widest;
}

/* ---- The instant itself: the source's lock is held ---- */

static int
add_live(live_stacks *list, uint64_t addr, uint32_t stack)
{
    int result = ml_grow((void **)&list->items, &list->capacity, list->count + 1,
                         sizeof(*list->items));
    if (result == 0) {
        list->items[list->count++] = (live_stack){addr, stack};
    }
    return result;
}

static int
visit_segment(void *context, const ml_segment *segment)
{
    freeze_walk *walk = context;
    uint32_t stack =
        ml_wanted_segment(&walk->wide.wanted, ml_recorder_stacks(), segment);
    return stack == 0 ? 0
                      : add_live(&walk->segments[walk->visiting], segment->addr, stack);
}

static int
add_use(freeze_walk *walk, const ml_block *block)
{
    ml_device_trace *trace = &walk->recording->devices[walk->visiting];
    uint64_t last = walk->uses != NULL && block->state != ML_BLOCK_INACTIVE
                        ? ml_uses_look(walk->uses, block->addr, block->size)
                        : ML_USE_UNKNOWN;
    if (last == ML_USE_UNKNOWN) {
        return 0;
    }
    uint64_t first = walk->uses_from;
    uint64_t position = last > first ? last - first : 0;
    ml_use use = {.addr = block->addr,
                  .position =
                      position < trace->event_count ? position : trace->event_count};
    return ml_device_trace_add_use(trace, &walk->use_capacity, &use);
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    freeze_walk *walk = context;
    int device = walk->visiting;
    int result = add_use(walk, block);
    if (result < 0) {
        return result;
    }
    bool inside = birth != ML_BEFORE_EVENTS && birth >= walk->begin;
    uint64_t position = inside ? birth - walk->begin : 0;
    const ml_window_phase *phase = phase_at(walk->window, device, position);
    uint32_t stack = stack_wanted(phase, block->stack);
    return block->state == ML_BLOCK_INACTIVE || stack == 0
               ? 0
               : add_live(&walk->blocks[device], block->addr, stack);
}

/* Drops the oldest events, so that no more than the wanted number of those that count
 * are left. */
static void
cut_entries(ml_device_trace *trace, const ml_window_options *options)
{
    uint64_t counted = 0;
    size_t first = options->skipped != 0 ? trace->event_count : 0;
    while (first > 0) {
        unsigned action = trace->events.plain[first - 1].action;
        counted += (options->skipped >> action & 1u) == 0;
        if (counted > options->max_entries) {
            break;
        }
        first--;
    }
    if (first > 0) {
        trace->event_count -= first;
        memmove(trace->events.plain, trace->events.plain + first,
                trace->event_count * sizeof(ml_event));
    }
}

static void
copy_lane_events(freeze_walk *walk, ml_device_trace *trace, ml_lane *lane,
                 uint64_t mark)
{
    uint64_t end = ml_lane_end(lane);
    uint64_t total = end - mark;
    uint64_t limit = atomic_load(&walk->window->entry_limit);
    uint64_t kept = end - ml_lane_oldest(lane);
    uint64_t room = total < limit ? total : limit;
    room = room < kept ? room : kept;
    if (room == 0) {
        trace->overwritten_events = total;
        return;
    }
    trace->events.plain = ml_alloc((size_t)room * sizeof(ml_event));
    if (trace->events.plain == NULL) {
        note_error(walk, ML_ENOMEM);
        return;
    }
    trace->event_count = ml_lane_copy(lane, mark, end, room, trace->events.plain);
    cut_entries(trace, &walk->window->options);
    trace->overwritten_events = total - trace->event_count;
}

static void
freeze_arrive(ml_feed_walk *base, int device)
{
    freeze_walk *walk = (freeze_walk *)base;
    ml_window *window = walk->window;
    if (device < 0 || device >= ML_DEVICE_MAX) {
        return;
    }
    ml_device_log *log = &window->feed->logs[device];
    ml_device_trace *trace = trace_of(walk, device);
    if (trace == NULL || log->ledger == NULL || !ml_window_wants(window, device)) {
        return;
    }
    ml_feed_catch_up(window->feed, log);
    if (walk->ends != NULL) {
        walk->ends[device] = ml_lane_end(&log->lane);
    }
    copy_lane_events(walk, trace, &log->lane, window->marks[device]);
    walk->first[device] = window->base_forgotten[device] + trace->overwritten_events;
    ml_window_copy_counts(window, device, trace);
    trace->peak = log->window_peak[window->slot];
    walk->visiting = device;
    walk->uses = window->options.uses != 0 ? atomic_load(&log->uses) : NULL;
    trace->uses_sampled = window->options.uses > 1;
    walk->uses_from = window->marks[device] + trace->overwritten_events;
    walk->use_capacity = 0;
    walk->begin =
        ml_ledger_get_totals(log->ledger).events - ml_window_position(window, device);
    ml_ledger_visitor visitor = {walk, visit_segment, visit_block};
    note_error(walk, ml_ledger_visit(log->ledger, &visitor));
}

/* ---- The memory, as the source tells it ---- */

static uint32_t
take_live(const live_stacks *list, uint64_t addr)
{
    size_t at = ml_find_address(list->items, sizeof(*list->items), list->count, addr);
    return at < list->count && list->items[at].addr == addr ? list->items[at].stack : 0;
}

/* Without a window, it is the memory of all devices now. */
static bool
is_wanted(const freeze_walk *walk, int device)
{
    return walk->window == NULL || ml_window_wants(walk->window, device);
}

static int
walk_segment(void *context, int device, const ml_segment *segment)
{
    freeze_walk *walk = context;
    if (device < 0 || device >= ML_DEVICE_MAX) {
        return ML_ESOURCE;
    }
    if (!is_wanted(walk, device)) {
        return 0;
    }
    ml_device_trace *trace = trace_of(walk, device);
    if (trace == NULL) {
        return ML_ENOMEM;
    }
    if (trace->segment_count == 0) {
        /* A device's segments arrive together: the capacities serve one device at a
         * time. */
        walk->segment_capacity = 0;
        walk->block_capacity = 0;
    }
    int result = ml_grow((void **)&trace->segments, &walk->segment_capacity,
                         trace->segment_count + 1, sizeof(*trace->segments));
    if (result == 0) {
        ml_segment *copy = &trace->segments[trace->segment_count++];
        *copy = *segment;
        if (walk->base.feed->source->ordered) {
            copy->stack = take_live(&walk->segments[device], segment->addr);
        }
        copy->first_block = trace->block_count;
        copy->block_count = 0;
    }
    return result;
}

static int
walk_block(void *context, int device, const ml_block *block)
{
    freeze_walk *walk = context;
    if (!is_wanted(walk, device)) {
        return 0;
    }
    ml_device_trace *trace = trace_of(walk, device);
    if (trace == NULL || trace->segment_count == 0) {
        return ML_ESOURCE;
    }
    int result = ml_grow((void **)&trace->blocks, &walk->block_capacity,
                         trace->block_count + 1, sizeof(*trace->blocks));
    if (result == 0) {
        ml_block *copy = &trace->blocks[trace->block_count++];
        *copy = *block;
        if (walk->base.feed->source->ordered) {
            copy->stack = block->state == ML_BLOCK_INACTIVE
                              ? 0
                              : take_live(&walk->blocks[device], block->addr);
        }
        trace->segments[trace->segment_count - 1].block_count++;
    }
    return result;
}

static int
add_text(freeze_walk *walk, const char *text, uint32_t *id)
{
    *id = 0;
    return text == NULL || text[0] == '\0'
               ? 0
               : ml_recording_add_string(walk->recording, text, strlen(text), id);
}

static int
walk_setting(void *context, const char *key, char kind, int64_t integer, double real,
             const char *text, const uint64_t *divisions)
{
    freeze_walk *walk = context;
    ml_setting setting = {.kind = kind, .integer = integer, .real = real};
    if (kind == 'd') {
        memcpy(setting.divisions, divisions, sizeof(setting.divisions));
    }
    int result = add_text(walk, key, &setting.key);
    if (result == 0) {
        result = add_text(walk, text, &setting.text);
    }
    return result == 0 ? ml_recording_add_setting(walk->recording,
                                                  &walk->setting_capacity, &setting)
                       : result;
}

static int
walk_annotation(void *context, const char *stage, const char *name, int device,
                uint64_t ticks)
{
    freeze_walk *walk = context;
    ml_recording *recording = walk->recording;
    ml_annotation annotation = {
        .time = ticks, .device = device, .end = strcmp(stage, "END") == 0};
    int result = add_text(walk, name, &annotation.name);
    if (result == 0) {
        result = ml_grow((void **)&recording->annotations, &walk->annotation_capacity,
                         recording->annotation_count + 1, sizeof(annotation));
    }
    if (result == 0) {
        recording->annotations[recording->annotation_count++] = annotation;
    }
    return result;
}

/* ---- Events as their window wanted them ---- */

static void
dress_events(freeze_walk *walk, ml_device_trace *trace, int device)
{
    const ml_window *window = walk->window;
    ml_wanted_call call = {0};
    size_t phase = window->phase_count - 1;
    for (size_t i = trace->event_count; i-- > 0;) {
        ml_event *event = &trace->events.plain[i];
        uint64_t position = walk->first[device] + i;
        while (phase > 0 && window->phases[phase].position[device] > position) {
            phase--;
        }
        event->unused = window->options.uses != 0 ? event->unused : 0;
        ml_wanted_event(&window->phases[phase].wanted, ml_recorder_stacks(),
                        &trace->events, i, event,
                        window->feed->source->ordered ? &call : NULL);
    }
}

static int
freeze_unordered(freeze_walk *walk)
{
    ml_device_trace *trace = trace_of(walk, 0);
    int result =
        trace != NULL ? ml_window_freeze_lanes(walk->window, trace) : ML_ENOMEM;
    if (result < 0) {
        return result;
    }
    walk->first[0] = walk->window->base_forgotten[0] + trace->overwritten_events;
    for (size_t i = 0; i < trace->segment_count; i++) {
        trace->segments[i].stack = stack_wanted(&walk->wide, trace->segments[i].stack);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        trace->blocks[i].stack = stack_wanted(&walk->wide, trace->blocks[i].stack);
    }
    return 0;
}

/* ---- Tags, times ---- */

static int
copy_tags(freeze_walk *walk, int device, ml_device_trace *trace)
{
    size_t count;
    int result = ml_window_copy_tags(walk->window, device, &trace->tags, &count);
    uint64_t first = walk->first[device];
    for (size_t i = 0; i < count; i++) {
        ml_tag tag = trace->tags[i];
        if (tag.position < first) {
            /* The tag is from before the kept events: the address may have a new block
             * since. */
            continue;
        }
        tag.position -= first;
        if (tag.position > trace->event_count) {
            if (walk->window->feed->source->ordered) {
                /* The tag is from after the recording's instant. */
                continue;
            }
            /* Events count before they are in their lane. */
            tag.position = trace->event_count;
        }
        trace->tags[trace->tag_count++] = tag;
    }
    return result;
}

static int
convert_times(freeze_walk *walk)
{
    const ml_source *source = walk->window->feed->source;
    ml_recording *recording = walk->recording;
    int result = 0;
    for (size_t d = 0; d < recording->device_count && result >= 0; d++) {
        ml_device_trace *trace = &recording->devices[d];
        if (trace->event_count > 0) {
            result = source->unix_ns(source->self, &trace->events.plain[0].time,
                                     sizeof(ml_event), trace->event_count);
        }
    }
    if (result >= 0 && recording->annotation_count > 0) {
        result = source->unix_ns(source->self, &recording->annotations[0].time,
                                 sizeof(ml_annotation), recording->annotation_count);
    }
    return result < 0 ? result : 0;
}

static int
freeze(freeze_walk *walk)
{
    ml_window *window = walk->window;
    ml_feed *feed = window->feed;
    ml_recording *recording = walk->recording;
    ml_walk_visitor visitor = {
        .context = walk,
        .segment = walk_segment,
        .block = walk_block,
        .setting = walk_setting,
        .annotation = walk_annotation,
    };
    int result = ml_recorder_walk(feed, &walk->base, &visitor);
    if (result == 0 && walk->error == 0 && !feed->source->ordered) {
        note_error(walk, freeze_unordered(walk));
    }
    if (result == 0) {
        result = walk->error;
    }
    if (result == 0) {
        result = feed->source->rules(feed->source->self, 0, &recording->rules);
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        dress_events(walk, &recording->devices[d], (int)d);
    }
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        result = copy_tags(walk, (int)d, &recording->devices[d]);
    }
    if (result == 0) {
        const ml_symbolizer *symbolizer = ml_recorder_symbolizer();
        result = ml_id_remap(recording, ml_recorder_stacks(),
                             symbolizer->symbolize != NULL ? symbolizer : NULL, true);
    }
    if (result == 0) {
        result = convert_times(walk);
    }
    return result == 0 ? ml_recording_pack(recording) : result;
}

/* A recording without devices, and a walk that fills it. */
static int
prepare(const ml_feed *feed, uint32_t keys, freeze_walk **walk)
{
    freeze_walk *made = ml_alloc_zeroed(1, sizeof(*made));
    int result = made != NULL ? ml_recording_new(&made->recording) : ML_ENOMEM;
    if (result < 0) {
        ml_free(made);
        return ml_recorder_fail(result, "%s", ml_strerror(result));
    }
    ml_recording *recording = made->recording;
    recording->keys = keys;
    recording->source_known = 1;
    const char *name = feed->source->name;
    size_t length = strlen(name);
    if (length >= sizeof(recording->source)) {
        length = sizeof(recording->source) - 1;
    }
    memcpy(recording->source, name, length);
    *walk = made;
    return 0;
}

/* Passes on the recording unless RESULT is an error. */
static int
conclude(freeze_walk *walk, int result, ml_recording **out)
{
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_free(walk->segments[i].items);
        ml_free(walk->blocks[i].items);
    }
    if (result < 0) {
        ml_recording_free(walk->recording);
    }
    else {
        *out = walk->recording;
    }
    ml_free(walk);
    return result;
}

int
ml_window_freeze_locked(ml_window *window, uint32_t keys, ml_recording **out,
                        uint64_t *ends)
{
    freeze_walk *walk;
    int result = prepare(window->feed, keys, &walk);
    if (result < 0) {
        return result;
    }
    walk->base.arrive = freeze_arrive;
    walk->window = window;
    walk->wide = widest_phase(window);
    walk->ends = ends;
    if (window->begun) {
        result = freeze(walk);
        if (result == 0) {
            result =
                ml_notes_copy(window->feed->source, window->notes, walk->recording);
        }
    }
    return conclude(walk, result, out);
}

static void
pass_by(ml_feed_walk *base, int device)
{
    (void)base;
    (void)device;
}

int
ml_feed_freeze_locked(ml_feed *feed, ml_recording **out)
{
    freeze_walk *walk;
    int result = prepare(feed, 0, &walk);
    if (result < 0) {
        return result;
    }
    walk->base = (ml_feed_walk){.arrive = pass_by, .silent = true};
    ml_walk_visitor visitor = {
        .context = walk, .segment = walk_segment, .block = walk_block};
    result = ml_recorder_walk(feed, &walk->base, &visitor);
    if (result == 0) {
        result = feed->source->rules(feed->source->self, 0, &walk->recording->rules);
    }
    if (result == 0) {
        /* Blocks of the cpu keep the stacks of recordings that have ended. */
        result = ml_id_remap(walk->recording, ml_recorder_stacks(), NULL, false);
    }
    return conclude(walk, result, out);
}
