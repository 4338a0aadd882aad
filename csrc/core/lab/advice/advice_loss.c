/* The loss over a large vocabulary: logits that are cast to float32, and logits of all
 * tokens at once.
 *
 * The backward pass names its nodes: that of a log-softmax has the number of the operation
 * in the forward, whose result it is; the nodes right before and behind it, of blocks of the
 * same size or of half of it, are the cast, what made the logits, and the loss itself.
 * Where a cast's gradient is half of its result, 16 bits became 32; autocast casts the
 * result of a log-softmax.
 *
 * If the loss runs in checkpointed parts of the tokens, only one part is live at a
 * time.  The gradient of the logits' input is then live from the first part on.  An
 * evaluation that calls the same lines makes the same parts. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/library_switches.h"

/* Nodes considered before and after that of the log-softmax. */
#define NEAR_BEFORE 8
#define NEAR_BEHIND 4
/* Parts of the tokens in the replay. */
#define LOSS_PARTS 8
#define LEAST_BYTES (UINT64_C(1) << 20)
/* Blocks considered on either side; nodes make few. */
#define MOST_NEAR 256

/* A block, by the node that it was made for or by. */
typedef struct made {
    uint64_t node; /* its number */
    size_t demand;
    uint32_t round; /* number of a forward and the passes right after it */
    uint16_t thread;
    bool back; /* made in a backward pass */
} made;

/* Where the forward makes a block of a loss. */
typedef struct loss_line {
    uint32_t frame;  /* of the program's line */
    uint32_t inner;  /* of the innermost function */
    uint32_t module; /* string; one line may call several */
    size_t live[2];  /* the last demands that evaluations made there; SIZE_MAX: none */
    bool kept;       /* evaluations keep these */
} loss_line;

typedef struct loss_work {
    const ml_advice_case *it;
    made *list; /* owned; by thread, round, number, forward first, birth */
    size_t count;
    ml_advice *cast;
    ml_advice *whole;
    uint64_t largest[2];
    loss_line *lines; /* owned */
    size_t line_count;
    size_t line_capacity;
} loss_work;

/* A log-softmax and its neighbours. */
typedef struct loss {
    size_t first; /* index into the list */
    size_t end;
    size_t result; /* demand of its result */
    size_t back;   /* of its gradient */
    uint64_t bytes;
    uint64_t node;
} loss;

static int
compare_made(const void *a, const void *b)
{
    const made *x = a;
    const made *y = b;
    const uint64_t of_x[] = {x->thread, x->round, x->node, x->back, x->demand};
    const uint64_t of_y[] = {y->thread, y->round, y->node, y->back, y->demand};
    for (size_t i = 0; i < sizeof(of_x) / sizeof(of_x[0]); i++) {
        if (of_x[i] != of_y[i]) {
            return of_x[i] < of_y[i] ? -1 : 1;
        }
    }
    return 0;
}

static int
find_made(loss_work *f)
{
    const ml_advice_case *it = f->it;
    f->list = ml_alloc_zeroed(it->workload->count + 1, sizeof(made));
    if (f->list == NULL) {
        return ML_ENOMEM;
    }
    const ml_events *events = &it->trace->events;
    uint32_t round = 0;
    bool back = false;
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        const ml_demand *demand = &it->workload->demands[i];
        bool was_back = back;
        back = ml_events_is_backward(events, demand->born);
        round += was_back && !back;
        uint16_t thread = ml_events_autograd_thread(events, demand->born);
        if (demand->bytes < LEAST_BYTES / 2 || thread == 0) {
            continue;
        }
        uint64_t sequence = ml_events_sequence(events, demand->born);
        if (sequence == UINT64_MAX || (!back && sequence == 0)) {
            continue;
        }
        f->list[f->count++] = (made){.node = sequence - !back,
                                     .demand = i,
                                     .round = round,
                                     .thread = thread,
                                     .back = back};
    }
    if (f->count != 0) {
        qsort(f->list, f->count, sizeof(made), compare_made);
    }
    return 0;
}

static bool
is_node(const ml_advice_case *it, size_t demand, const char *type)
{
    uint32_t node =
        ml_events_node(&it->trace->events, it->workload->demands[demand].born);
    return ml_string_holds(it->recording->strings[node], type);
}

static uint64_t
bytes_of(const loss_work *f, size_t demand)
{
    return f->it->workload->demands[demand].bytes;
}

static bool
is_beside(const made *x, const made *y)
{
    return x->thread == y->thread && x->round == y->round;
}

/* Whether the block at AT is a gradient made by a log-softmax; sets *OUT. */
static bool
find_loss(const loss_work *f, size_t at, loss *out)
{
    const made *back = &f->list[at];
    if (!back->back || bytes_of(f, back->demand) < LEAST_BYTES ||
        !is_node(f->it, back->demand, "LogSoftmaxBackward")) {
        return false;
    }
    *out = (loss){.first = at,
                  .end = at + 1,
                  .result = SIZE_MAX,
                  .back = back->demand,
                  .bytes = bytes_of(f, back->demand),
                  .node = back->node};
    while (out->first > 0 && at - out->first < MOST_NEAR &&
           is_beside(back, &f->list[out->first - 1]) &&
           f->list[out->first - 1].node + NEAR_BEFORE >= back->node) {
        out->first--;
    }
    while (out->end < f->count && out->end - at < MOST_NEAR &&
           is_beside(back, &f->list[out->end]) &&
           f->list[out->end].node <= back->node + NEAR_BEHIND) {
        out->end++;
    }
    /* A checkpoint frees its result and makes it again. */
    size_t born = f->it->workload->demands[out->back].born;
    for (size_t i = out->first; i < out->end; i++) {
        const made *it = &f->list[i];
        if (it->node == back->node && !it->back && out->result == SIZE_MAX &&
            bytes_of(f, it->demand) == out->bytes &&
            ml_demand_lives_at(f->it, it->demand, born)) {
            out->result = it->demand;
        }
    }
    return out->result != SIZE_MAX;
}

/* Whether the program keeps DEMAND itself: a variable holds it until the next step at most. */
static bool
is_kept(const loss_work *f, size_t demand)
{
    const ml_advice_case *it = f->it;
    size_t freed = it->workload->demands[demand].freed;
    size_t last = freed < it->trace->event_count ? freed : it->trace->event_count - 1;
    return ml_causes_step(it->causes, it->device, last) >
           ml_demand_step(it, demand) + 1;
}

/* ---- Edits ---- */

static void
note(loss_work *f, ml_advice *advice, unsigned which, size_t line, size_t demand)
{
    const ml_advice_case *it = f->it;
    if (bytes_of(f, line) > f->largest[which]) {
        f->largest[which] = bytes_of(f, line);
        const ml_cause *cause = &ml_explained_of(it, line)->cause;
        advice->frame = cause->frame;
        advice->model = ml_cause_has_inner(it->recording, cause) ? cause->model : 0;
    }
    if (ml_demand_at_peak(it, demand)) {
        advice->bytes += it->workload->demands[demand].block_bytes;
        advice->blocks++;
    }
}

static int
resize(ml_advice *advice, size_t demand, uint64_t bytes)
{
    ml_edit edit = {.kind = ML_EDIT_RESIZE, .demand = demand, .bytes = bytes};
    return ml_advice_edit(advice, edit);
}

/* The block of the cast to float32 before OF, or SIZE_MAX; *BACK: its gradient's. */
static size_t
find_cast(const loss_work *f, const loss *of, size_t *back)
{
    for (size_t i = of->first; i < of->end && f->list[i].node < of->node; i++) {
        const made *grad = &f->list[i];
        if (!grad->back || bytes_of(f, grad->demand) != of->bytes / 2 ||
            !is_node(f->it, grad->demand, "ToCopyBackward")) {
            continue;
        }
        for (size_t k = of->first; k < i; k++) {
            const made *cast = &f->list[k];
            if (cast->node == grad->node && !cast->back &&
                bytes_of(f, cast->demand) == of->bytes) {
                *back = grad->demand;
                return cast->demand;
            }
        }
    }
    return SIZE_MAX;
}

/* Without the cast, all later blocks of the loss are half as large. */
static int
edit_cast(loss_work *f, const loss *of, size_t cast, size_t back)
{
    ml_advice *advice = f->cast;
    int error = resize(advice, cast, 0);
    note(f, advice, 0, cast, cast);
    error = error < 0 ? error : resize(advice, back, 0);
    for (size_t i = of->first; error == 0 && i < of->end; i++) {
        size_t demand = f->list[i].demand;
        if (f->list[i].node >= of->node && bytes_of(f, demand) == of->bytes) {
            error = resize(advice, demand, of->bytes / 2);
            note(f, advice, 0, cast, demand);
        }
    }
    return error;
}

/* The first gradient that the pass makes behind that of the loss, of what made the logits;
 * of autocast's that in 16 bits, of which it is a cast.  SIZE_MAX: there is none. */
static size_t
find_gradient(const loss_work *f, const loss *of)
{
    size_t gradient = SIZE_MAX;
    for (size_t i = of->first; i < of->end && f->list[i].node < of->node; i++) {
        size_t demand = f->list[i].demand;
        if (f->list[i].back && demand > of->back && demand < gradient &&
            ml_explained_of(f->it, demand)->verdict.category == ML_CATEGORY_GRADIENT) {
            gradient = demand;
        }
    }
    for (size_t i = of->first; i < of->end && gradient != SIZE_MAX; i++) {
        size_t demand = f->list[i].demand;
        if (f->list[i].back && demand > of->back && demand < gradient &&
            f->list[i].node < of->node &&
            bytes_of(f, demand) == bytes_of(f, gradient) / 2) {
            return demand;
        }
    }
    return gradient;
}

/* Each part makes it anew, and adds it to that of the parts before. */
static int
add_gradient(const loss_work *f, const loss *of, size_t first_back)
{
    size_t gradient = find_gradient(f, of);
    if (gradient == SIZE_MAX) {
        return 0;
    }
    const ml_demand *demands = f->it->workload->demands;
    ml_edit sum = {.kind = ML_EDIT_ADD,
                   .demand = gradient,
                   .bytes = bytes_of(f, gradient),
                   .from = demands[first_back].born,
                   .until = demands[gradient].born + 1};
    return ml_advice_edit(f->whole, sum);
}

/* ---- The same lines in evaluations ---- */

/* The line where DEMAND is made, or NULL. */
static loss_line *
line_of(const loss_work *f, size_t demand)
{
    const ml_recording *recording = f->it->recording;
    const ml_cause *cause = &ml_explained_of(f->it, demand)->cause;
    uint32_t inner = recording->stacks[f->it->workload->demands[demand].stack].frame;
    for (size_t i = 0; i < f->line_count; i++) {
        loss_line *line = &f->lines[i];
        if (line->frame == cause->frame && line->inner == inner &&
            line->module == cause->module) {
            return line;
        }
    }
    return NULL;
}

static int
add_line(loss_work *f, size_t demand)
{
    const ml_cause *cause = &ml_explained_of(f->it, demand)->cause;
    if (cause->frame == 0 || line_of(f, demand) != NULL) {
        return 0;
    }
    int error = ml_grow((void **)&f->lines, &f->line_capacity, f->line_count + 1,
                        sizeof(loss_line));
    if (error < 0) {
        return error;
    }
    uint32_t stack = f->it->workload->demands[demand].stack;
    f->lines[f->line_count++] =
        (loss_line){.frame = cause->frame,
                    .inner = f->it->recording->stacks[stack].frame,
                    .module = cause->module,
                    .live = {SIZE_MAX, SIZE_MAX}};
    return 0;
}

/* The line of the loss where an evaluation makes DEMAND, or NULL. */
static loss_line *
evaluated_at(const loss_work *f, size_t demand)
{
    size_t born = f->it->workload->demands[demand].born;
    bool is = born != ML_NO_EVENT && ml_stage_is_evaluation(f->it->stages[born]) &&
              bytes_of(f, demand) >= LEAST_BYTES / 2;
    return is ? line_of(f, demand) : NULL;
}

/* One result lives while the next is made, if a variable holds it; two are collected. */
static void
find_kept(const loss_work *f, loss_line *line, size_t demand)
{
    size_t born = f->it->workload->demands[demand].born;
    unsigned living = 0;
    for (unsigned i = 0; i < 2; i++) {
        living +=
            line->live[i] != SIZE_MAX && ml_demand_lives_at(f->it, line->live[i], born);
    }
    line->kept |= living == 2;
    line->live[0] = line->live[1];
    line->live[1] = demand;
}

static int
edit_evaluations(loss_work *f)
{
    const ml_workload *workload = f->it->workload;
    for (size_t i = workload->before_count; i < workload->count; i++) {
        loss_line *line = evaluated_at(f, i);
        if (line != NULL) {
            find_kept(f, line, i);
        }
    }
    int error = 0;
    for (size_t i = workload->before_count; error == 0 && i < workload->count; i++) {
        const loss_line *line = evaluated_at(f, i);
        if (line != NULL && !line->kept) {
            error = resize(f->whole, i, bytes_of(f, i) / LOSS_PARTS);
        }
    }
    return error;
}

static int
edit_whole(loss_work *f, const loss *of)
{
    size_t first_back = of->back;
    int error = 0;
    for (size_t i = of->first; error == 0 && i < of->end; i++) {
        size_t demand = f->list[i].demand;
        uint64_t bytes = bytes_of(f, demand);
        bool logits =
            bytes == of->bytes || bytes == of->bytes / 2 || bytes == of->bytes * 2;
        if (!logits || is_kept(f, demand) ||
            ml_explained_of(f->it, demand)->verdict.category == ML_CATEGORY_GRADIENT) {
            continue;
        }
        if (f->list[i].back && demand < first_back) {
            first_back = demand;
        }
        error = resize(f->whole, demand, bytes / LOSS_PARTS);
        note(f, f->whole, 1, of->result, demand);
        if (error == 0 && !f->list[i].back) {
            error = add_line(f, demand);
        }
    }
    return error < 0 ? error : add_gradient(f, of, first_back);
}

static int
propose_casts(loss_work *f, ml_proposals *out)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < f->count; i++) {
        loss of;
        size_t back = 0;
        bool is = find_loss(f, i, &of);
        size_t cast = is ? find_cast(f, &of, &back) : SIZE_MAX;
        if (cast == SIZE_MAX ||
            ml_is_loss_of_library(f->it->recording,
                                  f->it->workload->demands[cast].stack)) {
            continue;
        }
        if (f->cast == NULL) {
            f->cast = ml_proposals_add(out, ML_ADVICE_LOGITS_FLOAT32);
            if (f->cast == NULL) {
                return ML_ENOMEM;
            }
        }
        f->cast->count++;
        error = edit_cast(f, &of, cast, back);
    }
    return error;
}

static int
propose_wholes(loss_work *f, ml_proposals *out)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < f->count; i++) {
        loss of;
        if (!find_loss(f, i, &of)) {
            continue;
        }
        if (f->whole == NULL) {
            f->whole = ml_proposals_add(out, ML_ADVICE_LOSS_WHOLE);
            if (f->whole == NULL) {
                return ML_ENOMEM;
            }
            f->whole->exact = false;
            f->whole->library_switch = ml_switch_of_loss(
                f->it->recording, f->it->workload->demands[of.result].stack);
        }
        f->whole->count = LOSS_PARTS;
        error = edit_whole(f, &of);
    }
    return error < 0 || f->whole == NULL ? error : edit_evaluations(f);
}

int
ml_advise_loss(const ml_advice_case *it, ml_proposals *out)
{
    loss_work f = {.it = it};
    int error = find_made(&f);
    error = error < 0 ? error : propose_casts(&f, out);
    error = error < 0 ? error : propose_wholes(&f, out);
    ml_free(f.list);
    ml_free(f.lines);
    return error;
}
