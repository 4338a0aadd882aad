/* Loads and finds shared libraries.  See library.h. */
#define _GNU_SOURCE /* for RTLD_NOLOAD */
#include "base/system/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

void *
ml_library_load(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

void *
ml_library_loaded(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

void
ml_library_close(void *library)
{
    if (library != NULL) {
        dlclose(library);
    }
}

bool
ml_library_function(void *library, const char *name, void *function)
{
    /* ISO C has no conversion from an object pointer to a function's. */
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}
