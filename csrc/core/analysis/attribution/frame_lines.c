/* Finds equal frames.  See frame_lines.h. */
#include "analysis/attribution/frame_lines.h"

int
ml_frame_lines_init(ml_frame_lines *lines, const ml_recording *recording)
{
    *lines = (ml_frame_lines){
        .recording = recording,
        .firsts = ml_alloc_zeroed(recording->frame_count, sizeof(uint32_t))};
    return lines->firsts == NULL ? ML_ENOMEM : 0;
}

void
ml_frame_lines_fini(ml_frame_lines *lines)
{
    ml_free(lines->firsts);
    ml_free(lines->asked);
    ml_intern_fini(&lines->interned);
    *lines = (ml_frame_lines){0};
}

typedef struct sought {
    const ml_frame_lines *lines;
    uint32_t frame;
} sought;

static bool
same_line(const void *context, uint32_t id)
{
    const sought *s = context;
    const ml_recording *recording = s->lines->recording;
    ml_frame a = recording->frames[s->frame];
    ml_frame b = recording->frames[s->lines->asked[id]];
    return a.line == b.line &&
           ml_string_compare(recording->strings[a.filename],
                             recording->strings[b.filename]) == 0 &&
           ml_string_compare(recording->strings[a.name], recording->strings[b.name]) ==
               0;
}

int
ml_frame_lines_first(ml_frame_lines *lines, uint32_t frame, uint32_t *first)
{
    if (lines->firsts[frame] != 0) {
        *first = lines->firsts[frame] - 1;
        return 0;
    }
    ml_frame f = lines->recording->frames[frame];
    ml_string file = lines->recording->strings[f.filename];
    ml_string name = lines->recording->strings[f.name];
    uint64_t hash = ml_hash_bytes(file.bytes, file.length) * 3 +
                    ml_hash_bytes(name.bytes, name.length) * 5 +
                    ml_hash_u64((uint64_t)f.line);
    sought s = {lines, frame};
    uint32_t id;
    if (!ml_intern_find(&lines->interned, hash, same_line, &s, &id)) {
        id = (uint32_t)lines->interned.count;
        void *asked = lines->asked;
        int error =
            ml_grow(&asked, &lines->asked_capacity, (size_t)id + 1, sizeof(uint32_t));
        if (error < 0) {
            return error;
        }
        lines->asked = asked;
        lines->asked[id] = frame;
        error = ml_intern_add(&lines->interned, hash);
        if (error < 0) {
            return error;
        }
    }
    lines->firsts[frame] = lines->asked[id] + 1;
    *first = lines->asked[id];
    return 0;
}
