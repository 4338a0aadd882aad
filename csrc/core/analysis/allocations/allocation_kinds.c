/* Kinds of allocations.  See allocation_kinds.h. */
#include "analysis/allocations/allocation_kinds.h"

#include <string.h>

int
ml_allocation_kinds_init(ml_allocation_kinds *kinds, const ml_recording *recording)
{
    *kinds = (ml_allocation_kinds){.recording = recording};
    int error = ml_frame_lines_init(&kinds->frames, recording);
    if (error < 0) {
        return error;
    }
    kinds->of_frame = ml_alloc_zeroed(recording->frame_count, sizeof(uint32_t));
    if (kinds->of_frame == NULL) {
        ml_allocation_kinds_fini(kinds);
        return ML_ENOMEM;
    }
    return 0;
}

void
ml_allocation_kinds_fini(ml_allocation_kinds *kinds)
{
    ml_frame_lines_fini(&kinds->frames);
    ml_free(kinds->of_frame);
    ml_free(kinds->lines);
    ml_free(kinds->list);
    ml_intern_fini(&kinds->interned);
    ml_free(kinds->streams);
    ml_intern_fini(&kinds->interned_streams);
    *kinds = (ml_allocation_kinds){0};
}

/* ---- Lines ---- */

/* As in peak_groups.c: a range through a loop's start exceeds all others. */
static void
widen(ml_allocation_line *line, int64_t at, int64_t until)
{
    bool round = until < at;
    if (line->until == 0 || (round && line->until >= at) ||
        (round == (line->until < at) && until > line->until)) {
        line->until = until;
    }
}

int
ml_allocation_kinds_line(ml_allocation_kinds *kinds, const ml_cause *cause,
                         uint32_t *line)
{
    uint32_t frame = 0;
    uint32_t *slot = &kinds->of_reason[cause->no_line];
    if (cause->how != ML_HOW_NONE) {
        int error = ml_frame_lines_first(&kinds->frames, cause->frame, &frame);
        if (error < 0) {
            return error;
        }
        slot = &kinds->of_frame[frame];
    }
    if (*slot == 0) {
        void *lines = kinds->lines;
        int error = ml_grow(&lines, &kinds->line_capacity, kinds->line_count + 1,
                            sizeof(ml_allocation_line));
        if (error < 0) {
            return error;
        }
        kinds->lines = lines;
        kinds->lines[kinds->line_count++] =
            (ml_allocation_line){.frame = frame, .no_line = cause->no_line};
        *slot = (uint32_t)kinds->line_count;
    }
    *line = *slot - 1;
    if (cause->until != 0) {
        const ml_frame *frames = kinds->recording->frames;
        widen(&kinds->lines[*line], frames[frame].line, frames[cause->until].line);
    }
    return 0;
}

/* ---- Streams ---- */

typedef struct sought {
    const void *items;
    const void *item;
} sought;

static bool
same_stream(const void *context, uint32_t id)
{
    const sought *s = context;
    return ((const uint64_t *)s->items)[id] == *(const uint64_t *)s->item;
}

int
ml_allocation_kinds_stream(ml_allocation_kinds *kinds, uint64_t stream, uint32_t *index)
{
    if (kinds->stream_count != 0 && kinds->streams[kinds->last_stream] == stream) {
        *index = kinds->last_stream;
        return 0;
    }
    uint64_t hash = ml_hash_u64(stream);
    sought s = {kinds->streams, &stream};
    if (ml_intern_find(&kinds->interned_streams, hash, same_stream, &s, index)) {
        kinds->last_stream = *index;
        return 0;
    }
    void *streams = kinds->streams;
    int error = ml_grow(&streams, &kinds->stream_capacity, kinds->stream_count + 1,
                        sizeof(uint64_t));
    if (error < 0) {
        return error;
    }
    kinds->streams = streams;
    error = ml_intern_add(&kinds->interned_streams, hash);
    if (error < 0) {
        return error;
    }
    *index = (uint32_t)kinds->stream_count;
    kinds->streams[kinds->stream_count++] = stream;
    return 0;
}

/* ---- Kinds ---- */

static bool
same_kind(const void *context, uint32_t id)
{
    const sought *s = context;
    return memcmp((const ml_allocation_kind *)s->items + id, s->item,
                  sizeof(ml_allocation_kind)) == 0;
}

static int
find_kind(ml_allocation_kinds *kinds, const ml_allocation_kind *kind, uint32_t *index)
{
    uint64_t hash = ml_hash_bytes(kind, sizeof(*kind));
    sought s = {kinds->list, kind};
    if (ml_intern_find(&kinds->interned, hash, same_kind, &s, index)) {
        return 0;
    }
    void *list = kinds->list;
    int error = ml_grow(&list, &kinds->capacity, kinds->count + 1, sizeof(*kind));
    if (error < 0) {
        return error;
    }
    kinds->list = list;
    error = ml_intern_add(&kinds->interned, hash);
    if (error < 0) {
        return error;
    }
    *index = (uint32_t)kinds->count;
    kinds->list[kinds->count++] = *kind;
    return 0;
}

static int
intern_kind(ml_allocation_kinds *kinds, const ml_allocation_kind *kind, uint32_t *index)
{
    uint32_t *recent = &kinds->recent[kind->stack % ML_ALLOCATION_KINDS_RECENT];
    sought last = {kinds->list, kind};
    if (*recent != 0 && same_kind(&last, *recent - 1)) {
        *index = *recent - 1;
        return 0;
    }
    int error = find_kind(kinds, kind, index);
    *recent = error == 0 ? *index + 1 : *recent;
    return error;
}

int
ml_allocation_kinds_add(ml_allocation_kinds *kinds, uint32_t stack, uint32_t stream,
                        const ml_explained *it, uint32_t *kind)
{
    const ml_cause *cause = &it->cause;
    uint32_t line;
    uint32_t inner = 0;
    int error = ml_allocation_kinds_line(kinds, cause, &line);
    if (error == 0 && cause->how != ML_HOW_NONE) {
        error = ml_frame_lines_first(&kinds->frames, cause->model, &inner);
    }
    if (error < 0) {
        return error;
    }
    ml_allocation_kind new;
    memset(&new, 0, sizeof(new)); /* all of its bytes are compared */
    new.stack = stack;
    new.line = line;
    new.inner = inner != kinds->lines[line].frame ? inner : 0;
    new.until = cause->until != 0 ? kinds->recording->frames[cause->until].line : 0;
    new.module = cause->module;
    new.name = it->name;
    new.stream = stream;
    new.no_module = cause->no_module;
    new.category = it->verdict.category;
    new.why = it->verdict.why;
    new.phase = cause->phase;
    new.how = cause->how;
    new.exact = it->verdict.exact;
    return intern_kind(kinds, &new, kind);
}
