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

typedef struct remap {
    ml_recording *recording;
    const ml_stacks *stacks;
    id_map stack_map;
    id_map string_map;
    uint32_t lost; /* ML_NAME_LOST in the recording; 0: not needed yet */
} remap;

/* ---- What is wanted ---- */

static inline void
want(id_map *map, uint64_t id)
{
    if (id < map->count) {
        map->ids[id] = 1;
    }
}

/* Drops what the tables do not have: one read from a file has gaps, and no table has 0. */
static void
drop_unknown(remap *of)
{
    for (size_t id = 0; id < of->stack_map.count; id++) {
        if (id == 0 || of->stack_map.ids[id] == 0) {
            of->stack_map.ids[id] = 0;
            continue;
        }
        const ml_stack_node *node = node_at(of->stacks, (uint32_t)id);
        of->stack_map.ids[id] = node->code != 0 || node->fingerprint != 0;
    }
    for (size_t id = 0; id < of->string_map.count; id++) {
        of->string_map.ids[id] = id != 0 && of->string_map.ids[id] != 0 &&
                                 string_at(of->stacks, (uint32_t)id)->length > 0;
    }
}

/* Ids of MEMBER of the events from FIRST on; none where all are 0, which is no id. */
static size_t
get_ids(const ml_device_trace *trace, size_t first, unsigned member,
        uint64_t ids[ML_EVENTS_CHUNK])
{
    return ml_events_most(&trace->events, trace->event_count, first, member) == 0
               ? 0
               : ml_events_get_column(&trace->events, trace->event_count, first, member,
                                      ids);
}

static void
want_ids(id_map *map, const ml_device_trace *trace, size_t first, unsigned member)
{
    uint64_t ids[ML_EVENTS_CHUNK];
    uint64_t last = 0;
    size_t count = get_ids(trace, first, member, ids);
    for (size_t k = 0; k < count; k++) {
        if (ids[k] != last) {
            last = ids[k];
            want(map, last);
        }
    }
}

/* The events from FIRST on whose other is no string become 0 in IDS, the others. */
static size_t
get_forwards(const ml_device_trace *trace, size_t first, uint64_t ids[ML_EVENTS_CHUNK])
{
    uint64_t actions[ML_EVENTS_CHUNK];
    size_t count = get_ids(trace, first, ML_EVENT_MEMBER_other, ids);
    if (count != 0) {
        ml_events_get_column(&trace->events, trace->event_count, first,
                             ML_EVENT_MEMBER_action, actions);
    }
    for (size_t k = 0; k < count; k++) {
        ids[k] = actions[k] != ML_ACTION_OTHER ? ids[k] : 0;
    }
    return count;
}

static void
want_forwards(remap *of, const ml_device_trace *trace, size_t first)
{
    uint64_t ids[ML_EVENTS_CHUNK];
    size_t count = get_forwards(trace, first, ids);
    for (size_t k = 0; k < count; k++) {
        want(&of->string_map, ids[k]);
    }
}

/* Members of an event that are ids of strings whatever its action is. */
static const unsigned string_members[] = {
#define XX(member) ML_EVENT_MEMBER_##member,
    ML_EVENT_TEXTS(XX)
#undef XX
        ML_EVENT_MEMBER_node};

static void
want_all(remap *of, const ml_device_trace *trace, bool tags)
{
    for (size_t i = 0; i < trace->event_count; i += ML_EVENTS_CHUNK) {
        want_ids(&of->stack_map, trace, i, ML_EVENT_MEMBER_stack);
        want_ids(&of->stack_map, trace, i, ML_EVENT_MEMBER_origin_stack);
        for (size_t k = 0; k < sizeof(string_members) / sizeof(*string_members); k++) {
            want_ids(&of->string_map, trace, i, string_members[k]);
        }
        want_forwards(of, trace, i);
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        want(&of->stack_map, trace->segments[i].stack);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        want(&of->stack_map, trace->blocks[i].stack);
    }
    for (size_t i = 0; tags && i < trace->tag_count; i++) {
        want(&of->string_map, trace->tags[i].name);
        want(&of->string_map, trace->tags[i].module);
    }
}

/* ---- What becomes of it ---- */

static uint32_t
remapped(const id_map *map, uint32_t id)
{
    return id < map->count ? map->ids[id] : 0;
}

/* ML_NAME_LOST among the recording's strings. */
static int
find_lost(remap *of)
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
remap_string(remap *of, ml_device_trace *trace, uint32_t *id)
{
    uint32_t known = remapped(&of->string_map, *id);
    int result = 0;
    if (*id != 0 && known == 0) {
        trace->lost_names++;
        result = of->lost == 0 ? find_lost(of) : 0;
        known = of->lost;
    }
    *id = known;
    return result;
}

/* Flags those of the COUNT events from FIRST on whose stack is lost now. */
static int
flag_lost(const remap *of, ml_device_trace *trace, size_t first, size_t count)
{
    uint64_t ids[ML_EVENTS_CHUNK];
    uint64_t flags[ML_EVENTS_CHUNK];
    get_ids(trace, first, ML_EVENT_MEMBER_stack, ids);
    ml_events_get_column(&trace->events, trace->event_count, first,
                         ML_EVENT_MEMBER_flags, flags);
    for (size_t k = 0; k < count; k++) {
        bool lost = ids[k] != 0 && remapped(&of->stack_map, (uint32_t)ids[k]) == 0;
        flags[k] |= lost ? ML_EVENT_STACK_LOST : 0;
    }
    return ml_events_set_column(&trace->events, count, first, ML_EVENT_MEMBER_flags,
                                flags);
}

static int
remap_stacks(const remap *of, ml_device_trace *trace, size_t first, unsigned member)
{
    uint64_t ids[ML_EVENTS_CHUNK];
    bool any_lost = false;
    uint64_t changed = 0; /* bits */
    size_t count = get_ids(trace, first, member, ids);
    for (size_t k = 0; k < count; k++) {
        uint64_t id = remapped(&of->stack_map, (uint32_t)ids[k]);
        any_lost |= (ids[k] != 0) & (id == 0);
        changed |= id ^ ids[k];
        ids[k] = id;
    }
    int result = any_lost && member == ML_EVENT_MEMBER_stack
                     ? flag_lost(of, trace, first, count)
                     : 0;
    return result == 0 && changed != 0
               ? ml_events_set_column(&trace->events, count, first, member, ids)
               : result;
}

static int
remap_strings(remap *of, ml_device_trace *trace, size_t first, unsigned member)
{
    uint64_t ids[ML_EVENTS_CHUNK];
    bool changed = false;
    int result = 0;
    size_t count = get_ids(trace, first, member, ids);
    for (size_t k = 0; k < count && result == 0; k++) {
        uint32_t id = (uint32_t)ids[k];
        result = id != 0 ? remap_string(of, trace, &id) : 0;
        changed = changed || id != ids[k];
        ids[k] = id;
    }
    return result == 0 && changed
               ? ml_events_set_column(&trace->events, count, first, member, ids)
               : result;
}

static int
remap_forwards(remap *of, ml_device_trace *trace, size_t first)
{
    uint64_t others[ML_EVENTS_CHUNK];
    uint64_t ids[ML_EVENTS_CHUNK];
    int result = 0;
    size_t count = get_forwards(trace, first, ids);
    if (count != 0) {
        get_ids(trace, first, ML_EVENT_MEMBER_other, others);
    }
    for (size_t k = 0; k < count && result == 0; k++) {
        uint32_t id = (uint32_t)ids[k];
        result = id != 0 ? remap_string(of, trace, &id) : 0;
        others[k] = ids[k] != 0 ? id : others[k];
    }
    return result == 0 && count != 0
               ? ml_events_set_column(&trace->events, count, first,
                                      ML_EVENT_MEMBER_other, others)
               : result;
}

static int
remap_events(remap *of, ml_device_trace *trace)
{
    int result = 0;
    for (size_t i = 0; i < trace->event_count && result == 0; i += ML_EVENTS_CHUNK) {
        result = remap_stacks(of, trace, i, ML_EVENT_MEMBER_stack);
        if (result == 0) {
            result = remap_stacks(of, trace, i, ML_EVENT_MEMBER_origin_stack);
        }
        for (size_t k = 0;
             k < sizeof(string_members) / sizeof(*string_members) && result == 0; k++) {
            result = remap_strings(of, trace, i, string_members[k]);
        }
        if (result == 0) {
            result = remap_forwards(of, trace, i);
        }
    }
    return result;
}

static int
remap_all(remap *of, ml_device_trace *trace, bool tags)
{
    int result = remap_events(of, trace);
    for (size_t i = 0; i < trace->segment_count; i++) {
        trace->segments[i].stack = remapped(&of->stack_map, trace->segments[i].stack);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        trace->blocks[i].stack = remapped(&of->stack_map, trace->blocks[i].stack);
    }
    for (size_t i = 0; tags && i < trace->tag_count && result == 0; i++) {
        result = remap_string(of, trace, &trace->tags[i].name);
        if (result == 0) {
            result = remap_string(of, trace, &trace->tags[i].module);
        }
    }
    return result;
}

static int
remap_recording(remap *of, const ml_symbolizer *symbolizer, bool tags)
{
    ml_recording *recording = of->recording;
    if (of->stack_map.ids == NULL || of->string_map.ids == NULL) {
        return ML_ENOMEM;
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        want_all(of, &recording->devices[d], tags);
    }
    drop_unknown(of);
    int result = ml_stacks_resolve(of->stacks, recording, of->stack_map.ids,
                                   of->stack_map.count, symbolizer);
    if (result == 0) {
        result = ml_stacks_resolve_strings(of->stacks, recording, of->string_map.ids,
                                           of->string_map.count);
    }
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        result = remap_all(of, &recording->devices[d], tags);
    }
    return result;
}

int
ml_id_remap(ml_recording *recording, const ml_stacks *stacks,
            const ml_symbolizer *symbolizer, bool tags)
{
    remap of = {.recording = recording, .stacks = stacks};
    of.stack_map.count = ml_stacks_count(stacks);
    of.string_map.count = ml_stacks_string_count(stacks);
    of.stack_map.ids = ml_alloc_zeroed(of.stack_map.count, sizeof(uint32_t));
    of.string_map.ids = ml_alloc_zeroed(of.string_map.count, sizeof(uint32_t));
    int result = remap_recording(&of, symbolizer, tags);
    ml_free(of.stack_map.ids);
    ml_free(of.string_map.ids);
    return result;
}
