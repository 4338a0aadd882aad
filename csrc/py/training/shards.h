/* The units of FullyShardedDataParallel, of torch's both versions: which parameters of
 * modules they keep in pieces.
 *
 * Owns the knowledge of torch's objects for that, read without running any code of
 * theirs: a module of a unit has its piece as a parameter, or while it works the whole,
 * which was gathered and goes again.  So whose memory is a parameter's is asked of the
 * unit. */
#ifndef ML_PY_SHARDS_H
#define ML_PY_SHARDS_H

#include <stdbool.h>

#include "state.h"

/* A parameter of a unit.  All is borrowed of the unit. */
typedef struct ml_shard {
    PyObject *module; /* that has it */
    PyObject *name;   /* as which */
    PyObject *tensor; /* whose memory is the piece; NULL: none on this rank */
    PyObject *owner;  /* the parameter that optimizers step, which has the gradient */
    PyObject
        *whole; /* what the module has while it works; NULL: the owner, or none yet */
} ml_shard;

typedef void (*ml_shard_visitor)(void *context, const ml_shard *shard);

/* The types of units, as far as the program has imported them; how many.  Borrowed. */
#define ML_SHARD_TYPES 2
size_t ml_shards_types(PyTypeObject *types[ML_SHARD_TYPES]);

/* Visits what OBJECT keeps, if it is a unit.  No exception. */
void ml_shards_visit(PyObject *object, ml_shard_visitor visit, void *context);

/* From now on those of the units among OBJECTS, a list, are kept; without memory fewer. */
void ml_shards_note(PyObject *objects);
/* Whether a unit keeps the parameter NAME of MODULE, which may be dying. */
bool ml_shards_keep(PyObject *module, PyObject *name);

#endif
