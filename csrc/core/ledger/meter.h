/* A meter: torch's counts of one device, and intervals over them: the changes between
 * two moments.
 *
 * Owns the counts, the sums added to and taken from them, and the peak of each
 * interval.  An interval does not touch torch's own statistics, which would otherwise
 * have to be reset.
 *
 * The counts are changed inside the allocator's callback, by one thread at a time
 * (ml_meter_follow) or by any (ml_meter_add); intervals are read on any thread.  The
 * reading thread's own changes are exact.  Another thread's change at the moment
 * between two intervals belongs to either of them. */
#ifndef ML_METER_H
#define ML_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memlab.h"
#include "recording/pool_stats.h"

/* Intervals under way at once. */
#define ML_METER_INTERVAL_MAX 16

/* torch's pools of figures: all, then each. */
#define ML_METER_STAT_POOLS (ML_POOL_MAX + 1)
#define ML_METER_STAT_ALL ML_POOL_MAX
#define ML_METER_STAT_COUNT (ML_METER_STAT_POOLS * (int)ML_POOL_STAT_MAX)

/* The figures of an interval, each by ml_meter_stat(). */
typedef struct ml_meter_stats {
    uint64_t current[ML_METER_STAT_COUNT]; /* at its end */
    uint64_t peak[ML_METER_STAT_COUNT];
    uint64_t allocated[ML_METER_STAT_COUNT]; /* sum of additions */
    uint64_t freed[ML_METER_STAT_COUNT];     /* sum of removals */
    /* The increase of the allocator's own counters; the meter does not change it. */
    uint64_t counted[ML_SOURCE_COUNTER_MAX];
} ml_meter_stats;

/* POOL: enum ml_pool, or ML_METER_STAT_ALL. */
static inline int
ml_meter_stat(int pool, int count)
{
    return pool * (int)ML_POOL_STAT_MAX + count;
}

/* A set of figures: bit ml_meter_stat() each. */
typedef uint64_t ml_meter_stat_set;
_Static_assert(ML_METER_STAT_COUNT <= 64, "a set has a bit for each figure");

typedef struct ml_meter_interval {
    /* The interval's thread.  It alone changes these two, so that loads and stores are
     * enough; another thread may end its interval meanwhile. */
    _Atomic uint32_t thread;
    _Atomic ml_meter_stat_set moved;
    _Atomic uint64_t peak[ML_METER_STAT_COUNT]; /* of those that moved; 0: none rose */
    /* The same for other threads meanwhile. */
    _Atomic ml_meter_stat_set others_moved;
    _Atomic uint64_t others_peak[ML_METER_STAT_COUNT];
    /* The meter's values at its start. */
    uint64_t start[ML_METER_STAT_COUNT];
    uint64_t allocated[ML_METER_STAT_COUNT];
    uint64_t freed[ML_METER_STAT_COUNT];
} ml_meter_interval;

typedef struct ml_meter {
    _Atomic uint64_t events;
    /* Outside a change, current is base plus the added sum minus the freed sum. */
    _Atomic uint64_t base[ML_METER_STAT_COUNT];
    _Atomic uint64_t current[ML_METER_STAT_COUNT];
    _Atomic uint64_t allocated[ML_METER_STAT_COUNT];
    _Atomic uint64_t freed[ML_METER_STAT_COUNT];
    ml_pool_stats followed;   /* the last values given to ml_meter_follow */
    _Atomic uint32_t claimed; /* bit i: intervals[i] has an owner */
    _Atomic uint32_t taken;   /* bit i: intervals[i] is under way */
    ml_meter_interval intervals[ML_METER_INTERVAL_MAX];
} ml_meter;

/* Sets the counts to COUNTS, without adding or taking. */
void ml_meter_set(ml_meter *meter, const ml_pool_stats *counts);
/* The same by events.  One thread follows the device at a time, now THREAD, a number as
 * in ml_event. */
void ml_meter_follow(ml_meter *meter, uint32_t thread, const ml_pool_stats *counts);
/* Adds a block of BYTES, of memory without pools and segments; FREED: takes one
 * away. */
void ml_meter_add(ml_meter *meter, uint32_t thread, uint64_t bytes, bool freed);

/* Begins an interval of THREAD, which need not be the caller.  Returns its number, or
 * -1 if ML_METER_INTERVAL_MAX are under way.  NOW gets the current figures, without
 * changes. */
int ml_meter_begin_interval(ml_meter *meter, uint32_t thread, ml_meter_stats *now);
void ml_meter_end_interval(ml_meter *meter, int interval);
/* Begins the next interval.  Returns what moved in INTERVAL, and puts it into FIGURES,
 * which are of an earlier, settled interval.  Called by the interval's thread, or by
 * one that ends it next. */
ml_meter_stat_set ml_meter_next_interval(ml_meter *meter, int interval,
                                         ml_meter_stats *figures);

/* The number of its events so far.  Their changes show in every interval that ends from
 * now on. */
uint64_t ml_meter_events(const ml_meter *meter);

/* Clears the added and taken sums of MOVED: they were reported. */
void ml_meter_stats_settle(ml_meter_stats *figures, ml_meter_stat_set moved);

#endif
