/* What a stack says by its frames.  See stack_facts.h.
 *
 * Callers have lower ids, so that one pass over the stacks in their order, each from its
 * caller's facts, tells all. */
#include "analysis/attribution/stack_facts.h"

#include <string.h>

#include "base/base.h"

static bool
ends(ml_string text, const char *part)
{
    size_t length = strlen(part);
    return text.length >= length &&
           memcmp(text.bytes + text.length - length, part, length) == 0;
}

static bool
begins(ml_string text, const char *part)
{
    size_t length = strlen(part);
    return text.length >= length && memcmp(text.bytes, part, length) == 0;
}

static bool
is(ml_string text, const char *other)
{
    return text.length == strlen(other) && ends(text, other);
}

/* What a file is, and which of torch's own it is: looked at once for each name. */
enum {
    FILE_PLACE = 0x07,     /* enum ml_frame_place, plus 1; 0: not looked at yet */
    FILE_MODULE = 0x08,    /* torch/nn/modules/module.py */
    FILE_OPTIMIZER = 0x10, /* in torch/optim/ */
    FILE_ENGINE = 0x20,    /* torch/autograd/graph.py or __init__.py */
    FILE_COMMUNICATION =
        0x40,             /* in torch/distributed/ or torch/nn/parallel/, see below */
    FILE_FUNCTION = 0x80, /* torch/autograd/function.py */
};

/* A file of torch.compile's cache, wherever that is: DIR/xy/cxy....py, where 51 digits
 * of base 32 follow the c. */
static bool
is_hashed(ml_string file)
{
    enum {
        DIGITS = 51,
        TAIL = sizeof("/xy/c") - 1 + DIGITS + sizeof(".py") - 1
    };
    if (file.length < TAIL || !ends(file, ".py")) {
        return false;
    }
    const char *tail = file.bytes + file.length - TAIL;
    for (size_t i = 0; i < DIGITS; i++) {
        char digit = tail[5 + i];
        if (!(digit >= 'a' && digit <= 'z') && !(digit >= '2' && digit <= '7')) {
            return false;
        }
    }
    return tail[0] == '/' && tail[3] == '/' && tail[4] == 'c' &&
           memcmp(tail + 1, tail + 5, 2) == 0;
}

static enum ml_frame_place
place_of(ml_string file)
{
    static const char *const native[] = {".c",  ".cc",  ".cpp", ".cxx", ".cu", ".h",
                                         ".hh", ".hpp", ".cuh", ".S",   ".so", "??"};
    for (size_t i = 0; i < sizeof(native) / sizeof(native[0]); i++) {
        if (ends(file, native[i])) {
            return ML_PLACE_NATIVE;
        }
    }
    if (ml_string_holds(file, "site-packages/") ||
        ml_string_holds(file, "dist-packages/")) {
        return ml_string_holds(file, "-packages/torch/") ? ML_PLACE_LIBRARY
                                                         : ML_PLACE_PACKAGE;
    }
    /* Torch's own tools shorten paths to the third of these; saved TorchScript has the
     * last. */
    if (ml_string_holds(file, "lib/python3.") || ml_string_holds(file, "<frozen ") ||
        begins(file, "torch/") || begins(file, "code/__torch__/torch/")) {
        return ML_PLACE_LIBRARY;
    }
    /* Of memlab where it is not installed: it ran the program. */
    if (ml_string_holds(file, "/memlab/_run/") ||
        ml_string_holds(file, "/memlab/_cli/") || ends(file, "/memlab/_run.py") ||
        ends(file, "/memlab/_cli.py") || ends(file, "/memlab/_guard.py") ||
        ends(file, "/memlab/__main__.py")) {
        return ML_PLACE_PACKAGE;
    }
    /* Code that torch.compile wrote: the user's is what called it. */
    if (ml_string_holds(file, "/torchinductor_") ||
        ml_string_holds(file, "<eval_with_key>") || is_hashed(file)) {
        return ML_PLACE_LIBRARY;
    }
    return file.length == 0 ? ML_PLACE_NATIVE : ML_PLACE_USER;
}

/* The formulas by which TorchScript differentiates have no file: the user's is what they
 * are of. */
static uint8_t
place_in(const ml_recording *recording, uint32_t frame, uint8_t of_file)
{
    ml_string file = recording->strings[recording->frames[frame].filename];
    ml_string name = recording->strings[recording->frames[frame].name];
    if (of_file == ML_PLACE_USER && is(file, "<string>") &&
        (is(name, "<forward op>") || is(name, "<backward op>"))) {
        return ML_PLACE_LIBRARY;
    }
    return of_file;
}

/* A DTensor's operators work on its local tensor: what they make is what it would be
 * without it, but where pieces are exchanged. */
static bool
is_communication(ml_string file)
{
    if (ml_string_holds(file, "torch/distributed/tensor/")) {
        return ends(file, "/_redistribute.py") || ends(file, "/_collective_utils.py") ||
               ends(file, "/placement_types.py");
    }
    return ml_string_holds(file, "torch/distributed/") ||
           ml_string_holds(file, "torch/nn/parallel/");
}

static uint8_t
look_at_file(ml_string file)
{
    unsigned found = (unsigned)place_of(file) + 1;
    if (ends(file, "torch/nn/modules/module.py")) {
        found |= FILE_MODULE;
    }
    if (ml_string_holds(file, "torch/optim/")) {
        found |= FILE_OPTIMIZER;
    }
    if (ends(file, "torch/autograd/graph.py") ||
        ends(file, "torch/autograd/__init__.py")) {
        found |= FILE_ENGINE;
    }
    if (ends(file, "torch/autograd/function.py")) {
        found |= FILE_FUNCTION;
    }
    if (is_communication(file)) {
        found |= FILE_COMMUNICATION;
    }
    return (uint8_t)found;
}

static ml_standing
better(ml_standing outer, ml_standing own)
{
    return outer.place < own.place ? outer : own;
}

static ml_stack_fact
extend(const ml_recording *recording, uint8_t file, ml_stack stack,
       const ml_stack_fact *caller)
{
    ml_string name = recording->strings[recording->frames[stack.frame].name];
    uint8_t of_file = (uint8_t)((file & FILE_PLACE) - 1);
    ml_standing own = {stack.frame, place_in(recording, stack.frame, of_file)};
    ml_stack_fact fact = *caller;
    fact.whole = better(caller->whole, own);
    if ((file & FILE_ENGINE) && is(name, "_engine_run_backward")) {
        return (ml_stack_fact){
            .whole = fact.whole, .inner.place = ML_PLACE_NONE, .engine = true};
    }
    fact.inner = better(caller->inner, own);
    fact.model = own.place <= ML_PLACE_PACKAGE ? own.frame : caller->model;
    if (stack.module != 0) {
        fact.module = stack.module;
        fact.outer_module =
            caller->outer_module != 0 ? caller->outer_module : stack.module;
    }
    if (stack.module != 0 || ((file & FILE_MODULE) && (is(name, "_wrapped_call_impl") ||
                                                       is(name, "_call_impl")))) {
        fact.scope = ML_SCOPE_MODULE;
        fact.communication = false;
    }
    /* The wrapper of every optimizer's step, the user's own too. */
    if ((file & FILE_OPTIMIZER) && (is(name, "wrapper") || is(name, "step"))) {
        fact.scope = ML_SCOPE_OPTIMIZER;
    }
    if (file & FILE_COMMUNICATION) {
        fact.communication = true;
    }
    if ((file & FILE_ENGINE) && is(name, "_make_grads")) {
        fact.seed = true;
    }
    if ((file & FILE_FUNCTION) && is(name, "apply")) {
        fact.function = true;
    }
    return fact;
}

int
ml_stack_facts_init(ml_stack_facts *facts, const ml_recording *recording)
{
    size_t count = recording->stack_count;
    uint8_t *files = ml_alloc_zeroed(recording->string_count, 1);
    *facts = (ml_stack_facts){
        .of = ml_alloc_zeroed(count, sizeof(ml_stack_fact)),
        .callers = ml_alloc_zeroed(recording->string_count, sizeof(uint32_t))};
    if (files == NULL || facts->of == NULL || facts->callers == NULL) {
        ml_free(files);
        ml_stack_facts_fini(facts);
        return ML_ENOMEM;
    }
    facts->of[0].whole.place = ML_PLACE_NONE;
    facts->of[0].inner.place = ML_PLACE_NONE;
    for (size_t i = 1; i < count; i++) {
        ml_stack stack = recording->stacks[i];
        const ml_stack_fact *caller = &facts->of[stack.parent];
        uint32_t file = recording->frames[stack.frame].filename;
        if (files[file] == 0) {
            files[file] = look_at_file(recording->strings[file]);
        }
        facts->of[i] = extend(recording, files[file], stack, caller);
        if (stack.module != 0 && caller->inner.place == ML_PLACE_USER) {
            facts->callers[stack.module] = caller->inner.frame;
        }
    }
    ml_free(files);
    return 0;
}

void
ml_stack_facts_fini(ml_stack_facts *facts)
{
    ml_free(facts->of);
    ml_free(facts->callers);
    *facts = (ml_stack_facts){0};
}

ml_standing
ml_stack_facts_line(const ml_stack_facts *facts, uint32_t stack)
{
    const ml_stack_fact *fact = &facts->of[stack];
    if (fact->inner.place == ML_PLACE_USER) {
        return fact->inner;
    }
    if (fact->outer_module != 0 && facts->callers[fact->outer_module] != 0) {
        return (ml_standing){facts->callers[fact->outer_module], ML_PLACE_USER};
    }
    return fact->inner.place != ML_PLACE_NONE ? fact->inner : fact->whole;
}

enum ml_frame_place
ml_frame_place_of(const ml_recording *recording, uint32_t frame)
{
    ml_string file = recording->strings[recording->frames[frame].filename];
    return place_in(recording, frame, (uint8_t)place_of(file));
}

ml_standing
ml_stack_standing(const ml_recording *recording, uint32_t stack)
{
    ml_standing best = {0, ML_PLACE_NONE};
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        uint32_t frame = recording->stacks[stack].frame;
        ml_standing outer = {frame, (uint8_t)ml_frame_place_of(recording, frame)};
        best = better(outer, best);
    }
    return best;
}

uint32_t
ml_stack_caller(const ml_recording *recording, uint32_t stack, uint32_t frame)
{
    while (stack != 0 && recording->stacks[stack].frame != frame) {
        stack = recording->stacks[stack].parent;
    }
    if (stack == 0) {
        return 0;
    }
    ml_standing caller = ml_stack_standing(recording, recording->stacks[stack].parent);
    return caller.place == ML_PLACE_USER ? caller.frame : 0;
}
