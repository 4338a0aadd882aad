/* A recording as the Python dictionary that torch.cuda.memory._snapshot() returns.
 *
 * Owns the schema's constructors for Python objects; the keys are the schema's. */
#ifndef ML_PY_SNAPSHOT_DICT_H
#define ML_PY_SNAPSHOT_DICT_H

#include <Python.h>

#include "core/recording/recording.h"

/* New reference: the same dictionary as loading the pickle that ml_pickle_write makes
 * of RECORDING without options, with the same objects shared.  NULL with MemoryError,
 * or UnicodeDecodeError for a string that is not UTF-8. */
PyObject *ml_py_snapshot(const ml_recording *recording);

#endif
