/* Graphs that steps leave behind, and who holds them. */
#include "growth_samples.h"

/* Each step keeps a loss with what two layers saved. */
static void
test_graph(void)
{
    run r;
    begin(&r);
    uint32_t first = add_frame(&r.f, r.line, "net.py", 3, "forward", "net.a");
    uint32_t second = add_frame(&r.f, r.line, "net.py", 4, "forward", "net.b");
    uint32_t loss = add_frame(&r.f, 0, "train.py", 9, "step", "loss");
    for (int i = 0; i < 6; i++) {
        take(&r, 2 * MIB, first);
        take(&r, MIB, second);
        take(&r, 4, loss);
        end_step(&r);
    }
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    const ml_growing *line = &r.growth->lines[0];
    CHECK_INT(line_of(&r, 0), 9);
    CHECK(line->graph && line->certain);
    CHECK_UINT(line->lines, 3);
    CHECK_UINT(line->blocks, 18);
    CHECK_UINT(line->per_step, 3 * MIB + 512);
    end(&r);
}

/* Each step keeps its input, line 7, with a loss, line 9, and with what LAYERS layers saved. */
static void
keep_inputs(run *r, int layers, const char *holder)
{
    begin(r);
    uint32_t layer = add_frame(&r->f, r->other, "net.py", 3, "forward", "net.a");
    uint32_t loss = add_frame(&r->f, 0, "train.py", 9, "step", "loss");
    for (int i = 0; i < 6; i++) {
        keep(r);
        for (int k = 0; k < layers; k++) {
            take(r, 2 * MIB, layer);
        }
        take(r, 4, loss);
        end_step(r);
    }
    if (holder != NULL) {
        add_note(&r->f, ML_NOTE_HOLDER, SAMPLE_TIME(&r->f.made), r->kept[2], 0, 0, 0);
        ml_recording *recording = r->f.made.recording;
        recording->notes[recording->note_count - 1].name =
            sample_string(recording, holder);
    }
    answer(r);
}

/* The line to change is that of the loss. */
static void
test_inputs_of_a_graph(void)
{
    run r;
    keep_inputs(&r, 2, NULL);
    CHECK_UINT(r.growth->count, 1);
    CHECK_INT(line_of(&r, 0), 9);
    CHECK(r.growth->lines[0].graph);
    CHECK_UINT(r.growth->lines[0].per_step, 6 * MIB + 512);
    end(&r);
    keep_inputs(&r, 0, "autograd node `AddmmBackward0` saved `mat1`");
    CHECK_UINT(r.growth->count, 1);
    CHECK_INT(line_of(&r, 0), 9);
    CHECK(r.growth->lines[0].holder != 0);
    end(&r);
}

/* A list has the inputs, whatever else grows. */
static void
test_inputs_in_a_list(void)
{
    run r;
    keep_inputs(&r, 2, "local `kept[...]` of main()");
    CHECK_UINT(r.growth->count, 2);
    CHECK_INT(line_of(&r, 0), 9);
    CHECK_INT(line_of(&r, 1), 7);
    end(&r);
    keep_inputs(&r, 0, NULL);
    CHECK_INT(line_of(&r, 0), 7);
    CHECK(!r.growth->lines[0].graph);
    end(&r);
}

/* What a node holds is of a graph, though of a sum of losses no loss is kept. */
static void
test_graph_of_a_sum(void)
{
    run r;
    begin(&r);
    uint32_t layer = add_frame(&r.f, r.other, "net.py", 3, "forward", "net.a");
    uint64_t last = 0;
    for (int i = 0; i < 6; i++) {
        keep(&r);
        last = take(&r, 4 * MIB, layer);
        end_step(&r);
    }
    add_note(&r.f, ML_NOTE_HOLDER, SAMPLE_TIME(&r.f.made), last, 0, 0, 0);
    ml_recording *recording = r.f.made.recording;
    recording->notes[recording->note_count - 1].name =
        sample_string(recording, "autograd node `PowBackward0` saved `self`");
    answer(&r);
    CHECK_UINT(r.growth->count, 1);
    CHECK_INT(line_of(&r, 0), 3);
    CHECK(r.growth->lines[0].graph);
    end(&r);
}

int
main(void)
{
    RUN(test_graph);
    RUN(test_inputs_of_a_graph);
    RUN(test_inputs_in_a_list);
    RUN(test_graph_of_a_sum);
    return TEST_RESULT();
}
