/* Keeps each thread's last walk over its frames.  See stack_cache.h.
 *
 * The first threads have a slot each forever.  The callback cannot learn that a thread
 * has ended, so later ones share the other slots, each behind a flag. */

#include "stacks/stack_cache.h"

#include "base/system/region.h"
#include "memlab.h"

#define OWN_PLACES 64u
#define SHARED_PLACES 64u

static struct {
    _Atomic(ml_stack_cache *) places; /* owned, never freed; NULL: none */
    _Atomic uint32_t threads;         /* number of threads with a slot */
} caches;

/* Initial-exec: the first touch of lazily allocated TLS would call malloc. */
static __thread ml_stack_cache *mine __attribute__((tls_model("initial-exec")));

int
ml_stack_cache_init(void)
{
    const size_t bytes = (OWN_PLACES + SHARED_PLACES) * sizeof(ml_stack_cache);

    if (atomic_load(&caches.places) != NULL) {
        return 0;
    }
    ml_region region;
    int error = ml_region_init(&region, bytes, bytes);
    if (error == 0) {
        atomic_store(&caches.places, region.base);
    }
    return error;
}

ml_stack_cache *
ml_stack_cache_take(void)
{
    ml_stack_cache *first = atomic_load_explicit(&caches.places, memory_order_acquire);

    if (first == NULL) {
        return NULL;
    }
    if (mine == NULL) {
        uint32_t number =
            atomic_fetch_add_explicit(&caches.threads, 1, memory_order_relaxed);
        mine = first +
               (number < OWN_PLACES ? number : OWN_PLACES + number % SHARED_PLACES);
    }
    if (mine - first >= (ptrdiff_t)OWN_PLACES &&
        atomic_exchange_explicit(&mine->busy, 1, memory_order_acquire) != 0) {
        return NULL;
    }
    return mine;
}

void
ml_stack_cache_give_back(ml_stack_cache *recall)
{
    atomic_store_explicit(&recall->busy, 0, memory_order_release);
}
