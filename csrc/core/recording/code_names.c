/* The qualified names of functions.  See code_names.h. */
#include "recording/code_names.h"

typedef struct frame_place {
    const ml_recording *recording;
    ml_frame frame;
} frame_place;

static uint64_t
hash_place(uint32_t filename, uint32_t name, int64_t line)
{
    uint64_t names = (uint64_t)filename << 32 | name;
    return ml_hash_u64(ml_hash_u64(names) + (uint64_t)line);
}

static bool
is_place(const void *context, uint32_t id)
{
    const frame_place *of = context;
    const ml_code_line *line = &of->recording->code_lines[id];
    return line->filename == of->frame.filename && line->name == of->frame.name &&
           line->line == of->frame.line;
}

int
ml_code_names_init(ml_code_names *names, const ml_recording *recording)
{
    *names = (ml_code_names){.recording = recording};
    for (size_t i = 0; i < recording->code_line_count; i++) {
        const ml_code_line *line = &recording->code_lines[i];
        uint64_t hash = hash_place(line->filename, line->name, line->line);
        if (ml_intern_add(&names->lines, hash) < 0) {
            ml_code_names_fini(names);
            return ML_ENOMEM;
        }
    }
    return 0;
}

void
ml_code_names_fini(ml_code_names *names)
{
    ml_intern_fini(&names->lines);
    *names = (ml_code_names){0};
}

static const ml_code_line *
line_of(const ml_code_names *names, uint32_t frame)
{
    const ml_recording *recording = names->recording;
    frame_place of = {recording, recording->frames[frame]};
    uint64_t hash = hash_place(of.frame.filename, of.frame.name, of.frame.line);
    uint32_t id = 0;
    bool known = ml_intern_find(&names->lines, hash, is_place, &of, &id);
    return known ? &recording->code_lines[id] : NULL;
}

uint32_t
ml_code_name(const ml_code_names *names, uint32_t frame)
{
    const ml_code_line *line = line_of(names, frame);
    return line != NULL && line->qualname != 0 ? line->qualname
                                               : names->recording->frames[frame].name;
}

uint32_t
ml_code_read_name(const ml_code_names *names, uint32_t frame)
{
    const ml_code_line *line = line_of(names, frame);
    return line != NULL && line->first_line > 0 ? line->qualname : 0;
}

uint8_t
ml_code_forward(const ml_code_names *names, uint32_t frame)
{
    const ml_code_line *line = line_of(names, frame);
    return line != NULL ? line->forward : ML_CODE_FORWARD_UNKNOWN;
}
