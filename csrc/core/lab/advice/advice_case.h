/* A case: what a rule of advice may look at, and the proposals that it makes.
 *
 * Owns the cause, category and owner of each demand of a workload, and the edits of a
 * proposal. */
#ifndef ML_ADVICE_CASE_H
#define ML_ADVICE_CASE_H

#include "analysis/answers/growth.h"
#include "analysis/attribution/workspace.h"
#include "lab/advice/held_variables.h"
#include "lab/whatif/trial.h"
#include "lab/whatif/workload.h"

/* JSON values.  Each comment says what bytes and blocks hold, then what count holds. */
#define ML_ADVICES(XX) \
    /* gradients that lived through the next forward and its pass; count: steps */ \
    XX(GRADIENTS_KEPT, "gradients_kept") \
    /* gradients freed between the next forward and its pass; count: steps */ \
    XX(GRADIENTS_LATE, "gradients_late") \
    /* activations of forwards without a backward pass; count: in the whole recording */ \
    XX(GRAPH_UNUSED, "graph_unused") \
    /* activations whose backward pass freed nothing; count: in the whole recording */ \
    XX(GRAPH_RETAINED, "graph_retained") \
    /* likewise, as a later pass runs a part of it again */ \
    XX(GRAPH_SHARED, "graph_shared") \
    /* gradients that no optimizer read; count: in the whole recording */ \
    XX(FROZEN_GRADIENTS, "frozen_gradients") \
    /* blocks of the parameters' sizes, from one line */ \
    XX(MODEL_COPIED, "model_copied") \
    /* what one pass frees of all micro-batches but the last; count: of these in a step */ \
    XX(LOSSES_SUMMED, "losses_summed") \
    /* float32 bytes from a cast of logits to the end of the loss; count: losses */ \
    XX(LOGITS_FLOAT32, "logits_float32") \
    /* logits, and the loss's blocks of their size; count: parts of the tokens to use */ \
    XX(LOSS_WHOLE, "loss_whole") \
    /* blocks that exist together with a larger copy; count: in the whole recording */ \
    XX(GROWN, "grown_by_copies") \
    /* temporaries of foreach functions; conf is the optimizer's argument */ \
    XX(OPTIMIZER_TEMPORARIES, "optimizer_temporaries") \
    /* one block, of which steps take small parts */ \
    XX(DATA_KEPT, "data_kept") \
    /* blocks that the calls of an evaluation left; count: results of a call */ \
    XX(RESULTS_KEPT, "results_kept") \
    /* blocks of evaluations; count: parts of the batch to use */ \
    XX(EVALUATION_BATCH, "evaluation_batch") \
    /* cuBLAS's; conf is CUBLAS_WORKSPACE_CONFIG */ \
    XX(WORKSPACES, "workspaces") \
    /* activations that would be made anew; count: modules of the pattern */ \
    XX(CHECKPOINT, "checkpoint") \
    /* blocks that steps before the peak left; count: in the whole recording */ \
    XX(STEPS_KEPT, "steps_kept") \
    /* blocks after their last use; count: in the whole recording */ \
    XX(LATE_FREES, "late_frees") \
    /* free bytes of segments that the line's blocks keep; count: segments */ \
    XX(FRAGMENTATION, "fragmentation") \
    /* reserved and unused; conf has every setting that differs from torch's default */ \
    XX(SETTINGS, "settings")

enum ml_advice_kind {
#define XX(name, text) ML_ADVICE_##name,
    ML_ADVICES(XX)
#undef XX
    ML_ADVICE_COUNT
};

/* The change to one demand.  A demand edited by an earlier advice stays as that advice
 * left it.
 *
 * At one event, moved frees come first, then moved births, then the recording's own
 * event. So a demand to be freed right after event I is freed at I + 1, and one that
 * event I needs begins at I. */
enum ml_edit_kind {
    ML_EDIT_RESIZE, /* to BYTES; 0: the demand is never made */
    ML_EDIT_FREE,   /* at event UNTIL, earlier or later than recorded */
    ML_EDIT_BEGIN,  /* at event FROM; not for demands from before the recording */
    /* another demand of the same stream and pool, BYTES, from FROM until UNTIL */
    ML_EDIT_ADD
};

typedef struct ml_edit {
    size_t demand;  /* index; for ADD, the demand to imitate */
    uint64_t bytes; /* requested */
    size_t from;    /* event; ML_NO_EVENT: before the recording */
    size_t until;   /* event; ML_NO_EVENT: never */
    uint8_t kind;   /* enum ml_edit_kind */
    uint8_t pad[7];
} ml_edit;

#define ML_ADVICE_CONF_BYTES 256

typedef struct ml_advice {
    uint8_t kind;    /* enum ml_advice_kind */
    bool exact;      /* false: the edit is an estimate of what the change does */
    bool normalizes; /* of checkpoints: batch normalization would run twice a step */
    bool garbage;    /* of steps: a reference cycle alone holds the blocks */
    bool most;       /* of which the change does no more, and maybe less; not exact */
    uint32_t frame;  /* frame id of the line that it is about; 0: none */
    uint32_t model;  /* frame id of the model's own line behind it; 0: itself */
    char *module; /* owned; paths with ", " between, "*" for what differs; NULL: none */
    /* String: the tensor's, as its owner calls it; of late frees the variable that holds it,
     * "NAME of FUNCTION"; 0: none. */
    uint32_t name;
    /* Of an optimizer's temporaries: its class, bytes borrowed of the recording; length 0: not
     * known. */
    ml_string optimizer;
    const char *library_switch; /* static: as library_switches.h has it; NULL: none */
    uint64_t bytes;  /* concerned; at the peak, unless the kind says otherwise */
    uint64_t blocks; /* of these */
    uint64_t count;  /* as the kind says */
    char conf[ML_ADVICE_CONF_BYTES]; /* settings that it is about; "": none */
    ml_edit *edits;                  /* owned */
    size_t edit_count;
    size_t edit_capacity;
    ml_trial_result alone; /* the run with this advice alone */
    bool tried;            /* alone is known */
    bool together; /* it lowers a peak after the advices before it in the list */
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
    ml_trial_result checked; /* own, tried at the recorded addresses */
    /* the memory at the start fits together; own and checked are then known */
    bool checks;
    /* for all trials, which do not use the recorded addresses */
    ml_trial_options options;
    ml_trial_result before; /* its peak_event is the instant of the allocated peak */
    ml_explained *told;     /* owned; what demands are, each once */
    size_t told_count;
    /* Owned; by demand: its index in told.  One more, of which nothing is known, where
     * there is no demand. */
    uint32_t *of;
    const ml_growth *growth; /* borrowed */
    const ml_causes *causes; /* borrowed */
    uint8_t *stages;         /* owned; enum ml_stage by event */
    ml_held_variables variables;
    bool exact; /* a trial at the recorded addresses agrees with the recording */
    /* Bytes cached when the recording began, if the trials, which begin without them,
     * reserve less for it; else 0. */
    uint64_t start_cached;
    size_t failed; /* event of the first request that failed; ML_NO_EVENT: none did */
    size_t unfinished;     /* event; start of the forward pass in which it failed */
    size_t awaited;        /* event; likewise, or whose backward pass failed */
    uint64_t memory_bytes; /* of the recorded run; UINT64_MAX: unknown */
} ml_advice_case;

/* RECORDING outlives the case; of a merged recording, pass the part.  0, or an error of
 * ml_workload_new, with nothing to free. */
int ml_advice_case_init(ml_advice_case *it, const ml_recording *recording,
                        size_t device);
void ml_advice_case_fini(ml_advice_case *it);

/* What is known of DEMAND, an index, but the step that made it: many share it. */
static inline const ml_explained *
ml_explained_of(const ml_advice_case *it, size_t demand)
{
    return &it->told[it->of[demand]];
}

/* Whether it is known of any demand when it was last used. */
bool ml_advice_knows_uses(const ml_advice_case *it);
/* The step that made DEMAND, an index. */
uint32_t ml_demand_step(const ml_advice_case *it, size_t demand);
/* Whether DEMAND, an index, is live after EVENT. */
bool ml_demand_lives_at(const ml_advice_case *it, size_t demand, size_t event);
/* Whether DEMAND is live at the allocated peak. */
bool ml_demand_at_peak(const ml_advice_case *it, size_t demand);

/* Whether DEMAND, an index, is cuBLAS's workspace for one product, as torch 2.15 makes them:
 * no event comes between its allocation and its free.  Where it is not known to be one, its
 * size tells. */
static inline bool
ml_demand_is_workspace_of_product(const ml_advice_case *it, size_t demand)
{
    const ml_demand *asked = &it->workload->demands[demand];
    return asked->freed == asked->born + 1 &&
           (ml_workspace_has_size(asked->bytes) ||
            ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_WORKSPACE);
}

/* Whether DEMAND, an index, is a workspace that a library keeps for all its work. */
static inline bool
ml_demand_is_kept_workspace(const ml_advice_case *it, size_t demand)
{
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_WORKSPACE &&
           !ml_demand_is_workspace_of_product(it, demand);
}

/* Whether DEMAND is of a forward that ran out of memory, before its backward pass. */
bool ml_demand_unfinished(const ml_advice_case *it, size_t demand);
/* Likewise, or within it: what its graph holds is not held in vain. */
bool ml_demand_awaits_pass(const ml_advice_case *it, size_t demand);
/* Whether DEMAND is live at the end and was last used two steps or more before. */
bool ml_demand_left(const ml_advice_case *it, size_t demand);

/* The bytes of the parameters and of their halves, as autocast casts them. */
typedef struct ml_weights {
    uint64_t *bytes; /* owned; sorted */
    size_t count;
} ml_weights;

/* Fills OUT.  0 or ML_ENOMEM, with nothing to free. */
int ml_weights_find(const ml_advice_case *it, ml_weights *out);
void ml_weights_fini(ml_weights *weights); /* accepts an all-zero one */
bool ml_weights_have(const ml_weights *weights, uint64_t bytes);

/* A new proposal without edits, borrowed until the next call; NULL: no memory. */
ml_advice *ml_proposals_add(ml_proposals *proposals, enum ml_advice_kind kind);
/* By demand: PROPOSALS say that an autograd graph holds it, or that steps leave it.  The caller
 * frees it with ml_free; NULL: no memory. */
bool *ml_proposals_hold(const ml_advice_case *it, const ml_proposals *proposals);
/* 0 or ML_ENOMEM. */
int ml_advice_edit(ml_advice *advice, ml_edit edit);
/* Widens the module patterns of ADVICE so that MODULE, a string id, fits.  0 or ML_ENOMEM. */
int ml_advice_add_module(ml_advice *advice, const ml_recording *recording,
                         uint32_t module);
void ml_proposals_fini(ml_proposals *proposals);
void ml_advice_fini(ml_advice *advice);

#endif
