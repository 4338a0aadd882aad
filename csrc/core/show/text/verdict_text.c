/* The verdict on a run in words.  See verdict_text.h. */
#include "show/text/verdict_text.h"

#include <string.h>

#include "recording/code_names.h"
#include "show/text/json.h"
#include "show/text/make_fit_text.h"
#include "show/text/markup.h"

#define VARIABLE "PYTORCH_CUDA_ALLOC_CONF"

/* ---- Places ---- */

static void
put_string(ml_buffer *out, const ml_verdict_words *words, uint32_t string)
{
    ml_string text = words->recording->strings[string];
    ml_buffer_append(out, text.bytes, text.length);
}

/* The bytes of PATH up to the end of the last FOLDER in it; 0: it is not there. */
static size_t
behind(ml_string path, const char *folder)
{
    size_t length = strlen(folder);
    for (size_t end = path.length; end >= length; end--) {
        if (memcmp(path.bytes + end - length, folder, length) == 0) {
            return end;
        }
    }
    return 0;
}

/* Whether PATH is the file that ipykernel names a cell by: .../ipykernel_4711/815.py, which
 * no reader can open. */
static bool
is_cell(ml_string path)
{
    static const char folder[] = "/ipykernel_";
    size_t at = behind(path, folder);
    if (at == 0) {
        return false;
    }
    size_t slash = 0;
    for (; at < path.length && path.bytes[at] != '.'; at++) {
        if (path.bytes[at] == '/') {
            slash++;
        }
        else if (path.bytes[at] < '0' || path.bytes[at] > '9') {
            return false;
        }
    }
    return slash == 1 && path.length - at == 3 &&
           memcmp(path.bytes + at, ".py", 3) == 0;
}

/* A path from the folder of its installed package on, else from START on. */
static void
put_path(ml_buffer *out, const ml_verdict_words *words, uint32_t filename)
{
    ml_string path = words->recording->strings[filename];
    if (is_cell(path)) {
        ml_markup(out, "<cell>");
        return;
    }
    size_t skipped = behind(path, "site-packages/");
    if (skipped == 0) {
        skipped = behind(path, "dist-packages/");
    }
    size_t length = strlen(words->start);
    if (skipped == 0 && length != 0 && length < path.length &&
        memcmp(path.bytes, words->start, length) == 0) {
        bool ends = words->start[length - 1] == '/';
        skipped = ends || path.bytes[length] == '/' ? length + !ends : 0;
    }
    ml_buffer_append(out, path.bytes + skipped, path.length - skipped);
}

/* FILE:LINE of FRAME. */
static void
put_spot(ml_buffer *out, const ml_verdict_words *words, uint32_t frame)
{
    const ml_frame *of = &words->recording->frames[frame];
    put_path(out, words, of->filename);
    ml_markup(out, ":");
    ml_markup_unsigned(out, (uint64_t)of->line);
}

static bool
is_known(const ml_verdict_words *words, uint32_t frame)
{
    const ml_recording *recording = words->recording;
    return ml_frame_file(recording, frame).length != 0;
}

/* FILE:LINE FUNCTION of CAUSE, or the model's own line to which that leads. */
static void
put_place(ml_buffer *out, const ml_verdict_words *words, const ml_cause *cause)
{
    put_spot(out, words, cause->frame);
    if (!ml_cause_has_inner(words->recording, cause)) {
        ml_markup(out, " ");
        put_string(out, words, words->recording->frames[cause->frame].name);
        return;
    }
    ml_code_names names;
    if (ml_code_names_init(&names, words->recording) < 0) {
        out->error = ML_ENOMEM;
        return;
    }
    ml_markup(out, " -> ");
    put_spot(out, words, cause->model);
    ml_markup(out, " ");
    put_string(out, words, ml_code_name(&names, cause->model));
    ml_code_names_fini(&names);
}

static const char *
stage_words(unsigned stage)
{
    static const char *const words[ML_STAGE_COUNT] = {
        [ML_STAGE_LOADING] = " while loading",
        [ML_STAGE_FORWARD] = " in a forward pass",
        [ML_STAGE_BACKWARD] = " in a backward pass",
        [ML_STAGE_OPTIMIZER] = " in an optimizer step",
        [ML_STAGE_EVALUATION] = " in an evaluation",
        [ML_STAGE_GENERATION] = " in a generation",
    };
    return stage < ML_STAGE_COUNT && words[stage] != NULL ? words[stage] : "";
}

/* ---- Findings ---- */

/* "BEFORE 1.50 GiB OF 2.00 GiB AFTER" of FINDING. */
static void
put_part(ml_buffer *out, const char *before, const ml_finding *finding, const char *of,
         const char *after)
{
    ml_markup(out, before);
    ml_markup_size(out, finding->bytes);
    ml_markup(out, of);
    ml_markup_size(out, finding->of);
    ml_markup(out, after);
}

static void
put_failure(ml_buffer *out, const ml_verdict_words *words, const ml_finding *finding)
{
    ml_markup(out, "Out of memory");
    ml_markup(out, stage_words(finding->stage));
    if (words->recording->strings[finding->cause.module].length != 0) {
        ml_markup(out, " of ");
        put_string(out, words, finding->cause.module);
    }
    if (is_known(words, finding->cause.frame)) {
        ml_markup(out, " at ");
        put_place(out, words, &finding->cause);
    }
    put_part(out, ": ", finding, " were asked for, torch held ", ".");
}

static void
put_growing(ml_buffer *out, const ml_verdict_words *words, const ml_finding *finding)
{
    ml_markup_size(out, finding->bytes);
    ml_markup(out, " a step since step ");
    ml_markup_unsigned(out, finding->growing->since);
    ml_markup(out, ": ");
    if (is_known(words, finding->cause.frame)) {
        put_place(out, words, &finding->cause);
    }
    else {
        ml_markup(out, "a line that is not known");
    }
}

static void
put_growth(ml_buffer *out, const ml_verdict_words *words, const ml_finding *finding)
{
    static const char node[] = "autograd node ";
    const ml_growing *growing = finding->growing;
    ml_string holder = words->recording->strings[growing->holder];
    ml_markup(out, "Grows by ");
    put_growing(out, words, finding);
    if (holder.length != 0) {
        ml_markup(out, ", held by ");
        ml_buffer_append(out, holder.bytes, holder.length);
    }
    if (ml_growing_is_garbage(words->recording, growing)) {
        ml_markup(out, ". Break the cycle, or call gc.collect() in each step.");
        return;
    }
    bool graph = growing->graph || (holder.length >= sizeof(node) - 1 &&
                                    memcmp(holder.bytes, node, sizeof(node) - 1) == 0);
    ml_markup(out, graph ? ". It keeps an autograd graph: keep .item() or .detach()"
                         : ". Empty what holds it, or keep .item() or .detach().cpu()");
    ml_markup(out, " of it instead.");
}

void
ml_verdict_streams(ml_buffer *out, const ml_growing_streams *streams)
{
    ml_markup(out, "cuBLAS's workspaces grow by ");
    ml_markup_size(out, streams->per_step);
    ml_markup(out, " a step since step ");
    ml_markup_unsigned(out, streams->since);
    ml_markup(out, ": torch keeps them for each stream, ");
    ml_markup_unsigned(out, streams->streams);
    ml_markup(out, " so far. Make the streams once and reuse them, or call "
                   "torch._C._cuda_clearCublasWorkspaces() every few steps.");
}

static void
put_setting(ml_buffer *out, const char *conf)
{
    ml_markup(out, conf[0] != '\0' ? VARIABLE "=" : "unset " VARIABLE);
    ml_markup(out, conf);
}

static void
put_cache(ml_buffer *out, const ml_verdict_words *words, const ml_finding *finding)
{
    const ml_blamed_setting *blamed = &words->verdict->blamed;
    put_part(out, "Cached: at the peak of reserved memory, ", finding, " of ",
             " are not in use");
    if (blamed->setting[0] == '\0') {
        ml_markup(out, ".");
        return;
    }
    ml_markup(out, ": ");
    ml_markup(out, blamed->setting);
    ml_markup(out, " holds them. Write ");
    put_setting(out, blamed->instead);
    ml_markup(out, " instead: ");
    ml_markup_size(out, blamed->saving);
    ml_markup(out, " less are reserved, tried.");
}

static void
put_outside(ml_buffer *out, const ml_finding *finding)
{
    put_part(out, "Outside torch: ", finding, " of the GPU's ", "");
    if (finding->others == 0) {
        ml_markup(out, ".");
        return;
    }
    ml_markup(out, ", of which other processes use ");
    ml_markup_size(out, finding->others);
    ml_markup(out, ": nvidia-smi names them.");
}

void
ml_verdict_finding(ml_buffer *out, const ml_verdict_words *words, size_t index)
{
    const ml_finding *finding = &words->verdict->findings[index];
    switch ((enum ml_finding_kind)finding->kind) {
    case ML_FINDING_OUT_OF_MEMORY:
        put_failure(out, words, finding);
        break;
    case ML_FINDING_NO_ROOM_OUTSIDE:
        put_string(out, words, finding->said);
        break;
    case ML_FINDING_GROWS:
        put_growth(out, words, finding);
        break;
    case ML_FINDING_WORKSPACES_GROW:
        ml_verdict_streams(out, &words->verdict->growth->workspaces);
        break;
    case ML_FINDING_MAY_GROW:
        ml_markup(out, "May grow by ");
        put_growing(out, words, finding);
        ml_markup(out, "; ");
        ml_markup_unsigned(out, finding->growing->steps);
        ml_markup(out, " steps are too few to tell.");
        break;
    case ML_FINDING_TIGHT:
        put_part(out, "Tight: ", finding, " of the GPU's ", " are free at the peak.");
        break;
    case ML_FINDING_PEAK_IN_EVALUATION:
        ml_markup(out, "The peak is");
        ml_markup(out, stage_words(finding->stage));
        put_part(out, ", not in the training: ", finding, " above the training's ",
                 ".");
        break;
    case ML_FINDING_FRAGMENTED:
        put_part(out, "Fragmented: at the peak of reserved memory, ", finding, " of ",
                 " lie free between blocks in use.");
        break;
    case ML_FINDING_CACHE_HELD:
        put_cache(out, words, finding);
        break;
    case ML_FINDING_OUTSIDE:
        put_outside(out, finding);
        break;
    case ML_FINDING_FITS:
        put_part(out, "Fits: ", finding, " of the GPU's ", " are free at the peak.");
        break;
    case ML_FINDING_COUNT:
        break;
    }
}

/* ---- Changes ---- */

/* By kind: the action, and its code. */
static const char *const actions[ML_ADVICE_COUNT][2] = {
    [ML_ADVICE_GRADIENTS_KEPT] = {"Free the gradients before the forward pass",
                                  "optimizer.zero_grad()"},
    [ML_ADVICE_GRADIENTS_LATE] = {"Free the gradients before the forward pass",
                                  "optimizer.zero_grad()"},
    [ML_ADVICE_GRAPH_UNUSED] = {"Run the forward pass without a graph",
                                "with torch.no_grad():"},
    [ML_ADVICE_GRAPH_RETAINED] = {"Let the backward pass free its graph",
                                  "loss.backward(); del loss"},
    [ML_ADVICE_GRAPH_SHARED] = {"Retain no graph for a later backward pass",
                                "loss(shared.detach()), or (loss + later).backward()"},
    [ML_ADVICE_FROZEN_GRADIENTS] = {"Freeze what no optimizer trains",
                                    "module.requires_grad_(False)"},
    [ML_ADVICE_MODEL_COPIED] = {"Keep the copy of the parameters on the host",
                                "copy = copy.cpu()"},
    [ML_ADVICE_LOSSES_SUMMED] = {"Run a backward pass for each micro-batch",
                                 "(loss / N).backward() for each, not of their sum"},
    [ML_ADVICE_LOGITS_FLOAT32] = {"Compute the loss in the logits' 16 bits",
                                  "with torch.autocast('cuda', enabled=False):"},
    [ML_ADVICE_LOSS_WHOLE] = {"Compute the loss in chunks of the tokens",
                              "checkpoint(head_and_loss, chunk, use_reentrant=False)"},
    [ML_ADVICE_GROWN] = {"Allocate the tensor once, at its final size",
                         "out[a:b] = part"},
    [ML_ADVICE_OPTIMIZER_TEMPORARIES] = {"Use the fused optimizer", ""},
    [ML_ADVICE_DATA_KEPT] = {"Keep the data on the host",
                             "rows.to('cuda', non_blocking=True)"},
    [ML_ADVICE_RESULTS_KEPT] = {"Keep the evaluation's results on the host",
                                "results.append(result.cpu())"},
    [ML_ADVICE_EVALUATION_BATCH] = {"Evaluate in smaller batches",
                                    "DataLoader(..., batch_size=B // "},
    [ML_ADVICE_WORKSPACES] = {"Shrink cuBLAS's workspaces", "CUBLAS_WORKSPACE_CONFIG="},
    [ML_ADVICE_CHECKPOINT] = {"Recompute activations",
                              "x = torch.utils.checkpoint.checkpoint(layer, x, "
                              "use_reentrant=False)"},
    [ML_ADVICE_STEPS_KEPT] = {"Do not keep what each step leaves",
                              "x.item(), or x.detach().cpu()"},
    [ML_ADVICE_LATE_FREES] = {"Free it after its last use", "del NAME"},
    [ML_ADVICE_FRAGMENTATION] = {"Allocate long-lived blocks together",
                                 "before the loop"},
    [ML_ADVICE_SETTINGS] = {"Change the allocator's settings", ""},
};

/* BEFORE less or, if MORE, more bytes than AFTER, where that is worth telling. */
static void
put_difference(ml_buffer *out, size_t start, uint64_t before, uint64_t after, bool more,
               const char *of)
{
    uint64_t bytes = more ? after - before : before - after;
    bool is_so = more ? after > before : before > after;
    if (!is_so || before == 0 ||
        bytes < before / ML_ADVICE_LEAST_PART + (before % ML_ADVICE_LEAST_PART != 0)) {
        return;
    }
    ml_markup(out, out->length > start ? ", " : "");
    ml_markup(out, more ? "but " : "");
    ml_markup_size(out, bytes);
    ml_markup(out, more ? " more " : " ");
    ml_markup(out, of);
}

void
ml_verdict_saving(ml_buffer *out, const ml_advices *advices, uint64_t allocated,
                  uint64_t reserved)
{
    const ml_totals *before = &advices->before.peak;
    size_t start = out->length;
    for (int more = 0; more < 2; more++) {
        put_difference(out, start, before->allocated, allocated, more, "allocated");
        put_difference(out, start, before->reserved, reserved, more, "reserved");
    }
}

static const ml_advice *
change_of(const ml_verdict_words *words, size_t index)
{
    return &words->verdict->advices->list[words->verdict->changes[index]];
}

/* Of SAID, "x of train; batch of batches", that both are to be deleted. */
static void
put_deletion(ml_buffer *out, ml_string said)
{
    size_t name = ml_held_variable_name(said);
    const char *more = memchr(said.bytes, ';', said.length);
    ml_markup(out, "del ");
    ml_buffer_append(out, said.bytes, name);
    ml_markup(out, "  # after its last use");
    if (more != NULL) {
        ml_markup(out, ", and");
        ml_buffer_append(out, more + 1, said.length - (size_t)(more + 1 - said.bytes));
    }
}

/* Whether ADVICE is about what a variable holds, whose name it has. */
static bool
is_of_variable(const ml_advice *advice)
{
    return advice->kind == ML_ADVICE_LATE_FREES && advice->name != 0;
}

static const char *
action_of(const ml_advice *advice)
{
    if (advice->kind == ML_ADVICE_GRADIENTS_LATE && advice->library_switch != NULL) {
        return "Free the gradients after the update";
    }
    bool one_by_one = advice->kind == ML_ADVICE_OPTIMIZER_TEMPORARIES &&
                      strcmp(advice->conf, "foreach=False") == 0;
    return one_by_one ? "Update one parameter at a time" : actions[advice->kind][0];
}

void
ml_verdict_change(ml_buffer *out, const ml_verdict_words *words, size_t index)
{
    const ml_advice *advice = change_of(words, index);
    if (is_of_variable(advice)) {
        ml_markup(out, "Free ");
        ml_string said = words->recording->strings[advice->name];
        ml_buffer_append(out, said.bytes, ml_held_variable_name(said));
        ml_markup(out, " before it is set again");
    }
    else {
        ml_markup(out, action_of(advice));
    }
    const char *module = advice->module != NULL ? advice->module : "";
    /* "*": of several modules, which have no name in common. */
    if (module[0] != '\0' && strcmp(module, "*") != 0 && !is_of_variable(advice)) {
        ml_markup(out, " in ");
        ml_markup(out, module);
    }
    ml_markup(out, advice->most ? ": saves at most " : ": saves ");
    ml_verdict_saving(out, words->verdict->advices, advice->alone.peak.allocated,
                      advice->alone.peak.reserved);
    ml_markup(out, advice->exact || advice->most ? "" : " (estimated)");
}

static void
put_optimizer(ml_buffer *out, const ml_advice *advice)
{
    ml_string name = advice->optimizer;
    ml_string unknown = {"OPTIMIZER", 9};
    name = name.length != 0 ? name : unknown;
    ml_buffer_append(out, name.bytes, name.length);
    ml_markup(out, "(parameters, ");
    ml_markup(out, advice->conf);
    ml_markup(out, ")");
}

void
ml_verdict_code(ml_buffer *out, const ml_verdict_words *words, size_t index)
{
    const ml_advice *advice = change_of(words, index);
    if (is_known(words, advice->frame) && advice->library_switch == NULL) {
        put_spot(out, words, advice->model != 0 ? advice->model : advice->frame);
        ml_markup(out, ": ");
    }
    if (is_of_variable(advice)) {
        put_deletion(out, words->recording->strings[advice->name]);
        return;
    }
    if (advice->garbage) {
        ml_markup(out, "gc.collect()");
        return;
    }
    ml_markup(out, advice->library_switch != NULL ? advice->library_switch
                                                  : actions[advice->kind][1]);
    if (advice->kind == ML_ADVICE_SETTINGS) {
        put_setting(out, advice->conf);
    }
    else if (advice->kind == ML_ADVICE_WORKSPACES) {
        ml_markup(out, advice->conf);
    }
    else if (advice->kind == ML_ADVICE_OPTIMIZER_TEMPORARIES) {
        put_optimizer(out, advice);
    }
    else if (advice->kind == ML_ADVICE_EVALUATION_BATCH) {
        ml_markup_unsigned(out, advice->count);
        ml_markup(out, ")");
    }
}

/* ---- All lines ---- */

/* Writes LINE as the next string of a list, and takes it down. */
static void
put_line(ml_buffer *out, ml_buffer *line)
{
    ml_json_next(out);
    ml_json_string(out, line->bytes, line->length);
    out->error = out->error != 0 ? out->error : line->error;
    ml_buffer_fini(line);
}

/* What PUT writes of FIT, if that is anything. */
static void
put_fit_line(ml_buffer *out, void (*put)(ml_buffer *, const ml_make_fit *),
             const ml_make_fit *fit)
{
    ml_buffer line = {0};
    put(&line, fit);
    if (line.length != 0 || line.error != 0) {
        put_line(out, &line);
    }
}

void
ml_verdict_json(ml_buffer *out, const ml_verdict_words *words)
{
    ml_json_text(out, "[");
    for (size_t i = 0; i < words->verdict->finding_count; i++) {
        ml_buffer line = {0};
        ml_verdict_finding(&line, words, i);
        put_line(out, &line);
    }
    if (words->verdict->has_fit) {
        put_fit_line(out, ml_fit_put_batch, &words->verdict->fit);
        put_fit_line(out, ml_fit_put_chosen, &words->verdict->fit);
    }
    for (size_t i = 0; i < words->verdict->change_count; i++) {
        ml_buffer line = {0};
        ml_markup_unsigned(&line, i + 1);
        ml_markup(&line, ". ");
        ml_verdict_change(&line, words, i);
        ml_markup(&line, ". ");
        ml_verdict_code(&line, words, i);
        put_line(out, &line);
    }
    ml_json_text(out, "]");
}
