/* cuBLAS's workspaces, where they are most of the peak: one of each thread that multiplies
 * matrices and of each stream, of a size that CUBLAS_WORKSPACE_CONFIG sets. */
#include "lab/advice/advice_rules.h"

#include <stdio.h>

#include "analysis/attribution/workspace.h"

/* The smallest that NVIDIA documents: 8 buffers of 16 KiB. */
#define CONF ":16:8"
#define BYTES (8 * (16 << 10))
/* Of the peak, by which matrix products that may become slower are worth it. */
#define LEAST_PART 2

/* Other libraries have workspaces too. */
static bool
is_cublas(const ml_advice_case *it, size_t demand)
{
    uint64_t bytes = it->workload->demands[demand].bytes;
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_WORKSPACE &&
           (ml_workspace_has_size(bytes) || bytes == ML_WORKSPACE_LIGHT);
}

int
ml_advise_workspaces(const ml_advice_case *it, ml_proposals *out)
{
    const ml_demand *demands = it->workload->demands;
    uint64_t bytes = 0;
    uint64_t blocks = 0;
    for (size_t i = 0; i < it->workload->count; i++) {
        if (is_cublas(it, i) && ml_demand_at_peak(it, i)) {
            bytes += demands[i].block_bytes;
            blocks++;
        }
    }
    if (bytes == 0 || bytes < it->before.peak.allocated / LEAST_PART) {
        return 0;
    }
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_WORKSPACES);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->bytes = bytes;
    advice->blocks = blocks;
    snprintf(advice->conf, sizeof(advice->conf), "%s", CONF);
    int error = 0;
    for (size_t i = 0; error == 0 && i < it->workload->count; i++) {
        if (is_cublas(it, i)) {
            ml_edit edit = {.kind = ML_EDIT_RESIZE, .demand = i, .bytes = BYTES};
            error = ml_advice_edit(advice, edit);
        }
    }
    return error;
}
