/* Names the calls of modules in a recording without modules.  See module_calls.h. */
#include "recording/module_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "recording/interner.h"

/* Names this long get no more levels, because recursion could make them endless. */
#define LONGEST 512

/* Kinds of files; each name is inspected once. */
enum {
    FILE_SEEN = 1,
    FILE_MODULE = 2, /* torch/nn/modules/module.py */
    FILE_CONTAINER = 4,
    FILE_PYTHON = 8
};

/* The place of a stack among module calls. */
typedef struct stack_place {
    uint32_t path; /* string: the name of the innermost call; 0: none */
    uint32_t file; /* string: of that call's forward; 0: none */
    /* Frame id of the innermost Python code outside module.py, in FILE if that is
     * known, and so not of another file's wrapper; 0: none. */
    uint32_t site;
    bool called; /* a call began whose forward has not begun */
} stack_place;

typedef struct namer {
    ml_recording *recording;
    ml_interner interner;
    stack_place *places; /* owned; by stack */
    uint8_t *files;      /* owned; FILE_*, by string */
    ml_buffer name;
} namer;

static bool
ends(ml_string text, const char *part)
{
    size_t length = strlen(part);
    return text.length >= length &&
           memcmp(text.bytes + text.length - length, part, length) == 0;
}

static bool
is(ml_string text, const char *other)
{
    return text.length == strlen(other) && ends(text, other);
}

static uint8_t
look_at_file(ml_string file)
{
    return (
        uint8_t)(FILE_SEEN |
                 (ends(file, "torch/nn/modules/module.py") ? FILE_MODULE : 0) |
                 (ends(file, "torch/nn/modules/container.py") ? FILE_CONTAINER : 0) |
                 (ends(file, ".py") || ends(file, ">") ? FILE_PYTHON : 0));
}

static uint8_t
file_of(const namer *n, uint32_t frame)
{
    uint32_t file = n->recording->frames[frame].filename;
    if (n->files[file] == 0) {
        n->files[file] = look_at_file(n->recording->strings[file]);
    }
    return n->files[file];
}

/* The file's name without folders and ending: their dots would look like levels. */
static void
put_stem(ml_buffer *name, ml_string file)
{
    size_t start = file.length;
    while (start > 0 && file.bytes[start - 1] != '/' && file.bytes[start - 1] != '\\') {
        start--;
    }
    size_t end = ends(file, ".py") ? file.length - 3 : file.length;
    for (size_t i = start; i < end; i++) {
        char byte = file.bytes[i] == '.' ? '_' : file.bytes[i];
        ml_buffer_append(name, &byte, 1);
    }
}

static bool
same_string(const namer *n, uint32_t a, uint32_t b)
{
    return a == b ||
           ml_string_compare(n->recording->strings[a], n->recording->strings[b]) == 0;
}

/* Names the call in PATH whose forward is FRAME, from the line of SITE. */
static int
name_call(namer *n, uint32_t path, uint32_t frame, uint32_t site, uint32_t *id)
{
    const ml_recording *recording = n->recording;
    bool line = site != 0 && (file_of(n, site) & FILE_CONTAINER) == 0;
    uint32_t file = recording->frames[frame].filename;
    n->name.length = 0;
    if (path != 0) {
        ml_string outer = recording->strings[path];
        if (outer.length >= LONGEST) {
            *id = path;
            return 0;
        }
        ml_buffer_append(&n->name, outer.bytes, outer.length);
        ml_buffer_append(&n->name, ".", 1);
    }
    if (path == 0 || !line || !same_string(n, recording->frames[site].filename, file)) {
        put_stem(&n->name, recording->strings[file]);
    }
    if (line) {
        char text[24];
        int length =
            snprintf(text, sizeof(text), "@%" PRId64, recording->frames[site].line);
        ml_buffer_append(&n->name, text, (size_t)length);
    }
    return n->name.error != 0
               ? n->name.error
               : ml_interner_string(&n->interner, n->name.bytes, n->name.length, id);
}

static int
stand(namer *n, uint32_t stack)
{
    ml_recording *recording = n->recording;
    uint32_t frame = recording->stacks[stack].frame;
    uint32_t filename = recording->frames[frame].filename;
    uint8_t file = file_of(n, frame);
    ml_string name = ml_frame_name(recording, frame);
    stack_place at = n->places[recording->stacks[stack].parent];
    int error = 0;
    if (file & FILE_MODULE) {
        at.called = at.called || is(name, "_call_impl");
    }
    else if (at.called && (file & FILE_PYTHON) && is(name, "forward")) {
        error = name_call(n, at.path, frame, at.site, &at.path);
        at = (stack_place){.path = at.path, .file = filename, .site = frame};
        recording->stacks[stack].module = at.path;
    }
    else if (!at.called && (file & FILE_PYTHON) &&
             (at.file == 0 || same_string(n, at.file, filename))) {
        at.site = frame;
    }
    n->places[stack] = at;
    return error;
}

int
ml_module_calls_name(ml_recording *recording)
{
    size_t strings = recording->string_count;
    namer n = {.recording = recording,
               .places = ml_alloc_zeroed(recording->stack_count, sizeof(stack_place)),
               .files = ml_alloc_zeroed(strings, 1)};
    int error = n.places == NULL || n.files == NULL
                    ? ML_ENOMEM
                    : ml_interner_init(&n.interner, recording);
    for (uint32_t i = 1; error == 0 && i < recording->stack_count; i++) {
        error = stand(&n, i);
    }
    ml_interner_fini(&n.interner);
    ml_buffer_fini(&n.name);
    ml_free(n.places);
    ml_free(n.files);
    return error;
}
