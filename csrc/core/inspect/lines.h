/* Line tables: the changes of memory while each line of some functions ran.
 *
 * Owns the rows of the functions, and for each thread the calls of them that are
 * under way, one on top of the other.  It is told when a call begins, comes to a
 * line, and ends, and asks a meter what happened since it was told last, which
 * counts at that line and at those of the profiled callers.  An interval belongs to
 * the thread whose calls it times, whoever begins or ends it.  Callers take turns:
 * with Python that is the GIL. */
#ifndef ML_LINES_H
#define ML_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger/meter.h"
#include "memlab.h"

/* One line of a function, over all times that it ran. */
typedef struct ml_line_row {
    uint32_t line;
    uint64_t calls; /* how often it began; of the first line, calls of the function */
    int64_t delta;  /* allocated bytes at its end less those at its start, summed */
    ml_meter_stats most; /* of each figure the most that one run of the line had */
    uint64_t seen;       /* private: events of the meter when it was raised last */
} ml_line_row;

typedef struct ml_lines ml_lines;                   /* the tables of one profiler */
typedef struct ml_lines_function ml_lines_function; /* owned by them */

/* NULL where there is no memory. */
ml_lines *ml_lines_new(void);
void ml_lines_free(ml_lines *lines);

/* The memory of DEVICE of SOURCE is what counts from now on.  A line that is running is
 * told what DEVICE has at its end, and what changed on it from here on. */
void ml_lines_target(ml_lines *lines, const ml_source *source, int device);

/* A function whose `def` is at FIRST_LINE; NULL where there is no memory. */
ml_lines_function *ml_lines_add(ml_lines *lines, uint32_t first_line);
/* FUNCTION, of which no call is under way, goes with its rows: at once where it was
 * added last. */
void ml_lines_remove(ml_lines *lines, ml_lines_function *function);
/* Its rows by line, *COUNT of them, until the next event. */
ml_line_row *const *ml_lines_rows(const ml_lines_function *function, size_t *count);

/* THREAD, any number that is its own, begins a call of FUNCTION (RESUMED: goes on
 * with one that was suspended at LINE). */
void ml_lines_enter(ml_lines *lines, ml_lines_function *function, uint64_t thread,
                    bool resumed, uint32_t line);
/* The call on top comes to LINE. */
void ml_lines_reach(ml_lines *lines, ml_lines_function *function, uint64_t thread,
                    uint32_t line);
/* The call on top ends or is suspended; nothing for one whose beginning was not
 * seen. */
void ml_lines_leave(ml_lines *lines, const ml_lines_function *function,
                    uint64_t thread);
/* The calls under way get no more events; the figures of their lines so far are
 * kept. */
void ml_lines_close(ml_lines *lines);

/* Forgets all rows and what was lost; the functions and the calls under way stay. */
void ml_lines_clear(ml_lines *lines);

/* Whether the target's allocator has counters of its own, for
 * ml_meter_stats.counted; then *MAX_SPLIT_BYTES is its setting. */
bool ml_lines_counting(const ml_lines *lines, uint64_t *max_split_bytes);
/* Line ends without figures, since too many threads ran profiled functions at once or
 * memory was short. */
uint64_t ml_lines_lost(const ml_lines *lines);

#endif
