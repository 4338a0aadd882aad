/* The stacks that one recording wants, as torch keeps them for a context.  The captured
 * stacks, for all recordings together, may be more. */
#ifndef ML_WANTED_H
#define ML_WANTED_H

#include <stdbool.h>

#include "memlab.h"
#include "stacks/stacks.h"

/* What to capture, in torch's terms and order.  The header of a .mlab file has these. */
enum ml_context {
    ML_CONTEXT_NONE = 0,  /* no stacks */
    ML_CONTEXT_STATE = 1, /* of live memory */
    ML_CONTEXT_ALLOC = 2, /* and of allocation events */
    ML_CONTEXT_ALL = 3    /* and of free events */
};

typedef struct ml_wanted {
    enum ml_context context;
    bool native; /* C++ frames too */
} ml_wanted;

/* The wanted part of STACK, an id of STACKS; 0: none. */
uint32_t ml_wanted_stack(const ml_wanted *wanted, const ml_stacks *stacks,
                         uint32_t stack);
/* The same for the stack of SEGMENT. */
uint32_t ml_wanted_segment(const ml_wanted *wanted, const ml_stacks *stacks,
                           const ml_segment *segment);
/* The call that freed segments, or memory used by other streams, as far as known.  For
 * a device's events from the last to the first. */
typedef struct ml_wanted_call {
    uint32_t thread;
    uint32_t stack;
    bool known;
} ml_wanted_call;

/* Gives EVENT, which becomes number INDEX of the EVENTS of a device, its wanted stacks,
 * and sets its flags.  Visit the events from the last to the first.  CALL, zeros at
 * first, is kept between calls; NULL: events of an unordered source. */
void ml_wanted_event(const ml_wanted *wanted, const ml_stacks *stacks,
                     const ml_events *events, size_t index, ml_event *event,
                     ml_wanted_call *call);

#endif
