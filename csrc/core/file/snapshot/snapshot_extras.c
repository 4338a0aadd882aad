/* The key "memlab" of a snapshot, read with the same distrust as the rest. */
#include "file/snapshot/snapshot_extras.h"

#include <string.h>

/* Reads VALUE to *OUT; false, and counted as a WHAT, where it is none.  *OUT is written only
 * where it is one, here and below. */
static bool
read_count(ml_tables *tables, ml_value value, enum ml_unread what, uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < 0) {
        ml_tables_lose(tables, what);
        return false;
    }
    *out = (uint64_t)ml_value_as_int(value);
    return true;
}

/* A count of MOST at most. */
static bool
read_small(ml_tables *tables, ml_value value, enum ml_unread what, uint64_t most,
           uint32_t *out)
{
    uint64_t count = 0;
    if (!read_count(tables, value, what, &count)) {
        return false;
    }
    if (count > most) {
        ml_tables_lose(tables, what);
        return false;
    }
    *out = (uint32_t)count;
    return true;
}

/* Signed, as all integers of the dialect leave: -1 is a node without a number. */
static bool
read_bits(ml_tables *tables, ml_value value, enum ml_unread what, uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT)) {
        ml_tables_lose(tables, what);
        return false;
    }
    *out = (uint64_t)ml_value_as_int(value);
    return true;
}

/* From -1, for none, on. */
static bool
read_number(ml_tables *tables, ml_value value, enum ml_unread what, int32_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < -1 ||
        ml_value_as_int(value) > INT32_MAX) {
        ml_tables_lose(tables, what);
        return false;
    }
    *out = (int32_t)ml_value_as_int(value);
    return true;
}

static const ml_array *
dict_of(ml_tables *tables, ml_value value, enum ml_unread what)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        ml_tables_lose(tables, what);
        return NULL;
    }
    return ml_value_as_array(value);
}

/* A list of COUNT items. */
static const ml_array *
list_of(ml_tables *tables, ml_value value, enum ml_unread what, size_t count)
{
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != count) {
        ml_tables_lose(tables, what);
        return NULL;
    }
    return ml_value_as_array(value);
}

static bool
text_is(ml_value value, const char *name)
{
    if (!ml_value_is(value, ML_VALUE_STRING)) {
        return false;
    }
    const ml_text *text = ml_value_as_text(value);
    return strlen(name) == text->length && memcmp(name, text->bytes, text->length) == 0;
}

static void
read_peak(ml_tables *tables, ml_value value, ml_totals *peak)
{
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB_DEVICE);
    for (uint32_t i = 0; dict != NULL && i < dict->count; i += 2) {
#define XX(name) \
    if (text_is(dict->items[i], #name)) { \
        read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB_DEVICE, &peak->name); \
    }
        ML_TOTALS(XX)
#undef XX
    }
}

/* The lists that DICT has for the COUNT KEYS, all as long as the first; only the first
 * REQUIRED must be there, the others stay NULL. */
static bool
find_columns(ml_tables *tables, const ml_array *dict, enum ml_unread what,
             const unsigned *keys, unsigned count, unsigned required,
             const ml_array **columns)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        unsigned word = ml_tables_word(tables, dict->items[i]);
        for (unsigned k = 0; k < count; k++) {
            if (word == keys[k] && ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
                columns[k] = ml_value_as_array(dict->items[i + 1]);
            }
        }
    }
    for (unsigned k = 0; k < count; k++) {
        uint64_t times = keys[k] == ML_WORD_VALUES ? ML_NOTE_VALUES : 1;
        bool fits =
            columns[k] == NULL
                ? k >= required
                : columns[0] != NULL && columns[k]->count == times * columns[0]->count;
        if (!fits) {
            ml_tables_lose(tables, what);
            return false;
        }
    }
    return true;
}

/* The last, of modules, is newer than the others. */
enum {
    TAG_COLUMNS_REQUIRED = 4,
    TAG_COLUMNS
};

/* *PLACED: it says what and when, without which it says nothing. */
static int
read_tag(ml_tables *tables, const ml_array *const columns[TAG_COLUMNS], uint32_t index,
         const ml_device_trace *device, ml_tag *tag, bool *placed)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_TAG;
    size_t count = device->tag_count;
    uint64_t before = count != 0 ? device->tags[count - 1].position : 0;
    *tag = (ml_tag){0};
    *placed = read_count(tables, columns[0]->items[index], what, &tag->position) &&
              read_bits(tables, columns[1]->items[index], what, &tag->addr);
    if (*placed && (tag->position < before || tag->position > device->event_count)) {
        ml_tables_lose(tables, what);
        *placed = false;
    }
    unsigned word = ml_tables_word(tables, columns[2]->items[index]);
    bool known = word >= ML_WORD_CATEGORIES && word < ML_WORD_COUNT;
    tag->category =
        (uint8_t)(known ? word - ML_WORD_CATEGORIES : (unsigned)ML_CATEGORY_UNKNOWN);
    if (!ml_value_is(columns[2]->items[index], ML_VALUE_STRING)) {
        ml_tables_lose(tables, what);
    }
    int error = ml_tables_string(tables, columns[3]->items[index], what, &tag->name);
    if (error == 0 && columns[4] != NULL) {
        error = ml_tables_string(tables, columns[4]->items[index], what, &tag->module);
    }
    return error;
}

static int
read_tags(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    static const unsigned keys[TAG_COLUMNS] = {
        ML_WORD_POSITION, ML_WORD_ADDR, ML_WORD_CATEGORY, ML_WORD_NAME, ML_WORD_MODULE};
    const ml_array *columns[TAG_COLUMNS] = {NULL};
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB_TAG);
    if (dict == NULL || device->tags != NULL ||
        !find_columns(tables, dict, ML_UNREAD_MEMLAB_TAG, keys, TAG_COLUMNS,
                      TAG_COLUMNS_REQUIRED, columns)) {
        return 0;
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
    for (uint32_t i = 0; i < count && error == 0; i++) {
        bool placed = false;
        ml_tag tag;
        error = read_tag(tables, columns, i, device, &tag, &placed);
        if (placed) {
            device->tags[device->tag_count++] = tag;
        }
    }
    return error;
}

static void
read_flags(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_STRING) ||
        ml_value_as_text(value)->length != device->event_count) {
        ml_tables_lose(tables, ML_UNREAD_MEMLAB_EVENT);
        return;
    }
    const char *column = ml_value_as_text(value)->bytes;
    for (size_t i = 0; i < device->event_count; i++) {
        unsigned char flags = (unsigned char)column[i];
        if ((flags & 0xc0) != 0x40) {
            ml_tables_lose(tables, ML_UNREAD_MEMLAB_EVENT);
            continue;
        }
        device->events[i].flags |= (uint8_t)(flags & 0x3f);
    }
}

/* One value an event, each put where SET puts it. */
static int
read_event_column(ml_tables *tables, ml_value value, ml_device_trace *device,
                  int (*set)(ml_tables *tables, ml_event *event, ml_value item))
{
    const ml_array *column =
        list_of(tables, value, ML_UNREAD_MEMLAB_EVENT, device->event_count);
    int error = 0;
    for (size_t i = 0; column != NULL && i < device->event_count && error == 0; i++) {
        error = set(tables, &device->events[i], column->items[i]);
    }
    return error;
}

static int
set_block_bytes(ml_tables *tables, ml_event *event, ml_value item)
{
    read_count(tables, item, ML_UNREAD_MEMLAB_EVENT, &event->block_bytes);
    return 0;
}

/* What torch's dialect has no room for: nanoseconds beyond whole microseconds. */
static int
set_time(ml_tables *tables, ml_event *event, ml_value item)
{
    uint32_t rest = 0;
    read_small(tables, item, ML_UNREAD_MEMLAB_EVENT, 999, &rest);
    event->time = event->time / 1000 * 1000 + rest;
    return 0;
}

static int
set_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    read_small(tables, item, ML_UNREAD_MEMLAB_EVENT, UINT32_MAX, &event->thread);
    return 0;
}

static int
set_autograd_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    uint32_t number = 0;
    read_small(tables, item, ML_UNREAD_MEMLAB_EVENT, UINT16_MAX, &number);
    event->autograd_thread = (uint16_t)number;
    return 0;
}

static int
set_sequence(ml_tables *tables, ml_event *event, ml_value item)
{
    read_bits(tables, item, ML_UNREAD_MEMLAB_EVENT, &event->sequence);
    return 0;
}

static int
set_next(ml_tables *tables, ml_event *event, ml_value item)
{
    read_bits(tables, item, ML_UNREAD_MEMLAB_EVENT, &event->next);
    return 0;
}

static int
set_next_thread(ml_tables *tables, ml_event *event, ml_value item)
{
    uint32_t number = 0;
    read_small(tables, item, ML_UNREAD_MEMLAB_EVENT, UINT16_MAX, &number);
    event->next_thread = (uint16_t)number;
    return 0;
}

static int
set_unused(ml_tables *tables, ml_event *event, ml_value item)
{
    read_small(tables, item, ML_UNREAD_MEMLAB_EVENT, UINT32_MAX, &event->unused);
    return 0;
}

static void
fill_uses(ml_tables *tables, const ml_array *addrs, const ml_array *positions,
          ml_device_trace *device)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_USE;
    for (uint32_t i = 0; i < addrs->count; i++) {
        size_t count = device->use_count;
        ml_use use;
        if (!read_bits(tables, addrs->items[i], what, &use.addr) ||
            !read_count(tables, positions->items[i], what, &use.position)) {
            continue;
        }
        if (use.position > device->event_count ||
            (count != 0 && use.addr <= device->uses[count - 1].addr)) {
            ml_tables_lose(tables, what);
            continue;
        }
        device->uses[device->use_count++] = use;
    }
}

static int
read_uses(ml_tables *tables, ml_value value, ml_device_trace *device)
{
    static const unsigned keys[2] = {ML_WORD_ADDR, ML_WORD_POSITION};
    const ml_array *columns[2] = {NULL, NULL};
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB_USE);
    if (dict == NULL || device->uses != NULL ||
        !find_columns(tables, dict, ML_UNREAD_MEMLAB_USE, keys, 2, 2, columns) ||
        columns[0]->count == 0) {
        return 0;
    }
    int error = ml_tree_charge(tables->tree, columns[0]->count * sizeof(ml_use));
    if (error != 0) {
        return error;
    }
    device->uses = ml_alloc_zeroed(columns[0]->count, sizeof(ml_use));
    if (device->uses == NULL) {
        return ML_ENOMEM;
    }
    fill_uses(tables, columns[0], columns[1], device);
    return 0;
}

static int
set_node(ml_tables *tables, ml_event *event, ml_value item)
{
    return ml_tables_string(tables, item, ML_UNREAD_MEMLAB_EVENT, &event->node);
}

static int
set_pool(ml_tables *tables, ml_event *event, ml_value item)
{
    uint64_t pool = 0;
    if (!read_bits(tables, item, ML_UNREAD_MEMLAB_EVENT, &pool)) {
        event->flags &= (uint8_t)~ML_EVENT_POOL_KNOWN;
    }
    event->pool[0] = (uint32_t)(pool >> 32);
    event->pool[1] = (uint32_t)pool;
    return 0;
}

/* Without any pool the flag says nothing: the first that wrote it lost the pools. */
static void
forget_pools(ml_device_trace *device)
{
    for (size_t i = 0; i < device->event_count; i++) {
        device->events[i].flags &= (uint8_t)~ML_EVENT_POOL_KNOWN;
    }
}

static int
read_device_field(ml_tables *tables, unsigned word, ml_value item,
                  ml_device_trace *device)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_DEVICE;
    switch (word) {
    case ML_WORD_OVERWRITTEN_EVENTS:
        read_count(tables, item, what, &device->overwritten_events);
        return 0;
    case ML_WORD_DROPPED_EVENTS:
        read_count(tables, item, what, &device->dropped_events);
        return 0;
    case ML_WORD_LOST_STACKS:
        read_count(tables, item, what, &device->lost_stacks);
        return 0;
    case ML_WORD_LOST_NAMES:
        read_count(tables, item, what, &device->lost_names);
        return 0;
    case ML_WORD_PEAK:
        read_peak(tables, item, &device->peak);
        return 0;
    case ML_WORD_TAGS:
        return read_tags(tables, item, device);
    case ML_WORD_FLAGS:
        read_flags(tables, item, device);
        return 0;
    case ML_WORD_BLOCK_BYTES:
        return read_event_column(tables, item, device, set_block_bytes);
    case ML_WORD_TIME:
        return read_event_column(tables, item, device, set_time);
    case ML_WORD_THREAD:
        return read_event_column(tables, item, device, set_thread);
    case ML_WORD_AUTOGRAD_THREAD:
        return read_event_column(tables, item, device, set_autograd_thread);
    case ML_WORD_SEQUENCE:
        return read_event_column(tables, item, device, set_sequence);
    case ML_WORD_NEXT:
        return read_event_column(tables, item, device, set_next);
    case ML_WORD_NEXT_THREAD:
        return read_event_column(tables, item, device, set_next_thread);
    case ML_WORD_NODE:
        return read_event_column(tables, item, device, set_node);
    case ML_WORD_UNUSED:
        return read_event_column(tables, item, device, set_unused);
    case ML_WORD_POOL_ID:
        return read_event_column(tables, item, device, set_pool);
    case ML_WORD_USES:
        return read_uses(tables, item, device);
    default:
        return 0;
    }
}

static int
read_devices(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    const ml_array *list =
        list_of(tables, value, ML_UNREAD_MEMLAB_DEVICE, recording->device_count);
    int error = 0;
    for (size_t i = 0; list != NULL && i < recording->device_count; i++) {
        const ml_array *dict = dict_of(tables, list->items[i], ML_UNREAD_MEMLAB_DEVICE);
        bool pools = (recording->keys & ML_KEY_POOL_ID) != 0;
        for (uint32_t k = 0; dict != NULL && error == 0 && k < dict->count; k += 2) {
            unsigned word = ml_tables_word(tables, dict->items[k]);
            pools |= word == ML_WORD_POOL_ID;
            error = read_device_field(tables, word, dict->items[k + 1],
                                      &recording->devices[i]);
        }
        if (!pools) {
            forget_pools(&recording->devices[i]);
        }
    }
    return error;
}

/* ---- Notes ---- */

static unsigned
note_kind(ml_value value)
{
    unsigned kind = 0;
    while (kind < ML_NOTE_COUNT && !text_is(value, ml_note_text(kind))) {
        kind++;
    }
    return kind;
}

enum {
    NOTE_COLUMNS = 6
};

/* *TIMED: it says when it was, in order, without which it cannot be kept. */
static int
read_note(ml_tables *tables, const ml_array *const columns[NOTE_COLUMNS],
          uint32_t index, uint64_t before, ml_note *note, bool *timed)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_NOTE;
    note->device = -1;
    read_number(tables, columns[3]->items[index], what, &note->device);
    *timed = read_bits(tables, columns[0]->items[index], what, &note->time);
    if (*timed && note->time < before) {
        ml_tables_lose(tables, what);
        *timed = false;
    }
    read_small(tables, columns[4]->items[index], what, UINT32_MAX, &note->thread);
    for (uint32_t k = 0; k < ML_NOTE_VALUES; k++) {
        note->values[k] = ML_NOTE_UNKNOWN;
        read_bits(tables, columns[5]->items[ML_NOTE_VALUES * index + k], what,
                  &note->values[k]);
    }
    return ml_tables_string(tables, columns[2]->items[index], what, &note->name);
}

/* Notes of a kind that is not known are passed over. */
static int
fill_notes(ml_tables *tables, const ml_array *const columns[NOTE_COLUMNS],
           ml_recording *recording)
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
    uint64_t before = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        unsigned kind = note_kind(columns[1]->items[i]);
        if (kind == ML_NOTE_COUNT) {
            if (!ml_value_is(columns[1]->items[i], ML_VALUE_STRING)) {
                ml_tables_lose(tables, ML_UNREAD_MEMLAB_NOTE);
            }
            continue;
        }
        ml_note note = {.kind = (uint8_t)kind};
        bool timed = false;
        error = read_note(tables, columns, i, before, &note, &timed);
        if (timed) {
            recording->notes[recording->note_count++] = note;
            before = note.time;
        }
    }
    return error;
}

/* Of RECORDING, the whole or the part of a rank. */
static int
read_notes(ml_tables *tables, ml_value value, ml_recording *recording)
{
    static const unsigned keys[NOTE_COLUMNS] = {ML_WORD_TIME,   ML_WORD_KIND,
                                                ML_WORD_NAME,   ML_WORD_DEVICE,
                                                ML_WORD_THREAD, ML_WORD_VALUES};
    const ml_array *columns[NOTE_COLUMNS] = {NULL};
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB_NOTE);
    if (dict == NULL || recording->notes != NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (ml_tables_word(tables, dict->items[i]) == ML_WORD_LOST) {
            read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB_NOTE,
                       &recording->lost_notes);
        }
    }
    return find_columns(tables, dict, ML_UNREAD_MEMLAB_NOTE, keys, NOTE_COLUMNS,
                        NOTE_COLUMNS, columns)
               ? fill_notes(tables, columns, recording)
               : 0;
}

/* ---- Lines of code ---- */

enum {
    CODE_COLUMNS = 8
};

/* A line without a place or a text is none; the rest of it may be unknown. */
static int
read_code_line(ml_tables *tables, const ml_array *const columns[CODE_COLUMNS],
               uint32_t index)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_CODE;
    ml_code_line line = {0};
    uint32_t *const strings[] = {&line.filename, &line.name, &line.text,
                                 &line.qualname};
    uint64_t numbers[4] = {0};
    ml_value place = columns[4]->items[index];
    bool whole = ml_value_is(place, ML_VALUE_INT) && ml_value_as_int(place) > 0;
    for (unsigned k = 0; k < 4; k++) {
        whole = whole && ml_value_is(columns[k]->items[index], ML_VALUE_STRING);
    }
    if (!whole) {
        ml_tables_lose(tables, what);
        return 0;
    }
    int error = 0;
    for (unsigned k = 0; k < 4 && error == 0; k++) {
        read_count(tables, columns[4 + k]->items[index], what, &numbers[k]);
        error = ml_tables_string(tables, columns[k]->items[index], what, strings[k]);
    }
    line.line = (int64_t)numbers[0];
    line.first_line = (int64_t)numbers[1];
    line.last_line = (int64_t)numbers[2];
    line.changed_us = (int64_t)numbers[3];
    return error == 0 ? ml_recording_add_code_line(tables->recording, line) : error;
}

static int
read_code(ml_tables *tables, ml_value value)
{
    static const unsigned keys[CODE_COLUMNS] = {
        ML_WORD_FILE, ML_WORD_FUNCTION,   ML_WORD_TEXT,      ML_WORD_QUALNAME,
        ML_WORD_LINE, ML_WORD_FIRST_LINE, ML_WORD_LAST_LINE, ML_WORD_CHANGED_US};
    const ml_array *columns[CODE_COLUMNS] = {NULL};
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB_CODE);
    if (dict == NULL || tables->recording->code_lines != NULL ||
        !find_columns(tables, dict, ML_UNREAD_MEMLAB_CODE, keys, CODE_COLUMNS,
                      CODE_COLUMNS, columns)) {
        return 0;
    }
    uint32_t count = columns[0]->count;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_code_line));
    for (uint32_t i = 0; i < count && error == 0; i++) {
        error = read_code_line(tables, columns, i);
    }
    return error;
}

/* ---- Ranks ---- */

/* The place of VALUE among what TEXT_OF names, of COUNT; 0 where it is not there. */
static uint8_t
read_choice(ml_tables *tables, ml_value value, const char *(*text_of)(unsigned),
            unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (text_is(value, text_of(i))) {
            return (uint8_t)i;
        }
    }
    ml_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
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

/* The devices of RANK, by their numbers in its process: those behind the ranks before.
 * *BROKEN: which they are is not known. */
static int
read_numbers(ml_tables *tables, ml_value value, ml_rank *rank, bool *broken)
{
    const ml_recording *recording = tables->recording;
    int error = need_part(tables, rank);
    *broken =
        !ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count > recording->device_count - rank->first_device;
    if (error != 0 || *broken) {
        return error;
    }
    const ml_array *list = ml_value_as_array(value);
    for (uint32_t i = 0; i < list->count; i++) {
        ml_device_trace *device = &recording->devices[rank->first_device + i];
        device->number = i;
        read_small(tables, list->items[i], ML_UNREAD_MEMLAB_RANK, UINT32_MAX,
                   &device->number);
    }
    rank->device_count = list->count;
    return 0;
}

enum {
    RULE_COUNT = 19
};

static int
read_rules(ml_tables *tables, ml_value value, ml_rank *rank)
{
    int error = need_part(tables, rank);
    const ml_array *list = list_of(tables, value, ML_UNREAD_MEMLAB_RANK, RULE_COUNT);
    if (error != 0 || list == NULL) {
        return error;
    }
    ml_allocator_rules *rules = &rank->part->rules;
    uint64_t numbers[RULE_COUNT] = {1, 0, UINT64_MAX};
    for (uint32_t i = 0; i < RULE_COUNT; i++) {
        read_bits(tables, list->items[i], ML_UNREAD_MEMLAB_RANK, &numbers[i]);
    }
    rules->has_segments = numbers[0] != 0;
    rules->expandable_segments = numbers[1] != 0;
    rules->max_split_bytes = numbers[2];
    for (uint32_t i = 0; i < 16; i++) {
        rules->roundup_divisions[i] =
            numbers[i + 3] <= UINT32_MAX ? (uint32_t)numbers[i + 3] : 0;
    }
    return 0;
}

static int
read_rank_field(ml_tables *tables, unsigned word, ml_value item, ml_rank *rank,
                bool *broken)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_RANK;
    uint64_t offset = 0;
    int error;
    switch (word) {
    case ML_WORD_RANK:
        read_number(tables, item, what, &rank->rank);
        return 0;
    case ML_WORD_LOCAL_RANK:
        read_number(tables, item, what, &rank->local_rank);
        return 0;
    case ML_WORD_WORLD_SIZE:
        read_small(tables, item, what, ML_WORLD_MAX, &rank->world_size);
        return 0;
    case ML_WORD_FILE:
        return ml_tables_string(tables, item, what, &rank->file);
    case ML_WORD_HOST:
        return ml_tables_string(tables, item, what, &rank->host);
    case ML_WORD_BOOT_ID:
        return ml_tables_string(tables, item, what, &rank->boot);
    case ML_WORD_PID:
        read_bits(tables, item, what, &rank->pid);
        return 0;
    case ML_WORD_STATE:
        rank->state =
            read_choice(tables, item, ml_rank_state_text, ML_RANK_STATE_COUNT);
        return 0;
    case ML_WORD_ANCHOR_UNIX_NS:
        read_bits(tables, item, what, &rank->anchor_time);
        return 0;
    case ML_WORD_ANCHOR_BOOT_NS:
        read_bits(tables, item, what, &rank->anchor_boot);
        return 0;
    case ML_WORD_ALIGNMENT:
        rank->alignment =
            read_choice(tables, item, ml_alignment_text, ML_ALIGNMENT_COUNT);
        return 0;
    case ML_WORD_OFFSET_NS:
        read_bits(tables, item, what, &offset);
        rank->offset = (int64_t)offset;
        return 0;
    case ML_WORD_BOUND_NS:
        rank->bound = ML_NOTE_UNKNOWN;
        read_bits(tables, item, what, &rank->bound);
        return 0;
    case ML_WORD_COMMON_STEPS:
        read_small(tables, item, what, UINT32_MAX, &rank->common_steps);
        return 0;
    case ML_WORD_NUMBERS:
        return read_numbers(tables, item, rank, broken);
    case ML_WORD_RULES:
        return read_rules(tables, item, rank);
    case ML_WORD_NOTES:
        error = need_part(tables, rank);
        return error != 0 ? error : read_notes(tables, item, rank->part);
    default:
        return 0;
    }
}

/* Whether the ranks share out the devices, as those of a merged recording do, or are one
 * process at most. */
static bool
ranks_fit(const ml_recording *recording)
{
    bool merged = ml_recording_is_merged(recording);
    size_t devices = 0;
    for (size_t i = 0; i < recording->rank_count; i++) {
        devices += recording->ranks[i].device_count;
        if ((recording->ranks[i].part != NULL) != merged) {
            return false;
        }
    }
    return merged ? devices == recording->device_count : recording->rank_count <= 1;
}

static int
read_ranks(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    if (!ml_value_is(value, ML_VALUE_LIST) || recording->ranks != NULL ||
        ml_value_as_array(value)->count > ML_RECORDING_DEVICES_MAX) {
        ml_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
        return 0;
    }
    const ml_array *list = ml_value_as_array(value);
    int error = ml_tree_charge(tables->tree, list->count * sizeof(ml_rank));
    if (error != 0 || list->count == 0) {
        return error;
    }
    recording->ranks = ml_alloc_zeroed(list->count, sizeof(ml_rank));
    if (recording->ranks == NULL) {
        return ML_ENOMEM;
    }
    size_t next = 0;
    bool broken = false;
    for (uint32_t i = 0; i < list->count && error == 0 && !broken; i++) {
        ml_rank *rank = &recording->ranks[recording->rank_count++];
        *rank = (ml_rank){.rank = -1, .local_rank = -1, .first_device = next};
        broken = !ml_value_is(list->items[i], ML_VALUE_DICT);
        const ml_array *dict = broken ? NULL : ml_value_as_array(list->items[i]);
        for (uint32_t k = 0; dict != NULL && k < dict->count && error == 0; k += 2) {
            error = read_rank_field(tables, ml_tables_word(tables, dict->items[k]),
                                    dict->items[k + 1], rank, &broken);
        }
        next += rank->device_count;
    }
    /* Without knowing whose the devices are, they are those of nobody. */
    if (error == 0 && (broken || !ranks_fit(recording))) {
        ml_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
        ml_recording_drop_ranks(recording);
    }
    return error;
}

/* ---- The whole ---- */

static void
read_source(ml_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    const ml_text *text =
        ml_value_is(value, ML_VALUE_STRING) ? ml_value_as_text(value) : NULL;
    bool readable = text != NULL && text->length < sizeof(recording->source);
    for (size_t i = 0; readable && i < text->length; i++) {
        readable = text->bytes[i] > ' ' && text->bytes[i] <= '~';
    }
    if (!readable) {
        ml_tables_lose(tables, ML_UNREAD_MEMLAB_SOURCE);
        return;
    }
    memcpy(recording->source, text->bytes, text->length);
    recording->source[text->length] = '\0';
    recording->source_known = text->length != 0;
}

/* What could not be read of the file that this one was made of. */
static void
read_unread(ml_tables *tables, ml_value value)
{
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB);
    for (uint32_t i = 0; dict != NULL && i < dict->count; i += 2) {
        for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
            uint64_t count = 0;
            if (text_is(dict->items[i], ml_unread_text(kind)) &&
                read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB, &count)) {
                uint64_t *sum = &tables->recording->unread[kind];
                *sum = count < ML_SIZE_MOST - *sum ? *sum + count : ML_SIZE_MOST;
            }
        }
    }
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

static int
read_modules(ml_tables *tables, ml_value value)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_MODULE;
    if (!ml_value_is(value, ML_VALUE_LIST)) {
        ml_tables_lose(tables, what);
        return 0;
    }
    const ml_array *pairs = ml_value_as_array(value);
    int error = 0;
    for (uint32_t k = 0; error == 0 && k + 1 < pairs->count; k += 2) {
        const ml_array *modules = dict_of(tables, pairs->items[k + 1], what);
        if (modules != NULL) {
            error = ml_tables_stack_of_modules(tables, pairs->items[k], modules);
        }
    }
    return error;
}

int
ml_extras_read_modules(ml_tables *tables, ml_value value)
{
    if (!ml_value_is(value, ML_VALUE_DICT) ||
        version_of(tables, ml_value_as_array(value)) != 1) {
        return 0;
    }
    const ml_array *dict = ml_value_as_array(value);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        if (ml_tables_word(tables, dict->items[i]) == ML_WORD_MODULES) {
            error = read_modules(tables, dict->items[i + 1]);
        }
    }
    return error;
}

int
ml_extras_read(ml_tables *tables, ml_value value)
{
    const ml_array *dict = dict_of(tables, value, ML_UNREAD_MEMLAB);
    int64_t version = dict != NULL ? version_of(tables, dict) : 0;
    if (dict != NULL && version < 1) {
        ml_tables_lose(tables, ML_UNREAD_MEMLAB);
    }
    int error = 0;
    for (uint32_t i = 0; version == 1 && error == 0 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        switch (ml_tables_word(tables, dict->items[i])) {
        case ML_WORD_SOURCE:
            read_source(tables, item);
            break;
        case ML_WORD_HAS_SEGMENTS:
            tables->recording->rules.has_segments = item.bits != ML_VALUE_OF_FALSE.bits;
            if (!ml_value_is(item, ML_VALUE_BOOL)) {
                ml_tables_lose(tables, ML_UNREAD_MEMLAB);
            }
            break;
        case ML_WORD_DEVICES:
            error = read_devices(tables, item);
            break;
        case ML_WORD_NOTES:
            error = read_notes(tables, item, tables->recording);
            break;
        case ML_WORD_CODE:
            error = read_code(tables, item);
            break;
        case ML_WORD_RANKS:
            error = read_ranks(tables, item);
            break;
        case ML_WORD_UNREAD:
            read_unread(tables, item);
            break;
        default:
            break;
        }
    }
    return error;
}
