/* Checks what a recording promises.  See recording.h. */
#include "recording/recording.h"

#include <string.h>

static bool
notes_hold(const ml_recording *recording, const ml_note *notes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ml_note *note = &notes[i];
        if (note->name >= recording->string_count || note->kind >= ML_NOTE_COUNT ||
            (i > 0 && note->time < note[-1].time)) {
            return false;
        }
    }
    return true;
}

/* An unmerged recording has at most one rank, and no parts. */
static bool
ranks_hold(const ml_recording *recording)
{
    bool merged = ml_recording_is_merged(recording);
    size_t next = 0;
    for (size_t i = 0; i < recording->rank_count; i++) {
        const ml_rank *rank = &recording->ranks[i];
        if (rank->file >= recording->string_count ||
            rank->host >= recording->string_count ||
            rank->boot >= recording->string_count || rank->rank < -1 ||
            rank->alignment >= ML_ALIGNMENT_COUNT ||
            rank->state >= ML_RANK_STATE_COUNT || (rank->part != NULL) != merged ||
            (merged &&
             (rank->first_device != next ||
              rank->device_count > recording->device_count - next ||
              !notes_hold(recording, rank->part->notes, rank->part->note_count)))) {
            return false;
        }
        next += rank->device_count;
    }
    return merged ? next == recording->device_count && recording->note_count == 0
                  : recording->rank_count <= 1;
}

static bool
tables_hold(const ml_recording *recording)
{
    if (recording->string_count == 0 || recording->strings[0].length != 0 ||
        recording->frame_count == 0 || recording->stack_count == 0 ||
        recording->stacks[0].parent != 0 || recording->stacks[0].frame != 0 ||
        recording->stacks[0].module != 0 ||
        memchr(recording->source, '\0', sizeof(recording->source)) == NULL) {
        return false;
    }
    for (size_t i = 0; i < recording->frame_count; i++) {
        const ml_frame *frame = &recording->frames[i];
        if (frame->name >= recording->string_count ||
            frame->filename >= recording->string_count) {
            return false;
        }
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        if (stack->parent >= i || stack->frame >= recording->frame_count ||
            stack->module >= recording->string_count) {
            return false;
        }
    }
    for (size_t i = 0; i < recording->annotation_count; i++) {
        const ml_annotation *annotation = &recording->annotations[i];
        if (annotation->name >= recording->string_count || annotation->end > 1) {
            return false;
        }
    }
    for (size_t i = 0; i < recording->code_line_count; i++) {
        const ml_code_line *line = &recording->code_lines[i];
        if (line->filename >= recording->string_count ||
            line->name >= recording->string_count ||
            line->text >= recording->string_count ||
            line->qualname >= recording->string_count || line->line <= 0) {
            return false;
        }
    }
    if (!notes_hold(recording, recording->notes, recording->note_count) ||
        !ranks_hold(recording)) {
        return false;
    }
    for (size_t i = 0; i < recording->setting_count; i++) {
        const ml_setting *setting = &recording->settings[i];
        if (setting->key >= recording->string_count ||
            setting->text >= recording->string_count || setting->kind == '\0' ||
            strchr("bifsd", setting->kind) == NULL) {
            return false;
        }
    }
    return true;
}

static bool
is_below(const ml_device_trace *device, unsigned member, uint64_t limit)
{
    for (size_t i = 0; i < device->event_count; i += ML_EVENTS_CHUNK) {
        if (ml_events_most(&device->events, device->event_count, i, member) >= limit) {
            return false;
        }
    }
    return true;
}

static bool
forwards_hold(const ml_recording *recording, const ml_device_trace *device)
{
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &device->events,
                         ML_EVENT_BIT(other) | ML_EVENT_BIT(action));
    for (size_t i = 0; i < device->event_count; i++) {
        if (i % ML_EVENTS_CHUNK == 0 &&
            ml_events_most(&device->events, device->event_count, i,
                           ML_EVENT_MEMBER_other) < recording->string_count) {
            i += ML_EVENTS_CHUNK - 1;
        }
        else if (ml_event_forward(ml_event_cursor_at(&cursor, i)) >=
                 recording->string_count) {
            return false;
        }
    }
    return true;
}

static bool
events_hold(const ml_recording *recording, const ml_device_trace *device)
{
    if (!is_below(device, ML_EVENT_MEMBER_stack, recording->stack_count) ||
        !is_below(device, ML_EVENT_MEMBER_origin_stack, recording->stack_count) ||
        !is_below(device, ML_EVENT_MEMBER_node, recording->string_count) ||
        !forwards_hold(recording, device) ||
        !is_below(device, ML_EVENT_MEMBER_action, ML_ACTION_COUNT)) {
        return false;
    }
#define XX(member) \
    if (!is_below(device, ML_EVENT_MEMBER_##member, recording->string_count)) { \
        return false; \
    }
    ML_EVENT_TEXTS(XX)
#undef XX
    uint64_t position = 0;
    for (size_t i = 0; i < device->tag_count; i++) {
        const ml_tag *tag = &device->tags[i];
        if (tag->position < position || tag->position > device->event_count ||
            tag->name >= recording->string_count ||
            tag->module >= recording->string_count ||
            tag->category > ML_CATEGORY_TAG_LAST) {
            return false;
        }
        position = tag->position;
    }
    for (size_t i = 0; i < device->use_count; i++) {
        if (device->uses[i].position > device->event_count ||
            (i != 0 && device->uses[i].addr <= device->uses[i - 1].addr)) {
            return false;
        }
    }
    return true;
}

static bool
memory_holds(const ml_recording *recording, const ml_device_trace *device)
{
    size_t next_block = 0;
    for (size_t i = 0; i < device->segment_count; i++) {
        const ml_segment *segment = &device->segments[i];
        if (segment->stack >= recording->stack_count ||
            segment->total > UINT64_MAX - segment->addr ||
            (i != 0 && segment->addr <= device->segments[i - 1].addr) ||
            segment->first_block != next_block ||
            segment->block_count > device->block_count - next_block) {
            return false;
        }
        uint64_t end = segment->addr + segment->total;
        uint64_t low = segment->addr;
        for (size_t b = 0; b < segment->block_count; b++) {
            const ml_block *block = &device->blocks[next_block + b];
            if (block->addr < low || block->addr > end ||
                block->size > end - block->addr ||
                block->stack >= recording->stack_count ||
                block->state > ML_BLOCK_PENDING_FREE) {
                return false;
            }
            low = block->addr + block->size;
        }
        next_block += segment->block_count;
    }
    return next_block == device->block_count;
}

int
ml_recording_validate(const ml_recording *recording)
{
    if (!tables_hold(recording)) {
        return ML_EFORMAT;
    }
    for (size_t i = 0; i < recording->device_count; i++) {
        const ml_device_trace *device = &recording->devices[i];
        if (!events_hold(recording, device) || !memory_holds(recording, device)) {
            return ML_EFORMAT;
        }
    }
    return 0;
}
