/* The strings, frames and stacks of a recording under construction, each once. */
#ifndef ML_INTERNER_H
#define ML_INTERNER_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_interner {
    ml_recording *recording; /* borrowed */
    ml_intern strings;       /* ids are indices into the recording's columns */
    ml_intern frames;
    ml_intern stacks;
} ml_interner;

/* Enters the strings of RECORDING, so that ids of table and column agree.  0 or
 * ML_ENOMEM, after which only _fini may follow, here and below. */
int ml_interner_init(ml_interner *interner, ml_recording *recording);
void ml_interner_fini(ml_interner *interner);
/* Enters its frames and stacks; call it before adding the first of these. */
int ml_interner_enter_stacks(ml_interner *interner);

/* *ID becomes the entry's id; a new entry is added. */
int ml_interner_string(ml_interner *interner, const char *bytes, size_t length,
                       uint32_t *id);
int ml_interner_frame(ml_interner *interner, ml_frame frame, uint32_t *id);
int ml_interner_stack(ml_interner *interner, ml_stack stack, uint32_t *id);

#endif
