/* Keeps a meter and its intervals.  See meter.h. */
#include "ledger/meter.h"

#include <string.h>

#define RELAXED memory_order_relaxed

static uint64_t
load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, RELAXED);
}

static void
store(_Atomic uint64_t *value, uint64_t now)
{
    atomic_store_explicit(value, now, RELAXED);
}

static ml_meter_stat_set
bit(int figure)
{
    return (ml_meter_stat_set)1 << figure;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- Events ---- */

static void
raise_peak(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = load(peak);
    while (seen < value && !atomic_compare_exchange_weak_explicit(peak, &seen, value,
                                                                  RELAXED, RELAXED)) {
    }
}

/* The caller is the interval's own thread, so no other begins the next interval now. */
static void
move_own(const ml_meter *meter, ml_meter_interval *interval, ml_meter_stat_set moved,
         ml_meter_stat_set rose)
{
    ml_meter_stat_set before = load(&interval->moved);
    for (ml_meter_stat_set first = moved & ~before; first != 0; first &= first - 1) {
        store(&interval->peak[__builtin_ctzll(first)], 0);
    }
    store(&interval->moved, before | moved);
    for (; rose != 0; rose &= rose - 1) {
        int figure = __builtin_ctzll(rose);
        store(&interval->peak[figure],
              larger(load(&interval->peak[figure]), load(&meter->current[figure])));
    }
}

/* The interval's thread reads peaks after the moved set, and counts last.  So a rise
 * at this moment is in one interval's peak, or in the counts with which the next
 * starts. */
static void
move_other(const ml_meter *meter, ml_meter_interval *interval, ml_meter_stat_set moved,
           ml_meter_stat_set rose)
{
    for (; rose != 0; rose &= rose - 1) {
        int figure = __builtin_ctzll(rose);
        raise_peak(&interval->others_peak[figure], load(&meter->current[figure]));
    }
    atomic_fetch_or_explicit(&interval->others_moved, moved, memory_order_release);
}

/* THREAD has changed the figures MOVED; those in ROSE rose. */
static void
move_laps(ml_meter *meter, uint32_t thread, ml_meter_stat_set moved,
          ml_meter_stat_set rose)
{
    uint32_t intervals = atomic_load_explicit(&meter->taken, memory_order_acquire);
    for (; intervals != 0; intervals &= intervals - 1) {
        ml_meter_interval *interval = &meter->intervals[__builtin_ctz(intervals)];
        if (atomic_load_explicit(&interval->thread, RELAXED) == thread) {
            move_own(meter, interval, moved, rose);
        }
        else {
            move_other(meter, interval, moved, rose);
        }
    }
}

static void
set_figure(ml_meter *meter, int figure, uint64_t value)
{
    uint64_t sums = load(&meter->allocated[figure]) - load(&meter->freed[figure]);
    store(&meter->base[figure], value - sums);
    store(&meter->current[figure], value);
}

void
ml_meter_set(ml_meter *meter, const ml_pool_stats *counts)
{
    meter->followed = *counts;
    for (int count = 0; count < ML_POOL_STAT_MAX; count++) {
        uint64_t all = 0;
        for (int pool = 0; pool < ML_POOL_MAX; pool++) {
            set_figure(meter, ml_meter_stat(pool, count), counts->of[pool][count]);
            all += counts->of[pool][count];
        }
        set_figure(meter, ml_meter_stat(ML_METER_STAT_ALL, count), all);
    }
    /* No thread has the number 0. */
    move_laps(meter, 0, bit(ML_METER_STAT_COUNT) - 1, 0);
    atomic_fetch_add_explicit(&meter->events, 1, memory_order_release);
}

/* FIGURE changes from BEFORE to NOW; one thread changes it at a time. */
static void
change(ml_meter *meter, int figure, uint64_t before, uint64_t now)
{
    _Atomic uint64_t *sum =
        now > before ? &meter->allocated[figure] : &meter->freed[figure];
    uint64_t amount = now > before ? now - before : before - now;
    store(sum, load(sum) + amount);
    store(&meter->current[figure], load(&meter->current[figure]) + (now - before));
}

void
ml_meter_follow(ml_meter *meter, uint32_t thread, const ml_pool_stats *counts)
{
    ml_meter_stat_set moved = 0, rose = 0;
    for (int pool = 0; pool < ML_POOL_MAX; pool++) {
        uint64_t *followed = meter->followed.of[pool];
        const uint64_t *of = counts->of[pool];
        if (memcmp(followed, of, sizeof(meter->followed.of[pool])) == 0) {
            continue;
        }
        for (int count = 0; count < ML_POOL_STAT_MAX; count++) {
            if (of[count] == followed[count]) {
                continue;
            }
            int figure = ml_meter_stat(pool, count);
            int all = ml_meter_stat(ML_METER_STAT_ALL, count);
            change(meter, figure, followed[count], of[count]);
            change(meter, all, followed[count], of[count]);
            moved |= bit(figure) | bit(all);
            rose |= of[count] > followed[count] ? bit(figure) | bit(all) : 0;
            followed[count] = of[count];
        }
    }
    move_laps(meter, thread, moved, rose);
    atomic_store_explicit(&meter->events, load(&meter->events) + 1,
                          memory_order_release);
}

void
ml_meter_add(ml_meter *meter, uint32_t thread, uint64_t bytes, bool freed)
{
    static const struct {
        int count;
        bool bytes;
    } counts[] = {
        {ML_POOL_STAT_allocation, false},    {ML_POOL_STAT_active, false},
        {ML_POOL_STAT_segment, false},       {ML_POOL_STAT_allocated_bytes, true},
        {ML_POOL_STAT_reserved_bytes, true}, {ML_POOL_STAT_active_bytes, true},
        {ML_POOL_STAT_requested_bytes, true}};
    static const int pools[] = {ML_POOL_LARGE, ML_METER_STAT_ALL};
    ml_meter_stat_set moved = 0;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint64_t amount = counts[i].bytes ? bytes : 1;
        for (size_t j = 0; j < sizeof(pools) / sizeof(pools[0]); j++) {
            int figure = ml_meter_stat(pools[j], counts[i].count);
            atomic_fetch_add_explicit(&meter->current[figure], freed ? -amount : amount,
                                      RELAXED);
            atomic_fetch_add_explicit(freed ? &meter->freed[figure]
                                            : &meter->allocated[figure],
                                      amount, RELAXED);
            moved |= bit(figure);
        }
    }
    move_laps(meter, thread, moved, freed ? 0 : moved);
    atomic_fetch_add_explicit(&meter->events, 1, memory_order_release);
}

/* ---- Intervals ---- */

/* The interval starts with FIGURE's current value.  If another thread is changing it,
 * the sums are read again until they match.  A thread stopped inside a change has
 * already added to its sum; the rest follows. */
static void
start_figure(const ml_meter *meter, ml_meter_interval *interval, int figure)
{
    for (int tries = 0; tries < 100; tries++) {
        uint64_t now = load(&meter->current[figure]);
        interval->allocated[figure] = load(&meter->allocated[figure]);
        interval->freed[figure] = load(&meter->freed[figure]);
        interval->start[figure] = load(&meter->base[figure]) +
                                  interval->allocated[figure] - interval->freed[figure];
        if (interval->start[figure] == now) {
            return;
        }
    }
}

/* Claims a free interval; -1: none. */
static int
claim_interval(ml_meter *meter)
{
    uint32_t claimed = atomic_load_explicit(&meter->claimed, RELAXED);
    int interval;
    do {
        interval = __builtin_ctz(~claimed);
        if (interval >= ML_METER_INTERVAL_MAX) {
            return -1;
        }
    } while (!atomic_compare_exchange_weak(&meter->claimed, &claimed,
                                           claimed | 1u << interval));
    return interval;
}

int
ml_meter_begin_interval(ml_meter *meter, uint32_t thread, ml_meter_stats *now)
{
    int number = claim_interval(meter);
    if (number < 0) {
        return -1;
    }
    ml_meter_interval *interval = &meter->intervals[number];
    memset(now, 0, sizeof(*now));
    atomic_store_explicit(&interval->thread, thread, RELAXED);
    store(&interval->moved, 0);
    store(&interval->others_moved, 0);
    for (int figure = 0; figure < ML_METER_STAT_COUNT; figure++) {
        store(&interval->others_peak[figure], 0);
    }
    atomic_fetch_or(&meter->taken, 1u << number);
    for (int figure = 0; figure < ML_METER_STAT_COUNT; figure++) {
        start_figure(meter, interval, figure);
        now->current[figure] = now->peak[figure] = interval->start[figure];
    }
    return number;
}

void
ml_meter_end_interval(ml_meter *meter, int interval)
{
    atomic_fetch_and(&meter->taken, ~(1u << interval));
    atomic_fetch_and(&meter->claimed, ~(1u << interval));
}

/* The maximum of FIGURE in INTERVAL, without its current value. */
static uint64_t
take_peak(ml_meter_interval *interval, int figure, ml_meter_stat_set own,
          ml_meter_stat_set others)
{
    uint64_t peak = interval->start[figure];
    if (own & bit(figure)) {
        peak = larger(peak, load(&interval->peak[figure]));
    }
    if (others & bit(figure)) {
        peak = larger(
            peak, atomic_exchange_explicit(&interval->others_peak[figure], 0, RELAXED));
    }
    return peak;
}

ml_meter_stat_set
ml_meter_next_interval(ml_meter *meter, int number, ml_meter_stats *figures)
{
    ml_meter_interval *interval = &meter->intervals[number];
    ml_meter_stat_set others = atomic_load_explicit(&interval->others_moved, RELAXED);
    if (others != 0) {
        others =
            atomic_exchange_explicit(&interval->others_moved, 0, memory_order_acquire);
    }
    ml_meter_stat_set own = load(&interval->moved);
    ml_meter_stat_set moved = own | others;
    for (ml_meter_stat_set rest = moved; rest != 0; rest &= rest - 1) {
        int i = __builtin_ctzll(rest);
        uint64_t peak = take_peak(interval, i, own, others);
        uint64_t allocated = interval->allocated[i], freed = interval->freed[i];
        start_figure(meter, interval, i);
        figures->current[i] = interval->start[i];
        figures->peak[i] = larger(peak, interval->start[i]);
        figures->allocated[i] = interval->allocated[i] - allocated;
        figures->freed[i] = interval->freed[i] - freed;
    }
    store(&interval->moved, 0);
    return moved;
}

void
ml_meter_stats_settle(ml_meter_stats *figures, ml_meter_stat_set moved)
{
    for (; moved != 0; moved &= moved - 1) {
        int i = __builtin_ctzll(moved);
        figures->peak[i] = figures->current[i];
        figures->allocated[i] = 0;
        figures->freed[i] = 0;
    }
}

uint64_t
ml_meter_events(const ml_meter *meter)
{
    return atomic_load_explicit(&meter->events, memory_order_acquire);
}
