/* Maps the ids of a stack table to those of a recording.  See id_remap.h. */
#include "stacks/id_remap.h"

#include <string.h>

#include "base/base.h"
#include "stacks/stacks_records.h"

/* By id of the table: first whether it is wanted, then the recording's id. */
typedef struct id_map {
    uint32_t *ids; /* owned */
    size_t count;
} id_map;

typedef struct adoption {
    ml_recording *recording;
    const ml_stacks *stacks;
    id_map stack_map;
    id_map string_map;
    uint32_t lost; /* ML_NAME_LOST in the recording; 0: not needed yet */
} adoption;

/* ---- What is wanted ---- */

/* A table read from a file has gaps. */
static void
want_stack(adoption *of, uint32_t id)
{
    if (id != 0 && id < of->stack_map.count && of->stack_map.ids[id] == 0) {
        const ml_stack_node *node = node_at(of->stacks, id);
        of->stack_map.ids[id] = node->code != 0 || node->fingerprint != 0;
    }
}

static void
want_string(adoption *of, uint32_t id)
{
    if (id != 0 && id < of->string_map.count && of->string_map.ids[id] == 0) {
        of->string_map.ids[id] = string_at(of->stacks, id)->length > 0;
    }
}

static void
want_all(adoption *of, const ml_device_trace *trace, bool tags)
{
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(stack) | ML_EVENT_BIT(origin_stack) |
                             ML_EVENT_BIT(metadata) | ML_EVENT_BIT(node));
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        want_stack(of, event->stack);
        want_stack(of, event->origin_stack);
        want_string(of, event->metadata);
        want_string(of, event->node);
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        want_stack(of, trace->segments[i].stack);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        want_stack(of, trace->blocks[i].stack);
    }
    for (size_t i = 0; tags && i < trace->tag_count; i++) {
        want_string(of, trace->tags[i].name);
        want_string(of, trace->tags[i].module);
    }
}

/* ---- What becomes of it ---- */

static uint32_t
adopted(const id_map *map, uint32_t id)
{
    return id < map->count ? map->ids[id] : 0;
}

/* ML_NAME_LOST among the recording's strings. */
static int
find_lost(adoption *of)
{
    const ml_recording *recording = of->recording;
    size_t length = strlen(ML_NAME_LOST);
    for (size_t i = 1; i < recording->string_count && of->lost == 0; i++) {
        const ml_string *string = &recording->strings[i];
        if (string->length == length &&
            memcmp(string->bytes, ML_NAME_LOST, length) == 0) {
            of->lost = (uint32_t)i;
        }
    }
    return of->lost != 0 ? 0
                         : ml_recording_add_string(of->recording, ML_NAME_LOST, length,
                                                   &of->lost);
}

static int
adopt_string(adoption *of, ml_device_trace *trace, uint32_t *id)
{
    uint32_t known = adopted(&of->string_map, *id);
    int result = 0;
    if (*id != 0 && known == 0) {
        trace->lost_names++;
        result = of->lost == 0 ? find_lost(of) : 0;
        known = of->lost;
    }
    *id = known;
    return result;
}

static int
adopt_event(adoption *of, ml_device_trace *trace, ml_event *event)
{
    uint32_t stack = adopted(&of->stack_map, event->stack);
    if (event->stack != 0 && stack == 0) {
        event->flags |= ML_EVENT_STACK_LOST;
    }
    event->stack = stack;
    event->origin_stack = adopted(&of->stack_map, event->origin_stack);
    int result = adopt_string(of, trace, &event->metadata);
    return result < 0 ? result : adopt_string(of, trace, &event->node);
}

/* Restores what EVENT, number I, may not take from its new stack. */
static void
keep_adopted(ml_event_editor *editor, size_t i, const ml_event *event)
{
    const ml_event *now = ml_event_editor_see(editor, i);
    if (now->stack != event->stack || now->origin_stack != event->origin_stack ||
        now->metadata != event->metadata || now->node != event->node ||
        now->flags != event->flags) {
        *ml_event_editor_at(editor, i) = *event;
    }
}

static int
adopt_all(adoption *of, ml_device_trace *trace, bool tags)
{
    int result = 0;
    ml_event_editor editor;
    ml_event_editor_init(&editor, &trace->events, 0,
                         ML_EVENT_BIT(stack) | ML_EVENT_BIT(origin_stack) |
                             ML_EVENT_BIT(metadata) | ML_EVENT_BIT(node) |
                             ML_EVENT_BIT(flags));
    for (size_t i = 0; i < trace->event_count && result == 0; i++) {
        ml_event event = *ml_event_editor_see(&editor, i);
        result = adopt_event(of, trace, &event);
        keep_adopted(&editor, i, &event);
    }
    int edited = ml_event_editor_end(&editor);
    result = result == 0 ? edited : result;
    for (size_t i = 0; i < trace->segment_count; i++) {
        trace->segments[i].stack = adopted(&of->stack_map, trace->segments[i].stack);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        trace->blocks[i].stack = adopted(&of->stack_map, trace->blocks[i].stack);
    }
    for (size_t i = 0; tags && i < trace->tag_count && result == 0; i++) {
        result = adopt_string(of, trace, &trace->tags[i].name);
        if (result == 0) {
            result = adopt_string(of, trace, &trace->tags[i].module);
        }
    }
    return result;
}

static int
adopt(adoption *of, const ml_symbolizer *symbolizer, bool tags)
{
    ml_recording *recording = of->recording;
    if (of->stack_map.ids == NULL || of->string_map.ids == NULL) {
        return ML_ENOMEM;
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        want_all(of, &recording->devices[d], tags);
    }
    int result = ml_stacks_resolve(of->stacks, recording, of->stack_map.ids,
                                   of->stack_map.count, symbolizer);
    if (result == 0) {
        result = ml_stacks_resolve_strings(of->stacks, recording, of->string_map.ids,
                                           of->string_map.count);
    }
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        result = adopt_all(of, &recording->devices[d], tags);
    }
    return result;
}

int
ml_id_remap(ml_recording *recording, const ml_stacks *stacks,
            const ml_symbolizer *symbolizer, bool tags)
{
    adoption of = {.recording = recording, .stacks = stacks};
    of.stack_map.count = ml_stacks_count(stacks);
    of.string_map.count = ml_stacks_string_count(stacks);
    of.stack_map.ids = ml_alloc_zeroed(of.stack_map.count, sizeof(uint32_t));
    of.string_map.ids = ml_alloc_zeroed(of.string_map.count, sizeof(uint32_t));
    int result = adopt(&of, symbolizer, tags);
    ml_free(of.stack_map.ids);
    ml_free(of.string_map.ids);
    return result;
}
