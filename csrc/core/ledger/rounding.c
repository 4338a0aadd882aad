/* Computes the allocator's sizes.  See rounding.h. */
#include "ledger/rounding.h"

/* From this many bytes on, a block without a free one gets a segment of its own, in
 * this unit. */
#define OWN_SEGMENT_LEAST (UINT64_C(10) << 20)
#define OWN_SEGMENT_UNIT (UINT64_C(2) << 20)

uint64_t
ml_allocator_round(const ml_allocator_rules *rules, uint64_t requested)
{
    if (!rules->has_segments || requested > UINT64_MAX / 4) {
        return requested;
    }
    if (requested < ML_MINIMUM_BLOCK_BYTES) {
        return ML_MINIMUM_BLOCK_BYTES;
    }
    unsigned log = 63u - (unsigned)__builtin_clzll(requested);
    unsigned interval = log <= 20 ? 0 : log >= 35 ? 15 : log - 20;
    uint64_t divisions = rules->roundup_divisions[interval];
    if (divisions > 1 && requested > ML_MINIMUM_BLOCK_BYTES * divisions) {
        uint64_t power = UINT64_C(1) << log;
        if (requested == power) {
            return requested;
        }
        uint64_t step = power >> (63u - (unsigned)__builtin_clzll(divisions));
        if (step == 0) {
            return 2 * power;
        }
        return (requested + step - 1) & ~(step - 1);
    }
    return (requested + ML_MINIMUM_BLOCK_BYTES - 1) &
           ~(uint64_t)(ML_MINIMUM_BLOCK_BYTES - 1);
}

uint64_t
ml_segment_bytes(uint64_t bytes, uint64_t large)
{
    if (bytes <= ML_SMALL_BLOCK_BYTES) {
        return ML_SMALL_SEGMENT_BYTES;
    }
    if (bytes < OWN_SEGMENT_LEAST) {
        return large;
    }
    if (bytes > UINT64_MAX - OWN_SEGMENT_UNIT) {
        return UINT64_MAX;
    }
    return (bytes + OWN_SEGMENT_UNIT - 1) / OWN_SEGMENT_UNIT * OWN_SEGMENT_UNIT;
}

bool
ml_allocator_rounds_plainly(const ml_allocator_rules *rules)
{
    uint32_t most = 0;
    for (size_t i = 0; i < 16; i++) {
        most |= rules->roundup_divisions[i];
    }
    return rules->has_segments && most <= 1;
}
