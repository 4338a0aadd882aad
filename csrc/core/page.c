/* Writes the viewer's page data.  See page.h.
 *
 * What the page needs of the replay is kept, one item an event, before anything is
 * written: columns come one after the other, and one replay serves them all. */
#include "page.h"

#include <stdbool.h>
#include <string.h>

#include "peak_groups.h"
#include "purposes.h"
#include "replay.h"

/* Grows when the page has to read something else. */
#define FORMAT 1u
/* Bytes of a number with sign and quotes. */
#define DIGITS 24
/* JavaScript counts exactly up to here; larger integers are written as strings. */
#define EXACT (UINT64_C(1) << 53)

/* ---- JSON ---- */

static void
put_text(ml_buffer *out, const char *text)
{
    ml_buffer_append(out, text, strlen(text));
}

static void
put_integer(ml_buffer *out, uint64_t magnitude, bool negative)
{
    char text[DIGITS];
    size_t at = sizeof(text);
    bool quoted = magnitude > EXACT;
    if (quoted) {
        text[--at] = '"';
    }
    do {
        text[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude != 0);
    if (negative) {
        text[--at] = '-';
    }
    if (quoted) {
        text[--at] = '"';
    }
    ml_buffer_append(out, text + at, sizeof(text) - at);
}

static void
put_unsigned(ml_buffer *out, uint64_t value)
{
    put_integer(out, value, false);
}

static void
put_signed(ml_buffer *out, int64_t value)
{
    put_integer(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

/* NOW less BEFORE. */
static void
put_change(ml_buffer *out, uint64_t before, uint64_t now)
{
    put_integer(out, now < before ? before - now : now - before, now < before);
}

static void
put_escape(ml_buffer *out, unsigned unit)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u'};
    for (int i = 0; i < 4; i++) {
        text[2 + i] = hex[(unit >> (12 - 4 * i)) & 0xfu];
    }
    ml_buffer_append(out, text, sizeof(text));
}

/* What JSON forbids, what could end the element that holds the data, and what the page's
 * own encoding has no bytes for. */
static bool
needs_escape(unsigned character)
{
    return character < 0x20 || character == '"' || character == '\\' ||
           character == '<' || character == '>' || character == '&' ||
           (character >= 0x7f && character < 0xa0) || character == 0x2028 ||
           character == 0x2029 || (character >= 0xd800 && character < 0xe000);
}

static void
put_string(ml_buffer *out, const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t done = 0; /* bytes written */
    put_text(out, "\"");
    for (size_t at = 0; at < length;) {
        unsigned character = 0xfffd;
        size_t taken = ml_utf8_decode(bytes + at, length - at, &character);
        if (taken > 0 && !needs_escape(character)) {
            at += taken;
            continue;
        }
        ml_buffer_append(out, text + done, at - done);
        put_escape(out, character);
        at += taken > 0 ? taken : 1;
        done = at;
    }
    ml_buffer_append(out, text + done, length - done);
    put_text(out, "\"");
}

static void
put_c_string(ml_buffer *out, const char *text)
{
    put_string(out, text, strlen(text));
}

static void
put_key(ml_buffer *out, const char *key)
{
    if (out->length > 0 && out->bytes[out->length - 1] != '{') {
        put_text(out, ",");
    }
    put_text(out, "\"");
    put_text(out, key);
    put_text(out, "\":");
}

static void
put_key_unsigned(ml_buffer *out, const char *key, uint64_t value)
{
    put_key(out, key);
    put_unsigned(out, value);
}

/* The key KEY with a list of COUNT items, each written by the statement PUT, in which
 * INDEX is its number. */
#define PUT_COLUMN(out, key, index, count, put) \
    do { \
        put_key((out), (key)); \
        put_text((out), "["); \
        for (size_t index = 0; index < (count); index++) { \
            if (index > 0) { \
                put_text((out), ","); \
            } \
            put; \
        } \
        put_text((out), "]"); \
    } while (0)

/* ---- tables shared by the devices ---- */

static void
put_tables(ml_buffer *out, const ml_recording *recording)
{
    const ml_string *strings = recording->strings;
    const ml_frame *frames = recording->frames;
    const ml_stack *stacks = recording->stacks;
    PUT_COLUMN(out, "actions", i, (size_t)ML_ACTION_COUNT,
               put_c_string(out, ml_action_text((unsigned)i)));
    PUT_COLUMN(out, "categories", i, (size_t)ML_CATEGORY_COUNT,
               put_c_string(out, ml_category_text((unsigned)i)));
    PUT_COLUMN(out, "strings", i, recording->string_count,
               put_string(out, strings[i].bytes, strings[i].length));
    put_key(out, "frames");
    put_text(out, "{");
    PUT_COLUMN(out, "name", i, recording->frame_count,
               put_unsigned(out, frames[i].name));
    PUT_COLUMN(out, "file", i, recording->frame_count,
               put_unsigned(out, frames[i].filename));
    PUT_COLUMN(out, "line", i, recording->frame_count, put_signed(out, frames[i].line));
    put_text(out, "}");
    put_key(out, "stacks");
    put_text(out, "{");
    PUT_COLUMN(out, "parent", i, recording->stack_count,
               put_unsigned(out, stacks[i].parent));
    PUT_COLUMN(out, "frame", i, recording->stack_count,
               put_unsigned(out, stacks[i].frame));
    put_text(out, "}");
}

/* ---- the line that stands for each stack ---- */

/* Grouping a peak that has one block of no bytes a stack tells the line of every stack,
 * by the one rule there is for it.  To be freed with ml_peak_free. */
static int
find_lines(const ml_recording *recording, ml_peak **out)
{
    ml_peak *every = ml_alloc_zeroed(1, sizeof(*every));
    if (every == NULL) {
        return ML_ENOMEM;
    }
    every->blocks = ml_alloc_zeroed(recording->stack_count, sizeof(*every->blocks));
    if (every->blocks == NULL) {
        ml_peak_free(every);
        return ML_ENOMEM;
    }
    every->block_count = recording->stack_count;
    ml_stack_facts facts;
    int code = ml_stack_facts_init(&facts, recording);
    for (size_t i = 0; code == 0 && i < every->block_count; i++) {
        ml_standing line = ml_stack_facts_line(&facts, (uint32_t)i);
        bool known = line.place < ML_PLACE_NATIVE;
        every->blocks[i].cause =
            (ml_cause){.stack = (uint32_t)i,
                       .frame = known ? line.frame : 0,
                       .how = known ? ML_HOW_FRAMES : ML_HOW_NONE,
                       .no_line = known ? ML_NO_LINE_NONE : ML_NO_LINE_EMPTY};
    }
    if (code == 0) {
        code = ml_peak_group(every, recording);
        ml_stack_facts_fini(&facts);
    }
    if (code != 0) {
        ml_peak_free(every);
        return code;
    }
    *out = every;
    return 0;
}

static void
put_lines(ml_buffer *out, const ml_peak *every)
{
    const ml_peak_line *lines = every->lines;
    put_key(out, "lines");
    put_text(out, "{");
    PUT_COLUMN(out, "file", i, every->line_count,
               put_string(out, lines[i].file.bytes, lines[i].file.length));
    PUT_COLUMN(out, "function", i, every->line_count,
               put_string(out, lines[i].function.bytes, lines[i].function.length));
    PUT_COLUMN(out, "line", i, every->line_count, put_signed(out, lines[i].line));
    PUT_COLUMN(out, "of_stack", i, every->block_count,
               put_unsigned(out, every->blocks[i].line));
    put_text(out, "}");
}

/* ---- what a replay adds to the events ---- */

typedef struct completed {
    uint64_t block_bytes;
    ml_totals totals; /* after the event */
    uint32_t origin;  /* stack id */
} completed;

/* One item an event, owned by the caller. */
static int
complete_events(const ml_recording *recording, size_t device, completed **out)
{
    size_t count = recording->devices[device].event_count;
    ml_replay *replay = NULL;
    completed *items = ml_alloc_zeroed(count > 0 ? count : 1, sizeof(*items));
    if (items == NULL) {
        return ML_ENOMEM;
    }
    int code = ml_replay_new(recording, device, &replay);
    if (code != 0) {
        ml_free(items);
        return code;
    }
    for (size_t i = 0; i < count; i++) {
        const ml_event *event = ml_replay_next(replay);
        items[i].block_bytes = event->block_bytes;
        items[i].origin = event->origin_stack;
        items[i].totals = *ml_replay_totals(replay);
    }
    ml_replay_free(replay);
    *out = items;
    return 0;
}

/* ---- one device ---- */

static uint64_t
microseconds(const ml_event *event)
{
    return event->time / 1000;
}

static void
put_events(ml_buffer *out, const ml_device_trace *device, const completed *items,
           uint64_t base_us)
{
    const ml_event *events = device->events;
    size_t count = device->event_count;
    put_key(out, "events");
    put_text(out, "{");
    PUT_COLUMN(out, "action", i, count, put_unsigned(out, events[i].action));
    PUT_COLUMN(out, "backward", i, count,
               put_unsigned(out, (events[i].flags & ML_EVENT_BACKWARD) != 0));
    PUT_COLUMN(out, "addr", i, count, put_unsigned(out, events[i].addr));
    PUT_COLUMN(out, "size", i, count, put_unsigned(out, events[i].size));
    PUT_COLUMN(out, "block", i, count, put_unsigned(out, items[i].block_bytes));
    PUT_COLUMN(out, "stream", i, count, put_unsigned(out, events[i].stream));
    /* Each from the one before: short to write, and the page sums them anyway. */
    PUT_COLUMN(out, "time", i, count,
               put_change(out, i > 0 ? microseconds(&events[i - 1]) : base_us,
                          microseconds(&events[i])));
    PUT_COLUMN(out, "stack", i, count, put_unsigned(out, events[i].stack));
    PUT_COLUMN(out, "origin", i, count, put_unsigned(out, items[i].origin));
    put_text(out, "}");
}

/* As changes: most are 0, and the page sums them. */
static void
put_totals(ml_buffer *out, const completed *items, size_t count)
{
    static const ml_totals none = {0};
    put_key(out, "totals");
    put_text(out, "{");
#define XX(name) \
    PUT_COLUMN(out, #name, i, count, \
               put_change(out, (i > 0 ? items[i - 1].totals : none).name, \
                          items[i].totals.name));
    ML_TOTALS(XX)
#undef XX
    put_text(out, "}");
}

static void
put_memory(ml_buffer *out, const ml_device_trace *device)
{
    const ml_segment *segments = device->segments;
    const ml_block *blocks = device->blocks;
    size_t count = device->segment_count;
    put_key(out, "segments");
    put_text(out, "{");
    PUT_COLUMN(out, "addr", i, count, put_unsigned(out, segments[i].addr));
    PUT_COLUMN(out, "total", i, count, put_unsigned(out, segments[i].total));
    PUT_COLUMN(out, "stream", i, count, put_unsigned(out, segments[i].stream));
    PUT_COLUMN(out, "small", i, count, put_unsigned(out, segments[i].small));
    PUT_COLUMN(out, "expandable", i, count, put_unsigned(out, segments[i].expandable));
    PUT_COLUMN(out, "stack", i, count, put_unsigned(out, segments[i].stack));
    PUT_COLUMN(out, "first", i, count, put_unsigned(out, segments[i].first_block));
    PUT_COLUMN(out, "count", i, count, put_unsigned(out, segments[i].block_count));
    put_text(out, "}");
    count = device->block_count;
    put_key(out, "blocks");
    put_text(out, "{");
    PUT_COLUMN(out, "addr", i, count, put_unsigned(out, blocks[i].addr));
    PUT_COLUMN(out, "size", i, count, put_unsigned(out, blocks[i].size));
    PUT_COLUMN(out, "requested", i, count, put_unsigned(out, blocks[i].requested));
    PUT_COLUMN(out, "state", i, count, put_unsigned(out, blocks[i].state));
    PUT_COLUMN(out, "stack", i, count, put_unsigned(out, blocks[i].stack));
    put_text(out, "}");
}

/* What each allocation is for: of events that allocate, and of the blocks that were
 * there before them. */
static void
put_owners(ml_buffer *out, const ml_purposes *of, size_t count)
{
    const ml_lives *lives = &of->lives;
    put_key(out, "owners");
    put_text(out, "{");
    PUT_COLUMN(out, "category", i, count, put_unsigned(out, of->events[i].category));
    PUT_COLUMN(out, "name", i, count, put_unsigned(out, lives->of_event[i].name));
    PUT_COLUMN(out, "before_addr", i, lives->before_count,
               put_unsigned(out, lives->before_addr[i]));
    PUT_COLUMN(out, "before_category", i, lives->before_count,
               put_unsigned(out, of->before[i].category));
    PUT_COLUMN(out, "before_name", i, lives->before_count,
               put_unsigned(out, lives->before[i].name));
    put_text(out, "}");
}

static void
put_losses(ml_buffer *out, const ml_device_trace *device)
{
    put_key(out, "losses");
    put_text(out, "{");
    put_key_unsigned(out, "overwritten_events", device->overwritten_events);
    put_key_unsigned(out, "dropped_events", device->dropped_events);
    put_key_unsigned(out, "lost_stacks", device->lost_stacks);
    put_key_unsigned(out, "lost_names", device->lost_names);
    put_text(out, "}");
}

static void
put_total_values(ml_buffer *out, const ml_totals *totals)
{
#define XX(name) put_key_unsigned(out, #name, totals->name);
    ML_TOTALS(XX)
#undef XX
}

/* Of each line of PEAK the stack of one of its blocks, which tells the line's number
 * among all lines; owned by the caller. */
static int
sample_stacks(const ml_peak *peak, uint32_t **out)
{
    uint32_t *stacks = ml_alloc_zeroed(peak->line_count + 1, sizeof(*stacks));
    if (stacks == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < peak->block_count; i++) {
        stacks[peak->blocks[i].line] = peak->blocks[i].cause.stack;
    }
    *out = stacks;
    return 0;
}

static void
put_peak_lines(ml_buffer *out, const ml_peak *peak, const uint32_t *stacks,
               const ml_peak *every)
{
    const ml_peak_line *lines = peak->lines;
    size_t count = peak->line_count;
    put_key(out, "by_line");
    put_text(out, "{");
    PUT_COLUMN(out, "line", i, count, put_unsigned(out, every->blocks[stacks[i]].line));
    PUT_COLUMN(out, "phase", i, count,
               put_c_string(out, ml_phase_text(lines[i].phase)));
    PUT_COLUMN(out, "why_no_line", i, count,
               put_c_string(out, ml_no_line_text(lines[i].no_line)));
    PUT_COLUMN(out, "bytes", i, count, put_unsigned(out, lines[i].bytes));
    PUT_COLUMN(out, "blocks", i, count, put_unsigned(out, lines[i].blocks));
    put_text(out, "}");
}

static void
put_peak(ml_buffer *out, const ml_peak *peak, const uint32_t *stacks,
         const ml_peak *every)
{
    const ml_peak_sum *categories = peak->categories;
    const ml_peak_overhead *overhead = &peak->overhead;
    put_key(out, "peak");
    put_text(out, "{");
    put_key(out, "event");
    put_signed(out, (int64_t)peak->position - 1);
    put_total_values(out, &peak->totals);
    put_key(out, "highest");
    put_text(out, "{");
    put_total_values(out, &peak->window_peaks);
    put_text(out, "}");
    put_key_unsigned(out, "earlier", peak->earlier);
    put_key_unsigned(out, "unattributed", peak->unattributed);
    put_peak_lines(out, peak, stacks, every);
    put_key(out, "by_category");
    put_text(out, "{");
    PUT_COLUMN(out, "bytes", i, (size_t)ML_CATEGORY_COUNT,
               put_unsigned(out, categories[i].bytes));
    PUT_COLUMN(out, "blocks", i, (size_t)ML_CATEGORY_COUNT,
               put_unsigned(out, categories[i].blocks));
    put_text(out, "}");
    put_key(out, "overhead");
    put_text(out, "{");
    put_key_unsigned(out, "inactive", overhead->inactive);
    put_key_unsigned(out, "slack", overhead->slack);
    put_key_unsigned(out, "largest_free", overhead->largest_free);
    put_key_unsigned(out, "free_blocks", overhead->free_blocks);
    put_key_unsigned(out, "segments", overhead->segments);
    put_text(out, "}");
    put_key_unsigned(out, "misfits", peak->replay.misfits);
    put_text(out, "}");
}

static int
put_device(ml_buffer *out, const ml_recording *recording, size_t index,
           const ml_peak *every, uint64_t base_us)
{
    const ml_device_trace *device = &recording->devices[index];
    size_t own = index;
    const ml_recording *part = ml_recording_part(recording, &own);
    completed *items = NULL;
    ml_peak *peak = NULL;
    uint32_t *stacks = NULL;
    ml_purposes of;
    int code = ml_purposes_init(&of, part, own);
    if (code == 0) {
        code = complete_events(part, own, &items);
    }
    if (code == 0) {
        code = ml_peak_new(part, own, &peak);
    }
    if (code == 0) {
        code = sample_stacks(peak, &stacks);
    }
    if (code == 0) {
        put_text(out, "{");
        put_key_unsigned(out, "index", index);
        if (part != recording) {
            char name[200];
            ml_recording_device_name(recording, index, name, sizeof(name));
            put_key(out, "name");
            put_string(out, name, strlen(name));
        }
        put_events(out, device, items, base_us);
        put_totals(out, items, device->event_count);
        put_peak(out, peak, stacks, every);
        put_memory(out, device);
        put_owners(out, &of, device->event_count);
        put_losses(out, device);
        put_text(out, "}");
    }
    ml_free(items);
    ml_free(stacks);
    ml_purposes_fini(&of);
    ml_peak_free(peak);
    return code;
}

/* The earliest event's, so that every device counts from the same moment. */
static uint64_t
first_microsecond(const ml_recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *device = &recording->devices[d];
        if (device->event_count > 0 && microseconds(&device->events[0]) < first) {
            first = microseconds(&device->events[0]);
        }
    }
    return first == UINT64_MAX ? 0 : first;
}

int
ml_page_write(const ml_recording *recording, ml_buffer *out)
{
    uint64_t base_us = first_microsecond(recording);
    ml_peak *every = NULL;
    int code = find_lines(recording, &every);
    if (code != 0) {
        return code;
    }
    put_text(out, "{");
    put_key_unsigned(out, "format", FORMAT);
    put_key(out, "source");
    if (recording->source_known) {
        put_c_string(out, recording->source);
    }
    else {
        put_text(out, "null");
    }
    put_key_unsigned(out, "foreign", recording->foreign);
    put_key_unsigned(out, "base_us", base_us);
    put_tables(out, recording);
    put_lines(out, every);
    put_key(out, "devices");
    put_text(out, "[");
    for (size_t d = 0; d < recording->device_count && code == 0; d++) {
        if (d > 0) {
            put_text(out, ",");
        }
        code = put_device(out, recording, d, every, base_us);
    }
    put_text(out, "]}");
    ml_peak_free(every);
    return code != 0 ? code : out->error;
}
