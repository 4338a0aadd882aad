/* Variables that hold blocks which nothing reads any more, until they are set again.
 *
 * The program's code tells them, which a search reads after an optimizer's step and notes
 * (ML_NOTE_HOLDER with a line).  What is noted of one block holds for all blocks of its
 * stack. */
#ifndef ML_HELD_VARIABLES_H
#define ML_HELD_VARIABLES_H

#include "analysis/answers/growth_steps.h"
#include "lab/whatif/workload.h"

typedef struct ml_held_variable {
    uint32_t stack; /* of the blocks */
    /* string: "NAME of FUNCTION"; several names have ", " between, and names of several
     * functions "; ", the first that of FRAME */
    uint32_t name;
    uint32_t frame; /* frame id of the line that sets it; 0: not in the stack */
    bool ends;      /* nothing reads it from the end of a step on */
} ml_held_variable;

typedef struct ml_held_variables {
    ml_held_variable *list; /* owned */
    size_t count;
    ml_growth_steps steps;
} ml_held_variables;

/* Free ALL in any case.  0 or ML_ENOMEM. */
int ml_held_variables_find(const ml_analysis *analysis, const ml_workload *workload,
                           ml_held_variables *all);
void ml_held_variables_fini(ml_held_variables *all);

/* The length of the names at the start of SAID, a name as above. */
size_t ml_held_variable_name(ml_string said);
/* That which holds DEMAND; NULL: none is known. */
const ml_held_variable *ml_held_variable_of(const ml_held_variables *all,
                                            const ml_demand *demand);
/* Whether OF holds DEMAND beyond the step that made it, and not beyond the next.  *UNTIL is
 * the event by which it could end. */
bool ml_held_variable_ends(const ml_held_variables *all, const ml_held_variable *of,
                           const ml_demand *demand, size_t *until);

#endif
