/* The key "memlab" of a snapshot, read with the same distrust as the rest. */
#include "snapshot_extras.h"

#include <string.h>

static int
trouble(ml_tables *tables, const char *what)
{
    tables->trouble = what;
    return ML_EFORMAT;
}

static int
read_count(ml_tables *tables, ml_value value, uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < 0) {
        return trouble(tables, "a count is not a positive integer");
    }
    *out = (uint64_t)ml_value_as_int(value);
    return 0;
}

static int
read_peak(ml_tables *tables, ml_value value, ml_totals *peak)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        return trouble(tables, "peak is not a dictionary");
    }
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (!ml_value_is(dict->items[i], ML_VALUE_STRING)) {
            continue;
        }
        const ml_text *key = ml_value_as_text(dict->items[i]);
        uint64_t *field = NULL;
#define XX(name) \
    if (key->length == strlen(#name) && memcmp(key->bytes, #name, key->length) == 0) { \
        field = &peak->name; \
    }
        ML_TOTALS(XX)
#undef XX
        int error = field != NULL ? read_count(tables, dict->items[i + 1], field) : 0;
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* The last, of modules, is newer than the others. */
enum {
    TAG_COLUMNS_REQUIRED = 4,
    TAG_COLUMNS
};

static int
read_tag(ml_tables *tables, const ml_array *const columns[TAG_COLUMNS], uint32_t index,
         const ml_device_trace *device, ml_tag *tag)
{
    int error = read_count(tables, columns[0]->items[index], &tag->position);
    if (error != 0) {
        return error;
    }
    uint64_t before = index != 0 ? device->tags[index - 1].position : 0;
    if (tag->position < before || tag->position > device->event_count) {
        return trouble(tables, "tags are out of order");
    }
    ml_value addr = columns[1]->items[index];
    if (!ml_value_is(addr, ML_VALUE_INT)) {
        return trouble(tables, "the address of a tag is not an integer");
    }
    tag->addr = (uint64_t)ml_value_as_int(addr);
    unsigned word = ml_tables_word(tables, columns[2]->items[index]);
    bool known = word >= ML_WORD_CATEGORIES && word < ML_WORD_COUNT;
    tag->category =
        (uint8_t)(known ? word - ML_WORD_CATEGORIES : (unsigned)ML_CATEGORY_UNKNOWN);
    error = ml_tables_string(tables, columns[3]->items[index], &tag->name);
    if (error == 0 && columns[4] != NULL) {
        error = ml_tables_string(tables, columns[4]->items[index], &tag->module);
    }
    return error;
}

static int
read_tags(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_DICT) || device->tags != NULL) {
        return trouble(tables, "tags is not one dictionary");
    }
    static const unsigned keys[TAG_COLUMNS] = {
        ML_WORD_POSITION, ML_WORD_ADDR, ML_WORD_CATEGORY, ML_WORD_NAME, ML_WORD_MODULE};
    const ml_array *columns[TAG_COLUMNS] = {NULL};
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        unsigned word = ml_tables_word(tables, dict->items[i]);
        for (unsigned k = 0; k < TAG_COLUMNS; k++) {
            if (word == keys[k] && ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
                columns[k] = ml_value_as_array(dict->items[i + 1]);
            }
        }
    }
    for (unsigned k = 0; k < TAG_COLUMNS; k++) {
        bool missing = columns[k] == NULL;
        if (missing ? k < TAG_COLUMNS_REQUIRED
                    : columns[0] == NULL || columns[k]->count != columns[0]->count) {
            return trouble(tables, "tags are not columns of one length");
        }
    }
    uint32_t count = columns[0]->count;
    if (count == 0) {
        return 0;
    }
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_tag));
    if (error != 0) {
        return error;
    }
    device->tags = ml_alloc_zeroed(count, sizeof(ml_tag));
    if (device->tags == NULL) {
        return ML_ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        error = read_tag(tables, columns, i, device, &device->tags[i]);
        if (error != 0) {
            return error;
        }
    }
    device->tag_count = count;
    return 0;
}

static int
read_flags(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_STRING) ||
        ml_value_as_text(value)->length != device->event_count) {
        return trouble(tables, "flags is not one character an event");
    }
    const char *column = ml_value_as_text(value)->bytes;
    for (size_t i = 0; i < device->event_count; i++) {
        unsigned char flags = (unsigned char)column[i];
        if ((flags & 0xc0) != 0x40) {
            return trouble(tables, "flags holds an unknown character");
        }
        device->events[i].flags |= (uint8_t)(flags & 0x3f);
    }
    return 0;
}

static int
read_block_bytes(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != device->event_count) {
        return trouble(tables, "block_bytes is not one number an event");
    }
    const ml_array *column = ml_value_as_array(value);
    for (size_t i = 0; i < device->event_count; i++) {
        int error =
            read_count(tables, column->items[i], &device->events[i].block_bytes);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* One value an event, each put where SET puts it. */
static int
read_event_column(ml_tables *tables, ml_value value, ml_device_trace *device,
                  int (*set)(ml_tables *tables, ml_event *event, ml_value item))
{
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != device->event_count) {
        return trouble(tables, "a column is not one value an event");
    }
    const ml_array *column = ml_value_as_array(value);
    int error = 0;
    for (size_t i = 0; i < device->event_count && error == 0; i++) {
        error = set(tables, &device->events[i], column->items[i]);
    }
    return error;
}

/* What torch's dialect has no room for: nanoseconds beyond whole microseconds. */
static int
set_time(ml_tables *tables, ml_event *event, ml_value item)
{
    uint64_t rest;
    int error = read_count(tables, item, &rest);
    if (error == 0 && rest > 999) {
        error = trouble(tables, "time is not below a microsecond");
    }
    if (error == 0) {
        event->time = event->time / 1000 * 1000 + rest;
    }
    return error;
}

/* The number of a thread, MOST at most. */
static int
read_thread(ml_tables *tables, ml_value value, uint64_t most, uint32_t *out)
{
    uint64_t count;
    int error = read_count(tables, value, &count);
    if (error == 0 && count > most) {
        error = trouble(tables, "the number of a thread is too large");
    }
    if (error == 0) {
        *out = (uint32_t)count;
    }
    return error;
}

static int
set_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    return read_thread(tables, item, UINT32_MAX, &event->thread);
}

static int
set_autograd_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    uint32_t number = 0;
    int error = read_thread(tables, item, UINT16_MAX, &number);
    event->autograd_thread = (uint16_t)number;
    return error;
}

/* Signed, as all integers of the dialect leave: -1 is a node without a number. */
static int
read_bits(ml_tables *tables, ml_value value, uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT)) {
        return trouble(tables, "a number is not an integer");
    }
    *out = (uint64_t)ml_value_as_int(value);
    return 0;
}

static int
set_sequence(ml_tables *tables, ml_event *event, ml_value item)
{
    return read_bits(tables, item, &event->sequence);
}

static int
set_next(ml_tables *tables, ml_event *event, ml_value item)
{
    return read_bits(tables, item, &event->next);
}

static int
set_next_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    uint32_t number = 0;
    int error = read_thread(tables, item, UINT16_MAX, &number);
    event->next_thread = (uint16_t)number;
    return error;
}

static int
set_unused(ml_tables *tables, ml_event *event, ml_value item)
{
    uint64_t count;
    int error = read_count(tables, item, &count);
    if (error == 0 && count > UINT32_MAX) {
        error = trouble(tables, "unused is too large");
    }
    if (error == 0) {
        event->unused = (uint32_t)count;
    }
    return error;
}

static int
fill_uses(ml_tables *tables, const ml_array *addrs, const ml_array *positions,
          ml_device_trace *device)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < addrs->count; i++) {
        ml_use use;
        if (!ml_value_is(addrs->items[i], ML_VALUE_INT)) {
            return trouble(tables, "the address of a use is not an integer");
        }
        use.addr = (uint64_t)ml_value_as_int(addrs->items[i]);
        int error = read_count(tables, positions->items[i], &use.position);
        if (error != 0) {
            return error;
        }
        if (use.position > device->event_count || (i != 0 && use.addr <= before)) {
            return trouble(tables, "uses are out of order");
        }
        before = use.addr;
        device->uses[device->use_count++] = use;
    }
    return 0;
}

static int
read_uses(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    const ml_array *addrs = NULL, *positions = NULL;
    if (!ml_value_is(value, ML_VALUE_DICT) || device->uses != NULL) {
        return trouble(tables, "uses is not one dictionary");
    }
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        unsigned word = ml_tables_word(tables, dict->items[i]);
        if (ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
            const ml_array *list = ml_value_as_array(dict->items[i + 1]);
            addrs = word == ML_WORD_ADDR ? list : addrs;
            positions = word == ML_WORD_POSITION ? list : positions;
        }
    }
    if (addrs == NULL || positions == NULL || addrs->count != positions->count) {
        return trouble(tables, "uses are not columns of one length");
    }
    int error = ml_tree_charge(tables->tree, addrs->count * sizeof(ml_use));
    if (error != 0 || addrs->count == 0) {
        return error;
    }
    device->uses = ml_alloc_zeroed(addrs->count, sizeof(ml_use));
    return device->uses == NULL ? ML_ENOMEM
                                : fill_uses(tables, addrs, positions, device);
}

static int
set_node(ml_tables *tables, ml_event *event, ml_value item)
{
    return ml_tables_string(tables, item, &event->node);
}

static int
read_device(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        return trouble(tables, "a device is not a dictionary");
    }
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        int error = 0;
        switch (ml_tables_word(tables, dict->items[i])) {
        case ML_WORD_OVERWRITTEN_EVENTS:
            error = read_count(tables, item, &device->overwritten_events);
            break;
        case ML_WORD_DROPPED_EVENTS:
            error = read_count(tables, item, &device->dropped_events);
            break;
        case ML_WORD_LOST_STACKS:
            error = read_count(tables, item, &device->lost_stacks);
            break;
        case ML_WORD_LOST_NAMES:
            error = read_count(tables, item, &device->lost_names);
            break;
        case ML_WORD_PEAK:
            error = read_peak(tables, item, &device->peak);
            break;
        case ML_WORD_TAGS:
            error = read_tags(tables, item, device);
            break;
        case ML_WORD_FLAGS:
            error = read_flags(tables, item, device);
            break;
        case ML_WORD_BLOCK_BYTES:
            error = read_block_bytes(tables, item, device);
            break;
        case ML_WORD_TIME:
            error = read_event_column(tables, item, device, set_time);
            break;
        case ML_WORD_THREAD:
            error = read_event_column(tables, item, device, set_thread);
            break;
        case ML_WORD_AUTOGRAD_THREAD:
            error = read_event_column(tables, item, device, set_autograd_thread);
            break;
        case ML_WORD_SEQUENCE:
            error = read_event_column(tables, item, device, set_sequence);
            break;
        case ML_WORD_NEXT:
            error = read_event_column(tables, item, device, set_next);
            break;
        case ML_WORD_NEXT_THREAD:
            error = read_event_column(tables, item, device, set_next_thread);
            break;
        case ML_WORD_NODE:
            error = read_event_column(tables, item, device, set_node);
            break;
        case ML_WORD_UNUSED:
            error = read_event_column(tables, item, device, set_unused);
            break;
        case ML_WORD_USES:
            error = read_uses(tables, item, device);
            break;
        default:
            break;
        }
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

static int
read_devices(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != recording->device_count) {
        return trouble(tables, "devices is not one entry a device");
    }
    for (size_t i = 0; i < recording->device_count; i++) {
        int error = read_device(tables, ml_value_as_array(value)->items[i],
                                &recording->devices[i]);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* ---- Notes ---- */

static unsigned
note_kind(ml_value value)
{
    unsigned kind = ML_NOTE_COUNT;
    if (ml_value_is(value, ML_VALUE_STRING)) {
        const ml_text *text = ml_value_as_text(value);
        for (kind = 0; kind < ML_NOTE_COUNT; kind++) {
            const char *name = ml_note_text(kind);
            if (strlen(name) == text->length &&
                memcmp(name, text->bytes, text->length) == 0) {
                break;
            }
        }
    }
    return kind;
}

static int
read_note(ml_tables *tables, const ml_array *const columns[6], uint32_t index,
          ml_note *note)
{
    ml_value device = columns[3]->items[index];
    if (!ml_value_is(device, ML_VALUE_INT) || ml_value_as_int(device) < -1 ||
        ml_value_as_int(device) > INT32_MAX) {
        return trouble(tables, "the device of a note is not one");
    }
    note->device = (int32_t)ml_value_as_int(device);
    int error = read_bits(tables, columns[0]->items[index], &note->time);
    if (error == 0) {
        error = ml_tables_string(tables, columns[2]->items[index], &note->name);
    }
    if (error == 0) {
        error =
            read_thread(tables, columns[4]->items[index], UINT32_MAX, &note->thread);
    }
    for (uint32_t k = 0; k < ML_NOTE_VALUES && error == 0; k++) {
        error = read_bits(tables, columns[5]->items[ML_NOTE_VALUES * index + k],
                          &note->values[k]);
    }
    return error;
}

/* Notes of a kind that is not known are passed over. */
static int
fill_notes(ml_tables *tables, const ml_array *const columns[6], ml_recording *recording)
{
    uint32_t count = columns[0]->count;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_note));
    if (error != 0 || count == 0) {
        return error;
    }
    recording->notes = ml_alloc_zeroed(count, sizeof(ml_note));
    if (recording->notes == NULL) {
        return ML_ENOMEM;
    }
    for (uint32_t i = 0; i < count && error == 0; i++) {
        unsigned kind = note_kind(columns[1]->items[i]);
        if (kind != ML_NOTE_COUNT) {
            ml_note *note = &recording->notes[recording->note_count++];
            note->kind = (uint8_t)kind;
            error = read_note(tables, columns, i, note);
        }
    }
    return error;
}

/* Of RECORDING, the whole or the part of a rank. */
static int
read_notes(ml_tables *tables, ml_value value, ml_recording *recording)
{
    if (!ml_value_is(value, ML_VALUE_DICT) || recording->notes != NULL) {
        return trouble(tables, "notes is not one dictionary");
    }
    static const unsigned keys[6] = {ML_WORD_TIME,   ML_WORD_KIND,   ML_WORD_NAME,
                                     ML_WORD_DEVICE, ML_WORD_THREAD, ML_WORD_VALUES};
    const ml_array *columns[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        unsigned word = ml_tables_word(tables, dict->items[i]);
        int error = word == ML_WORD_LOST
                        ? read_count(tables, dict->items[i + 1], &recording->lost_notes)
                        : 0;
        if (error != 0) {
            return error;
        }
        for (unsigned k = 0; k < 6; k++) {
            if (word == keys[k] && ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
                columns[k] = ml_value_as_array(dict->items[i + 1]);
            }
        }
    }
    for (unsigned k = 0; k < 6; k++) {
        if (columns[k] == NULL ||
            columns[k]->count !=
                (uint64_t)columns[0]->count * (k == 5 ? ML_NOTE_VALUES : 1)) {
            return trouble(tables, "notes are not columns of one length");
        }
    }
    return fill_notes(tables, columns, recording);
}

/* ---- Ranks ---- */

/* The place of TEXT among what TEXT_OF names, of COUNT; 0 where it is not there. */
static uint8_t
read_choice(ml_value value, const char *(*text_of)(unsigned), unsigned count)
{
    if (ml_value_is(value, ML_VALUE_STRING)) {
        const ml_text *text = ml_value_as_text(value);
        for (unsigned i = 0; i < count; i++) {
            const char *name = text_of(i);
            if (strlen(name) == text->length &&
                memcmp(name, text->bytes, text->length) == 0) {
                return (uint8_t)i;
            }
        }
    }
    return 0;
}

/* A rank, or -1. */
static int
read_rank_number(ml_tables *tables, ml_value value, int32_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < -1 ||
        ml_value_as_int(value) > INT32_MAX) {
        return trouble(tables, "a rank is not a number");
    }
    *out = (int32_t)ml_value_as_int(value);
    return 0;
}

/* The part that RANK has, or a new one. */
static int
need_part(ml_tables *tables, ml_rank *rank)
{
    int error = 0;
    if (rank->part == NULL) {
        error = ml_tree_charge(tables->tree, sizeof(ml_recording));
        rank->part = error == 0 ? ml_alloc_zeroed(1, sizeof(ml_recording)) : NULL;
        error = error == 0 && rank->part == NULL ? ML_ENOMEM : error;
    }
    return error;
}

/* The devices of RANK, by their numbers in its process: those behind the ranks before. */
static int
read_numbers(ml_tables *tables, ml_value value, ml_rank *rank)
{
    const ml_recording *recording = tables->recording;
    int error = need_part(tables, rank);
    if (error != 0) {
        return error;
    }
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count >
            recording->device_count - rank->first_device) {
        return trouble(tables, "the devices of a rank are not there");
    }
    const ml_array *list = ml_value_as_array(value);
    for (uint32_t i = 0; i < list->count && error == 0; i++) {
        error = read_thread(tables, list->items[i], UINT32_MAX,
                            &recording->devices[rank->first_device + i].number);
    }
    rank->device_count = list->count;
    return error;
}

static int
read_rules(ml_tables *tables, ml_value value, ml_rank *rank)
{
    int error = need_part(tables, rank);
    if (error != 0) {
        return error;
    }
    if (!ml_value_is(value, ML_VALUE_LIST) || ml_value_as_array(value)->count != 19) {
        return trouble(tables, "the rules of a rank are not a list of 19");
    }
    const ml_array *list = ml_value_as_array(value);
    ml_allocator_rules *rules = &rank->part->rules;
    for (uint32_t i = 0; i < 19 && error == 0; i++) {
        uint64_t number = 0;
        error = read_bits(tables, list->items[i], &number);
        if (i == 0) {
            rules->has_segments = number != 0;
        }
        else if (i == 1) {
            rules->expandable_segments = number != 0;
        }
        else if (i == 2) {
            rules->max_split_bytes = number;
        }
        else {
            rules->roundup_divisions[i - 3] =
                number <= UINT32_MAX ? (uint32_t)number : 0;
        }
    }
    return error;
}

static int
read_rank_field(ml_tables *tables, unsigned word, ml_value item, ml_rank *rank)
{
    uint64_t offset = 0;
    int error;
    switch (word) {
    case ML_WORD_RANK:
        return read_rank_number(tables, item, &rank->rank);
    case ML_WORD_LOCAL_RANK:
        return read_rank_number(tables, item, &rank->local_rank);
    case ML_WORD_WORLD_SIZE:
        return read_thread(tables, item, ML_WORLD_MAX, &rank->world_size);
    case ML_WORD_FILE:
        return ml_tables_string(tables, item, &rank->file);
    case ML_WORD_HOST:
        return ml_tables_string(tables, item, &rank->host);
    case ML_WORD_BOOT_ID:
        return ml_tables_string(tables, item, &rank->boot);
    case ML_WORD_PID:
        return read_bits(tables, item, &rank->pid);
    case ML_WORD_STATE:
        rank->state = read_choice(item, ml_rank_state_text, ML_RANK_STATE_COUNT);
        return 0;
    case ML_WORD_ANCHOR_UNIX_NS:
        return read_bits(tables, item, &rank->anchor_time);
    case ML_WORD_ANCHOR_BOOT_NS:
        return read_bits(tables, item, &rank->anchor_boot);
    case ML_WORD_ALIGNMENT:
        rank->alignment = read_choice(item, ml_alignment_text, ML_ALIGNMENT_COUNT);
        return 0;
    case ML_WORD_OFFSET_NS:
        error = read_bits(tables, item, &offset);
        rank->offset = (int64_t)offset;
        return error;
    case ML_WORD_BOUND_NS:
        return read_bits(tables, item, &rank->bound);
    case ML_WORD_COMMON_STEPS:
        return read_thread(tables, item, UINT32_MAX, &rank->common_steps);
    case ML_WORD_NUMBERS:
        return read_numbers(tables, item, rank);
    case ML_WORD_RULES:
        return read_rules(tables, item, rank);
    case ML_WORD_NOTES:
        error = need_part(tables, rank);
        return error != 0 ? error : read_notes(tables, item, rank->part);
    default:
        return 0;
    }
}

static int
read_ranks(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    if (!ml_value_is(value, ML_VALUE_LIST) || recording->ranks != NULL) {
        return trouble(tables, "ranks is not one list");
    }
    const ml_array *list = ml_value_as_array(value);
    if (list->count > ML_RECORDING_DEVICES_MAX) {
        return trouble(tables, "there are too many ranks");
    }
    int error = ml_tree_charge(tables->tree, list->count * sizeof(ml_rank));
    if (error != 0 || list->count == 0) {
        return error;
    }
    recording->ranks = ml_alloc_zeroed(list->count, sizeof(ml_rank));
    if (recording->ranks == NULL) {
        return ML_ENOMEM;
    }
    size_t next = 0;
    for (uint32_t i = 0; i < list->count && error == 0; i++) {
        ml_rank *rank = &recording->ranks[recording->rank_count++];
        *rank = (ml_rank){.rank = -1, .local_rank = -1, .first_device = next};
        if (!ml_value_is(list->items[i], ML_VALUE_DICT)) {
            return trouble(tables, "a rank is not a dictionary");
        }
        const ml_array *dict = ml_value_as_array(list->items[i]);
        for (uint32_t k = 0; k < dict->count && error == 0; k += 2) {
            error = read_rank_field(tables, ml_tables_word(tables, dict->items[k]),
                                    dict->items[k + 1], rank);
        }
        next += rank->device_count;
    }
    return error;
}

/* ---- The whole ---- */

static int
read_source(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    if (!ml_value_is(value, ML_VALUE_STRING)) {
        return trouble(tables, "source is not a string");
    }
    const ml_text *text = ml_value_as_text(value);
    if (text->length >= sizeof(recording->source) ||
        memchr(text->bytes, '\0', text->length) != NULL) {
        return trouble(tables, "source is not the name of one");
    }
    memcpy(recording->source, text->bytes, text->length);
    recording->source[text->length] = '\0';
    recording->source_known = text->length != 0;
    return 0;
}

static int64_t
version_of(ml_tables *tables, const ml_array *dict)
{
    int64_t version = 0;
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (ml_tables_word(tables, dict->items[i]) == ML_WORD_VERSION &&
            ml_value_is(dict->items[i + 1], ML_VALUE_INT)) {
            version = ml_value_as_int(dict->items[i + 1]);
        }
    }
    return version;
}

int
ml_extras_read_modules(ml_tables *tables, ml_value value)
{
    if (!ml_value_is(value, ML_VALUE_DICT) ||
        version_of(tables, ml_value_as_array(value)) != 1) {
        return 0;
    }
    const ml_array *dict = ml_value_as_array(value);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (ml_tables_word(tables, dict->items[i]) != ML_WORD_MODULES) {
            continue;
        }
        if (!ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
            return trouble(tables, "modules is not a list");
        }
        const ml_array *pairs = ml_value_as_array(dict->items[i + 1]);
        for (uint32_t k = 0; k + 1 < pairs->count; k += 2) {
            if (!ml_value_is(pairs->items[k + 1], ML_VALUE_DICT)) {
                return trouble(tables, "the modules of a stack are not a dictionary");
            }
            int error = ml_tables_stack_of_modules(
                tables, pairs->items[k], ml_value_as_array(pairs->items[k + 1]));
            if (error != 0) {
                return error;
            }
        }
    }
    return 0;
}

int
ml_extras_read(ml_tables *tables, ml_value value)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        return trouble(tables, "memlab is not a dictionary");
    }
    const ml_array *dict = ml_value_as_array(value);
    int64_t version = version_of(tables, dict);
    for (uint32_t i = 0; version == 1 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        int error = 0;
        switch (ml_tables_word(tables, dict->items[i])) {
        case ML_WORD_SOURCE:
            error = read_source(tables, item);
            break;
        case ML_WORD_HAS_SEGMENTS:
            tables->recording->rules.has_segments = item.bits != ML_VALUE_OF_FALSE.bits;
            break;
        case ML_WORD_DEVICES:
            error = read_devices(tables, item);
            break;
        case ML_WORD_NOTES:
            error = read_notes(tables, item, tables->recording);
            break;
        case ML_WORD_RANKS:
            error = read_ranks(tables, item);
            break;
        default:
            break;
        }
        if (error != 0) {
            return error;
        }
    }
    return 0;
}
