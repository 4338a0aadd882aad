/* Reads the ranks of the key "memlab". */
#include "file/snapshot/snapshot_extras_parts.h"

/* The index of VALUE among the COUNT texts of TEXT_OF; 0: not found. */
static uint8_t
read_choice(ml_snapshot_tables *tables, ml_value value,
            const char *(*text_of)(unsigned), unsigned count)
{
    unsigned choice = ml_extras_choice(value, text_of, count);
    if (choice == count) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
        return 0;
    }
    return (uint8_t)choice;
}

/* RANK's part, made if needed. */
static int
need_part(ml_snapshot_tables *tables, ml_rank *rank)
{
    int error = 0;
    if (rank->part == NULL) {
        error = ml_tree_charge(tables->tree, sizeof(ml_recording));
        rank->part = error == 0 ? ml_alloc_zeroed(1, sizeof(ml_recording)) : NULL;
        error = error == 0 && rank->part == NULL ? ML_ENOMEM : error;
    }
    return error;
}

/* RANK's devices, by their numbers in its process, after those of earlier ranks.
 * *BROKEN: the devices are unknown. */
static int
read_numbers(ml_snapshot_tables *tables, ml_value value, ml_rank *rank, bool *broken)
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
        ml_extras_read_small(tables, list->items[i], ML_UNREAD_MEMLAB_RANK, UINT32_MAX,
                             &device->number);
    }
    rank->device_count = list->count;
    return 0;
}

enum {
    RULE_COUNT = 19
};

static int
read_rules(ml_snapshot_tables *tables, ml_value value, ml_rank *rank)
{
    int error = need_part(tables, rank);
    const ml_array *list =
        ml_extras_list(tables, value, ML_UNREAD_MEMLAB_RANK, RULE_COUNT);
    if (error != 0 || list == NULL) {
        return error;
    }
    ml_allocator_rules *rules = &rank->part->rules;
    uint64_t numbers[RULE_COUNT] = {1, 0, UINT64_MAX};
    for (uint32_t i = 0; i < RULE_COUNT; i++) {
        ml_extras_read_bits(tables, list->items[i], ML_UNREAD_MEMLAB_RANK, &numbers[i]);
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
read_rank_field(ml_snapshot_tables *tables, unsigned word, ml_value item, ml_rank *rank,
                bool *broken)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_RANK;
    uint64_t offset = 0;
    int error;
    switch (word) {
    case ML_WORD_RANK:
        ml_extras_read_number(tables, item, what, &rank->rank);
        return 0;
    case ML_WORD_LOCAL_RANK:
        ml_extras_read_number(tables, item, what, &rank->local_rank);
        return 0;
    case ML_WORD_WORLD_SIZE:
        ml_extras_read_small(tables, item, what, ML_WORLD_MAX, &rank->world_size);
        return 0;
    case ML_WORD_FILE:
        return ml_snapshot_tables_string(tables, item, what, &rank->file);
    case ML_WORD_HOST:
        return ml_snapshot_tables_string(tables, item, what, &rank->host);
    case ML_WORD_BOOT_ID:
        return ml_snapshot_tables_string(tables, item, what, &rank->boot);
    case ML_WORD_PID:
        ml_extras_read_bits(tables, item, what, &rank->pid);
        return 0;
    case ML_WORD_STATE:
        rank->state =
            read_choice(tables, item, ml_rank_state_text, ML_RANK_STATE_COUNT);
        return 0;
    case ML_WORD_ANCHOR_UNIX_NS:
        ml_extras_read_bits(tables, item, what, &rank->anchor_time);
        return 0;
    case ML_WORD_ANCHOR_BOOT_NS:
        ml_extras_read_bits(tables, item, what, &rank->anchor_boot);
        return 0;
    case ML_WORD_ALIGNMENT:
        rank->alignment =
            read_choice(tables, item, ml_alignment_text, ML_ALIGNMENT_COUNT);
        return 0;
    case ML_WORD_OFFSET_NS:
        ml_extras_read_bits(tables, item, what, &offset);
        rank->offset = (int64_t)offset;
        return 0;
    case ML_WORD_BOUND_NS:
        rank->bound = ML_NOTE_UNKNOWN;
        ml_extras_read_bits(tables, item, what, &rank->bound);
        return 0;
    case ML_WORD_COMMON_STEPS:
        ml_extras_read_small(tables, item, what, UINT32_MAX, &rank->common_steps);
        return 0;
    case ML_WORD_NUMBERS:
        return read_numbers(tables, item, rank, broken);
    case ML_WORD_RULES:
        return read_rules(tables, item, rank);
    case ML_WORD_NOTES:
        error = need_part(tables, rank);
        return error != 0 ? error : ml_extras_read_notes(tables, item, rank->part);
    default:
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
        return 0;
    }
}

/* Whether the ranks divide the devices, as in a merged recording, or are at most one
 * process. */
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

int
ml_extras_read_ranks(ml_snapshot_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    if (!ml_value_is(value, ML_VALUE_LIST) || recording->ranks != NULL ||
        ml_value_as_array(value)->count > ML_RECORDING_DEVICES_MAX) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
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
            error =
                read_rank_field(tables, ml_snapshot_tables_word(tables, dict->items[k]),
                                dict->items[k + 1], rank, &broken);
        }
        next += rank->device_count;
    }
    /* If the devices' ranks are unknown, the devices belong to no rank. */
    if (error == 0 && (broken || !ranks_fit(recording))) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_RANK);
        ml_recording_drop_ranks(recording);
    }
    return error;
}
