/* Reading a snapshot: events, settings, annotations, and the whole. */
#include "snapshot_reader.h"

#include <stdio.h>
#include <string.h>

#include "base.h"
#include "snapshot_extras.h"
#include "snapshot_fields.h"
#include "snapshot_memory.h"
#include "unpickle.h"

/* Microseconds in the file, nanoseconds in the recording. */
static int
read_time(ml_reader *r, ml_value value, uint64_t *out)
{
    uint64_t time = 0;
    int error = ml_reader_natural(r, value, "time_us", &time);
    if (error == 0 && time > UINT64_MAX / 1000) {
        return ml_reader_fail(r, ML_EFORMAT, "time_us is out of range");
    }
    *out = time * 1000;
    return error;
}

/* ---- events ---- */

static int
read_action(ml_reader *r, ml_value value, uint8_t *action)
{
    if (!ml_value_is(value, ML_VALUE_STRING)) {
        return ml_reader_fail(r, ML_EFORMAT, "action is not a string");
    }
    unsigned word = ml_tables_word(&r->tables, value);
    bool known = word >= ML_WORD_ACTIONS && word < ML_WORD_ACTIONS + ML_ACTION_COUNT;
    *action = (uint8_t)(known ? word - ML_WORD_ACTIONS : ML_ACTION_OTHER);
    return 0;
}

static int
read_event_pool(ml_reader *r, ml_value value, ml_event *event)
{
    uint64_t pool[2] = {0, 0};
    int error = ml_reader_pool(r, value, "pool_id", pool);
    if (error == 0 && (pool[0] > UINT32_MAX || pool[1] > UINT32_MAX)) {
        return ml_reader_fail(r, ML_EFORMAT, "pool_id is out of range");
    }
    event->pool[0] = (uint32_t)pool[0];
    event->pool[1] = (uint32_t)pool[1];
    event->flags |= ML_EVENT_POOL_KNOWN;
    r->recording->keys |= ML_KEY_POOL_ID;
    return error;
}

enum {
    SEEN_ACTION = 1,
    SEEN_ADDR = 2,
    SEEN_SIZE = 4,
    SEEN_ALL = 7
};

static int
read_event_field(ml_reader *r, unsigned word, ml_value value, ml_event *event,
                 unsigned *seen)
{
    switch (word) {
    case ML_WORD_ACTION:
        *seen |= SEEN_ACTION;
        return read_action(r, value, &event->action);
    case ML_WORD_ADDR:
    case ML_WORD_DEVICE_FREE:
        *seen |= SEEN_ADDR;
        return ml_reader_address(r, value, ml_word_text(word), &event->addr);
    case ML_WORD_SIZE:
        *seen |= SEEN_SIZE;
        return ml_reader_natural(r, value, "size", &event->size);
    case ML_WORD_STREAM:
        return ml_reader_address(r, value, "stream", &event->stream);
    case ML_WORD_TIME_US:
        return read_time(r, value, &event->time);
    case ML_WORD_COMPILE_CONTEXT:
        r->recording->keys |= ML_KEY_COMPILE_CONTEXT;
        return 0;
    case ML_WORD_USER_METADATA:
        r->recording->keys |= ML_KEY_USER_METADATA;
        return ml_reader_string(r, value, "user_metadata", &event->metadata);
    case ML_WORD_POOL_ID:
        return read_event_pool(r, value, event);
    case ML_WORD_FRAMES:
        event->flags |= ML_EVENT_CONTEXT;
        return ml_reader_stack(r, value, &event->stack);
    default:
        return 0;
    }
}

static int
read_event(ml_reader *r, ml_value value, ml_event *event)
{
    const ml_array *dict = NULL;
    int error = ml_reader_dict(r, value, "the event", &dict);
    unsigned seen = 0;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_tables_word(&r->tables, dict->items[i]);
        error = read_event_field(r, word, dict->items[i + 1], event, &seen);
    }
    if (error != 0) {
        return error;
    }
    if (seen != SEEN_ALL) {
        return ml_reader_fail(r, ML_EFORMAT, "no %s",
                              (seen & SEEN_ACTION) == 0 ? "action"
                              : (seen & SEEN_ADDR) == 0 ? "addr"
                                                        : "size");
    }
    if (event->action != ML_ACTION_OOM && event->size > UINT64_MAX - event->addr) {
        return ml_reader_fail(r, ML_EFORMAT,
                              "addr and size reach past the last address");
    }
    return 0;
}

static int
read_trace(ml_reader *r, size_t index, ml_value value)
{
    static const char *const place = "device_traces";
    ml_device_trace *device = &r->recording->devices[index];
    const ml_array *list = NULL;
    ml_reader_enter(r, place, index);
    int error = ml_reader_list(r, value, "the trace", &list);
    if (error != 0) {
        return error;
    }
    void *events = NULL;
    error = ml_reader_column(r, list->count, sizeof(ml_event), &events);
    if (error != 0) {
        return error;
    }
    device->events = events;
    for (uint32_t i = 0; i < list->count; i++) {
        ml_reader_enter_inner(r, "", i);
        error = read_event(r, list->items[i], &device->events[i]);
        if (error != 0) {
            return error;
        }
    }
    device->event_count = list->count;
    return 0;
}

/* ---- settings and annotations ---- */

static int
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
                int error =
                    ml_reader_natural(r, dict->items[i + 1], "roundup_power2_divisions",
                                      &setting->divisions[k]);
                if (error != 0) {
                    return error;
                }
            }
        }
    }
    setting->kind = 'd';
    return 0;
}

/* Leaves the kind at 0 where the value is of no kind that settings have. */
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
        return ml_reader_string(r, value, "a setting", &setting->text);
    case ML_VALUE_DICT:
        return read_divisions(r, ml_value_as_array(value), setting);
    default:
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
    const ml_array *dict = NULL;
    void *column = NULL;
    int error = ml_reader_dict(r, value, "allocator_settings", &dict);
    if (error == 0) {
        error = ml_reader_column(r, dict->count / 2, sizeof(ml_setting), &column);
        r->recording->settings = column;
        r->recording->keys |= ML_KEY_ALLOCATOR_SETTINGS;
    }
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        ml_setting *setting = &r->recording->settings[r->recording->setting_count];
        *setting = (ml_setting){0};
        error =
            ml_reader_string(r, dict->items[i], "the key of a setting", &setting->key);
        if (error == 0) {
            error = read_setting(r, dict->items[i + 1], setting);
        }
        if (setting->kind != 0) {
            apply_rule(&r->recording->rules, ml_tables_word(&r->tables, dict->items[i]),
                       setting);
            r->recording->setting_count++;
        }
    }
    return error;
}

static int
read_annotation(ml_reader *r, ml_value value, ml_annotation *annotation)
{
    const ml_array *dict = NULL;
    int error = ml_reader_dict(r, value, "the annotation", &dict);
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        switch (ml_tables_word(&r->tables, dict->items[i])) {
        case ML_WORD_STAGE:
            annotation->end = ml_tables_word(&r->tables, item) == ML_WORD_END;
            break;
        case ML_WORD_NAME:
            error = ml_reader_string(r, item, "name", &annotation->name);
            break;
        case ML_WORD_DEVICE:
            if (!ml_value_is(item, ML_VALUE_INT) || ml_value_as_int(item) < INT32_MIN ||
                ml_value_as_int(item) > INT32_MAX) {
                return ml_reader_fail(r, ML_EFORMAT, "device is not a device number");
            }
            annotation->device = (int32_t)ml_value_as_int(item);
            break;
        case ML_WORD_TIME_US:
            error = read_time(r, item, &annotation->time);
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
    const ml_array *list = NULL;
    void *column = NULL;
    int error = ml_reader_list(r, value, "external_annotations", &list);
    if (error == 0) {
        error = ml_reader_column(r, list->count, sizeof(ml_annotation), &column);
        r->recording->annotations = column;
        r->recording->keys |= ML_KEY_EXTERNAL_ANNOTATIONS;
    }
    for (uint32_t i = 0; error == 0 && i < list->count; i++) {
        ml_reader_enter(r, "external_annotations", i);
        error = read_annotation(r, list->items[i], &r->recording->annotations[i]);
        r->recording->annotation_count = i + 1;
    }
    ml_reader_leave(r);
    return error;
}

/* ---- the whole ---- */

/* The parts of the top level; the last of equal keys holds, as in Python. */
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

static void
find_parts(ml_reader *r, const ml_array *dict, parts *found)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        ml_value value = dict->items[i + 1];
        switch (ml_tables_word(&r->tables, dict->items[i])) {
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
        case ML_WORD_HOST_TRACES:
            r->recording->keys |= ML_KEY_HOST;
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
    if (error != 0) {
        return error;
    }
    r->recording->devices = column;
    for (uint32_t i = 0; traces != NULL && i < traces->count; i++) {
        error = read_trace(r, i, traces->items[i]);
        if (error != 0) {
            return error;
        }
    }
    ml_reader_leave(r);
    return 0;
}

static int
extras_result(ml_reader *r, int error)
{
    if (error == ML_EFORMAT) {
        return ml_reader_fail(r, error, "memlab: %s", r->tables.trouble);
    }
    return error == 0 ? 0 : ml_reader_fail_code(r, error);
}

static int
read_modules(ml_reader *r, ml_value extras)
{
    return extras_result(r, ml_extras_read_modules(&r->tables, extras));
}

static int
read_parts(ml_reader *r, const parts *from)
{
    const ml_array *segments = NULL;
    const ml_array *traces = NULL;
    /* First, because lists of frames that say the same may differ in their modules. */
    int error = from->has_extras ? read_modules(r, from->extras) : 0;
    if (error == 0) {
        error = ml_reader_list(r, from->segments, "segments", &segments);
    }
    if (error == 0) {
        error = ml_memory_read_segments(r, segments);
    }
    if (error == 0 && from->has_traces) {
        error = ml_reader_list(r, from->traces, "device_traces", &traces);
        if (error == 0) {
            error = ml_reader_need_devices(r, traces->count);
        }
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
        error = extras_result(r, ml_extras_read(&r->tables, from->extras));
    }
    return error;
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
        if (!found.has_segments) {
            return ml_reader_fail(r, ML_EFORMAT, "the dictionary has no segments");
        }
    }
    else if (!ml_value_is(tree->root, ML_VALUE_LIST)) {
        return ml_reader_fail(r, ML_EFORMAT, "the file holds %s, not a memory snapshot",
                              ml_kind_text(ml_value_kind(tree->root)));
    }
    int error = read_parts(r, &found);
    if (error == 0 && ml_recording_validate(r->recording) != 0) {
        return ml_reader_fail(r, ML_EFORMAT, "the snapshot contradicts itself");
    }
    if (error == 0 && ml_recording_is_merged(r->recording)) {
        ml_recording_seal(r->recording);
    }
    return error;
}

static int
read_tree(ml_tree *tree, ml_recording **out, ml_read_error *error)
{
    ml_reader r = {.error = error};
    int result = ml_recording_new(&r.recording);
    if (result == 0) {
        result = ml_tables_init(&r.tables, tree, r.recording);
    }
    if (result != 0) {
        ml_read_fail(error, result, 0, "%s", ml_strerror(result));
    }
    else {
        result = read_root(&r, tree);
    }
    ml_free(r.pending);
    ml_tables_fini(&r.tables);
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
