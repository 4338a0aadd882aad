/* Line tables: the changes of memory while each line of some functions ran.
 *
 * Owns the functions' rows, and for each thread the stack of their calls in progress.
 * Its caller reports the start of a call, each line, and the end.  A meter then tells
 * the changes since the last report.  They count at the current line and at those of
 * the profiled callers.  An interval belongs to the thread whose calls it times,
 * whoever begins or ends it.  Callers take turns: with Python, the GIL ensures it. */
#ifndef ML_LINES_H
#define ML_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger/meter.h"
#include "memlab.h"

/* One line of a function, over all times that it ran. */
typedef struct ml_line_row {
    uint32_t line;
    uint64_t calls; /* how often it began; for the first line, calls of the function */
    int64_t delta;  /* allocated bytes at its end minus those at its start, summed */
    ml_meter_stats most; /* the maximum of each figure over the line's runs */
    uint64_t seen;       /* private: the meter's events at the last maximum */
} ml_line_row;

typedef struct ml_lines ml_lines;                   /* the tables of one profiler */
typedef struct ml_lines_function ml_lines_function; /* owned by them */

/* NULL: no memory. */
ml_lines *ml_lines_new(void);
void ml_lines_free(ml_lines *lines);

/* From now on, the memory of DEVICE of SOURCE counts.  A running line gets DEVICE's
 * state at its end, and the changes from here on. */
void ml_lines_target(ml_lines *lines, const ml_source *source, int device);

/* A function whose `def` is at FIRST_LINE; NULL: no memory. */
ml_lines_function *ml_lines_add(ml_lines *lines, uint32_t first_line);
/* Removes FUNCTION, which has no call in progress, with its rows; at once if it was
 * added last. */
void ml_lines_remove(ml_lines *lines, ml_lines_function *function);
/* FUNCTION's rows by line, *COUNT of them, valid until the next event. */
ml_line_row *const *ml_lines_rows(const ml_lines_function *function, size_t *count);

/* THREAD, a number of the thread's own, begins a call of FUNCTION (RESUMED: continues
 * one suspended at LINE). */
void ml_lines_enter(ml_lines *lines, ml_lines_function *function, uint64_t thread,
                    bool resumed, uint32_t line);
/* The call on top reaches LINE. */
void ml_lines_reach(ml_lines *lines, ml_lines_function *function, uint64_t thread,
                    uint32_t line);
/* The call on top ends or is suspended; ignored if its beginning was not seen. */
void ml_lines_leave(ml_lines *lines, const ml_lines_function *function,
                    uint64_t thread);
/* The calls in progress get no more events; their lines' figures so far are kept. */
void ml_lines_close(ml_lines *lines);

/* Clears all rows and losses; the functions and their calls in progress stay. */
void ml_lines_clear(ml_lines *lines);

/* Whether the target's allocator has counters of its own, for ml_meter_stats.counted;
 * *MAX_SPLIT_BYTES is then its setting. */
bool ml_lines_counting(const ml_lines *lines, uint64_t *max_split_bytes);
/* Line ends without figures, because too many threads ran profiled functions at once or
 * memory was short. */
uint64_t ml_lines_lost(const ml_lines *lines);

#endif
