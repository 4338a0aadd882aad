/* Estimates from the lifetimes and sizes of a device's blocks.  See estimate.h. */
#include "analysis/attribution/estimate.h"

#include <stdlib.h>

#include "base/base.h"

/* Blocks of SIZE that a pass made and left. */
typedef struct gradient {
    uint64_t size; /* requested bytes */
    uint32_t pass;
    uint32_t count;
} gradient;

struct ml_estimate {
    gradient *sizes; /* owned; by size: the most that one pass left */
    size_t size_count;
    size_t size_capacity;
    bool *inputs;     /* owned; by stack */
    uint8_t *earlier; /* owned; enum ml_category, of the blocks from before */
    size_t earlier_count;
};

typedef struct search {
    const ml_causes *causes;
    const ml_lifetimes *lifetimes;
    const ml_device_trace *trace;
    const ml_workspaces *workspaces;
    size_t device;
    ml_estimate *made;
    uint32_t *passes; /* owned; by event: number of passes that began up to it */
    uint64_t trained; /* sum of the sizes, each times its count */
} search;

static uint8_t
signs_of(const search *s, uint32_t stack)
{
    return ml_causes_signs(s->causes)->of[stack];
}

/* ---- Events ---- */

static void
find_passes(search *s)
{
    bool passing = false;
    uint32_t passes = 0;
    for (size_t i = 0; i < s->trace->event_count; i++) {
        bool backward = ml_causes_is_backward(s->causes, s->device, i);
        if (backward) {
            passes += !passing;
            passing = true;
        }
        else if (ml_events_action(&s->trace->events, i) == ML_ACTION_ALLOC) {
            passing = false;
        }
        s->passes[i] = passes;
    }
    s->passes[s->trace->event_count] = passes;
}

/* The first block of a stack decides: a later one may come between two evaluations. */
static int
find_inputs(search *s, size_t stacks)
{
    bool *seen = ml_alloc_zeroed(stacks, sizeof(bool));
    s->made->inputs = ml_alloc_zeroed(stacks, sizeof(bool));
    if (seen == NULL || s->made->inputs == NULL) {
        ml_free(seen);
        return ML_ENOMEM;
    }
    bool called = false;
    for (size_t i = 0; i < s->trace->event_count; i++) {
        if (ml_events_action(&s->trace->events, i) != ML_ACTION_ALLOC) {
            continue;
        }
        uint32_t stack = ml_events_stack(&s->trace->events, i);
        enum ml_phase phase = ml_causes_phase(s->causes, s->device, i);
        if (phase == ML_PHASE_OTHER) {
            s->made->inputs[stack] = seen[stack] ? s->made->inputs[stack] : !called;
            seen[stack] = true;
            continue;
        }
        called = phase == ML_PHASE_FORWARD;
    }
    ml_free(seen);
    return 0;
}

/* ---- Trained sizes ---- */

static int
compare_gradients(const void *a, const void *b)
{
    const gradient *x = a;
    const gradient *y = b;
    if (x->size != y->size) {
        return x->size < y->size ? -1 : 1;
    }
    return x->pass < y->pass ? -1 : x->pass > y->pass;
}

static int
add_gradient(search *s, uint64_t size, uint32_t pass)
{
    ml_estimate *made = s->made;
    int error = ml_grow((void **)&made->sizes, &made->size_capacity,
                        made->size_count + 1, sizeof(gradient));
    if (error == 0) {
        made->sizes[made->size_count++] = (gradient){size, pass, 1};
    }
    return error;
}

/* Whether a block lasts until another pass, or beyond all. */
static bool
outlives(const search *s, size_t born, uint32_t requested)
{
    return requested == ML_NEVER ||
           !ml_causes_is_backward(s->causes, s->device, requested - 1) ||
           s->passes[requested - 1] != s->passes[born];
}

/* Whether zero_grad() frees a block at REQUESTED, a moment or ML_NEVER. */
static bool
is_cleared(const search *s, uint32_t requested)
{
    return ml_stack_signs_clear(ml_causes_signs(s->causes), &s->trace->events,
                                requested);
}

static int
find_gradients(search *s)
{
    const ml_lifetimes *lifetimes = s->lifetimes;
    int error = 0;
    for (size_t i = 0; i < lifetimes->earlier_count && error == 0; i++) {
        if (is_cleared(s, lifetimes->rows[i].requested)) {
            error = add_gradient(s, lifetimes->earlier[i].size, 0);
        }
    }
    for (size_t i = 0; i < s->trace->event_count && error == 0; i++) {
        uint64_t size = ml_events_size(&s->trace->events, i);
        if (ml_events_action(&s->trace->events, i) != ML_ACTION_ALLOC ||
            size == ML_WORKSPACE_ODD) {
            continue;
        }
        const ml_lifetime *row = &lifetimes->rows[ml_lifetimes_row(lifetimes, i)];
        if (size == ML_WORKSPACE_EVEN && ml_workspaces_keep(s->workspaces, row)) {
            continue;
        }
        uint32_t requested = ml_lifetime_last(lifetimes, row)->requested;
        if (is_cleared(s, requested) ||
            (ml_causes_is_backward(s->causes, s->device, i) &&
             outlives(s, i, requested))) {
            error = add_gradient(s, size, s->passes[i]);
        }
    }
    return error;
}

/* Keeps for each size the most that one pass left. */
static void
sum_gradients(search *s)
{
    ml_estimate *made = s->made;
    size_t count = 0;
    if (made->size_count != 0) {
        qsort(made->sizes, made->size_count, sizeof(gradient), compare_gradients);
    }
    for (size_t i = 0; i < made->size_count;) {
        gradient sum = made->sizes[i];
        for (i++; i < made->size_count && compare_gradients(&made->sizes[i], &sum) == 0;
             i++) {
            sum.count++;
        }
        if (count != 0 && made->sizes[count - 1].size == sum.size) {
            gradient *most = &made->sizes[count - 1];
            most->count = most->count < sum.count ? sum.count : most->count;
        }
        else {
            made->sizes[count++] = sum;
        }
    }
    made->size_count = count;
    for (size_t i = 0; i < count; i++) {
        s->trained += made->sizes[i].size * made->sizes[i].count;
    }
}

static const gradient *
find_size(const ml_estimate *made, uint64_t size)
{
    size_t at;
    ML_SEARCH(at, made->size_count, made->sizes[at].size < size);
    return at < made->size_count && made->sizes[at].size == size ? &made->sizes[at]
                                                                 : NULL;
}

/* ---- Blocks from before the first event ---- */

/* A block of unknown category, ordered by age. */
typedef struct candidate {
    uint64_t size;
    uint64_t segment; /* its segment's address; 0 for expandable ones */
    uint64_t addr;
    size_t index;
} candidate;

/* Drivers put new segments below the last ones; torch puts new blocks above. */
static int
compare_candidates(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    if (x->size != y->size) {
        return x->size < y->size ? -1 : 1;
    }
    if (x->segment != y->segment) {
        return x->segment > y->segment ? -1 : 1;
    }
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static uint64_t
segment_of(const search *s, uint64_t addr)
{
    const ml_lifetimes *lifetimes = s->lifetimes;
    for (size_t i = 0; i < lifetimes->segment_count; i++) {
        const ml_segment_lifetime *segment = &lifetimes->segments[i];
        if (segment->start != 0) {
            break;
        }
        if (addr - segment->addr < segment->bytes) {
            return segment->expandable ? 0 : segment->addr;
        }
    }
    return 0;
}

static enum ml_category
category_by_stack(const search *s, uint32_t stack)
{
    uint8_t signs = stack == 0 ? 0 : signs_of(s, stack);
    return signs & ML_SIGN_PARAMETER   ? ML_CATEGORY_PARAMETER
           : signs & ML_SIGN_BUFFER    ? ML_CATEGORY_BUFFER
           : signs & ML_SIGN_OPTIMIZER ? ML_CATEGORY_OPTIMIZER_STATE
                                       : ML_CATEGORY_BEFORE_RECORDING;
}

/* For blocks that are freed. */
static enum ml_category
category_by_free(const search *s, uint32_t requested, uint64_t size)
{
    if (requested == 0) {
        return ML_CATEGORY_BEFORE_RECORDING;
    }
    if (is_cleared(s, requested)) {
        return ML_CATEGORY_GRADIENT;
    }
    if (ml_causes_is_backward(s->causes, s->device, requested - 1)) {
        return s->passes[requested - 1] == 1 ? ML_CATEGORY_ACTIVATION
                                             : ML_CATEGORY_BEFORE_RECORDING;
    }
    return find_size(s->made, size) != NULL ? ML_CATEGORY_GRADIENT
                                            : ML_CATEGORY_BEFORE_RECORDING;
}

static size_t
collect_candidates(search *s, candidate *found)
{
    size_t count = 0;
    for (size_t i = 0; i < s->lifetimes->earlier_count; i++) {
        const ml_earlier_block *block = &s->lifetimes->earlier[i];
        uint32_t requested = s->lifetimes->rows[i].requested;
        enum ml_category category = category_by_stack(s, block->stack);
        if (category == ML_CATEGORY_BEFORE_RECORDING &&
            !ml_workspaces_last(s->workspaces, requested)) {
            category = category_by_free(s, requested, block->size);
        }
        else if (category == ML_CATEGORY_BEFORE_RECORDING &&
                 find_size(s->made, block->size) == NULL &&
                 ml_workspaces_keep(s->workspaces, &s->lifetimes->rows[i])) {
            category = ML_CATEGORY_WORKSPACE;
        }
        else if (category == ML_CATEGORY_BEFORE_RECORDING) {
            found[count++] =
                (candidate){block->size, segment_of(s, block->addr), block->addr, i};
        }
        s->made->earlier[i] = (uint8_t)category;
    }
    return count;
}

/* Whether FOUND has the trained parameters: most bytes of their sizes. */
static bool
holds_trained(const search *s, const candidate *found, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count;) {
        size_t first = i;
        while (i < count && found[i].size == found[first].size) {
            i++;
        }
        const gradient *size = find_size(s->made, found[first].size);
        size_t most = size == NULL ? 0 : size->count;
        bytes += found[first].size * (i - first < most ? i - first : most);
    }
    return bytes > s->trained - s->trained / 4;
}

/* Number of sets of the trained sizes in FOUND. */
static size_t
count_sets(const search *s, const candidate *found, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += find_size(s->made, found[i].size) != NULL ? found[i].size : 0;
    }
    return s->trained == 0 ? 0 : (size_t)((bytes + s->trained / 2) / s->trained);
}

/* Number of those from FIRST on, of COUNT, that have its size. */
static size_t
count_like(const candidate *found, size_t first, size_t count)
{
    size_t end = first;
    while (end < count && found[end].size == found[first].size) {
        end++;
    }
    return end - first;
}

/* Of the block RANK of those ALIKE, of which a pass left SIZE; NULL: none.  What is over of a
 * workspace's size when each parameter has as many states as the others are workspaces. */
static enum ml_category
category_by_rank(const gradient *size, size_t sets, size_t rank, size_t alike)
{
    bool even = size != NULL && size->size == ML_WORKSPACE_EVEN;
    size_t whole = even && alike / size->count < sets ? alike / size->count : sets;
    if (size == NULL || rank < size->count) {
        return ML_CATEGORY_PARAMETER;
    }
    if (rank < whole * size->count) {
        return ML_CATEGORY_OPTIMIZER_STATE;
    }
    return even ? ML_CATEGORY_WORKSPACE : ML_CATEGORY_PARAMETER;
}

static int
find_earlier(search *s)
{
    size_t rows = s->lifetimes->earlier_count;
    s->made->earlier_count = rows;
    s->made->earlier = ml_alloc_zeroed(rows + 1, 1);
    candidate *found = ml_alloc_zeroed(rows + 1, sizeof(candidate));
    if (s->made->earlier == NULL || found == NULL) {
        ml_free(found);
        return ML_ENOMEM;
    }
    size_t count = collect_candidates(s, found);
    if (count != 0) {
        qsort(found, count, sizeof(candidate), compare_candidates);
    }
    bool known =
        s->passes[s->trace->event_count] == 0 || holds_trained(s, found, count);
    size_t sets = count_sets(s, found, count);
    size_t rank = 0;
    size_t alike = 0;
    for (size_t i = 0; i < count && known; i++) {
        const gradient *size = find_size(s->made, found[i].size);
        rank = i != 0 && found[i - 1].size == found[i].size ? rank + 1 : 0;
        alike = rank == 0 ? count_like(found, i, count) : alike;
        s->made->earlier[found[i].index] =
            (uint8_t)category_by_rank(size, sets, rank, alike);
    }
    ml_free(found);
    return 0;
}

/* ---- The whole ---- */

int
ml_estimate_new(const ml_causes *causes, const ml_recording *recording, size_t device,
                const ml_lifetimes *lifetimes, const ml_workspaces *workspaces,
                ml_estimate **out)
{
    *out = NULL;
    if (ml_causes_signs(causes)->of == NULL) {
        return 0;
    }
    const ml_device_trace *trace = &recording->devices[device];
    search s = {.causes = causes,
                .lifetimes = lifetimes,
                .trace = trace,
                .workspaces = workspaces,
                .device = device,
                .made = ml_alloc_zeroed(1, sizeof(ml_estimate)),
                .passes = ml_alloc_zeroed(trace->event_count + 1, sizeof(uint32_t))};
    int error = s.made == NULL || s.passes == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        find_passes(&s);
        error = find_inputs(&s, recording->stack_count);
    }
    if (error == 0) {
        error = find_gradients(&s);
    }
    if (error == 0) {
        sum_gradients(&s);
        error = find_earlier(&s);
    }
    ml_free(s.passes);
    if (error < 0) {
        ml_estimate_free(s.made);
        return error;
    }
    *out = s.made;
    return 0;
}

void
ml_estimate_free(ml_estimate *estimate)
{
    if (estimate != NULL) {
        ml_free(estimate->sizes);
        ml_free(estimate->inputs);
        ml_free(estimate->earlier);
        ml_free(estimate);
    }
}

bool
ml_estimate_is_trained(const ml_estimate *estimate, uint64_t size)
{
    return find_size(estimate, size) != NULL;
}

bool
ml_estimate_is_input(const ml_estimate *estimate, uint32_t stack)
{
    return estimate->inputs[stack];
}

unsigned
ml_estimate_earlier(const ml_estimate *estimate, uint64_t index)
{
    return index < estimate->earlier_count ? estimate->earlier[index]
                                           : (unsigned)ML_CATEGORY_BEFORE_RECORDING;
}
