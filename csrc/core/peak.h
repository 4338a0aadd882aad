/* The peak: what was live at the instant of the most allocated bytes, or at any other.
 *
 * Owns the answer: the totals there, each allocated block with where it came from and
 * what it is for, the sums by line, by stack and by category, and the allocator's
 * overhead.  It must not know how any of it is printed.
 *
 * The category of a block is what is known exactly, and never a guess:
 *
 *   1. The tags of the recording: a tag at a position names the block that holds its
 *      address there, for the whole of its life.  The last tag of a block holds, but
 *      that a parameter stays one.
 *   2. Untagged blocks from before the first event: BEFORE_RECORDING.
 *   3. Untagged blocks, where the recording says which events a backward pass made (one
 *      that memlab wrote does, torch's own do not):
 *      ACTIVATION, allocated outside a backward pass, and either freed by one or, in a
 *      recording that has tagged parameters, alive when exactly one pass began before
 *      its free or the end.  Without those tags a parameter or optimizer state would
 *      look the same, so such a block is UNKNOWN.
 *      TEMPORARY, allocated outside a backward pass and freed before the next one began,
 *      or allocated by one and freed by the same.
 *   4. All others: UNKNOWN.
 *
 * A backward pass is a run of events made while an autograd node ran; it ends at the
 * next allocation made without one. */
#ifndef ML_PEAK_H
#define ML_PEAK_H

#include <stdbool.h>

#include "recording.h"
#include "replay.h"

#define ML_PHASES(XX) \
    XX(FORWARD, "forward") /* outside a backward pass, the optimizer's step too */ \
    XX(BACKWARD, "backward") \
    XX(BEFORE_RECORDING, "before_recording") \
    XX(UNKNOWN, "unknown")

enum ml_phase {
#define XX(name, text) ML_PHASE_##name,
    ML_PHASES(XX)
#undef XX
    ML_PHASE_COUNT
};

/* Why a block has no line. */
#define ML_NO_LINES(XX) \
    XX(NONE, "") /* it has one */ \
    XX(BEFORE, "before recording") \
    XX(BACKWARD, "no Python frames on the thread (backward)") \
    XX(NO_PYTHON, "no Python frames on the thread") \
    XX(LOST, "stack table full") \
    XX(NOT_RECORDED, "stacks not recorded") \
    XX(EMPTY, "recorded without frames")

enum ml_no_line {
#define XX(name, text) ML_NO_LINE_##name,
    ML_NO_LINES(XX)
#undef XX
    ML_NO_LINE_COUNT
};

typedef struct ml_peak_block {
    uint64_t addr;
    uint64_t size;      /* bytes it occupies */
    uint64_t requested; /* bytes */
    int64_t event;      /* index of its allocation; -1: before the recording */
    uint32_t stack;     /* stack id of its allocation; 0: none */
    uint32_t line;      /* index into lines */
    uint8_t category;   /* enum ml_category */
    uint8_t phase;      /* enum ml_phase, of its allocation */
    uint8_t no_line;    /* enum ml_no_line */
} ml_peak_block;

/* Blocks allocated by one line of the user's code in one phase.  The line is the
 * innermost frame outside Python's library and installed packages; where a stack has no
 * such frame, the innermost frame that is Python; a stack without any has no line. */
typedef struct ml_peak_line {
    ml_string file; /* bytes borrowed from the recording; empty without a line */
    ml_string function;
    int64_t line;    /* 0: none */
    uint64_t bytes;  /* that the blocks occupy */
    uint64_t blocks; /* items */
    uint8_t phase;   /* enum ml_phase */
    uint8_t no_line; /* enum ml_no_line */
} ml_peak_line;

typedef struct ml_peak_stack {
    uint32_t stack; /* stack id; 0: none */
    uint64_t bytes;
    uint64_t blocks; /* items */
    uint8_t phase;
    uint8_t no_line;
} ml_peak_stack;

typedef struct ml_peak_category {
    uint64_t bytes;
    uint64_t blocks; /* items */
} ml_peak_category;

/* Bytes unless it says otherwise. */
typedef struct ml_peak_overhead {
    uint64_t inactive; /* reserved less active: free for the allocator to give out */
    uint64_t slack;    /* active less requested: rounding and unsplit rests */
    uint64_t largest_free; /* largest free block */
    uint64_t free_blocks;  /* items */
    uint64_t segments;     /* items */
    /* (inactive - largest_free) / inactive: the share of the inactive bytes that one request
     * could not have; 0 where nothing is inactive. */
    double fragmentation;
} ml_peak_overhead;

typedef struct ml_peak {
    uint64_t position;      /* events before the instant; 0: before the first */
    uint64_t time;          /* unix ns; of the event before it, else of the first */
    ml_totals totals;       /* at the instant */
    ml_totals window_peaks; /* of each total alone, in the window */
    ml_totals known_peaks; /* likewise, with events since overwritten as far as known */
    bool earlier;          /* the recording had a higher peak before the window */
    ml_replay_result replay; /* how well the replay agrees with the recording */

    ml_peak_block *blocks; /* owned; by address; their sizes add up to allocated */
    size_t block_count;
    ml_peak_line
        *lines; /* owned; most bytes first, then by file, line, function, phase */
    size_t line_count;
    ml_peak_stack *stacks; /* owned; most bytes first, then by stack and phase */
    size_t stack_count;
    ml_peak_category categories[ML_CATEGORY_COUNT];
    uint64_t unattributed; /* bytes of lines without a line */
    ml_peak_overhead overhead;
} ml_peak;

/* At the first instant of the most allocated bytes.  RECORDING is borrowed and outlives
 * the answer.  0, ML_EINVALID for a DEVICE that it does not have, or ML_ENOMEM. */
int ml_peak_new(const ml_recording *recording, size_t device, ml_peak **out);
/* At the instant after POSITION events; ML_EINVALID where there are fewer. */
int ml_peak_new_at(const ml_recording *recording, size_t device, uint64_t position,
                   ml_peak **out);
void ml_peak_free(ml_peak *peak);

const char *ml_phase_text(unsigned phase);     /* "unknown" for an unknown one */
const char *ml_no_line_text(unsigned no_line); /* "" for an unknown one */

#endif
