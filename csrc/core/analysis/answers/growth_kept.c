/* The blocks that outlive the step that allocated them.  See growth_kept.h. */
#include "analysis/answers/growth_kept.h"

#include <stdlib.h>

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
    uint8_t category = ml_categories_judge(a->categories, life, &cause).category;
    bool first = ml_categories_like_workspace(a->categories, life);
    out->list[out->count++] = (ml_kept){
        .file = a->recording->strings[frame->filename],
        .function = a->recording->strings[frame->name],
        .line = frame->line,
        .backward = cause.phase == ML_PHASE_BACKWARD,
        .forward = cause.phase == ML_PHASE_FORWARD,
        .given = (cause.phase == ML_PHASE_OTHER || cause.phase == ML_PHASE_UNKNOWN) &&
                 (category == ML_CATEGORY_INPUT || category == ML_CATEGORY_OTHER ||
                  category == ML_CATEGORY_UNKNOWN),
        .workspace = category == ML_CATEGORY_WORKSPACE ||
                     (category == ML_CATEGORY_UNKNOWN && first),
        .first = first,
        .no_line = cause.no_line,
        .step = step,
        .until = until,
        .row = row,
        .bytes = life->bytes,
    };
    return 0;
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
        uint32_t until = end->requested == ML_NEVER
                             ? count
                             : (uint32_t)ml_growth_step_of(steps, end->requested - 1);
        bool outlives = until > step + 1 || (until == count && step + 1 == count);
        if (outlives && !is_state(analysis, life)) {
            error = add_kept(analysis, out, i, step, until);
        }
    }
    return error;
}

/* ---- Gradients ----
 *
 * There are as many as parameters, and where layers are unfrozen one by one, ever more: those
 * that parameters have at the end are left out, of each owner as many as it can have. */

/* Owners of gradients: parameters, as strings of the name and of the module; or, in torch's own
 * snapshots, which name none, all parameters of a size. */
typedef struct owners {
    const ml_analysis *analysis;
    bool by_size;
    ml_intern seen;
    uint64_t *keys; /* owned; by id */
    uint64_t *room; /* owned; by id: gradients to leave out */
    uint64_t key;
} owners;

static bool
is_key(const void *context, uint32_t id)
{
    const owners *of = context;
    return of->keys[id] == of->key;
}

/* The id of KEY among those seen; UINT32_MAX: it is not there. */
static uint32_t
find_owner(owners *of, uint64_t key)
{
    uint32_t id;
    of->key = key;
    bool known = ml_intern_find(&of->seen, ml_hash_u64(key), is_key, of, &id);
    return known ? id : UINT32_MAX;
}

/* Sets *KEY to the owner of BLOCK, which is a gradient or looks like one: made by a pass, and
 * there at the end.  False: it has none. */
static bool
owner_of(const owners *of, const ml_kept *block, uint32_t end, uint64_t *key)
{
    const ml_lifetimes *lifetimes = &of->analysis->lifetimes;
    const ml_lifetime *life = &lifetimes->rows[block->row];
    if (of->by_size) {
        *key = ml_lifetimes_request(lifetimes, block->row).size;
        return block->backward && block->until == end;
    }
    *key = (uint64_t)life->module << 32 | life->name;
    return life->tag == ML_CATEGORY_GRADIENT && life->name != 0;
}

static int
find_owners(owners *of, const ml_kept_blocks *kept, uint32_t end)
{
    of->keys = ml_alloc_zeroed(kept->count + 1, sizeof(uint64_t));
    of->room = ml_alloc_zeroed(kept->count + 1, sizeof(uint64_t));
    int error = of->keys == NULL || of->room == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; error == 0 && i < kept->count; i++) {
        uint64_t key;
        if (owner_of(of, &kept->list[i], end, &key) &&
            find_owner(of, key) == UINT32_MAX) {
            of->keys[of->seen.count] = key;
            of->room[of->seen.count] = !of->by_size;
            error = ml_intern_add(&of->seen, ml_hash_u64(key));
        }
    }
    return error;
}

/* A size has as many parameters as blocks of it that were there before the first pass and are at
 * the end. */
static void
count_parameters(owners *of)
{
    const ml_analysis *a = of->analysis;
    const ml_lifetimes *lifetimes = &a->lifetimes;
    for (size_t i = 0; i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        if (life->birth != 0 &&
            ml_causes_is_backward(a->causes, a->device, life->birth - 1)) {
            break;
        }
        bool lasts = ml_lifetime_last(lifetimes, life)->requested == ML_NEVER;
        uint32_t id = !lasts || life->start != life->birth
                          ? UINT32_MAX
                          : find_owner(of, ml_lifetimes_request(lifetimes, i).size);
        if (id != UINT32_MAX) {
            of->room[id]++;
        }
    }
}

/* An owner has its newest.  Of those of a size the oldest are taken: what comes beside the
 * parameters' own is then seen to come until the end. */
static void
drop(owners *of, ml_kept_blocks *kept, uint32_t end)
{
    size_t count = kept->count;
    for (size_t k = 0; k < count; k++) {
        ml_kept *block = &kept->list[of->by_size ? k : count - 1 - k];
        uint64_t key;
        uint32_t id = owner_of(of, block, end, &key) ? find_owner(of, key) : UINT32_MAX;
        if (id != UINT32_MAX && of->room[id] != 0) {
            of->room[id]--;
            block->bytes = 0;
        }
    }
    size_t to = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept->list[i].bytes != 0) {
            kept->list[to++] = kept->list[i];
        }
    }
    kept->count = to;
}

static int
drop_gradients(const ml_analysis *analysis, ml_kept_blocks *kept, uint32_t end)
{
    owners of = {.analysis = analysis,
                 .by_size = ml_causes_signs(analysis->causes)->of != NULL};
    int error = find_owners(&of, kept, end);
    if (error == 0 && of.by_size && of.seen.count != 0) {
        count_parameters(&of);
    }
    if (error == 0) {
        drop(&of, kept, end);
    }
    ml_free(of.keys);
    ml_free(of.room);
    ml_intern_fini(&of.seen);
    return error;
}

int
ml_kept_compare_lines(const ml_kept *a, const ml_kept *b)
{
    if (a->line != b->line) {
        return a->line < b->line ? -1 : 1;
    }
    if (a->backward != b->backward) {
        return a->backward ? 1 : -1;
    }
    if (a->no_line != b->no_line) {
        return a->no_line < b->no_line ? -1 : 1;
    }
    int order = ml_string_compare(a->file, b->file);
    return order != 0 ? order : ml_string_compare(a->function, b->function);
}

static int
compare_kept(const void *a, const void *b)
{
    const ml_kept *x = a;
    const ml_kept *y = b;
    int order = ml_kept_compare_lines(x, y);
    return order != 0 ? order : (x->row > y->row) - (x->row < y->row);
}

int
ml_kept_find(const ml_analysis *analysis, const ml_growth_steps *steps,
             ml_kept_blocks *out)
{
    int error = find_all(analysis, steps, out);
    if (error == 0 && out->count != 0) {
        error = drop_gradients(analysis, out, (uint32_t)steps->count);
    }
    if (error == 0 && out->count != 0) {
        qsort(out->list, out->count, sizeof(*out->list), compare_kept);
    }
    return error;
}
