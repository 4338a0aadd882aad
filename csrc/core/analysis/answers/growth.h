/* Finds the lines that leave memory behind step after step: leaks, in any recording of
 * a device.
 *
 * A step ends at the program's note of one (ML_NOTE_STEP; an optimizer's step makes the
 * same note).  In a recording without such notes it ends with a backward pass; without
 * passes, where the outermost module is called again.  Step 0 begins with the recording.
 * What follows the end of the last step belongs to no step.
 *
 * A block is kept once it outlives its step by another whole one; at the end of the last
 * step, the blocks which that step left are kept as well.  A step left something at a
 * line if a block that the line allocated in the step is kept and still allocated at the
 * end of the last step.  A line grows if all of these hold:
 *
 *   - ML_GROWTH_STEPS steps or more left something at it; the first is SINCE.  No two of
 *     these in a row, nor the last of them and the last step, are further apart than
 *     twice the median distance.  A cache that settles fails this.
 *
 *   - Its kept bytes exceed their maximum before the last ML_GROWTH_STEPS of these steps
 *     by half of what those steps left or more.  A buffer that each step replaces, a
 *     window of the last few steps, and a list that each epoch empties fail this.
 *
 *   - At this pace it takes ML_GROWTH_PERCENT of the peak or more in 1,000 steps.  A
 *     list of losses fails this.
 *
 * Of ML_GROWTH_FEWEST steps or more, but too few for that, it is told as not certain.  An
 * optimizer's states and libraries' workspaces do not count, nor the newest gradient of a parameter: there are as many as
 * parameters, and more with each layer that is unfrozen.  In torch's own snapshots, which name
 * no parameter, nor the oldest blocks that passes left of a size, as many as there were blocks
 * of it before the first pass. */
#ifndef ML_GROWTH_H
#define ML_GROWTH_H

#include "analysis/analysis.h"

#define ML_GROWTH_STEPS 5
#define ML_GROWTH_FEWEST 3
#define ML_GROWTH_PERCENT 1

/* Blocks of a line by which to ask who holds it, the newest first. */
#define ML_GROWING_BLOCKS 12

/* What ends a step; JSON values. */
#define ML_GROWTH_BYS(XX) \
    XX(NOTHING, "") /* no step is known */ \
    XX(NOTES, "steps") \
    XX(PASSES, "backward_passes") \
    XX(CALLS, "module_calls")

enum ml_growth_by {
#define XX(name, text) ML_GROWTH_BY_##name,
    ML_GROWTH_BYS(XX)
#undef XX
    ML_GROWTH_BY_COUNT
};

typedef struct ml_growing {
    ml_cause cause;    /* of its newest block */
    uint64_t since;    /* number of the first step that left something */
    uint64_t steps;    /* that left something */
    uint64_t per_step; /* bytes, over all steps since */
    uint64_t bytes;    /* kept at the end of the last step */
    uint64_t blocks;
    uint32_t holder; /* string: who holds it; 0: not known */
    bool certain;
    /* Likely an autograd graph, of which this line made the end, a loss: bytes and blocks are
     * those of the whole, of so many lines. */
    bool graph;
    uint32_t lines;
    size_t rows[ML_GROWING_BLOCKS]; /* of the lifetimes; allocated at the very end */
    size_t row_count;
} ml_growing;

/* A line that made blocks of what grows. */
typedef struct ml_grower {
    ml_cause cause; /* of its newest block */
    uint32_t line; /* an index of the lines: itself, or the end of the graph it is in */
} ml_grower;

/* Workspaces of cuBLAS, of which torch keeps one for each handle and stream: steps that each use a
 * new stream leave them behind.  Of ML_GROWTH_STEPS streams or more. */
typedef struct ml_growing_streams {
    uint64_t streams; /* that have some; 0: they do not grow */
    uint64_t since;   /* as of a line */
    uint64_t steps;
    uint64_t per_step;
    uint64_t bytes;
    uint64_t blocks;
} ml_growing_streams;

typedef struct ml_growth {
    ml_attached attached; /* to its analysis */
    uint8_t by;           /* enum ml_growth_by */
    uint64_t steps;       /* whole ones */
    uint64_t last;        /* number of the last */
    ml_growing *lines;    /* owned; certain ones first, then most bytes a step */
    size_t count;
    ml_grower *growers; /* owned */
    size_t grower_count;
    ml_growing_streams workspaces; /* no part of the lines */
} ml_growth;

/* *OUT is borrowed and lives as long as ANALYSIS.  0 or ML_ENOMEM. */
int ml_growth_of(const ml_analysis *analysis, const ml_growth **out);

/* Has VERDICT, of CAUSE, say that it grows where it says that it is kept. */
void ml_growth_tell(const ml_growth *growth, const ml_cause *cause,
                    ml_verdict *verdict);
/* What grows for certain by blocks of CAUSE; NULL: nothing. */
const ml_growing *ml_growth_find(const ml_growth *growth, const ml_cause *cause);
/* Whether a reference cycle alone holds GROWING. */
bool ml_growing_is_garbage(const ml_recording *recording, const ml_growing *growing);
/* Whether CAUSE is of a line that grows for certain, and not as part of a graph. */
bool ml_growth_has(const ml_growth *growth, const ml_cause *cause);

const char *ml_growth_by_text(unsigned by); /* "" for an unknown one */

#endif
