/* Places of an advice: patterns of modules, with ", " between, such as
 * "up_blocks.2.resnets.*, down_blocks.*". */
#ifndef ML_ADVICE_PLACES_H
#define ML_ADVICE_PLACES_H

#include <stdbool.h>

#include "recording/recording.h"

/* Whether PATH is one of PLACES, or of a module within one or around it. */
bool ml_places_nest(const char *places, const char *path);
/* *PLACES, owned, with MORE behind them.  0, or ML_ENOMEM with nothing changed. */
int ml_places_add(char **places, const char *more);
/* Widens *PLACES, owned, NULL: none, so that PATH fits: the place with its first part, such as
 * "encoder" or the class of a model, else one more; of many, one place has all.  As
 * ml_places_add. */
int ml_places_widen(char **places, ml_string path);
/* Places that differ in one number become one, "up_blocks.{2,3}.resnets.*", where the first of
 * them is.  As ml_places_add. */
int ml_places_fold(char **places);

/* A hash of the path of a module without its numbers. */
uint64_t ml_module_pattern(const ml_string *path);

#endif
