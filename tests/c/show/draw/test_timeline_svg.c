/* The small picture of a timeline: places and words by hand. */
#include "show/draw/timeline_svg.h"

#include "picture_samples.h"
#include "test.h"

static int
write_first(const ml_recording *recording, ml_buffer *out)
{
    return ml_timeline_svg(recording, 0, out);
}

static int
write_second(const ml_recording *recording, ml_buffer *out)
{
    return ml_timeline_svg(recording, 1, out);
}

static void
test_one_block(void)
{
    sample f;
    half_a_segment(&f);
    char *text = sample_document(&f, write_first);
    CHECK(text != NULL);
    /* 320 columns of 2 pixels, 12,501 ns each; the 80th is the first with the block,
     * whose top is half way up the 96 pixels that end at 114. */
    CHECK_HAS(text, "<path fill=\"#e69f00\" d=\"M0 114H158V66H640V114H0Z\"/>");
    CHECK_INT(count_of(text, "<path fill="), 1);
    CHECK_HAS(text, "fill=\"none\" d=\"M0 18H640\"/>");
    CHECK_HAS(text, "d=\"M158 3V114\"/><text x=\"162\" y=\"12\">peak 1.00 MiB at "
                    "1.000 ms</text>");
    CHECK_HAS(text, ">0 ms</text>");
    CHECK_HAS(text, "text-anchor=\"end\">4.000 ms</text>");
    CHECK_HAS(text, ">optimizer state</text>");
    CHECK_HAS(text, ">reserved</text>");
    CHECK_HAS(text, "viewBox=\"0 0 640 152\"");
    ml_free(text);
    sample_end(&f);
}

static void
test_a_peak_at_the_right_is_named_to_its_left(void)
{
    sample f;
    sample_begin(&f);
    sample_event(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    sample_event(&f, ML_ACTION_ALLOC, BASE, MIB, 0);
    sample_event(&f, ML_ACTION_ALLOC, BASE + MIB, MIB, 0);
    char *text = sample_document(&f, write_first);
    CHECK(text != NULL);
    CHECK_HAS(text, "<text x=\"634\" y=\"12\" text-anchor=\"end\">peak 2.00 MiB at "
                    "2.000 ms</text>");
    ml_free(text);
    sample_end(&f);
}

/* Eleven names need more than the 640 pixels of a row. */
static void
test_a_long_legend_goes_on_in_a_second_row(void)
{
    sample f;
    sample_begin(&f);
    sample_event(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB, 0);
    for (unsigned i = 0; i < ML_CATEGORY_BEFORE_RECORDING; i++) {
        sample_event(&f, ML_ACTION_ALLOC, BASE + i * MIB, MIB, 0);
        sample_tag(&f, BASE + i * MIB, i);
    }
    char *text = sample_document(&f, write_first);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<rect "), ML_CATEGORY_BEFORE_RECORDING);
    CHECK_HAS(text, "viewBox=\"0 0 640 170\"");
    CHECK_HAS(text, "y=\"146\">");
    CHECK_HAS(text, "y=\"164\">reserved</text>");
    ml_free(text);
    sample_end(&f);
}

static void
test_nothing_is_drawn_of_no_memory(void)
{
    sample f;
    half_a_segment(&f);
    ml_device_trace devices[2] = {f.device, {0}};
    f.recording->devices = devices;
    f.recording->device_count = 2;
    ml_buffer out = {0};
    CHECK_INT(write_second(f.recording, &out), 0);
    CHECK_INT(out.length, 0);
    CHECK_INT(ml_timeline_svg(f.recording, 2, &out), ML_EINVALID);
    ml_buffer_fini(&out);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    half_a_segment(&f);
    CHECK(sample_failures(&f, write_first) > 5);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_one_block);
    RUN(test_a_peak_at_the_right_is_named_to_its_left);
    RUN(test_a_long_legend_goes_on_in_a_second_row);
    RUN(test_nothing_is_drawn_of_no_memory);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
