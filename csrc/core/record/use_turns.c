/* Follows last uses in some steps.  See use_turns.h. */
#include "record/use_turns.h"

#include "base/base.h"
#include "record/registry.h"

/* The first step makes the optimizer's state; those after it are like all others. */
#define STEPS_IN_TURN 3u
#define FIRST_STEPS (1u + STEPS_IN_TURN)

/* Tables are never freed: a late use may still write to them.  Without memory for its
 * table, a device has no last uses. */
static void
keep(ml_feed *feed, bool wanted)
{
    const ml_source *source = feed->source;
    int devices = wanted ? source->device_count(source->self) : ML_DEVICE_MAX;
    for (int i = 0; i < devices && i < ML_DEVICE_MAX; i++) {
        ml_uses *uses = atomic_load(&feed->logs[i].uses);
        if (uses != NULL) {
            ml_uses_clear(uses);
        }
        else if (wanted && (uses = ml_alloc_zeroed(1, sizeof(*uses))) != NULL) {
            if (ml_uses_init(uses) < 0) {
                ml_free(uses);
                uses = NULL;
            }
            atomic_store(&feed->logs[i].uses, uses);
        }
    }
    atomic_store(&feed->using, wanted);
}

/* An operator that runs meanwhile on another thread is not reported, nor is the use at
 * its end.  So a block's last use counts as known only after one that was reported. */
static void
follow(ml_feed *feed, bool wanted)
{
    if (feed->use_turns.following == wanted) {
        return;
    }
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_uses *uses = atomic_load(&feed->logs[i].uses);
        if (uses != NULL && wanted) {
            ml_uses_resume(uses, ml_lane_end(&feed->logs[i].lane) +
                                     atomic_load(&feed->logs[i].pending));
        }
        else if (uses != NULL) {
            ml_uses_pause(uses);
        }
    }
    feed->use_turns.following = wanted;
    feed->source->watch_uses(feed->source->self, wanted);
}

static bool
has_turn(unsigned every, uint64_t step)
{
    return every != 0 && (step < FIRST_STEPS ||
                          step % ((uint64_t)every * STEPS_IN_TURN) < STEPS_IN_TURN);
}

void
ml_use_turns_set(ml_feed *feed, unsigned every)
{
    if (feed->logs == NULL || feed->source->watch_uses == NULL ||
        atomic_load(&feed->use_turns.every) == every) {
        return;
    }
    if (atomic_load(&feed->using) != (every != 0)) {
        keep(feed, every != 0);
    }
    atomic_store(&feed->use_turns.every, every);
    feed->use_turns.steps = 0;
    follow(feed, has_turn(every, 0));
}

void
ml_use_turns_step(const ml_source *source)
{
    ml_feed *feed = source->feed;
    if (feed == NULL || atomic_load(&feed->use_turns.every) < 2 ||
        pthread_mutex_trylock(&ml_registered.lock) != 0) {
        return;
    }
    unsigned every = atomic_load(&feed->use_turns.every);
    feed->use_turns.steps++;
    follow(feed, has_turn(every, feed->use_turns.steps));
    ml_recorder_unlock();
}
