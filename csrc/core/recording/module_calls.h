/* Names for the calls of modules in a recording that has none: torch's own snapshots.
 *
 * Frames tell the file of a module's forward and the line that called it, not the module's
 * path.  So line 682 of model.py calling a forward of block.py is block@682, behind the name
 * of the call around it and a dot; calling one of its own file, @682.  A container's line
 * says nothing and is left out.  Modules that one line calls in a loop have one name. */
#ifndef ML_MODULE_CALLS_H
#define ML_MODULE_CALLS_H

#include "recording/recording.h"

/* RECORDING has no modules, and nobody else has it yet.  0 or ML_ENOMEM. */
int ml_module_calls_name(ml_recording *recording);

#endif
