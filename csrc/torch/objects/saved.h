/* Storages that Python's tensors reach along their autograd graphs.
 *
 * Owns the walk over the graph.  C++. */
#ifndef ML_SAVED_H
#define ML_SAVED_H

#include <cstddef>
#include <functional>

#include <c10/core/StorageImpl.h>

/* Calls TAKE, possibly repeatedly, for the storages that autograd saved for the
 * backward passes of COUNT TENSORS, PyObject *s that must be torch.Tensors.  With the
 * GIL; skips a running node.  Throws std::bad_alloc. */
void ml_saved_visit(const void *const *tensors, size_t count,
                    const std::function<void(c10::StorageImpl *)> &take);

#endif
