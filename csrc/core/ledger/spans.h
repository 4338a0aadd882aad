/* The segments of a block table as slots and a treap by address, under what blocks.h does
 * with them.  For blocks.c alone. */
#ifndef ML_SPANS_H
#define ML_SPANS_H

#include "ledger/blocks.h"

/* A slot, to be filled and linked; there is one for every block. */
uint32_t ml_spans_add(ml_blocks *blocks);
void ml_spans_link(ml_blocks *blocks, uint32_t index);
/* Forgets only the slot, neither its blocks nor its bytes. */
void ml_spans_drop(ml_blocks *blocks, uint32_t index);

#endif
