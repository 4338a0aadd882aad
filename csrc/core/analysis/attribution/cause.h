/* The cause of each allocation: the line that made it, its module, its phase and step.
 *
 * Causes follow from stacks and from autograd's numbers over a whole recording.
 *
 * Autograd's threads have no Python frames.  An allocation of a node in a backward pass
 * has the line of the forward operation that made the node; forward_match.h finds it.
 *
 * Frames come first: Python code in a backward pass, such as a custom function or the
 * recomputation of a checkpoint, has frames and lines of its own. */
#ifndef ML_CAUSE_H
#define ML_CAUSE_H

#include "analysis/attribution/stack_facts.h"
#include "analysis/attribution/stack_signs.h"
#include "recording/recording.h"

#define ML_PHASES(XX) \
    XX(FORWARD, 0, "forward") /* in a module's call, or where autograd took note */ \
    XX(BACKWARD, 1, "backward") \
    XX(OPTIMIZER, 2, "optimizer") \
    XX(OTHER, 3, "other") \
    XX(BEFORE_RECORDING, 4, "before_recording") \
    XX(UNKNOWN, 5, "unknown")

enum ml_phase {
#define XX(name, number, text) ML_PHASE_##name = (number),
    ML_PHASES(XX)
#undef XX
    ML_PHASE_COUNT = 0 ML_PHASES(ML_NUMBERED_ONE)
};

/* How a line is known. */
#define ML_HOWS(XX) \
    XX(NONE, 0, "") /* unknown */ \
    XX(FRAMES, 1, "frames") \
    XX(NODE, 2, "node")          /* of the autograd node's forward operation */ \
    XX(LIKELY, 3, "likely")      /* the node's, unless it worked in place */ \
    XX(NEAR, 4, "near")          /* between two lines: the operation left no event */ \
    XX(CALL, 5, "backward_call") /* only the line that called backward() is known */

enum ml_how {
#define XX(name, number, text) ML_HOW_##name = (number),
    ML_HOWS(XX)
#undef XX
    ML_HOW_COUNT = 0 ML_HOWS(ML_NUMBERED_ONE)
};

/* Why a block has no line. */
#define ML_NO_LINES(XX) \
    XX(NONE, 0, "") /* it has one */ \
    XX(BEFORE, 1, "before recording") \
    XX(BACKWARD, 2, "no Python frames on the thread (backward)") \
    XX(NODE, 3, "its forward was not recorded (backward)") \
    XX(GRADIENT, 4, "autograd's own sum of gradients (backward)") \
    XX(NO_PYTHON, 5, "no Python frames on the thread") \
    XX(LOST, 6, "stack table full") \
    XX(NOT_RECORDED, 7, "stacks not recorded") \
    XX(EMPTY, 8, "recorded without frames")

enum ml_no_line {
#define XX(name, number, text) ML_NO_LINE_##name = (number),
    ML_NO_LINES(XX)
#undef XX
    ML_NO_LINE_COUNT = 0 ML_NO_LINES(ML_NUMBERED_ONE)
};

/* Why a block has no module.  The first ones mean that the block is outside any module;
 * the others, that its module is unknown. */
#define ML_NO_MODULES(XX) \
    XX(NONE, 0, "") /* it has a line */ \
    XX(CALL, 1, "outside any module's call") \
    XX(OPTIMIZER, 2, "in an optimizer's step") \
    XX(OWNER, 3, "its owner is in no module") \
    XX(LIBRARY, 4, "workspace of a library") \
    XX(UNNAMED, 5, "the module has no name in the recording") \
    XX(STACK, 6, "no Python stack")

#define ML_NO_MODULE_OUTSIDE_LAST ML_NO_MODULE_LIBRARY

enum ml_no_module {
#define XX(name, number, text) ML_NO_MODULE_##name = (number),
    ML_NO_MODULES(XX)
#undef XX
    ML_NO_MODULE_COUNT = 0 ML_NO_MODULES(ML_NUMBERED_ONE)
};

typedef struct ml_cause {
    uint32_t stack;    /* the stack with the line; 0: none */
    uint32_t frame;    /* frame id of the line; 0: none */
    uint32_t model;    /* frame id of the model's own line in STACK, or FRAME */
    uint32_t until;    /* frame id; with ML_HOW_NEAR the last possible line */
    uint32_t module;   /* string: path of the innermost module; 0: none */
    uint32_t step;     /* number of the training step */
    uint8_t no_module; /* enum ml_no_module */
    uint8_t phase;     /* enum ml_phase */
    uint8_t how;       /* enum ml_how */
    uint8_t no_line;   /* enum ml_no_line */
    bool recomputed;   /* by a module's call inside a backward pass */
    bool seed;         /* the gradient with which backward() begins */
    bool communication;
    uint8_t pad;
} ml_cause;

typedef struct ml_causes ml_causes;

/* RECORDING is borrowed and outlives the causes.  0 or ML_ENOMEM. */
int ml_causes_new(const ml_recording *recording, ml_causes **out);
void ml_causes_free(ml_causes *causes); /* takes NULL */

/* The cause of event INDEX of DEVICE, which exist. */
ml_cause ml_causes_of(const ml_causes *causes, size_t device, size_t index);
/* The cause of a block from before the recording, with the stack of its allocation or
 * 0. */
ml_cause ml_causes_before(const ml_causes *causes, uint32_t stack);
/* A mark of each event of DEVICE, borrowed: its phase, whether it allocates, whether a
 * backward pass made it. */
#define ML_MARK_PHASE 0x0fu
#define ML_MARK_ALLOC 0x40u
#define ML_MARK_BACKWARD 0x80u
const uint8_t *ml_causes_marks(const ml_causes *causes, size_t device);
/* Its phase, without searching for its line. */
enum ml_phase ml_causes_phase(const ml_causes *causes, size_t device, size_t index);
/* Its step, without searching for its line. */
uint32_t ml_causes_step(const ml_causes *causes, size_t device, size_t index);
/* Whether the recording says which events a backward pass made. */
bool ml_causes_know_passes(const ml_causes *causes);
/* Whether a backward pass made event INDEX: by its flag, or by signs. */
bool ml_causes_is_backward(const ml_causes *causes, size_t device, size_t index);
/* Whether events of THREAD, by autograd's number, allocate outside backward passes. */
bool ml_causes_allocates(const ml_causes *causes, size_t device, uint16_t thread);
const ml_stack_facts *ml_causes_facts(const ml_causes *causes); /* borrowed */
/* Borrowed; empty if the recording marks the events of backward passes. */
const ml_stack_signs *ml_causes_signs(const ml_causes *causes);

/* Whether the model's own line is another than the program's, which CAUSE has. */
bool ml_cause_has_inner(const ml_recording *recording, const ml_cause *cause);

const char *ml_phase_text(unsigned phase);         /* "unknown" for an unknown one */
const char *ml_how_text(unsigned how);             /* "" for an unknown one */
const char *ml_no_line_text(unsigned no_line);     /* "" for an unknown one */
const char *ml_no_module_text(unsigned no_module); /* "" for an unknown one */

#endif
