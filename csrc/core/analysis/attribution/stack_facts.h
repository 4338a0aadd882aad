/* What a stack says by its frames: which line stands for it, which module it is in, and
 * what kind of work was under way.
 *
 * Owns the knowledge of file names and of torch's own functions; it must not know of
 * events.  Names are those of CPython 3.10 and torch 2.0 onwards. */
#ifndef ML_STACK_FACTS_H
#define ML_STACK_FACTS_H

#include <stdbool.h>

#include "recording/recording.h"

/* Whose code a frame is, best first. */
enum ml_frame_place {
    ML_PLACE_USER,
    ML_PLACE_PACKAGE, /* installed, but neither torch nor Python's own */
    ML_PLACE_LIBRARY, /* torch and Python's library */
    ML_PLACE_NATIVE,  /* not Python */
    ML_PLACE_NONE     /* no frame */
};

/* What the innermost frame that tells was doing. */
enum ml_scope {
    ML_SCOPE_NONE,
    ML_SCOPE_MODULE,   /* the call of an nn.Module */
    ML_SCOPE_OPTIMIZER /* an optimizer's step */
};

/* The frame that stands for some frames: the innermost of the best place. */
typedef struct ml_standing {
    uint32_t frame;
    uint8_t place; /* enum ml_frame_place */
} ml_standing;

typedef struct ml_stack_fact {
    ml_standing whole;
    /* Of the frames inside the innermost run of autograd's engine, which are all where
     * no engine runs: what they say is of the work done in a backward pass and not of
     * the line that called it. */
    ml_standing inner;
    uint32_t module;       /* string: of the innermost frame of these that has one */
    uint32_t outer_module; /* string: of the outermost */
    /* Frame: the innermost of them that is the user's or an installed package's, as that of
     * a model in a library; 0: none. */
    uint32_t model;
    uint8_t scope;      /* enum ml_scope, of these */
    bool engine;        /* the engine runs, below these */
    bool seed;          /* of these: backward() makes the gradient it begins with */
    bool function;      /* of these: in the forward of a torch.autograd.Function */
    bool communication; /* of these: in torch.distributed, outside any module in it, and
                         * more than an operator on a DTensor */
} ml_stack_fact;

typedef struct ml_stack_facts {
    ml_stack_fact *of; /* owned; by stack id */
    /* By string id of a module: the user's frame that called it, where one stack or
     * more have it; owned. */
    uint32_t *callers;
} ml_stack_facts;

/* RECORDING is borrowed and outlives the facts.  0 or ML_ENOMEM. */
int ml_stack_facts_init(ml_stack_facts *facts, const ml_recording *recording);
void ml_stack_facts_fini(ml_stack_facts *facts);

/* The user's line for a stack: that of its inner frames, else that from which the
 * outermost of its modules is called in other stacks, else the best there is. */
ml_standing ml_stack_facts_line(const ml_stack_facts *facts, uint32_t stack);

enum ml_frame_place ml_frame_place_of(const ml_recording *recording, uint32_t frame);

/* What stands for the whole of one STACK, without the facts of all others. */
ml_standing ml_stack_standing(const ml_recording *recording, uint32_t stack);

/* The frame id of the user's line that called FRAME, which is in STACK: the innermost of
 * the user's frames outside it; 0 where there is none. */
uint32_t ml_stack_caller(const ml_recording *recording, uint32_t stack, uint32_t frame);

#endif
