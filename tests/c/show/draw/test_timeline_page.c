/* The timeline as a page: places, axes and sums by hand. */
#include "show/draw/timeline_page.h"

#include "picture_samples.h"
#include "test.h"

#define TITLE "a <run> of ]]>"

static int
write_all(const ml_recording *recording, ml_buffer *out)
{
    return ml_timeline_page_write(recording, ML_ALL_DEVICES, TITLE, strlen(TITLE), out);
}

static int
write_second(const ml_recording *recording, ml_buffer *out)
{
    return ml_timeline_page_write(recording, 1, "", 0, out);
}

static void
test_one_block(void)
{
    sample f;
    half_a_segment(&f);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "<title>a &lt;run&gt; of ]]&gt;</title>");
    CHECK_HAS(text, "<h1>a &lt;run&gt; of ]]&gt;</h1>");
    CHECK_HAS(text,
              "<h2>Device 0: max allocated 1.00 MiB (1,048,576 bytes), max reserved "
              "2.00 MiB (2,097,152 bytes)</h2>");
    /* 1000 columns of a pixel from 70 on; column 249 is the first with the block, whose
     * top is half way up the 360 pixels that end at 375. */
    CHECK_HAS(text, "<path fill=\"#e69f00\" d=\"M70 375H319V195H1070V375H70Z\"/>");
    CHECK_INT(count_of(text, "<path fill="), 1);
    CHECK_HAS(text, "<path class=\"line\" d=\"M70 15H1070\"/>");
    CHECK_INT(count_of(text, "class=\"hit\""), 2);
    CHECK_HAS(text,
              "height=\"360\" x=\"70\" width=\"249\"><title>0.000 ms\nallocated 0 B\n"
              "reserved 2.00 MiB</title>");
    CHECK_HAS(text, "x=\"319\" width=\"751\"><title>1.000 ms\nallocated 1.00 MiB "
                    "(1,048,576 bytes)\nreserved 2.00 MiB\noptimizer state 1.00 MiB"
                    "</title>");
    CHECK_HAS(text, "at the peak, 1.000 ms</th>");
    CHECK_HAS(text, "</svg>optimizer state</th><td>1.00 MiB</td><td>1,048,576</td>"
                    "<td>100.0 %</td>");
    CHECK_HAS(text, "<th>allocated</th><td>1.00 MiB</td><td>1,048,576</td>");
    ml_free(text);
    sample_end(&f);
}

static void
test_axes(void)
{
    sample f;
    half_a_segment(&f);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    /* 2 MiB are 0.00195 GiB; 4.001 ms are drawn. */
    CHECK_HAS(text, ">0.0002</text>");
    CHECK_HAS(text, ">0.001</text>");
    CHECK_HAS(text, ">0.0018</text>");
    CHECK_INT(count_of(text, "class=\"grid\""), 10);
    CHECK_HAS(text, "text-anchor=\"end\">GiB</text>");
    CHECK_HAS(text, "M319.94 375v4\"/><text class=\"quiet\" x=\"319.94\" y=\"391\" "
                    "text-anchor=\"middle\">1</text>");
    CHECK_HAS(text, "text-anchor=\"end\">time in ms</text>");
    ml_free(text);
    /* 20 seconds and 3 TiB. */
    ml_recording_detach(f.recording);
    for (size_t i = 0; i < f.device.event_count; i++) {
        f.events[i].time *= 5000;
    }
    f.events[0].size = UINT64_C(3) << 40;
    f.events[1].size = UINT64_C(2) << 40;
    text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, ">500</text>");
    CHECK_HAS(text, ">3000</text>");
    CHECK_HAS(text, ">20000</text>");
    CHECK_HAS(text, ">15000</text>");
    CHECK_HAS(text, "<title>5,000.000 ms\n");
    ml_free(text);
    sample_end(&f);
}

static void
test_what_is_missing_is_said(void)
{
    sample f;
    half_a_segment(&f);
    f.device.peak.allocated = 5 * MIB;
    f.device.overwritten_events = 1234;
    f.device.dropped_events = 5;
    /* In the middle of what is in use. */
    sample_event(&f, ML_ACTION_ALLOC, BASE + 4096, 1, 0);
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_HAS(text, "Before the first event that was kept, 5.00 MiB");
    CHECK_HAS(text, "and are not drawn: 1,234.</p>");
    CHECK_HAS(text, "the figures are too low: 5.</p>");
    CHECK_HAS(text, "<p>Events that do not fit the memory that there was: 1.</p>");
    ml_free(text);
    sample_end(&f);
}

static void
test_devices(void)
{
    sample f;
    half_a_segment(&f);
    ml_device_trace devices[3] = {f.device, {0}, f.device};
    f.recording->devices = devices;
    f.recording->device_count = 3;
    char *text = sample_document(&f, write_all);
    CHECK(text != NULL);
    CHECK_INT(count_of(text, "<h2>"), 2);
    CHECK_HAS(text, "<h2>Device 2: ");
    ml_free(text);
    text = sample_document(&f, write_second);
    CHECK(text != NULL);
    CHECK_HAS(text, "<h2>Device 1: max allocated 0 B, max reserved 0 B</h2>");
    CHECK_HAS(text, "No memory was allocated.");
    ml_free(text);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    half_a_segment(&f);
    CHECK(sample_failures(&f, write_all) > 15);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_one_block);
    RUN(test_axes);
    RUN(test_what_is_missing_is_said);
    RUN(test_devices);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
