/* What the tests of stacks share: short ways to write stacks down and to read them, and
 * an allocator that fails. */
#ifndef ML_STACKS_SAMPLES_H
#define ML_STACKS_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording/recording.h"
#include "stacks/stacks.h"

/* ---- an allocator that fails after a number of allocations ---- */

static size_t budget;
static int live;

static inline void *
failing_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget == 0) {
        return NULL;
    }
    budget--;
    void *grown = realloc(pointer, bytes);
    live += pointer == NULL && grown != NULL;
    return grown;
}

/* ---- short ways to write stacks ---- */

static inline ml_frame_key
key(uint64_t code, uint64_t fingerprint, uint32_t offset)
{
    return (ml_frame_key){.code = code, .fingerprint = fingerprint, .offset = offset};
}

static ml_slice
text(const char *string)
{
    return (ml_slice){.bytes = string, .length = strlen(string)};
}

/* One instruction a line, 16 of them, starting at line FIRST; a 3.11 table. */
static inline ml_code_text
code_text(const char *name, const char *filename, int32_t first)
{
    static const char table[] = {
        (char)0xd0, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1,
        (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1,
    };
    return (ml_code_text){.name = text(name),
                          .filename = text(filename),
                          .linetable = {.bytes = table, .length = sizeof(table)},
                          .firstlineno = first,
                          .python_minor = 11};
}

static inline uint32_t
add(ml_stacks *stacks, uint32_t parent, uint64_t code, uint32_t offset,
    const char *name)
{
    ml_frame_key frame = key(code, 1, offset);
    ml_code_text words = code_text(name, "model.py", 10);
    return ml_stacks_add(stacks, parent, &frame, &words);
}

/* "name:line name:line ...", innermost first, of a stack of RECORDING. */
static inline const char *
written(const ml_recording *recording, uint32_t stack)
{
    static char line[4096];
    size_t used = 0;

    line[0] = '\0';
    for (; stack != 0 && used < sizeof(line); stack = recording->stacks[stack].parent) {
        const ml_frame *frame = &recording->frames[recording->stacks[stack].frame];
        const ml_string *name = &recording->strings[frame->name];
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%.*s:%lld",
                                 used != 0 ? " " : "", (int)name->length,
                                 name->length != 0 ? name->bytes : "",
                                 (long long)frame->line);
    }
    return line;
}

#endif
