/* Copies a device for a merged recording.  See merge_device.h. */
#include "compare/ranks/merge_device.h"

#include <string.h>

#include "analysis/attribution/prior_blocks.h"
#include "base/base.h"

int
ml_merge_copy_column(const void *from, size_t count, size_t size, void **to)
{
    if (count == 0) {
        return 0;
    }
    *to = ml_alloc(count * size); /* no product that the original did not have */
    if (*to == NULL) {
        return ML_ENOMEM;
    }
    memcpy(*to, from, count * size);
    return 0;
}

static int
copy_columns(const ml_device_trace *from, ml_device_trace *to)
{
    void *segments = NULL, *blocks = NULL, *tags = NULL;
    void *prior_blocks = NULL, *uses = NULL;
    ml_event *events = ml_events_copy(&from->events, from->event_count);
    int result = events == NULL ? ML_ENOMEM : 0;
    if (result == 0) {
        result = ml_merge_copy_column(from->segments, from->segment_count,
                                      sizeof(ml_segment), &segments);
    }
    if (result == 0) {
        result = ml_merge_copy_column(from->blocks, from->block_count, sizeof(ml_block),
                                      &blocks);
    }
    if (result == 0) {
        result =
            ml_merge_copy_column(from->tags, from->tag_count, sizeof(ml_tag), &tags);
    }
    if (result == 0) {
        result = ml_merge_copy_column(from->prior_blocks, from->prior_block_count,
                                      sizeof(ml_prior_block), &prior_blocks);
    }
    if (result == 0) {
        result =
            ml_merge_copy_column(from->uses, from->use_count, sizeof(ml_use), &uses);
    }
    uint32_t number = to->number;
    *to = *from;
    to->number = number;
    to->events = (ml_events){.plain = events};
    to->segments = segments;
    to->blocks = blocks;
    to->tags = tags;
    to->prior_blocks = prior_blocks;
    to->uses = uses;
    return result;
}

/* The ids of a copied device become those of the whole. */
static void
translate_ids(const ml_merge_ids *ids, ml_device_trace *to)
{
    for (size_t i = 0; i < to->event_count; i++) {
        ml_event *event = &to->events.plain[i];
        event->stack = ids->stack_of[event->stack];
        event->origin_stack = ids->stack_of[event->origin_stack];
        event->node = ids->string_of[event->node];
#define XX(member) event->member = ids->string_of[event->member];
        ML_EVENT_TEXTS(XX)
#undef XX
        uint32_t forward = ml_event_forward(event);
        event->other = forward != 0 ? ids->string_of[forward] : event->other;
    }
    for (size_t i = 0; i < to->segment_count; i++) {
        to->segments[i].stack = ids->stack_of[to->segments[i].stack];
    }
    for (size_t i = 0; i < to->block_count; i++) {
        to->blocks[i].stack = ids->stack_of[to->blocks[i].stack];
    }
    for (size_t i = 0; i < to->tag_count; i++) {
        to->tags[i].name = ids->string_of[to->tags[i].name];
        to->tags[i].module = ids->string_of[to->tags[i].module];
    }
    for (size_t i = 0; i < to->prior_block_count; i++) {
        ml_cause *cause = &to->prior_blocks[i].cause;
        cause->stack = 0; /* it is the block's */
        cause->frame = ids->frame_of[cause->frame];
        cause->until = ids->frame_of[cause->until];
        cause->model = ids->frame_of[cause->model];
        cause->module = ids->string_of[cause->module];
    }
}

int
ml_merge_copy_device(const ml_merge_ids *ids, const ml_device_trace *from,
                     ml_device_trace *to)
{
    int result = copy_columns(from, to);
    if (result == 0) {
        translate_ids(ids, to);
    }
    return result;
}
