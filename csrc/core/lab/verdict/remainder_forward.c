/* The rest of a forward pass: the modules that it did not reach.
 *
 * Modules of the family in which it failed are taken to be like the last finished one.
 * One or two modules after the family, such as a head, are estimated.  They get rows of
 * the last module's usual size, each multiplied by the parameters. */
#include <string.h>

#include "analysis/attribution/module_repeats.h"
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

#define MOST_OTHERS 4
#define NO_INSTANCE UINT32_MAX

typedef struct family {
    ml_string before; /* path up to the number */
    uint32_t current; /* module in which the request failed */
    uint32_t most;    /* highest module with parameters */
    size_t first;     /* first event of the current module */
    size_t previous;  /* first event of the last finished module */
} family;

/* The number of MODULE in FAMILY; NO_INSTANCE: not of it. */
static uint32_t
instance_of(const family *of, ml_string module)
{
    if (module.length <= of->before.length ||
        ml_string_compare((ml_string){module.bytes, of->before.length}, of->before) !=
            0) {
        return NO_INSTANCE;
    }
    size_t number;
    size_t end = ml_path_number(module, of->before.length, &number);
    if (end == 0 || number != of->before.length || end - number > 9) {
        return NO_INSTANCE;
    }
    uint32_t value = 0;
    for (size_t i = number; i < end; i++) {
        value = value * 10 + (uint32_t)(module.bytes[i] - '0');
    }
    return value <= of->most ? value : NO_INSTANCE;
}

static bool
find_family(const ml_remainder_builder *b, ml_string module, family *of)
{
    size_t number;
    if (ml_path_number(module, 0, &number) == 0) {
        return false;
    }
    *of = (family){.before = {module.bytes, (uint32_t)number},
                   .most = NO_INSTANCE - 1,
                   .first = b->out->failed,
                   .previous = b->out->failed};
    of->current = instance_of(of, module);
    uint32_t most = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        uint32_t instance = instance_of(of, ml_remainder_module_at(b, i));
        if (instance == NO_INSTANCE) {
            continue;
        }
        if (ml_remainder_is_parameter(b, i)) {
            most = instance > most ? instance : most;
            continue;
        }
        size_t born = b->out->workload->demands[i].born;
        if (!ml_remainder_is_of_pass(b, i)) {
            continue;
        }
        if (instance == of->current && born < of->first) {
            of->first = born;
        }
        if (instance + 1 == of->current && born < of->previous) {
            of->previous = born;
        }
    }
    of->most = most;
    return true;
}

/* Repeats the pass from event FROM until UNTIL. */
static int
play(ml_remainder_builder *b, size_t from, size_t until)
{
    ml_remainder *out = b->out;
    size_t start = b->now;
    int error = 0;
    for (size_t i = 0; i < out->recorded && error == 0; i++) {
        ml_demand demand = out->workload->demands[i];
        if (!ml_remainder_is_of_pass(b, i) || demand.born < from ||
            demand.born >= until) {
            continue;
        }
        size_t index = 0;
        b->now = start + (demand.born - from);
        error = ml_remainder_add(b, demand.bytes, i, out->items[i].scales, ML_REST_PASS,
                                 &index);
        if (error == 0 && demand.freed != ML_NO_EVENT) {
            ml_remainder_free_at(b, index, start + (demand.freed - from));
        }
        else if (error == 0) {
            out->forward += demand.bytes;
        }
    }
    b->now = start + (until - from);
    return error;
}

/* The rest of the current instance, copied from the previous one. */
static int
finish_instance(ml_remainder_builder *b, const family *of)
{
    ml_sequence before = {0};
    ml_sequence now = {0};
    int error = ml_sequence_take(b, of->previous, of->first, &before);
    if (error == 0) {
        error = ml_sequence_take(b, of->first, b->out->failed, &now);
    }
    size_t start = b->now;
    if (error == 0 && now.count < before.count) {
        size_t place = b->out->workload->demands[before.list[now.count]].born;
        error = play(b, place + 1, of->first); /* the request is already there */
        for (size_t k = 0; k <= now.count && error == 0; k++) {
            size_t i = k < now.count ? now.list[k] : b->out->recorded;
            size_t freed = b->out->workload->demands[before.list[k]].freed;
            if (freed != ML_NO_EVENT && freed > place &&
                ml_remainder_is_live(b->out, i)) {
                ml_remainder_free_at(b, i, start + (freed - place));
            }
        }
    }
    ml_free(before.list);
    ml_free(now.list);
    return error;
}

/* Whether the last instance was checkpointed: it kept little of what it made. */
static bool
is_made_anew(const ml_remainder_builder *b, const family *of)
{
    uint64_t made = 0;
    uint64_t kept = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        const ml_demand *demand = &b->out->workload->demands[i];
        if (ml_remainder_is_of_pass(b, i) && b->out->items[i].scales &&
            demand->born >= of->previous && demand->born < of->first) {
            made += demand->bytes;
            kept += demand->freed == ML_NO_EVENT ? demand->bytes : 0;
        }
    }
    return kept < made / 4;
}

static uint64_t
parameters_of(const ml_remainder_builder *b, const family *of, uint32_t instance)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        if (ml_remainder_is_parameter(b, i) &&
            instance_of(of, ml_remainder_module_at(b, i)) == instance) {
            bytes += b->out->workload->demands[i].bytes;
        }
    }
    return bytes;
}

/* Ends the family before the first module behind the current one whose parameters are not as
 * large as those of the last one that ended. */
static void
end_family(const ml_remainder_builder *b, family *of)
{
    uint64_t last = parameters_of(b, of, of->current - 1);
    uint32_t end = of->current;
    while (end < of->most && parameters_of(b, of, end + 1) == last) {
        end++;
    }
    of->most = end;
}

static int
finish_family(ml_remainder_builder *b, family *of)
{
    if (of->previous < of->first) {
        end_family(b, of);
    }
    uint32_t left = of->most > of->current ? of->most - of->current : 0;
    if (of->previous >= of->first) {
        b->out->untold |= (uint32_t)(left != 0) << ML_UNTOLD_MODULES;
        return 0;
    }
    b->out->modules += left;
    bool alike =
        parameters_of(b, of, of->current) == parameters_of(b, of, of->current - 1);
    b->out->untold |= (uint32_t)!alike << ML_UNTOLD_MODULES;
    if (is_made_anew(b, of)) {
        b->anew_from = of->previous;
        b->anew_until = of->first;
    }
    int error = finish_instance(b, of);
    for (uint32_t i = 0; i < left && error == 0; i++) {
        error = play(b, of->previous, of->first);
    }
    return error;
}

/* ---- What follows the family ---- */

/* Whether the module of path INNER is in that of path OUTER. */
static bool
is_within(ml_string inner, ml_string outer)
{
    return outer.length != 0 && inner.length > outer.length &&
           inner.bytes[outer.length] == '.' &&
           memcmp(inner.bytes, outer.bytes, outer.length) == 0;
}

/* Whether the pass ran MODULE: it asked for memory, or a module around it did and has ended.  An
 * attention multiplies by its last parameters without a call of the module that has them. */
static bool
was_run(const ml_remainder_builder *b, uint32_t module)
{
    const ml_string *strings = b->it->recording->strings;
    ml_cause failed = ml_causes_of(b->it->causes, b->it->device, b->out->failed);
    uint32_t seen = UINT32_MAX; /* no module */
    for (size_t i = 0; i < b->out->recorded; i++) {
        uint32_t other = ml_explained_of(b->it, i)->cause.module;
        if (other == seen || !ml_remainder_is_of_pass(b, i)) {
            continue;
        }
        seen = other;
        bool running =
            other == failed.module || is_within(strings[failed.module], strings[other]);
        if (other == module ||
            (!running && is_within(strings[module], strings[other]))) {
            return true;
        }
    }
    return false;
}

/* The most frequent block size of the last instance, and its smallest parameter. */
static void
find_rows(const ml_remainder_builder *b, const family *of, uint64_t *rows,
          uint64_t *width, size_t *like)
{
    uint64_t most = 0;
    *rows = 0;
    *width = UINT64_MAX;
    for (size_t i = 0; i < b->out->recorded; i++) {
        const ml_demand *demand = &b->out->workload->demands[i];
        if (ml_remainder_is_parameter(b, i)) {
            bool own = instance_of(of, ml_remainder_module_at(b, i)) != NO_INSTANCE;
            *width = own && demand->bytes < *width ? demand->bytes : *width;
            continue;
        }
        if (!ml_remainder_is_of_pass(b, i) || demand->born < of->previous ||
            demand->born >= of->first || !b->out->items[i].scales) {
            continue;
        }
        uint64_t same = 0;
        for (size_t j = i; j < b->out->recorded; j++) {
            same += ml_remainder_is_of_pass(b, j) &&
                    b->out->workload->demands[j].born < of->first &&
                    b->out->workload->demands[j].bytes == demand->bytes;
        }
        if (same > most) {
            most = same;
            *rows = demand->bytes;
            *like = i;
        }
    }
}

/* Bytes of a module that multiplies rows by its parameter of BYTES, with elements of ELEMENT. */
static uint64_t
made_of(uint64_t bytes, uint64_t rows, uint64_t width, uint64_t element)
{
    uint64_t out = bytes / width; /* elements of a row */
    return out <= 1 ? rows : rows / width * element * out;
}

/* Whether demand I is a block that the instance of OF before the current one kept. */
static bool
is_kept_by_previous(const ml_remainder_builder *b, const family *of, size_t i)
{
    const ml_demand *demand = &b->out->workload->demands[i];
    return ml_remainder_is_of_pass(b, i) && b->out->items[i].scales &&
           demand->born >= of->previous && demand->born < of->first &&
           demand->freed == ML_NO_EVENT;
}

/* Whether torch's own function asked for demand I: its line has one result, with what it keeps
 * beside that. */
static bool
is_of_torch(const ml_remainder_builder *b, size_t i)
{
    uint32_t stack = b->out->workload->demands[i].stack;
    return ml_string_holds(ml_stack_file(b->it->recording, stack), "/torch/nn/");
}

/* What the instance of OF before the current one returned: the last block that it kept.  One of
 * torch's functions may have asked for sums by row after it, as a LayerNorm does: its largest.  A
 * line of the program may have asked for wider ones before it.  The failed request: none ended. */
static size_t
result_of(const ml_remainder_builder *b, const family *of)
{
    const ml_demand *demands = b->out->workload->demands;
    size_t last = b->out->recorded;
    for (size_t i = 0; i < b->out->recorded; i++) {
        if (is_kept_by_previous(b, of, i) &&
            (last == b->out->recorded || demands[i].born > demands[last].born)) {
            last = i;
        }
    }
    size_t result = last;
    for (size_t i = 0; i < b->out->recorded && is_of_torch(b, last); i++) {
        if (is_kept_by_previous(b, of, i) && demands[i].stack == demands[last].stack &&
            demands[i].bytes > demands[result].bytes) {
            result = i;
        }
    }
    return result;
}

/* Whether the pass has convolutions: rows say nothing of what these make. */
static bool
convolves(const ml_remainder_builder *b)
{
    for (size_t i = 0; i < b->out->recorded; i++) {
        uint32_t stack = b->out->workload->demands[i].stack;
        ml_string file = ml_stack_file(b->it->recording, stack);
        if (ml_remainder_is_of_pass(b, i) &&
            ml_string_holds(file, "/modules/conv.py")) {
            return true;
        }
    }
    return false;
}

/* Of what a known head takes: the instance's result. */
static bool
find_rows_of_head(const ml_remainder_builder *b, const family *of, uint64_t *rows,
                  uint64_t *width, size_t *like)
{
    size_t result = result_of(b, of);
    uint64_t bytes = b->out->workload->demands[result].bytes;
    if (b->head_takes == 0 || b->head_makes == 0 || of->previous >= of->first ||
        bytes % b->head_takes != 0) {
        return false;
    }
    *rows = bytes;
    *width = b->head_bytes / b->head_makes;
    *like = result;
    return true;
}

/* Bytes of what the head makes of ROWS, as wide as what it takes.  Autocast's sums and
 * normalizations are in float32, its products in 16 bits. */
static uint64_t
made_by_head(const ml_remainder_builder *b, uint64_t rows)
{
    uint64_t bytes = rows / b->head_takes * b->head_makes;
    return ml_remainder_is_autocast(b) ? bytes / 2 : bytes;
}

static int
add_result(ml_remainder_builder *b, uint64_t bytes, size_t like)
{
    b->out->forward += bytes;
    int error = ml_remainder_add(b, bytes, like, true, ML_REST_PASS, &b->returned);
    b->now++;
    return error;
}

static int
finish_others(ml_remainder_builder *b, const family *of)
{
    uint64_t rows;
    uint64_t width;
    size_t like = 0;
    size_t after = 0;
    uint64_t element = 4;
    bool known = find_rows_of_head(b, of, &rows, &width, &like);
    if (known) {
        element = width / b->head_takes;
    }
    else {
        find_rows(b, of, &rows, &width, &like);
    }
    for (size_t i = 0; i < b->out->recorded; i++) {
        if (ml_remainder_is_parameter(b, i) &&
            instance_of(of, ml_remainder_module_at(b, i)) != NO_INSTANCE) {
            after = i;
        }
    }
    b->apart = true;
    unsigned others = 0;
    uint32_t last = 0;
    int error = 0;
    for (size_t i = after + 1; i < b->out->recorded && error == 0; i++) {
        uint32_t module = ml_explained_of(b->it, i)->cause.module;
        if (!ml_remainder_is_parameter(b, i) || module == last || was_run(b, module)) {
            continue;
        }
        last = module;
        uint64_t weight = b->out->workload->demands[i].bytes;
        bool head = b->head_takes != 0 && weight == b->head_bytes;
        if (head && b->head_makes == 0) {
            continue;
        }
        others++;
        if (rows == 0 || width == UINT64_MAX || width == 0) {
            break;
        }
        error = add_result(b,
                           known && head ? made_by_head(b, rows)
                                         : made_of(weight, rows, width, element),
                           like);
    }
    if (error == 0 && known && b->head_shared) {
        error = add_result(b, made_by_head(b, rows), like);
        others++;
    }
    b->out->modules += others;
    if (others > MOST_OTHERS || (others != 0 && (rows == 0 || convolves(b)))) {
        b->out->untold |= 1u << ML_UNTOLD_MODULES;
    }
    if (error < 0) {
        return error;
    }
    error = ml_remainder_add_loss(b, b->returned != 0 ? b->returned : result_of(b, of));
    b->apart = false;
    return error;
}

/* In a module that is of no family: it is the last one, and what it asked for its result, or
 * what follows is not known. */
static int
finish_last(ml_remainder_builder *b, uint32_t failed)
{
    ml_remainder *out = b->out;
    uint64_t bytes = out->workload->demands[out->recorded].bytes;
    bool known = true;
    for (size_t i = 0; i < out->recorded && known; i++) {
        uint64_t weight = out->workload->demands[i].bytes;
        uint32_t module = ml_explained_of(b->it, i)->cause.module;
        known = !ml_remainder_is_parameter(b, i) ||
                (weight != bytes && weight != 2 * bytes &&
                 (module == failed || was_run(b, module)));
    }
    out->untold |= (uint32_t)!known << ML_UNTOLD_MODULES;
    b->returned = out->recorded;
    return known ? ml_remainder_add_loss(b, out->recorded) : 0;
}

int
ml_remainder_finish_forward(ml_remainder_builder *b)
{
    ml_cause cause = ml_causes_of(b->it->causes, b->it->device, b->out->failed);
    /* Also within the model's own forward. */
    if (ml_remainder_is_of_classes(b, b->out->recorded)) {
        b->loss = b->loss == ML_LOSS_UNKNOWN ? ML_LOSS_CLASSES : b->loss;
        return ml_remainder_finish_loss(b);
    }
    if (cause.module == 0) {
        return ml_remainder_finish_loss(b);
    }
    family of;
    if (!find_family(b, b->it->recording->strings[cause.module], &of)) {
        return finish_last(b, cause.module);
    }
    int error = finish_family(b, &of);
    return error == 0 ? finish_others(b, &of) : error;
}
