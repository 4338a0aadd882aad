/* Storages that Python's tensors lead to along their autograd graphs.
 *
 * Owns following the graph; what the storages are wanted for it must not know.  C++. */
#ifndef ML_SAVED_H
#define ML_SAVED_H

#include <cstddef>
#include <functional>

#include <c10/core/StorageImpl.h>

/* Calls TAKE for the storages of what autograd saved for the backward passes of COUNT
 * TENSORS, PyObject *s that must be torch.Tensors, also more than once.  With the GIL; a
 * node that runs at the moment is passed over.  Throws std::bad_alloc. */
void ml_saved_visit(const void *const *tensors, size_t count,
                    const std::function<void(c10::StorageImpl *)> &take);

#endif
