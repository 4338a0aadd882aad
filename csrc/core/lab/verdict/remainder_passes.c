/* The requests of a backward pass, an optimizer's step and the next pass. */
#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stages.h"
#include "analysis/attribution/workspace.h"
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Blocks of the result's size in the backward pass of a loss that squares: pow's has its gradient,
 * the power, its multiple and their product at once. */
#define LOSS_BLOCKS 4
/* State bytes per parameter byte, of Adam and similar optimizers. */
#define ADAM 2

/* ---- The backward pass ---- */

/* Reads the optimizers' notes: trained bytes, and state bytes for them.  Returns
 * whether there are such notes. */
static bool
read_optimizers(const ml_recording *recording, uint64_t *trained, uint64_t *state)
{
    bool noted = false;
    *trained = 0;
    *state = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_OPTIMIZER) {
            *state += note->values[0];
            *trained += note->values[1];
            noted = true;
        }
    }
    return noted;
}

/* Sets *SIZES to the sizes of parameters without a gradient, smallest first. */
static int
find_missing(const ml_remainder_builder *b, uint64_t **sizes, size_t *count)
{
    const ml_remainder *out = b->out;
    size_t all = out->workload->count;
    uint64_t *parameters = ml_alloc_zeroed(all + 1, sizeof(uint64_t));
    uint64_t *there = ml_alloc_zeroed(all + 1, sizeof(uint64_t));
    if (parameters == NULL || there == NULL) {
        ml_free(parameters);
        ml_free(there);
        return ML_ENOMEM;
    }
    size_t n = 0;
    size_t m = 0;
    for (size_t i = 0; i < all; i++) {
        bool own = i < out->recorded &&
                   ml_explained_of(b->it, i)->verdict.category == ML_CATEGORY_PARAMETER;
        if (ml_remainder_is_live(out, i) && own) {
            parameters[n++] = out->workload->demands[i].bytes;
        }
        else if (ml_remainder_is_live(out, i) &&
                 out->items[i].kind == ML_REST_GRADIENT) {
            there[m++] = out->workload->demands[i].bytes;
        }
    }
    qsort(parameters, n, sizeof(uint64_t), ml_compare_u64);
    qsort(there, m, sizeof(uint64_t), ml_compare_u64);
    *count = 0;
    for (size_t i = 0, j = 0; i < n; i++) {
        while (j < m && there[j] < parameters[i]) {
            j++;
        }
        if (j < m && there[j] == parameters[i]) {
            j++;
        }
        else {
            parameters[(*count)++] = parameters[i];
        }
    }
    ml_free(there);
    uint64_t trained;
    uint64_t state;
    if (read_optimizers(b->it->recording, &trained, &state)) {
        /* Adapters beside frozen parameters are the small ones. */
        size_t kept = 0;
        uint64_t sum = 0;
        while (kept < *count && sum + parameters[kept] <= trained) {
            sum += parameters[kept++];
        }
        *count = kept;
    }
    *sizes = parameters;
    return 0;
}

/* Whether demand I is not of a function of torch.nn: what its backward pass makes is not
 * known, as a softmax makes one block more. */
static bool
is_of_program(const ml_remainder_builder *b, size_t i)
{
    const ml_recording *recording = b->it->recording;
    uint32_t stack = b->out->workload->demands[i].stack;
    return !ml_string_holds(ml_stack_file(recording, stack), "/torch/nn/") ||
           ml_string_holds(ml_stack_name(recording, stack), "softmax");
}

/* Whether demand I is of the backward pass in which memory ended: no pass waits for it.  The
 * request that failed is what a function's pass made of the newest block that waits, and goes
 * on to the next function; what came to it goes with that block. */
static bool
is_in_flight(const ml_remainder_builder *b, size_t i)
{
    return b->stage == ML_STAGE_BACKWARD &&
           (i == b->out->recorded ||
            (i < b->out->recorded &&
             ml_explained_of(b->it, i)->cause.phase == ML_PHASE_BACKWARD));
}

/* Whether a convolution took more for itself in the forward pass than the margin covers.
 * cuDNN takes other amounts in the backward pass, by what is free then. */
static bool
takes_workspaces(const ml_remainder_builder *b)
{
    static const char *const names[] = {"conv"};
    uint64_t most = b->it->memory_bytes / ML_FIT_MARGIN_PART;
    for (size_t i = 0; i < b->out->recorded; i++) {
        const ml_demand *demand = &b->out->workload->demands[i];
        if (demand->bytes > most && demand->born != ML_NO_EVENT &&
            demand->born >= b->pass && demand->freed != ML_NO_EVENT &&
            b->it->stages[demand->born] == ML_STAGE_FORWARD &&
            ml_remainder_is_of(b, i, names, 1)) {
            return true;
        }
    }
    return false;
}

/* In the backward pass of a loss that squares: its blocks that are still to come, each of the size
 * that failed. */
static int
finish_loss_backward(ml_remainder_builder *b)
{
    const ml_remainder *out = b->out;
    ml_cause cause = ml_causes_of(b->it->causes, b->it->device, out->failed);
    bool of_loss = b->stage == ML_STAGE_BACKWARD && cause.module == 0;
    if (!of_loss || !ml_remainder_has_loss(b, ML_LOSS_SQUARES)) {
        return 0;
    }
    uint64_t bytes = out->workload->demands[out->recorded].bytes;
    unsigned there = 0;
    for (size_t i = 0; i <= out->recorded; i++) {
        there += is_in_flight(b, i) && ml_remainder_is_live(out, i) &&
                 out->workload->demands[i].bytes == bytes;
    }
    int error = 0;
    for (; there < LOSS_BLOCKS && error == 0; there++) {
        size_t brief = 0;
        error =
            ml_remainder_add(b, bytes, out->recorded, out->items[out->recorded].scales,
                             ML_REST_BRIEF, &brief);
        if (error == 0) {
            ml_remainder_free_at(b, brief, b->now + 1);
        }
    }
    b->now += 2; /* one of them goes on to the last layer */
    return error;
}

/* How far a backward pass is. */
typedef struct pass_back {
    uint64_t *sizes; /* owned; of gradients, smallest first: the last ones come first */
    size_t left;     /* of SIZES, those to come */
    uint64_t made;   /* bytes of those that came */
    uint64_t passed; /* bytes of the blocks that waited for it, and went */
    bool begins;     /* with the gradient of what the forward returned */
    bool first;      /* behind gradients that are there */
    bool of_cast;    /* a cast's gradient is its own */
} pass_back;

/* Bytes that wait for the pass. */
static uint64_t
waiting_bytes(const ml_remainder *out)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < out->workload->count; i++) {
        bool waits = ml_remainder_is_live(out, i) && out->items[i].kind == ML_REST_PASS;
        bytes += waits ? out->workload->demands[i].bytes : 0;
    }
    return bytes;
}

/* How many gradients come to the function of demand I and are gone before its own. */
static unsigned
gradients_before(ml_remainder_builder *b, pass_back *at, size_t i)
{
    unsigned come = at->begins || b->much ? 1 : 0;
    come += b->much && is_of_program(b, i) ? 1 : 0;
    come = at->first || at->of_cast ? 0 : come;
    come = b->squares ? LOSS_BLOCKS - 1 : come;
    at->begins = at->first = at->of_cast = b->squares = false;
    return come;
}

/* The gradients of parameters come as evenly as blocks go. */
static int
add_gradients(ml_remainder_builder *b, pass_back *at, size_t i)
{
    const ml_remainder *out = b->out;
    int error = 0;
    while (error == 0 && at->left > 0 &&
           (double)at->made / (double)out->gradients <
               (double)at->passed / (double)out->activations) {
        at->made += at->sizes[--at->left];
        error =
            ml_remainder_add(b, at->sizes[at->left], i, false, ML_REST_GRADIENT, NULL);
    }
    return error;
}

/* The pass of the function that demand I waits for. */
static int
pass_demand(ml_remainder_builder *b, pass_back *at, size_t i)
{
    const ml_remainder *out = b->out;
    if (is_in_flight(b, i)) {
        bool goes_on = b->much || i == out->recorded;
        at->begins = false;
        at->first = true;
        ml_remainder_free_at(b, i, b->now + goes_on);
        return 0;
    }
    uint64_t bytes = out->workload->demands[i].bytes;
    at->passed += bytes;
    if (at->first && !b->much) {
        at->first = false;
        ml_remainder_free_at(b, i, b->now);
        return 0;
    }
    unsigned come = gradients_before(b, at, i);
    int error = 0;
    for (unsigned j = 0; j <= come && error == 0; j++) {
        size_t brief = 0;
        error =
            ml_remainder_add(b, bytes, i, out->items[i].scales, ML_REST_BRIEF, &brief);
        if (error == 0) {
            /* The gradient that comes is gone before the one that goes on. */
            ml_remainder_free_at(b, brief, b->now + (j < come ? 1 : 2));
        }
    }
    ml_remainder_free_at(b, i, b->now + 1);
    b->now++;
    return error == 0 ? add_gradients(b, at, i) : error;
}

/* The bytes of the workspace that backward passes take where demand I is that of the forward
 * pass: as many, and where that is cuBLASLt's, as products with a bias alone take it, the most
 * that cuBLAS takes.  0: it is none. */
static uint64_t
backward_workspace(const ml_remainder_builder *b, size_t i)
{
    uint64_t bytes = b->out->workload->demands[i].bytes;
    if (!ml_remainder_is_live(b->out, i)) {
        return 0;
    }
    if (bytes == ML_WORKSPACE_LIGHT &&
        ml_explained_of(b->it, i)->cause.phase == ML_PHASE_FORWARD) {
        return ML_WORKSPACE_EVEN;
    }
    return ml_remainder_is_workspace(b, i) ? bytes : 0;
}

/* cuBLAS's workspace of the thread that runs backward passes, where none has run. */
static int
add_workspace(ml_remainder_builder *b)
{
    uint64_t most = 0;
    size_t like = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        uint64_t bytes = backward_workspace(b, i);
        if (bytes != 0 && ml_explained_of(b->it, i)->cause.phase == ML_PHASE_BACKWARD) {
            return 0;
        }
        like = bytes > most ? i : like;
        most = bytes > most ? bytes : most;
    }
    return most == 0 ? 0 : ml_remainder_add(b, most, like, false, ML_REST_KEPT, NULL);
}

int
ml_remainder_backward(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    if (b->stage != ML_STAGE_BACKWARD) {
        b->forward_end = b->now;
        b->now += 2;
    }
    if (takes_workspaces(b)) {
        out->untold |= 1u << ML_UNTOLD_WORKSPACES;
    }
    /* A loss's backward pass has no product: the workspace comes after it, and may lie in what
     * that freed, which leaves less room for the next pass.  Early: the peak has it, too. */
    bool early = b->much && !b->late;
    int error = early ? add_workspace(b) : 0;
    error = error == 0 ? finish_loss_backward(b) : error;
    bool begun = early;
    pass_back at = {.begins = !b->casts, .of_cast = b->casts};
    if (error == 0) {
        error = find_missing(b, &at.sizes, &at.left);
    }
    if (error < 0) {
        return error;
    }
    out->activations = waiting_bytes(out);
    out->gradients = 0;
    for (size_t i = 0; i < at.left; i++) {
        out->gradients += at.sizes[i];
    }
    for (size_t i = out->workload->count; i > 0 && error == 0; i--) {
        if (ml_remainder_is_live(out, i - 1) &&
            out->items[i - 1].kind == ML_REST_PASS) {
            error = pass_demand(b, &at, i - 1);
            error = error == 0 && !begun ? add_workspace(b) : error;
            begun = true;
        }
    }
    while (error == 0 && at.left > 0) {
        error =
            ml_remainder_add(b, at.sizes[--at.left], 0, false, ML_REST_GRADIENT, NULL);
    }
    b->now += 2;
    ml_free(at.sizes);
    return error;
}

int
ml_remainder_gather(ml_remainder_builder *b)
{
    uint64_t *sizes;
    size_t count;
    int error = find_missing(b, &sizes, &count);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        error = ml_remainder_add(b, sizes[i], 0, false, ML_REST_GRADIENT, NULL);
    }
    b->now++;
    ml_free(sizes);
    return error;
}

/* ---- The optimizer ---- */

int
ml_remainder_optimize(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    uint64_t there = 0;
    for (size_t i = 0; i < out->recorded; i++) {
        bool state = ml_explained_of(b->it, i)->verdict.category ==
                         ML_CATEGORY_OPTIMIZER_STATE ||
                     (ml_explained_of(b->it, i)->cause.phase == ML_PHASE_OPTIMIZER &&
                      b->stage == ML_STAGE_OPTIMIZER);
        there +=
            state && ml_remainder_is_live(out, i) ? out->workload->demands[i].bytes : 0;
    }
    uint64_t trained;
    uint64_t whole;
    if (!read_optimizers(b->it->recording, &trained, &whole)) {
        out->state_assumed = true;
        whole = ADAM * out->parameters;
    }
    uint64_t left = whole > there ? whole - there : 0;
    out->state = left;
    if (out->state_assumed && !b->much) {
        left = 0;
    }
    size_t brief = 0;
    int error = 0;
    for (unsigned j = 0; j < ADAM; j++) {
        for (size_t i = 0; i < out->recorded && error == 0; i++) {
            uint64_t bytes = out->workload->demands[i].bytes;
            if (ml_explained_of(b->it, i)->verdict.category == ML_CATEGORY_PARAMETER &&
                ml_remainder_is_live(out, i) && left >= bytes) {
                error = ml_remainder_add(b, bytes, i, false, ML_REST_KEPT, NULL);
                left -= bytes;
            }
        }
    }
    /* torch's foreach functions make a temporary of each parameter. */
    if (error == 0 && b->much && whole != 0 && out->parameters != 0) {
        b->now++;
        error = ml_remainder_add(b, out->parameters, 0, false, ML_REST_BRIEF, &brief);
        if (error == 0) {
            out->items[brief].of_step = true;
            ml_remainder_free_at(b, brief, b->now + 1);
        }
    }
    b->now += 2;
    bool live = ml_remainder_holds(b, b->gradients_live);
    for (size_t i = 0; i < out->workload->count && error == 0 && !live; i++) {
        if (out->items[i].kind == ML_REST_GRADIENT && ml_remainder_is_live(out, i)) {
            ml_remainder_free_at(b, i, b->now);
        }
    }
    b->now++;
    return error;
}

/* What a pass returned lives until the next one has returned, where it is kept. */
static int
keep_returned(ml_remainder_builder *b, size_t start)
{
    const ml_remainder *out = b->out;
    size_t last = b->returned;
    for (size_t i = out->recorded; i > 0 && last == 0; i--) {
        const ml_demand *demand = &out->workload->demands[i - 1];
        if (demand->born != ML_NO_EVENT && demand->born >= b->pass &&
            demand->born < out->failed && demand->bytes != 0 &&
            out->items[i - 1].kind == ML_REST_PASS && out->items[i - 1].scales &&
            ml_explained_of(b->it, i - 1)->cause.module != 0) {
            last = i - 1;
        }
    }
    bool lives = ml_remainder_holds(b, b->output_lives) && b->outputs_living == 0;
    uint64_t bytes =
        lives && last != 0 ? out->workload->demands[last].bytes : b->outputs_living;
    if (bytes == 0) {
        return 0;
    }
    size_t made = last != 0 ? out->workload->demands[last].born : b->pass;
    made = b->loss_inside && b->forward_end > made ? b->forward_end : made;
    size_t index = 0;
    int error = ml_remainder_add(b, bytes, last, true, ML_REST_PASS, &index);
    if (error == 0) {
        ml_remainder_free_at(b, index, start + (made - b->pass) + 1);
    }
    return error;
}

/* The pass from event b->pass to UNTIL once more. */
int
ml_remainder_repeat(ml_remainder_builder *b, size_t until)
{
    ml_remainder *out = b->out;
    size_t end = out->workload->count;
    size_t start = b->now;
    size_t last = start;
    int error = keep_returned(b, start);
    for (size_t i = 0; i < end && error == 0; i++) {
        ml_demand demand = out->workload->demands[i];
        unsigned kind = out->items[i].kind;
        bool again =
            kind == ML_REST_PASS || kind == ML_REST_BRIEF ||
            (kind == ML_REST_GRADIENT && !ml_remainder_holds(b, b->gradients_live));
        if (!again || demand.bytes == 0 || demand.born == ML_NO_EVENT ||
            demand.born < b->pass || demand.born >= until) {
            continue;
        }
        size_t index = 0;
        b->now = start + (demand.born - b->pass);
        error = ml_remainder_add(b, demand.bytes, i, out->items[i].scales,
                                 ML_REST_BRIEF, &index);
        if (error == 0 && demand.freed != ML_NO_EVENT) {
            ml_remainder_free_at(b, index, start + (demand.freed - b->pass));
        }
        last = b->now > last ? b->now : last;
    }
    b->now = last + (until - b->pass) + 2;
    return error;
}
