/* The schema of torch.cuda.memory._snapshot(): one walk over a recording.
 *
 * Integers are written as by torch's own C++ writer, signed 64 bits wide: addresses and
 * streams from 2**63 on become negative, because the viewer reads no others.  Readers
 * accept no such sizes; larger sums and rounded sizes become the largest. */
#include "file/snapshot/torch_schema_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* An allocation of a block or a segment. */
typedef struct birth {
    uint64_t addr;
    size_t index;
    uint32_t forward; /* string id; 0: none */
    bool segment;
} birth;

/* A device while it is written. */
typedef struct device_walk {
    const ml_recording *recording;
    size_t index;
    /* Owned; blocks' before segments', by address, then in time; none without anomaly
     * mode. */
    birth *births;
    size_t birth_count;
} device_walk;

size_t
ml_shared_ids(const ml_recording *recording, unsigned kind)
{
    switch (kind) {
    case ML_SHARED_FRAME:
        return recording->frame_count;
    case ML_SHARED_FRAMES:
        return recording->stack_count;
    default:
        return recording->string_count;
    }
}

const char *
ml_word_text(unsigned word)
{
    static const char *const texts[] = {
#define XX(name, key, member, holds, of) key,
        ML_EVENT_COLUMNS(XX)
#undef XX
#define XX(name, text) text,
            ML_WORDS(XX)
#undef XX
    };
    if (word >= ML_WORD_CATEGORIES) {
        return ml_category_text(word - ML_WORD_CATEGORIES);
    }
    if (word >= ML_WORD_ACTIONS) {
        return ml_action_text(word - ML_WORD_ACTIONS);
    }
    return texts[word];
}

static void
put_pair(ml_builder *to, enum ml_word key, uint64_t first, uint64_t second)
{
    to->word(to, key);
    to->open(to, ML_VALUE_TUPLE);
    to->integer(to, (int64_t)first);
    to->integer(to, (int64_t)second);
    to->close(to);
}

static void
put_frame(ml_builder *to, const ml_recording *recording, uint32_t id)
{
    if (to->recall(to, ML_SHARED_FRAME, id)) {
        return;
    }
    const ml_frame *frame = &recording->frames[id];
    to->open(to, ML_VALUE_DICT);
    to->word(to, ML_WORD_NAME);
    to->string(to, frame->name);
    to->word(to, ML_WORD_FILENAME);
    to->string(to, frame->filename);
    to->word(to, ML_WORD_LINE);
    to->integer(to, frame->line);
    to->close(to);
    to->keep(to, ML_SHARED_FRAME, id);
}

static void
put_frames(ml_builder *to, const ml_recording *recording, uint32_t stack)
{
    to->word(to, ML_WORD_FRAMES);
    if (to->recall(to, ML_SHARED_FRAMES, stack)) {
        return;
    }
    to->open(to, ML_VALUE_LIST);
    for (uint32_t at = stack; at != 0 && to->error == 0;
         at = recording->stacks[at].parent) {
        put_frame(to, recording, recording->stacks[at].frame);
    }
    to->close(to);
    to->keep(to, ML_SHARED_FRAMES, stack);
}

/* The traceback ID as a list of its entries; torch writes no empty one. */
static void
put_forward(ml_builder *to, const ml_recording *recording, uint32_t id)
{
    if (id == 0) {
        return;
    }
    to->word(to, ML_WORD_FORWARD_FRAMES);
    if (to->recall(to, ML_SHARED_FORWARD, id)) {
        return;
    }
    const ml_string *string = &recording->strings[id];
    to->open(to, ML_VALUE_LIST);
    for (size_t at = 0; at < string->length;) {
        const char *start = string->bytes + at;
        const char *zero = memchr(start, '\0', string->length - at);
        size_t length = zero != NULL ? (size_t)(zero - start) : string->length - at;
        to->text(to, start, length);
        at += length + 1;
    }
    to->close(to);
    to->keep(to, ML_SHARED_FORWARD, id);
}

static int
compare_births(const void *a, const void *b)
{
    const birth *first = a;
    const birth *second = b;
    if (first->segment != second->segment) {
        return first->segment ? 1 : -1;
    }
    return first->addr != second->addr
               ? (first->addr > second->addr ? 1 : -1)
               : (first->index > second->index) - (first->index < second->index);
}

/* Whether DEVICE may have some: an annotation counts, too. */
static bool
has_forwards(const ml_device_trace *device)
{
    for (size_t i = 0; i < device->event_count; i += ML_EVENTS_CHUNK) {
        if (ml_events_most(&device->events, device->event_count, i,
                           ML_EVENT_MEMBER_other) != 0) {
            return true;
        }
    }
    return false;
}

/* Events have the traceback of their moment; blocks and segments have that of their
 * allocation. */
static int
find_births(device_walk *walk)
{
    const ml_device_trace *device = &walk->recording->devices[walk->index];
    if (!has_forwards(device)) {
        return 0;
    }
    walk->births = ml_alloc_zeroed(device->event_count, sizeof(*walk->births));
    if (walk->births == NULL) {
        return ML_ENOMEM;
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &device->events,
                         ML_EVENT_BIT(action) | ML_EVENT_BIT(addr) |
                             ML_EVENT_BIT(other));
    for (size_t i = 0; i < device->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        bool segment = event->action == ML_ACTION_SEGMENT_ALLOC ||
                       event->action == ML_ACTION_SEGMENT_MAP;
        if (segment || event->action == ML_ACTION_ALLOC) {
            walk->births[walk->birth_count++] =
                (birth){event->addr, i, ml_event_forward(event), segment};
        }
    }
    qsort(walk->births, walk->birth_count, sizeof(*walk->births), compare_births);
    return 0;
}

/* The traceback of the last allocation of a block, or SEGMENT, at ADDR. */
static uint32_t
forward_at(const device_walk *walk, bool segment, uint64_t addr)
{
    birth sought = {.addr = addr, .index = SIZE_MAX, .segment = segment};
    size_t at;
    ML_SEARCH(at, walk->birth_count, compare_births(&walk->births[at], &sought) <= 0);
    if (at == 0) {
        return 0;
    }
    const birth *last = &walk->births[at - 1];
    return last->segment == segment && last->addr == addr ? last->forward : 0;
}

static void
put_block(ml_builder *to, const device_walk *walk, const ml_block *block)
{
    static const enum ml_word states[] = {
        [ML_BLOCK_INACTIVE] = ML_WORD_INACTIVE,
        [ML_BLOCK_ALLOCATED] = ML_WORD_ACTIVE_ALLOCATED,
        [ML_BLOCK_PENDING_FREE] = ML_WORD_ACTIVE_PENDING_FREE};
    to->open(to, ML_VALUE_DICT);
    ml_put_number(to, ML_WORD_ADDRESS, block->addr);
    ml_put_size(to, ML_WORD_SIZE, block->size);
    ml_put_size(to, ML_WORD_REQUESTED_SIZE, block->requested);
    ml_put_word(to, ML_WORD_STATE, states[block->state]);
    put_frames(to, walk->recording, block->stack);
    if (block->state != ML_BLOCK_INACTIVE) {
        put_forward(to, walk->recording, forward_at(walk, false, block->addr));
    }
    to->close(to);
}

static void
put_segment(ml_builder *to, const device_walk *walk, const ml_segment *segment)
{
    const ml_recording *recording = walk->recording;
    const ml_device_trace *device = &recording->devices[walk->index];
    to->open(to, ML_VALUE_DICT);
    ml_put_number(to, ML_WORD_DEVICE, walk->index);
    ml_put_number(to, ML_WORD_ADDRESS, segment->addr);
    ml_put_size(to, ML_WORD_TOTAL_SIZE, segment->total);
    ml_put_size(to, ML_WORD_ALLOCATED_SIZE, segment->allocated);
    ml_put_size(to, ML_WORD_ACTIVE_SIZE, segment->active);
    ml_put_size(to, ML_WORD_REQUESTED_SIZE, segment->requested);
    ml_put_number(to, ML_WORD_STREAM, segment->stream);
    ml_put_word(to, ML_WORD_SEGMENT_TYPE,
                segment->small ? ML_WORD_SMALL : ML_WORD_LARGE);
    put_pair(to, ML_WORD_SEGMENT_POOL_ID, segment->pool[0], segment->pool[1]);
    ml_put_bool(to, ML_WORD_IS_EXPANDABLE, segment->expandable != 0);
    /* torch adds known frames last, and empty ones at once. */
    if (segment->stack == 0) {
        put_frames(to, recording, 0);
    }
    ml_put_list(to, ML_WORD_BLOCKS);
    for (size_t i = 0; i < segment->block_count; i++) {
        put_block(to, walk, &device->blocks[segment->first_block + i]);
    }
    to->close(to);
    if (segment->stack != 0) {
        put_frames(to, recording, segment->stack);
    }
    put_forward(to, recording, forward_at(walk, true, segment->addr));
    to->close(to);
}

static void
put_event(ml_builder *to, const ml_recording *recording, const ml_event *event)
{
    to->open(to, ML_VALUE_DICT);
    ml_put_word(to, ML_WORD_ACTION,
                event->action == ML_ACTION_OTHER && event->other == ML_OTHER_ANNOTATE
                    ? (unsigned)ML_WORD_ANNOTATE
                    : ML_WORD_ACTIONS + (unsigned)event->action);
    ml_put_number(to,
                  event->action == ML_ACTION_OOM ? ML_WORD_DEVICE_FREE : ML_WORD_ADDR,
                  event->addr);
    ml_put_size(to, ML_WORD_SIZE, event->size);
    ml_put_number(to, ML_WORD_STREAM, event->stream);
    ml_put_number(to, ML_WORD_TIME_US, event->time / 1000);
    const ml_event_column *column = ml_event_columns;
    for (; column->key != 0; column++) {
        /* torch writes this key only where it says something. */
        bool absent = column->word == ML_WORD_INTERNAL_METADATA && event->internal == 0;
        if ((recording->keys & column->key) == 0 || absent) {
            continue;
        }
        if (column->holds == ML_HOLDS_POOL) {
            put_pair(to, column->word, event->pool[0], event->pool[1]);
        }
        else if (column->word == ML_WORD_COMPILE_CONTEXT && event->compiled == 0) {
            ml_put_word(to, ML_WORD_COMPILE_CONTEXT, ML_WORD_NOT_COMPILED);
        }
        else {
            to->word(to, column->word);
            ml_put_column(to, column, event);
        }
    }
    if (event->stack != 0 || (event->flags & ML_EVENT_CONTEXT) != 0) {
        put_frames(to, recording, event->stack);
        put_forward(to, recording, ml_event_forward(event));
    }
    to->close(to);
}

static void
put_divisions(ml_builder *to, const uint64_t *divisions)
{
    static const char *const starts[] = {
        "1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
        "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"};
    to->open(to, ML_VALUE_DICT);
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        to->text(to, starts[i], strlen(starts[i]));
        ml_put_bytes(to, divisions[i]);
    }
    to->close(to);
}

static void
put_setting(ml_builder *to, const ml_setting *setting)
{
    to->string(to, setting->key);
    switch (setting->kind) {
    case 'b':
        to->boolean(to, setting->integer != 0);
        break;
    case 'i':
        to->integer(to, setting->integer);
        break;
    case 'f':
        to->real(to, setting->real);
        break;
    case 's':
        to->string(to, setting->text);
        break;
    default:
        put_divisions(to, setting->divisions);
        break;
    }
}

static void
put_annotation(ml_builder *to, const ml_annotation *annotation)
{
    to->open(to, ML_VALUE_DICT);
    ml_put_word(to, ML_WORD_STAGE, annotation->end ? ML_WORD_END : ML_WORD_START);
    to->word(to, ML_WORD_NAME);
    to->string(to, annotation->name);
    to->word(to, ML_WORD_DEVICE);
    to->integer(to, annotation->device);
    ml_put_number(to, ML_WORD_TIME_US, annotation->time / 1000);
    to->close(to);
}

static void
put_memory(ml_builder *to, const ml_recording *recording, unsigned options)
{
    ml_put_list(to, ML_WORD_SEGMENTS);
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *device = &recording->devices[d];
        device_walk walk = {.recording = recording, .index = d};
        to->error = to->error == 0 ? find_births(&walk) : to->error;
        for (size_t i = 0; i < device->segment_count && to->error == 0; i++) {
            put_segment(to, &walk, &device->segments[i]);
        }
        ml_free(walk.births);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_DEVICE_TRACES);
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *device = &recording->devices[d];
        ml_event_cursor cursor;
        ml_event_cursor_init(&cursor, &device->events, ML_EVENT_ALL);
        to->open(to, ML_VALUE_LIST);
        for (size_t i = 0; i < device->event_count && to->error == 0; i++) {
            const ml_event *event = ml_event_cursor_at(&cursor, i);
            if ((options & ML_TORCH_SCHEMA_SKIP(event->action)) == 0) {
                put_event(to, recording, event);
            }
        }
        to->close(to);
    }
    to->close(to);
}

int
ml_torch_schema_build(const ml_recording *recording, unsigned options, ml_builder *to)
{
    to->open(to, ML_VALUE_DICT);
    put_memory(to, recording, options);
    if ((recording->keys & ML_KEY_ALLOCATOR_SETTINGS) != 0) {
        to->word(to, ML_WORD_ALLOCATOR_SETTINGS);
        to->open(to, ML_VALUE_DICT);
        for (size_t i = 0; i < recording->setting_count; i++) {
            put_setting(to, &recording->settings[i]);
        }
        to->close(to);
    }
    if ((recording->keys & ML_KEY_EXTERNAL_ANNOTATIONS) != 0) {
        ml_put_list(to, ML_WORD_EXTERNAL_ANNOTATIONS);
        for (size_t i = 0; i < recording->annotation_count; i++) {
            put_annotation(to, &recording->annotations[i]);
        }
        to->close(to);
    }
    if ((recording->keys & ML_KEY_HOST) != 0) {
        ml_put_list(to, ML_WORD_HOST_SEGMENTS);
        to->close(to);
        ml_put_list(to, ML_WORD_HOST_TRACES);
        to->close(to);
    }
    if ((options & ML_TORCH_SCHEMA_EXTRAS) != 0) {
        ml_put_extras(to, recording);
    }
    to->close(to);
    return to->error;
}
