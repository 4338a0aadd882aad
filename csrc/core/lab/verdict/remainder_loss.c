/* The loss of a forward pass: what it keeps of the result, and casts. */
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Whether demand I has half the bytes of a parameter of its module. */
static bool
is_cast_weight(const ml_remainder_builder *b, size_t i)
{
    const ml_demand *demands = b->out->workload->demands;
    for (size_t k = 0; k < b->out->recorded; k++) {
        if (ml_remainder_is_parameter(b, k) &&
            demands[k].bytes == 2 * demands[i].bytes &&
            ml_string_compare(ml_remainder_module_at(b, k),
                              ml_remainder_module_at(b, i)) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the pass cast weights to 16 bits: a loss then uses float32. */
bool
ml_remainder_is_autocast(const ml_remainder_builder *b)
{
    for (size_t i = 0; i < b->out->recorded; i++) {
        if (ml_remainder_is_of_pass(b, i) && !b->out->items[i].scales &&
            is_cast_weight(b, i)) {
            return true;
        }
    }
    return false;
}

/* What a loss casts to float32, of BYTES in 16 bits. */
static int
add_cast(ml_remainder_builder *b, uint64_t bytes, size_t like)
{
    b->casts = true;
    b->now++;
    return ml_remainder_add(b, 2 * bytes, like, true, ML_REST_PASS, NULL);
}

/* Whether a linear layer asked for demand I: its backward pass does not need it. */
static bool
is_of_linear(const ml_remainder_builder *b, size_t i)
{
    uint32_t stack = b->out->workload->demands[i].stack;
    return ml_string_holds(ml_stack_file(b->it->recording, stack),
                           "/torch/nn/modules/linear.py");
}

/* What a linear layer asked for last, if the request that failed is its cast; else that request. */
static size_t
cast_by_failed(const ml_remainder_builder *b)
{
    const ml_demand *demands = b->out->workload->demands;
    size_t last = b->out->recorded;
    for (size_t i = 0; i < b->out->recorded; i++) {
        bool linear = ml_remainder_is_of_pass(b, i) && b->out->items[i].scales &&
                      is_of_linear(b, i);
        last = linear ? i : last;
    }
    bool cast = demands[b->out->recorded].bytes == 2 * demands[last].bytes &&
                !is_of_linear(b, b->out->recorded);
    return cast ? last : b->out->recorded;
}

/* Whether the program casts RESULT, of a head in 16 bits, to float32 for its loss, as one that is not
 * known may do, or ran out as it did. */
static bool
is_cast(const ml_remainder_builder *b, size_t result)
{
    uint64_t elements = b->head_takes * b->head_makes;
    bool casts = b->in_float32 || (b->much && b->loss == ML_LOSS_UNKNOWN);
    bool failed = result == b->out->recorded && cast_by_failed(b) != result;
    return elements != 0 && b->head_bytes == 2 * elements && (casts || failed);
}

/* In place of LOGITS, in 16 bits, the program has their CAST to float32, and a loss over classes
 * keeps as much; its gradient is in float32, too. */
static int
add_loss_in_float32(ml_remainder_builder *b, size_t logits, size_t cast)
{
    uint64_t bytes = b->out->workload->demands[cast].bytes;
    b->out->loss = b->loss == ML_LOSS_CLASSES ? bytes : 0;
    ml_remainder_free_at(b, logits, ++b->now);
    int error = ml_remainder_add(b, bytes, logits, true, ML_REST_PASS, NULL);
    if (error == 0 && !b->much) {
        ml_remainder_free_at(b, cast, ++b->now);
    }
    b->casts = true;
    return error;
}

static int
cast_for_loss(ml_remainder_builder *b, size_t result)
{
    size_t logits = result == b->out->recorded ? cast_by_failed(b) : result;
    size_t cast = result;
    int error = 0;
    if (logits == result) {
        uint64_t bytes = 2 * b->out->workload->demands[result].bytes;
        error = ml_remainder_add(b, bytes, result, true, ML_REST_PASS, &cast);
    }
    return error == 0 ? add_loss_in_float32(b, logits, cast) : error;
}

/* The loss of the demand RESULT.  Over classes it keeps the logarithms of their probabilities;
 * in 16 bits their cast to float32 besides, and of the result itself nothing.  Element by element
 * it makes a block that its mean frees.  The mean or sum keeps nothing. */
int
ml_remainder_add_loss(ml_remainder_builder *b, size_t result)
{
    uint64_t bytes = b->out->workload->demands[result].bytes;
    b->squares = ml_remainder_has_loss(b, ML_LOSS_SQUARES);
    b->now++;
    int error = 0;
    if (ml_remainder_has_loss(b, ML_LOSS_CLASSES) && is_cast(b, result)) {
        return cast_for_loss(b, result);
    }
    if (ml_remainder_has_loss(b, ML_LOSS_CLASSES)) {
        error = ml_remainder_add(b, bytes, result, true, ML_REST_PASS, NULL);
        bool cast = ml_remainder_is_autocast(b);
        error = error == 0 && cast ? add_cast(b, bytes, result) : error;
        if (error == 0 && !cast && b->result_passes) {
            ml_remainder_free_at(b, result, ++b->now);
        }
        b->out->loss = b->loss != ML_LOSS_CLASSES ? 0 : cast ? 2 * bytes : bytes;
    }
    if (error == 0 && b->loss == ML_LOSS_REDUCES && b->result_passes &&
        is_of_linear(b, result)) {
        ml_remainder_free_at(b, result, ++b->now);
    }
    if (error == 0 && (b->squares || b->loss == ML_LOSS_ELEMENTS)) {
        size_t brief = 0;
        error = ml_remainder_add(b, bytes, result, true, ML_REST_BRIEF, &brief);
        if (error == 0) {
            ml_remainder_free_at(b, brief, ++b->now);
        }
    }
    return error;
}

/* Whether a loss over classes asked for demand I. */
bool
ml_remainder_is_of_classes(const ml_remainder_builder *b, size_t i)
{
    static const char *const names[] = {"cross_entropy", "log_softmax", "nll_loss"};
    return ml_remainder_is_of(b, i, names, sizeof(names) / sizeof(names[0]));
}

/* A loss element by element, as mse_loss(), may ask for two blocks, of which the second fails.  No
 * backward pass waits for the first, which its result keeps; what the backward pass is told to need
 * has room for it, as where the first fails. */
static void
drop_first_of_two(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    const ml_demand *failed = &out->workload->demands[out->recorded];
    for (size_t i = 0; i < out->recorded; i++) {
        const ml_demand *demand = &out->workload->demands[i];
        if (ml_remainder_is_of_pass(b, i) && demand->stack == failed->stack &&
            demand->bytes == failed->bytes && ml_remainder_is_live(out, i)) {
            ml_remainder_free_at(b, i, b->now + 1);
        }
    }
}

/* After the modules: a loss, which may cast what it asked for last, or have asked for the cast.
 * What one asks for element by element goes with its mean. */
int
ml_remainder_finish_loss(ml_remainder_builder *b)
{
    ml_remainder *out = b->out;
    if (b->loss == ML_LOSS_ELEMENTS || b->loss == ML_LOSS_SQUARES) {
        b->squares = ml_remainder_has_loss(b, ML_LOSS_SQUARES);
        if (b->loss == ML_LOSS_ELEMENTS) {
            drop_first_of_two(b);
        }
        out->items[out->recorded].kind = ML_REST_BRIEF;
        ml_remainder_free_at(b, out->recorded, ++b->now);
        return 0;
    }
    uint64_t bytes = out->workload->demands[out->recorded].bytes;
    uint64_t returned = 0;
    for (size_t i = 0; i < out->recorded; i++) {
        if (ml_remainder_is_of_pass(b, i) && out->items[i].scales &&
            ml_explained_of(b->it, i)->cause.module != 0 &&
            !ml_remainder_is_of_classes(b, i)) {
            returned = out->workload->demands[i].bytes;
        }
    }
    if (!ml_remainder_has_loss(b, ML_LOSS_CLASSES) || !ml_remainder_is_autocast(b)) {
        return 0;
    }
    b->casts = bytes == 2 * returned;
    return bytes == returned ? add_cast(b, bytes, out->recorded) : 0;
}
