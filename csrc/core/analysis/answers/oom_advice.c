/* Gives the verdict and the advice.  See oom_advice.h. */
#include "analysis/answers/oom_advice.h"

#include <string.h>

#include "base/base.h"

/* From this part of memory on, something is named as its main user. */
#define LARGE_PART 4
/* A CUDA context and its libraries stay below this part of the device. */
#define OUTSIDE_PART 10

static uint64_t
less(uint64_t from, uint64_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

/* ---- The verdict ---- */

/* Whether BYTES of cache and what is left of the device hold the request. */
static bool
suffices(const ml_oom *oom, uint64_t bytes)
{
    return bytes >= oom->requested ||
           (bytes != 0 && bytes >= less(oom->driver_request, oom->headroom));
}

static uint64_t
other_unused(const ml_oom *oom)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ML_OOM_UNUSED_COUNT; i++) {
        bytes += i == ML_OOM_UNUSED_ELIGIBLE ? 0 : oom->unused[i].bytes;
    }
    return bytes;
}

static bool
much_outside(const ml_oom *oom)
{
    return oom->outside != ML_OOM_UNKNOWN && oom->outside >= oom->total / OUTSIDE_PART;
}

static enum ml_oom_verdict
verdict_of(const ml_oom *oom)
{
    uint64_t eligible = oom->unused[ML_OOM_UNUSED_ELIGIBLE].bytes;
    uint64_t reserved = oom->state->totals.reserved;
    /* If the device's total is unknown: the most that this process could have had. */
    uint64_t most =
        oom->total != ML_OOM_UNKNOWN ? oom->total : reserved + oom->device_free;
    most = oom->allowed < most ? oom->allowed : most;
    if (oom->driver_request > most) {
        return ML_OOM_TOO_BIG;
    }
    if (oom->unused[ML_OOM_UNUSED_ELIGIBLE].largest >= oom->requested) {
        return ML_OOM_UNEXPLAINED;
    }
    if (oom->headroom < oom->driver_request &&
        oom->driver_request <= oom->device_free) {
        return ML_OOM_LIMIT;
    }
    if (oom->driver_request <= oom->headroom) {
        return ML_OOM_DRIVER;
    }
    if (suffices(oom, eligible)) {
        return ML_OOM_FRAGMENTED;
    }
    if (suffices(oom, eligible + other_unused(oom))) {
        return ML_OOM_NOT_ELIGIBLE;
    }
    if (much_outside(oom) && oom->driver_request <= oom->headroom + oom->outside) {
        return ML_OOM_OUTSIDE;
    }
    return ML_OOM_FULL;
}

void
ml_oom_judge(ml_oom *oom)
{
    oom->verdict = (uint8_t)verdict_of(oom);
}

/* ---- What to try ---- */

static void
advise(ml_oom *oom, enum ml_oom_advice_kind kind, uint64_t bytes)
{
    oom->advice[oom->advice_count++] = (ml_oom_advice){(uint8_t)kind, bytes};
}

/* Whether a loss over classes, or its autograd node, made the request. */
static bool
asked_by_loss(const ml_recording *recording, const ml_event *event)
{
    static const char *const functions[] = {"cross_entropy", "log_softmax", "nll_loss"};
    static const char *const nodes[] = {"LogSoftmaxBackward", "NllLoss",
                                        "CrossEntropyLossBackward"};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        if (ml_string_holds(recording->strings[event->node], nodes[i])) {
            return true;
        }
    }
    for (uint32_t at = event->stack; at != 0; at = recording->stacks[at].parent) {
        ml_string name = ml_stack_name(recording, at);
        for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
            /* A function of the program may have the word in its name; that does not
             * count. */
            if (name.length == strlen(functions[i]) &&
                ml_string_holds(name, functions[i])) {
                return true;
            }
        }
    }
    return false;
}

/* The line with the most bytes that no optimizer or module owns. */
static int
advise_line(ml_oom *oom)
{
    const ml_peak *state = oom->state;
    uint64_t *bytes = ml_alloc_zeroed(state->line_count + 1, sizeof(uint64_t));
    if (bytes == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < state->block_count; i++) {
        const ml_peak_block *block = &state->blocks[i];
        bool kept = block->verdict.category == ML_CATEGORY_PARAMETER ||
                    block->verdict.category == ML_CATEGORY_BUFFER ||
                    block->verdict.category == ML_CATEGORY_GRADIENT ||
                    block->verdict.category == ML_CATEGORY_OPTIMIZER_STATE;
        if (!kept && state->lines[block->line].no_line == ML_NO_LINE_NONE) {
            bytes[block->line] += block->size;
        }
    }
    size_t most = 0;
    for (size_t i = 1; i < state->line_count; i++) {
        most = bytes[i] > bytes[most] ? i : most;
    }
    if (bytes[most] != 0 && bytes[most] >= state->totals.allocated / LARGE_PART) {
        oom->line = (uint32_t)most;
        advise(oom, ML_OOM_ADVICE_ONE_LINE, bytes[most]);
    }
    ml_free(bytes);
    return 0;
}

static void
advise_categories(ml_oom *oom)
{
    static const struct {
        uint8_t category;
        uint8_t advice;
    } pairs[] = {{ML_CATEGORY_ACTIVATION, ML_OOM_ADVICE_ACTIVATIONS},
                 {ML_CATEGORY_OPTIMIZER_STATE, ML_OOM_ADVICE_OPTIMIZER_STATE},
                 {ML_CATEGORY_GRADIENT, ML_OOM_ADVICE_GRADIENTS},
                 {ML_CATEGORY_PARAMETER, ML_OOM_ADVICE_PARAMETERS}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint64_t bytes = oom->state->categories[pairs[i].category].bytes;
        if (bytes != 0 && bytes >= oom->state->totals.allocated / LARGE_PART) {
            advise(oom, (enum ml_oom_advice_kind)pairs[i].advice, bytes);
        }
    }
}

int
ml_oom_advise(ml_oom *oom, const ml_recording *recording, const ml_event *event)
{
    const ml_oom_unused *unused = oom->unused;
    if (oom->verdict == ML_OOM_TOO_BIG) {
        advise(oom, ML_OOM_ADVICE_REQUEST, oom->requested);
        return 0;
    }
    if (oom->verdict == ML_OOM_LIMIT) {
        advise(oom, ML_OOM_ADVICE_RAISE_LIMIT, less(oom->device_free, oom->headroom));
    }
    if (oom->growth.steps != 0) {
        advise(oom, ML_OOM_ADVICE_GROWTH, oom->growth.last - oom->growth.first);
    }
    /* The limit may be intended; then only the cache below it can be improved. */
    bool in_pieces = oom->verdict == ML_OOM_FRAGMENTED ||
                     (oom->verdict == ML_OOM_LIMIT &&
                      suffices(oom, unused[ML_OOM_UNUSED_ELIGIBLE].bytes));
    if (in_pieces && !oom->expandable) {
        advise(oom, ML_OOM_ADVICE_EXPANDABLE_SEGMENTS,
               unused[ML_OOM_UNUSED_ELIGIBLE].bytes);
    }
    if (unused[ML_OOM_UNUSED_OVERSIZE].bytes != 0) {
        advise(oom, ML_OOM_ADVICE_MAX_SPLIT_SIZE, unused[ML_OOM_UNUSED_OVERSIZE].bytes);
    }
    if (oom->verdict == ML_OOM_NOT_ELIGIBLE &&
        unused[ML_OOM_UNUSED_OTHER_STREAM].bytes != 0) {
        advise(oom, ML_OOM_ADVICE_OTHER_STREAM,
               unused[ML_OOM_UNUSED_OTHER_STREAM].bytes);
    }
    if (oom->verdict == ML_OOM_NOT_ELIGIBLE &&
        unused[ML_OOM_UNUSED_OTHER_POOL].bytes != 0) {
        advise(oom, ML_OOM_ADVICE_OTHER_POOL, unused[ML_OOM_UNUSED_OTHER_POOL].bytes);
    }
    if (much_outside(oom)) {
        advise(oom, ML_OOM_ADVICE_OUTSIDE, oom->outside);
    }
    if (asked_by_loss(recording, event)) {
        advise(oom, ML_OOM_ADVICE_LOGITS, oom->requested);
    }
    advise_categories(oom);
    return advise_line(oom);
}
