/* The cause of each allocation: the line that made it, its module, its phase and step.
 *
 * Owns what follows from stacks and from autograd's numbers over a whole recording; it
 * must not know what is asked about it.
 *
 * Autograd's threads have no Python frames: what a node allocates in a backward pass has
 * the line of the forward operation that made the node, as forward.h finds it.
 *
 * Frames win: what Python code does in a backward pass, as a custom function or the
 * recomputation of a checkpoint, has frames and lines of its own. */
#ifndef ML_CAUSE_H
#define ML_CAUSE_H

#include "analysis/attribution/stack_facts.h"
#include "recording/recording.h"

#define ML_PHASES(XX) \
    XX(FORWARD, "forward") /* in an nn.Module's call, or where autograd took note */ \
    XX(BACKWARD, "backward") \
    XX(OPTIMIZER, "optimizer") \
    XX(OTHER, "other") \
    XX(BEFORE_RECORDING, "before_recording") \
    XX(UNKNOWN, "unknown")

enum ml_phase {
#define XX(name, text) ML_PHASE_##name,
    ML_PHASES(XX)
#undef XX
    ML_PHASE_COUNT
};

/* How a line is known. */
#define ML_HOWS(XX) \
    XX(NONE, "") /* it is not */ \
    XX(FRAMES, "frames") \
    XX(NODE, "node")          /* of the autograd node's forward operation */ \
    XX(LIKELY, "likely")      /* of it, unless it worked in place */ \
    XX(NEAR, "near")          /* of it too, between two lines: it left no event */ \
    XX(CALL, "backward_call") /* only the line that called backward() */

enum ml_how {
#define XX(name, text) ML_HOW_##name,
    ML_HOWS(XX)
#undef XX
    ML_HOW_COUNT
};

/* Why a block has no line. */
#define ML_NO_LINES(XX) \
    XX(NONE, "") /* it has one */ \
    XX(BEFORE, "before recording") \
    XX(BACKWARD, "no Python frames on the thread (backward)") \
    XX(NODE, "its forward was not recorded (backward)") \
    XX(GRADIENT, "autograd's own sum of gradients (backward)") \
    XX(NO_PYTHON, "no Python frames on the thread") \
    XX(LOST, "stack table full") \
    XX(NOT_RECORDED, "stacks not recorded") \
    XX(EMPTY, "recorded without frames")

enum ml_no_line {
#define XX(name, text) ML_NO_LINE_##name,
    ML_NO_LINES(XX)
#undef XX
    ML_NO_LINE_COUNT
};

/* Why a block has no module.  Those first in the list are outside any module, which is
 * an answer; of the others it is not known. */
#define ML_NO_MODULES(XX) \
    XX(NONE, "") /* it has one */ \
    XX(CALL, "outside any module's call") \
    XX(OPTIMIZER, "in an optimizer's step") \
    XX(OWNER, "its owner is in no module") \
    XX(LIBRARY, "work space of a library") \
    XX(UNNAMED, "the module has no name in the recording") \
    XX(STACK, "no stack that tells")

#define ML_NO_MODULE_OUTSIDE_LAST ML_NO_MODULE_LIBRARY

enum ml_no_module {
#define XX(name, text) ML_NO_MODULE_##name,
    ML_NO_MODULES(XX)
#undef XX
    ML_NO_MODULE_COUNT
};

typedef struct ml_cause {
    uint32_t stack;    /* that names the line; 0: none */
    uint32_t frame;    /* frame id of the line; 0: none */
    uint32_t until;    /* frame id; with ML_HOW_NEAR the last line that it could be */
    uint32_t module;   /* string: path of the innermost module; 0: none */
    uint32_t step;     /* number of the training step */
    uint8_t no_module; /* enum ml_no_module */
    uint8_t phase;     /* enum ml_phase */
    uint8_t how;       /* enum ml_how */
    uint8_t no_line;   /* enum ml_no_line */
    bool recomputed;   /* by a module's call inside a backward pass */
    bool seed;         /* by backward() itself: the gradient that it begins with */
    bool communication;
} ml_cause;

typedef struct ml_causes ml_causes;

/* RECORDING is borrowed and outlives the causes.  0 or ML_ENOMEM. */
int ml_causes_new(const ml_recording *recording, ml_causes **out);
void ml_causes_free(ml_causes *causes); /* takes NULL */

/* Of event INDEX of DEVICE, which exist. */
ml_cause ml_causes_of(const ml_causes *causes, size_t device, size_t index);
/* Of a block from before the recording, with the stack of its allocation or 0. */
ml_cause ml_causes_before(const ml_causes *causes, uint32_t stack);
/* Its phase, without the search for its line. */
enum ml_phase ml_causes_phase(const ml_causes *causes, size_t device, size_t index);
/* Its step, likewise. */
uint32_t ml_causes_step(const ml_causes *causes, size_t device, size_t index);
/* Whether the recording says which events a backward pass made. */
bool ml_causes_know_passes(const ml_causes *causes);
const ml_stack_facts *ml_causes_facts(const ml_causes *causes); /* borrowed */

const char *ml_phase_text(unsigned phase);         /* "unknown" for an unknown one */
const char *ml_how_text(unsigned how);             /* "" for an unknown one */
const char *ml_no_line_text(unsigned no_line);     /* "" for an unknown one */
const char *ml_no_module_text(unsigned no_module); /* "" for an unknown one */

#endif
