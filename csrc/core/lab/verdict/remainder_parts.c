/* A remainder under construction.  See remainder_parts.h. */
#include "lab/verdict/remainder_parts.h"

#include <string.h>

#include "base/base.h"

/* ---- Demands ---- */

int
ml_remainder_add(ml_remainder_builder *b, uint64_t bytes, size_t like, bool scales,
                 enum ml_remainder_kind kind, size_t *index)
{
    ml_remainder *out = b->out;
    ml_workload *workload = out->workload;
    if (workload->count == out->capacity) {
        size_t items = out->capacity;
        void *demands = workload->demands;
        void *marks = out->items;
        int error =
            ml_grow(&demands, &out->capacity, workload->count + 1, sizeof(ml_demand));
        workload->demands = demands;
        if (error == 0) {
            error = ml_grow(&marks, &items, out->capacity, sizeof(ml_remainder_item));
            out->items = marks;
        }
        if (error < 0) {
            return ML_ENOMEM;
        }
    }
    const ml_demand *of = &workload->demands[like];
    ml_demand demand = {.bytes = bytes,
                        .stream_pool = of->stream_pool,
                        .born = (uint32_t)b->now,
                        .freed = ML_NO_EVENT,
                        .completed = ML_NO_EVENT,
                        .last_used = ML_NO_EVENT,
                        .stack = of->stack,
                        .block_bytes = bytes};
    out->items[workload->count] = (ml_remainder_item){
        .scales = scales,
        .kind = (uint8_t)kind,
        .category = kind == ML_REST_GRADIENT ? ML_CATEGORY_GRADIENT
                    : kind == ML_REST_KEPT   ? ML_CATEGORY_OPTIMIZER_STATE
                                             : ML_CATEGORY_UNKNOWN,
        .apart = b->apart || out->items[like].apart,
        .like = (uint32_t)(like < out->recorded ? like : out->items[like].like)};
    if (index != NULL) {
        *index = workload->count;
    }
    workload->demands[workload->count++] = demand;
    return 0;
}

void
ml_remainder_free_at(ml_remainder_builder *b, size_t index, size_t event)
{
    ml_demand *demand = &b->out->workload->demands[index];
    demand->freed = (uint32_t)event;
    demand->completed = (uint32_t)event;
}

bool
ml_remainder_is_live(const ml_remainder *out, size_t i)
{
    const ml_demand *demand = &out->workload->demands[i];
    return demand->bytes != 0 && demand->freed == ML_NO_EVENT &&
           demand->completed == ML_NO_EVENT;
}

bool
ml_remainder_is_workspace(const ml_remainder_builder *b, size_t i)
{
    const ml_explained *of = ml_explained_of(b->it, i);
    return ml_demand_is_kept_workspace(b->it, i) ||
           (of->verdict.category == ML_CATEGORY_UNKNOWN &&
            of->cause.phase == ML_PHASE_FORWARD &&
            ml_workspace_has_size(b->it->workload->demands[i].bytes));
}

bool
ml_remainder_is_of(const ml_remainder_builder *b, size_t i, const char *const *names,
                   size_t count)
{
    const ml_recording *recording = b->it->recording;
    uint32_t stack = b->out->workload->demands[i].stack;
    ml_string name = ml_stack_name(recording, stack);
    ml_string file = ml_stack_file(recording, stack);
    for (size_t k = 0; k < count; k++) {
        size_t length = strlen(names[k]);
        char ending[32] = "/modules/";
        memcpy(ending + 9, names[k], length);
        memcpy(ending + 9 + length, ".py", 4);
        if ((name.length == length && memcmp(name.bytes, names[k], length) == 0) ||
            ml_string_holds(file, ending)) {
            return true;
        }
    }
    return false;
}

/* ---- The recorded ones, by birth ---- */

int
ml_sequence_take(const ml_remainder_builder *b, size_t from, size_t until,
                 ml_sequence *out)
{
    const ml_workload *workload = b->out->workload;
    out->list = ml_alloc_zeroed(b->out->recorded + 1, sizeof(size_t));
    out->count = 0;
    for (size_t i = 0; out->list != NULL && i < b->out->recorded; i++) {
        size_t born = workload->demands[i].born;
        if (workload->demands[i].bytes != 0 && born != ML_NO_EVENT && born >= from &&
            born < until && !ml_demand_is_kept_workspace(b->it, i)) {
            out->list[out->count++] = i;
        }
    }
    return out->list == NULL ? ML_ENOMEM : 0;
}
