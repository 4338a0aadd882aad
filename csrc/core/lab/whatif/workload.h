/* A workload: what a program asked of the allocator on one device, without addresses.
 *
 * Owns the demands, one for each block, and the recording's other facts about the
 * program: when it gave back cache, which requests failed, what was live before the
 * first event.
 *
 * Demands can be edited to try another program.  Copy the workload, set the demands'
 * bytes or events, and pass the copy to ml_trial_run. */
#ifndef ML_WORKLOAD_H
#define ML_WORKLOAD_H

#include <stdbool.h>

#include "lab/whatif/stream_pools.h"
#include "recording/recording.h"

/* An event that never comes, or came before the recording. */
#define ML_NO_EVENT ((size_t)UINT32_MAX)

typedef struct ml_demand {
    uint64_t bytes;       /* requested; 0: never made */
    uint64_t addr;        /* as recorded */
    uint64_t block_bytes; /* recorded size of its block */
    uint32_t stream_pool; /* index among those of the workload */
    uint32_t stack;       /* stack id of its allocation; 0: none */
    uint32_t born;        /* event; ML_NO_EVENT: before the recording */
    uint32_t freed;       /* event of FREE_REQUESTED; ML_NO_EVENT: never */
    uint32_t
        completed; /* event of FREE_COMPLETED; ML_NO_EVENT: never; not before freed */
    /* Event before which its last operator had ended, so that it could have been freed;
     * inferred if the trace's uses are sampled.  ML_NO_EVENT: unknown. */
    uint32_t last_used;
} ml_demand;

enum ml_mark_kind {
    ML_MARK_EMPTY_CACHE, /* the program gave its cache back */
    ML_MARK_POOL_DONE,   /* POOL has no user until its next request */
    ML_MARK_EMPTY_POOL,  /* and its memory goes back, though the cache stays */
    ML_MARK_OOM          /* a request of BYTES failed */
};

typedef struct ml_mark {
    size_t event; /* right before this event's own effect */
    size_t end;   /* event after its releases; for ML_MARK_OOM, equal to event */
    uint64_t bytes;
    uint64_t stream;
    uint32_t pool[2];
    uint8_t kind; /* enum ml_mark_kind */
    uint8_t pad[7];
} ml_mark;

/* Why a workload may differ from the program's requests; JSON values. */
#define ML_DOUBTS(XX) \
    XX(OVERWRITTEN, "events were overwritten by newer ones") \
    XX(DROPPED, "events were not recorded") \
    XX(BEFORE, "memory was in use before the recording began") \
    XX(NO_END, "the file has no memory at the end of the recording") \
    XX(MISFITS, "events do not fit the blocks that there were") \
    XX(UNCERTAIN, "the size of blocks from before the recording is not settled") \
    XX(DEFERRED, "frees waited for other streams, as long as in the recording") \
    XX(FAILED, "a request failed: what would have come after it is not recorded") \
    /* Doubts of a trial. */ \
    XX(MODEL, "the model does not replay the recording exactly") \
    XX(LIMIT, "the limit on memory is known between two bounds only") \
    XX(ADDRESSES, "the order of the addresses that the driver gives decides")

enum ml_doubt {
#define XX(name, text) ML_DOUBT_##name,
    ML_DOUBTS(XX)
#undef XX
    ML_DOUBT_COUNT
};

typedef struct ml_workload {
    ml_demand
        /* owned; first those from before the recording, by address; then by birth */
        *demands;
    size_t count;
    size_t before_count; /* of these, from before the recording */

    /* A copy borrows the members below from its original and does not edit them. */
    const ml_recording *recording; /* borrowed */
    size_t device;
    const ml_device_trace *trace; /* of device, in recording */
    const uint32_t *of_event;     /* by event: 1 + its demand; 0: none */
    uint32_t *own_of_event;       /* owned; NULL: of_event is that of the lifetimes */
    ml_stream_pools stream_pools;
    ml_mark *marks; /* by event */
    size_t mark_count;
    /* The start: segments by address, and each demand's enum ml_block_state.  A pending
     * demand has only a completion. */
    ml_segment *segments;
    size_t segment_count;
    uint8_t *before_states;
    ml_totals peak; /* each total's own peak in the recording */
    /* The least sum of reserved and requested bytes that was refused; UINT64_MAX: none.
     * A limit lies below this sum, and not below peak.reserved. */
    uint64_t refused;
    bool failed; /* a request failed for want of memory */
    /* The limit in an out of memory's note: the device's memory (by_driver) or the
     * process's allowance; UINT64_MAX: unknown. */
    uint64_t limit;
    bool by_driver;
    /* The least reserved bytes at which garbage was collected; UINT64_MAX: never. */
    uint64_t collected;
    uint32_t doubts; /* bit for each enum ml_doubt */
    bool original;   /* owns the above */
} ml_workload;

/* RECORDING is borrowed and outlives the workload; of a merged recording, pass the
 * part.  0; ML_EINVALID for a DEVICE that it lacks; ML_EUNSUPPORTED for a device
 * without segments (cpu); ML_ELIMIT for too many events; or ML_ENOMEM. */
int ml_workload_new(const ml_recording *recording, size_t device, ml_workload **out);
/* A copy with demands of its own, to be edited; FROM outlives it.  0 or ML_ENOMEM. */
int ml_workload_copy(const ml_workload *from, ml_workload **out);
void ml_workload_free(ml_workload *workload); /* takes NULL */
/* Bytes that were cached when the recording began. */
uint64_t ml_workload_start_cached(const ml_workload *workload);

/* Frees each demand of WORKLOAD, a copy, right after its last use, if known.  Returns
 * the number of such demands. */
size_t ml_workload_free_at_last_use(ml_workload *workload);

/* For ml_workload_new, after the demands are complete: sets their last_used.  0 or
 * ML_ENOMEM. */
int ml_workload_take_uses(ml_workload *workload);

const char *ml_doubt_text(unsigned doubt); /* "" for an unknown one */

#endif
