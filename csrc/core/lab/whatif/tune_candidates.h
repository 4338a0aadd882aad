/* The candidates of tuning: the settings tried, and their results.
 *
 * Owns the lists of values, their text, and the trials.  A trial is skipped if an
 * earlier one settles its outcome. */
#ifndef ML_TUNE_CANDIDATES_H
#define ML_TUNE_CANDIDATES_H

#include "lab/whatif/tune.h"

/* Each setting has a list of values; the first, 0, is torch's default. */
enum knob {
    KNOB_EXPANDABLE,
    KNOB_SPLIT,
    KNOB_DIVISIONS,
    KNOB_ROUNDING,
    KNOB_LARGE,
    KNOB_COLLECT,
    KNOB_COUNT
};

/* First torch in which text can set a limit. */
#define ML_CANDIDATE_LIMIT_SINCE 210

typedef struct ml_candidate {
    uint8_t at[KNOB_COUNT]; /* index into values */
    uint64_t enough;        /* limit of its trial */
    ml_allocator_settings tried;
    ml_tuned tuned;
} ml_candidate;

typedef struct ml_tuner {
    ml_tune *tune;
    uint64_t memory;
    unsigned budget;
    unsigned before;     /* trials of an earlier search, in the budget too */
    bool best_only;      /* results other than the best may stay unknown */
    bool collects;       /* collecting garbage may be tried */
    bool needs_limit;    /* garbage collection needs a limit of its own */
    bool endless;        /* memory */
    bool knows;          /* known */
    ml_candidate known;  /* a trial made before the search; only tried and its result */
    ml_candidate *tried; /* owned */
    size_t count;
    size_t capacity;
    uint64_t *sizes; /* owned; the distinct sizes of all requests */
    size_t size_count;
} ml_tuner;

/* The number of KNOB's values. */
unsigned ml_candidate_values(const ml_tuner *tuner, unsigned knob);
/* The earlier trial of AT; NULL: none. */
const ml_candidate *ml_candidate_find(const ml_tuner *tuner,
                                      const uint8_t at[KNOB_COUNT]);
/* Options with the settings of CONF. */
int ml_candidate_options(const ml_tuner *tuner, const char *conf,
                         ml_trial_options *out);
/* Tries AT, unless tried before, while it reserves at most ENOUGH bytes (0: always).  0
 * or ML_E*. */
int ml_candidate_try(ml_tuner *tuner, const uint8_t at[KNOB_COUNT], uint64_t enough);
/* The number of settings that AT changes. */
unsigned ml_candidate_settings(const ml_tuner *tuner, const uint8_t at[KNOB_COUNT]);

#endif
