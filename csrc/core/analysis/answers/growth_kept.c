/* The blocks that outlive the step that allocated them.  See growth_kept.h. */
#include "analysis/answers/growth_kept.h"

#include <string.h>

#include "base/base.h"

static int
add_kept(const ml_analysis *a, ml_kept_blocks *out, size_t row, uint32_t step,
         uint32_t until)
{
    void *list = out->list;
    if (ml_grow(&list, &out->capacity, out->count + 1, sizeof(ml_kept)) < 0) {
        return ML_ENOMEM;
    }
    out->list = list;
    const ml_lifetime *life = &a->lifetimes.rows[row];
    ml_cause cause = ml_causes_of(a->causes, a->device, life->birth - 1);
    const ml_frame *frame = &a->recording->frames[cause.frame];
    out->list[out->count++] = (ml_kept){
        .file = a->recording->strings[frame->filename],
        .function = a->recording->strings[frame->name],
        .line = frame->line,
        .backward = cause.phase == ML_PHASE_BACKWARD,
        .forward = cause.phase == ML_PHASE_FORWARD,
        .no_line = cause.no_line,
        .step = step,
        .until = until,
        .row = row,
        .bytes = life->bytes,
    };
    return 0;
}

/* The index of the first step that ends at MOMENT or later. */
static uint32_t
step_of(const ml_growth_steps *steps, uint32_t moment)
{
    size_t at;
    ML_SEARCH(at, steps->count, steps->moments[at] < moment);
    return (uint32_t)at;
}

/* Whether the block of LIFE is an optimizer's state: by its tag, or in torch's own snapshots as
 * far as their stacks and sizes tell. */
static bool
is_state(const ml_analysis *a, const ml_lifetime *life)
{
    if (ml_causes_signs(a->causes)->of == NULL) {
        return life->tag == ML_CATEGORY_OPTIMIZER_STATE;
    }
    ml_cause cause = ml_causes_of(a->causes, a->device, life->birth - 1);
    return ml_categories_judge(a->categories, life, &cause).category ==
           ML_CATEGORY_OPTIMIZER_STATE;
}

static int
find_all(const ml_analysis *analysis, const ml_growth_steps *steps, ml_kept_blocks *out)
{
    const ml_lifetimes *lifetimes = &analysis->lifetimes;
    uint32_t count = (uint32_t)steps->count;
    uint32_t step = 0;
    int error = 0;
    for (size_t i = 0; error == 0 && i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        if (life->birth == 0 || life->start != life->birth) {
            continue;
        }
        while (step < count && steps->moments[step] < life->birth) {
            step++;
        }
        if (step == count) {
            break;
        }
        const ml_lifetime *end =
            life->rest == 0 ? life : ml_lifetime_last(lifetimes, life);
        /* Most blocks go before the next step ends. */
        if (step + 1 < count && end->requested <= steps->moments[step + 1]) {
            continue;
        }
        uint32_t until =
            end->requested == ML_NEVER ? count : step_of(steps, end->requested);
        bool outlives = until > step + 1 || (until == count && step + 1 == count);
        if (outlives && !is_state(analysis, life)) {
            error = add_kept(analysis, out, i, step, until);
        }
    }
    return error;
}

typedef struct owned {
    uint64_t *owners; /* string of the name and of the module */
    uint64_t owner;
} owned;

static bool
same_owner(const void *context, uint32_t id)
{
    const owned *sought = context;
    return sought->owners[id] == sought->owner;
}

/* Leaves out the gradients that parameters have at the end: there are as many as parameters,
 * and where layers are unfrozen one by one, ever more. */
static int
drop_gradients(const ml_analysis *analysis, ml_kept_blocks *out)
{
    ml_intern seen = {0};
    owned sought = {.owners = ml_alloc_zeroed(out->count + 1, sizeof(uint64_t))};
    int error = sought.owners == NULL ? ML_ENOMEM : 0;
    size_t to = out->count;
    for (size_t i = out->count; error == 0 && i-- > 0;) {
        const ml_lifetime *life = &analysis->lifetimes.rows[out->list[i].row];
        uint32_t id;
        bool newest = false;
        if (life->tag == ML_CATEGORY_GRADIENT && life->name != 0) {
            sought.owner = (uint64_t)life->module << 32 | life->name;
            uint64_t hash = ml_hash_u64(sought.owner);
            newest = !ml_intern_find(&seen, hash, same_owner, &sought, &id);
            if (newest) {
                sought.owners[seen.count] = sought.owner;
                error = ml_intern_add(&seen, hash);
            }
        }
        if (!newest) {
            out->list[--to] = out->list[i];
        }
    }
    ml_free(sought.owners);
    ml_intern_fini(&seen);
    memmove(out->list, out->list + to, (out->count - to) * sizeof(ml_kept));
    out->count -= to;
    return error;
}

int
ml_kept_find(const ml_analysis *analysis, const ml_growth_steps *steps,
             ml_kept_blocks *out)
{
    int error = find_all(analysis, steps, out);
    return error == 0 && out->count != 0 ? drop_gradients(analysis, out) : error;
}
