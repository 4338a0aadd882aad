/* The search for holders of objects: from the interpreter's roots along all references,
 * to each thing once and by a shortest path.
 *
 * Owns the things seen and the references to targets.  holders_namer.c names them.
 * Runs no Python code.  Needs the GIL from new to free; meanwhile no object may be
 * released. */
#ifndef ML_PY_HOLDERS_WALK_H
#define ML_PY_HOLDERS_WALK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "torch/bridge.h"

/* ML_GRAPH_OBJECT, ML_GRAPH_NODE and ML_GRAPH_TENSOR are kinds of things too. */
enum {
    ML_THING_STORAGE = 8, /* of a target tensor: never on a path */
    ML_THING_FRAME,       /* a running one: an ml_frame */
    ML_THING_THREAD,      /* a PyThreadState */
    ML_THING_MODULES,     /* sys.modules */
    ML_THING_OUTSIDE,     /* C or C++ code whose references no walk can see */
    ML_THING_CYCLES,      /* held by nothing: the collector will free it */
};

#define ML_NO_TARGET UINT32_MAX

typedef struct ml_thing {
    const void *at;
    uint32_t parent; /* through which it was reached; itself: a root */
    uint32_t target; /* index, or ML_NO_TARGET */
    int32_t balance; /* of a target: references not yet found */
    uint8_t kind;
    uint8_t state;
    bool lent; /* its reference lies on the stack of its parent, a frame */
    bool near; /* a part of its parent: no step of a path */
    bool key;  /* a key of the dict being walked */
} ml_thing;

/* A reference to a target.  Both are indices of things. */
typedef struct ml_hold {
    uint32_t from;
    uint32_t to;
    uint32_t length; /* steps of the path */
    uint32_t order;  /* order of discovery */
    uint32_t nth;    /* number among references between the same two, from 0 */
    uint32_t more;   /* further references, counted only */
    bool lent;
} ml_hold;

/* References reported from one thing to another; the last entry counts further ones. */
#define ML_HOLDS_TOLD 16

typedef struct ml_walk ml_walk;

/* Searches for the holders of TARGETS, a list that only the caller holds.  TYPES, a
 * tuple: torch's tensor and storage types; empty: targets may be any objects.  GRAPH:
 * NULL without torch.  NULL with an exception. */
ml_walk *ml_walk_new(PyObject *targets, PyObject *types, const ml_graph *graph);
void ml_walk_free(ml_walk *walk);

const ml_thing *ml_walk_thing(const ml_walk *walk, uint32_t index);
/* Sets the index of the thing at AT, if it was reached. */
bool ml_walk_find(const ml_walk *walk, const void *at, uint32_t *index);

/* The references to all targets, shortest path first, without those that lead through
 * their own target. */
const ml_hold *ml_walk_holds(const ml_walk *walk, size_t *count);
/* References to TARGET not found: its holders cannot be walked. */
int64_t ml_walk_unmet(const ml_walk *walk, uint32_t target);

/* torch's own part of the walk; NULL if there is none. */
const ml_graph *ml_walk_graph(const ml_walk *walk);
void *ml_walk_graph_walk(const ml_walk *walk);
int ml_walk_what(ml_walk *walk, PyTypeObject *type);

#endif
