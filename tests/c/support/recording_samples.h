/* What the tests of analyses share: recordings put together by hand, and short ways to
 * strings and stacks. */
#ifndef ML_RECORDING_SAMPLES_H
#define ML_RECORDING_SAMPLES_H

#include <string.h>

#include "recording/recording.h"

static inline uint32_t
sample_string(ml_recording *recording, const char *text)
{
    uint32_t id = 0;
    ml_recording_add_string(recording, text, strlen(text), &id);
    return id;
}

/* One frame further in than the stack CALLER, the call of MODULE (NULL: of none); a frame
 * and strings of its own each time. */
static inline uint32_t
sample_call(ml_recording *recording, uint32_t caller, const char *file, int64_t line,
            const char *name, const char *module)
{
    ml_frame frame = {.name = sample_string(recording, name),
                      .filename = sample_string(recording, file),
                      .line = line};
    ml_stack stack = {.parent = caller,
                      .module = module == NULL ? 0 : sample_string(recording, module)};
    uint32_t id = 0;
    ml_recording_add_frame(recording, frame, &stack.frame);
    ml_recording_add_stack(recording, stack, &id);
    return id;
}

/* A recording of one device, to which a test adds what it worked out: all of it is empty at
 * first, and has room.  Segments are known, as torch's are. */
typedef struct sample {
    ml_recording *recording;
    ml_device_trace device;
    ml_event events[256];
    ml_tag tags[256];
    ml_note notes[32];
    ml_segment segments[64];
    ml_block blocks[64];
} sample;

static inline void
sample_begin(sample *s)
{
    memset(s, 0, sizeof(*s));
    ml_recording_new(&s->recording);
    s->recording->rules.max_split_bytes = UINT64_MAX;
    s->recording->rules.has_segments = 1;
    s->recording->devices = &s->device;
    s->recording->device_count = 1;
    s->recording->notes = s->notes;
    s->device.events.plain = s->events;
    s->device.tags = s->tags;
    s->device.segments = s->segments;
    s->device.blocks = s->blocks;
}

static inline void
sample_end(sample *s)
{
    ml_recording_detach(s->recording);
    s->recording->devices = NULL;
    s->recording->device_count = 0;
    s->recording->notes = NULL;
    s->recording->note_count = 0;
    ml_recording_free(s->recording);
}

/* An event a millisecond. */
#define SAMPLE_TIME(s) (UINT64_C(1000000) * (s)->device.event_count)

static inline ml_event *
sample_event(sample *s, enum ml_action action, uint64_t addr, uint64_t size,
             uint32_t stack)
{
    ml_recording_detach(s->recording);
    ml_event *event = &s->events[s->device.event_count++];
    *event = (ml_event){.addr = addr,
                        .size = size,
                        .time = SAMPLE_TIME(s),
                        .stack = stack,
                        .action = (uint8_t)action};
    return event;
}

/* At this position the block that holds ADDR is of CATEGORY. */
static inline void
sample_tag(sample *s, uint64_t addr, enum ml_category category)
{
    ml_recording_detach(s->recording);
    s->tags[s->device.tag_count++] = (ml_tag){
        .addr = addr, .position = s->device.event_count, .category = (uint8_t)category};
}

#endif
