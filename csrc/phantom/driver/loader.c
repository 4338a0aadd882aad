/* dlopen: a program that loads a CUDA library by name gets this library.
 *
 * Preloading covers libraries' imports.  torch also loads NVRTC and NVML by name, which
 * would be the real ones on a machine with a GPU. */
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

/* The real dlopen searches the directories of its caller's library, which it finds by
 * its return address.  So this function must jump to it.  Each compiler has its own way
 * to force a tail call, even without optimisation. */
#ifdef __clang__
#define TAIL_CALL __attribute__((musttail))
#define TAIL_CALLS __attribute__((visibility("default")))
#else
#define TAIL_CALL
#define TAIL_CALLS __attribute__((visibility("default"), optimize("O2")))
#endif

TAIL_CALLS void *dlopen(const char *name, int mode);

void *
dlopen(const char *name, int mode)
{
    static dlopen_function real;

    if (real == NULL) {
        real = (dlopen_function)dlsym(RTLD_NEXT, "dlopen");
    }
    if (name != NULL &&
        (begins_with(name, "libnvrtc.so") || begins_with(name, "libcuda.so") ||
         begins_with(name, "libnvidia-ml.so"))) {
        name = "libcuda.so.1"; /* this library's SONAME */
        mode |= RTLD_NOLOAD;
    }
    TAIL_CALL return real(name, mode);
}
