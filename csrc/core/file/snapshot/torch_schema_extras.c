/* The key "memlab" of a snapshot, which torch's readers ignore.  See
 * torch_schema_parts.h. */
#include "file/snapshot/torch_schema_parts.h"

#include <string.h>

#include "base/base.h"

static void
put_peak(ml_builder *to, const ml_totals *peak)
{
    to->word(to, ML_WORD_PEAK);
    to->open(to, ML_VALUE_DICT);
#define XX(name) \
    to->text(to, #name, strlen(#name)); \
    ml_put_bytes(to, peak->name);
    ML_TOTALS(XX)
#undef XX
    to->close(to);
}

static void
put_tags(ml_builder *to, const ml_device_trace *device)
{
    to->word(to, ML_WORD_TAGS);
    to->open(to, ML_VALUE_DICT);
    ml_put_list(to, ML_WORD_POSITION);
    for (size_t i = 0; i < device->tag_count; i++) {
        to->integer(to, (int64_t)device->tags[i].position);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_ADDR);
    for (size_t i = 0; i < device->tag_count; i++) {
        to->integer(to, (int64_t)device->tags[i].addr);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_CATEGORY);
    for (size_t i = 0; i < device->tag_count; i++) {
        to->word(to, ML_WORD_CATEGORIES + 0u + device->tags[i].category);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_NAME);
    for (size_t i = 0; i < device->tag_count; i++) {
        to->string(to, device->tags[i].name);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_MODULE);
    for (size_t i = 0; i < device->tag_count; i++) {
        to->string(to, device->tags[i].module);
    }
    to->close(to);
    to->close(to);
}

static void
put_uses(ml_builder *to, const ml_device_trace *device)
{
    if (device->use_count == 0) {
        return;
    }
    to->word(to, ML_WORD_USES);
    to->open(to, ML_VALUE_DICT);
    ml_put_list(to, ML_WORD_ADDR);
    for (size_t i = 0; i < device->use_count; i++) {
        to->integer(to, (int64_t)device->uses[i].addr);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_POSITION);
    for (size_t i = 0; i < device->use_count; i++) {
        to->integer(to, (int64_t)device->uses[i].position);
    }
    to->close(to);
    to->close(to);
}

/* One printable character an event, 0x40 plus its flags: a column of one byte each. */
static void
put_flags(ml_builder *to, const ml_device_trace *device)
{
    char *column = ml_alloc(device->event_count);
    if (column == NULL) {
        to->error = to->error != 0 ? to->error : ML_ENOMEM;
        return;
    }
    for (size_t i = 0; i < device->event_count; i++) {
        column[i] = (char)(0x40 | (ml_events_flags(&device->events, i) & 0x3f));
    }
    to->word(to, ML_WORD_FLAGS);
    to->text(to, column, device->event_count);
    ml_free(column);
}

static void
put_block_bytes(ml_builder *to, const ml_device_trace *device)
{
    ml_put_list(to, ML_WORD_BLOCK_BYTES);
    for (size_t i = 0; i < device->event_count; i++) {
        ml_put_bytes(to, ml_events_block_bytes(&device->events, i));
    }
    to->close(to);
}

/* Left out if every event has 0, as in a recording without autograd. */
static void
put_column(ml_builder *to, const ml_device_trace *device, const ml_event_column *column)
{
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &device->events, ML_EVENT_ALL);
    size_t first = 0;
    while (first < device->event_count &&
           ml_event_column_get(column, ml_event_cursor_at(&cursor, first)) == 0) {
        first++;
    }
    if (first == device->event_count) {
        return;
    }
    ml_put_list(to, column->word);
    for (size_t i = 0; i < device->event_count; i++) {
        ml_put_column(to, column, ml_event_cursor_at(&cursor, i));
    }
    to->close(to);
}

static bool
any_module(const ml_recording *recording, uint32_t stack)
{
    while (stack != 0 && recording->stacks[stack].module == 0) {
        stack = recording->stacks[stack].parent;
    }
    return stack != 0;
}

/* Lists of frames written above, each with its frames' modules by index: torch's
 * dictionary has no room for them. */
static void
put_modules(ml_builder *to, const ml_recording *recording)
{
    size_t named = 0;
    while (named < recording->stack_count && recording->stacks[named].module == 0) {
        named++;
    }
    if (named == recording->stack_count) {
        return;
    }
    ml_put_list(to, ML_WORD_MODULES);
    for (size_t i = named; i < recording->stack_count && to->error == 0; i++) {
        uint32_t stack = (uint32_t)i;
        if (!any_module(recording, stack) || !to->recall(to, ML_SHARED_FRAMES, stack)) {
            continue;
        }
        to->open(to, ML_VALUE_DICT);
        for (int64_t place = 0; stack != 0; place++) {
            if (recording->stacks[stack].module != 0) {
                to->integer(to, place);
                to->string(to, recording->stacks[stack].module);
            }
            stack = recording->stacks[stack].parent;
        }
        to->close(to);
    }
    to->close(to);
}

#define PUT_NOTE_COLUMN(to, recording, key, put) \
    ml_put_list(to, key); \
    for (size_t i_ = 0; i_ < (recording)->note_count; i_++) { \
        const ml_note *note = &(recording)->notes[i_]; \
        put; \
    } \
    (to)->close(to)

static void
put_notes(ml_builder *to, const ml_recording *recording)
{
    if (recording->note_count == 0 && recording->lost_notes == 0) {
        return;
    }
    to->word(to, ML_WORD_NOTES);
    to->open(to, ML_VALUE_DICT);
    ml_put_number(to, ML_WORD_LOST, recording->lost_notes);
    PUT_NOTE_COLUMN(to, recording, ML_WORD_TIME, to->integer(to, (int64_t)note->time));
    PUT_NOTE_COLUMN(
        to, recording, ML_WORD_KIND,
        to->text(to, ml_note_text(note->kind), strlen(ml_note_text(note->kind))));
    PUT_NOTE_COLUMN(to, recording, ML_WORD_NAME, to->string(to, note->name));
    PUT_NOTE_COLUMN(to, recording, ML_WORD_DEVICE, to->integer(to, note->device));
    PUT_NOTE_COLUMN(to, recording, ML_WORD_THREAD, to->integer(to, note->thread));
    PUT_NOTE_COLUMN(to, recording, ML_WORD_VALUES, {
        for (unsigned k = 0; k < ML_NOTE_VALUES; k++) {
            to->integer(to, (int64_t)note->values[k]);
        }
    });
    to->close(to);
}

#undef PUT_NOTE_COLUMN

#define PUT_CODE_COLUMN(to, recording, key, put) \
    ml_put_list(to, key); \
    for (size_t i_ = 0; i_ < (recording)->code_line_count; i_++) { \
        const ml_code_line *line = &(recording)->code_lines[i_]; \
        put; \
    } \
    (to)->close(to)

static void
put_code(ml_builder *to, const ml_recording *recording)
{
    if (recording->code_line_count == 0) {
        return;
    }
    to->word(to, ML_WORD_CODE);
    to->open(to, ML_VALUE_DICT);
    PUT_CODE_COLUMN(to, recording, ML_WORD_FILE, to->string(to, line->filename));
    PUT_CODE_COLUMN(to, recording, ML_WORD_FUNCTION, to->string(to, line->name));
    PUT_CODE_COLUMN(to, recording, ML_WORD_LINE, to->integer(to, line->line));
    PUT_CODE_COLUMN(to, recording, ML_WORD_TEXT, to->string(to, line->text));
    PUT_CODE_COLUMN(to, recording, ML_WORD_QUALNAME, to->string(to, line->qualname));
    PUT_CODE_COLUMN(to, recording, ML_WORD_FIRST_LINE,
                    to->integer(to, line->first_line));
    PUT_CODE_COLUMN(to, recording, ML_WORD_LAST_LINE, to->integer(to, line->last_line));
    PUT_CODE_COLUMN(to, recording, ML_WORD_CHANGED_US,
                    to->integer(to, line->changed_us));
    PUT_CODE_COLUMN(to, recording, ML_WORD_FORWARD, to->integer(to, line->forward));
    to->close(to);
}

#undef PUT_CODE_COLUMN

static void
put_c_text(ml_builder *to, enum ml_word key, const char *text)
{
    to->word(to, key);
    to->text(to, text, strlen(text));
}

static void
put_string(ml_builder *to, enum ml_word key, uint32_t string)
{
    to->word(to, key);
    to->string(to, string);
}

/* For a rank of a merged recording: what the whole has only once. */
static void
put_part(ml_builder *to, const ml_recording *recording, const ml_rank *rank)
{
    const ml_allocator_rules *rules = &rank->part->rules;
    put_string(to, ML_WORD_FILE, rank->file);
    put_c_text(to, ML_WORD_ALIGNMENT, ml_alignment_text(rank->alignment));
    ml_put_number(to, ML_WORD_OFFSET_NS, (uint64_t)rank->offset);
    ml_put_number(to, ML_WORD_BOUND_NS, rank->bound);
    ml_put_number(to, ML_WORD_COMMON_STEPS, rank->common_steps);
    ml_put_list(to, ML_WORD_NUMBERS);
    for (size_t i = 0; i < rank->device_count; i++) {
        to->integer(to, recording->devices[rank->first_device + i].number);
    }
    to->close(to);
    ml_put_list(to, ML_WORD_RULES);
    to->integer(to, rules->has_segments != 0);
    to->integer(to, rules->expandable_segments != 0);
    to->integer(to, (int64_t)rules->max_split_bytes);
    for (unsigned i = 0; i < 16; i++) {
        to->integer(to, rules->roundup_divisions[i]);
    }
    to->close(to);
    put_notes(to, rank->part);
}

static void
put_ranks(ml_builder *to, const ml_recording *recording)
{
    if (recording->rank_count == 0) {
        return;
    }
    ml_put_list(to, ML_WORD_RANKS);
    for (size_t i = 0; i < recording->rank_count; i++) {
        const ml_rank *rank = &recording->ranks[i];
        to->open(to, ML_VALUE_DICT);
        ml_put_number(to, ML_WORD_RANK, (uint64_t)(int64_t)rank->rank);
        ml_put_number(to, ML_WORD_LOCAL_RANK, (uint64_t)(int64_t)rank->local_rank);
        ml_put_number(to, ML_WORD_WORLD_SIZE, rank->world_size);
        put_string(to, ML_WORD_HOST, rank->host);
        put_string(to, ML_WORD_BOOT_ID, rank->boot);
        ml_put_number(to, ML_WORD_PID, rank->pid);
        put_c_text(to, ML_WORD_STATE, ml_rank_state_text(rank->state));
        ml_put_number(to, ML_WORD_ANCHOR_UNIX_NS, rank->anchor_time);
        ml_put_number(to, ML_WORD_ANCHOR_BOOT_NS, rank->anchor_boot);
        if (rank->part != NULL) {
            put_part(to, recording, rank);
        }
        to->close(to);
    }
    to->close(to);
}

static void
put_unread(ml_builder *to, const ml_recording *recording)
{
    bool any = false;
    for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
        if (recording->unread[kind] == 0) {
            continue;
        }
        if (!any) {
            to->word(to, ML_WORD_UNREAD);
            to->open(to, ML_VALUE_DICT);
            any = true;
        }
        to->text(to, ml_unread_text(kind), strlen(ml_unread_text(kind)));
        to->integer(to, (int64_t)recording->unread[kind]);
    }
    if (any) {
        to->close(to);
    }
}

void
ml_put_extras(ml_builder *to, const ml_recording *recording)
{
    to->word(to, ML_WORD_MEMLAB);
    to->open(to, ML_VALUE_DICT);
    ml_put_number(to, ML_WORD_VERSION, 1);
    to->word(to, ML_WORD_SOURCE);
    to->text(to, recording->source,
             recording->source_known ? strlen(recording->source) : 0);
    ml_put_bool(to, ML_WORD_HAS_SEGMENTS, recording->rules.has_segments != 0);
    ml_put_list(to, ML_WORD_DEVICES);
    for (size_t i = 0; i < recording->device_count; i++) {
        const ml_device_trace *device = &recording->devices[i];
        to->open(to, ML_VALUE_DICT);
        ml_put_number(to, ML_WORD_OVERWRITTEN_EVENTS, device->overwritten_events);
        ml_put_number(to, ML_WORD_DROPPED_EVENTS, device->dropped_events);
        ml_put_number(to, ML_WORD_LOST_STACKS, device->lost_stacks);
        ml_put_number(to, ML_WORD_LOST_NAMES, device->lost_names);
        put_peak(to, &device->peak);
        put_tags(to, device);
        put_flags(to, device);
        put_block_bytes(to, device);
        for (unsigned k = 0; k < ML_EVENT_COLUMN_COUNT; k++) {
            if ((recording->keys & ml_event_columns[k].key) == 0) {
                put_column(to, device, &ml_event_columns[k]);
            }
        }
        put_uses(to, device);
        if (device->uses_sampled) {
            ml_put_bool(to, ML_WORD_USES_SAMPLED, true);
        }
        to->close(to);
    }
    to->close(to);
    put_modules(to, recording);
    put_notes(to, recording);
    put_code(to, recording);
    put_ranks(to, recording);
    put_unread(to, recording);
    to->close(to);
}
