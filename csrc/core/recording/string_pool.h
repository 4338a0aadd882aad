/* The texts of several recordings, each different text once.
 *
 * Owns their ids, which are common to the recordings; the recordings own the bytes.  Id
 * 0 is the empty text. */
#ifndef ML_STRING_POOL_H
#define ML_STRING_POOL_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_string_pool {
    ml_intern table;
    ml_string *items; /* owned; by id */
    size_t count;
    size_t capacity;
} ml_string_pool;

/* 0, or ML_ENOMEM with nothing to free. */
int ml_string_pool_init(ml_string_pool *texts);
void ml_string_pool_fini(ml_string_pool *texts);
/* The id of TEXT, whose bytes outlive the texts.  0 or ML_ENOMEM. */
int ml_string_pool_find(ml_string_pool *texts, ml_string text, uint32_t *id);
/* By string id of RECORDING, the id of its text; the caller frees it.  0 or
 * ML_ENOMEM. */
int ml_string_pool_of(ml_string_pool *texts, const ml_recording *recording,
                      uint32_t **ids);

#endif
