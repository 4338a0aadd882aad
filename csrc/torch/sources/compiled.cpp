/* Owns the callback by which torch reports the regions that torch.compile made, so that
 * events carry the name of the one in which they happen.
 *
 * c10's own events have it only while torch's recorder is on.  The regions are functions
 * of torch, told apart by their names: while this listens, torch reports each operator.
 * So it does only if a program asks for compile_context. */
#include <cstring>
#include <memory>
#include <string>

#include <ATen/record_function.h>

#include "bridge.h"
#include "sources/callbacks.h"

namespace memlab::compiled {

namespace {

/* Changed with the GIL held. */
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
bool watching;

/* A region and those around it on its thread. */
struct region : at::ObserverContext {
    std::string name;
    region *around = nullptr;
};

thread_local region *innermost;

void
tell()
{
    ml_tracker_compiled(innermost != nullptr ? innermost->name.data() : nullptr,
                        innermost != nullptr ? innermost->name.size() : 0);
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &function)
{
    static const char prefix[] = "Torch-Compiled Region";
    const char *name = function.name();
    if (name == nullptr || std::strncmp(name, prefix, sizeof prefix - 1) != 0) {
        return nullptr;
    }
    auto begun = std::make_unique<region>();
    begun->name = name;
    begun->around = innermost;
    innermost = begun.get();
    tell();
    return begun;
}

void
on_end(const at::RecordFunction &, at::ObserverContext *context)
{
    if (context != nullptr) {
        innermost = static_cast<region *>(context)->around;
        tell();
    }
}

} // namespace

extern "C" int
ml_compiled_watch(int enabled)
{
    if (watching == (enabled != 0)) {
        return 0;
    }
    try {
        const callbacks::ChangeForAll change;
        if (enabled) {
            handle = at::addGlobalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                               .scopes({at::RecordScope::FUNCTION}));
        }
        else {
            at::removeCallback(handle);
        }
        watching = enabled != 0;
    }
    catch (...) {
        return ML_ENOMEM;
    }
    return 0;
}

} // namespace memlab::compiled
