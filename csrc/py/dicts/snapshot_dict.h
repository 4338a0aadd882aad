/* A recording as the Python dictionary of torch.cuda.memory._snapshot().
 *
 * Owns the schema's constructors for Python objects; the schema has the keys. */
#ifndef ML_PY_SNAPSHOT_DICT_H
#define ML_PY_SNAPSHOT_DICT_H

#include <Python.h>

#include "core/recording/recording.h"

/* New reference: equal to loading the pickle that ml_pickle_write makes of RECORDING
 * with OPTIONS, of ML_PICKLE_SKIP only, with the same objects shared.  NULL with
 * MemoryError, or UnicodeDecodeError for an invalid string. */
PyObject *ml_py_snapshot(const ml_recording *recording, unsigned options);

#endif
