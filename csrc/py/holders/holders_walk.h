/* The search for what holds objects: from the roots of the interpreter along all
 * references, each thing once and by a shortest way.
 *
 * Owns what was seen and the references to the targets; names nothing (holders_namer.c)
 * and runs no Python code.  With the GIL from new to free; in between no object may be
 * let go of. */
#ifndef ML_PY_HOLDERS_WALK_H
#define ML_PY_HOLDERS_WALK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "torch/bridge.h"

/* A dict or, from CPython 3.15 on, a frozendict, which is none. */
static inline bool
ml_is_dict(PyObject *object)
{
#if PY_VERSION_HEX >= 0x030f0000
    return PyDict_Check(object) || PyFrozenDict_CheckExact(object);
#else
    return PyDict_Check(object);
#endif
}

/* ML_GRAPH_OBJECT, ML_GRAPH_NODE and ML_GRAPH_TENSOR are kinds of things too. */
enum {
    ML_THING_STORAGE = 8, /* of a target tensor: never on a path */
    ML_THING_FRAME,       /* one that runs: a ml_frame */
    ML_THING_THREAD,      /* a PyThreadState */
    ML_THING_MODULES,     /* sys.modules */
    ML_THING_OUTSIDE,     /* whatever C and C++ hold that no walk can see */
    ML_THING_CYCLES,      /* what nothing holds: the collector will free it */
};

#define ML_NO_TARGET UINT32_MAX

typedef struct ml_thing {
    const void *at;
    uint32_t parent; /* by which it was reached; itself: a root */
    uint32_t target; /* index, or ML_NO_TARGET */
    int32_t balance; /* of a target: references that were not met */
    uint8_t kind;
    uint8_t state;
    bool lent; /* its reference lies on the stack of its parent, a frame */
    bool near; /* a part of its parent: no step of a path */
    bool key;  /* of the dict that is walked through now */
} ml_thing;

/* A reference to a target.  Both are indices of things. */
typedef struct ml_hold {
    uint32_t from;
    uint32_t to;
    uint32_t length; /* of the path, in steps */
    uint32_t order;  /* in which it was met */
    uint32_t nth;    /* of the references from the one to the other, from 0 */
    uint32_t more;   /* references after it that are counted only */
    bool lent;
} ml_hold;

/* So many references from one thing to another are told; of further ones the last of them
 * has the number. */
#define ML_HOLDS_TOLD 16

typedef struct ml_walk ml_walk;

/* Searches for the holders of TARGETS, a list of the caller's alone.  TYPES, a tuple, are
 * torch's tensor and storage; empty: targets are objects of any kind.  GRAPH is NULL where
 * there is no torch.  NULL with an exception. */
ml_walk *ml_walk_new(PyObject *targets, PyObject *types, const ml_graph *graph);
void ml_walk_free(ml_walk *walk);

const ml_thing *ml_walk_thing(const ml_walk *walk, uint32_t index);
/* The index of what lies at AT, if it was reached. */
bool ml_walk_find(const ml_walk *walk, const void *at, uint32_t *index);

/* The references to all targets, shortest path first; those of one target that lead
 * through itself are left out. */
const ml_hold *ml_walk_holds(const ml_walk *walk, size_t *count);
/* References to TARGET that were not met: held by something that no walk can see. */
int64_t ml_walk_unmet(const ml_walk *walk, uint32_t target);

/* torch's own part of the walk; NULL where there is none. */
const ml_graph *ml_walk_graph(const ml_walk *walk);
void *ml_walk_graph_walk(const ml_walk *walk);
int ml_walk_what(ml_walk *walk, PyTypeObject *type);

#endif
