/* Writes a recording as JSON, by a builder of the schema that refers to stacks by
 * number. */
#include "show/export/recording_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "file/snapshot/torch_schema.h"
#include "show/text/json.h"

#define VERSION 2
#define BUFFER_BYTES ((size_t)64 * 1024)

typedef struct writer {
    ml_builder builder; /* first, so that a builder can be cast to a writer */
    const ml_recording *recording;
    ml_sink sink;
    void *sink_context;
    ml_buffer out; /* not yet passed to the sink */
    bool expand;
    unsigned depth;
    /* Of each open container: whether it is a dict, whose values follow keys. */
    bool dict[ML_DEPTH_MAX];
    uint64_t count[ML_DEPTH_MAX]; /* values so far */
} writer;

static writer *
writer_of(ml_builder *builder)
{
    return (writer *)builder;
}

static void
flush(writer *w)
{
    if (w->builder.error == 0) {
        w->builder.error = w->out.error;
    }
    if (w->builder.error == 0) {
        w->builder.error = w->sink(w->sink_context, w->out.bytes, w->out.length);
    }
    w->out.length = 0;
}

/* Writes the separator before a value. */
static void
begin_value(writer *w)
{
    if (w->out.length >= BUFFER_BYTES) {
        flush(w);
    }
    if (w->depth == 0) {
        return;
    }
    uint64_t before = w->count[w->depth - 1]++;
    if (before != 0) {
        bool value = w->dict[w->depth - 1] && before % 2 != 0;
        ml_json_text(&w->out, value ? ":" : ",");
    }
}

static void
number(writer *w, int64_t integer)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, integer);
    ml_json_text(&w->out, text);
}

/* Frames; and stacks, each by its innermost frame and its callers' stack.  Both tables
 * begin with the unknown one. */
static void
put_tables(writer *w)
{
    const ml_recording *recording = w->recording;
    ml_json_text(&w->out, "\"version\":");
    number(w, VERSION);
    ml_json_text(&w->out, ",\"frames\":[");
    for (size_t i = 0; i < recording->frame_count && w->builder.error == 0; i++) {
        const ml_frame *frame = &recording->frames[i];
        ml_json_text(&w->out, i != 0 ? ",{\"name\":" : "{\"name\":");
        ml_json_id(&w->out, recording, frame->name);
        ml_json_text(&w->out, ",\"filename\":");
        ml_json_id(&w->out, recording, frame->filename);
        ml_json_text(&w->out, ",\"line\":");
        number(w, frame->line);
        ml_json_text(&w->out, "}");
        if (w->out.length >= BUFFER_BYTES) {
            flush(w);
        }
    }
    ml_json_text(&w->out, "],\"stacks\":[");
    for (size_t i = 0; i < recording->stack_count && w->builder.error == 0; i++) {
        ml_json_text(&w->out, i != 0 ? ",[" : "[");
        number(w, recording->stacks[i].frame);
        ml_json_text(&w->out, ",");
        number(w, recording->stacks[i].parent);
        ml_json_text(&w->out, "]");
        if (w->out.length >= BUFFER_BYTES) {
            flush(w);
        }
    }
    ml_json_text(&w->out, "],");
}

static void
open_container(ml_builder *builder, enum ml_value_kind kind)
{
    writer *w = writer_of(builder);
    bool dict = kind == ML_VALUE_DICT;
    begin_value(w);
    ml_json_text(&w->out, dict ? "{" : "[");
    if (w->depth == 0 && !w->expand) {
        put_tables(w);
    }
    w->dict[w->depth] = dict;
    w->count[w->depth++] = 0;
}

static void
close_container(ml_builder *builder)
{
    writer *w = writer_of(builder);
    ml_json_text(&w->out, w->dict[--w->depth] ? "}" : "]");
}

static void
put_integer(ml_builder *builder, int64_t integer)
{
    begin_value(writer_of(builder));
    number(writer_of(builder), integer);
}

static void
put_boolean(ml_builder *builder, bool truth)
{
    begin_value(writer_of(builder));
    ml_json_text(&writer_of(builder)->out, truth ? "true" : "false");
}

/* JSON has no infinity and no NaN. */
static void
put_real(ml_builder *builder, double real)
{
    char text[40] = "null";
    begin_value(writer_of(builder));
    if (isfinite(real)) {
        snprintf(text, sizeof(text), "%.17g", real);
        if (strpbrk(text, ".e") == NULL) {
            strcat(text, ".0");
        }
    }
    ml_json_text(&writer_of(builder)->out, text);
}

static void
put_text(ml_builder *builder, const char *bytes, size_t length)
{
    begin_value(writer_of(builder));
    ml_json_string(&writer_of(builder)->out, bytes, length);
}

static void
put_word(ml_builder *builder, unsigned word)
{
    const char *text = ml_word_text(word);
    put_text(builder, text, strlen(text));
}

static void
put_string(ml_builder *builder, uint32_t id)
{
    const ml_string *string = &writer_of(builder)->recording->strings[id];
    put_text(builder, string->bytes, string->length);
}

static bool
recall(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    writer *w = writer_of(builder);
    if (w->expand || kind != ML_SHARED_FRAMES) {
        return false;
    }
    put_integer(builder, id);
    return true;
}

static void
keep(ml_builder *builder, enum ml_shared kind, uint32_t id)
{
    (void)builder;
    (void)kind;
    (void)id;
}

int
ml_recording_json_write(const ml_recording *recording, unsigned options, ml_sink sink,
                        void *context)
{
    writer w = {.builder = {.open = open_container,
                            .close = close_container,
                            .integer = put_integer,
                            .boolean = put_boolean,
                            .real = put_real,
                            .word = put_word,
                            .string = put_string,
                            .text = put_text,
                            .recall = recall,
                            .keep = keep},
                .recording = recording,
                .sink = sink,
                .sink_context = context,
                .expand = (options & ML_RECORDING_JSON_EXPAND) != 0};
    ml_torch_schema_build(recording, 0, &w.builder);
    flush(&w);
    ml_buffer_fini(&w.out);
    return w.builder.error;
}
