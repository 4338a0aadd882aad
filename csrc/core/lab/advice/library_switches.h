/* A library's own switch for a change that a program of it cannot make in its lines. */
#ifndef ML_LIBRARY_SWITCHES_H
#define ML_LIBRARY_SWITCHES_H

#include "recording/recording.h"

/* What to write, where the library that allocated, or freed, at STACK has a switch; NULL: it has
 * none, or STACK is of no such library. */
const char *ml_switch_of_checkpoint(const ml_recording *recording, uint32_t stack);
const char *ml_switch_of_loss(const ml_recording *recording, uint32_t stack);
const char *ml_switch_of_late_gradients(const ml_recording *recording, uint32_t stack);

/* Whether STACK is of a loss in which a program has no line. */
bool ml_is_loss_of_library(const ml_recording *recording, uint32_t stack);

#endif
