/* Texts of several recordings, told apart by what they say.
 *
 * Owns their ids, which mean the same whichever recording a text is from; the bytes stay
 * the recordings'.  Id 0 is the empty text. */
#ifndef ML_TEXTS_H
#define ML_TEXTS_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_texts {
    ml_intern table;
    ml_string *items; /* owned; by id */
    size_t count;
    size_t capacity;
} ml_texts;

/* 0 or ML_ENOMEM, after which there is nothing to take down. */
int ml_texts_init(ml_texts *texts);
void ml_texts_fini(ml_texts *texts);
/* The id of TEXT, whose bytes outlive the texts.  0 or ML_ENOMEM. */
int ml_texts_find(ml_texts *texts, ml_string text, uint32_t *id);
/* By string id of RECORDING the id of what it says; owned by the caller.  0 or ML_ENOMEM. */
int ml_texts_of(ml_texts *texts, const ml_recording *recording, uint32_t **ids);

#endif
