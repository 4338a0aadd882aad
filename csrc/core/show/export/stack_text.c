/* Writes stacks at the peak as text.  See stack_text.h. */
#include "show/export/stack_text.h"

#include <string.h>

#include "analysis/answers/peak.h"
#include "show/text/markup.h"
#include "show/text/json.h"

typedef struct stack_text_work {
    const ml_recording *recording; /* borrowed */
    ml_buffer *out;
    ml_buffer text;
    uint32_t *path; /* owned; frames of a stack, outermost last */
    size_t path_capacity;
} stack_text_work;

static int
find_path(stack_text_work *w, const ml_recording *part, uint32_t stack, size_t *length)
{
    *length = 0;
    for (; stack != 0; stack = part->stacks[stack].parent) {
        if (ml_grow((void **)&w->path, &w->path_capacity, *length + 1,
                    sizeof(*w->path)) < 0) {
            return ML_ENOMEM;
        }
        w->path[(*length)++] = part->stacks[stack].frame;
    }
    return 0;
}

/* Calls PUT for each requested device with its live blocks at the peak. */
static int
each_device(stack_text_work *w, size_t device,
            int (*put)(stack_text_work *w, size_t device, const ml_recording *part,
                       const ml_peak *peak))
{
    int error = 0;
    for (size_t d = 0; d < w->recording->device_count && error == 0; d++) {
        if (device != ML_ALL_DEVICES && device != d) {
            continue;
        }
        size_t own = d;
        const ml_recording *part = ml_recording_part(w->recording, &own);
        ml_peak *peak = NULL;
        error = ml_peak_new(part, own, &peak);
        if (error == 0) {
            error = put(w, d, part, peak);
        }
        ml_peak_free(peak);
    }
    ml_free(w->path);
    ml_buffer_fini(&w->text);
    return error < 0 ? error : w->out->error;
}

/* ---- Folded lines ---- */

/* Frame text must not contain a separator or a line break. */
static void
put_frame_text(stack_text_work *w)
{
    for (size_t i = 0; i < w->text.length; i++) {
        char *c = &w->text.bytes[i];
        *c = *c == ';' ? ':' : (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
    }
    ml_text_replace_surrogates(w->text.bytes, w->text.length);
    ml_buffer_append(w->out, w->text.bytes, w->text.length);
}

static int
put_folded(stack_text_work *w, size_t device, const ml_recording *part,
           const ml_peak *peak)
{
    for (size_t i = 0; i < peak->stack_count; i++) {
        const ml_peak_stack *stack = &peak->stacks[i];
        size_t length;
        int error = find_path(w, part, stack->stack, &length);
        if (error < 0) {
            return error;
        }
        if (w->recording->device_count > 1) {
            char name[ML_DEVICE_LABEL];
            ml_recording_device_name(w->recording, device, name, sizeof(name));
            w->text.length = 0;
            ml_markup(&w->text, name);
            put_frame_text(w);
            ml_markup(w->out, ";");
        }
        if (length == 0) {
            ml_markup(w->out, ml_no_line_text(stack->no_line));
        }
        while (length-- > 0) {
            w->text.length = 0;
            ml_markup_frame(&w->text, part, w->path[length], false);
            put_frame_text(w);
            ml_markup(w->out, length > 0 ? ";" : "");
        }
        ml_markup(w->out, " ");
        ml_markup_unsigned(w->out, stack->bytes);
        ml_markup(w->out, "\n");
    }
    return w->text.error;
}

int
ml_stack_folded(const ml_recording *recording, size_t device, ml_buffer *out)
{
    stack_text_work w = {.recording = recording, .out = out};
    return each_device(&w, device, put_folded);
}

/* ---- speedscope ---- */

/* The recording's frames, then one for each reason to have none. */
static void
put_frames(ml_buffer *out, const ml_recording *recording)
{
    ml_json_text(out, "\"shared\":{\"frames\":[");
    for (size_t i = 0; i < recording->frame_count; i++) {
        const ml_frame *frame = &recording->frames[i];
        ml_json_next(out);
        ml_json_text(out, "{\"name\":");
        ml_json_id(out, recording, frame->name);
        if (frame->filename != 0) {
            ml_json_text(out, ",\"file\":");
            ml_json_id(out, recording, frame->filename);
        }
        if (frame->line > 0) {
            ml_json_text(out, ",\"line\":");
            ml_markup_unsigned(out, (uint64_t)frame->line);
        }
        ml_json_text(out, "}");
    }
    for (unsigned i = 0; i < ML_NO_LINE_COUNT; i++) {
        ml_json_next(out);
        ml_json_text(out, "{\"name\":");
        ml_json_c_string(out, ml_no_line_text(i));
        ml_json_text(out, "}");
    }
    ml_json_text(out, "]}");
}

static int
put_samples(stack_text_work *w, const ml_recording *part, const ml_peak *peak)
{
    ml_json_text(w->out, ",\"samples\":[");
    for (size_t i = 0; i < peak->stack_count; i++) {
        const ml_peak_stack *stack = &peak->stacks[i];
        size_t length;
        int error = find_path(w, part, stack->stack, &length);
        if (error < 0) {
            return error;
        }
        ml_json_next(w->out);
        ml_json_text(w->out, "[");
        if (length == 0) {
            ml_markup_unsigned(w->out, part->frame_count + stack->no_line);
        }
        while (length-- > 0) {
            ml_markup_unsigned(w->out, w->path[length]);
            ml_json_text(w->out, length > 0 ? "," : "");
        }
        ml_json_text(w->out, "]");
    }
    ml_json_text(w->out, "]");
    return 0;
}

static int
put_profile(stack_text_work *w, size_t device, const ml_recording *part,
            const ml_peak *peak)
{
    char name[ML_DEVICE_LABEL];
    ml_recording_device_name(w->recording, device, name, sizeof(name));
    w->text.length = 0;
    ml_markup(&w->text, name);
    ml_markup(&w->text, " at its peak");
    ml_json_next(w->out);
    ml_json_text(w->out, "{\"type\":\"sampled\",\"unit\":\"bytes\",\"name\":");
    ml_json_string(w->out, w->text.bytes, w->text.length);
    ml_json_text(w->out, ",\"startValue\":0,\"endValue\":");
    ml_markup_unsigned(w->out, peak->totals.allocated);
    int error = put_samples(w, part, peak);
    ml_json_text(w->out, ",\"weights\":[");
    for (size_t i = 0; i < peak->stack_count; i++) {
        ml_json_next(w->out);
        ml_markup_unsigned(w->out, peak->stacks[i].bytes);
    }
    ml_json_text(w->out, "]}");
    return error < 0 ? error : w->text.error;
}

int
ml_stack_speedscope(const ml_recording *recording, size_t device, ml_buffer *out)
{
    stack_text_work w = {.recording = recording, .out = out};
    ml_json_text(out,
                 "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
                 "\"exporter\":\"memlab\",\"activeProfileIndex\":0,");
    put_frames(out, recording);
    ml_json_text(out, ",\"profiles\":[");
    int error = each_device(&w, device, put_profile);
    ml_json_text(out, "]}\n");
    return error < 0 ? error : out->error;
}
