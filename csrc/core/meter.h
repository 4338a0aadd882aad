/* A meter: what torch counts of one device, and laps over it: what it did between one
 * moment and the next.
 *
 * Owns the counts, the sums of what was added to and taken from them, and the peak of each
 * lap.  It must not know where blocks lie, nor what a lap is for.  A lap costs the program
 * nothing: torch's own statistics, which would have to be reset for it, are not touched.
 *
 * The counts are changed inside the allocator's callback, by one thread at a time
 * (ml_meter_follow) or by any (ml_meter_add); laps are read on any thread.  What happens
 * on the reading thread is exact.  What another thread does at the very moment at which
 * one lap ends and the next begins belongs to either of them. */
#ifndef ML_METER_H
#define ML_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "counts.h"
#include "memlab.h"

/* Laps under way at once. */
#define ML_LAP_MAX 16

/* The pools as torch names figures: all, then each. */
#define ML_FIGURE_POOLS (ML_POOL_MAX + 1)
#define ML_FIGURE_ALL ML_POOL_MAX
#define ML_FIGURE_COUNT (ML_FIGURE_POOLS * (int)ML_COUNT_MAX)

/* What a lap saw, each by ml_figure(). */
typedef struct ml_figures {
    uint64_t current[ML_FIGURE_COUNT]; /* at its end */
    uint64_t peak[ML_FIGURE_COUNT];
    uint64_t allocated[ML_FIGURE_COUNT]; /* sum of what was added */
    uint64_t freed[ML_FIGURE_COUNT];     /* sum of what was taken */
    /* What the allocator's own counters rose by; not the meter's, which leaves it alone. */
    uint64_t counted[ML_COUNTER_MAX];
} ml_figures;

/* POOL: enum ml_pool, or ML_FIGURE_ALL. */
static inline int
ml_figure(int pool, int count)
{
    return pool * (int)ML_COUNT_MAX + count;
}

typedef struct ml_meter_lap {
    /* Of the lap so far; 0 where nothing has risen. */
    _Atomic uint64_t peak[ML_FIGURE_COUNT];
    uint64_t events; /* of the meter, that earlier laps have seen */
    uint64_t start[ML_FIGURE_COUNT];
    uint64_t allocated[ML_POOL_MAX][ML_COUNT_MAX]; /* the meter's sums at its start */
    uint64_t freed[ML_POOL_MAX][ML_COUNT_MAX];
} ml_meter_lap;

typedef struct ml_meter {
    _Atomic uint64_t events; /* raised last: what it counts is in the figures */
    _Atomic uint64_t current[ML_POOL_MAX][ML_COUNT_MAX];
    _Atomic uint64_t allocated[ML_POOL_MAX][ML_COUNT_MAX];
    _Atomic uint64_t freed[ML_POOL_MAX][ML_COUNT_MAX];
    _Atomic uint32_t taken; /* bit i: laps[i] is under way */
    ml_meter_lap laps[ML_LAP_MAX];
} ml_meter;

/* The counts are COUNTS now, whatever they were: nothing was added or taken. */
void ml_meter_set(ml_meter *meter, const ml_pool_counts *counts);
/* The same by the events of the one thread that follows the device at a time. */
void ml_meter_follow(ml_meter *meter, const ml_pool_counts *counts);
/* BYTES more in one more block of memory that has neither pools nor segments; FREED: fewer,
 * in one fewer. */
void ml_meter_add(ml_meter *meter, uint64_t bytes, bool freed);

/* Begins a lap; its number, or -1 where ML_LAP_MAX are under way. */
int ml_meter_begin_lap(ml_meter *meter);
void ml_meter_end_lap(ml_meter *meter, int lap);
/* Whether anything happened in LAP, which one thread reads at a time. */
bool ml_meter_lap_moved(const ml_meter *meter, int lap);
/* What happened in LAP; the next lap begins. */
void ml_meter_next_lap(ml_meter *meter, int lap, ml_figures *out);

#endif
