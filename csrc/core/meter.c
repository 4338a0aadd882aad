/* A meter and its laps; see meter.h. */
#include "meter.h"

#include <stddef.h>

#define RELAXED memory_order_relaxed

static void
raise_peak(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(peak, RELAXED);
    while (seen < value && !atomic_compare_exchange_weak_explicit(peak, &seen, value,
                                                                  RELAXED, RELAXED)) {
    }
}

/* A reader takes the peaks first and the counts then, here it is the other way round: so
 * that what rises now is in the peak of one lap or in the counts that the next starts at. */
static void
raise_laps(ml_meter *meter, int pool, int count)
{
    uint32_t laps = atomic_load_explicit(&meter->taken, RELAXED);
    if (laps == 0) {
        return;
    }
    uint64_t value = atomic_load_explicit(&meter->current[pool][count], RELAXED);
    uint64_t all = 0;
    for (int i = 0; i < ML_POOL_MAX; i++) {
        all += atomic_load_explicit(&meter->current[i][count], RELAXED);
    }
    for (; laps != 0; laps &= laps - 1) {
        ml_meter_lap *lap = &meter->laps[__builtin_ctz(laps)];
        raise_peak(&lap->peak[ml_figure(pool, count)], value);
        raise_peak(&lap->peak[ml_figure(ML_FIGURE_ALL, count)], all);
    }
}

static void
finish_event(ml_meter *meter)
{
    atomic_fetch_add_explicit(&meter->events, 1, memory_order_release);
}

void
ml_meter_set(ml_meter *meter, const ml_pool_counts *counts)
{
    for (int pool = 0; pool < ML_POOL_MAX; pool++) {
        for (int count = 0; count < ML_COUNT_MAX; count++) {
            atomic_store_explicit(&meter->current[pool][count], counts->of[pool][count],
                                  RELAXED);
        }
    }
    finish_event(meter);
}

void
ml_meter_follow(ml_meter *meter, const ml_pool_counts *counts)
{
    for (int pool = 0; pool < ML_POOL_MAX; pool++) {
        for (int count = 0; count < ML_COUNT_MAX; count++) {
            uint64_t before =
                atomic_load_explicit(&meter->current[pool][count], RELAXED);
            uint64_t now = counts->of[pool][count];
            if (now == before) {
                continue;
            }
            bool rises = now > before;
            _Atomic uint64_t *sum =
                rises ? &meter->allocated[pool][count] : &meter->freed[pool][count];
            uint64_t moved = rises ? now - before : before - now;
            atomic_store_explicit(sum, atomic_load_explicit(sum, RELAXED) + moved,
                                  RELAXED);
            atomic_store_explicit(&meter->current[pool][count], now, RELAXED);
            if (rises) {
                raise_laps(meter, pool, count);
            }
        }
    }
    finish_event(meter);
}

void
ml_meter_add(ml_meter *meter, uint64_t bytes, bool freed)
{
    static const struct {
        int count;
        bool bytes;
    } moved[] = {{ML_COUNT_allocation, false},    {ML_COUNT_active, false},
                 {ML_COUNT_segment, false},       {ML_COUNT_allocated_bytes, true},
                 {ML_COUNT_reserved_bytes, true}, {ML_COUNT_active_bytes, true},
                 {ML_COUNT_requested_bytes, true}};
    for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++) {
        int count = moved[i].count;
        uint64_t amount = moved[i].bytes ? bytes : 1;
        _Atomic uint64_t *current = &meter->current[ML_POOL_LARGE][count];
        if (freed) {
            atomic_fetch_sub_explicit(current, amount, RELAXED);
            atomic_fetch_add_explicit(&meter->freed[ML_POOL_LARGE][count], amount,
                                      RELAXED);
        }
        else {
            atomic_fetch_add_explicit(current, amount, RELAXED);
            atomic_fetch_add_explicit(&meter->allocated[ML_POOL_LARGE][count], amount,
                                      RELAXED);
            raise_laps(meter, ML_POOL_LARGE, count);
        }
    }
    finish_event(meter);
}

/* ---- Laps ---- */

/* LAP starts with the counts and sums of now. */
static void
start_lap(const ml_meter *meter, ml_meter_lap *lap)
{
    lap->events = atomic_load_explicit(&meter->events, memory_order_acquire);
    for (int count = 0; count < ML_COUNT_MAX; count++) {
        uint64_t all = 0;
        for (int pool = 0; pool < ML_POOL_MAX; pool++) {
            uint64_t value =
                atomic_load_explicit(&meter->current[pool][count], RELAXED);
            lap->start[ml_figure(pool, count)] = value;
            all += value;
            lap->allocated[pool][count] =
                atomic_load_explicit(&meter->allocated[pool][count], RELAXED);
            lap->freed[pool][count] =
                atomic_load_explicit(&meter->freed[pool][count], RELAXED);
        }
        lap->start[ml_figure(ML_FIGURE_ALL, count)] = all;
    }
}

int
ml_meter_begin_lap(ml_meter *meter)
{
    uint32_t taken = atomic_load_explicit(&meter->taken, RELAXED);
    unsigned lap;
    do {
        lap = (unsigned)__builtin_ctz(~taken);
        if (lap >= ML_LAP_MAX) {
            return -1;
        }
    } while (!atomic_compare_exchange_weak(&meter->taken, &taken, taken | 1u << lap));
    for (int i = 0; i < ML_FIGURE_COUNT; i++) {
        atomic_store_explicit(&meter->laps[lap].peak[i], 0, RELAXED);
    }
    start_lap(meter, &meter->laps[lap]);
    return (int)lap;
}

void
ml_meter_end_lap(ml_meter *meter, int lap)
{
    atomic_fetch_and(&meter->taken, ~(1u << lap));
}

bool
ml_meter_lap_moved(const ml_meter *meter, int lap)
{
    return atomic_load_explicit(&meter->events, memory_order_acquire) !=
           meter->laps[lap].events;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void
ml_meter_next_lap(ml_meter *meter, int number, ml_figures *out)
{
    ml_meter_lap *lap = &meter->laps[number];
    for (int pool = 0; pool < ML_FIGURE_POOLS; pool++) {
        for (int count = 0; count < ML_COUNT_MAX; count++) {
            /* Few have risen, and taking one costs more than a look. */
            _Atomic uint64_t *peak = &lap->peak[ml_figure(pool, count)];
            out->peak[ml_figure(pool, count)] = lap->start[ml_figure(pool, count)];
            if (atomic_load_explicit(peak, RELAXED) != 0) {
                out->peak[ml_figure(pool, count)] =
                    larger(out->peak[ml_figure(pool, count)],
                           atomic_exchange_explicit(peak, 0, RELAXED));
            }
            out->allocated[ml_figure(ML_FIGURE_ALL, count)] = 0;
            out->freed[ml_figure(ML_FIGURE_ALL, count)] = 0;
        }
    }
    for (int pool = 0; pool < ML_POOL_MAX; pool++) {
        for (int count = 0; count < ML_COUNT_MAX; count++) {
            out->allocated[ml_figure(pool, count)] = lap->allocated[pool][count];
            out->freed[ml_figure(pool, count)] = lap->freed[pool][count];
        }
    }
    start_lap(meter, lap);
    for (int count = 0; count < ML_COUNT_MAX; count++) {
        for (int pool = 0; pool < ML_POOL_MAX; pool++) {
            uint64_t allocated =
                lap->allocated[pool][count] - out->allocated[ml_figure(pool, count)];
            uint64_t freed =
                lap->freed[pool][count] - out->freed[ml_figure(pool, count)];
            out->allocated[ml_figure(pool, count)] = allocated;
            out->freed[ml_figure(pool, count)] = freed;
            out->allocated[ml_figure(ML_FIGURE_ALL, count)] += allocated;
            out->freed[ml_figure(ML_FIGURE_ALL, count)] += freed;
        }
        for (int pool = 0; pool < ML_FIGURE_POOLS; pool++) {
            uint64_t now = lap->start[ml_figure(pool, count)];
            out->current[ml_figure(pool, count)] = now;
            out->peak[ml_figure(pool, count)] =
                larger(out->peak[ml_figure(pool, count)], now);
        }
    }
}
