/* Reads the devices of the key "memlab": losses and peaks, tags, uses, and columns that
 * torch's events lack. */
#include "file/snapshot/snapshot_extras_parts.h"
#include "file/snapshot/snapshot_fields.h"
#include "recording/side_data.h"

static void
read_peak(ml_snapshot_tables *tables, ml_value value, ml_totals *peak)
{
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB_DEVICE);
    for (uint32_t i = 0; dict != NULL && i < dict->count; i += 2) {
        uint64_t *total = NULL;
#define XX(name) \
    if (ml_extras_is_text(dict->items[i], #name)) { \
        total = &peak->name; \
    }
        ML_TOTALS(XX)
#undef XX
        if (total != NULL) {
            ml_extras_read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB_DEVICE,
                                 total);
        }
        else {
            ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
        }
    }
}

/* The last, of modules, is newer than the others. */
enum {
    TAG_COLUMNS_REQUIRED = 4,
    TAG_COLUMNS
};

/* A tag without category or position is useless. */
static int
read_tag(ml_snapshot_tables *tables, const ml_array *const columns[TAG_COLUMNS],
         uint32_t index, ml_device_trace *device, size_t *capacity)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_TAG;
    ml_tag tag = {0};
    bool placed =
        ml_extras_read_count(tables, columns[0]->items[index], what, &tag.position) &&
        ml_extras_read_bits(tables, columns[1]->items[index], what, &tag.addr);
    unsigned word = ml_snapshot_tables_word(tables, columns[2]->items[index]);
    bool known = word >= ML_WORD_CATEGORIES && word < ML_WORD_COUNT;
    tag.category =
        (uint8_t)(known ? word - ML_WORD_CATEGORIES : (unsigned)ML_CATEGORY_UNKNOWN);
    if (!known) {
        bool named = ml_value_is(columns[2]->items[index], ML_VALUE_STRING);
        ml_snapshot_tables_lose(tables, named ? ML_UNREAD_MEMLAB_NEWER : what);
    }
    int error =
        ml_snapshot_tables_string(tables, columns[3]->items[index], what, &tag.name);
    if (error == 0 && columns[4] != NULL) {
        error = ml_snapshot_tables_string(tables, columns[4]->items[index], what,
                                          &tag.module);
    }
    return error != 0 || !placed
               ? error
               : ml_tables_taken(tables, what,
                                 ml_device_trace_add_tag(device, capacity, &tag));
}

static int
read_tags(ml_snapshot_tables *tables, ml_value value, ml_device_trace *device)
{
    static const ml_extras_table table = {ML_UNREAD_MEMLAB_TAG,
                                          TAG_COLUMNS,
                                          TAG_COLUMNS_REQUIRED,
                                          ML_WORD_COUNT,
                                          {ML_WORD_POSITION, ML_WORD_ADDR,
                                           ML_WORD_CATEGORY, ML_WORD_NAME,
                                           ML_WORD_MODULE}};
    const ml_array *columns[TAG_COLUMNS] = {NULL};
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB_TAG);
    if (dict == NULL || device->tags != NULL ||
        !ml_extras_columns(tables, dict, &table, columns)) {
        return 0;
    }
    uint32_t count = columns[0]->count;
    size_t capacity = 0;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_tag));
    for (uint32_t i = 0; i < count && error == 0; i++) {
        error = read_tag(tables, columns, i, device, &capacity);
    }
    return error;
}

static void
read_flags(ml_snapshot_tables *tables, ml_value value, ml_device_trace *device)
{
    if (!ml_value_is(value, ML_VALUE_STRING) ||
        ml_value_as_text(value)->length != device->event_count) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_EVENT);
        return;
    }
    const char *column = ml_value_as_text(value)->bytes;
    for (size_t i = 0; i < device->event_count; i++) {
        unsigned char flags = (unsigned char)column[i];
        if ((flags & 0xc0) != 0x40) {
            ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_EVENT);
            continue;
        }
        device->events.plain[i].flags |= (uint8_t)(flags & 0x3f);
    }
}

/* One value per event. */
static int
read_event_column(ml_snapshot_tables *tables, ml_value value, ml_device_trace *device,
                  const ml_event_column *column)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_EVENT;
    const ml_array *list = ml_extras_list(tables, value, what, device->event_count);
    int error = 0;
    for (size_t i = 0; list != NULL && i < device->event_count && error == 0; i++) {
        error = ml_tables_column(tables, column, list->items[i], what,
                                 &device->events.plain[i]);
    }
    return error;
}

static void
read_block_bytes(ml_snapshot_tables *tables, ml_value value, ml_device_trace *device)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_EVENT;
    const ml_array *list = ml_extras_list(tables, value, what, device->event_count);
    for (size_t i = 0; list != NULL && i < device->event_count; i++) {
        ml_extras_read_count(tables, list->items[i], what,
                             &device->events.plain[i].block_bytes);
    }
}

static int
read_uses(ml_snapshot_tables *tables, ml_value value, ml_device_trace *device)
{
    static const ml_extras_table table = {
        ML_UNREAD_MEMLAB_USE, 2, 2, ML_WORD_COUNT, {ML_WORD_ADDR, ML_WORD_POSITION}};
    const ml_array *columns[2] = {NULL, NULL};
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB_USE);
    if (dict == NULL || device->uses != NULL ||
        !ml_extras_columns(tables, dict, &table, columns)) {
        return 0;
    }
    uint32_t count = columns[0]->count;
    size_t capacity = 0;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_use));
    for (uint32_t i = 0; i < count && error == 0; i++) {
        const enum ml_unread what = ML_UNREAD_MEMLAB_USE;
        ml_use use;
        if (ml_extras_read_bits(tables, columns[0]->items[i], what, &use.addr) &&
            ml_extras_read_count(tables, columns[1]->items[i], what, &use.position)) {
            error = ml_tables_taken(tables, what,
                                    ml_device_trace_add_use(device, &capacity, &use));
        }
    }
    return error;
}

/* Without any pool the flag means nothing: its first writer lost the pools. */
static void
forget_pools(ml_device_trace *device)
{
    for (size_t i = 0; i < device->event_count; i++) {
        device->events.plain[i].flags &= (uint8_t)~ML_EVENT_POOL_KNOWN;
    }
}

static int
read_device_field(ml_snapshot_tables *tables, unsigned word, ml_value item,
                  ml_device_trace *device)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_DEVICE;
    switch (word) {
    case ML_WORD_OVERWRITTEN_EVENTS:
        ml_extras_read_count(tables, item, what, &device->overwritten_events);
        return 0;
    case ML_WORD_DROPPED_EVENTS:
        ml_extras_read_count(tables, item, what, &device->dropped_events);
        return 0;
    case ML_WORD_LOST_STACKS:
        ml_extras_read_count(tables, item, what, &device->lost_stacks);
        return 0;
    case ML_WORD_LOST_NAMES:
        ml_extras_read_count(tables, item, what, &device->lost_names);
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
        read_block_bytes(tables, item, device);
        return 0;
    case ML_WORD_USES:
        return read_uses(tables, item, device);
    case ML_WORD_USES_SAMPLED:
        device->uses_sampled = item.bits != ML_VALUE_OF_FALSE.bits;
        if (!ml_value_is(item, ML_VALUE_BOOL)) {
            ml_snapshot_tables_lose(tables, what);
        }
        return 0;
    default:
        if (word < ML_EVENT_COLUMN_COUNT) {
            return read_event_column(tables, item, device, &ml_event_columns[word]);
        }
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
        return 0;
    }
}

int
ml_extras_read_devices(ml_snapshot_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    const ml_array *list =
        ml_extras_list(tables, value, ML_UNREAD_MEMLAB_DEVICE, recording->device_count);
    int error = 0;
    for (size_t i = 0; list != NULL && i < recording->device_count; i++) {
        const ml_array *dict =
            ml_extras_dict(tables, list->items[i], ML_UNREAD_MEMLAB_DEVICE);
        bool pools = (recording->keys & ML_KEY_POOL_ID) != 0;
        for (uint32_t k = 0; dict != NULL && error == 0 && k < dict->count; k += 2) {
            unsigned word = ml_snapshot_tables_word(tables, dict->items[k]);
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
