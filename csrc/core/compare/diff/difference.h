/* The difference of one device's memory from another's, or from its own at another
 * instant.
 *
 * Decides the change of each line: appeared, gone, grew, shrank, or moved in time.
 * match.h pairs the sites of both sides; sites.h gives the live bytes.  In each
 * grouping the differences add up to the total difference.  Swapping the sides changes
 * only the signs. */
#ifndef ML_DIFFERENCE_H
#define ML_DIFFERENCE_H

#include "compare/diff/match.h"

/* The change of a line's memory; JSON keys. */
#define ML_CHANGES(XX) \
    XX(APPEARED, "appeared") /* the line is only in the second recording */ \
    XX(GONE, "gone")         /* only in the first */ \
    XX(GREW, "grew") \
    XX(SHRANK, "shrank") \
    /* At the instant it is more, or less, but not in what was live at once in the step of \
     * the instant: it comes, or goes, earlier or later.  Not of two instants of one device \
     * of a recording, unless they stand for steps. */ \
    XX(MOVED, "moved")

enum ml_change {
#define XX(name, text) ML_CHANGE_##name,
    ML_CHANGES(XX)
#undef XX
    ML_CHANGE_COUNT
};

/* How memory moved; JSON keys. */
#define ML_MOVES(XX) \
    XX(NONE, "") \
    XX(FREED_LATER, "freed_later") \
    XX(FREED_EARLIER, "freed_earlier") \
    XX(ALLOCATED_EARLIER, "allocated_earlier") \
    XX(ALLOCATED_LATER, "allocated_later")

enum ml_move {
#define XX(name, text) ML_MOVE_##name,
    ML_MOVES(XX)
#undef XX
    ML_MOVE_COUNT
};

/* Bytes and blocks (items) before and after. */
typedef struct ml_two {
    uint64_t bytes[2];
    uint64_t blocks[2];
} ml_two;

typedef struct ml_difference_place {
    ml_string file; /* borrowed from a recording; empty: the side has no such line */
    ml_string function;
    int64_t line; /* 0: none */
} ml_difference_place;

/* The memory of one line, or of one category without a line, in a backward pass or
 * not. */
typedef struct ml_difference_line {
    ml_difference_place at[2];
    ml_two two;
    uint8_t change;   /* enum ml_change */
    uint8_t move;     /* enum ml_move */
    uint8_t rule;     /* enum ml_match_rule: the least sure over the difference */
    uint8_t category; /* enum ml_category with most of the difference */
    uint8_t phase;    /* enum ml_phase */
    uint8_t no_line;  /* enum ml_no_line */
    /* Of the modules in the difference, "*" for parts that differ; NUL-terminated;
     * owned.  NULL: none. */
    char *module;
} ml_difference_line;

typedef struct ml_difference_module {
    ml_string module;  /* borrowed, the second recording's; empty: none */
    uint8_t no_module; /* enum ml_no_module */
    ml_two two;
} ml_difference_module;

typedef struct ml_difference_instant {
    bool known;        /* false: the recording has no such phase */
    uint64_t position; /* events before it */
    uint64_t time;     /* unix ns; of the event before it, else of the first */
    uint32_t step;     /* number of the training step */
    uint8_t phase;     /* enum ml_phase, if the event before is an allocation */
} ml_difference_instant;

typedef struct ml_difference_part {
    ml_string phase; /* a constant, or borrowed; empty: the requested instant */
    ml_difference_instant at[2];
    ml_two whole;
    /* The members below are set only if both instants are known. */
    ml_two categories[ML_CATEGORY_COUNT];
    /* Owned; greatest differences first, then by text.  Lines without a difference are
     * left out. */
    ml_difference_line *lines;
    size_t line_count;
    ml_difference_module *modules;
    size_t module_count;
} ml_difference_part;

typedef struct ml_difference {
    /* Owned; the requested instant; then, if requested, the peak within each phase:
     * forward, backward, optimizer, then named ones. */
    ml_difference_part *parts;
    size_t part_count;
    size_t phases_left_out; /* named ones beyond ML_DIFFERENCE_PHASES_MAX */
} ml_difference;

#define ML_DIFFERENCE_PHASES_MAX 32
/* No recording has this position: the first instant of the allocated peak. */
#define ML_DIFFERENCE_PEAK UINT64_MAX

typedef struct ml_difference_side {
    const ml_recording *recording; /* borrowed; outlives the answer */
    size_t device;
    uint64_t position; /* events before the instant, or ML_DIFFERENCE_PEAK */
} ml_difference_side;

typedef struct ml_difference_ask {
    ml_difference_side sides[2];
    bool same_code; /* both ran the same files: lines identify code */
    bool phases;    /* report each phase too */
    bool one_step;  /* phases only within the step of the instant */
} ml_difference_ask;

/* Linear in the events, except for match.h's work on lines.  0, ML_EINVALID for a
 * device or a position that a recording lacks, or ML_ENOMEM. */
int ml_difference_new(const ml_difference_ask *ask, ml_difference **out);
void ml_difference_free(ml_difference *difference); /* takes NULL */

const char *ml_change_text(unsigned change); /* "" for an unknown one */
const char *ml_move_text(unsigned move);     /* "" for an unknown one */

#endif
