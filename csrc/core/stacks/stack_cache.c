/* Keeps each thread's last walk over its frames.  See stack_cache.h.
 *
 * The first threads have a slot each forever.  The callback cannot learn that a thread
 * has ended, so later ones share the other slots, each behind a flag. */

#include "stacks/stack_cache.h"

#include "base/system/thread_number.h"
#include "stacks/stacks_records.h"

#define OWN_PLACES 64u
#define SHARED_PLACES 64u

/* The slot of this thread in every table, from 1; 0: it has none yet.  Initial-exec: the
 * first touch of lazily allocated TLS would call malloc. */
static __thread uint32_t slot __attribute__((tls_model("initial-exec")));

int
ml_stack_caches_init(ml_region *caches)
{
    const size_t bytes = (OWN_PLACES + SHARED_PLACES) * sizeof(ml_stack_cache);

    return ml_region_init(caches, bytes, bytes);
}

ml_stack_cache *
ml_stack_cache_take(const ml_stacks *stacks)
{
    ml_stack_cache *first = stacks->caches.base;

    if (first == NULL) {
        return NULL;
    }
    if (slot == 0) {
        uint32_t number = ml_thread_number();
        slot = number <= OWN_PLACES ? number : OWN_PLACES + 1 + number % SHARED_PLACES;
    }
    ml_stack_cache *mine = first + (slot - 1);
    if (slot > OWN_PLACES &&
        atomic_exchange_explicit(&mine->busy, 1, memory_order_acquire) != 0) {
        return NULL;
    }
    uint64_t epoch = stacks_epoch(stacks);
    if (mine->epoch != epoch) {
        mine->walked.count = 0;
        mine->epoch = epoch;
    }
    return mine;
}
