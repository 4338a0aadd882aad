/* The segments of one device over a replay, as rows of its lifetimes.
 *
 * Keeps the pieces mapped at a moment, by address; lifetimes.c has the blocks. */
#ifndef ML_SEGMENT_LIFETIMES_H
#define ML_SEGMENT_LIFETIMES_H

#include "analysis/lifetimes/lifetimes.h"

typedef struct ml_mapped_pieces {
    ml_lifetimes *lifetimes; /* borrowed; gets the segments */
    uint32_t *there;         /* owned; existing segments, by address */
    size_t count;
    size_t capacity;
    uint64_t bytes; /* of them */
} ml_mapped_pieces;

/* Starts before the first event.  Call ml_mapped_pieces_fini in any case.  0 or
 * ML_ENOMEM. */
int ml_mapped_pieces_begin(ml_mapped_pieces *pieces, ml_lifetimes *lifetimes,
                           const ml_ledger *ledger);
/* Takes EVENT, which LEDGER has applied, at MOMENT.  0 or ML_ENOMEM. */
int ml_mapped_pieces_follow(ml_mapped_pieces *pieces, const ml_event *event,
                            const ml_ledger *ledger, uint32_t moment);
void ml_mapped_pieces_fini(ml_mapped_pieces *pieces);

#endif
