/* What sources of the tests' own have in common: one device, nothing to attach to, no one to
 * tell, an allocator's plainest rules, and a clock of nanoseconds. */
#ifndef ML_TEST_SOURCE_SAMPLES_H
#define ML_TEST_SOURCE_SAMPLES_H

#include "memlab.h"

static inline int
source_one_device(void *self)
{
    (void)self;
    return 1;
}

static inline int
source_attach(void *self)
{
    (void)self;
    return 0;
}

static inline void
source_enable(void *self, int enabled)
{
    (void)self;
    (void)enabled;
}

/* Of an ordered source, which has segments. */
static inline int
source_rules(void *self, int device, ml_allocator_rules *out)
{
    (void)self;
    (void)device;
    *out = (ml_allocator_rules){.max_split_bytes = UINT64_MAX, .has_segments = 1};
    return 0;
}

static inline int
source_unix_ns(void *self, uint64_t *ticks, size_t stride_bytes, size_t count)
{
    (void)self;
    (void)ticks;
    (void)stride_bytes;
    (void)count;
    return 0;
}

/* What begins the fields of such a source. */
#define SOURCE_SAMPLE \
    .size = sizeof(ml_source), .version = ML_ABI_VERSION, \
    .device_count = source_one_device, .attach = source_attach, \
    .enable = source_enable

#endif
