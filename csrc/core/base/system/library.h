/* Shared libraries that this process has or loads: a driver's, for example, which may
 * be missing. */
#ifndef ML_LIBRARY_H
#define ML_LIBRARY_H

#include <stdbool.h>

/* The library NAME, loaded if needed; NULL: missing. */
void *ml_library_load(const char *name);
/* The library NAME if it is already loaded, for the caller to close; NULL: not
 * loaded. */
void *ml_library_loaded(const char *name);
/* Accepts NULL. */
void ml_library_close(void *library);

/* Writes the address of NAME to *FUNCTION, a pointer to a function pointer; NULL and
 * false if the library lacks it. */
bool ml_library_function(void *library, const char *name, void *function);

#endif
