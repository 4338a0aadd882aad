/* What torch's Python and autograd headers are needed for, without these headers: they take
 * longer to compile than all the rest of a file.
 *
 * Owns the way from a Python object to its tensor or storage, what a sparse tensor consists
 * of, and what the node that accumulates a tensor's gradient knows; what that is for it must
 * not know.  C++. */
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

/* Receives a component and the method that gives it, such as "crow_indices()" (static), with
 * a reference of the call's own. */
using ml_component_visitor =
    std::function<void(const char *name, const at::Tensor &component)>;

/* Visits what TENSOR consists of where it is sparse; false: it is not. */
bool ml_visit_components(c10::TensorImpl &tensor, const ml_component_visitor &visit);

/* What the node that accumulates a tensor's gradient demands of it, such as its device.
 * Does not keep the node alive. */
struct ml_accumulator;

/* Of TENSOR as it is; NULL where it has no such node.  Throws std::bad_alloc. */
std::shared_ptr<const ml_accumulator> ml_accumulator_of(const at::TensorBase &tensor);

/* Makes the node of TENSOR, where it has one, demand what fits TENSOR: what BEFORE says where
 * that is of the same node (NULL: it is not).  Where that fails, the node refuses the
 * gradients that TENSOR will get. */
void ml_accumulator_follow(const at::TensorBase &tensor,
                           const ml_accumulator *before) noexcept;

#endif
