/* Facts that follow from the frames of a stack: its line, its module, and the kind of
 * work under way.
 *
 * Knows file names and torch's own functions; it does not know events.  Names are those
 * of CPython 3.10 and torch 2.0 onwards. */
#ifndef ML_STACK_FACTS_H
#define ML_STACK_FACTS_H

#include <stdbool.h>

#include "recording/recording.h"

/* The owner of a frame's code, best first. */
enum ml_frame_place {
    ML_PLACE_USER,
    ML_PLACE_PACKAGE, /* installed, but neither torch nor Python's own */
    ML_PLACE_LIBRARY, /* torch and Python's library */
    ML_PLACE_NATIVE,  /* not Python */
    ML_PLACE_NONE     /* no frame */
};

/* The kind of work, from the innermost frame that tells it. */
enum ml_scope {
    ML_SCOPE_NONE,
    ML_SCOPE_MODULE,   /* the call of an nn.Module */
    ML_SCOPE_OPTIMIZER /* an optimizer's step */
};

/* The representative of some frames: the innermost of the best place. */
typedef struct ml_standing {
    uint32_t frame;
    uint8_t place; /* enum ml_frame_place */
} ml_standing;

typedef struct ml_stack_fact {
    ml_standing whole;
    /* The frames inside the innermost run of autograd's engine; without an engine, all
     * frames.  They show the work of a backward pass, not the line that called it. */
    ml_standing inner;
    uint32_t module;       /* string: of the innermost of these frames that has one */
    uint32_t outer_module; /* string: of the outermost one */
    /* Frame: the innermost of these that is the user's or an installed package's, such
     * as a model's in a library; 0: none. */
    uint32_t model;
    uint8_t scope;    /* enum ml_scope of these frames */
    bool engine;      /* the engine runs outside of these frames */
    bool seed;        /* of these frames: backward() makes its first gradient */
    bool function;    /* of these frames: in the forward of a torch.autograd.Function */
    bool module_call; /* the innermost Python frame is torch's call of an nn.Module */
    /* It is the step of an optimizer of torch's, which calls no other code than torch's but a
     * closure: a forward and a backward pass, as of Lightning. */
    bool step;
    /* of these frames: in torch.distributed, outside any module in it, and more than an
     * operator on a DTensor */
    bool communication;
} ml_stack_fact;

typedef struct ml_stack_facts {
    ml_stack_fact *of; /* owned; by stack id */
    /* By string id of a module: the user's frame that called it, if a stack has one;
     * owned. */
    uint32_t *callers;
} ml_stack_facts;

/* RECORDING is borrowed and outlives the facts.  0 or ML_ENOMEM. */
int ml_stack_facts_init(ml_stack_facts *facts, const ml_recording *recording);
void ml_stack_facts_fini(ml_stack_facts *facts);

/* The user's line for a stack: that of its inner frames; else the line that calls its
 * outermost module in other stacks; else the best one of the stack. */
ml_standing ml_stack_facts_line(const ml_stack_facts *facts, uint32_t stack);

enum ml_frame_place ml_frame_place_of(const ml_recording *recording, uint32_t frame);

/* The representative of one whole STACK, without the facts of other stacks. */
ml_standing ml_stack_standing(const ml_recording *recording, uint32_t stack);

/* The frame id of the user's line that called FRAME, which is in STACK: the innermost
 * of the user's frames outside FRAME; 0 without one. */
uint32_t ml_stack_caller(const ml_recording *recording, uint32_t stack, uint32_t frame);

#endif
