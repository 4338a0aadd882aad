/* Drops the first part of a recording's file while it goes on, on the journal's thread.
 *
 * A trim reads the oldest chunks of events back from the file and follows them, from the
 * memory at the file's start to that at a later one.  It writes this later start into
 * chunks of its own: the memory with its stacks, and all that the dropped part told of
 * it.  One store to the header then makes it the file's start, and the dropped chunks are
 * used again.  So the file has a whole start at every moment, and the callback has
 * nothing to do with it. */
#ifndef ML_JOURNAL_TRIM_H
#define ML_JOURNAL_TRIM_H

#include <stdbool.h>
#include <stdint.h>

struct ml_journal;
typedef struct ml_trimmer ml_trimmer;

/* KEPT_STEPS as in ml_journal_options.  NULL: no memory. */
ml_trimmer *ml_trimmer_new(uint64_t kept_steps);
void ml_trimmer_free(ml_trimmer *trimmer); /* takes NULL */

/* Trims a little, if it is time.  False: the first part stays, now and later, as in a
 * journal without a trimmer. */
bool ml_trimmer_go_on(struct ml_journal *journal);
/* Whether a trim is under way. */
bool ml_trimmer_is_busy(const struct ml_journal *journal);

#endif
