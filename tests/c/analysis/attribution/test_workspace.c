/* Workspaces of libraries in recordings worked out by hand: kept for ever, until a trainer clears
 * them, or for one product. */
#include "analysis/attribution/category.h"

#include "cause_samples.h"

/* One pass tells a workspace of a size that few tensors have. */
static void
test_workspaces(void)
{
    static const struct {
        uint64_t bytes;
        const char *category;
    } want[] = {
        {8519680, "workspace"}, {33554432, "activation"}, {33554433, "activation"}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        static fixture f;
        set_up(&f);
        uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
        sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
        alloc(&f, 0, MAIN, 1, line);
        ml_event *event = add(&f, ML_ACTION_ALLOC, 1, MAIN, 2, line);
        event->size = event->block_bytes = want[i].bytes;
        alloc_back(&f, 100000, MAIN, 0);
        CHECK_STR(category(&f, 1), want[i].category);
        tear_down(&f);
    }
}

/* What the last allocation of BYTES is, freed or not by the event after it, if the one
 * before it, at its line or not, of its stream or ANOTHER, lives on or not; a growing cache lies
 * between them. */
static void
check_product(uint64_t bytes, bool freed, bool same, bool another, bool lives,
              const char *want)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    alloc(&f, 0, MAIN, 1, line);
    uint32_t result = same ? line : add_stack(&f, 0, "a.py", 11, "f");
    add(&f, ML_ACTION_ALLOC, 1, MAIN, 2, result)->stream = another;
    if (!lives) {
        free_block(&f, 1, MAIN, 0);
    }
    add(&f, ML_ACTION_SEGMENT_ALLOC, 100000, MAIN, 2, line)->size = 64 << 20;
    size_t at = f.made.recording->devices[0].event_count;
    ml_event *event =
        add(&f, ML_ACTION_ALLOC, 100000, MAIN, 2, add_stack(&f, line, "??", 0, "gemm"));
    event->size = event->block_bytes = bytes;
    if (!freed) {
        alloc(&f, 2, MAIN, 3, line);
    }
    free_block(&f, 100000, MAIN, 0);
    alloc_back(&f, 3, MAIN, 0);
    CHECK_STR(category(&f, at), want);
    tear_down(&f);
}

/* From torch 2.15 on each product has a workspace of its own, whose result is made just
 * before and outlives it. */
static void
test_workspaces_of_products(void)
{
    check_product(33554432, true, true, false, true, "workspace");
    check_product(8519680, true, true, false, true, "workspace");
    check_product(33554433, true, true, false, true, "temporary");
    check_product(33554432, false, true, false, true, "other");
    check_product(33554432, true, false, false, true, "temporary");
    check_product(33554432, true, true, true, true, "temporary");
    check_product(33554432, true, true, false, false, "temporary");
}

/* What was made just before a block of BYTES that the next event frees: something of an
 * earlier node, the result of the same node, or what that frees before. */
enum before {
    EARLIER,
    RESULT,
    ANOTHER
};

/* Node 4, of TYPE, makes the block in its forward, or when it runs. */
static void
check_of_node(const char *type, uint64_t bytes, enum before before, bool backward,
              const char *want)
{
    static fixture f;
    set_up(&f);
    uint32_t line = backward ? 0 : add_stack(&f, 0, "a.py", 10, "f");
    uint64_t number = backward ? 4 : 5; /* in the forward the next one's */
    uint8_t flags = backward ? ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON : 0;
    f.type = sample_string(f.made.recording, type);
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    add(&f, ML_ACTION_ALLOC, 0, MAIN, number - 1, line)->flags = flags;
    if (before != EARLIER) {
        add(&f, ML_ACTION_ALLOC, 1, MAIN, number, line)->flags = flags;
    }
    if (before == ANOTHER) {
        add(&f, ML_ACTION_FREE_REQUESTED, 1, MAIN, number, line)->flags = flags;
        add(&f, ML_ACTION_FREE_COMPLETED, 1, MAIN, number, line)->flags = flags;
    }
    size_t at = f.made.recording->devices[0].event_count;
    ml_event *event = add(&f, ML_ACTION_ALLOC, 100000, MAIN, number, line);
    event->size = event->block_bytes = bytes;
    event->flags = flags;
    event->node = backward ? f.type : 0;
    free_block(&f, 100000, MAIN, flags);
    alloc_back(&f, 3, MAIN, 4);
    CHECK_STR(category(&f, at), want);
    tear_down(&f);
}

/* Without modules the size alone tells nothing: what the node TYPE makes after its result, for
 * good, is a workspace if the node is a product's, and not the tensor of that size before. */
static void
check_without_modules(const char *type, bool beside, const char *want)
{
    static fixture f;
    set_up(&f);
    uint32_t load = add_stack(&f, 0, "a.py", 1, "f");
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t other = add_stack(&f, 0, "a.py", 9, "f");
    f.type = sample_string(f.made.recording, type);
    ml_event *tensor = add(&f, ML_ACTION_ALLOC, 0, MAIN, 4, load);
    tensor->size = tensor->block_bytes = 33554432;
    alloc(&f, 1, MAIN, 5, beside ? line : other);
    size_t at = f.made.recording->devices[0].event_count;
    ml_event *event = add(&f, ML_ACTION_ALLOC, 100000, MAIN, 5, line);
    event->size = event->block_bytes = 33554432;
    alloc(&f, 2, MAIN, 6, line);
    ml_event *back = add(&f, ML_ACTION_ALLOC, 200000, MAIN, 4, 0);
    back->flags = ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    back->node = f.type;
    free_block(&f, 200000, MAIN, back->flags);
    CHECK_STR(category(&f, at), want);
    CHECK(strcmp(category(&f, 0), "workspace") != 0);
    tear_down(&f);
}

static void
test_a_product_tells_where_modules_do_not(void)
{
    static const char mm[] = "N5torch8autograd9generated10MmBackward0E";
    static const char mean[] = "N5torch8autograd9generated13MeanBackward0E";
    check_without_modules(mm, true, "workspace");
    check_without_modules(mm, false, "other");
    check_without_modules(mean, true, "other");
}

/* The node tells that a product is under way: cuBLASLt's size is a tensor's, too, and what
 * goes into a tensor that exists has no result. */
static void
test_workspaces_of_nodes(void)
{
    static const char addmm[] = "N5torch8autograd9generated14AddmmBackward0E";
    static const char mean[] = "N5torch8autograd9generated13MeanBackward0E";
    for (unsigned backward = 0; backward < 2; backward++) {
        check_of_node(addmm, 1048576, RESULT, backward, "workspace");
        check_of_node(addmm, 1048576, EARLIER, backward, "workspace");
        check_of_node(addmm, 33554432, EARLIER, backward, "workspace");
        check_of_node(addmm, 1048576, ANOTHER, backward, "temporary");
        check_of_node(addmm, 1048577, RESULT, backward, "temporary");
        check_of_node(mean, 1048576, RESULT, backward, "temporary");
        check_of_node(mean, 33554432, EARLIER, backward, "temporary");
        /* Hardly a tensor has this size. */
        check_of_node(mean, 8519680, ANOTHER, backward, "workspace");
    }
}

/* A block of cuBLAS's size stays, and a product's forward has one of SCRATCH bytes. */
static void
check_kept_beside(uint64_t scratch, const char *want)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    f.type =
        sample_string(f.made.recording, "N5torch8autograd9generated14AddmmBackward0E");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    alloc(&f, 0, MAIN, 2, line);
    size_t at = f.made.recording->devices[0].event_count;
    ml_event *kept = add(&f, ML_ACTION_ALLOC, 100000, MAIN, 3, line);
    kept->size = kept->block_bytes = 33554432;
    add(&f, ML_ACTION_ALLOC, 1, MAIN, 5, line); /* the result */
    ml_event *event = add(&f, ML_ACTION_ALLOC, 200000, MAIN, 5, line);
    event->size = event->block_bytes = scratch;
    free_block(&f, 200000, MAIN, 0);
    for (unsigned i = 0; i < 2; i++) {
        alloc_back(&f, 3 + i, MAIN, 4); /* of the product's node */
        alloc(&f, 10 + i, MAIN, 6, line);
    }
    CHECK_STR(category(&f, at), want);
    tear_down(&f);
}

/* torch may keep cuBLAS's and make cuBLASLt's for each product; if it makes cuBLAS's, too, it
 * keeps none. */
static void
test_workspaces_beside_those_of_products(void)
{
    check_kept_beside(1048576, "workspace");
    check_kept_beside(1048577, "workspace");
    check_kept_beside(33554432, "unknown");
    check_kept_beside(8519680, "unknown");
}

/* With a parameter; returns the stack of a module's call. */
static uint32_t
begin_forward(fixture *f)
{
    uint32_t user = add_stack(f, 0, "a.py", 10, "f");
    sample_tag(&f->made, 1, ML_CATEGORY_PARAMETER);
    return add_stack(f, user, "torch/nn/modules/module.py", 1, "_call_impl");
}

static void
run_two_passes(fixture *f, uint32_t line)
{
    for (unsigned i = 0; i < 2; i++) {
        alloc_back(f, 100000 + i, MAIN, 0);
        alloc(f, 200000 + i, MAIN, 3, line);
    }
}

/* The first of its stream is cuBLASLt's; a list that grows by 1 MiB is none. */
static void
test_the_light_workspace(void)
{
    static fixture f;
    set_up(&f);
    uint32_t line = begin_forward(&f);
    for (unsigned i = 0; i < 5; i++) {
        ml_event *event = add(&f, ML_ACTION_ALLOC, 1000 * (i + 1), MAIN, 2, line);
        event->size = event->block_bytes = 1048576 + (i == 0);
        event->stream = i == 4;
        if (i == 1) {
            free_block(&f, 1000 * (i + 1), MAIN, 0);
        }
    }
    run_two_passes(&f, line);
    CHECK_STR(category(&f, 0), "unknown");
    CHECK_STR(category(&f, 1), "temporary");
    CHECK_STR(category(&f, 4), "workspace");
    CHECK_STR(category(&f, 5), "unknown");
    CHECK_STR(category(&f, 6), "workspace");
    tear_down(&f);
}

/* After one pass an activation may be there still: one of 1 MiB, made by node 4 of TYPE after its
 * result, or before it. */
static void
check_light_after_one_pass(const char *type, bool after, const char *want)
{
    static fixture f;
    set_up(&f);
    uint32_t line = begin_forward(&f);
    f.type = sample_string(f.made.recording, type);
    alloc(&f, 0, MAIN, 4, line);
    if (after) {
        alloc(&f, 1, MAIN, 5, line);
    }
    size_t at = f.made.recording->devices[0].event_count;
    ml_event *event = add(&f, ML_ACTION_ALLOC, 100000, MAIN, 5, line);
    event->size = event->block_bytes = 1048576;
    alloc(&f, 2, MAIN, 6, line);
    alloc_back(&f, 3, MAIN, 4);
    alloc(&f, 4, MAIN, 7, line);
    CHECK_STR(category(&f, at), want);
    tear_down(&f);
}

static void
test_one_pass_tells_the_light_workspace_by_its_product(void)
{
    static const char addmm[] = "N5torch8autograd9generated14AddmmBackward0E";
    static const char mean[] = "N5torch8autograd9generated13MeanBackward0E";
    check_light_after_one_pass(addmm, true, "workspace");
    check_light_after_one_pass(addmm, false, "activation");
    check_light_after_one_pass(mean, true, "activation");
}

/* Whether no module has the block of event INDEX, but a library. */
static bool
is_librarys(const fixture *f, size_t index)
{
    const ml_analysis *of;
    return ml_analysis_of(f->made.recording, 0, &of) == 0 &&
           ml_explain(of, 0, index, 0).cause.no_module == ML_NO_MODULE_LIBRARY;
}

/* A stream has one in its forward passes; a leak may have blocks of that size, too.  A
 * trainer may clear them once all passes are over. */
static void
check_first_that_lasts(uint64_t bytes, bool cleared)
{
    static fixture f;
    set_up(&f);
    uint32_t line = begin_forward(&f);
    for (unsigned i = 0; i < 4; i++) {
        ml_event *event = add(&f, ML_ACTION_ALLOC, 1000 * (i + 1), MAIN, 2, line);
        event->size = event->block_bytes = bytes;
        event->stream = i == 3;
    }
    run_two_passes(&f, line);
    for (unsigned i = 0; i < 4 && cleared; i++) {
        free_block(&f, 1000 * (i + 1), MAIN, 0);
    }
    CHECK_STR(category(&f, 0), "workspace");
    CHECK(is_librarys(&f, 0)); /* not of the module that was first */
    CHECK_STR(category(&f, 1), "unknown");
    CHECK(!is_librarys(&f, 1));
    CHECK_STR(category(&f, 2), "unknown");
    CHECK_STR(category(&f, 3), "workspace");
    tear_down(&f);
}

static void
test_the_first_that_lasts_is_a_workspace(void)
{
    check_first_that_lasts(33554432, false);
    check_first_that_lasts(33554432, true);
    check_first_that_lasts(8519680, false);
    check_first_that_lasts(8519680, true);
}

static void
alloc_bytes(fixture *f, unsigned block, uint64_t bytes, uint64_t node, uint32_t line,
            bool backward)
{
    if (backward) {
        alloc_back(f, block, MAIN, node);
    }
    else {
        alloc(f, block, MAIN, node + 2, line);
    }
    ml_event *event = &f->made.events[f->made.device.event_count - 1];
    event->size = event->block_bytes = bytes;
    event->thread = backward ? 2 : 1;
}

static void
clear(fixture *f, unsigned block, uint32_t stack)
{
    add(f, ML_ACTION_FREE_REQUESTED, block, MAIN, 0, stack);
    add(f, ML_ACTION_FREE_COMPLETED, block, MAIN, 0, stack);
}

/* Two trainings, between which a trainer clears the workspaces of forwards and passes, one right
 * after the other or, not being workspaces, APART. */
static void
check_cleared_between(uint64_t bytes, bool apart, const char *want,
                      const char *backward)
{
    static fixture f;
    size_t made[2][3];
    set_up(&f);
    uint32_t line = begin_forward(&f);
    uint32_t end = add_stack(&f, 0, "a.py", 20, "teardown");
    for (unsigned i = 0; i < 2; i++) {
        unsigned base = 1000000 * i;
        for (unsigned j = 0; j < 3; j++) {
            made[i][j] = f.made.device.event_count;
            alloc_bytes(&f, base + 10000 * (j + 1), bytes, 10 * i, line, j == 2);
        }
        for (unsigned j = 0; j < 2; j++) {
            alloc_back(&f, base + 100000 + j, MAIN, 10 * i);
            alloc(&f, base + 200000 + j, MAIN, 10 * i + 3, line);
        }
        for (unsigned j = 0; j < 3; j++) {
            const unsigned order[] = {10000, 30000, 20000};
            clear(&f, base + order[j], end);
            if (apart) {
                alloc(&f, base + 300000 + j, MAIN, 10 * i + 3, end);
            }
        }
    }
    alloc(&f, 5000000, MAIN, 13, line);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_STR(category(&f, made[i][0]), want);
        CHECK_STR(category(&f, made[i][1]), "unknown"); /* beside the first */
        CHECK_STR(category(&f, made[i][2]), backward);
    }
    tear_down(&f);
}

static void
test_workspaces_that_are_cleared_between_trainings(void)
{
    check_cleared_between(33554432, false, "workspace", "workspace");
    check_cleared_between(8519680, false, "workspace", "workspace");
    check_cleared_between(33554432, true, "unknown", "gradient");
    check_cleared_between(33554433, false, "unknown", "gradient");
}

/* The blocks of BYTES from before: three of stream 0, of which the recording makes another or
 * not, and one of stream 1.  Behind them the recording has PASSES, or forwards alone. */
static void
check_from_before(uint64_t bytes, bool made, bool passes, const char *want[4])
{
    static const unsigned counts[2] = {4, 1};
    static fixture f;
    set_up(&f);
    uint32_t line = begin_forward(&f);
    f.made.recording->rules.has_segments = 1;
    f.made.device.segment_count = 2;
    uint64_t addr = BASE;
    size_t block = 0;
    for (unsigned i = 0; i < 2; i++) {
        const size_t first = block;
        for (unsigned k = 0; k < counts[i]; k++) {
            bool there = i == 1 || k < 3 || made;
            f.made.blocks[block++] =
                (ml_block){.addr = addr + k * bytes,
                           .size = bytes,
                           .requested = bytes,
                           .state = there ? ML_BLOCK_ALLOCATED : ML_BLOCK_INACTIVE};
        }
        f.made.segments[i] = (ml_segment){.addr = addr,
                                          .total = counts[i] * bytes,
                                          .stream = i,
                                          .first_block = first,
                                          .block_count = counts[i]};
        addr += counts[i] * bytes;
    }
    f.made.device.block_count = block;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t size = i == 3 && made ? bytes : 4096;
        ml_event *event =
            sample_event(&f.made, ML_ACTION_ALLOC, BASE + 3 * bytes, size, line);
        event->flags =
            passes && i % 2 == 1 ? ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON : 0;
        event->sequence = i % 2;
        event->autograd_thread = MAIN;
        if (i == 3 && made) {
            break;
        }
        for (unsigned k = 0; k < 2; k++) {
            enum ml_action action =
                k == 0 ? ML_ACTION_FREE_REQUESTED : ML_ACTION_FREE_COMPLETED;
            sample_event(&f.made, action, BASE + 3 * bytes, size, line);
        }
    }
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    const ml_analysis *of;
    CHECK_INT(ml_analysis_of(f.made.recording, 0, &of), 0);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t place = f.made.blocks[i < 3 ? i : 4].addr;
        ml_explained it = ml_explain(of, place, ML_BEFORE_EVENTS, 0);
        CHECK_STR(ml_category_text(it.verdict.category), want[i]);
    }
    tear_down(&f);
}

/* A stream has one from before for its forwards and one for its passes, but for those that the
 * recording makes; the rest are tensors of that size. */
static void
test_workspaces_from_before(void)
{
    static const char ours[] = "workspace";
    static const char rest[] = "before_recording";
    check_from_before(8519680, false, false, (const char *[]){ours, rest, rest, ours});
    check_from_before(8519680, true, false, (const char *[]){rest, rest, rest, ours});
    check_from_before(8519680, false, true, (const char *[]){ours, ours, rest, ours});
    check_from_before(8519680, true, true, (const char *[]){ours, rest, rest, ours});
    check_from_before(33554432, false, true, (const char *[]){ours, ours, rest, ours});
    check_from_before(33554432, true, true, (const char *[]){ours, rest, rest, ours});
}

/* What cuDNN's dropout keeps: by its size, in a recurrent network. */
static void
test_the_generators(void)
{
    static fixture f;
    set_up(&f);
    uint32_t user = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t call = add_stack(&f, user, "torch/nn/modules/module.py", 1, "_call_impl");
    uint32_t net = add_stack(&f, call, "torch/nn/modules/rnn.py", 1, "forward");
    uint32_t own = add_stack(&f, call, "b.py", 1, "forward");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    const uint64_t bytes = UINT64_C(132) * 2048 * 24;
    add(&f, ML_ACTION_ALLOC, 10000, MAIN, 2, net)->size = bytes;
    add(&f, ML_ACTION_ALLOC, 20000, MAIN, 2, net)->size = bytes + 512;
    add(&f, ML_ACTION_ALLOC, 30000, MAIN, 2, own)->size = bytes;
    for (unsigned i = 0; i < 2; i++) {
        alloc_back(&f, 100000 + i, MAIN, 0);
        alloc(&f, 200000 + i, MAIN, 3, call);
    }
    CHECK_STR(category(&f, 0), "workspace");
    CHECK_STR(category(&f, 1), "unknown");
    CHECK_STR(category(&f, 2), "unknown");
    tear_down(&f);
}

int
main(void)
{
    RUN(test_workspaces);
    RUN(test_workspaces_of_products);
    RUN(test_workspaces_of_nodes);
    RUN(test_a_product_tells_where_modules_do_not);
    RUN(test_workspaces_beside_those_of_products);
    RUN(test_the_light_workspace);
    RUN(test_one_pass_tells_the_light_workspace_by_its_product);
    RUN(test_the_first_that_lasts_is_a_workspace);
    RUN(test_workspaces_that_are_cleared_between_trainings);
    RUN(test_workspaces_from_before);
    RUN(test_the_generators);
    return TEST_RESULT();
}
