/* What an allocation is.  See explain.h. */
#include "analysis/attribution/explain.h"

#include "analysis/attribution/elders.h"
#include "ledger/blocks.h"

ml_explained
ml_explain(const ml_explainer *explainer, uint64_t addr, uint64_t birth, uint32_t stack)
{
    static const ml_life untold = {
        .birth = ML_NEVER, .end = ML_NEVER, .tag = ML_CATEGORY_COUNT};
    bool before = birth == ML_BEFORE_EVENTS;
    const ml_life *life = before ? ml_lives_before(explainer->lives, addr)
                                 : &explainer->lives->of_event[birth];
    life = life != NULL ? life : &untold;
    const ml_elder *elder = before ? ml_elder_at(explainer->trace, addr) : NULL;
    ml_explained it = {.name = life->name};
    if (elder != NULL) {
        it.cause = elder->cause;
        it.cause.stack = stack;
    }
    else {
        it.cause =
            before ? ml_causes_before(explainer->causes, stack)
                   : ml_causes_of(explainer->causes, explainer->device, (size_t)birth);
    }
    it.verdict = elder != NULL && life->tag == ML_CATEGORY_COUNT
                     ? elder->verdict
                     : ml_categories_judge(explainer->categories, life, &it.cause);
    ml_cause_name_owner(&it.cause, life, &it.verdict);
    return it;
}
