/* A trial: a workload run through the allocator's model, with given settings and
 * memory.
 *
 * Owns the order in which demands reach the model, its driver, and the resulting
 * figures.
 *
 * At recorded addresses, the trial checks the model: each address, segment event and
 * final block is compared.  Otherwise a placement chooses addresses, which matter only
 * up to torch 2.11. */
#ifndef ML_TRIAL_H
#define ML_TRIAL_H

#include "gpu/placement.h"
#include "lab/simulator/allocator.h"
#include "lab/whatif/schedule.h"
#include "lab/whatif/workload.h"
#include "ledger/blocks.h"

typedef struct ml_trial_options {
    ml_allocator_settings settings;
    /* base of settings.memory_fraction; an expandable segment reserves 9/8 of it */
    uint64_t device_bytes;
    uint64_t
        memory_bytes; /* the driver's memory for the allocator; UINT64_MAX: unlimited */
    /* the memory before the first event is seeded as recorded; else it is requested
     * anew, by address */
    bool recorded_addresses;
    /* the start is seeded at other addresses too, if the memory holds its segments: it
     * was made by the same program, with the same settings */
    bool recorded_start;
    /* continue after an out of memory, without the failed request; else stop there.  A
     * request that failed in the recording never stops the trial. */
    bool go_on;
    /* Bytes: the trial stops if it reserves more, because its figures are then useless.
     * 0: never. */
    uint64_t enough;
    /* At recorded addresses: the trial stops at so many mismatched addresses and segments.
     * 0: never. */
    uint64_t enough_mismatches;
    /* The trial stops after so many demands.  0: never. */
    uint64_t most_demands;
    enum ml_placement_policy placement;
    uint64_t seed; /* of ML_PLACEMENT_SHUFFLED */
    /* Borrowed.  Its order is used if it is of the tried workload; else the trial makes
     * its own. */
    const ml_schedule *schedule;
} ml_trial_options;

typedef struct ml_trial_result {
    uint64_t events;  /* events of the recording up to the trial's end */
    uint64_t demands; /* allocations requested from the model */
    /* The three counts are 0 without recorded_addresses. */
    uint64_t mismatched_addresses; /* allocations at another address */
    /* segment events that only one side made or that differ, and segments that differ
     * at the end */
    uint64_t mismatched_segments;
    /* blocks at the end that only one side has or that differ */
    uint64_t mismatched_blocks;
    bool
        cut; /* stopped by enough_mismatches or most_demands: the rest is not compared */
    bool compared; /* the recording has its final memory */
    /* At recorded addresses: at any other addresses, all else would be the same. */
    bool any_addresses;
    bool placed; /* the placement of segments was asked, and may matter */

    ml_totals peak; /* each total's own peak */
    /* the first event with the most allocated; ML_NO_EVENT: before the first event */
    size_t peak_event;
    size_t reserved_peak_event; /* the same for reserved bytes */
    ml_totals at_reserved_peak;
    /* bytes then of free blocks in used segments, as torch counts them: without
     * expandable segments */
    uint64_t inactive_split;
    uint64_t retries;
    uint64_t driver_calls; /* driver calls that took or gave back memory */
    bool too_much;         /* reserved more than enough: later figures are unknown */
    /* allocated when the request came that failed last in the recording; 0: none did */
    uint64_t at_failure;
    uint64_t ooms;
    size_t oom_event;      /* the first; ML_NO_EVENT: none */
    uint64_t oom_bytes;    /* bytes requested there */
    uint64_t oom_reserved; /* bytes reserved there */
    ml_totals at_end;
    ml_allocator_slack slack; /* of the settings */
} ml_trial_result;

/* The memory of the GPU, as a note tells it; 0: none does.  In trial_options.c. */
uint64_t ml_trial_gpu_memory(const ml_workload *workload);

/* How the recorded run went, as far as it tells: its settings, in the version of torch that
 * is likeliest; unlimited memory, or as much as it seems to have had; addresses as
 * recorded.  In trial_options.c. */
void ml_trial_options_of(const ml_workload *workload, ml_trial_options *out);
/* Runs OPTIONS.  If model and recording differ, it also tries other versions of torch
 * and other limits.  *OPTIONS become those that agree best, with their result in *OUT.
 * Where no version has the addresses of the first demands, these alone decide.  In
 * trial_options.c. */
int ml_trial_check(const ml_workload *workload, ml_trial_options *options,
                   ml_trial_result *out);

/* 0, ML_EINVALID for invalid options, ML_ELIMIT for more segments than any device has,
 * or ML_ENOMEM. */
int ml_trial_run(const ml_workload *workload, const ml_trial_options *options,
                 ml_trial_result *out);

/* Runs until EVENT has had its effect (ML_NO_EVENT: before the first).  Then shows
 * VISITOR the model's memory; the birth of a block in use is its demand's index.
 * Returns as run.  A non-zero return of the visitor stops and becomes the result. */
int ml_trial_visit(const ml_workload *workload, const ml_trial_options *options,
                   size_t event, const ml_ledger_visitor *visitor);

/* The least memory_bytes, to 2 MiB, with which the run does not run out, by bisection.
 * If more memory can be worse, it is one such amount; higher amounts are untested.
 * Returns as run. */
int ml_trial_least_memory(const ml_workload *workload, const ml_trial_options *options,
                          uint64_t *out);

#endif
