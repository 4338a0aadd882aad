/* Owns the allocator callbacks' questions to autograd: whether a node runs on the
 * calling thread, and the numbers that connect a backward allocation with its forward.
 *
 * Called under the device's lock, with or without the GIL: takes no lock, memory or
 * GIL, and throws nothing.  The torch functions below only read variables of the
 * thread; currentThreadId numbers the thread once, by an atomic addition.  Since 2.15
 * counting a node may also count its Python object, but not a node that runs, which the
 * engine counts, too.  The file is an object of its own for that proof
 * (tests/native/test_hot_path_symbols.py).  Also, autograd's headers, the only ones with
 * a Node's layout, take longer to compile than the rest of the bridge. */
#include <cstdint>
#include <cstring>
#include <memory>
#include <typeinfo>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#if __has_include(<torch/csrc/autograd/node.h>)
#include <torch/csrc/autograd/node.h>
#else
#include <torch/csrc/autograd/function.h>
#endif

#include "bridge.h"

namespace {

/* Numbers belong to a thread and mean nothing without it. */
void
set_numbers(ml_event *event, uint64_t thread, uint64_t sequence) noexcept
{
    const bool known = thread <= UINT16_MAX;
    event->autograd_thread = known ? static_cast<uint16_t>(thread) : 0;
    event->sequence = known ? sequence : 0;
}

/* torch numbers a thread once.  Initial-exec: no lazy allocation. */
__thread uint64_t own_number __attribute__((tls_model("initial-exec"))) = 0;

[[gnu::cold, gnu::noinline]] uint64_t
number_thread() noexcept
{
    own_number = at::RecordFunction::currentThreadId();
    return own_number;
}

inline uint64_t
own_thread() noexcept
{
    return own_number != 0 ? own_number : number_thread();
}

/* torch's class of the same place, whose header needs pybind11. */
struct python_anomaly : torch::autograd::AnomalyMetadata {
    const void *dict;
};

/* Node::metadata() would make what is not there, and take the GIL. */
struct open_node : torch::autograd::Node {
    static const torch::autograd::AnomalyMetadata *
    anomaly(const torch::autograd::Node &node) noexcept
    {
        return (node.*(&open_node::anomaly_metadata_)).get();
    }
};

/* Apart, as few nodes have it. */
[[gnu::cold, gnu::noinline]] const void *
dict_of(const torch::autograd::AnomalyMetadata &kept) noexcept
{
    if (std::strcmp(typeid(kept).name(), "N5torch8autograd17PyAnomalyMetadataE") != 0) {
        return nullptr;
    }
    return static_cast<const python_anomaly &>(kept).dict;
}

/* The dict in which torch keeps the traceback of NODE's forward; NULL without anomaly
 * mode. */
inline const void *
anomaly_of(const torch::autograd::Node &node) noexcept
{
    const torch::autograd::AnomalyMetadata *kept = open_node::anomaly(node);
    return kept != nullptr ? dict_of(*kept) : nullptr;
}

} // namespace

extern "C" void
ml_autograd_fill(ml_event *event, ml_event_text *text) noexcept
{
    const auto node = torch::autograd::get_current_node();
    if (node == nullptr) {
        set_numbers(event, own_thread(), at::sequence_number::peek());
        return;
    }
    event->flags |= ML_EVENT_BACKWARD;
    text->node = typeid(*node).name();
    text->anomaly = anomaly_of(*node);
    set_numbers(event, node->thread_id(), node->sequence_nr());
    /* Off in most backward passes.  A checkpoint's recomputation has it on, and so does
     * a pass that will be differentiated again. */
    if (event->action == ML_ACTION_ALLOC && c10::GradMode::is_enabled()) {
        const uint64_t own = own_thread();
        if (own <= UINT16_MAX) {
            event->next_thread = static_cast<uint16_t>(own);
            event->next = at::sequence_number::peek();
        }
    }
}

extern "C" const char *
ml_autograd_running(void) noexcept
{
    const auto node = torch::autograd::get_current_node();
    return node != nullptr ? typeid(*node).name() : nullptr;
}
