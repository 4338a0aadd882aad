/* An allocator that fails on request: after BUDGET allocations every further one fails,
 * and what is alive is counted.  Loop the budget up from 0 until the operation succeeds
 * and every point of failure has been passed once. */
#ifndef ML_TEST_BUDGET_H
#define ML_TEST_BUDGET_H

#include <stdlib.h>

#include "base.h"

static long budget_left;
static long budget_alive;

static inline void *
budget_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        budget_alive -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget_left == 0) {
        return NULL;
    }
    budget_left--;
    void *moved = realloc(pointer, bytes);
    budget_alive += pointer == NULL && moved != NULL;
    return moved;
}

static inline void
budget_begin(long budget)
{
    budget_left = budget;
    budget_alive = 0;
    ml_set_realloc(budget_realloc);
}

static inline void
budget_end(void)
{
    ml_set_realloc(NULL);
}

#endif
