/* Preloaded: counts how often torch is asked for the frames of TorchScript, and says that there
 * are none. */
#include <string.h>

int callstacks;

/* std::vector<torch::jit::StackEntry> torch::jit::currentCallstack(): three words, made where
 * the caller says. */
void *_ZN5torch3jit16currentCallstackEv(void *out);

void *
_ZN5torch3jit16currentCallstackEv(void *out)
{
    __atomic_fetch_add(&callstacks, 1, __ATOMIC_RELAXED);
    return memset(out, 0, 3 * sizeof(void *));
}
