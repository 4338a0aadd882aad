/* The workspaces of cuBLAS, recognised by size: torch keeps one for each handle and
 * stream, for the whole run. */
#ifndef ML_WORKSPACE_H
#define ML_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

/* 8 MiB and 128 KiB, which hardly a tensor has; on an H100 or later 32 MiB. */
#define ML_WORKSPACE_ODD 8519680
#define ML_WORKSPACE_EVEN 33554432

static inline bool
ml_workspace_has_size(uint64_t size)
{
    return size == ML_WORKSPACE_ODD || size == ML_WORKSPACE_EVEN;
}

#endif
