/* Every symbol that torch asks of the CUDA libraries and that no other file here
 * answers: a call of it ends the program with its name, and never reaches a real
 * library.
 *
 * The stubs are weak and cover the whole list, so an answer written elsewhere takes
 * a stub's place by being there: no second list says what is answered.
 */
#include "phantom.h"

#define XX(name) \
    __attribute__((weak, visibility("default"))) void name(void); \
    void name(void) \
    { \
        ml_phantom_unanswered(#name); \
    }
#include "symbols.def"
