/* A trial: a workload given to the model of the allocator, under settings and with an
 * amount of memory.
 *
 * Owns the order in which demands reach the model, the driver that gives it memory, and
 * the figures of what came of it.
 *
 * Where segments go to the addresses that they had in the recording, the trial is a check
 * of the model: each address, segment event and block at the end is compared.  Else a
 * placement puts them somewhere, which matters up to torch 2.11 alone. */
#ifndef ML_TRIAL_H
#define ML_TRIAL_H

#include "gpu/placement.h"
#include "lab/simulator/allocator.h"
#include "lab/whatif/schedule.h"
#include "lab/whatif/workload.h"
#include "ledger/blocks.h"

typedef struct ml_trial_options {
    ml_allocator_settings settings;
    uint64_t device_bytes; /* of which settings.memory_fraction is; address space of an
                              expandable segment is 9/8 of it */
    uint64_t
        memory_bytes; /* that the driver has for the allocator; UINT64_MAX: endless */
    bool recorded_addresses; /* and the memory in use before the first event as it was;
                                else that is asked for anew, by address */
    bool go_on; /* after memory ran out, without what was asked; else it ends there.  A
                   request that failed in the recording never ends it. */
    /* Bytes: where more are reserved it ends, as its figures are of no use then.  0: they
     * always are. */
    uint64_t enough;
    enum ml_placement_policy placement;
    uint64_t seed; /* of ML_PLACEMENT_SHUFFLED */
    /* Borrowed.  Where it is of the workload that is tried, its order is taken from here; else
     * one is made for the trial. */
    const ml_schedule *schedule;
} ml_trial_options;

typedef struct ml_trial_result {
    uint64_t events;  /* of the recording, all or those until it ended */
    uint64_t demands; /* allocations that were asked of the model */
    /* With recorded_addresses alone; else 0. */
    uint64_t mismatched_addresses; /* allocations at another address */
    uint64_t mismatched_segments;  /* segment events that only one of the two made, or
                                      made otherwise; and segments that differ at the end */
    uint64_t mismatched_blocks;    /* at the end, that only one has, or otherwise */
    bool compared;                 /* the recording has its memory at the end */

    ml_totals peak;    /* of each alone */
    size_t peak_event; /* after which most was allocated, first; ML_NO_EVENT: before
                                   the first */
    size_t reserved_peak_event; /* likewise of reserved bytes */
    ml_totals at_reserved_peak;
    uint64_t inactive_split; /* bytes there, of free blocks in segments in use, as torch
                                counts them: not of expandable segments */
    uint64_t retries;
    uint64_t driver_calls; /* that took memory or gave it back */
    bool
        too_much; /* more was reserved than would be enough: what follows is not known */
    uint64_t ooms;
    size_t oom_event;      /* the first; ML_NO_EVENT: none */
    uint64_t oom_bytes;    /* that were asked for there */
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
/* Runs them, as run; where the model and the recording part, also with other versions of
 * torch and other limits.  *OPTIONS become those that agree best, *OUT what came of them.
 * In trial_options.c. */
int ml_trial_check(const ml_workload *workload, ml_trial_options *options,
                   ml_trial_result *out);

/* 0, ML_EINVALID for options that make no sense, ML_ELIMIT for more segments than any
 * device has, or ML_ENOMEM. */
int ml_trial_run(const ml_workload *workload, const ml_trial_options *options,
                 ml_trial_result *out);

/* Runs until EVENT has had its effect (ML_NO_EVENT: to before the first), then shows
 * VISITOR the model's memory; the birth of a block in use is the index of its demand.  As
 * run; a non-zero return of the visitor stops and becomes the result. */
int ml_trial_visit(const ml_workload *workload, const ml_trial_options *options,
                   size_t event, const ml_ledger_visitor *visitor);

/* The least memory_bytes, to 2 MiB, with which it does not run out; found by halving, so
 * that where more memory can be worse it is one such and all above were not tried.  As
 * run. */
int ml_trial_least_memory(const ml_workload *workload, const ml_trial_options *options,
                          uint64_t *out);

#endif
