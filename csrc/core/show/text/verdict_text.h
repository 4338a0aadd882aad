/* The verdict on a run in words: a line for each finding, two for each change.
 *
 * Owns these words.  All that shows a verdict has them from here: text, JSON, pages.
 * Names are unescaped.  The buffer remembers errors. */
#ifndef ML_VERDICT_TEXT_H
#define ML_VERDICT_TEXT_H

#include "base/base.h"
#include "lab/verdict/run_verdict.h"

typedef struct ml_verdict_words {
    const ml_recording *recording; /* the verdict's; of a merged one the part */
    const ml_run_verdict *verdict;
    const char *start; /* paths are relative to this folder; "": to none */
} ml_verdict_words;

/* Finding INDEX, as a sentence or two. */
void ml_verdict_finding(ml_buffer *out, const ml_verdict_words *words, size_t index);
/* Change INDEX of the verdict: what to do, and what it saves. */
void ml_verdict_change(ml_buffer *out, const ml_verdict_words *words, size_t index);
/* Its code to paste, after the line that it is about. */
void ml_verdict_code(ml_buffer *out, const ml_verdict_words *words, size_t index);
/* A JSON list of lines: the findings, what makes the run fit, then the changes, numbered,
 * with their code. */
void ml_verdict_json(ml_buffer *out, const ml_verdict_words *words);

/* That workspaces of streams grow, which STREAMS has, and what to do. */
void ml_verdict_streams(ml_buffer *out, const ml_growing_streams *streams);

/* What remains of the peaks of ADVICES, as "1.50 GiB allocated, but 2.00 MiB more
 * reserved": bytes saved, without those below ML_ADVICE_LEAST_PART. */
void ml_verdict_saving(ml_buffer *out, const ml_advices *advices, uint64_t allocated,
                       uint64_t reserved);

#endif
