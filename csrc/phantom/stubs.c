/* Every symbol of the CUDA libraries that torch uses and that no other file here
 * implements.  A call of one ends the program with its name, and never reaches a real
 * library.
 *
 * The stubs are weak and cover the whole list, so an implementation elsewhere replaces
 * its stub. */
#include "phantom.h"

#define XX(name) \
    __attribute__((weak, visibility("default"))) void name(void); \
    void name(void) \
    { \
        ml_phantom_unanswered(#name); \
    }
#include "symbols.def"
