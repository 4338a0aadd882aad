/* The candidates of tuning: which settings are tried, and what came of each.
 *
 * Owns the lists of values, their text, and the trials: none is made whose outcome one
 * before it settles. */
#ifndef ML_TUNE_CANDIDATES_H
#define ML_TUNE_CANDIDATES_H

#include "lab/whatif/tune.h"

/* Each setting has a list of values, of which the first, 0, is torch's default. */
enum knob {
    KNOB_EXPANDABLE,
    KNOB_SPLIT,
    KNOB_DIVISIONS,
    KNOB_ROUNDING,
    KNOB_LARGE,
    KNOB_COLLECT,
    KNOB_COUNT
};

/* torch from which a limit can be set by text. */
#define ML_CANDIDATE_LIMIT_SINCE 210

typedef struct ml_candidate {
    uint8_t at[KNOB_COUNT]; /* index into values */
    uint64_t enough;        /* of its trial */
    ml_allocator_settings tried;
    ml_tuned tuned;
} ml_candidate;

typedef struct ml_tuner {
    ml_tune *tune;
    uint64_t memory;
    unsigned budget;
    bool best_only;      /* what is not the best may stay unknown */
    bool collects;       /* collecting garbage may be tried */
    bool needs_limit;    /* and needs a limit of its own */
    bool endless;        /* memory */
    ml_candidate *tried; /* owned */
    size_t count;
    size_t capacity;
    uint64_t *sizes; /* owned; of all requests, each once */
    size_t size_count;
} ml_tuner;

/* So many values KNOB has. */
unsigned ml_candidate_values(const ml_tuner *tuner, unsigned knob);
/* That AT was tried before; NULL: it was not. */
const ml_candidate *ml_candidate_find(const ml_tuner *tuner,
                                      const uint8_t at[KNOB_COUNT]);
/* The options of CONF. */
int ml_candidate_options(const ml_tuner *tuner, const char *conf,
                         ml_trial_options *out);
/* Tries AT unless that was done, as far as it reserves ENOUGH bytes at most (0: always); 0
 * or ML_E*. */
int ml_candidate_try(ml_tuner *tuner, const uint8_t at[KNOB_COUNT], uint64_t enough);
/* Settings that AT changes. */
unsigned ml_candidate_settings(const ml_tuner *tuner, const uint8_t at[KNOB_COUNT]);

#endif
