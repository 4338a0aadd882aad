/* dlopen: a program that loads a CUDA library by name gets this one.
 *
 * Preloading settles what libraries import. torch also loads NVRTC and NVML by name,
 * which on a machine with a GPU would be the real ones.
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
 * tells by its return address. So it must be reached by a jump: a tail call, which each
 * compiler is told in its own way to make even where it does not optimise. */
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
