/* Derives signs of autograd from stacks, for recordings without autograd's numbers.
 * See stack_signs.h. */
#include "analysis/attribution/stack_signs.h"

#include <string.h>

#include "base/base.h"

static bool
is(ml_string text, const char *other)
{
    return text.length == strlen(other) && memcmp(text.bytes, other, text.length) == 0;
}

static bool
is_any(ml_string text, const char *const *others)
{
    for (; *others != NULL; others++) {
        if (is(text, *others)) {
            return true;
        }
    }
    return false;
}

/* ---- Which recordings ---- */

static bool
knows_autograd(const ml_recording *recording)
{
    if (!recording->foreign || recording->source_known) {
        return true;
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            if (ml_events_is_backward(&trace->events, i)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- Stacks ---- */

typedef struct search {
    const ml_recording *recording;
    const ml_stack_facts *facts;
    /* By stack, the outermost and the innermost one with a Python frame; 0: none;
     * owned. */
    uint32_t *roots;
    uint32_t *inners;
    uint8_t *of;
    /* the line of torch's Module._apply that moves buffers; 0: not seen */
    int64_t buffers;
    bool begins; /* a stack begins like those of a program's threads */
} search;

/* The signs of the frame of STACK alone. */
static bool
begins_thread(const search *s, uint32_t stack)
{
    static const char *const names[] = {"<module>", "_bootstrap", "_run_module_as_main",
                                        "_run_code", NULL};
    return is_any(ml_stack_name(s->recording, stack), names);
}

static bool
is_apply(const search *s, uint32_t stack)
{
    return stack != 0 && is(ml_stack_name(s->recording, stack), "_apply") &&
           ml_string_holds(ml_stack_file(s->recording, stack),
                           "torch/nn/modules/module.py");
}

/* torch's Module._apply moves parameters, then their gradients, then buffers, from
 * lines in this order, and calls itself for submodules. */
static void
find_buffers(search *s)
{
    int64_t first = 0;
    for (uint32_t i = 1; i < s->recording->stack_count; i++) {
        uint32_t caller = s->inners[s->recording->stacks[i].parent];
        if (s->inners[i] != i || !is_apply(s, caller) ||
            is(ml_stack_name(s->recording, i), "_apply")) {
            continue;
        }
        int64_t line = s->recording->frames[s->recording->stacks[caller].frame].line;
        first = first == 0 || line < first ? line : first;
        s->buffers = line > s->buffers ? line : s->buffers;
    }
    s->buffers = s->buffers == first ? 0 : s->buffers;
}

static bool
makes_model(ml_string file, ml_string name)
{
    static const char *const of_modules[] = {
        "__init__",     "reset_parameters",      "_apply",       "to_empty",
        "__setstate__", "_load_from_state_dict", "__deepcopy__", NULL};
    static const char *const of_any[] = {"load_state_dict", "from_pretrained",
                                         "_init_weights", NULL};
    return ml_string_holds(file, "torch/nn/parameter.py") ||
           (ml_string_holds(file, "torch/nn/modules/") && is_any(name, of_modules)) ||
           is_any(name, of_any);
}

/* The innermost frame with a sign decides. */
static uint8_t
work_of(const search *s, uint32_t stack, uint8_t caller)
{
    ml_string file = ml_stack_file(s->recording, stack);
    ml_string name = ml_stack_name(s->recording, stack);
    if (is(name, "zero_grad") &&
        (ml_string_holds(file, "torch/optim/") ||
         ml_string_holds(file, "torch/nn/modules/module.py"))) {
        return ML_SIGN_CLEARS;
    }
    if (is_apply(s, stack)) {
        int64_t line = s->recording->frames[s->recording->stacks[stack].frame].line;
        return line == s->buffers ? ML_SIGN_BUFFER : ML_SIGN_PARAMETER;
    }
    if (ml_string_holds(file, "torch/optim/") &&
        !ml_string_holds(file, "torch/optim/swa_utils.py")) {
        return ML_SIGN_OPTIMIZER;
    }
    if (caller & ML_SIGN_OPTIMIZER) {
        return caller;
    }
    if (ml_string_holds(file, "torch/nn/modules/module.py") && is(name, "_call_impl")) {
        return 0;
    }
    if (caller == 0 && makes_model(file, name)) {
        return ML_SIGN_PARAMETER;
    }
    return caller;
}

static void
find_python(search *s)
{
    for (uint32_t i = 1; i < s->recording->stack_count; i++) {
        uint32_t caller = s->recording->stacks[i].parent;
        uint32_t frame = s->recording->stacks[i].frame;
        bool python = ml_frame_place_of(s->recording, frame) < ML_PLACE_NATIVE;
        s->roots[i] = s->roots[caller] == 0 && python ? i : s->roots[caller];
        s->inners[i] = python ? i : s->inners[caller];
        s->begins = s->begins || (s->roots[i] == i && begins_thread(s, i));
    }
}

static void
find_work(search *s)
{
    for (uint32_t i = 1; i < s->recording->stack_count; i++) {
        uint8_t caller = s->of[s->recording->stacks[i].parent];
        s->of[i] = s->inners[i] == i ? work_of(s, i, caller) : caller;
    }
}

/* torch's code that autograd calls from its own threads. */
static bool
is_called_back(const search *s, uint32_t root)
{
    ml_string file = ml_stack_file(s->recording, root);
    return ml_string_holds(file, "torch/autograd/") ||
           ml_string_holds(file, "torch/utils/checkpoint.py");
}

static bool
is_backward(const search *s, uint32_t stack)
{
    if (s->facts->of[stack].engine) {
        return true;
    }
    uint32_t root = s->roots[stack];
    return root == 0 || (s->begins ? !begins_thread(s, root) : is_called_back(s, root));
}

/* Whether Python code called a module or an optimizer, or a backward pass allocates:
 * without these, there is nothing to estimate.  Nor where no allocation has Python code: with
 * context="state" torch keeps stacks of blocks alone. */
static bool
trains(const search *s)
{
    bool any = false;
    bool python = false;
    bool backward = false;
    for (size_t d = 0; d < s->recording->device_count; d++) {
        const ml_device_trace *trace = &s->recording->devices[d];
        for (size_t i = 0; i < trace->event_count && !(python && backward); i++) {
            if (ml_events_action(&trace->events, i) == ML_ACTION_ALLOC) {
                uint32_t stack = ml_events_stack(&trace->events, i);
                any = true;
                python = python || s->roots[stack] != 0;
                backward = backward || is_backward(s, stack);
            }
        }
    }
    if (any && !python) {
        return false;
    }
    for (uint32_t i = 0; i < s->recording->stack_count; i++) {
        if (s->roots[i] != 0 && s->facts->of[i].scope != ML_SCOPE_NONE) {
            return true;
        }
    }
    return backward;
}

int
ml_stack_signs_init(ml_stack_signs *signs, const ml_recording *recording,
                    const ml_stack_facts *facts)
{
    *signs = (ml_stack_signs){0};
    if (knows_autograd(recording)) {
        return 0;
    }
    size_t count = recording->stack_count;
    search s = {.recording = recording,
                .facts = facts,
                .roots = ml_alloc_zeroed(count, sizeof(uint32_t)),
                .inners = ml_alloc_zeroed(count, sizeof(uint32_t)),
                .of = ml_alloc_zeroed(count, 1)};
    bool memory = s.roots != NULL && s.inners != NULL && s.of != NULL;
    if (memory) {
        find_python(&s);
        find_buffers(&s);
        find_work(&s);
    }
    if (memory && trains(&s)) {
        for (uint32_t i = 0; i < count; i++) {
            s.of[i] |= is_backward(&s, i) ? ML_SIGN_BACKWARD : 0;
        }
        signs->of = s.of;
    }
    else {
        ml_free(s.of);
    }
    ml_free(s.roots);
    ml_free(s.inners);
    return memory ? 0 : ML_ENOMEM;
}

void
ml_stack_signs_fini(ml_stack_signs *signs)
{
    ml_free(signs->of);
    *signs = (ml_stack_signs){0};
}

/* ---- Events ---- */

/* With context="alloc" torch gives a free its allocation's stack.  Frees among a pass's
 * allocations then mostly look like the program's. */
static bool
frees_have_stacks(const ml_stack_signs *signs, const ml_device_trace *trace)
{
    size_t counts[2] = {
        0}; /* by others and by the pass itself, between its allocations */
    size_t waiting[2] = {0}; /* since the pass's last allocation */
    bool passing = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        unsigned action = ml_events_action(&trace->events, i);
        uint32_t stack = ml_events_stack(&trace->events, i);
        bool backward = (signs->of[stack] & ML_SIGN_BACKWARD) != 0;
        if (action == ML_ACTION_ALLOC) {
            counts[0] += passing && backward ? waiting[0] : 0;
            counts[1] += passing && backward ? waiting[1] : 0;
            waiting[0] = waiting[1] = 0;
            passing = backward;
        }
        else if (action == ML_ACTION_FREE_REQUESTED && passing) {
            waiting[backward]++;
        }
    }
    return counts[1] >= counts[0];
}

void
ml_stack_signs_find_passes(const ml_stack_signs *signs, const ml_device_trace *trace,
                           bool *backward)
{
    bool by_stack = frees_have_stacks(signs, trace);
    bool last = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        bool alloc = ml_events_action(&trace->events, i) == ML_ACTION_ALLOC;
        uint32_t stack = ml_events_stack(&trace->events, i);
        bool own = (signs->of[stack] & ML_SIGN_BACKWARD) != 0;
        last = alloc ? own : last;
        backward[i] = by_stack || alloc ? own : last;
    }
}
