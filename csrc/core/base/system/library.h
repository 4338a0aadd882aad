/* Shared libraries that this process has or loads: a driver's, which may be missing. */
#ifndef ML_LIBRARY_H
#define ML_LIBRARY_H

#include <stdbool.h>

/* The library NAME, loaded if need be; NULL where it is missing. */
void *ml_library_load(const char *name);
/* The library NAME if it is loaded already; NULL: it is not.  To be closed. */
void *ml_library_loaded(const char *name);
/* Takes NULL, too. */
void ml_library_close(void *library);

/* Writes the address of NAME to *FUNCTION, a pointer to a pointer to a function; NULL and
 * false where the library lacks it. */
bool ml_library_function(void *library, const char *name, void *function);

#endif
