/* The backward passes of a case, by the numbers of the autograd nodes that they ran.
 *
 * An allocation of a forward knows the number of its thread's next autograd node, and
 * so the node it was made for.  A backward pass runs nodes with known numbers. */
#ifndef ML_GRAPH_PASSES_H
#define ML_GRAPH_PASSES_H

#include "lab/advice/advice_case.h"

/* A backward pass, by the numbers of the nodes that it may have run. */
typedef struct ml_graph_pass {
    size_t first; /* event */
    size_t end;   /* after the last event */
    uint64_t lowest;
    uint64_t highest;
    uint64_t freed;  /* blocks of a forward that the pass freed */
    uint64_t shared; /* the highest node that a later pass ran again, plus 1; 0: none */
    size_t again;    /* with shared: the first event of the next one that did */
    bool apart; /* with shared: the gradients of each pass are wanted by themselves */
    uint32_t frame; /* frame id of the line that called it; 0: unknown */
    uint16_t thread;
} ml_graph_pass;

/* State of one thread during the walk over the events. */
typedef struct ml_graph_thread {
    uint64_t first; /* first number seen of a next node; 0: none seen */
    uint64_t next;
    size_t open; /* 1 + the pass that runs its nodes; 0: none */
} ml_graph_thread;

typedef struct ml_graph_passes {
    const ml_advice_case *it;
    ml_graph_pass *passes; /* owned; by thread, then by highest number */
    size_t pass_count;
    size_t pass_capacity;
    ml_graph_pass *by_event;  /* owned; the same passes, by event */
    ml_graph_thread *threads; /* owned; by autograd's number of the thread */
    bool *trained;            /* owned; by stack: a pass ran nodes of it */
    bool *trained_frames;     /* owned; by frame: it is in such a stack */
} ml_graph_passes;

/* IT outlives the passes.  Call fini in any case.  0 or ML_ENOMEM. */
int ml_graph_passes_find(ml_graph_passes *f, const ml_advice_case *it);
void ml_graph_passes_fini(ml_graph_passes *f);

/* The pass that may have run node NUMBER of THREAD; NULL: none did. */
const ml_graph_pass *ml_graph_pass_of(const ml_graph_passes *f, uint16_t thread,
                                      uint64_t number);
/* The last pass before EVENT; NULL: none. */
const ml_graph_pass *ml_graph_pass_at(const ml_graph_passes *f, size_t event);
/* What is said of a graph that PASS retained; ML_ADVICE_COUNT: nothing. */
static inline enum ml_advice_kind
ml_graph_kept_by(const ml_graph_pass *pass)
{
    if (pass->shared == 0) {
        return ML_ADVICE_GRAPH_RETAINED;
    }
    return pass->apart ? ML_ADVICE_COUNT : ML_ADVICE_GRAPH_SHARED;
}

/* The number of passes that began before EVENT. */
size_t ml_graph_passes_before(const ml_graph_passes *f, size_t event);

/* By demand: the event at which the call of its outermost module, or what is around it, is over;
 * ML_NO_EVENT: never.  Owned; NULL without memory. */
size_t *ml_graph_calls_end(const ml_graph_passes *f);
/* By demand: the birth of the last one that the call of its outermost module makes.  Owned; NULL
 * without memory. */
size_t *ml_graph_calls_last(const ml_graph_passes *f);
/* The line of the program's call around the whole pass of DEMAND, an index. */
uint32_t ml_graph_calling_line(const ml_advice_case *it, size_t demand);
/* Likewise, but further out where passes that are run back go through that line, too. */
uint32_t ml_graph_untrained_line(const ml_graph_passes *f, size_t demand);

/* A block that a graph holds: DEMAND, an index, could be free from event UNTIL on. */
typedef struct ml_graph_held {
    size_t demand;
    size_t until;
    enum ml_advice_kind kind; /* what says so */
    uint32_t frame;           /* its line; 0: not known */
} ml_graph_held;

/* By kind: an index of a proposal, plus 1, and its largest block.  Begin with zeros. */
typedef struct ml_graph_proposed {
    size_t at[ML_ADVICE_COUNT];
    uint64_t largest[ML_ADVICE_COUNT];
} ml_graph_proposed;

/* Adds HELD to the proposal of its kind.  0 or ML_ENOMEM. */
int ml_graph_propose(const ml_graph_passes *f, const ml_graph_held *held,
                     ml_proposals *out, ml_graph_proposed *to);

/* What graphs hold, where the recording does not know last uses.  0 or ML_ENOMEM. */
int ml_graph_estimate(const ml_graph_passes *f, ml_proposals *out,
                      ml_graph_proposed *to);

#endif
