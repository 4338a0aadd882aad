/* The page of segments: places and sums by hand, what is drawn together, what is left out. */
#include "show/draw/segments_page.h"

#include "picture_samples.h"
#include "test.h"

static int
write_all(const ml_recording *recording, ml_buffer *out)
{
    return ml_segments_page_write(recording, ML_ALL_DEVICES, out);
}

static int
write_first(const ml_recording *recording, ml_buffer *out)
{
    return ml_segments_page_write(recording, 0, out);
}

/* 4 MiB on stream 3: a parameter, a hole of 1 MiB, one that waits, and the rest. */
static void
one_segment(sample *f)
{
    sample_begin(f);
    uint32_t outer = sample_call(f->recording, 0, "/u/train.py", 12, "main", NULL);
    uint32_t inner = sample_call(f->recording, outer, "/u/<m>.py", 7, "step", NULL);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 4 * MIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, MIB - 100, inner);
    sample_tag(f, BASE, ML_CATEGORY_PARAMETER);
    sample_event(f, ML_ACTION_ALLOC, BASE + MIB, MIB, inner);
    sample_event(f, ML_ACTION_ALLOC, BASE + 2 * MIB, 512 * KIB, outer);
    sample_event(f, ML_ACTION_FREE_REQUESTED, BASE + MIB, MIB, 0);
    sample_event(f, ML_ACTION_FREE_COMPLETED, BASE + MIB, MIB, 0);
    sample_event(f, ML_ACTION_FREE_REQUESTED, BASE + 2 * MIB, 512 * KIB, 0);
    sample_segment(f, BASE, 3);
    sample_block(f, MIB, MIB - 100, ML_BLOCK_ALLOCATED, inner);
    sample_block(f, MIB, MIB, ML_BLOCK_INACTIVE, inner);
    sample_block(f, 512 * KIB, 512 * KIB, ML_BLOCK_PENDING_FREE, outer);
    sample_block(f, 3 * 512 * KIB, 0, ML_BLOCK_INACTIVE, 0);
    f->segments[0].stack = outer;
}

static void
test_one_segment(void)
{
    sample f;
    one_segment(&f);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "<h2>Device 0: 1 segment at the end of the recording</h2>");
    CHECK_HAS(text, "reserved</th><td>4.00 MiB</td><td>4,194,304 bytes</td>"
                    "<td>100.0 %</td><td>4 blocks</td>");
    CHECK_HAS(text, "</svg>allocated</th><td>1.00 MiB</td><td>1,048,576 bytes</td>"
                    "<td>25.0 %</td><td>1 block</td>");
    CHECK_HAS(text, "</svg>awaiting free</th><td>512 KiB</td><td>524,288 bytes</td>"
                    "<td>12.5 %</td><td>1 block</td>");
    CHECK_HAS(text, "</svg>inactive</th><td>2.50 MiB</td><td>2,621,440 bytes</td>"
                    "<td>62.5 %</td><td>2 blocks</td>");
    CHECK_HAS(text, "4.00 MiB, large pool, stream 3<title>at 0x7f0000000000: "
                    "4.00 MiB (4,194,304 bytes), 1.00 MiB (1,048,576 bytes) allocated\n"
                    "main /u/train.py:12</title>");
    /* A quarter of the row's 900 pixels each MiB. */
    CHECK_HAS(text, "fill=\"#0072b2\" x=\"300\" y=\"0\" width=\"225\" height=\"15\">"
                    "<title>1.00 MiB (1,048,576 bytes) allocated at 0x7f0000000000\n"
                    "asked for 1.00 MiB (1,048,476 bytes)\nparameter\n"
                    "step /u/&lt;m&gt;.py:7\nmain /u/train.py:12</title>");
    CHECK_HAS(text, "class=\"free edge\" x=\"525\" y=\"0\" width=\"225\" height=\"15\">"
                    "<title>1.00 MiB (1,048,576 bytes) inactive at 0x7f0000100000"
                    "</title>");
    CHECK_HAS(text, "fill=\"#e69f00\" x=\"750\" y=\"0\" width=\"112.5\"");
    CHECK_HAS(text, "awaiting free at 0x7f0000200000\nasked for 512 KiB");
    CHECK_HAS(text, "x=\"862.5\" y=\"0\" width=\"337.5\"");
    ml_free(text);
    sample_end(&f);
}

/* The largest first; the thin bar has the scale of the largest. */
static void
test_rows(void)
{
    sample f;
    sample_begin(&f);
    sample_segment(&f, BASE, 0)->small = 1;
    sample_block(&f, 2 * MIB, 0, ML_BLOCK_INACTIVE, 0);
    ml_segment *private = sample_segment(&f, BASE + 32 * MIB, 1);
    private->pool[0] = 2;
    private->pool[1] = 9;
    private->expandable = 1;
    sample_block(&f, 8 * MIB, 8 * MIB, ML_BLOCK_ALLOCATED, 0);
    char *text = sample_document(&f, write_first);
    CHECK(text != NULL);
    CHECK_HAS(text,
              "y=\"12\">8.00 MiB, large pool (2, 9), expandable, stream 1<title>");
    CHECK_HAS(text, "y=\"36\">2.00 MiB, small pool, stream 0<title>");
    CHECK_HAS(text, "fill=\"#7c8799\" x=\"300\" y=\"16\" width=\"900\"");
    CHECK_HAS(text, "fill=\"#7c8799\" x=\"300\" y=\"40\" width=\"225\"");
    /* Not allocated by any event. */
    CHECK_HAS(text, "\nbefore recording</title>");
    ml_free(text);
    sample_end(&f);
}

/* A pixel holds 4.55 blocks of 512 bytes in 2 MiB: 40 of them are drawn as ten. */
static void
test_narrow_blocks_are_drawn_together(void)
{
    sample f;
    sample_begin(&f);
    sample_segment(&f, BASE, 0);
    for (int i = 0; i < 40; i++) {
        sample_block(&f, 512, 512,
                     i % 4 == 3 ? ML_BLOCK_PENDING_FREE : ML_BLOCK_ALLOCATED, 0);
    }
    sample_block(&f, 2 * MIB - 40 * 512, 0, ML_BLOCK_INACTIVE, 0);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>3 blocks allocated, 1.50 KiB (1,536 bytes)\n"
                    "1 block awaiting free, 512 B</title>");
    CHECK_INT(count_of(text, "height=\"15\""), 11);
    CHECK_HAS(text, "1.98 MiB (2,076,672 bytes) inactive at 0x7f0000005000");
    ml_free(text);
    sample_end(&f);
}

/* 502 blocks are more than two lines hold: three of 1000 KiB, the last block on two. */
static void
test_many_blocks_take_several_lines(void)
{
    enum {
        COUNT = 502
    };
    sample f;
    sample_begin(&f);
    ml_segment *segment = sample_segment(&f, BASE, 0);
    f.device.blocks = ml_alloc_zeroed(COUNT, sizeof(ml_block));
    CHECK(f.device.blocks != NULL);
    f.device.block_count = segment->block_count = COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t size = (i == 0 ? 500 : i == COUNT - 1 ? 1500 : 2) * KIB;
        f.device.blocks[i] = (ml_block){.addr = BASE + segment->total,
                                        .size = size,
                                        .requested = size,
                                        .state = ML_BLOCK_ALLOCATED};
        segment->total += size;
    }
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "y=\"0\" width"), 251);
    CHECK_INT(count_of(text, "y=\"24\" width"), 251);
    CHECK_INT(count_of(text, "y=\"48\" width"), 1);
    CHECK(strstr(text, "x=\"300\" y=\"0\" width=\"450\"") != NULL);
    CHECK(strstr(text, "x=\"750\" y=\"0\" width=\"1.8\"") != NULL);
    CHECK(strstr(text, "x=\"300\" y=\"24\" width=\"1.8\"") != NULL);
    CHECK(strstr(text, "x=\"750\" y=\"24\" width=\"450\"") != NULL);
    CHECK(strstr(text, "x=\"300\" y=\"48\" width=\"900\"") != NULL);
    CHECK(strstr(text, "y=\"60\">from 1.95 MiB on</text>") != NULL);
    CHECK_INT(count_of(text, "<title>1.46 MiB (1,536,000 bytes) allocated"), 2);
    ml_free(text);
    ml_free(f.device.blocks);
    sample_end(&f);
}

static void
test_of_very_many_segments_the_largest_are_drawn(void)
{
    enum {
        COUNT = 2010
    };
    sample f;
    sample_begin(&f);
    f.device.segments = ml_alloc_zeroed(COUNT, sizeof(ml_segment));
    f.device.blocks = ml_alloc_zeroed(COUNT, sizeof(ml_block));
    CHECK(f.device.segments != NULL && f.device.blocks != NULL);
    f.device.segment_count = f.device.block_count = COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t addr = BASE + i * 4 * MIB;
        uint64_t size = i < 10 ? MIB : 2 * MIB;
        f.device.segments[i] = (ml_segment){
            .addr = addr, .total = size, .first_block = i, .block_count = 1};
        f.device.blocks[i] = (ml_block){.addr = addr, .size = size};
    }
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "height=\"15\""), 2000);
    CHECK(strstr(text,
                 "<p>10 smaller segments, 10.0 MiB (10,485,760 bytes) in all, are "
                 "not drawn.</p>") != NULL);
    CHECK(strstr(text, "reserved</th><td>3.92 GiB</td>") != NULL);
    ml_free(text);
    ml_free(f.device.segments);
    ml_free(f.device.blocks);
    sample_end(&f);
}

/* What a file may claim: no size, and all addresses. */
static void
test_odd_segments(void)
{
    sample f;
    sample_begin(&f);
    sample_segment(&f, 0, UINT64_MAX);
    sample_block(&f, UINT64_MAX, UINT64_MAX, ML_BLOCK_ALLOCATED, 0);
    sample_segment(&f, BASE, 0);
    sample_block(&f, 0, 0, ML_BLOCK_ALLOCATED, 0);
    sample_segment(&f, BASE + 1, 0);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "<td>18,446,744,073,709,551,615 bytes</td>");
    CHECK_INT(count_of(text, "height=\"15\""), 1);
    ml_free(text);
    sample_end(&f);
}

static void
test_devices(void)
{
    sample f;
    one_segment(&f);
    ml_device_trace devices[3] = {{0}, f.device, f.device};
    f.recording->devices = devices;
    f.recording->device_count = 3;
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<h2>"), 2);
    CHECK_HAS(text, "<h2>Device 2: 1 segment");
    ml_free(text);
    text = sample_document(&f, write_first);
    CHECK(text != NULL);
    CHECK_HAS(text, "<h2>Device 0: 0 segments");
    CHECK_INT(count_of(text, "<h2>"), 1);
    ml_free(text);
    sample_end(&f);
}

/* Of the CPU, whose blocks are in no segment. */
static void
test_without_segments(void)
{
    sample f;
    sample_begin(&f);
    f.recording->rules.has_segments = 0;
    sample_segment(&f, BASE, 0)->small = 1;
    sample_block(&f, 4000, 4000, ML_BLOCK_ALLOCATED, 0);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "<h2>Device 0: 1 block at the end of the recording</h2>");
    CHECK_HAS(text, "y=\"12\">3.91 KiB<title>at 0x7f0000000000: ");
    ml_free(text);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    one_segment(&f);
    CHECK(sample_failures(&f, write_all) > 15);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_one_segment);
    RUN(test_rows);
    RUN(test_narrow_blocks_are_drawn_together);
    RUN(test_many_blocks_take_several_lines);
    RUN(test_of_very_many_segments_the_largest_are_drawn);
    RUN(test_odd_segments);
    RUN(test_devices);
    RUN(test_without_segments);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
