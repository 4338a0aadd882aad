/* The units of FullyShardedDataParallel, in both of torch's versions, and the
 * parameters that they keep in pieces.
 *
 * Owns the knowledge of torch's objects for this, read without running their code.  A
 * unit's module has its piece as a parameter.  While it works, it has the gathered
 * whole instead, which is freed again.  So the unit decides whose memory a parameter
 * is. */
#ifndef ML_PY_SHARDS_H
#define ML_PY_SHARDS_H

#include <stdbool.h>

#include "state.h"

/* A parameter of a unit.  All members are borrowed from the unit. */
typedef struct ml_shard {
    PyObject *module; /* that has it */
    PyObject *name;   /* as which */
    PyObject *tensor; /* has the piece's memory; NULL: none on this rank */
    PyObject *owner;  /* the parameter that optimizers step; it has the gradient */
    PyObject
        /* the module's parameter while it works; NULL: the owner, or none yet */
        *whole;
} ml_shard;

typedef void (*ml_shard_visitor)(void *context, const ml_shard *shard);

/* The types of units that the program has imported; returns their number.  Borrowed. */
#define ML_SHARD_TYPES 2
size_t ml_shards_types(PyTypeObject *types[ML_SHARD_TYPES]);

/* Visits the parameters of OBJECT, if it is a unit.  Raises nothing. */
void ml_shards_visit(PyObject *object, ml_shard_visitor visit, void *context);

/* Records in STATE the parameters of the units among OBJECTS, a list, in place of those
 * before; without memory, fewer. */
void ml_shards_note(ml_state *state, PyObject *objects);
void ml_shards_forget(ml_state *state);
/* Whether a recorded unit keeps the parameter NAME of MODULE, which may be dying. */
bool ml_shards_keep(const ml_state *state, PyObject *module, PyObject *name);

#endif
