/* Writes a flame graph's folded lines.  See flame.h. */
#include "show/draw/flame.h"

#include "show/draw/flame_tree.h"

typedef struct folding {
    const ml_recording *recording; /* borrowed */
    ml_buffer *out;
    const char *head; /* prefix of each line */
    ml_buffer prefix;
    uint32_t *path; /* owned; frames of one stack */
    size_t path_capacity;
    uint8_t *noise;      /* owned; see ml_flame_is_noise */
    uint32_t last_stack; /* the stack of FRAMES */
    ml_buffer frames;
} folding;

static void
put_signed(ml_buffer *out, uint64_t value)
{
    int64_t number = (int64_t)value;
    if (number < 0) {
        ml_markup(out, "-");
        value = 0 - value;
    }
    ml_markup_unsigned(out, value);
}

/* torch's order and base names: "file:line:function". */
static void
put_folded_frame(ml_buffer *out, const ml_recording *recording, uint32_t frame)
{
    const ml_frame *f = &recording->frames[frame];
    ml_string file = recording->strings[f->filename];
    ml_string name = recording->strings[f->name];
    uint32_t start = file.length;
    while (start > 0 && file.bytes[start - 1] != '/') {
        start--;
    }
    ml_buffer_append(out, file.bytes + start, file.length - start);
    ml_markup(out, ":");
    put_signed(out, (uint64_t)f->line);
    ml_markup(out, ":");
    ml_buffer_append(out, name.bytes, name.length);
}

static int
fold_frames(folding *f, uint32_t stack)
{
    const ml_stack *stacks = f->recording->stacks;
    size_t length = 0;
    f->frames.length = 0;
    if (stack == 0) {
        ml_markup(&f->frames, "<non-python>");
        return 0;
    }
    for (; stack != 0; stack = stacks[stack].parent) {
        if (ml_grow((void **)&f->path, &f->path_capacity, length + 1,
                    sizeof(*f->path)) < 0) {
            return ML_ENOMEM;
        }
        f->path[length++] = stacks[stack].frame;
    }
    bool first = true;
    while (length-- > 0) {
        if (!ml_flame_is_noise(f->recording, f->noise, f->path[length])) {
            ml_markup(&f->frames, first ? "" : ";");
            put_folded_frame(&f->frames, f->recording, f->path[length]);
            first = false;
        }
    }
    return 0;
}

static void
put_line(folding *f, const char *state, const ml_buffer *frames, uint64_t bytes)
{
    ml_buffer_append(f->out, f->prefix.bytes, f->prefix.length);
    ml_markup(f->out, ";");
    ml_markup(f->out, state);
    ml_markup(f->out, ";");
    if (frames != NULL) {
        ml_buffer_append(f->out, frames->bytes, frames->length);
    }
    else {
        ml_markup(f->out, "<gaps>");
    }
    ml_markup(f->out, " ");
    put_signed(f->out, bytes);
    ml_markup(f->out, "\n");
}

static int
fold_segment(folding *f, const ml_device_trace *trace, const ml_segment *segment,
             enum ml_flame_what what)
{
    static const char *const states[] = {[ML_BLOCK_INACTIVE] = "inactive",
                                         [ML_BLOCK_ALLOCATED] = "active_allocated",
                                         [ML_BLOCK_PENDING_FREE] =
                                             "active_pending_free"};
    f->prefix.length = 0;
    ml_markup(&f->prefix, f->head);
    ml_markup(&f->prefix, "stream_");
    put_signed(&f->prefix, segment->stream);
    if (what == ML_FLAME_SEGMENTS) {
        ml_markup(&f->prefix, ";seg_");
        put_signed(&f->prefix, segment->addr);
    }
    for (size_t b = 0; b < segment->block_count; b++) {
        const ml_block *block = &trace->blocks[segment->first_block + b];
        if (block->stack != f->last_stack || f->frames.length == 0) {
            int error = fold_frames(f, block->stack);
            if (error < 0) {
                return error;
            }
            f->last_stack = block->stack;
        }
        put_line(f, states[block->state], &f->frames, block->requested);
        if (block->size != block->requested) {
            put_line(f, states[block->state], NULL, block->size - block->requested);
        }
    }
    return 0;
}

static int
folding_init(folding *f, const ml_recording *recording, ml_buffer *out)
{
    *f = (folding){.recording = recording,
                   .out = out,
                   .head = "",
                   .noise = ml_alloc_zeroed(recording->frame_count, 1)};
    return f->noise == NULL ? ML_ENOMEM : 0;
}

/* The result: ERROR, or the buffer's own error. */
static int
folding_fini(folding *f, int error)
{
    if (error == 0) {
        error = f->prefix.error != 0 ? f->prefix.error : f->frames.error;
        error = error != 0 ? error : f->out->error;
    }
    ml_buffer_fini(&f->prefix);
    ml_buffer_fini(&f->frames);
    ml_free(f->path);
    ml_free(f->noise);
    return error;
}

int
ml_flame_folded(const ml_recording *recording, size_t device, enum ml_flame_what what,
                ml_buffer *out)
{
    folding f;
    int error = folding_init(&f, recording, out);
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        bool wanted_device = device == ML_ALL_DEVICES || device == d;
        for (size_t i = 0; wanted_device && i < trace->segment_count && error == 0;
             i++) {
            error = fold_segment(&f, trace, &trace->segments[i], what);
        }
    }
    return folding_fini(&f, error);
}

static bool
has_segment(const ml_recording *recording, size_t device, const ml_segment *segment)
{
    if (device >= recording->device_count) {
        return false;
    }
    const ml_device_trace *trace = &recording->devices[device];
    size_t at = ml_find_address(trace->segments, sizeof(*trace->segments),
                                trace->segment_count, segment->addr);
    return at < trace->segment_count && trace->segments[at].addr == segment->addr &&
           trace->segments[at].total == segment->total;
}

/* Writes the segments of RECORDING that OTHER lacks, after HEAD. */
static int
fold_others(const ml_recording *recording, const ml_recording *other, const char *head,
            ml_buffer *out)
{
    folding f;
    int error = folding_init(&f, recording, out);
    f.head = head;
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->segment_count && error == 0; i++) {
            const ml_segment *segment = &trace->segments[i];
            if (!has_segment(other, d, segment)) {
                error = fold_segment(&f, trace, segment, ML_FLAME_SEGMENTS);
            }
        }
    }
    return folding_fini(&f, error);
}

int
ml_flame_folded_difference(const ml_recording *before, const ml_recording *after,
                           ml_buffer *out)
{
    int error = fold_others(before, after, "only_before;", out);
    return error < 0 ? error : fold_others(after, before, "only_after;", out);
}
