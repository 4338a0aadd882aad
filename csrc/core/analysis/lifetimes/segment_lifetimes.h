/* The segments of one device over a replay, as rows.
 *
 * Owns the pieces that are mapped at a moment, by address; it must not know blocks. */
#ifndef ML_PAGE_SEGMENTS_H
#define ML_PAGE_SEGMENTS_H

#include "analysis/lifetimes/lifetimes.h"

typedef struct ml_page_pieces {
    ml_page_rows *rows; /* borrowed; gets the segments */
    uint32_t *there;    /* owned; segments that are there, by address */
    size_t count;
    size_t capacity;
    uint64_t bytes; /* of them */
} ml_page_pieces;

/* Before the first event.  0 or ML_ENOMEM. */
int ml_page_pieces_begin(ml_page_pieces *pieces, ml_page_rows *rows,
                         const ml_ledger *ledger);
/* After EVENT, which LEDGER has seen, as the moment MOMENT.  0 or ML_ENOMEM. */
int ml_page_pieces_follow(ml_page_pieces *pieces, const ml_event *event,
                          const ml_ledger *ledger, uint32_t moment);
void ml_page_pieces_fini(ml_page_pieces *pieces);

#endif
