/* Access to torch's Python and autograd classes without their headers, which take
 * longer to compile than the rest of a file.
 *
 * Owns the way from a Python object to its tensor or storage, the components of a
 * sparse tensor, and the facts of a gradient's accumulating node.  C++. */
#ifndef ML_GRAPH_H
#define ML_GRAPH_H

#include <functional>
#include <memory>

#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>

/* Of OBJECT, a PyObject * that must be a torch.Tensor or a torch.UntypedStorage.  Borrowed;
 * neither throws. */
const at::TensorBase &ml_tensor_of(const void *object);
const c10::Storage &ml_storage_of(const void *object);

/* Receives a component with the method that returns it, such as "crow_indices()"
 * (static).  The reference is the call's own. */
using ml_component_visitor =
    std::function<void(const char *name, const at::Tensor &component)>;

/* Visits the components of a sparse TENSOR; false: it is not sparse. */
bool ml_visit_components(c10::TensorImpl &tensor, const ml_component_visitor &visit);

/* The demands of a gradient's accumulating node on its tensor, such as a device.  Does
 * not keep the node alive. */
struct ml_accumulator;

/* Of TENSOR as it is; NULL: it has no such node.  Throws std::bad_alloc. */
std::shared_ptr<const ml_accumulator> ml_accumulator_of(const at::TensorBase &tensor);

/* Makes the accumulating node of TENSOR, if any, fit TENSOR again.  BEFORE: the demands
 * to use if they are of the same node; NULL: none.  On failure, the node refuses
 * TENSOR's future gradients. */
void ml_accumulator_follow(const at::TensorBase &tensor,
                           const ml_accumulator *before) noexcept;

#endif
