/* The words of verdicts put together by hand. */
#include "show/text/verdict_text.h"

#include <stdio.h>
#include <string.h>

#include "recording_samples.h"
#include "show/text/make_fit_text.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static ml_run_verdict verdict;
static ml_verdict_words words;

static void
begin(void)
{
    sample_begin(&s);
    memset(&verdict, 0, sizeof(verdict));
    words = (ml_verdict_words){s.recording, &verdict, "/home/a"};
}

/* The line of a call, as a cause. */
static ml_cause
line_of(const char *file, const char *function)
{
    uint32_t stack = sample_call(s.recording, 0, file, 8, function, "layers.3");
    uint32_t frame = s.recording->stacks[stack].frame;
    return (ml_cause){.stack = stack,
                      .frame = frame,
                      .model = frame,
                      .module = s.recording->stacks[stack].module,
                      .how = ML_HOW_FRAMES};
}

static ml_finding *
found(enum ml_finding_kind kind)
{
    verdict.finding_count = 1;
    verdict.findings[0] = (ml_finding){.kind = (uint8_t)kind,
                                       .stage = ML_STAGE_EVALUATION,
                                       .bytes = 3 * MIB / 2,
                                       .of = 2048 * MIB};
    return &verdict.findings[0];
}

typedef void putter(ml_buffer *out, const ml_verdict_words *words, size_t index);

#define CHECK_WORDS(put, want) check_words(put, want, __LINE__)

static void
check_words(putter *put, const char *want, int line)
{
    ml_buffer out = {0};
    put(&out, &words, 0);
    CHECK_INT(out.error, 0);
    if (out.length != strlen(want) || memcmp(out.bytes, want, out.length) != 0) {
        CHECK_FAIL("line %d: %.*s, wanted %s", line, (int)out.length, out.bytes, want);
    }
    ml_buffer_fini(&out);
}

static void
test_findings_without_a_line(void)
{
    begin();
    found(ML_FINDING_FITS);
    CHECK_WORDS(ml_verdict_finding,
                "Fits: 1.50 MiB of the GPU's 2.00 GiB are free at the peak.");
    found(ML_FINDING_TIGHT);
    CHECK_WORDS(ml_verdict_finding,
                "Tight: 1.50 MiB of the GPU's 2.00 GiB are free at the peak.");
    found(ML_FINDING_OUTSIDE);
    CHECK_WORDS(ml_verdict_finding, "Outside torch: 1.50 MiB of the GPU's 2.00 GiB.");
    verdict.findings[0].others = UINT64_C(3) << 18;
    CHECK_WORDS(
        ml_verdict_finding,
        "Outside torch: 1.50 MiB of the GPU's 2.00 GiB, of which other processes "
        "use 768 KiB: nvidia-smi names them.");
    found(ML_FINDING_FRAGMENTED);
    CHECK_WORDS(ml_verdict_finding,
                "Fragmented: at the peak of reserved memory, 1.50 MiB of 2.00 GiB "
                "lie free between blocks in use.");
    found(ML_FINDING_PEAK_IN_EVALUATION);
    CHECK_WORDS(ml_verdict_finding,
                "The peak is in an evaluation, not in the training: "
                "1.50 MiB above the training's 2.00 GiB.");
    found(ML_FINDING_NO_ROOM_OUTSIDE)->said = sample_string(s.recording, "No room.");
    CHECK_WORDS(ml_verdict_finding, "No room.");
    found(ML_FINDING_OUT_OF_MEMORY)->stage = ML_STAGE_OTHER;
    CHECK_WORDS(ml_verdict_finding,
                "Out of memory: 1.50 MiB were asked for, torch held 2.00 GiB.");
    sample_end(&s);
}

static void
test_the_cache_names_its_setting(void)
{
    begin();
    found(ML_FINDING_CACHE_HELD);
    CHECK_WORDS(
        ml_verdict_finding,
        "Cached: at the peak of reserved memory, 1.50 MiB of 2.00 GiB are not in use.");
    strcpy(verdict.blamed.setting, "max_split_size_mb:64");
    verdict.blamed.saving = MIB;
    CHECK_WORDS(
        ml_verdict_finding,
        "Cached: at the peak of reserved memory, 1.50 MiB of 2.00 GiB are not in use: "
        "max_split_size_mb:64 holds them. Write unset PYTORCH_CUDA_ALLOC_CONF "
        "instead: 1.00 MiB less are reserved, tried.");
    strcpy(verdict.blamed.instead, "a:1");
    CHECK_WORDS(
        ml_verdict_finding,
        "Cached: at the peak of reserved memory, 1.50 MiB of 2.00 GiB are not in use: "
        "max_split_size_mb:64 holds them. Write PYTORCH_CUDA_ALLOC_CONF=a:1 "
        "instead: 1.00 MiB less are reserved, tried.");
    sample_end(&s);
}

/* Paths start in the folder, or at the package. */
static void
test_a_failure_has_its_place(void)
{
    begin();
    found(ML_FINDING_OUT_OF_MEMORY)->cause = line_of("/home/a/train.py", "main");
    CHECK_WORDS(
        ml_verdict_finding,
        "Out of memory in an evaluation of layers.3 at train.py:8 main: 1.50 MiB "
        "were asked for, torch held 2.00 GiB.");
    words.start = "";
    verdict.findings[0].cause.model =
        line_of("/opt/site-packages/of/model.py", "forward").frame;
    CHECK_WORDS(ml_verdict_finding,
                "Out of memory in an evaluation of layers.3 at /home/a/train.py:8 -> "
                "of/model.py:8 forward: 1.50 MiB were asked for, torch held 2.00 GiB.");
    words.start = "/home/a/tr";
    verdict.findings[0].cause = line_of("/home/a/train.py", "main");
    CHECK_WORDS(
        ml_verdict_finding,
        "Out of memory in an evaluation of layers.3 at /home/a/train.py:8 main: "
        "1.50 MiB were asked for, torch held 2.00 GiB.");
    sample_end(&s);
}

/* The file of a cell is ipykernel's own; what only looks like one is shown as it is. */
static void
test_a_cell_has_no_path(void)
{
    static const struct {
        const char *path, *shown;
    } each[] = {
        {"/tmp/ipykernel_4711/815.py", "<cell>"},
        {"/tmp/ipykernel_4711/train.py", "/tmp/ipykernel_4711/train.py"},
        {"/tmp/ipykernel_4711/1/2.py", "/tmp/ipykernel_4711/1/2.py"},
        {"/tmp/ipykernel_4711/815.pyc", "/tmp/ipykernel_4711/815.pyc"},
        {"/tmp/ipykernel_4711", "/tmp/ipykernel_4711"},
        {"/tmp/ipykernel_", "/tmp/ipykernel_"},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        begin();
        found(ML_FINDING_OUT_OF_MEMORY)->cause = line_of(each[i].path, "main");
        char expected[160];
        snprintf(
            expected, sizeof expected,
            "Out of memory in an evaluation of layers.3 at %s:8 main: 1.50 MiB were "
            "asked for, torch held 2.00 GiB.",
            each[i].shown);
        CHECK_WORDS(ml_verdict_finding, expected);
        sample_end(&s);
    }
}

static void
test_growth_has_its_holder_and_remedy(void)
{
    begin();
    ml_growing growing = {.since = 2, .steps = 4};
    found(ML_FINDING_MAY_GROW)->growing = &growing;
    CHECK_WORDS(ml_verdict_finding,
                "May grow by 1.50 MiB a step since step 2: a line that is not known; 4 "
                "steps are too few to tell.");
    ml_finding *grows = found(ML_FINDING_GROWS);
    grows->growing = &growing;
    grows->cause = line_of("/home/a/train.py", "main");
    CHECK_WORDS(
        ml_verdict_finding,
        "Grows by 1.50 MiB a step since step 2: train.py:8 main. Empty what holds "
        "it, or keep .item() or .detach().cpu() of it instead.");
    growing.holder = sample_string(s.recording, "autograd node AddBackward0");
    CHECK_WORDS(
        ml_verdict_finding,
        "Grows by 1.50 MiB a step since step 2: train.py:8 main, held by autograd "
        "node AddBackward0. It keeps an autograd graph: keep .item() or .detach() "
        "of it instead.");
    growing.holder = sample_string(s.recording, "a reference cycle");
    CHECK_WORDS(ml_verdict_finding,
                "Grows by 1.50 MiB a step since step 2: train.py:8 main, held by a "
                "reference cycle. Break the cycle, or call gc.collect() in each step.");
    sample_end(&s);
}

static void
test_growing_workspaces_have_their_remedy(void)
{
    begin();
    ml_growth growth = {
        .workspaces = {.streams = 6, .since = 2, .per_step = 3 * MIB / 2}};
    verdict.growth = &growth;
    found(ML_FINDING_WORKSPACES_GROW);
    CHECK_WORDS(ml_verdict_finding,
                "cuBLAS's workspaces grow by 1.50 MiB a step since step 2: torch keeps "
                "them for each stream, 6 so far. Make the streams once and reuse them, "
                "or call torch._C._cuda_clearCublasWorkspaces() every few steps.");
    sample_end(&s);
}

/* One advice on peaks of 200 and 400 MiB. */
static void
test_changes(void)
{
    begin();
    char module[] = "layers.*";
    ml_advice advice = {.kind = ML_ADVICE_CHECKPOINT,
                        .module = module,
                        .frame = line_of("/home/a/train.py", "main").frame,
                        .alone.peak.allocated = 150 * MIB,
                        .alone.peak.reserved = 404 * MIB};
    ml_advices advices = {.list = &advice, .count = 1};
    advices.before.peak.allocated = 200 * MIB;
    advices.before.peak.reserved = 400 * MIB;
    verdict.advices = &advices;
    verdict.change_count = 1;
    CHECK_WORDS(ml_verdict_change,
                "Recompute activations in layers.*: saves 50.0 MiB allocated, but 4.00 "
                "MiB more reserved (estimated)");
    CHECK_WORDS(ml_verdict_code,
                "train.py:8: x = torch.utils.checkpoint.checkpoint(layer, x, "
                "use_reentrant=False)");

    /* The model's own line is where it is to be written. */
    advice.model = line_of("/opt/site-packages/of/loss.py", "forward").frame;
    CHECK_WORDS(ml_verdict_code,
                "of/loss.py:8: x = torch.utils.checkpoint.checkpoint(layer, x, "
                "use_reentrant=False)");

    advice = (ml_advice){.kind = ML_ADVICE_SETTINGS,
                         .exact = true,
                         .conf = "a:1",
                         .alone.peak.allocated = 200 * MIB - 1,
                         .alone.peak.reserved = 396 * MIB};
    CHECK_WORDS(ml_verdict_change,
                "Change the allocator's settings: saves 4.00 MiB reserved");
    CHECK_WORDS(ml_verdict_code, "PYTORCH_CUDA_ALLOC_CONF=a:1");
    advice.kind = ML_ADVICE_OPTIMIZER_TEMPORARIES;
    strcpy(advice.conf, "fused=True");
    CHECK_WORDS(ml_verdict_code, "OPTIMIZER(parameters, fused=True)");
    advice.optimizer = (ml_string){"AdamW", 5};
    CHECK_WORDS(ml_verdict_code, "AdamW(parameters, fused=True)");
    strcpy(advice.conf, "a:1");
    advice.kind = ML_ADVICE_EVALUATION_BATCH;
    advice.count = 4;
    CHECK_WORDS(ml_verdict_code, "DataLoader(..., batch_size=B // 4)");
    advice.kind = ML_ADVICE_WORKSPACES;
    CHECK_WORDS(ml_verdict_code, "CUBLAS_WORKSPACE_CONFIG=a:1");
    sample_end(&s);
}

/* What a cycle alone holds is collected; nobody keeps it. */
static void
test_garbage_is_collected(void)
{
    begin();
    ml_cause at = line_of("/home/a/train.py", "main");
    ml_advice advice = {.kind = ML_ADVICE_STEPS_KEPT, .frame = at.frame};
    ml_advices advices = {.list = &advice, .count = 1};
    verdict.advices = &advices;
    verdict.change_count = 1;
    CHECK_WORDS(ml_verdict_code, "train.py:8: x.item(), or x.detach().cpu()");
    advice.garbage = true;
    CHECK_WORDS(ml_verdict_code, "train.py:8: gc.collect()");
    sample_end(&s);
}

/* Every kind has words. */
static void
test_no_kind_is_without_words(void)
{
    begin();
    ml_advice advice = {.exact = true};
    ml_advices advices = {.list = &advice, .count = 1};
    verdict.advices = &advices;
    verdict.change_count = 1;
    for (uint8_t kind = 0; kind < ML_ADVICE_COUNT; kind++) {
        advice.kind = kind;
        ml_buffer out = {0};
        ml_verdict_change(&out, &words, 0);
        CHECK(out.length > strlen(": saves "));
        size_t before = out.length;
        ml_verdict_code(&out, &words, 0);
        CHECK(out.length > before);
        ml_buffer_fini(&out);
    }
    sample_end(&s);
}

static void
all_lines(ml_buffer *out, const ml_verdict_words *of, size_t index)
{
    (void)index;
    ml_verdict_json(out, of);
}

static void
test_all_lines_as_json(void)
{
    begin();
    CHECK_WORDS(all_lines, "[]");
    ml_advice advice = {.kind = ML_ADVICE_LATE_FREES,
                        .exact = true,
                        .frame = line_of("/home/a/\"t.py", "main").frame};
    ml_advices advices = {.list = &advice, .count = 1};
    advices.before.peak.allocated = 200 * MIB;
    verdict.advices = &advices;
    verdict.change_count = 1;
    found(ML_FINDING_OUTSIDE);
    CHECK_WORDS(
        all_lines,
        "[\"Outside torch: 1.50 MiB of the GPU's 2.00 GiB.\",\"1. Free it after "
        "its last use: saves 200 MiB allocated. \\u0022t.py:8: del NAME\"]");
    sample_end(&s);
}

/* ---- What makes it fit ---- */

static void
check_batch(const ml_make_fit *fit, const char *want)
{
    ml_buffer out = {0};
    ml_fit_put_batch(&out, fit);
    CHECK_INT(out.error, 0);
    CHECK_UINT(out.length, strlen(want));
    if (out.length != 0) {
        CHECK_TEXT(out.bytes, out.length, want);
    }
    ml_buffer_fini(&out);
}

static void
test_the_batch_that_fits(void)
{
    ml_make_fit fit = {.batch_safe = 900, .batch_most = 900};
    check_batch(&fit, "");
    fit.failed = fit.batch_named = true;
    /* 900 of 1,024. */
    check_batch(&fit, "The batch that fits: 0.88 times this one, estimated.");
    fit = (ml_make_fit){.failed = true,
                        .batch_named = true,
                        .batch_safe = 33,
                        .batch_most = 34,
                        .batch_number = 40,
                        .batch_name = "--batch-size"};
    check_batch(&fit, "The batch that fits: --batch-size 33 (0.83 times this one), "
                      "estimated.");
    fit.sizes_differ = true;
    check_batch(&fit, "The batch that fits: --batch-size 33 (0.83 times this one), "
                      "estimated, for a step as large as the last one: sizes differ "
                      "from step to step.");
    fit.sizes_differ = false;
    fit.batch_name[0] = '\0';
    check_batch(&fit,
                "The batch that fits: batch_size=33 of the DataLoader (0.83 times "
                "this one), estimated.");
    memcpy(fit.batch_name, "--batch-size", sizeof("--batch-size"));
    fit.batch_named = false;
    fit.gpu_bytes = UINT64_C(24) << 30;
    check_batch(
        &fit,
        "Which batch fits cannot be told exactly, as much was still to come: between "
        "--batch-size 33 and 34, 0.83 and 0.85 times this one. To measure it: memlab "
        "fit --memory 24576MiB "
        "--vary batch-size=1..40 train.py --batch-size 40");
    fit.batch_number = 0;
    fit.batch_name[0] = '\0';
    fit.batch_safe = 341; /* of 1,024 */
    fit.batch_most = 450;
    check_batch(
        &fit, "Which batch fits cannot be told exactly, as much was still to come: "
              "between 0.33 and 0.44 times this one. To measure it, write "
              "int(os.environ[\"BATCH\"]) where the program has the size of its batch, "
              "and run: memlab fit --memory 24576MiB --vary BATCH=1..64 train.py");
    fit.batch_number = 40;
    fit.batch_safe = 33;
    fit.batch_most = 39;
    fit.program = (ml_string){"t.py --epochs 2", 15};
    check_batch(
        &fit,
        "Which batch fits cannot be told exactly, as much was still to come: "
        "between batch_size=33 and 39 of the DataLoader, 0.83 and 0.98 times this "
        "one. To measure it, write batch_size=int(os.getenv(\"BATCH\",\"40\")) "
        "for the DataLoader, and run: memlab fit --memory 24576MiB --vary "
        "BATCH=1..40 t.py --epochs 2");
    memcpy(fit.batch_name, "--batch-size", sizeof("--batch-size"));
    fit.untold = 1u << ML_UNTOLD_GROWTH | 1u << ML_UNTOLD_WORKSPACES;
    fit.program = (ml_string){"t.py --batch-size 40", 20};
    check_batch(
        &fit,
        "Which batch fits cannot be told: memory grows from step to step; what "
        "convolutions take for their backward pass is not known. To measure it: "
        "memlab fit --memory 24576MiB --vary batch-size=1..40 t.py --batch-size 40");
    fit.untold = 0;
    fit.batch_safe = fit.batch_most = 0;
    check_batch(&fit, "No batch fits, not even --batch-size 1, estimated.");
}

static void
test_the_remedies_that_fit(void)
{
    ml_make_fit fit = {.memory_bytes = UINT64_C(24) << 30,
                       .remedies = {.count = 3, .together = UINT64_C(20) << 30}};
    fit.remedies.list[0] =
        (ml_remedy){.kind = ML_REMEDY_CHECKPOINT, .chosen = true, .count = 12};
    fit.remedies.list[0].module = (ml_string){"layers.", 7};
    fit.remedies.list[1] = (ml_remedy){.kind = ML_REMEDY_LORA};
    fit.remedies.list[2] =
        (ml_remedy){.kind = ML_REMEDY_FSDP, .chosen = true, .count = 4};
    ml_buffer out = {0};
    ml_fit_put_chosen(&out, &fit);
    CHECK_INT(out.error, 0);
    CHECK_TEXT(
        out.bytes, out.length,
        "Fits, estimated, with: torch.utils.checkpoint for the 12 modules layers.*; "
        "FSDP on 4 GPUs (20.0 GiB of 24.0 GiB).");
    ml_buffer_fini(&out);
    fit.remedies.list[0].library_switch = "model.set_grad_checkpointing()";
    ml_fit_put_remedy(&out, &fit.remedies.list[0]);
    CHECK_TEXT(out.bytes, out.length, "model.set_grad_checkpointing()");
    ml_buffer_fini(&out);
    for (unsigned kind = 0; kind < ML_REMEDY_COUNT; kind++) {
        CHECK(ml_remedy_cost(kind)[0] != '\0');
    }
    CHECK_STR(ml_remedy_cost(ML_REMEDY_COUNT), "");
}

int
main(void)
{
    RUN(test_findings_without_a_line);
    RUN(test_the_cache_names_its_setting);
    RUN(test_a_failure_has_its_place);
    RUN(test_a_cell_has_no_path);
    RUN(test_growth_has_its_holder_and_remedy);
    RUN(test_growing_workspaces_have_their_remedy);
    RUN(test_changes);
    RUN(test_garbage_is_collected);
    RUN(test_no_kind_is_without_words);
    RUN(test_all_lines_as_json);
    RUN(test_the_batch_that_fits);
    RUN(test_the_remedies_that_fit);
    return TEST_RESULT();
}
