/* The account of a whole GPU as a Python dict, and the functions of memlab._core that
 * sample.
 *
 * Owns the keys in docs/REPORT.md; gpu_account.h owns the figures. */
#ifndef ML_PY_GPU_DICT_H
#define ML_PY_GPU_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* Sets "gpu", "gpu_reason" and "host" of DICT, for DEVICE at TIME (unix ns) with
 * torch's totals TORCH.  0 or -1. */
int ml_py_set_gpu(PyObject *dict, const ml_recording *recording, int device,
                  uint64_t time, const ml_totals *torch);

extern const char ml_py_sample_doc[];
PyObject *ml_py_sample(PyObject *module, PyObject *begin);
extern const char ml_py_ledger_doc[];
PyObject *ml_py_ledger(PyObject *module, PyObject *args);
/* A step ended: takes a sample if one is due, and begins or ends a turn of last uses. */
void ml_py_end_step(void);

#endif
