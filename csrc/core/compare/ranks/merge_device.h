/* A device in a merged recording: a copy, whose ids are those of the whole. */
#ifndef ML_MERGE_DEVICE_H
#define ML_MERGE_DEVICE_H

#include "recording/recording.h"

/* The ids of one recording in the merged one, by its own ids. */
typedef struct ml_merge_ids {
    uint32_t *string_of;
    uint32_t *frame_of;
    uint32_t *stack_of;
} ml_merge_ids;

/* A copy of COUNT items of SIZE bytes; NULL for none.  0 or ML_ENOMEM. */
int ml_merge_copy_column(const void *from, size_t count, size_t size, void **to);
/* Copies FROM into TO, which keeps its number.  0 or ML_ENOMEM; TO owns in any case what
 * was copied. */
int ml_merge_copy_device(const ml_merge_ids *ids, const ml_device_trace *from,
                         ml_device_trace *to);

#endif
