/* A workload: what a program asked of the allocator on one device, without where it was
 * put.
 *
 * Owns the demands, one a block with its life, and what else of the recording belongs
 * to the program rather than to the allocator: when it gave its cache back, which
 * requests failed, what was there before the first event.
 *
 * Demands may be edited, which asks "what if the program had done this instead": on a
 * copy, set their bytes or move their events, then give the copy to ml_trial_run. */
#ifndef ML_WORKLOAD_H
#define ML_WORKLOAD_H

#include <stdbool.h>

#include "recording/recording.h"

/* Of an event that never comes, or came before the recording. */
#define ML_NO_EVENT SIZE_MAX

typedef struct ml_demand {
    uint64_t bytes; /* requested; 0: it is not made at all */
    uint64_t stream;
    uint32_t pool[2]; /* memory pool id */
    size_t born;      /* event; ML_NO_EVENT: before the recording */
    size_t freed;     /* event of FREE_REQUESTED; ML_NO_EVENT: never */
    size_t
        completed; /* event of FREE_COMPLETED; ML_NO_EVENT: never; not before freed */
    /* Event before which the last operator that used it had ended: so early it could have
     * been freed.  ML_NO_EVENT: not known. */
    size_t last_used;
    uint64_t addr;        /* as recorded */
    uint64_t block_bytes; /* that its block had, as recorded */
    uint32_t stack;       /* stack id of its allocation; 0: none */
    uint32_t pad;
} ml_demand;

enum ml_mark_kind {
    ML_MARK_EMPTY_CACHE, /* the program gave its cache back */
    ML_MARK_POOL_DONE,   /* nobody uses POOL any more, until something asks it again */
    ML_MARK_EMPTY_POOL,  /* and its memory goes back, without the cache */
    ML_MARK_OOM          /* a request of BYTES failed */
};

typedef struct ml_mark {
    size_t event; /* it comes right before this event's own effect */
    size_t end;   /* event after what it gave back; of ML_MARK_OOM the same */
    uint64_t bytes;
    uint64_t stream;
    uint32_t pool[2];
    uint8_t kind; /* enum ml_mark_kind */
    uint8_t pad[7];
} ml_mark;

/* Why a workload is not exactly what the program asked; JSON values. */
#define ML_DOUBTS(XX) \
    XX(OVERWRITTEN, "events were overwritten by newer ones") \
    XX(DROPPED, "events were not recorded") \
    XX(BEFORE, "memory was in use before the recording began") \
    XX(NO_END, "the file has no memory at the end of the recording") \
    XX(MISFITS, "events do not fit the blocks that there were") \
    XX(UNCERTAIN, "the size of blocks from before the recording is not settled") \
    XX(DEFERRED, "frees waited for other streams, as long as in the recording") \
    XX(FAILED, "a request failed: what would have come after it is not recorded") \
    /* Of a trial. */ \
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
        *demands; /* owned; those from before the recording first, by address, then
                           by birth */
    size_t count;
    size_t before_count; /* of these, from before the recording */

    /* What follows is borrowed from the original in a copy, and not edited. */
    const ml_recording *recording; /* borrowed */
    size_t device;
    const ml_device_trace *trace; /* of device, in recording */
    uint32_t *of_event; /* of each event: 1 + the demand that it is of; 0: of none */
    ml_mark *marks;     /* by event */
    size_t mark_count;
    /* Before the first event, by address, and the enum ml_block_state of each demand from
     * then: what was pending has a completion alone. */
    ml_segment *segments;
    size_t segment_count;
    uint8_t *before_states;
    ml_totals peak; /* as recorded, of each alone, over the window */
    /* The least sum of bytes reserved and wanted that the allocator could not have;
     * UINT64_MAX: it had all it wanted.  So a limit lies below this, and not below
     * peak.reserved. */
    uint64_t refused;
    bool failed; /* a request, for want of memory */
    /* The limit that an out of memory told, be it the device's memory or what the process
     * was allowed, which by_driver says; UINT64_MAX: not known. */
    uint64_t limit;
    bool by_driver;
    /* Least bytes reserved at which cached memory was given up as garbage; UINT64_MAX: it
     * never was. */
    uint64_t collected;
    uint32_t doubts; /* bit for each enum ml_doubt */
    bool original;   /* owns the above */
} ml_workload;

/* RECORDING is borrowed and outlives the workload; of a merged one it is the part.  0,
 * ML_EINVALID for a DEVICE that it does not have, ML_EUNSUPPORTED for one whose allocator
 * has no segments (cpu), ML_ELIMIT for too many events, or ML_ENOMEM. */
int ml_workload_new(const ml_recording *recording, size_t device, ml_workload **out);
/* With demands of its own, to be edited; FROM outlives it.  0 or ML_ENOMEM. */
int ml_workload_copy(const ml_workload *from, ml_workload **out);
void ml_workload_free(ml_workload *workload); /* takes NULL */

/* Every demand of WORKLOAD, a copy, is freed right after its last use, where that is known:
 * returns of how many it is. */
size_t ml_workload_free_at_last_use(ml_workload *workload);

/* For ml_workload_new: sets last_used of all demands, which are complete. */
void ml_workload_take_uses(ml_workload *workload);

const char *ml_doubt_text(unsigned doubt); /* "" for an unknown one */

#endif
