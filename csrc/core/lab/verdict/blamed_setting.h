/* The allocator setting that holds cache: the one of PYTORCH_CUDA_ALLOC_CONF without which a
 * trial of the run reserves less. */
#ifndef ML_BLAMED_SETTING_H
#define ML_BLAMED_SETTING_H

#include "lab/advice/advice_case.h"

typedef struct ml_blamed_setting {
    char setting
        [ML_ADVICE_CONF_BYTES]; /* as it was set, "max_split_size_mb:64"; "": none */
    char instead[ML_ADVICE_CONF_BYTES]; /* all others; "": none are left */
    uint64_t saving;                    /* reserved bytes */
} ml_blamed_setting;

/* Of the run of RECORDING on DEVICE the one that saves most, and at least a fourth of UNUSED
 * bytes.  As ml_workload_new. */
int ml_blamed_setting_find(const ml_recording *recording, size_t device,
                           uint64_t unused, ml_blamed_setting *out);

#endif
