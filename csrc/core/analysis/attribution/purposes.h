/* What every allocation of one device is for: its life and its category.
 *
 * Owns asking lives.h and category.h for all of them at once; it must not know who
 * shows them. */
#ifndef ML_PURPOSES_H
#define ML_PURPOSES_H

#include "analysis/attribution/category.h"
#include "analysis/attribution/lives.h"

typedef struct ml_purposes {
    ml_lives lives;
    ml_verdict *events; /* owned; by event; UNKNOWN of those that allocate nothing */
    ml_verdict *before; /* owned; of lives.before */
} ml_purposes;

/* RECORDING is borrowed and outlives the purposes.  0 or ML_ENOMEM, after which there is
 * nothing to take down. */
int ml_purposes_init(ml_purposes *purposes, const ml_recording *recording,
                     size_t device);
void ml_purposes_fini(ml_purposes *purposes);

/* The enum ml_category of the block at ADDR that event BIRTH allocated; ML_BEFORE_EVENTS:
 * it was there before. */
unsigned ml_purposes_category(const ml_purposes *purposes, uint64_t addr,
                              uint64_t birth);

#endif
