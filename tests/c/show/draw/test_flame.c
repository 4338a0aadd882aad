/* Flame graphs: widths and titles worked out by hand, torch's folded lines, limits. */
#include "show/draw/flame.h"

#include <stdio.h>

#include "picture_samples.h"
#include "test.h"

static int
write_segments(const ml_recording *recording, ml_buffer *out)
{
    return ml_flame_svg(recording, ML_ALL_DEVICES, ML_FLAME_SEGMENTS, out);
}

static int
write_memory(const ml_recording *recording, ml_buffer *out)
{
    return ml_flame_svg(recording, 0, ML_FLAME_MEMORY, out);
}

static int
fold_segments(const ml_recording *recording, ml_buffer *out)
{
    return ml_flame_folded(recording, 0, ML_FLAME_SEGMENTS, out);
}

static int
fold_memory(const ml_recording *recording, ml_buffer *out)
{
    return ml_flame_folded(recording, ML_ALL_DEVICES, ML_FLAME_MEMORY, out);
}

/* Two streams of 1 MiB each.  In the first a half of main, where a quarter is step's; a
 * quarter awaits its free; a quarter is free.  What is allocated lost 1 KiB. */
static void
quarters(sample *f)
{
    sample_begin(f);
    uint32_t outer = sample_call(f->recording, 0, "/u/a b/train.py", 12, "main", NULL);
    uint32_t again = sample_call(f->recording, 0, "/u/a b/train.py", 12, "main", NULL);
    uint32_t inner = sample_call(f->recording, again, "/u/model.py", 7, "step", NULL);
    sample_segment(f, BASE, 0);
    sample_block(f, 256 * KIB, 256 * KIB, ML_BLOCK_ALLOCATED, outer);
    sample_block(f, 256 * KIB, 255 * KIB, ML_BLOCK_ALLOCATED, inner);
    sample_block(f, 256 * KIB, 256 * KIB, ML_BLOCK_PENDING_FREE, inner);
    sample_block(f, 256 * KIB, 999, ML_BLOCK_INACTIVE, outer);
    sample_segment(f, BASE + 8 * MIB, 5);
    sample_block(f, MIB, MIB, ML_BLOCK_ALLOCATED, 0);
}

static void
test_boxes(void)
{
    sample f;
    quarters(&f);
    char *text = sample_document(&f, write_memory);
    CHECK(text != NULL);
    CHECK_HAS(text, ">Memory by stack, device 0: 2.00 MiB (2,097,152 bytes) reserved");
    CHECK_HAS(text,
              "<g><title>all memory\n2.00 MiB (2,097,152 bytes), 100.0 %, 5 blocks"
              "</title><rect class=\"a\" x=\"10\" y=\"58\" width=\"1200\"");
    CHECK_HAS(text, "<title>stream 0\n1.00 MiB (1,048,576 bytes), 50.0 %, 4 blocks"
                    "</title><rect class=\"a\" x=\"10\" y=\"75\" width=\"600\"");
    /* The two frames of main say the same, so they are one box. */
    CHECK_HAS(text, "<title>main /u/a b/train.py:12\n511 KiB (523,264 bytes), 25.0 %, "
                    "2 blocks</title><rect class=\"u\" x=\"10\" y=\"109\" "
                    "width=\"299.41\"");
    CHECK_HAS(text, ">main train.py:12</text>");
    CHECK_HAS(text, "<title>step /u/model.py:7\n255 KiB (261,120 bytes), 12.5 %, "
                    "1 block</title><rect class=\"u\" x=\"10\" y=\"126\" "
                    "width=\"149.41\"");
    CHECK_HAS(text, "<title>lost to rounding\n1.00 KiB (1,024 bytes), 0.0 %</title>"
                    "<rect class=\"f\" x=\"309.41\" y=\"109\" width=\"0.59\"");
    CHECK_HAS(text, "<title>freed, awaiting its streams\n256 KiB");
    /* What is free comes last, and has no stack. */
    CHECK_HAS(text, "<title>free, kept by the allocator\n256 KiB (262,144 bytes), "
                    "12.5 %, 1 block</title><rect class=\"f\" x=\"460\" y=\"92\" "
                    "width=\"150\"");
    CHECK_HAS(text, "<title>no stack recorded\n1.00 MiB");
    CHECK_INT(count_of(text, "<g>"), 13);
    ml_free(text);
    text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>segment 0x7f0000000000 of 1.00 MiB\n");
    CHECK_HAS(text, "<title>segment 0x7f0000800000 of 1.00 MiB\n");
    CHECK_INT(count_of(text, "<g>"), 15);
    ml_free(text);
    /* Of the CPU. */
    f.recording->rules.has_segments = 0;
    text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>block 0x7f0000000000 of 1.00 MiB\n");
    ml_free(text);
    sample_end(&f);
}

static void
test_devices_are_told_apart(void)
{
    sample f;
    quarters(&f);
    ml_device_trace devices[3] = {f.device, {0}, f.device};
    f.recording->devices = devices;
    f.recording->device_count = 3;
    char *text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>all memory\n4.00 MiB");
    CHECK_HAS(text, "<title>device 0\n2.00 MiB");
    CHECK_HAS(text, "<title>device 2\n2.00 MiB");
    CHECK_INT(count_of(text, "<title>device"), 2);
    ml_free(text);
    text = sample_document(&f, write_memory);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<title>device"), 0);
    ml_free(text);
    sample_end(&f);
}

static void
test_folded(void)
{
    sample f;
    quarters(&f);
    char *text = sample_document(&f, fold_memory);
    CHECK_STR(text,
              "stream_0;active_allocated;train.py:12:main 262144\n"
              "stream_0;active_allocated;train.py:12:main;model.py:7:step 261120\n"
              "stream_0;active_allocated;<gaps> 1024\n"
              "stream_0;active_pending_free;train.py:12:main;model.py:7:step "
              "262144\n"
              "stream_0;inactive;train.py:12:main 999\n"
              "stream_0;inactive;<gaps> 261145\n"
              "stream_5;active_allocated;<non-python> 1048576\n");
    ml_free(text);
    f.device.segment_count = 1;
    f.device.block_count = 1;
    f.segments[0].block_count = 1;
    text = sample_document(&f, fold_segments);
    CHECK_STR(text, "stream_0;seg_139637976727552;active_allocated;train.py:12:main "
                    "262144\n");
    ml_free(text);
    sample_end(&f);
}

/* Of 60 segments all but one are too narrow. */
static void
test_what_is_too_small_is_one_box(void)
{
    sample f;
    sample_begin(&f);
    for (uint64_t i = 0; i < 60; i++) {
        sample_segment(&f, BASE + (i << 41), 0);
        sample_block(&f, i == 0 ? UINT64_C(1) << 40 : MIB, 1, ML_BLOCK_INACTIVE, 0);
    }
    char *text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<g>"), 4);
    ml_free(text);
    for (size_t i = 1; i < 60; i++) {
        f.segments[i].total = f.blocks[i].size = UINT64_C(2) << 20;
    }
    f.segments[0].total = f.blocks[0].size = UINT64_C(1) << 36;
    text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>59 smaller\n118 MiB (123,731,968 bytes), 0.2 %</title>");
    CHECK_INT(count_of(text, "<g>"), 5);
    ml_free(text);
    sample_end(&f);
}

static void
test_deep_stacks_are_cut(void)
{
    sample f;
    sample_begin(&f);
    uint32_t stack = 0;
    for (int i = 1; i <= 600; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        stack = sample_call(f.recording, stack, "/u/a.py", i, name, NULL);
    }
    sample_segment(&f, BASE, 0);
    sample_block(&f, MIB, MIB, ML_BLOCK_ALLOCATED, stack);
    char *text = sample_document(&f, write_memory);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>f512 /u/a.py:512\n1.00 MiB");
    CHECK(strstr(text, "f513") == NULL);
    CHECK_HAS(text, "Not all frames are shown");
    ml_free(text);
    text = sample_document(&f, fold_memory);
    CHECK(text != NULL);
    CHECK_HAS(text, "a.py:600:f600 1048576\n");
    ml_free(text);
    sample_end(&f);
}

/* Each of 2500 segments with 500 frames of its own in the tree, more than it may have. */
static void
test_very_many_nodes(void)
{
    enum {
        COUNT = 2500
    };
    sample f;
    sample_begin(&f);
    uint32_t stack = 0;
    for (int i = 1; i <= 500; i++) {
        stack = sample_call(f.recording, stack, "/u/a.py", i, "f", NULL);
    }
    f.device.segments = ml_alloc_zeroed(COUNT, sizeof(ml_segment));
    f.device.blocks = ml_alloc_zeroed(COUNT, sizeof(ml_block));
    CHECK(f.device.segments != NULL && f.device.blocks != NULL);
    f.device.segment_count = f.device.block_count = COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t addr = BASE + i * 2 * MIB;
        f.device.segments[i] = (ml_segment){
            .addr = addr, .total = MIB, .first_block = i, .block_count = 1};
        f.device.blocks[i] = (ml_block){.addr = addr,
                                        .size = MIB,
                                        .requested = MIB,
                                        .stack = stack,
                                        .state = ML_BLOCK_ALLOCATED};
    }
    ml_buffer out = {0};
    CHECK_INT(write_segments(f.recording, &out), 0);
    ml_buffer_append(&out, "", 1);
    CHECK_HAS(out.bytes, "<title>all memory\n2.44 GiB (2,621,440,000 bytes), 100.0 %, "
                         "2,500 blocks");
    CHECK(strstr(out.bytes, "Not all frames are shown") != NULL);
    ml_buffer_fini(&out);
    ml_free(f.device.segments);
    ml_free(f.device.blocks);
    sample_end(&f);
}

static void
test_any_text_stays_inside(void)
{
    sample f;
    sample_begin(&f);
    uint32_t stack =
        sample_call(f.recording, 0, "/u/]]></svg><b>\x1b/&.py", 1,
                    "</title><script>alert('\"')</script>\xe2\x80\xae", NULL);
    sample_segment(&f, BASE, 0);
    sample_block(&f, MIB, MIB, ML_BLOCK_ALLOCATED, stack);
    char *text = sample_document(&f, write_memory);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<script>"), 1);
    CHECK_INT(count_of(text, "]]>"), 1);
    CHECK_INT(count_of(text, "</svg>"), 1);
    CHECK_INT(count_of(text, "\xe2\x80\xae"), 0);
    CHECK_INT(count_of(text, "\x1b"), 0);
    CHECK_HAS(text, "<title>&lt;/title&gt;&lt;script&gt;alert(&#39;&quot;&#39;)&lt;");
    ml_free(text);
    sample_end(&f);
}

/* Sizes that a file may claim: sums stay at the most there is. */
static void
test_sizes_beyond_all_sums(void)
{
    sample f;
    sample_begin(&f);
    sample_segment(&f, 0, 0);
    sample_block(&f, UINT64_MAX - 10, 0, ML_BLOCK_ALLOCATED, 0);
    sample_segment(&f, 1, UINT64_MAX);
    sample_block(&f, UINT64_MAX - 10, 5, ML_BLOCK_ALLOCATED, 0);
    char *text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>all memory\n16.0 EiB (18,446,744,073,709,551,615 ");
    CHECK_HAS(text, "stream 18446744073709551615");
    ml_free(text);
    text = sample_document(&f, fold_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, "stream_-1;seg_1;active_allocated;<non-python> 5\n"
                    "stream_-1;seg_1;active_allocated;<gaps> -16\n");
    ml_free(text);
    sample_end(&f);
}

static void
test_nothing(void)
{
    sample f;
    sample_begin(&f);
    char *text = sample_document(&f, write_segments);
    CHECK(text != NULL);
    CHECK_HAS(text, ": 0 B reserved at the end of the recording");
    CHECK_INT(count_of(text, "<g>"), 0);
    ml_free(text);
    text = sample_document(&f, fold_segments);
    CHECK_STR(text, "");
    ml_free(text);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    quarters(&f);
    CHECK(sample_failures(&f, write_segments) > 15);
    CHECK(sample_failures(&f, fold_segments) > 4);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_boxes);
    RUN(test_devices_are_told_apart);
    RUN(test_folded);
    RUN(test_what_is_too_small_is_one_box);
    RUN(test_deep_stacks_are_cut);
    RUN_LONG_IN_ONE_THREAD(test_very_many_nodes);
    RUN(test_any_text_stays_inside);
    RUN(test_sizes_beyond_all_sums);
    RUN(test_nothing);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
