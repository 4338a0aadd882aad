/* Which lines grow by step: runs of a few steps, made by hand. */
#include "growth_samples.h"

static void
test_leak(void)
{
    run r;
    begin(&r);
    keep_always(&r, 8);
    answer(&r);
    CHECK_STR(ml_growth_by_text(r.growth->by), "steps");
    CHECK_UINT(r.growth->steps, 8);
    CHECK_UINT(r.growth->last, 7);
    CHECK_UINT(r.growth->count, 1);
    const ml_growing *line = &r.growth->lines[0];
    CHECK_INT(line_of(&r, 0), 7);
    CHECK(line->certain && !line->graph);
    CHECK_UINT(line->since, 0);
    CHECK_UINT(line->steps, 8);
    CHECK_UINT(line->per_step, 2 * MIB);
    CHECK_UINT(line->bytes, 16 * MIB);
    CHECK_UINT(line->blocks, 8);
    CHECK_UINT(line->lines, 1);
    CHECK_UINT(line->holder, 0);
    /* All but that of the last step, the newest first. */
    CHECK_UINT(line->row_count, 7);
    end(&r);
}

static void
test_backward_passes(void)
{
    run r;
    begin(&r);
    add_steps(&r.f, 6, true, false);
    answer(&r);
    CHECK_STR(ml_growth_by_text(r.growth->by), "backward_passes");
    CHECK_UINT(r.growth->steps, 6);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].steps, 6);
    CHECK_UINT(r.growth->lines[0].per_step, 2 * MIB);
    end(&r);
}

/* Torch's own snapshots do not say what a pass made, but a gradient begins it. */
static void
test_seeds(void)
{
    run r;
    begin(&r);
    r.f.made.recording->foreign = 1;
    uint32_t seed = add_frame(&r.f, user_line(&r.f, 9), "torch/autograd/__init__.py", 1,
                              "_make_grads", NULL);
    for (int i = 0; i < 6; i++) {
        take(&r, 2 * MIB, r.line);
        uint64_t gradient = take(&r, 512, seed);
        add_free(&r.f, gradient, 512);
    }
    answer(&r);
    CHECK_STR(ml_growth_by_text(r.growth->by), "backward_passes");
    CHECK_UINT(r.growth->steps, 6);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].steps, 6);
    end(&r);
}

/* In torch's own snapshots gradients have no owner: of 2 MiB there are as many parameters as
 * blocks before the first pass, that many gradients do not grow, and more do. */
static void
test_gradients_without_owners(void)
{
    for (int parameters = 0; parameters <= 8; parameters += 4) {
        run r;
        begin(&r);
        r.f.made.recording->foreign = 1;
        uint32_t loop = user_line(&r.f, 9);
        uint32_t seed =
            add_frame(&r.f, loop, "torch/autograd/__init__.py", 1, "_make_grads", NULL);
        for (int i = 0; i < parameters; i++) {
            take(&r, 2 * MIB, r.line);
        }
        /* A block as large that does not stay is none. */
        uint64_t loaded = take(&r, 2 * MIB, r.line);
        for (int i = 0; i < 10; i++) {
            uint64_t saved = take(&r, MIB, r.line);
            uint64_t gradient = take(&r, 512, seed);
            take(&r, 2 * MIB, 0);
            add_free(&r.f, gradient, 512);
            add_free(&r.f, saved, MIB);
        }
        add_free(&r.f, loaded, 2 * MIB);
        answer(&r);
        CHECK_UINT(r.growth->steps, 10);
        CHECK_UINT(r.growth->count, parameters < 8);
        if (parameters < 8) {
            /* The last one comes after the last step. */
            CHECK_UINT(r.growth->lines[0].blocks, (uint64_t)(9 - parameters));
        }
        end(&r);
    }
}

/* Two stacks of the module come once a call; the step that begins last has no end. */
static void
test_calls(void)
{
    run r;
    begin(&r);
    uint32_t net = add_frame(&r.f, r.line, "net.py", 3, "forward", "net");
    uint32_t inner = add_frame(&r.f, net, "net.py", 8, "forward", "net.inner");
    uint32_t once = add_frame(&r.f, net, "net.py", 4, "forward", "net");
    take(&r, MIB, once);
    for (int i = 0; i < 7; i++) {
        take(&r, 2 * MIB, inner);
        uint64_t out = take(&r, MIB, net);
        add_free(&r.f, out, MIB);
    }
    answer(&r);
    CHECK_STR(ml_growth_by_text(r.growth->by), "module_calls");
    CHECK_UINT(r.growth->steps, 6);
    CHECK_UINT(r.growth->count, 1);
    CHECK_INT(line_of(&r, 0), 8);
    CHECK_UINT(r.growth->lines[0].steps, 6);
    end(&r);
}

static void
test_too_few_steps(void)
{
    for (int steps = 2; steps <= 5; steps++) {
        run r;
        begin(&r);
        keep_always(&r, steps);
        answer(&r);
        CHECK_UINT(r.growth->count, steps > 2);
        if (steps > 2) {
            CHECK_INT(r.growth->lines[0].certain, steps == 5);
        }
        end(&r);
    }
}

static void
test_nothing_grows(void)
{
    run r;
    begin(&r);
    add_alloc(&r.f, r.next, MIB, r.line);
    answer(&r);
    CHECK_STR(ml_growth_by_text(r.growth->by), "");
    CHECK_UINT(r.growth->count, 0);
    end(&r);
}

/* What is kept of the last six steps. */
static void
test_ring(void)
{
    run r;
    begin(&r);
    for (int i = 0; i < 16; i++) {
        keep(&r);
        if (i >= 6) {
            drop(&r, r.steps - 6);
        }
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);
}

/* The first six of nine steps keep something. */
static void
test_settles(void)
{
    run r;
    begin(&r);
    keep_always(&r, 6);
    for (int i = 0; i < 3; i++) {
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);
}

/* Steps of a cache that is asked for keys by chance: 0 to 4, 6, 9, 14, 23 of 24. */
static void
test_cache_by_chance(void)
{
    static const int made[] = {0, 1, 2, 3, 4, 6, 9, 14, 23};
    run r;
    begin(&r);
    size_t next = 0;
    for (int i = 0; i < 24; i++) {
        if (next < sizeof(made) / sizeof(made[0]) && made[next] == i) {
            keep(&r);
            next++;
        }
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);
}

/* A list that is emptied after ten steps has six of its second ten; with as many steps more
 * than it ever had it is one that grows. */
static void
test_epochs(void)
{
    run r;
    begin(&r);
    keep_always(&r, 10);
    for (uint64_t i = 0; i < 10; i++) {
        drop(&r, i);
    }
    keep_always(&r, 6);
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);

    begin(&r);
    keep_always(&r, 3);
    for (uint64_t i = 0; i < 3; i++) {
        drop(&r, i);
    }
    keep_always(&r, 9);
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].since, 3);
    end(&r);
}

static void
test_every_second(void)
{
    run r;
    begin(&r);
    for (int i = 0; i < 14; i++) {
        if (i % 2 == 0) {
            keep(&r);
        }
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].steps, 7);
    CHECK_UINT(r.growth->lines[0].per_step, MIB);
    CHECK(r.growth->lines[0].certain);
    end(&r);
}

/* Steps by the program's own numbers, from 100 on; the leak begins with the sixth. */
static void
test_numbers(void)
{
    run r;
    begin(&r);
    for (uint64_t i = 0; i < 12; i++) {
        if (i >= 5) {
            keep(&r);
        }
        end_numbered(&r, 100 + i);
    }
    answer(&r);
    CHECK_UINT(r.growth->last, 111);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].since, 105);
    CHECK_UINT(r.growth->lines[0].per_step, 2 * MIB);
    end(&r);
}

/* The peak is 14 MiB and a little: a hundred-thousandth is 146 bytes. */
static void
test_what_matters(void)
{
    for (int i = 0; i < 2; i++) {
        run r;
        begin(&r);
        r.size = i == 0 ? 512 : 1024;
        if (i == 0) {
            add_alloc(&r.f, BASE + 100 * MIB, 64 * MIB, r.other);
        }
        keep_always(&r, 6);
        answer(&r);
        CHECK_UINT(r.growth->count, (size_t)i);
        end(&r);
    }
}

/* Line 7 grows more than line 5, and is first. */
static void
test_two_lines(void)
{
    run r;
    begin(&r);
    for (int i = 0; i < 6; i++) {
        take(&r, MIB, r.other);
        keep(&r);
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 2);
    CHECK_INT(line_of(&r, 0), 7);
    CHECK_INT(line_of(&r, 1), 5);
    end(&r);
}

/* A step of an inference: 2 MiB are kept, and of 32 MiB as many as TENSORS. */
static void
keep_large(run *r, int tensors)
{
    for (int i = 0; i < tensors; i++) {
        take(r, 32 * MIB, r->line);
    }
    keep(r);
    end_step(r);
}

/* Without backward passes a workspace of 32 MiB is told by its size, where the line makes no
 * other block of it, or one more in that step than in others. */
static void
test_workspace_of_an_inference(void)
{
    for (int tensors = 0; tensors < 2; tensors++) {
        run r;
        begin(&r);
        keep_large(&r, tensors + 1);
        for (int i = 0; i < 5; i++) {
            keep_large(&r, tensors);
        }
        answer(&r);
        CHECK_UINT(r.growth->count, 1);
        CHECK_UINT(r.growth->lines[0].blocks, tensors == 0 ? 6 : 12);
        end(&r);
    }
}

/* COUNT steps, which keep a block of a workspace's size, each for another stream, or all for
 * one; then steps that keep nothing. */
static void
run_streams(run *r, unsigned count, bool apart, unsigned rest)
{
    begin(r);
    for (unsigned i = 0; i < count + rest; i++) {
        if (i < count) {
            take(r, 8519680, r->line);
            r->f.made.events[r->f.made.device.event_count - 1].stream = apart ? i : 0;
        }
        end_step(r);
    }
    answer(r);
}

/* torch keeps one for each stream: they are no memory of the line, but told where they grow. */
static void
test_workspaces_of_streams(void)
{
    run r;
    run_streams(&r, 6, true, 0);
    CHECK_UINT(r.growth->count, 0);
    CHECK_UINT(r.growth->workspaces.streams, 6);
    CHECK_UINT(r.growth->workspaces.since, 0);
    CHECK_UINT(r.growth->workspaces.steps, 6);
    CHECK_UINT(r.growth->workspaces.blocks, 6);
    CHECK_UINT(r.growth->workspaces.bytes, UINT64_C(6) * 8519680);
    CHECK_UINT(r.growth->workspaces.per_step, 8519680);
    end(&r);

    run_streams(&r, 6, true, 6); /* it has all streams */
    CHECK_UINT(r.growth->count, 0);
    CHECK_UINT(r.growth->workspaces.streams, 0);
    end(&r);

    run_streams(&r, 4, true, 0);
    CHECK_UINT(r.growth->count, 0);
    CHECK_UINT(r.growth->workspaces.streams, 0);
    end(&r);

    run_streams(&r, 6, false, 0); /* tensors of that size */
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].blocks, 6);
    CHECK_UINT(r.growth->workspaces.streams, 0);
    end(&r);
}

/* An inference keeps outputs of 32 MiB, whose products free cuBLASLt's workspace at once.  Only of
 * torch 2.15, which another key of its snapshots shows, is that a sign that none is kept: else
 * the first call is not seen, as its output may be a workspace. */
static void
test_outputs_of_an_inference(void)
{
    for (unsigned since = 0; since < 2; since++) {
        run r;
        begin(&r);
        r.f.made.recording->keys = since ? ML_KEY_INTERNAL_METADATA : 0;
        uint32_t net = add_frame(&r.f, r.line, "net.py", 3, "forward", "net");
        for (int i = 0; i < 7; i++) {
            take(&r, 32 * MIB, net);
            add_free(&r.f, take(&r, MIB, net), MIB);
        }
        answer(&r);
        CHECK_STR(ml_growth_by_text(r.growth->by), "module_calls");
        CHECK_UINT(r.growth->steps, 5 + since);
        end(&r);
    }
}

/* The one name is of a block of the line; the other came before that block. */
static void
test_holder(void)
{
    run r;
    begin(&r);
    keep_always(&r, 6);
    uint64_t addr = r.kept[2];
    add_note(&r.f, ML_NOTE_HOLDER, SAMPLE_TIME(&r.f.made), addr, 0, 0, 0);
    ml_recording *recording = r.f.made.recording;
    recording->notes[recording->note_count - 1].name = sample_string(recording, "kept");
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    ml_string name = recording->strings[r.growth->lines[0].holder];
    CHECK_INT(ml_string_compare(name, (ml_string){"kept", 4}), 0);
    end(&r);

    begin(&r);
    add_note(&r.f, ML_NOTE_HOLDER, SAMPLE_TIME(&r.f.made), r.next, 0, 0, 0);
    keep_always(&r, 6);
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].holder, 0);
    end(&r);
}

/* There are no more of these than parameters. */
static void
test_optimizer_states(void)
{
    run r;
    begin(&r);
    for (int i = 0; i < 6; i++) {
        keep(&r);
        sample_tag(&r.f.made, r.kept[r.steps], ML_CATEGORY_OPTIMIZER_STATE);
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);
}

/* A step keeps the gradient of the parameter NAME, a string. */
static void
keep_gradient(run *r, uint32_t name)
{
    sample *s = &r->f.made;
    keep(r);
    sample_tag(s, r->kept[r->steps], ML_CATEGORY_GRADIENT);
    s->tags[s->device.tag_count - 1].name = name;
    end_step(r);
}

/* Layers that are unfrozen one a step keep a gradient each; those that are kept beside a
 * parameter's own leak. */
static void
test_gradients(void)
{
    run r;
    begin(&r);
    for (int i = 0; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof(name), "w%d", i);
        keep_gradient(&r, sample_string(r.f.made.recording, name));
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 0);
    end(&r);
    begin(&r);
    uint32_t w = sample_string(r.f.made.recording, "w");
    for (int i = 0; i < 8; i++) {
        keep_gradient(&r, w);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    CHECK_UINT(r.growth->lines[0].since, 0);
    CHECK_UINT(r.growth->lines[0].steps, 7);
    CHECK_UINT(r.growth->lines[0].bytes, 14 * MIB);
    end(&r);
}

static void
test_no_memory(void)
{
    for (int passes = 0; passes < 2; passes++) {
        run r;
        begin(&r);
        if (passes) {
            add_steps(&r.f, 6, true, false);
        }
        else {
            keep_always(&r, 6);
        }
        finish(&r.f);
        const ml_analysis *analysis;
        CHECK_INT(ml_analysis_of(r.f.made.recording, 0, &analysis), 0);
        int result = ML_ENOMEM;
        long tries = 0;
        for (; result == ML_ENOMEM && tries < 100; tries++) {
            budget_begin(tries);
            result = ml_growth_of(analysis, &r.growth);
            budget_end();
            /* The analysis keeps the answer, its lines and who made them. */
            CHECK_INT(budget_alive, result == 0 ? 3 : 0);
        }
        CHECK_INT(result, 0);
        CHECK_UINT(r.growth->count, 1);
        const ml_growth *again;
        CHECK_INT(ml_growth_of(analysis, &again), 0);
        CHECK(again == r.growth);
        CHECK(tries > 6);
        end(&r);
    }
}

int
main(void)
{
    RUN(test_leak);
    RUN(test_backward_passes);
    RUN(test_seeds);
    RUN(test_gradients_without_owners);
    RUN(test_calls);
    RUN(test_too_few_steps);
    RUN(test_nothing_grows);
    RUN(test_ring);
    RUN(test_settles);
    RUN(test_cache_by_chance);
    RUN(test_epochs);
    RUN(test_every_second);
    RUN(test_numbers);
    RUN(test_what_matters);
    RUN(test_two_lines);
    RUN(test_workspace_of_an_inference);
    RUN(test_workspaces_of_streams);
    RUN(test_outputs_of_an_inference);
    RUN(test_holder);
    RUN(test_optimizer_states);
    RUN(test_gradients);
    RUN(test_no_memory);
    return TEST_RESULT();
}
