/* Reads the definitions of a .mlab file: stacks, code objects and strings, put into a
 * table under their own ids.  See mlab_reader.h.
 *
 * Nothing is looked up by content here, so the table's slots stay empty.  A record is
 * ignored if its id is outside the table, or if it refers to a later one.  References
 * to it then have no stack or name. */
#include <string.h>

#include "file/mlab/mlab_parts.h"
#include "stacks/id_remap.h"
#include "stacks/stacks_records.h"

/* Ids up to this one are in use. */
static void
raise_count(ml_stack_table *table, uint32_t id)
{
    if (atomic_load(&table->count) <= id) {
        atomic_store(&table->count, id + 1);
    }
}

/* A part of a string continues it, or begins it anew: the parts of one are together in
 * their lane.  A string already defined, for another lane, stays.  False, here and
 * below: the record is invalid. */
static bool
define_string(ml_stacks *stacks, const ml_packed_other *record)
{
    ml_mlab_string part;
    if (record->length <= sizeof(part)) {
        return false;
    }
    memcpy(&part, record->bytes, sizeof(part));
    uint32_t length = record->length - (uint32_t)sizeof(part);
    if (part.id == 0 || part.id >= stacks->strings.limit || part.start > part.total ||
        length > part.total - part.start) {
        return false;
    }
    ml_stack_string *string = string_at(stacks, part.id);
    if (string->length == part.total) {
        return true;
    }
    size_t used = atomic_load(&stacks->text_used);
    if (length > stacks->text.bytes - used) {
        return false;
    }
    if (part.start == 0) {
        *string = (ml_stack_string){.start = (uint32_t)used};
    }
    else if (string->length != part.start || string->start + part.start != used) {
        return false;
    }
    memcpy((char *)stacks->text.base + used, record->bytes + sizeof(part), length);
    string->length += length;
    atomic_store(&stacks->text_used, used + length);
    raise_count(&stacks->strings, part.id);
    return true;
}

static uint32_t
known(const ml_stack_table *table, uint32_t id)
{
    return id < atomic_load(&table->count) ? id : 0;
}

static bool
define_code(ml_stacks *stacks, const ml_packed_other *record)
{
    ml_mlab_code code;
    if (record->length < sizeof(code)) {
        return false;
    }
    memcpy(&code, record->bytes, sizeof(code));
    if (code.id == 0 || code.id >= stacks->codes.limit) {
        return false;
    }
    if (code_at(stacks, code.id)->code != 0) {
        return true;
    }
    *code_at(stacks, code.id) = (ml_stack_code){
        .code = code.id,
        .name = known(&stacks->strings, code.name),
        .filename = known(&stacks->strings, code.filename),
        .linetable = known(&stacks->strings, code.linetable),
        .firstlineno = code.firstlineno,
        .python_minor = code.python_minor,
    };
    raise_count(&stacks->codes, code.id);
    return true;
}

static bool
define_object(ml_stacks *stacks, const ml_packed_other *record)
{
    ml_mlab_object object;
    if (record->length < sizeof(object)) {
        return false;
    }
    memcpy(&object, record->bytes, sizeof(object));
    if (object.id == 0 || object.id >= stacks->objects.limit) {
        return false;
    }
    object_in(&stacks->objects, object.id)->type_name =
        known(&stacks->strings, object.type_name);
    raise_count(&stacks->objects, object.id);
    return true;
}

/* Names get string ids after those of the file. */
static void
name_objects(mlab_reader *reader)
{
    ml_stacks *stacks = reader->stacks;
    for (size_t i = 0; i < reader->name_count; i++) {
        const ml_string *name = &reader->recording->strings[reader->names[i].name];
        uint32_t object = known(&stacks->objects, reader->names[i].object);
        uint32_t id = ml_stacks_string_count(stacks);
        size_t used = atomic_load(&stacks->text_used);
        if (object == 0) {
            /* No stack here has it. */
            continue;
        }
        if (id >= stacks->strings.limit || name->length > stacks->text.bytes - used) {
            reader->info->unread_records++;
            continue;
        }
        memcpy((char *)stacks->text.base + used, name->bytes, name->length);
        *string_at(stacks, id) =
            (ml_stack_string){.start = (uint32_t)used, .length = name->length};
        atomic_store(&stacks->text_used, used + name->length);
        raise_count(&stacks->strings, id);
        atomic_store(&object_in(&stacks->objects, object)->name, id);
    }
}

static bool
is_defined(const ml_stacks *stacks, uint32_t id)
{
    const ml_stack_node *node = node_at(stacks, id);
    return node->code != 0 || node->fingerprint != 0;
}

/* Most native frames on top of each other: each is named separately.  memlab records
 * half as many, and one more for those between. */
#define NATIVE_MOST 1024u

/* C++ frames are on top of Python's, whatever the file says. */
static bool
define_node(ml_stacks *stacks, const ml_packed_other *record)
{
    ml_mlab_node node;
    if (record->length < sizeof(node)) {
        return false;
    }
    memcpy(&node, record->bytes, sizeof(node));
    if (node.id == 0 || node.id >= stacks->nodes.limit || node.parent >= node.id) {
        return false;
    }
    if (is_defined(stacks, node.id)) {
        return true;
    }
    uint32_t code = known(&stacks->codes, node.code);
    if (node.code != 0 && (code == 0 || code_at(stacks, code)->code == 0)) {
        return false;
    }
    if (node.parent != 0 && (!is_defined(stacks, node.parent) ||
                             (code != 0 && node_at(stacks, node.parent)->code == 0))) {
        return false;
    }
    /* A native frame has no offset; this field has the number of native frames
     * below. */
    uint32_t offset = node.offset;
    if (code == 0) {
        const ml_stack_node *parent = node_at(stacks, node.parent);
        offset = node.parent != 0 && parent->code == 0 ? parent->offset + 1 : 1;
    }
    if (code == 0 && offset > NATIVE_MOST) {
        return false;
    }
    /* A module without a known name is still a module. */
    uint32_t object = known(&stacks->objects, node.object);
    object = node.object != 0 && object == 0 ? ML_STACK_LOST : object;
    *node_at(stacks, node.id) = (ml_stack_node){
        .code = code,
        .fingerprint = code == 0 ? node.counter : 0,
        .offset = offset,
        .parent = node.parent,
        .code_id = code,
        .object = object,
    };
    raise_count(&stacks->nodes, node.id);
    return true;
}

static bool
define(ml_stacks *stacks, const ml_packed_other *record)
{
    switch (record->kind) {
    case ML_MLAB_STRING:
        return define_string(stacks, record);
    case ML_MLAB_CODE:
        return define_code(stacks, record);
    case ML_MLAB_NODE:
        return define_node(stacks, record);
    case ML_MLAB_OBJECT:
        return define_object(stacks, record);
    default:
        return false;
    }
}

void
mlab_define(mlab_reader *reader, const ml_packed_other *record)
{
    reader->info->unread_records += !define(reader->stacks, record);
}

/* ---- Into the recording ---- */

static uint64_t
count_native(const ml_stacks *stacks)
{
    uint64_t count = 0;
    for (uint32_t id = 1; id < ml_stacks_count(stacks); id++) {
        const ml_stack_node *node = node_at(stacks, id);
        count += is_defined(stacks, id) && node->code == 0 &&
                 (node->fingerprint & ML_NATIVE_LEFT_OUT) == 0;
    }
    return count;
}

/* An event's stack is lost too if its definition is. */
static void
count_lost_stacks(ml_recording *recording)
{
    for (size_t d = 0; d < recording->device_count; d++) {
        ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            trace->lost_stacks +=
                (ml_events_flags(&trace->events, i) & ML_EVENT_STACK_LOST) != 0;
        }
    }
}

/* Forgets the objects' names, from string FIRST on, where the texts had USED bytes: the
 * file may go on to define these ids. */
static void
unname_objects(mlab_reader *reader, uint32_t first, size_t used)
{
    ml_stacks *stacks = reader->stacks;
    for (size_t i = 0; i < reader->name_count; i++) {
        uint32_t object = known(&stacks->objects, reader->names[i].object);
        if (object != 0) {
            atomic_store(&object_in(&stacks->objects, object)->name, 0);
        }
    }
    for (uint32_t id = first; id < ml_stacks_string_count(stacks); id++) {
        *string_at(stacks, id) = (ml_stack_string){0};
    }
    atomic_store(&stacks->strings.count, first);
    atomic_store(&stacks->text_used, used);
}

/* Includes frames that were left out. */
static bool
has_native(const ml_stacks *stacks)
{
    uint32_t id = 1;
    while (id < ml_stacks_count(stacks) &&
           !(is_defined(stacks, id) && node_at(stacks, id)->code == 0)) {
        id++;
    }
    return id < ml_stacks_count(stacks);
}

int
mlab_finish_stacks(mlab_reader *reader)
{
    const ml_wanted *wanted = &reader->wanted;
    const ml_stacks *stacks = reader->stacks;
    if (wanted->context == ML_CONTEXT_ALL && (wanted->native || !has_native(stacks))) {
        return 0; /* no unwanted stacks are there */
    }
    for (size_t d = 0; d < reader->recording->device_count; d++) {
        ml_device_trace *trace = &reader->recording->devices[d];
        ml_wanted_call call = {0};
        ml_event_editor editor;
        ml_event_editor_init(
            &editor, &trace->events,
            ML_EVENT_BIT(addr) | ML_EVENT_BIT(action) | ML_EVENT_BIT(thread),
            ML_EVENT_BIT(stack) | ML_EVENT_BIT(origin_stack) | ML_EVENT_BIT(flags));
        for (size_t i = trace->event_count; i-- > 0;) {
            ml_wanted_event(wanted, stacks, &trace->events, i,
                            ml_event_editor_at(&editor, i),
                            reader->ordered ? &call : NULL);
        }
        int result = ml_event_editor_end(&editor);
        if (result < 0) {
            return result;
        }
        for (size_t i = 0; i < trace->segment_count; i++) {
            trace->segments[i].stack =
                ml_wanted_segment(wanted, stacks, &trace->segments[i]);
        }
        for (size_t i = 0; i < trace->block_count; i++) {
            trace->blocks[i].stack =
                ml_wanted_stack(wanted, stacks, trace->blocks[i].stack);
        }
    }
    return 0;
}

int
mlab_resolve(mlab_reader *reader)
{
    uint32_t strings = ml_stacks_string_count(reader->stacks);
    size_t used = atomic_load(&reader->stacks->text_used);
    name_objects(reader);
    reader->info->native_frames = count_native(reader->stacks);
    /* Tags have their names from the control lane. */
    int result = ml_id_remap(reader->recording, reader->stacks, NULL, false);
    unname_objects(reader, strings, used);
    count_lost_stacks(reader->recording);
    return result;
}
