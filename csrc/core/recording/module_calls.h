/* Names for the calls of modules in a recording without modules: torch's own snapshots.
 *
 * Frames have the file of a module's forward and the line that called it, not the
 * module's path.  So a call at line 682 of model.py of a forward in block.py is
 * block@682, after the enclosing call's name and a dot.  A call of a forward in the
 * same file is @682.  A container's line is left out.  Modules called in a loop by one
 * line share a name. */
#ifndef ML_MODULE_CALLS_H
#define ML_MODULE_CALLS_H

#include "recording/recording.h"

/* RECORDING has no modules, and is not shared yet.  0 or ML_ENOMEM. */
int ml_module_calls_name(ml_recording *recording);

#endif
