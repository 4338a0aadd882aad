/* The pools of the allocator model: the default one, and private ones of CUDA graphs
 * and torch.cuda.MemPool.
 *
 * Owns the making of pools, which of them currently take requests, and their users.
 * The caller chooses the pool of a request.  torch asks the begun pools, the latest
 * first (before 2.9, the earliest first). */
#include <string.h>

#include "lab/simulator/allocator_parts.h"

typedef struct pool_key {
    const ml_allocator *allocator;
    const uint32_t *id;
} pool_key;

static bool
is_pool(const void *context, uint32_t index)
{
    const pool_key *key = context;
    const uint32_t *id = key->allocator->pools[index].id;
    return id[0] == key->id[0] && id[1] == key->id[1];
}

int64_t
ml_allocator_pool(ml_allocator *a, const uint32_t id[2])
{
    if (id[0] == 0 && id[1] == 0) {
        return 0;
    }
    uint64_t hash = ml_hash_u64(((uint64_t)id[0] << 32) | id[1]);
    pool_key key = {a, id};
    uint32_t index;
    if (ml_intern_find(&a->pool_ids, hash, is_pool, &key, &index)) {
        return index;
    }
    int error = ml_grow((void **)&a->pools, &a->pool_capacity, a->pool_count + 1,
                        sizeof(*a->pools));
    if (error == 0) {
        error = ml_intern_add(&a->pool_ids, hash);
    }
    if (error != 0) {
        return error;
    }
    ml_memory_pool *pool = &a->pools[a->pool_count];
    memset(pool, 0, sizeof(*pool));
    pool->id[0] = id[0];
    pool->id[1] = id[1];
    pool->use_count = 1;
    return (int64_t)a->pool_count++;
}

uint64_t
ml_pool_place(const ml_memory_pool *pool)
{
    const uint32_t *id = pool->id;
    return (id[0] != 0 ? id[0] : id[1]) * UINT64_C(11400714819323198485);
}

size_t
ml_pool_next(const ml_allocator *a, size_t pool)
{
    uint64_t after = pool != 0 ? ml_pool_place(&a->pools[pool]) : 0, least = 0;
    size_t next = 0;
    for (size_t i = 1; i < a->pool_count; i++) {
        uint64_t place = ml_pool_place(&a->pools[i]);
        bool later = place > after || (place == after && i > pool);
        if (later && (next == 0 || place < least)) {
            next = i;
            least = place;
        }
    }
    return next;
}

/* Whether a pool with FLAGS delays frees and releases while it is begun. */
static bool
stops_release(const ml_allocator *a, unsigned flags)
{
    return a->settings.pools_stop_release || (flags & ML_POOL_CAPTURE) != 0;
}

int
ml_allocator_pool_begin(ml_allocator *a, const uint32_t id[2], unsigned flags)
{
    size_t before = a->pool_count;
    int64_t index = ml_allocator_pool(a, id);
    if (index <= 0) {
        return index < 0 ? (int)index : ML_EINVALID;
    }
    ml_memory_pool *pool = &a->pools[index];
    if (pool->begun != 0) {
        return ML_EINVALID; /* torch: "already recording to mempool_id" */
    }
    if ((size_t)index < before) {
        pool->use_count++;
    }
    pool->flags = flags;
    pool->begun = 1;
    a->captures += stops_release(a, flags);
    return 0;
}

int
ml_allocator_pool_end(ml_allocator *a, const uint32_t id[2])
{
    int64_t index = ml_allocator_pool(a, id);
    if (index <= 0 || a->pools[index].begun == 0) {
        return index < 0 ? (int)index : ML_EINVALID;
    }
    a->pools[index].begun = 0;
    a->captures -= stops_release(a, a->pools[index].flags);
    return 0;
}

int
ml_allocator_pool_release(ml_allocator *a, const uint32_t id[2])
{
    int64_t index = ml_allocator_pool(a, id);
    if (index <= 0 || a->pools[index].use_count == 0) {
        return index < 0 ? (int)index : ML_EINVALID;
    }
    if (--a->pools[index].use_count == 0) {
        a->pools[index].flags &= ~ML_POOL_USE_ON_OOM;
    }
    return 0;
}

int
ml_allocator_pool_use(ml_allocator *a, const uint32_t id[2])
{
    int64_t index = ml_allocator_pool(a, id);
    if (index > 0 && a->pools[index].use_count == 0) {
        a->pools[index].use_count = 1;
    }
    return index < 0 ? (int)index : 0;
}
