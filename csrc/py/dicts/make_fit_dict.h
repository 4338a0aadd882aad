/* What makes a run fit, as a Python dict. */
#ifndef ML_MAKE_FIT_DICT_H
#define ML_MAKE_FIT_DICT_H

#include "core/lab/verdict/make_fit.h"
#include "state.h"

PyObject *ml_py_make_fit(const ml_make_fit *fit);

#endif
