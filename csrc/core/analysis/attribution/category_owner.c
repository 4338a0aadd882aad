/* Whose block it is, beside its category, and in words why a category is not known.  See
 * category.h. */
#include "analysis/attribution/category.h"

void
ml_cause_name_owner(ml_cause *cause, const ml_lifetime *life, const ml_verdict *verdict)
{
    if (life->module != 0) {
        cause->module = life->module;
        cause->no_module = ML_NO_MODULE_NONE;
    }
    else if (life->tag != ML_CATEGORY_COUNT && life->tag != ML_CATEGORY_INPUT &&
             cause->module == 0) {
        /* A tag's name is a module's; a state's name is its optimizer's. */
        bool nobodys = life->name == 0 || life->tag == ML_CATEGORY_OPTIMIZER_STATE;
        cause->no_module = nobodys ? ML_NO_MODULE_OWNER : ML_NO_MODULE_UNNAMED;
    }
    if (verdict->category == ML_CATEGORY_WORKSPACE &&
        life->requested != life->birth + 1) {
        /* It serves all modules, not only the first; one of a product, which the next event
         * frees, serves its own. */
        cause->module = 0;
        cause->no_module = ML_NO_MODULE_LIBRARY;
    }
}

_Static_assert(ML_IS_NUMBERED(ML_WHYS, ML_WHY_COUNT), "a number is missing or twice");

const char *
ml_why_text(unsigned why)
{
    static const char *const texts[] = {ML_WHYS(ML_NUMBERED_TEXT)};
    return texts[why < ML_WHY_COUNT ? why : ML_WHY_KNOWN];
}
