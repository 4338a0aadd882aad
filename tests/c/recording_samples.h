/* What the tests of analyses share: short ways to put strings and stacks into a recording. */
#ifndef ML_RECORDING_SAMPLES_H
#define ML_RECORDING_SAMPLES_H

#include <string.h>

#include "recording.h"

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

#endif
