/* Files built by hand, read: one at a time. */
#ifndef ML_TEST_MLAB_READS_H
#define ML_TEST_MLAB_READS_H

#include "file/mlab/mlab_reader.h"
#include "mlab_samples.h"

static sample file;
static ml_recording *recording;
static ml_mlab_info info;
static ml_read_error failure;

static inline void
forget(void)
{
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    recording = NULL;
}

static inline int
read_sample(sample *of)
{
    forget();
    failure = (ml_read_error){0};
    ml_mlab_input input = {.context = of, .bytes = of->length, .read = read_bytes};
    return ml_mlab_read(&input, &recording, &info, &failure);
}

static inline size_t
events_of(size_t device)
{
    return device < recording->device_count ? recording->devices[device].event_count
                                            : 0;
}

#endif
