/* Remedies.  See remedies.h. */
#include "lab/verdict/remedies.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/module_repeats.h"
#include "base/base.h"
#include "lab/advice/advice_rules.h"
#include "lab/advice/library_switches.h"

#define CHUNKS 8
#define GPUS_MOST 8
/* A saving below one part in this many of the need is not reported. */
#define LEAST_PART 100
/* Kinds of torch functions in a stack, as bits of a demand. */
#define OF_LOSS 1u
#define OF_SCORES 2u

typedef struct chest {
    const ml_remainder *remainder;
    const ml_advice_case *it;
    ml_trial_options options;
    ml_remedies *out;
    uint8_t *marks;   /* owned; by stack: OF_LOSS and OF_SCORES */
    bool *left;       /* owned; by recorded demand: steps left it behind */
    ml_string family; /* path up to the number, of the modules with the most bytes */
    uint32_t modules; /* of it */
    uint32_t stack;   /* of its largest block */
    uint64_t loss;    /* bytes of the largest block that a loss made or makes */
    bool autocast;    /* the run has it already */
    uint32_t gpus;
} chest;

static uint8_t
mark_of(ml_string name)
{
    static const struct {
        const char *name;
        uint8_t mark;
    } known[] = {{"cross_entropy", OF_LOSS},
                 {"log_softmax", OF_LOSS},
                 {"nll_loss", OF_LOSS},
                 {"softmax", OF_SCORES}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (name.length == strlen(known[i].name) &&
            memcmp(name.bytes, known[i].name, name.length) == 0) {
            return known[i].mark;
        }
    }
    return 0;
}

static int
mark_stacks(chest *c)
{
    const ml_recording *recording = c->it->recording;
    c->marks = ml_alloc_zeroed(recording->stack_count + 1, 1);
    for (size_t i = 1; c->marks != NULL && i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        c->marks[i] =
            c->marks[stack->parent] | mark_of(ml_frame_name(recording, stack->frame));
    }
    return c->marks == NULL ? ML_ENOMEM : 0;
}

static uint8_t
marks_of(const chest *c, size_t demand)
{
    return c->marks[c->remainder->workload->demands[demand].stack];
}

static bool
is_made(const chest *c, size_t demand)
{
    return c->remainder->items[demand].scales;
}

/* ---- Modules that repeat ---- */

/* No bytes: the path has no number.  A root's number has nothing before it. */
static ml_string
before_number(const chest *c, size_t demand)
{
    if (c->remainder->items[demand].apart) {
        return (ml_string){0};
    }
    size_t like = c->remainder->items[demand].like;
    ml_string path =
        c->it->recording->strings[ml_explained_of(c->it, like)->cause.module];
    size_t number = 0;
    size_t end = ml_path_number(path, 0, &number);
    return end == 0 ? (ml_string){0} : (ml_string){path.bytes, (uint32_t)number};
}

static bool
is_of(const chest *c, size_t demand, ml_string family)
{
    size_t like = c->remainder->items[demand].like;
    ml_string path =
        c->it->recording->strings[ml_explained_of(c->it, like)->cause.module];
    size_t number = 0;
    return !c->remainder->items[demand].apart &&
           ml_path_number(path, 0, &number) != 0 && number == family.length &&
           memcmp(path.bytes, family.bytes, number) == 0;
}

/* Finds the modules with the most blocks, in the first family that has any: a net has
 * one trunk. */
static void
find_family(chest *c)
{
    const ml_remainder *remainder = c->remainder;
    uint64_t most = 0;
    for (size_t i = 0; i < remainder->workload->count; i++) {
        uint64_t bytes = remainder->workload->demands[i].bytes;
        ml_string before = before_number(c, i);
        if (is_made(c, i) && bytes > most && before.bytes != NULL) {
            size_t like = remainder->items[i].like;
            if (ml_explained_of(c->it, like)->cause.module != 0) {
                most = bytes;
                c->family = before;
                c->stack = remainder->workload->demands[i].stack;
            }
        }
    }
    const ml_recording *recording = c->it->recording;
    for (size_t i = 0; most != 0 && i < remainder->recorded; i++) {
        if (!is_of(c, i, c->family)) {
            continue;
        }
        ml_string path = recording->strings[ml_explained_of(c->it, i)->cause.module];
        uint32_t number = 0;
        for (size_t at = c->family.length;
             at < path.length && path.bytes[at] >= '0' && path.bytes[at] <= '9'; at++) {
            number = number * 10 + (uint32_t)(path.bytes[at] - '0');
        }
        c->modules = number + 1 > c->modules ? number + 1 : c->modules;
    }
}

static void
find_loss(chest *c)
{
    c->loss = c->remainder->loss;
    for (size_t i = 0; i < c->remainder->workload->count; i++) {
        uint64_t bytes = c->remainder->workload->demands[i].bytes;
        if (is_made(c, i) && (marks_of(c, i) & OF_LOSS) != 0 && bytes > c->loss) {
            c->loss = bytes;
        }
    }
}

/* Sets *COUNT to the number of SIZES, without those that are there twice. */
static void
drop_equals(uint64_t *sizes, size_t *count)
{
    qsort(sizes, *count, sizeof(uint64_t), ml_compare_u64);
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (kept == 0 || sizes[kept - 1] != sizes[i]) {
            sizes[kept++] = sizes[i];
        }
    }
    *count = kept;
}

/* By string: the modules that torch's linear layers and convolutions are.  NULL: no memory. */
static bool *
find_products(const chest *c)
{
    const ml_recording *recording = c->it->recording;
    bool *is = ml_alloc_zeroed(recording->string_count + 1, sizeof(*is));
    for (size_t i = 0; is != NULL && i < c->remainder->recorded; i++) {
        uint32_t stack = c->remainder->workload->demands[i].stack;
        ml_string file = ml_stack_file(recording, stack);
        if (ml_string_holds(file, "/torch/nn/modules/linear.py") ||
            ml_string_holds(file, "/torch/nn/modules/conv.py")) {
            is[ml_explained_of(c->it, i)->cause.module] = is[0] = true;
        }
    }
    return is;
}

/* Autocast casts the parameters of products in the forward: of most of their sizes there is one
 * of half. */
static int
find_autocast(chest *c)
{
    const ml_workload *workload = c->remainder->workload;
    size_t recorded = c->remainder->recorded;
    uint64_t *sizes = ml_alloc((2 * recorded + 1) * sizeof(uint64_t));
    bool *products = find_products(c);
    if (sizes == NULL || products == NULL) {
        ml_free(sizes);
        ml_free(products);
        return ML_ENOMEM;
    }
    uint64_t *cast = sizes + recorded;
    size_t count = 0;
    for (size_t i = 0; i < recorded; i++) {
        if (c->remainder->items[i].category == ML_CATEGORY_PARAMETER &&
            (!products[0] || products[ml_explained_of(c->it, i)->cause.module])) {
            sizes[count++] = workload->demands[i].bytes;
        }
    }
    ml_free(products);
    drop_equals(sizes, &count);
    size_t cast_count = 0;
    for (size_t i = 0; i < recorded; i++) {
        uint64_t whole = 2 * workload->demands[i].bytes;
        if (ml_explained_of(c->it, i)->cause.phase == ML_PHASE_FORWARD && count != 0 &&
            bsearch(&whole, sizes, count, sizeof(uint64_t), ml_compare_u64) != NULL) {
            cast[cast_count++] = whole;
        }
    }
    drop_equals(cast, &cast_count);
    c->autocast = cast_count > 1 && 2 * cast_count > count;
    ml_free(sizes);
    return 0;
}

/* ---- Edits ---- */

static bool
is_optimizers(const chest *c, size_t i)
{
    return c->remainder->items[i].category == ML_CATEGORY_OPTIMIZER_STATE;
}

static uint64_t
edited(const chest *c, size_t i, uint64_t bytes, unsigned kind)
{
    unsigned category = c->remainder->items[i].category;
    bool made = is_made(c, i);
    /* torch's temporaries of all parameters: other optimizers update one at a time. */
    bool step = c->remainder->items[i].of_step;
    switch (kind) {
    case ML_REMEDY_NOTHING_KEPT:
        return i < c->remainder->recorded && c->left[i] ? 0 : bytes;
    case ML_REMEDY_LOSS_CHUNKED:
        /* This includes the logits, whose size is that of the loss's block or half of
         * it. */
        return made && c->loss != 0 && (bytes == c->loss || bytes * 2 == c->loss)
                   ? bytes / CHUNKS
                   : bytes;
    case ML_REMEDY_ATTENTION:
        return made && (marks_of(c, i) & OF_SCORES) != 0 ? 0 : bytes;
    case ML_REMEDY_OPTIMIZER_8BIT:
        return step ? 0 : is_optimizers(c, i) ? bytes / 4 : bytes;
    case ML_REMEDY_OPTIMIZER_SGD:
    case ML_REMEDY_OPTIMIZER_OFFLOADED:
        return step || is_optimizers(c, i) ? 0 : bytes;
    case ML_REMEDY_BFLOAT16:
        return made && category != ML_CATEGORY_INPUT && !c->autocast ? bytes / 2
                                                                     : bytes;
    case ML_REMEDY_CHECKPOINT:
        /* One module's blocks at a time, and an input of each module. */
        return made && c->modules > 1 && is_of(c, i, c->family)
                   ? bytes / c->modules + bytes / CHUNKS
                   : bytes;
    case ML_REMEDY_SMALLER_BATCH:
        return made ? bytes / 2 : bytes;
    case ML_REMEDY_LORA:
        return step || is_optimizers(c, i) || category == ML_CATEGORY_GRADIENT
                   ? bytes / 100
                   : bytes;
    case ML_REMEDY_FSDP:
        return step || is_optimizers(c, i) || category == ML_CATEGORY_GRADIENT ||
                       category == ML_CATEGORY_PARAMETER
                   ? bytes / c->gpus
                   : bytes;
    default:
        return bytes;
    }
}

/* What came of a trial with remedies. */
typedef struct outcome {
    bool fits;      /* in the memory that there is */
    uint64_t needs; /* reserved peak; where it does not fit, with endless memory */
} outcome;

static int
run_edited(const chest *c, const ml_workload *edited, uint32_t kinds, outcome *out)
{
    uint64_t memory = c->options.memory_bytes;
    ml_trial_options options = c->options;
    options.settings.expandable_segments |= (kinds >> ML_REMEDY_SETTINGS & 1) != 0;
    ml_trial_result result;
    if (memory != UINT64_MAX) {
        bool exact = kinds == 1u << ML_REMEDY_SETTINGS;
        options.memory_bytes = exact ? memory : memory - memory / ML_FIT_MARGIN_PART;
        options.go_on = false;
        int error = ml_trial_run(edited, &options, &result);
        out->fits = error == 0 && result.ooms == 0;
        out->needs = out->fits ? result.peak.reserved : 0;
        if (error < 0 || out->fits) {
            return error;
        }
    }
    options.memory_bytes = UINT64_MAX;
    options.go_on = true;
    int error = ml_trial_run(edited, &options, &result);
    *out = (outcome){.needs = error == 0 ? result.peak.reserved : 0};
    return error;
}

/* Of the run with the remedies of the bits KINDS. */
static int
try_kinds(const chest *c, uint32_t kinds, outcome *out)
{
    ml_workload *copy;
    int error = ml_workload_copy(c->remainder->workload, &copy);
    if (error < 0) {
        return error;
    }
    for (size_t i = 0; i < copy->count; i++) {
        for (unsigned kind = 0; kind < ML_REMEDY_COUNT; kind++) {
            if ((kinds >> kind & 1) != 0) {
                copy->demands[i].bytes = edited(c, i, copy->demands[i].bytes, kind);
            }
        }
    }
    error = run_edited(c, copy, kinds, out);
    ml_workload_free(copy);
    return error;
}

/* ---- The list ---- */

/* Bytes by which KIND shrinks demands.  Except by chance, no peak falls by more. */
static uint64_t
removed(const chest *c, unsigned kind)
{
    uint64_t bytes = 0;
    const ml_workload *workload = c->remainder->workload;
    for (size_t i = 0; i < workload->count; i++) {
        bytes +=
            workload->demands[i].bytes - edited(c, i, workload->demands[i].bytes, kind);
    }
    return bytes;
}

/* Whether the remainder is known with remedy KIND. */
static bool
is_told(const chest *c, unsigned kind)
{
    uint32_t mended =
        kind == ML_REMEDY_NOTHING_KEPT ? 1u << ML_UNTOLD_GROWTH : (uint32_t)0;
    return (c->remainder->untold & ~mended) == 0;
}

static int
try_alone(chest *c, unsigned kind)
{
    ml_remedies *out = c->out;
    outcome tried = {0};
    int error = 0;
    for (c->gpus = 2; error == 0; c->gpus *= 2) {
        error = try_kinds(c, 1u << kind, &tried);
        if (kind != ML_REMEDY_FSDP || tried.fits || c->gpus == GPUS_MOST) {
            break;
        }
    }
    uint64_t needs = tried.needs;
    uint64_t most = removed(c, kind);
    /* With blocks that are not made at all their segments go, which are larger.  A run that
     * fits may also have released what is cached: it needs no more than there is. */
    bool shrinks = kind != ML_REMEDY_SETTINGS && kind != ML_REMEDY_NOTHING_KEPT;
    bool releases = tried.fits && out->needs > most + c->options.memory_bytes;
    if (shrinks && !releases && needs < out->needs && out->needs - needs > most) {
        needs = out->needs - most;
    }
    if (error < 0 || needs >= out->needs ||
        out->needs - needs < out->needs / LEAST_PART) {
        return error;
    }
    ml_remedy remedy = {.kind = (uint8_t)kind,
                        .exact = kind == ML_REMEDY_SETTINGS,
                        .needs = needs,
                        .saving = out->needs - needs,
                        .fits = tried.fits && is_told(c, kind)};
    remedy.count = kind == ML_REMEDY_LOSS_CHUNKED    ? CHUNKS
                   : kind == ML_REMEDY_SMALLER_BATCH ? 2
                   : kind == ML_REMEDY_FSDP          ? c->gpus
                   : kind == ML_REMEDY_CHECKPOINT    ? c->modules
                                                     : 0;
    if (kind == ML_REMEDY_CHECKPOINT) {
        remedy.module = c->family;
        remedy.library_switch = ml_switch_of_checkpoint(c->it->recording, c->stack);
    }
    size_t at = out->count++;
    for (; at > 0 && out->list[at - 1].saving < remedy.saving; at--) {
        out->list[at] = out->list[at - 1];
    }
    out->list[at] = remedy;
    return 0;
}

const ml_remedy *
ml_remedies_of(const ml_remedies *remedies, unsigned kind)
{
    for (size_t i = 0; i < remedies->count; i++) {
        if (remedies->list[i].kind == kind) {
            return &remedies->list[i];
        }
    }
    return NULL;
}

/* Remedies of the same memory exclude each other: one optimizer is enough. */
static bool
goes_with(uint32_t kinds, unsigned kind)
{
    uint32_t optimizers = 1u << ML_REMEDY_OPTIMIZER_8BIT |
                          1u << ML_REMEDY_OPTIMIZER_SGD |
                          1u << ML_REMEDY_OPTIMIZER_OFFLOADED | 1u << ML_REMEDY_LORA;
    return (optimizers >> kind & 1) == 0 || (kinds & optimizers) == 0;
}

static int
choose_remedies(chest *c)
{
    ml_remedies *out = c->out;
    uint32_t kinds = 0;
    outcome tried = {.needs = out->needs};
    int error = 0;
    for (unsigned kind = 0; kind < ML_REMEDY_COUNT && kinds == 0; kind++) {
        const ml_remedy *remedy = ml_remedies_of(out, kind);
        if (remedy != NULL && remedy->fits) {
            kinds = 1u << kind;
            tried = (outcome){.fits = true, .needs = remedy->needs};
        }
    }
    for (unsigned kind = 0; kind < ML_REMEDY_COUNT && !tried.fits && error == 0;
         kind++) {
        const ml_remedy *remedy = ml_remedies_of(out, kind);
        if (remedy == NULL || !goes_with(kinds, kind)) {
            continue;
        }
        c->gpus = kind == ML_REMEDY_FSDP ? remedy->count : c->gpus;
        kinds |= 1u << kind;
        error = try_kinds(c, kinds, &tried);
    }
    bool fits = tried.fits;
    /* Without those that are not needed, the costly ones first. */
    for (unsigned kind = ML_REMEDY_COUNT; kind > 0 && fits && error == 0; kind--) {
        uint32_t fewer = kinds & ~(1u << (kind - 1));
        outcome less = {0};
        if (fewer == kinds || fewer == 0) {
            continue;
        }
        error = try_kinds(c, fewer, &less);
        if (less.fits) {
            kinds = fewer;
            tried = less;
        }
    }
    for (size_t i = 0; i < out->count && fits; i++) {
        out->list[i].chosen = (kinds >> out->list[i].kind & 1) != 0;
    }
    out->together = fits ? tried.needs : 0;
    return error;
}

int
ml_remedies_find(const ml_remainder *remainder, const ml_advice_case *it,
                 const ml_trial_options *options, ml_remedies *out)
{
    *out = (ml_remedies){0};
    chest c = {.remainder = remainder, .it = it, .options = *options, .out = out};
    int error = mark_stacks(&c);
    c.left = ml_advice_left_by_steps(it);
    error = error == 0 && c.left == NULL ? ML_ENOMEM : error;
    error = error == 0 ? find_autocast(&c) : error;
    if (error == 0) {
        find_family(&c);
        find_loss(&c);
        outcome as_it_is = {0};
        error = try_kinds(&c, 0, &as_it_is);
        out->needs = as_it_is.needs;
    }
    for (unsigned kind = 0; kind < ML_REMEDY_COUNT && error == 0; kind++) {
        error = try_alone(&c, kind);
    }
    const ml_remedy *kept = ml_remedies_of(out, ML_REMEDY_NOTHING_KEPT);
    bool told = remainder->untold == 0 || (kept != NULL && kept->fits);
    if (error == 0 && options->memory_bytes != UINT64_MAX && told) {
        error = choose_remedies(&c);
    }
    ml_free(c.marks);
    ml_free(c.left);
    return error;
}

const char *
ml_remedy_text(unsigned kind)
{
    static const char *const texts[] = {ML_REMEDIES(ML_LISTED_TEXT)};
    return kind < ML_REMEDY_COUNT ? texts[kind] : "";
}
