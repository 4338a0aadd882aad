/* Keeps the program's lines behind generated code.  See origins.h. */
#include "stacks/origins.h"

#include <string.h>

void
ml_origins_fini(ml_origins *origins)
{
    for (size_t i = 1; i < origins->text_table.count; i++) {
        ml_free((void *)(uintptr_t)origins->texts[i].bytes);
    }
    ml_free(origins->texts);
    ml_free(origins->frames);
    ml_free(origins->files);
    ml_free(origins->lines);
    ml_intern_fini(&origins->text_table);
    ml_intern_fini(&origins->frame_table);
    ml_intern_fini(&origins->file_table);
    *origins = (ml_origins){0};
}

ml_slice
ml_origins_text(const ml_origins *origins, uint32_t id)
{
    return id != 0 ? origins->texts[id] : (ml_slice){.bytes = "", .length = 0};
}

typedef struct lookup {
    const ml_origins *origins;
    ml_slice text;
    ml_origin_frame frame;
} lookup;

/* Whatever its hash, the first of a table is nothing, as in the next. */
static bool
text_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    ml_slice text = ml_origins_text(wanted->origins, id);
    return id != 0 && text.length == wanted->text.length &&
           memcmp(text.bytes, wanted->text.bytes, text.length) == 0;
}

static bool
frame_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    if (id == 0) {
        return false;
    }
    const ml_origin_frame *frame = &wanted->origins->frames[id];
    return frame->caller == wanted->frame.caller && frame->name == wanted->frame.name &&
           frame->filename == wanted->frame.filename &&
           frame->line == wanted->frame.line;
}

static bool
file_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    const ml_origin_file *file = &wanted->origins->files[id];
    return text_equal(context, file->path);
}

static uint64_t
frame_hash(const ml_origin_frame *frame)
{
    uint64_t place = (uint64_t)frame->name << 32 | frame->filename;
    return ml_hash_u64(ml_hash_u64(place) + ml_hash_u64(frame->caller) +
                       3 * (uint64_t)frame->line);
}

/* The empty text has id 0. */
static int
add_text(ml_origins *origins, ml_slice text, uint32_t *id)
{
    *id = 0;
    if (text.length == 0) {
        return 0;
    }
    if (origins->text_table.count == 0 && ml_intern_add(&origins->text_table, 0) != 0) {
        return ML_ENOMEM;
    }
    lookup wanted = {.origins = origins, .text = text};
    uint64_t hash = ml_hash_bytes(text.bytes, text.length);
    if (ml_intern_find(&origins->text_table, hash, text_equal, &wanted, id)) {
        return 0;
    }
    size_t next = origins->text_table.count;
    char *copy = ml_alloc(text.length);
    if (copy == NULL || ml_grow((void **)&origins->texts, &origins->text_capacity,
                                next + 1, sizeof(*origins->texts)) != 0) {
        ml_free(copy);
        return ML_ENOMEM;
    }
    memcpy(copy, text.bytes, text.length);
    origins->texts[next] = (ml_slice){.bytes = copy, .length = text.length};
    if (ml_intern_add(&origins->text_table, hash) != 0) {
        ml_free(copy);
        return ML_ENOMEM;
    }
    *id = (uint32_t)next;
    return 0;
}

int
ml_origins_add_frame(ml_origins *origins, uint32_t caller, ml_slice name,
                     ml_slice filename, int64_t line, uint32_t *id)
{
    if (caller != 0 && caller >= origins->frame_table.count) {
        return ML_EINVALID;
    }
    lookup wanted = {.origins = origins, .frame = {.caller = caller, .line = line}};
    int error = add_text(origins, name, &wanted.frame.name);
    if (error == 0) {
        error = add_text(origins, filename, &wanted.frame.filename);
    }
    if (error == 0 && origins->frame_table.count == 0) {
        error = ml_intern_add(&origins->frame_table, 0);
    }
    uint64_t hash = frame_hash(&wanted.frame);
    if (error != 0 ||
        ml_intern_find(&origins->frame_table, hash, frame_equal, &wanted, id)) {
        return error;
    }
    size_t next = origins->frame_table.count;
    if (ml_grow((void **)&origins->frames, &origins->frame_capacity, next + 1,
                sizeof(*origins->frames)) != 0) {
        return ML_ENOMEM;
    }
    origins->frames[next] = wanted.frame;
    *id = (uint32_t)next;
    return ml_intern_add(&origins->frame_table, hash);
}

/* ---- Python's traces ---- */

/* The last WHAT in TEXT, or NULL. */
static const char *
find_last(ml_slice text, const char *what)
{
    size_t length = strlen(what);
    const char *found = NULL;
    for (size_t i = 0; i + length <= text.length; i++) {
        if (memcmp(text.bytes + i, what, length) == 0) {
            found = text.bytes + i;
        }
    }
    return found;
}

/* Parses `  File "PATH", line N, in NAME`; false for any other line. */
static bool
parse_line(ml_slice line, ml_slice *filename, int64_t *number, ml_slice *name)
{
    static const char before[] = "File \"";
    static const char between[] = "\", line ";
    static const char after[] = ", in ";
    while (line.length > 0 && *line.bytes == ' ') {
        line.bytes++;
        line.length--;
    }
    if (line.length < sizeof(before) ||
        memcmp(line.bytes, before, sizeof(before) - 1) != 0) {
        return false;
    }
    const char *end = line.bytes + line.length;
    const char *path = line.bytes + sizeof(before) - 1;
    const char *at = find_last(line, between);
    if (at == NULL || at <= path) {
        return false;
    }
    *filename = (ml_slice){.bytes = path, .length = (size_t)(at - path)};
    at += sizeof(between) - 1;
    *number = 0;
    const char *digits = at;
    for (; at < end && *at >= '0' && *at <= '9' && at - digits < 10; at++) {
        *number = *number * 10 + (*at - '0');
    }
    if (at == digits || (size_t)(end - at) <= sizeof(after) - 1 ||
        memcmp(at, after, sizeof(after) - 1) != 0) {
        return false;
    }
    at += sizeof(after) - 1;
    *name = (ml_slice){.bytes = at, .length = (size_t)(end - at)};
    return true;
}

int
ml_origins_add_trace(ml_origins *origins, ml_slice trace, uint32_t *id)
{
    int error = 0;
    *id = 0;
    while (trace.length > 0 && error == 0) {
        const char *end = memchr(trace.bytes, '\n', trace.length);
        size_t length = end != NULL ? (size_t)(end - trace.bytes) : trace.length;
        ml_slice line = {.bytes = trace.bytes, .length = length};
        ml_slice filename, name;
        int64_t number;
        if (parse_line(line, &filename, &number, &name)) {
            error = ml_origins_add_frame(origins, *id, name, filename, number, id);
        }
        length += end != NULL;
        trace.bytes += length;
        trace.length -= length;
    }
    return error;
}

/* ---- Lines ---- */

static bool
find_file(const ml_origins *origins, ml_slice path, uint32_t *id)
{
    lookup wanted = {.origins = origins, .text = path};
    uint64_t hash = ml_hash_bytes(path.bytes, path.length);
    return ml_intern_find(&origins->file_table, hash, file_equal, &wanted, id) != 0;
}

const ml_origin_file *
ml_origins_file(const ml_origins *origins, ml_slice path)
{
    uint32_t id;
    return find_file(origins, path, &id) ? &origins->files[id] : NULL;
}

static int
add_file(ml_origins *origins, ml_slice path, uint32_t *id)
{
    uint32_t text;
    size_t next = origins->file_table.count;
    int error = add_text(origins, path, &text);
    if (error == 0) {
        error = ml_grow((void **)&origins->files, &origins->file_capacity, next + 1,
                        sizeof(*origins->files));
    }
    if (error == 0) {
        origins->files[next] =
            (ml_origin_file){.path = text, .first = origins->line_count};
        *id = (uint32_t)next;
        error =
            ml_intern_add(&origins->file_table, ml_hash_bytes(path.bytes, path.length));
    }
    return error;
}

int
ml_origins_add_line(ml_origins *origins, ml_slice path, int64_t line, uint32_t frame)
{
    uint32_t id;
    if (path.length == 0 || (frame != 0 && frame >= origins->frame_table.count)) {
        return ML_EINVALID;
    }
    size_t next = origins->line_count;
    int error = ml_grow((void **)&origins->lines, &origins->line_capacity, next + 1,
                        sizeof(*origins->lines));
    if (error == 0 && !find_file(origins, path, &id)) {
        error = add_file(origins, path, &id);
    }
    if (error != 0) {
        return error;
    }
    ml_origin_file *file = &origins->files[id];
    if (file->first + file->count != next ||
        (file->count > 0 && origins->lines[next - 1].line > line)) {
        return ML_EINVALID;
    }
    origins->lines[next] =
        (ml_origin_line){.file = file->path, .frame = frame, .line = line};
    origins->line_count++;
    file->count++;
    return 0;
}

uint32_t
ml_origins_of(const ml_origins *origins, const ml_origin_file *file, int64_t line)
{
    const ml_origin_line *lines = origins->lines + file->first;
    size_t low;
    ML_SEARCH(low, file->count, lines[low].line <= line);
    return low > 0 ? lines[low - 1].frame : 0;
}
