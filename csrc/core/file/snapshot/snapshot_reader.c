/* Reads a snapshot: events, settings, annotations, and the whole. */
#include "file/snapshot/snapshot_reader.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "file/snapshot/snapshot_extras.h"
#include "file/snapshot/snapshot_fields.h"
#include "file/snapshot/snapshot_memory.h"
#include "file/snapshot/unpickle.h"
#include "recording/module_calls.h"
#include "recording/side_data.h"

/* Microseconds in the file, nanoseconds in the recording. */
static bool
read_time(ml_reader *r, ml_value value, enum ml_unread what, uint64_t *out)
{
    uint64_t time = 0;
    bool readable = ml_value_natural(value, &time) && time <= UINT64_MAX / 1000;
    if (ml_snapshot_tables_give(&r->tables, what, readable)) {
        *out = time * 1000;
    }
    return readable;
}

/* ---- events ---- */

#define NO_TIME UINT64_MAX

enum {
    SEEN_ACTION = 1,
    SEEN_ADDR = 2,
    SEEN_SIZE = 4,
    SEEN_ALL = 7
};

static void
read_event_pool(ml_reader *r, ml_value value, ml_event *event)
{
    uint64_t pool[2] = {UINT64_MAX, UINT64_MAX};
    if (!ml_reader_pool(r, value, ML_UNREAD_EVENT_POOL_ID, pool)) {
        return;
    }
    if (pool[0] > UINT32_MAX || pool[1] > UINT32_MAX) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_EVENT_POOL_ID);
        return;
    }
    event->pool[0] = (uint32_t)pool[0];
    event->pool[1] = (uint32_t)pool[1];
    event->flags |= ML_EVENT_POOL_KNOWN;
}

static void
read_action(ml_reader *r, ml_value value, ml_event *event, unsigned *seen)
{
    if (ml_snapshot_tables_give(&r->tables, ML_UNREAD_EVENT_ACTION,
                                ml_value_is(value, ML_VALUE_STRING))) {
        unsigned word = ml_snapshot_tables_word(&r->tables, value);
        bool known =
            word >= ML_WORD_ACTIONS && word < ML_WORD_ACTIONS + ML_ACTION_COUNT;
        event->action = (uint8_t)(known ? word - ML_WORD_ACTIONS : ML_ACTION_OTHER);
        event->other = word == ML_WORD_ANNOTATE ? ML_OTHER_ANNOTATE : ML_OTHER_UNKNOWN;
        *seen |= SEEN_ACTION;
    }
}

static int
read_event_column(ml_reader *r, unsigned word, ml_value value, ml_event *event)
{
    if (word >= ML_EVENT_COLUMN_COUNT || ml_event_columns[word].key == 0) {
        return 0;
    }
    const ml_event_column *column = &ml_event_columns[word];
    r->recording->keys |= column->key;
    return ml_tables_column(&r->tables, column, value, column->unread, event);
}

static int
read_event_field(ml_reader *r, unsigned word, ml_value value, ml_event *event,
                 uint32_t *forward, unsigned *seen)
{
    switch (word) {
    case ML_WORD_ACTION:
        read_action(r, value, event, seen);
        return 0;
    case ML_WORD_ADDR:
    case ML_WORD_DEVICE_FREE:
        if (ml_reader_address(r, value, ML_UNREAD_EVENT_ADDR, &event->addr)) {
            *seen |= SEEN_ADDR;
        }
        return 0;
    case ML_WORD_SIZE:
        if (ml_reader_natural(r, value, ML_UNREAD_EVENT_SIZE, &event->size)) {
            *seen |= SEEN_SIZE;
        }
        return 0;
    case ML_WORD_STREAM:
        ml_reader_address(r, value, ML_UNREAD_EVENT_STREAM, &event->stream);
        return 0;
    case ML_WORD_TIME_US:
        read_time(r, value, ML_UNREAD_EVENT_TIME, &event->time);
        return 0;
    case ML_WORD_COMPILE_CONTEXT:
        r->recording->keys |= ML_KEY_COMPILE_CONTEXT;
        if (ml_snapshot_tables_word(&r->tables, value) == ML_WORD_NOT_COMPILED) {
            return 0;
        }
        return read_event_column(r, word, value, event);
    case ML_WORD_POOL_ID:
        r->recording->keys |= ML_KEY_POOL_ID;
        read_event_pool(r, value, event);
        return 0;
    case ML_WORD_FRAMES:
        event->flags |= ML_EVENT_CONTEXT;
        return ml_snapshot_tables_stack(&r->tables, value, ML_UNREAD_EVENT_FRAMES,
                                        &event->stack);
    case ML_WORD_FORWARD_FRAMES:
        return ml_snapshot_tables_texts(&r->tables, value,
                                        ML_UNREAD_EVENT_FORWARD_FRAMES, forward);
    default:
        return read_event_column(r, word, value, event);
    }
}

/* An incomplete event keeps its index and time, and becomes an action that changes no
 * memory. */
static int
read_event(ml_reader *r, ml_value value, ml_event *event)
{
    const ml_array *dict = ml_reader_dict(r, value, ML_UNREAD_EVENT);
    unsigned seen = 0;
    uint32_t forward = 0;
    int error = 0;
    event->time = NO_TIME;
    for (uint32_t i = 0; dict != NULL && error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_snapshot_tables_word(&r->tables, dict->items[i]);
        error = read_event_field(r, word, dict->items[i + 1], event, &forward, &seen);
    }
    if (event->action == ML_ACTION_OOM && event->addr > ML_SIZE_MOST) {
        /* Not an address but the device's free bytes. */
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_EVENT_ADDR);
        event->addr = 0;
        seen &= ~(unsigned)SEEN_ADDR;
    }
    if (event->action != ML_ACTION_OOM && event->size > UINT64_MAX - event->addr) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_EVENT_SIZE);
        event->size = 0;
        seen &= ~(unsigned)SEEN_SIZE;
    }
    if (seen != SEEN_ALL) {
        event->action = ML_ACTION_OTHER;
    }
    if (event->action != ML_ACTION_OTHER) {
        event->other = forward;
    }
    return error;
}

/* An event without a time gets that of the event before; the first ones get the next
 * time. */
static void
fill_times(ml_device_trace *device)
{
    uint64_t time = 0;
    for (size_t i = device->event_count; i-- != 0;) {
        time = ml_events_time(&device->events, i) != NO_TIME
                   ? ml_events_time(&device->events, i)
                   : time;
    }
    for (size_t i = 0; i < device->event_count; i++) {
        ml_event *event = &device->events.plain[i];
        time = event->time != NO_TIME ? event->time : time;
        event->time = time;
    }
}

static int
read_trace(ml_reader *r, ml_value value, ml_device_trace *device)
{
    const ml_array *list = ml_reader_list(r, value, ML_UNREAD_TRACE);
    if (list == NULL) {
        return 0;
    }
    void *events = NULL;
    int error = ml_reader_column(r, list->count, sizeof(ml_event), &events);
    device->events.plain = events;
    for (uint32_t i = 0; error == 0 && i < list->count; i++) {
        error = read_event(r, list->items[i], &device->events.plain[i]);
        device->event_count = i + 1;
    }
    fill_times(device);
    return error;
}

/* ---- settings and annotations ---- */

static void
read_divisions(ml_reader *r, const ml_array *dict, ml_setting *setting)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (!ml_value_is(dict->items[i], ML_VALUE_STRING)) {
            continue;
        }
        const ml_text *text = ml_value_as_text(dict->items[i]);
        for (unsigned k = 0; k < 16; k++) {
            char start[8];
            int length = snprintf(start, sizeof(start), "%lu", 1ul << k);
            if (text->length == (size_t)length &&
                memcmp(text->bytes, start, text->length) == 0) {
                ml_reader_natural(r, dict->items[i + 1], ML_UNREAD_SETTING,
                                  &setting->divisions[k]);
            }
        }
    }
    setting->kind = 'd';
}

/* Leaves the kind at 0 if the value has no kind of settings. */
static int
read_setting(ml_reader *r, ml_value value, ml_setting *setting)
{
    switch (ml_value_kind(value)) {
    case ML_VALUE_BOOL:
        setting->kind = 'b';
        setting->integer = value.bits == ML_VALUE_OF_TRUE.bits;
        return 0;
    case ML_VALUE_INT:
        setting->kind = 'i';
        setting->integer = ml_value_as_int(value);
        return 0;
    case ML_VALUE_REAL:
        setting->kind = 'f';
        setting->real = ml_value_as_scalar(value)->as.real;
        return 0;
    case ML_VALUE_STRING:
        setting->kind = 's';
        return ml_snapshot_tables_string(&r->tables, value, ML_UNREAD_SETTING,
                                         &setting->text);
    case ML_VALUE_DICT:
        read_divisions(r, ml_value_as_array(value), setting);
        return 0;
    default:
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SETTING);
        return 0;
    }
}

static void
apply_rule(ml_allocator_rules *rules, unsigned word, const ml_setting *setting)
{
    if (word == ML_WORD_MAX_SPLIT_SIZE && setting->kind == 'i') {
        rules->max_split_bytes =
            setting->integer < 0 ? UINT64_MAX : (uint64_t)setting->integer;
    }
    else if (word == ML_WORD_EXPANDABLE_SEGMENTS && setting->kind == 'b') {
        rules->expandable_segments = setting->integer != 0;
    }
    else if (word == ML_WORD_ROUNDUP_POWER2_DIVISIONS && setting->kind == 'd') {
        for (unsigned i = 0; i < 16; i++) {
            uint64_t divisions = setting->divisions[i];
            rules->roundup_divisions[i] =
                divisions <= UINT32_MAX ? (uint32_t)divisions : 0;
        }
    }
}

static int
read_settings(ml_reader *r, ml_value value)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_ALLOCATOR_SETTINGS);
        return 0;
    }
    const ml_array *dict = ml_value_as_array(value);
    size_t capacity = 0;
    int error = ml_tree_charge(r->tables.tree, dict->count / 2 * sizeof(ml_setting));
    r->recording->keys |= ML_KEY_ALLOCATOR_SETTINGS;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        ml_value key = dict->items[i];
        if (!ml_value_is(key, ML_VALUE_STRING)) {
            ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SETTING);
            continue;
        }
        ml_setting setting = {0};
        error =
            ml_snapshot_tables_string(&r->tables, key, ML_UNREAD_SETTING, &setting.key);
        if (error == 0) {
            error = read_setting(r, dict->items[i + 1], &setting);
        }
        if (error == 0 && setting.kind != 0) {
            apply_rule(&r->recording->rules, ml_snapshot_tables_word(&r->tables, key),
                       &setting);
            error = ml_tables_taken(
                &r->tables, ML_UNREAD_SETTING,
                ml_recording_add_setting(r->recording, &capacity, &setting));
        }
    }
    return error;
}

/* *TIMED: it has a time; without one it is useless. */
static int
read_annotation(ml_reader *r, const ml_array *dict, ml_annotation *annotation,
                bool *timed)
{
    int error = 0;
    *annotation = (ml_annotation){.device = -1};
    *timed = false;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        unsigned word;
        switch (ml_snapshot_tables_word(&r->tables, dict->items[i])) {
        case ML_WORD_STAGE:
            word = ml_snapshot_tables_word(&r->tables, item);
            annotation->end = word == ML_WORD_END;
            ml_snapshot_tables_give(&r->tables, ML_UNREAD_ANNOTATION_STAGE,
                                    word == ML_WORD_START || word == ML_WORD_END);
            break;
        case ML_WORD_NAME:
            error = ml_snapshot_tables_string(
                &r->tables, item, ML_UNREAD_ANNOTATION_NAME, &annotation->name);
            break;
        case ML_WORD_DEVICE:
            if (ml_snapshot_tables_give(&r->tables, ML_UNREAD_ANNOTATION_DEVICE,
                                        ml_value_is(item, ML_VALUE_INT) &&
                                            ml_value_as_int(item) >= INT32_MIN &&
                                            ml_value_as_int(item) <= INT32_MAX)) {
                annotation->device = (int32_t)ml_value_as_int(item);
            }
            break;
        case ML_WORD_TIME_US:
            *timed = read_time(r, item, ML_UNREAD_ANNOTATION_TIME, &annotation->time);
            break;
        default:
            break;
        }
    }
    return error;
}

static int
read_annotations(ml_reader *r, ml_value value)
{
    const ml_array *list = ml_reader_list(r, value, ML_UNREAD_EXTERNAL_ANNOTATIONS);
    if (list == NULL) {
        return 0;
    }
    void *column = NULL;
    int error = ml_reader_column(r, list->count, sizeof(ml_annotation), &column);
    r->recording->annotations = column;
    r->recording->keys |= ML_KEY_EXTERNAL_ANNOTATIONS;
    for (uint32_t i = 0; error == 0 && i < list->count; i++) {
        const ml_array *dict = ml_reader_dict(r, list->items[i], ML_UNREAD_ANNOTATION);
        bool timed = false;
        if (dict != NULL) {
            error = read_annotation(
                r, dict, &r->recording->annotations[r->recording->annotation_count],
                &timed);
        }
        r->recording->annotation_count += timed;
    }
    return error;
}

/* ---- the whole ---- */

/* The parts of the top level; the last of equal keys counts, as in Python. */
typedef struct parts {
    ml_value segments;
    ml_value traces;
    ml_value settings;
    ml_value annotations;
    ml_value extras;
    bool has_segments;
    bool has_traces;
    bool has_settings;
    bool has_annotations;
    bool has_extras;
} parts;

/* The host's pinned memory, which is of no device. */
static void
leave_out(ml_reader *r, ml_value value, enum ml_unread what)
{
    const ml_array *list = ml_reader_list(r, value, what);
    r->recording->keys |= ML_KEY_HOST;
    r->recording->unread[what] += list != NULL ? list->count : 0;
}

static void
find_parts(ml_reader *r, const ml_array *dict, parts *found)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        ml_value value = dict->items[i + 1];
        switch (ml_snapshot_tables_word(&r->tables, dict->items[i])) {
        case ML_WORD_SEGMENTS:
            found->segments = value;
            found->has_segments = true;
            break;
        case ML_WORD_DEVICE_TRACES:
            found->traces = value;
            found->has_traces = true;
            break;
        case ML_WORD_ALLOCATOR_SETTINGS:
            found->settings = value;
            found->has_settings = true;
            break;
        case ML_WORD_EXTERNAL_ANNOTATIONS:
            found->annotations = value;
            found->has_annotations = true;
            break;
        case ML_WORD_MEMLAB:
            found->extras = value;
            found->has_extras = true;
            break;
        case ML_WORD_HOST_SEGMENTS:
            leave_out(r, value, ML_UNREAD_HOST_SEGMENTS);
            break;
        case ML_WORD_HOST_TRACES:
            leave_out(r, value, ML_UNREAD_HOST_TRACES);
            break;
        default:
            break;
        }
    }
}

static int
read_traces(ml_reader *r, const ml_array *traces)
{
    void *column = NULL;
    int error = ml_reader_column(r, r->recording->device_count, sizeof(ml_device_trace),
                                 &column);
    r->recording->devices = column;
    for (uint32_t i = 0; error == 0 && traces != NULL && i < traces->count; i++) {
        if (i < ML_RECORDING_DEVICES_MAX) {
            error = read_trace(r, traces->items[i], &r->recording->devices[i]);
        }
        else {
            ml_snapshot_tables_lose(&r->tables, ML_UNREAD_TRACE);
        }
    }
    return error;
}

static int
read_parts(ml_reader *r, const parts *from)
{
    const ml_array *segments = NULL;
    const ml_array *traces = NULL;
    int error = 0;
    /* First, because equal lists of frames may differ in their modules. */
    if (from->has_extras) {
        error = ml_extras_read_modules(&r->tables, from->extras);
    }
    if (from->has_segments) {
        segments = ml_reader_list(r, from->segments, ML_UNREAD_SEGMENTS);
    }
    if (error == 0 && segments != NULL) {
        error = ml_memory_read_segments(r, segments);
    }
    if (from->has_traces) {
        traces = ml_reader_list(r, from->traces, ML_UNREAD_DEVICE_TRACES);
    }
    if (traces != NULL) {
        uint32_t most = ML_RECORDING_DEVICES_MAX;
        ml_reader_need_devices(r, traces->count < most ? traces->count : most);
    }
    if (error == 0) {
        error = read_traces(r, traces);
    }
    if (error == 0) {
        error = ml_memory_read_blocks(r);
    }
    if (error == 0 && from->has_settings) {
        error = read_settings(r, from->settings);
    }
    if (error == 0 && from->has_annotations) {
        error = read_annotations(r, from->annotations);
    }
    if (error == 0 && from->has_extras) {
        error = ml_extras_read(&r->tables, from->extras);
    }
    else if (error == 0) {
        error = ml_module_calls_name(r->recording);
    }
    ml_snapshot_tables_count_missing(&r->tables);
    return error;
}

/* Whether nothing could be read. */
static bool
is_no_snapshot(const ml_reader *r)
{
    const uint64_t *unread = r->recording->unread;
    size_t found = r->pending_count + r->recording->annotation_count;
    for (size_t i = 0; i < r->recording->device_count; i++) {
        found += r->recording->devices[i].event_count;
    }
    uint64_t lost = unread[ML_UNREAD_SEGMENTS] + unread[ML_UNREAD_DEVICE_TRACES] +
                    unread[ML_UNREAD_TRACE] + unread[ML_UNREAD_SEGMENT] +
                    r->tables.given[ML_UNREAD_SEGMENT];
    return found == 0 && lost != 0;
}

static int
read_root(ml_reader *r, const ml_tree *tree)
{
    parts found = {.segments = tree->root};
    ml_allocator_rules *rules = &r->recording->rules;
    rules->max_split_bytes = UINT64_MAX;
    rules->has_segments = 1;
    r->recording->foreign = 1;
    if (ml_value_is(tree->root, ML_VALUE_DICT)) {
        find_parts(r, ml_value_as_array(tree->root), &found);
        if (!found.has_segments && !found.has_traces) {
            return ml_read_fail(
                r->error, ML_EFORMAT, 0,
                "the dictionary has neither segments nor device_traces: "
                "it is not a memory snapshot");
        }
        if (!found.has_segments) {
            ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENTS);
        }
    }
    else if (ml_value_is(tree->root, ML_VALUE_LIST)) {
        found.has_segments = true;
    }
    else {
        return ml_read_fail(r->error, ML_EFORMAT, 0,
                            "the file holds %s, not a memory snapshot",
                            ml_kind_text(ml_value_kind(tree->root)));
    }
    int error = read_parts(r, &found);
    if (error != 0) {
        return ml_reader_refuse(r, error);
    }
    if (is_no_snapshot(r)) {
        return ml_read_fail(
            r->error, ML_EFORMAT, 0,
            "nothing in it could be read as a segment or an event: it is "
            "not a memory snapshot");
    }
    error = ml_recording_pack(r->recording);
    if (error != 0) {
        return ml_reader_refuse(r, error);
    }
    if (ml_recording_validate(r->recording) != 0) {
        return ml_read_fail(r->error, ML_EFORMAT, 0, "the snapshot contradicts itself");
    }
    if (ml_recording_is_merged(r->recording)) {
        ml_recording_seal(r->recording);
    }
    return 0;
}

static int
read_tree(ml_tree *tree, ml_recording **out, ml_read_error *error)
{
    ml_reader r = {.error = error};
    int result = ml_recording_new(&r.recording);
    if (result == 0) {
        result = ml_snapshot_tables_init(&r.tables, tree, r.recording);
    }
    if (result != 0) {
        ml_read_fail(error, result, 0, "%s", ml_strerror(result));
    }
    else {
        result = read_root(&r, tree);
    }
    ml_free(r.pending);
    ml_snapshot_tables_fini(&r.tables);
    if (result != 0) {
        ml_recording_free(r.recording);
        return result;
    }
    *out = r.recording;
    return 0;
}

int
ml_snapshot_read(const void *bytes, size_t length, ml_recording **out,
                 ml_read_error *error)
{
    ml_tree tree;
    int result = ml_unpickle(bytes, length, &tree, error);
    if (result == 0) {
        result = read_tree(&tree, out, error);
        ml_tree_fini(&tree);
    }
    return result;
}
