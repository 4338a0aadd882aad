/* An allocator that fails on request: after BUDGET allocations every further one fails, or
 * one alone, and what is alive is counted.  Loop the budget up from 0 until the operation
 * succeeds and every point of failure has been passed once.  One failure alone shows what
 * goes on after it, as when a later allocation needs less. */
#ifndef ML_TEST_BUDGET_H
#define ML_TEST_BUDGET_H

#include <stdlib.h>

#include "base/base.h"
#include "test.h"

/* Between budgets, where an operation has hundreds of points of failure and is slow under
 * the sanitizers: these see each ninth, and each is passed without them. */
#define BUDGET_STEP (UNDER_SANITIZER ? 9 : 1)

static long budget_left;
static long budget_alive;
static int budget_fails_once;

static inline void *
budget_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        budget_alive -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget_left == 0) {
        budget_left -= budget_fails_once;
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
    budget_fails_once = 0;
    ml_set_realloc(budget_realloc);
}

/* Of the allocations from now on the one after BUDGET fails, and no other. */
static inline void
budget_begin_once(long budget)
{
    budget_begin(budget);
    budget_fails_once = 1;
}

static inline void
budget_end(void)
{
    ml_set_realloc(NULL);
}

#endif
