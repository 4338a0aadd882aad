/* What a checkpoint makes again of one module, in the backward pass: what autograd keeps of it.
 *
 * The first forward does not tell this: it keeps nothing.  torch's functions on the stacks do,
 * of which some keep their result, and some need no input of theirs. */
#include <string.h>

#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Smaller ones than one part in so many of the largest are no link between two functions. */
#define SMALL_PART 64

enum kept {
    KEPT_NOT,
    KEPT_PERHAPS,
    KEPT
};

static const char *const keep_result[] = {"relu", "softmax", "sigmoid", "tanh"};
static const char *const need_no_input[] = {"relu", "dropout", "softmax", "sigmoid",
                                            "tanh"};
static const char *const need_input[] = {
    "linear", "layer_norm", "batch_norm", "group_norm", "rms_norm", "gelu", "silu"};

#define IS_OF(b, i, names) \
    ml_remainder_is_of(b, i, names, sizeof(names) / sizeof((names)[0]))

/* Of demand I, before NEXT of the same module. */
static enum kept
find_kept(const ml_remainder_builder *b, size_t i, size_t next)
{
    if (IS_OF(b, i, keep_result)) {
        return KEPT;
    }
    if (IS_OF(b, next, need_no_input)) {
        /* A function that makes two blocks, a mask and a result, needs the first. */
        return ml_explained_of(b->it, i)->cause.module ==
                       ml_explained_of(b->it, next)->cause.module
                   ? KEPT
                   : KEPT_NOT;
    }
    return IS_OF(b, next, need_input) ? KEPT : KEPT_PERHAPS;
}

static int
make_again(ml_remainder_builder *b, size_t i, enum kept kept)
{
    uint64_t bytes = b->out->workload->demands[i].bytes;
    size_t brief = 0;
    if (kept == KEPT_NOT) {
        return 0;
    }
    if (kept == KEPT_PERHAPS && !b->much) {
        bytes /= 2;
    }
    int error = ml_remainder_add(b, bytes, i, true, ML_REST_BRIEF, &brief);
    if (error == 0) {
        ml_remainder_free_at(b, brief, b->now + 2);
    }
    return error;
}

int
ml_remainder_make_anew(ml_remainder_builder *b)
{
    ml_sequence made = {0};
    int error = ml_sequence_take(b, b->anew_from, b->anew_until, &made);
    uint64_t most = 0;
    size_t count = 0;
    for (size_t k = 0; k < made.count; k++) {
        uint64_t bytes = b->out->workload->demands[made.list[k]].bytes;
        most = bytes > most ? bytes : most;
    }
    for (size_t k = 0; k < made.count; k++) {
        size_t i = made.list[k];
        bool large = b->out->workload->demands[i].bytes >= most / SMALL_PART;
        if (b->out->items[i].scales && large) {
            made.list[count++] = i;
        }
    }
    /* Much: what is perhaps kept stands for the gradient of the largest, too. */
    for (size_t k = 0; k < count && !b->much && error == 0; k++) {
        if (b->out->workload->demands[made.list[k]].bytes == most) {
            error = make_again(b, made.list[k], KEPT);
            break;
        }
    }
    for (size_t k = 0; k < count && error == 0; k++) {
        bool last = k + 1 == count;
        error = make_again(b, made.list[k],
                           last ? KEPT_PERHAPS
                                : find_kept(b, made.list[k], made.list[k + 1]));
    }
    ml_free(made.list);
    return error;
}
