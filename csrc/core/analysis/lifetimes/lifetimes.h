/* The allocations of one device as rows, each from its start to its end, and the
 * segments likewise: what one replay tells, kept for a page.
 *
 * Owns following the replay's memory block by block, so that after any event the rows
 * that are allocated are the blocks of the replay there, to the byte, also where events
 * do not fit.  It must not know what allocations are for, nor how they are written. */
#ifndef ML_PAGE_ROWS_H
#define ML_PAGE_ROWS_H

#include "analysis/analysis.h"

/* Events of a device that a page can number. */
#define ML_PAGE_EVENTS_MAX (INT32_MAX - 1)
/* Moments: 0 is before the first event, N after event N - 1. */
#define ML_PAGE_NEVER UINT32_MAX

typedef struct ml_page_row {
    uint64_t addr;
    uint64_t bytes;     /* of the block */
    uint64_t size;      /* bytes asked for */
    uint32_t start;     /* moment from which on it is there */
    uint32_t requested; /* from which on it is not allocated; ML_PAGE_NEVER */
    uint32_t end;       /* from which on it is not there; ML_PAGE_NEVER */
    uint32_t birth;   /* moment of the allocation; before START where another event cut
                           the block */
    uint32_t kind;    /* for who describes the row */
    uint32_t ordinal; /* allocations that its address had before */
    uint32_t place;   /* among the rows that are there, while replaying */
    uint32_t rest; /* the row that goes on where another event cut this one; 0: none */
} ml_page_row;

/* A row that an event changed beside its own. */
typedef struct ml_page_change {
    uint32_t moment;
    uint32_t row;
} ml_page_change;

typedef struct ml_page_reserved {
    uint32_t moment; /* from which on */
    uint64_t bytes;
} ml_page_reserved;

#define ML_PAGE_EXPANDABLE 1u
#define ML_PAGE_SMALL 2u
#define ML_PAGE_PRIVATE 4u

/* A segment, or of an expandable one a piece that was mapped at once. */
typedef struct ml_page_segment {
    uint64_t addr;
    uint64_t bytes;
    uint64_t stream;
    uint32_t start; /* as of rows */
    uint32_t end;
    uint32_t stack;
    uint32_t flags; /* ML_PAGE_* */
} ml_page_segment;

typedef struct ml_page_rows {
    const ml_device_trace *trace; /* borrowed */
    ml_page_row *rows;            /* owned; by start, those of moment 0 by address */
    size_t count;
    size_t capacity;
    uint32_t *of_event;      /* owned; row of each event, plus 1; 0: it has none */
    ml_page_change *changes; /* owned; by moment */
    size_t change_count;
    size_t change_capacity;
    ml_page_reserved *reserved; /* owned; by moment, of which the first is 0 */
    size_t reserved_count;
    size_t reserved_capacity;
    ml_page_segment *segments; /* owned; by start */
    size_t segment_count;
    size_t segment_capacity;
    uint32_t *initial_stacks;  /* owned; of the rows of moment 0 */
    uint64_t *initial_streams; /* owned; likewise */
    size_t initial_count;
} ml_page_rows;

/* RECORDING is borrowed and outlives the rows.  0, ML_EINVALID for a DEVICE that it
 * does not have, ML_ELIMIT for more events than a page can number, or ML_ENOMEM; after an
 * error there is nothing to take down. */
int ml_page_rows_init(ml_page_rows *rows, const ml_recording *recording, size_t device);
void ml_page_rows_fini(ml_page_rows *rows);

#endif
