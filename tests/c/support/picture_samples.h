/* What the tests of pictures share: a segment with blocks by hand, what a document has, and
 * a writer that meets every failure of memory. */
#ifndef ML_PICTURE_SAMPLES_H
#define ML_PICTURE_SAMPLES_H

#include <string.h>

#include "budget.h"
#include "recording_samples.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define BASE UINT64_C(0x7f0000000000)

/* A segment at ADDR without blocks, behind those there are. */
static inline ml_segment *
sample_segment(sample *s, uint64_t addr, uint64_t stream)
{
    ml_recording_detach(s->recording);
    ml_segment *segment = &s->segments[s->device.segment_count++];
    *segment = (ml_segment){
        .addr = addr, .stream = stream, .first_block = s->device.block_count};
    return segment;
}

/* The next block of the last segment, which grows by it. */
static inline void
sample_block(sample *s, uint64_t size, uint64_t requested, enum ml_block_state state,
             uint32_t stack)
{
    ml_recording_detach(s->recording);
    ml_segment *segment = &s->segments[s->device.segment_count - 1];
    s->blocks[s->device.block_count++] =
        (ml_block){.addr = segment->addr + segment->total,
                   .size = size,
                   .requested = requested,
                   .stack = stack,
                   .state = (uint8_t)state};
    segment->total += size;
    segment->block_count++;
    segment->allocated += state == ML_BLOCK_ALLOCATED ? size : 0;
    segment->active += state != ML_BLOCK_INACTIVE ? size : 0;
    segment->requested += state != ML_BLOCK_INACTIVE ? requested : 0;
}

/* How often PART is in TEXT. */
static inline int
count_of(const char *text, const char *part)
{
    int count = 0;
    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        count++;
    }
    return count;
}

#define CHECK_HAS(text, part) \
    do { \
        if (strstr((text), (part)) == NULL) { \
            CHECK_FAIL("no \"%s\" in \"%s\"", (part), (text)); \
        } \
    } while (0)

typedef int (*sample_writer)(const ml_recording *recording, ml_buffer *out);

/* What WRITE writes, as a C string to be freed; NULL on failure. */
static inline char *
sample_document(const sample *s, sample_writer write)
{
    ml_buffer out = {0};
    int code = ml_recording_validate(s->recording);
    code = code != 0 ? code : write(s->recording, &out);
    ml_buffer_append(&out, "", 1);
    if (code != 0 || out.error != 0) {
        ml_buffer_fini(&out);
        return NULL;
    }
    return out.bytes;
}

/* How many allocations WRITE makes, each of which has failed in turn; 0 where one that
 * failed left anything or another error. */
static inline long
sample_failures(const sample *s, sample_writer write)
{
    int code = ML_ENOMEM;
    long tries = 0;
    for (; code == ML_ENOMEM && tries < 2000; tries++) {
        ml_buffer out = {0};
        budget_begin(tries);
        code = write(s->recording, &out);
        ml_buffer_fini(&out);
        ml_recording_detach(s->recording);
        budget_end();
        if (budget_alive != 0) {
            return 0;
        }
    }
    return code == 0 ? tries : 0;
}

/* 2 MiB from the first event on, half of them a block's after 1 of 4 ms. */
static inline void
half_a_segment(sample *f)
{
    sample_begin(f);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, MIB, 0);
    sample_tag(f, BASE, ML_CATEGORY_OPTIMIZER_STATE);
    for (int i = 0; i < 3; i++) {
        sample_event(f, ML_ACTION_SNAPSHOT, 0, 0, 0);
    }
}

#endif
