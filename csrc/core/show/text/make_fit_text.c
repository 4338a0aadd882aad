/* What makes a run fit in words.  See make_fit_text.h. */
#include "show/text/make_fit_text.h"

#include "show/text/markup.h"

/* "#" and "@" stand for the remedy's count and its modules. */
static const char *const remedies[][2] = {
    [ML_REMEDY_NOTHING_KEPT] = {"nothing kept from step to step", "no time"},
    [ML_REMEDY_SETTINGS] = {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                            "no time"},
    [ML_REMEDY_LOSS_CHUNKED] = {"the loss in # chunks of the tokens, or a fused linear "
                                "cross entropy",
                                "little time"},
    [ML_REMEDY_ATTENTION] = {"scaled_dot_product_attention", "no time: it is faster"},
    [ML_REMEDY_OPTIMIZER_8BIT] = {"an 8-bit optimizer (bitsandbytes, torchao)",
                                  "little time"},
    [ML_REMEDY_BFLOAT16] = {"torch.autocast('cuda', torch.bfloat16), if the model "
                            "computes in float32",
                            "no time: it is faster; check the loss"},
    [ML_REMEDY_CHECKPOINT] = {"torch.utils.checkpoint for the # modules @*",
                              "about a third more time"},
    [ML_REMEDY_SMALLER_BATCH] = {"half the batch, with gradients accumulated over #",
                                 "little time; batch normalization sees the smaller "
                                 "batch"},
    [ML_REMEDY_OPTIMIZER_SGD] = {"SGD without momentum, fused=True",
                                 "another training: tune it anew"},
    [ML_REMEDY_OPTIMIZER_OFFLOADED] = {"optimizer state in host memory (CPU offload)",
                                       "a copy of it in each step"},
    [ML_REMEDY_LORA] = {"LoRA: adapters of frozen parameters",
                        "another training, and faster"},
    [ML_REMEDY_FSDP] = {"FSDP on # GPUs", "communication in each pass"},
};

void
ml_fit_put_remedy(ml_buffer *out, const ml_remedy *remedy)
{
    if (remedy->library_switch != NULL) {
        ml_markup(out, remedy->library_switch);
        return;
    }
    for (const char *c = remedies[remedy->kind][0]; *c != '\0'; c++) {
        if (*c == '#') {
            ml_markup_unsigned(out, remedy->count);
        }
        else if (*c == '@') {
            ml_buffer_append(out, remedy->module.bytes, remedy->module.length);
        }
        else {
            ml_buffer_append(out, c, 1);
        }
    }
}

const char *
ml_remedy_cost(unsigned kind)
{
    return kind < ML_REMEDY_COUNT ? remedies[kind][1] : "";
}

/* BATCH of the recorded one, as "0.83". */
static void
put_factor(ml_buffer *out, const ml_make_fit *fit, uint32_t batch)
{
    uint32_t whole = ml_make_fit_whole(fit);
    uint64_t hundredths = ((uint64_t)batch * 100 + whole / 2) / whole;
    ml_markup_unsigned(out, hundredths / 100);
    ml_markup(out, hundredths % 100 < 10 ? ".0" : ".");
    ml_markup_unsigned(out, hundredths % 100);
}

/* Whether an argument of the program names the batch, not its DataLoader. */
static bool
has_argument(const ml_make_fit *fit)
{
    return fit->batch_name[0] != '\0';
}

/* "--batch 8", or as the DataLoader takes it; from BATCH to MOST, if these differ. */
static void
put_batches(ml_buffer *out, const ml_make_fit *fit, uint64_t batch, uint64_t most)
{
    ml_markup(out, has_argument(fit) ? fit->batch_name : "batch_size=");
    ml_markup(out, has_argument(fit) ? " " : "");
    ml_markup_unsigned(out, batch);
    if (most != batch) {
        ml_markup(out, " and ");
        ml_markup_unsigned(out, most);
    }
    ml_markup(out, has_argument(fit) ? "" : " of the DataLoader");
}

/* What makes a program without an argument for its batch one that `memlab fit` can vary. */
static void
put_variable(ml_buffer *out, const ml_make_fit *fit)
{
    ml_markup(out, "To measure it, write ");
    if (fit->batch_number != 0) {
        /* Without a blank, so that no line breaks within it. */
        ml_markup(out, "batch_size=int(os.getenv(\"BATCH\",\"");
        ml_markup_unsigned(out, fit->batch_number);
        ml_markup(out, "\")) for the DataLoader, and run: memlab fit");
    }
    else {
        ml_markup(out,
                  "int(os.environ[\"BATCH\"]) where the program has the size of its "
                  "batch, and run: memlab fit");
    }
}

/* The command that measures it, with the program of the recording where it tells that. */
static void
put_command(ml_buffer *out, const ml_make_fit *fit)
{
    if (has_argument(fit)) {
        ml_markup(out, "To measure it: memlab fit");
    }
    else {
        put_variable(out, fit);
    }
    if (fit->gpu_bytes != 0) {
        ml_markup(out, " --memory ");
        ml_markup_unsigned(out, fit->gpu_bytes >> 20);
        ml_markup(out, "MiB");
    }
    const char *name = has_argument(fit) ? fit->batch_name : "BATCH";
    while (*name == '-') {
        name++;
    }
    ml_markup(out, " --vary ");
    ml_markup(out, name);
    ml_markup(out, "=1..");
    ml_markup_unsigned(out, fit->batch_number != 0 ? fit->batch_number : 64);
    ml_markup(out, " ");
    if (fit->program.length != 0) {
        ml_buffer_append(out, fit->program.bytes, fit->program.length);
        return;
    }
    ml_markup(out, "train.py");
    if (has_argument(fit)) {
        ml_markup(out, " ");
        put_batches(out, fit, fit->batch_number, fit->batch_number);
    }
}

static void
put_reasons(ml_buffer *out, uint32_t untold)
{
    const char *between = "";
    for (unsigned i = 0; i < ML_UNTOLD_COUNT; i++) {
        if ((untold >> i & 1) != 0) {
            ml_markup(out, between);
            ml_markup(out, ml_untold_text(i));
            between = "; ";
        }
    }
}

void
ml_fit_put_batch(ml_buffer *out, const ml_make_fit *fit)
{
    if (!fit->failed) {
        return;
    }
    if (fit->untold == 1u << ML_UNTOLD_GROWTH) {
        ml_markup(out,
                  "A smaller batch only puts it off: memory grows from step to step.");
    }
    else if (fit->untold != 0) {
        ml_markup(out, "Which batch fits cannot be told: ");
        put_reasons(out, fit->untold);
        ml_markup(out, ". ");
        put_command(out, fit);
    }
    else if (fit->batch_most == 0 && fit->batch_number != 0) {
        ml_markup(out, "No batch fits, not even ");
        put_batches(out, fit, 1, 1);
        ml_markup(out, ", estimated.");
    }
    else if (fit->batch_most == 0) {
        ml_markup(out, "No batch fits: what does not grow with the batch is too much.");
    }
    else if (!fit->batch_named) {
        ml_markup(out, "Which batch fits cannot be told exactly, as much was still to "
                       "come: between ");
        if (fit->batch_number != 0) {
            put_batches(out, fit, fit->batch_safe, fit->batch_most);
            ml_markup(out, ", ");
        }
        put_factor(out, fit, fit->batch_safe);
        ml_markup(out, " and ");
        put_factor(out, fit, fit->batch_most);
        ml_markup(out, " times this one. ");
        put_command(out, fit);
    }
    else {
        ml_markup(out, "The batch that fits: ");
        if (fit->batch_number != 0) {
            put_batches(out, fit, ml_make_fit_number(fit), ml_make_fit_number(fit));
            ml_markup(out, " (");
        }
        put_factor(out, fit, fit->batch_safe);
        ml_markup(out, " times this one");
        ml_markup(out, fit->batch_number != 0 ? "), estimated" : ", estimated");
        ml_markup(out, fit->sizes_differ ? ", for a step as large as the last one: "
                                           "sizes differ from step to step."
                                         : ".");
    }
}

void
ml_fit_put_chosen(ml_buffer *out, const ml_make_fit *fit)
{
    bool any = false;
    for (size_t i = 0; i < fit->remedies.count; i++) {
        const ml_remedy *remedy = &fit->remedies.list[i];
        if (remedy->chosen) {
            ml_markup(out, any ? "; " : "Fits, estimated, with: ");
            ml_fit_put_remedy(out, remedy);
            any = true;
        }
    }
    if (any) {
        ml_markup(out, " (");
        ml_markup_size(out, fit->remedies.together);
        ml_markup(out, " of ");
        ml_markup_size(out, fit->memory_bytes);
        ml_markup(out, ").");
    }
}
