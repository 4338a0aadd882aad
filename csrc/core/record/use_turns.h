/* The turns of last uses: the steps of the program in which they are followed.
 *
 * To follow them costs a part of every operator, so a recording may ask for one step in
 * N: of the first four after its start, then of three in a row of each 3 N.  So a block
 * that its variable keeps until the next step has replaced it is seen from its birth to
 * its free.  Owns the switch of a feed's uses, on and off, and the count of its
 * steps. */
#ifndef ML_USE_TURNS_H
#define ML_USE_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "recording/recording.h"

struct ml_feed;

/* Those of a feed; written with the recorder's lock held. */
typedef struct ml_use_turns {
    _Atomic unsigned every; /* one step of so many; 0: uses are not wanted */
    uint64_t steps;         /* that ended since EVERY changed */
    bool following;         /* the source reports uses now */
} ml_use_turns;

/* From here on follows the uses of FEED's blocks in one step of EVERY; 0: in none.
 * The recorder's lock is held. */
void ml_use_turns_set(struct ml_feed *feed, unsigned every);

/* A step of the program has ended.  Takes the recorder's lock; while another thread has
 * it, nothing changes until the next step. */
void ml_use_turns_step(const ml_source *source);

#endif
