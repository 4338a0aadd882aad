/* Events for a ledger, and what it must say after them. */
#ifndef ML_TEST_LEDGER_SAMPLES_H
#define ML_TEST_LEDGER_SAMPLES_H

#include "block_model.h"
#include "ledger/ledger.h"
#include "test.h"

static const ml_allocator_rules defaults = {.max_split_bytes = UINT64_MAX,
                                            .has_segments = 1};

static inline int
apply(ml_ledger *ledger, enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event event = make_event(action, addr, size);
    return ml_ledger_apply(ledger, &event);
}

#define CHECK_TOTALS(ledger, allocated_, active_, requested_, reserved_) \
    do { \
        const ml_totals *now_ = ml_ledger_current(ledger); \
        CHECK_UINT(now_->allocated, allocated_); \
        CHECK_UINT(now_->active, active_); \
        CHECK_UINT(now_->requested, requested_); \
        CHECK_UINT(now_->reserved, reserved_); \
    } while (0)

#endif
