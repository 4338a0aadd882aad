/* A case: what a rule of advice may look at, and the proposals that it makes.
 *
 * Owns what is known of each demand of a workload - its cause, category, owner - and
 * the edits that a proposal consists of. */
#ifndef ML_ADVICE_CASE_H
#define ML_ADVICE_CASE_H

#include "analysis/answers/growth.h"
#include "lab/whatif/trial.h"
#include "lab/whatif/workload.h"

/* JSON values.  Of each, what bytes, blocks and count are. */
#define ML_ADVICES(XX) \
    /* gradients that lived on while the next forward ran, and its pass; count: steps */ \
    XX(GRADIENTS_KEPT, "gradients_kept") \
    /* gradients that were freed between the next forward and its pass; count: steps */ \
    XX(GRADIENTS_LATE, "gradients_late") \
    /* activations of forwards that no backward pass ran; count: of the whole recording */ \
    XX(GRAPH_UNUSED, "graph_unused") \
    /* likewise of passes that freed nothing of their forward */ \
    XX(GRAPH_RETAINED, "graph_retained") \
    /* gradients of no optimizer; count: of the whole recording */ \
    XX(FROZEN_GRADIENTS, "frozen_gradients") \
    /* blocks of the parameters' sizes, from one line */ \
    XX(MODEL_COPIED, "model_copied") \
    /* what is there in float32 from a cast of logits to the end of the loss; count: losses */ \
    XX(LOGITS_FLOAT32, "logits_float32") \
    /* logits, and what the loss makes of them; count: parts of the tokens instead */ \
    XX(LOSS_WHOLE, "loss_whole") \
    /* blocks whose larger successor is there already; count: of the whole recording */ \
    XX(GROWN, "grown_by_copies") \
    /* of foreach functions */ \
    XX(OPTIMIZER_TEMPORARIES, "optimizer_temporaries") \
    /* one block, of which steps take small parts */ \
    XX(DATA_KEPT, "data_kept") \
    /* what evaluations make, in a smaller batch; count: parts of the batch instead */ \
    XX(EVALUATION_BATCH, "evaluation_batch") \
    /* cuBLAS's; conf is CUBLAS_WORKSPACE_CONFIG */ \
    XX(WORKSPACES, "workspaces") \
    /* activations that would be made anew; count: modules of the pattern */ \
    XX(CHECKPOINT, "checkpoint") \
    /* blocks that no operator used any more; count: of the whole recording */ \
    XX(LATE_FREES, "late_frees") \
    /* free bytes of segments that the line's blocks keep; count: segments */ \
    XX(FRAGMENTATION, "fragmentation") \
    /* reserved and not in use; conf are all settings that differ from torch's own */ \
    XX(SETTINGS, "settings")

enum ml_advice_kind {
#define XX(name, text) ML_ADVICE_##name,
    ML_ADVICES(XX)
#undef XX
    ML_ADVICE_COUNT
};

/* What the program would have done instead with one demand.  A demand that advices tried
 * before have edited stays as they left it.
 *
 * At one event come, in this order: the frees that were moved there, the births that were
 * moved there, and what the recording has there.  So what is to be freed right after event
 * I is freed at I + 1, and what is to be there for event I begins at I. */
enum ml_edit_kind {
    ML_EDIT_RESIZE, /* BYTES; 0: it is not made */
    ML_EDIT_FREE,   /* at event UNTIL, earlier or later than it was */
    ML_EDIT_BEGIN,  /* at event FROM; not of what is from before the recording */
    ML_EDIT_ADD     /* one more of its stream and pool, BYTES, from FROM until UNTIL */
};

typedef struct ml_edit {
    size_t demand;  /* index; of ADD the one that it is like */
    uint64_t bytes; /* requested */
    size_t from;    /* event; ML_NO_EVENT: before the recording */
    size_t until;   /* event; ML_NO_EVENT: never */
    uint8_t kind;   /* enum ml_edit_kind */
    uint8_t pad[7];
} ml_edit;

#define ML_ADVICE_CONF_BYTES 256

typedef struct ml_advice {
    uint8_t kind;   /* enum ml_advice_kind */
    bool exact;     /* false: the edit is an estimate of what the change does */
    uint32_t frame; /* frame id of the line that it is about; 0: none */
    char *module; /* owned; paths with ", " between, "*" for what differs; NULL: none */
    uint32_t name;   /* string: the tensor's, as its owner calls it; 0: none */
    uint64_t bytes;  /* concerned; at the peak, unless the kind says otherwise */
    uint64_t blocks; /* of these */
    uint64_t count;  /* as the kind says */
    char conf[ML_ADVICE_CONF_BYTES]; /* settings that it is about; "": none */
    ml_edit *edits;                  /* owned */
    size_t edit_count;
    size_t edit_capacity;
    /* Set by the trial: peaks with this advice alone, and whether it lowers one of them
     * where those before it in the list are followed, too. */
    uint64_t allocated_after;
    uint64_t reserved_after;
    bool together;
} ml_advice;

typedef struct ml_proposals {
    ml_advice *list; /* owned */
    size_t count;
    size_t capacity;
} ml_proposals;

typedef struct ml_advice_case {
    const ml_recording *recording;
    size_t device;
    const ml_device_trace *trace;
    ml_workload *workload;   /* owned */
    ml_schedule schedule;    /* owned; of workload */
    ml_trial_options own;    /* the recorded run */
    ml_trial_result checked; /* of own at the recorded addresses */
    bool checks; /* what was there at the start fits together, so that the two
                                 above are known */
    ml_trial_options options; /* of all trials: not at the recorded addresses */
    ml_trial_result before;   /* its peak_event is the instant of the allocated peak */
    ml_explained *of;         /* owned; of each demand */
    ml_growth *growth;        /* owned */
    const ml_causes *causes;  /* borrowed */
    uint8_t *stages;          /* owned; enum ml_stage of each event */
    bool exact;    /* a trial at the recorded addresses agrees with the recording */
    size_t failed; /* event of the first request that failed; ML_NO_EVENT: none did */
    size_t unfinished;     /* event; the forward began there that this was in */
    uint64_t memory_bytes; /* that the recorded run had; UINT64_MAX: not known */
} ml_advice_case;

/* RECORDING outlives the case, which is of the part of a merged one.  0, or as
 * ml_workload_new fails; there is nothing to take down then. */
int ml_advice_case_init(ml_advice_case *it, const ml_recording *recording,
                        size_t device);
void ml_advice_case_fini(ml_advice_case *it);

/* Whether DEMAND, an index, is there after EVENT. */
bool ml_demand_lives_at(const ml_advice_case *it, size_t demand, size_t event);
/* Whether DEMAND is there at the instant of the most allocated bytes. */
bool ml_demand_at_peak(const ml_advice_case *it, size_t demand);

/* Whether DEMAND is of a forward that ran out of memory: nobody came to use it again. */
bool ml_demand_unfinished(const ml_advice_case *it, size_t demand);
/* Whether DEMAND, which lives at the end, was last used two steps or more before. */
bool ml_demand_left(const ml_advice_case *it, size_t demand);

/* A new proposal without edits, borrowed until the next one; NULL: no memory. */
ml_advice *ml_proposals_add(ml_proposals *proposals, enum ml_advice_kind kind);
/* 0 or ML_ENOMEM. */
int ml_advice_edit(ml_advice *advice, ml_edit edit);
/* Sets the pattern of the modules that ADVICE is about to one that fits MODULE, a string
 * id, too.  0 or ML_ENOMEM. */
int ml_advice_add_module(ml_advice *advice, const ml_recording *recording,
                         uint32_t module);
void ml_proposals_fini(ml_proposals *proposals);
void ml_advice_fini(ml_advice *advice);

#endif
