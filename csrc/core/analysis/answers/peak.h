/* The peak: the live blocks at the instant of the most allocated bytes, or at any
 * other.
 *
 * The answer has the totals, each allocated block with its cause and category, the sums
 * by line, by stack and by category, and the allocator's overhead.  cause.h has the
 * rules of causes, category.h those of categories. */
#ifndef ML_PEAK_H
#define ML_PEAK_H

#include <stdbool.h>

#include "analysis/analysis.h"
#include "recording/recording.h"

typedef struct ml_peak_block {
    uint64_t addr;
    uint64_t size;      /* bytes it occupies */
    uint64_t requested; /* bytes */
    int64_t event;      /* index of its allocation; -1: before the recording */
    uint32_t line;      /* index into lines */
    ml_cause cause;     /* of its allocation */
    ml_verdict verdict;
} ml_peak_block;

/* Blocks allocated by one line of the user's code in one phase, known in one way.  The
 * line is the innermost frame outside Python's library and installed packages.  A stack
 * without such a frame has the innermost frame of a package, or else the innermost
 * Python frame.  A stack without Python frames has no line. */
typedef struct ml_peak_line {
    ml_string file; /* bytes borrowed from the recording; empty without a line */
    ml_string function;
    int64_t line; /* 0: none */
    /* With ML_HOW_NEAR the last possible line.  If it is above LINE, the range goes
     * through the start of a loop. 0: it is LINE. */
    int64_t until;
    uint64_t bytes;  /* that the blocks occupy */
    uint64_t blocks; /* items */
    uint8_t phase;   /* enum ml_phase */
    uint8_t no_line; /* enum ml_no_line */
    uint8_t how;     /* enum ml_how */
    /* Module of the blocks; for several modules, "*" replaces the parts that differ.
     * NUL-terminated; owned.  NULL: no block is in a module. */
    char *module;
    uint64_t categories[ML_CATEGORY_COUNT]; /* bytes */
    /* The peak's inner lines that make up this one, most bytes first; none if that is
     * the line itself. */
    size_t first_inner;
    size_t inner_count;
} ml_peak_line;

/* Blocks of a line by the model's own line: the innermost frame that is neither torch's nor
 * Python's own. */
typedef struct ml_peak_inner {
    ml_string file; /* bytes borrowed from the recording; empty without a line */
    ml_string function;
    int64_t line;                           /* 0: none */
    uint64_t bytes;                         /* that the blocks occupy */
    uint64_t blocks;                        /* items */
    char *module;                           /* as of ml_peak_line; owned */
    uint64_t categories[ML_CATEGORY_COUNT]; /* bytes */
} ml_peak_inner;

typedef struct ml_peak_module {
    uint32_t module;   /* string: path of the innermost module; 0: none */
    uint8_t no_module; /* enum ml_no_module: why there is none */
    uint64_t bytes;
    uint64_t blocks; /* items */
} ml_peak_module;

typedef struct ml_peak_stack {
    uint32_t stack; /* stack id; 0: none */
    uint64_t bytes;
    uint64_t blocks; /* items */
    uint8_t phase;
    uint8_t no_line;
    uint8_t how;
} ml_peak_stack;

/* Groups of blocks by size: group 0 has blocks of no bytes, group K those from 4^(K-1)
 * bytes to below 4^K. */
#define ML_PEAK_SIZE_COUNT 33

/* The blocks of one category, phase, or the like. */
typedef struct ml_peak_sum {
    uint64_t bytes;
    uint64_t blocks; /* items */
} ml_peak_sum;

/* Bytes unless it says otherwise. */
typedef struct ml_peak_overhead {
    uint64_t inactive; /* reserved less active: free for the allocator to give out */
    uint64_t slack;    /* active less requested: rounding and unsplit rests */
    uint64_t largest_free; /* largest free block */
    uint64_t free_blocks;  /* items */
    uint64_t segments;     /* items */
    /* (inactive - largest_free) / inactive: the share of the inactive bytes that one
     * request cannot get; 0 without inactive bytes. */
    double fragmentation;
} ml_peak_overhead;

typedef struct ml_peak {
    uint64_t position;      /* events before the instant; 0: before the first */
    uint64_t time;          /* unix ns; of the event before it, else of the first */
    ml_totals totals;       /* at the instant */
    ml_totals window_peaks; /* each total's own peak, in the window */
    ml_totals known_peaks;  /* the same, including overwritten events as far as known */
    bool earlier;           /* the recording had a higher peak before the window */
    ml_replay_result replay; /* how well the replay agrees with the recording */

    ml_peak_block *blocks; /* owned; by address; their sizes add up to allocated */
    size_t block_count;
    ml_peak_line
        *lines; /* owned; most bytes first, then by file, line, function, phase */
    size_t line_count;
    ml_peak_inner *inner; /* owned; of the lines */
    size_t inner_count;
    ml_peak_stack *stacks; /* owned; most bytes first, then by stack and phase */
    size_t stack_count;
    ml_peak_module *modules; /* owned; most bytes first */
    size_t module_count;
    ml_peak_sum categories[ML_CATEGORY_COUNT];
    ml_peak_sum phases[ML_PHASE_COUNT];
    ml_peak_sum hows[ML_HOW_COUNT];
    ml_peak_sum no_modules[ML_NO_MODULE_COUNT];
    ml_peak_sum whys[ML_WHY_COUNT]; /* of blocks of the category UNKNOWN */
    ml_peak_sum sizes[ML_PEAK_SIZE_COUNT];
    uint64_t inexact;      /* bytes of blocks with an estimated category */
    uint32_t step;         /* number of the training step at the instant */
    uint64_t unattributed; /* bytes of groups without a line */
    ml_peak_overhead overhead;
} ml_peak;

/* The peak at the first instant of the most allocated bytes.  RECORDING must not change
 * any more, is borrowed and outlives the answer.  0, ML_EINVALID for a DEVICE that it
 * lacks, or ML_ENOMEM. */
int ml_peak_new(const ml_recording *recording, size_t device, ml_peak **out);
/* The same at the instant after POSITION events; ML_EINVALID if there are fewer. */
int ml_peak_new_at(const ml_recording *recording, size_t device, uint64_t position,
                   ml_peak **out);
void ml_peak_free(ml_peak *peak);

/* The group of blocks of SIZE bytes, and the least size (bytes) of GROUP. */
unsigned ml_peak_size_group(uint64_t size);
uint64_t ml_peak_size_least(unsigned group);

#endif
