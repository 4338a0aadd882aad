/* The program's lines behind generated code: torch.compile tells them for the files
 * that it writes.
 *
 * Owns, for each such file, the line ranges and the frames behind each, each frame
 * once.  All zeros is empty.  The caller keeps additions and reads apart. */
#ifndef ML_ORIGINS_H
#define ML_ORIGINS_H

#include "base/base.h"
#include "stacks/stacks.h"

/* Ids are from 1; 0: none. */
typedef struct ml_origin_frame {
    uint32_t caller; /* id of an earlier frame */
    uint32_t name;   /* texts */
    uint32_t filename;
    int64_t line;
} ml_origin_frame;

/* From LINE of a file up to the next. */
typedef struct ml_origin_line {
    uint32_t file; /* text: its path */
    uint32_t frame;
    int64_t line;
} ml_origin_line;

/* The lines of one file, which are consecutive. */
typedef struct ml_origin_file {
    uint32_t path; /* text */
    size_t first;
    size_t count;
} ml_origin_file;

struct ml_origins {
    ml_slice *texts; /* owned, their bytes too; by id, from 1 */
    size_t text_capacity;
    ml_intern text_table;
    ml_origin_frame *frames; /* owned; by id, from 1 */
    size_t frame_capacity;
    ml_intern frame_table;
    ml_origin_file *files; /* owned */
    size_t file_capacity;
    ml_intern file_table;
    ml_origin_line *lines; /* owned; in the order of adding */
    size_t line_capacity;
    size_t line_count;
};

void ml_origins_fini(ml_origins *origins);

/* 0, ML_ENOMEM, or ML_EINVALID for an unknown caller, here and below. */
int ml_origins_add_frame(ml_origins *origins, uint32_t caller, ml_slice name,
                         ml_slice filename, int64_t line, uint32_t *id);
/* Adds the frames of a TRACE, in Python's form, outermost first; *ID is the
 * innermost's. */
int ml_origins_add_trace(ml_origins *origins, ml_slice trace, uint32_t *id);
/* From LINE of the file PATH on, FRAME made its code.  A file's lines must be
 * consecutive and ascend, else ML_EINVALID. */
int ml_origins_add_line(ml_origins *origins, ml_slice path, int64_t line,
                        uint32_t frame);

/* The text ID; empty for 0. */
ml_slice ml_origins_text(const ml_origins *origins, uint32_t id);
/* NULL: the file PATH is unknown. */
const ml_origin_file *ml_origins_file(const ml_origins *origins, ml_slice path);
/* The frame behind LINE of FILE: its id. */
uint32_t ml_origins_of(const ml_origins *origins, const ml_origin_file *file,
                       int64_t line);

#endif
