/* Makes a recording of the part of a followed .mlab file read so far.  See
 * follower.h. */
#include <string.h>

#include "analysis/follow/follower_parts.h"

/* ---- What is kept ---- */

static void *
copy_of(const void *items, size_t count, size_t size)
{
    void *copy = ml_alloc_zeroed(count + 1, size);
    if (copy != NULL && count > 0) {
        memcpy(copy, items, count * size);
    }
    return copy;
}

/* Copies everything but the events' indexes in tables. */
static int
copy_recording(const ml_recording *from, ml_recording *to)
{
    uint32_t id;
    for (size_t i = 1; i < from->string_count; i++) {
        int result = ml_recording_add_string(to, from->strings[i].bytes,
                                             from->strings[i].length, &id);
        if (result < 0) {
            return result;
        }
    }
    to->notes = copy_of(from->notes, from->note_count, sizeof(ml_note));
    to->note_count = to->notes != NULL ? from->note_count : 0;
    to->settings = copy_of(from->settings, from->setting_count, sizeof(ml_setting));
    to->setting_count = to->settings != NULL ? from->setting_count : 0;
    to->keys = from->keys;
    memcpy(to->unread, from->unread, sizeof(to->unread));
    to->source_known = from->source_known;
    memcpy(to->source, from->source, sizeof(to->source));
    to->devices = ml_alloc_zeroed(from->device_count + 1, sizeof(ml_device_trace));
    if (to->notes == NULL || to->settings == NULL || to->devices == NULL) {
        return ML_ENOMEM;
    }
    to->device_count = from->device_count;
    for (size_t d = 0; d < from->device_count; d++) {
        const ml_device_trace *trace = &from->devices[d];
        to->devices[d].events.plain =
            ml_events_copy(&trace->events, trace->event_count);
        if (to->devices[d].events.plain == NULL) {
            return ML_ENOMEM;
        }
        to->devices[d].event_count = trace->event_count;
    }
    return 0;
}

static int
copy_start(const mlab_start *from, mlab_start *to)
{
    *to = *from;
    to->segments = copy_of(from->segments, from->segment_count, sizeof(ml_segment));
    to->blocks = copy_of(from->blocks, from->block_count, sizeof(ml_block));
    return to->segments != NULL && to->blocks != NULL ? 0 : ML_ENOMEM;
}

/* Tags from the unread part would apply to the current blocks. */
static void
copy_tags(const ml_follower *live, mlab_reader *to)
{
    for (size_t i = 0; i < live->reader->tag_count; i++) {
        const mlab_tag *tag = &live->reader->tags[i];
        if (!to->ordered || tag->place <= live->lanes[tag->device].state.ordinal) {
            to->tags[to->tag_count++] = *tag;
        }
    }
}

static int
copy_reader(const ml_follower *live, mlab_reader *to)
{
    const mlab_reader *from = live->reader;
    to->ordered = from->ordered;
    to->trims = from->trims;
    to->trim = from->trim;
    memcpy(to->trim_lanes, from->trim_lanes, sizeof(to->trim_lanes));
    to->clocks = copy_of(from->clocks, from->clock_count, sizeof(ml_mlab_clock));
    to->clock_count = from->clock_count;
    to->names = copy_of(from->names, from->name_count, sizeof(mlab_name));
    to->name_count = from->name_count;
    to->tags = ml_alloc_zeroed(from->tag_count + 1, sizeof(mlab_tag));
    if (to->clocks == NULL || to->names == NULL || to->tags == NULL) {
        return ML_ENOMEM;
    }
    copy_tags(live, to);
    int result = ml_recording_new(&to->recording);
    if (result == 0) {
        result = copy_recording(from->recording, to->recording);
    }
    for (unsigned d = 0; d < ML_DEVICE_MAX && result == 0; d++) {
        to->places[d] =
            copy_of(from->places[d], from->place_count[d], sizeof(mlab_place));
        to->place_count[d] = from->place_count[d];
        to->place_capacity[d] = from->place_count[d];
        result = to->places[d] == NULL ? ML_ENOMEM
                                       : copy_start(&from->starts[d], &to->starts[d]);
    }
    return result;
}

static int
copy_info(const ml_follower *live, mlab_reader *to)
{
    *to->info = live->info;
    to->info->gaps =
        copy_of(live->info.gaps, live->info.gap_count, sizeof(ml_mlab_gap));
    to->gap_capacity = live->info.gap_count;
    return to->info->gaps != NULL ? 0 : ML_ENOMEM;
}

/* If all chunks were read, events that the file counts beyond the last chunk were not
 * stored. */
static int
count_missing(const ml_follower *live, mlab_reader *to)
{
    int result = 0;
    bool all = live->scanned + sizeof(ml_chunk) > live->input.bytes;
    for (unsigned i = 0; all && i <= ML_MLAB_LANES && result == 0; i++) {
        mlab_lane state = live->lanes[i].state;
        result = mlab_end_lane(to, &state, &live->header.lanes[i]);
    }
    return result;
}

/* ---- What made room ---- */

static int
add_frame(ml_recording *recording, ml_frame frame, uint32_t *id)
{
    *id = 0;
    return frame.name == 0 && frame.filename == 0
               ? 0
               : ml_recording_add_frame(recording, frame, id);
}

static int
put_prior_blocks(const follower_prior_blocks *from, ml_recording *recording,
                 ml_device_trace *trace)
{
    trace->prior_blocks = ml_alloc_zeroed(from->count + 1, sizeof(ml_prior_block));
    int result = trace->prior_blocks == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < from->count && result == 0; i++) {
        ml_prior_block *prior_block = &trace->prior_blocks[trace->prior_block_count++];
        *prior_block = from->items[i].prior_block;
        result = add_frame(recording, from->items[i].frame, &prior_block->cause.frame);
        if (result == 0) {
            result =
                add_frame(recording, from->items[i].until, &prior_block->cause.until);
        }
        if (result == 0) {
            result =
                add_frame(recording, from->items[i].model, &prior_block->cause.model);
        }
    }
    return result;
}

static int
put_past(const ml_follower *live, ml_recording *recording)
{
    int result = 0;
    for (size_t d = 0; d < recording->device_count && result == 0; d++) {
        ml_device_trace *trace = &recording->devices[d];
        const ml_totals *most = &live->peaks[d];
#define XX(name) \
    trace->peak.name = trace->peak.name < most->name ? most->name : trace->peak.name;
        ML_TOTALS(XX)
#undef XX
        if (live->prior_blocks[d].count > 0) {
            result = put_prior_blocks(&live->prior_blocks[d], recording, trace);
        }
    }
    return result;
}

int
follower_finish(ml_follower *live, mlab_reader **out, ml_mlab_info *info)
{
    mlab_reader *to = ml_alloc_zeroed(1, sizeof(*to));
    if (to == NULL) {
        return ML_ENOMEM;
    }
    *info = (ml_mlab_info){0};
    to->info = info;
    to->stacks = live->reader->stacks;
    int result = copy_reader(live, to);
    if (result == 0) {
        result = copy_info(live, to);
    }
    if (result == 0) {
        result = count_missing(live, to);
    }
    if (result == 0) {
        result = mlab_finish(to, &live->header);
    }
    if (result == 0) {
        result = put_past(live, to->recording);
    }
    if (result == 0) {
        result = follower_note_history(live, to->recording);
    }
    to->stacks = NULL;
    if (result < 0) {
        ml_mlab_info_fini(info);
        mlab_reader_free(to);
        return result;
    }
    *out = to;
    return 0;
}
