/* Settings of torch's caching allocator for CUDA.
 *
 * Owns their defaults by version of torch, and the text form of
 * PYTORCH_CUDA_ALLOC_CONF. */
#ifndef ML_ALLOCATOR_SETTINGS_H
#define ML_ALLOCATOR_SETTINGS_H

#include <stdbool.h>

#include "memlab.h"

/* The order of free blocks of one size. */
enum ml_block_order {
    ML_ORDER_ADDRESS, /* torch <= 2.11: by address */
    ML_ORDER_BLOCK,   /* 2.12: by the making of the block */
    ML_ORDER_SEGMENT  /* >= 2.13: by the making of the segment, then address */
};

typedef struct ml_allocator_settings {
    uint64_t max_split_bytes;        /* UINT64_MAX: unlimited */
    uint64_t max_non_split_rounding; /* bytes */
    uint64_t large_segment_bytes;    /* of a segment for requests below 10 MiB */
    uint32_t roundup_divisions[16];  /* per power of two from 1 MiB on; 0 or 1: off */
    double gc_threshold;             /* of the allowed memory; 0: off */
    double memory_fraction;          /* of the device's memory; 1: no limit */
    bool limited;                    /* memory_fraction was set, even to 1 */
    bool expandable_segments;
    bool reject_early;  /* throw_on_cudamalloc_oom: refuse before the driver is asked */
    bool capture_reuse; /* graph_capture_record_stream_reuse */
    /* From the version. */
    unsigned version; /* 211: torch 2.11 */
    enum ml_block_order order;
    bool
        /* any pool in use delays frees, not only a capture (<= 2.12) */
        pools_stop_release;
    bool lend_first; /* pools for use on OOM are asked before memory is released */
} ml_allocator_settings;

/* VERSION: 206 to 299, as 100 * major + minor; others are ML_EINVALID. */
int ml_allocator_settings_default(ml_allocator_settings *settings, unsigned version);

/* Changes SETTINGS by CONF, such as "expandable_segments:True,max_split_size_mb:128",
 * as torch would.  max_split_size, the divisions and the threshold return to their
 * defaults if CONF does not name them.  0; ML_ENOMEM; or ML_EINVALID with a sentence in
 * PROBLEM of PROBLEM_BYTES (cut if too long; NULL and 0: not wanted).  On failure
 * SETTINGS stays as it was. */
int ml_allocator_settings_parse(ml_allocator_settings *settings, const char *conf,
                                char *problem, size_t problem_bytes);

/* The part of SETTINGS that a ledger needs. */
ml_allocator_rules ml_allocator_settings_rules(const ml_allocator_settings *settings);

#endif
