/* Internals of the search for holders, shared by these files:
 *
 * holders_walk.c (order and results), holders_things.c (things met), holders_traverse.c
 * (references of a thing), holders_roots.c and holders_targets.c (start and goal),
 * holders_unreached.c (things that no root reaches). */
#ifndef ML_PY_HOLDERS_PARTS_H
#define ML_PY_HOLDERS_PARTS_H

#include "holders/holders_walk.h"

#include "core/base/base.h"

/* Values of ml_thing.state. */
enum {
    ML_WALK_UNSEEN,
    ML_WALK_SEEN,
    ML_WALK_OWN
};

#define ML_WALK_TYPES 1024

typedef struct ml_indices {
    uint32_t *at;
    size_t count, capacity;
} ml_indices;

struct ml_walk {
    ml_thing *things;
    size_t count, capacity;
    uint32_t *table; /* indices of things plus 1; 0: free */
    size_t table_size;
    ml_indices level, next, targets;
    ml_indices keys; /* pairs: a dict, its key */
    ml_hold *holds;
    size_t hold_count, hold_capacity;
    uint32_t from;  /* the thing being walked */
    bool contained; /* FROM is a container: its dicts are steps */
    bool lent;      /* the visited references lie on a stack */
    bool plain;     /* some target is an object unknown to the collector */
    bool failed;    /* out of memory */
    size_t visits;
    uint32_t target_count;
    int64_t *unmet; /* of targets */
    /* By thing, while unreached ones are weighed: references not found among them. */
    int32_t *external;
    size_t external_count;
    const ml_graph *graph;
    void *graph_walk;
    const PyTypeObject *known[ML_WALK_TYPES];
    uint8_t what[ML_WALK_TYPES];
};

static inline size_t
ml_walk_slot(const ml_walk *w, const void *at)
{
    uint64_t hash = ((uint64_t)(uintptr_t)at >> 4) * 0x9e3779b97f4a7c15u;
    size_t mask = w->table_size - 1;
    size_t slot = (size_t)(hash >> 24) & mask;

    while (w->table[slot] != 0 && w->things[w->table[slot] - 1].at != at) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static inline bool
ml_walk_look_up(const ml_walk *w, const void *at, uint32_t *index)
{
    uint32_t found = w->table[ml_walk_slot(w, at)];

    *index = found - 1;
    return found != 0;
}

bool ml_walk_grow_table(ml_walk *w);
/* The thing at AT, added if new; false: no memory. */
bool ml_walk_meet(ml_walk *w, const void *at, uint8_t kind, uint32_t *index);
uint32_t ml_walk_add_root(ml_walk *w, const void *at, uint8_t kind);
void ml_walk_push(ml_walk *w, ml_indices *to, uint32_t index);
/* FROM refers to thing TO.  NEAR: walk it before the next level. */
void ml_walk_reach(ml_walk *w, uint32_t to, bool near);
/* A reference to OBJECT is memlab's own and need not be found.  ARG is the walk. */
int ml_walk_forgive(PyObject *object, void *arg);

static inline bool
ml_walk_collects(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    return PyType_IS_GC(type) && (type->tp_is_gc == NULL || type->tp_is_gc(object));
}

static inline void
ml_walk_reach_object(ml_walk *w, PyObject *object, bool near)
{
    uint32_t index;

    if (!ml_walk_collects(object)) {
        /* It refers to nothing, but may be a target. */
        if (w->plain && ml_walk_look_up(w, object, &index) &&
            w->things[index].target != ML_NO_TARGET) {
            ml_walk_reach(w, index, false);
        }
    }
    else if (ml_walk_meet(w, object, ML_GRAPH_OBJECT, &index)) {
        ml_walk_reach(w, index, near);
    }
}

/* Walks everything reachable from the things in NEXT. */
void ml_walk_all(ml_walk *w);

void ml_walk_add_roots(ml_walk *w);
void ml_walk_add_targets(ml_walk *w, PyObject *targets, PyObject *types);

/* Gets the remaining objects from the collector and walks them. */
void ml_walk_unreached(ml_walk *w);

#endif
