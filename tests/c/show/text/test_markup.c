/* Text for pictures: any string stays inside its element; numbers read as in reports. */
#include "show/text/markup.h"

#include <string.h>

#include "recording_samples.h"
#include "test.h"

#define CHECK_BUFFER(buffer, want) \
    do { \
        CHECK_INT((buffer).error, 0); \
        CHECK_TEXT((buffer).bytes, (buffer).length, want); \
        (buffer).length = 0; \
    } while (0)

/* Strings on the left are shown as on the right. */
static const struct {
    const char *bytes;
    size_t length;
    const char *shown;
} strings[] = {
    {"forward", 7, "forward"},
    {"a<b>&\"c'", 8, "a&lt;b&gt;&amp;&quot;c&#39;"},
    {"]]></script>-->", 15, "]]&gt;&lt;/script&gt;--&gt;"},
    {"\0\t\n\r\x1b\x7f", 6,
     "\xe2\x90\x80\xe2\x90\x89\xe2\x90\x8a\xe2\x90\x8d\xe2\x90\x9b\xe2\x90\xa1"},
    {"x\xc2\x85y", 4, "x\xef\xbf\xbdy"},
    /* A lone surrogate; the direction turned around; a line separator; no character. */
    {"\xed\xa0\x80", 3, "\xef\xbf\xbd"},
    {"a\xe2\x80\xae!", 5, "a\xef\xbf\xbd!"},
    {"\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8f\xd8\x9c", 11,
     "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xe2\x80\xa8", 3, "\xef\xbf\xbd"},
    {"\xef\xbf\xbe\xef\xbf\xbf", 6, "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xff\xc0z", 3, "\xef\xbf\xbd\xef\xbf\xbdz"},
    {"\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
    {"gr\xc3\xbc\xc3\x9f\xf0\x9f\x98\x80", 10, "gr\xc3\xbc\xc3\x9f\xf0\x9f\x98\x80"},
};

static void
test_strings(void)
{
    ml_buffer out = {0};
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        ml_markup_text(&out, strings[i].bytes, strings[i].length);
        CHECK_BUFFER(out, strings[i].shown);
    }
    ml_buffer_fini(&out);
}

static void
test_no_byte_is_markup(void)
{
    ml_buffer out = {0};
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char bytes[2] = {(char)(pair >> 8), (char)(pair & 0xff)};
        ml_markup_text(&out, bytes, 2);
    }
    CHECK_INT(out.error, 0);
    unsigned c;
    for (size_t at = 0; at < out.length;) {
        size_t step =
            ml_utf8_decode((unsigned char *)out.bytes + at, out.length - at, &c);
        CHECK(step > 0);
        CHECK(c >= 0x20 && c != 0x7f && c != '<' && c != '>' && c != '"' && c != '\'');
        at += step;
    }
    ml_buffer_fini(&out);
}

static void
test_cut(void)
{
    ml_buffer out = {0};
    ml_markup_cut(&out, "abcdef", 6, 6);
    CHECK_BUFFER(out, "abcdef");
    ml_markup_cut(&out, "abcdef", 6, 5);
    CHECK_BUFFER(out, "abcd\xe2\x80\xa6");
    ml_markup_cut(&out, "abcdef", 6, 1);
    CHECK_BUFFER(out, "\xe2\x80\xa6");
    ml_markup_cut(&out, "abcdef", 6, 0);
    CHECK_BUFFER(out, "");
    /* Two ideographs, each as wide as two letters. */
    ml_markup_cut(&out, "\xe8\xa8\x98\xe6\x86\xb6", 6, 4);
    CHECK_BUFFER(out, "\xe8\xa8\x98\xe6\x86\xb6");
    ml_markup_cut(&out, "\xe8\xa8\x98\xe6\x86\xb6", 6, 3);
    CHECK_BUFFER(out, "\xe8\xa8\x98\xe2\x80\xa6");
    ml_markup_cut(&out, "<<<<", 4, 3);
    CHECK_BUFFER(out, "&lt;&lt;\xe2\x80\xa6");
    ml_buffer_fini(&out);
}

static const struct {
    uint64_t bytes;
    const char *text;
} sizes[] = {
    {0, "0 B"},
    {1023, "1023 B"},
    {1024, "1.00 KiB"},
    {1536, "1.50 KiB"},
    /* 1.125 and 1.375, to the even digit. */
    {1152, "1.12 KiB"},
    {1408, "1.38 KiB"},
    /* 1023.999 KiB is 1.00 MiB; 999.499 and 999.5 KiB; 9.994 and 9.996 MiB. */
    {(1 << 20) - 1, "1.00 MiB"},
    {1023487, "999 KiB"},
    {1023488, "0.976 MiB"},
    {10479468, "9.99 MiB"},
    {10481565, "10.0 MiB"},
    /* 99.95 MiB is 104805171.2 bytes; 577.93 MiB. */
    {104805171, "99.9 MiB"},
    {104805172, "100 MiB"},
    {606000000, "578 MiB"},
    {(1 << 30) - 1, "1.00 GiB"},
    {UINT64_C(5) << 30, "5.00 GiB"},
    {UINT64_C(3) << 40, "3.00 TiB"},
    {UINT64_C(1) << 50, "1.00 PiB"},
    {(UINT64_C(1) << 60) - 1, "1.00 EiB"},
    /* 999.5 PiB, a tie of 1999 halves. */
    {UINT64_C(1999) << 49, "0.976 EiB"},
    {(UINT64_C(1) << 60) + (UINT64_C(1) << 59), "1.50 EiB"},
    {UINT64_MAX, "16.0 EiB"},
};

static void
test_numbers(void)
{
    ml_buffer out = {0};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ml_markup_size(&out, sizes[i].bytes);
        CHECK_BUFFER(out, sizes[i].text);
    }
    ml_markup_exact_size(&out, 1000);
    CHECK_BUFFER(out, "1000 B");
    ml_markup_exact_size(&out, 2097152);
    CHECK_BUFFER(out, "2.00 MiB (2,097,152 bytes)");
    ml_markup_count(&out, 999);
    CHECK_BUFFER(out, "999");
    ml_markup_count(&out, UINT64_MAX);
    CHECK_BUFFER(out, "18,446,744,073,709,551,615");
    ml_markup_address(&out, 0);
    CHECK_BUFFER(out, "0x0");
    ml_markup_address(&out, UINT64_MAX);
    CHECK_BUFFER(out, "0xffffffffffffffff");
    ml_markup_share(&out, 1, 3);
    CHECK_BUFFER(out, "33.3 %");
    ml_markup_share(&out, 5, 0);
    CHECK_BUFFER(out, "0.0 %");
    ml_markup_fixed(&out, 1200);
    CHECK_BUFFER(out, "12");
    ml_markup_fixed(&out, 1250);
    CHECK_BUFFER(out, "12.5");
    ml_markup_fixed(&out, 5);
    CHECK_BUFFER(out, "0.05");
    ml_buffer_fini(&out);
}

static void
test_frames(void)
{
    sample f;
    sample_begin(&f);
    ml_recording *recording = f.recording;
    uint32_t outer = sample_call(recording, 0, "/u/train.py", 12, "main", NULL);
    uint32_t inner = sample_call(recording, outer, "", 0, "at::add<int>", NULL);
    ml_buffer out = {0};
    ml_markup_frame(&out, recording, recording->stacks[outer].frame, false);
    CHECK_BUFFER(out, "main train.py:12");
    ml_markup_frame(&out, recording, recording->stacks[outer].frame, true);
    CHECK_BUFFER(out, "main /u/train.py:12");
    ml_markup_frame(&out, recording, 0, true);
    CHECK_BUFFER(out, "(unknown)");
    ml_markup_stack(&out, recording, inner, 2);
    CHECK_BUFFER(out, "\nat::add&lt;int&gt;\nmain /u/train.py:12");
    ml_markup_stack(&out, recording, inner, 1);
    CHECK_BUFFER(out, "\nat::add&lt;int&gt;\n...");
    ml_markup_category(&out, ML_CATEGORY_OPTIMIZER_STATE);
    CHECK_BUFFER(out, "optimizer state");
    ml_buffer_fini(&out);
    sample_end(&f);
}

static void
test_scale(void)
{
    CHECK_UINT(ml_markup_scale(1, 3, 100), 33);
    CHECK_UINT(ml_markup_scale(2, 3, 100), 67);
    CHECK_UINT(ml_markup_scale(UINT64_MAX, UINT64_MAX, 120000), 120000);
    CHECK_UINT(ml_markup_scale(7, 2, 100), 100);
    CHECK_UINT(ml_markup_add(UINT64_MAX, 1), UINT64_MAX);
}

int
main(void)
{
    RUN(test_strings);
    RUN(test_no_byte_is_markup);
    RUN(test_cut);
    RUN(test_numbers);
    RUN(test_frames);
    RUN(test_scale);
    return TEST_RESULT();
}
