/* Settings of the caching allocator: defaults by version. */
#include "lab/simulator/allocator_settings.h"

#include <string.h>

#include "ledger/ledger.h"

int
ml_allocator_settings_default(ml_allocator_settings *settings, unsigned version)
{
    if (version < 206 || version > 299) {
        return ML_EINVALID;
    }
    memset(settings, 0, sizeof(*settings));
    settings->version = version;
    settings->max_split_bytes = UINT64_MAX;
    settings->large_segment_bytes = ML_LARGE_SEGMENT_BYTES;
    settings->max_non_split_rounding = settings->large_segment_bytes;
    settings->memory_fraction = 1;
    settings->order = version <= 211   ? ML_ORDER_ADDRESS
                      : version == 212 ? ML_ORDER_BLOCK
                                       : ML_ORDER_SEGMENT;
    settings->pools_stop_release = version <= 212;
    settings->lend_first = version >= 211;
    settings->gives_space_back = version >= 215;
    return 0;
}

ml_allocator_rules
ml_allocator_settings_rules(const ml_allocator_settings *settings)
{
    ml_allocator_rules rules = {0};
    rules.max_split_bytes = settings->max_split_bytes;
    memcpy(rules.roundup_divisions, settings->roundup_divisions,
           sizeof(rules.roundup_divisions));
    rules.expandable_segments = settings->expandable_segments;
    rules.has_segments = 1;
    return rules;
}
