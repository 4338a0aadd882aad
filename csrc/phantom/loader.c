/* dlopen: a program that loads a CUDA library by name gets this one.
 *
 * Preloading settles what libraries import. torch also loads NVRTC by name, and the
 * driver's management library, which on a machine with a GPU would be the real ones.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <string.h>

typedef void *(*dlopen_function)(const char *name, int mode);

static bool
begins_with(const char *name, const char *beginning)
{
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

/* The real dlopen searches the directories of the library that called it, which it
 * tells by its return address: so it must be a tail call that ends this function,
 * as compilers make it when they optimise. */
__attribute__((optimize("O2"), visibility("default"))) void *
dlopen(const char *name, int mode);

__attribute__((optimize("O2"), visibility("default"))) void *
dlopen(const char *name, int mode)
{
    static dlopen_function real;

    if (real == NULL) {
        real = (dlopen_function)dlsym(RTLD_NEXT, "dlopen");
    }
    if (name != NULL && (begins_with(name, "libnvrtc.so") ||
                         begins_with(name, "libcuda.so"))) {
        name = "libcuda.so.1"; /* this library's SONAME */
        mode |= RTLD_NOLOAD;
    }
    else if (name != NULL && begins_with(name, "libnvidia-ml.so")) {
        name = "libnvidia-ml.so (there is none on the phantom device)";
    }
    return real(name, mode);
}
