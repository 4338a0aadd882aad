/* The program's lines from which a compiler made code: torch.compile tells them for the
 * files that it writes.
 *
 * Owns, for each such file, from which of its lines on what made it, and the frames of
 * that, each once.  All zeros is without any.  The caller keeps adds and reads apart. */
#ifndef ML_ORIGINS_H
#define ML_ORIGINS_H

#include "base/base.h"
#include "stacks/stacks.h"

/* Ids are from 1; 0: none. */
typedef struct ml_origin_frame {
    uint32_t caller; /* id of a frame added before */
    uint32_t name;   /* texts */
    uint32_t filename;
    int64_t line;
} ml_origin_frame;

/* From LINE of a file on, up to the next. */
typedef struct ml_origin_line {
    uint32_t file; /* text: its path */
    uint32_t frame;
    int64_t line;
} ml_origin_line;

/* The lines of one file, which stand together. */
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
    ml_origin_line *lines; /* owned; as they were added */
    size_t line_capacity;
    size_t line_count;
};

void ml_origins_fini(ml_origins *origins);

/* 0, ML_ENOMEM or ML_EINVALID for a caller that is not there, as of the next. */
int ml_origins_add_frame(ml_origins *origins, uint32_t caller, ml_slice name,
                         ml_slice filename, int64_t line, uint32_t *id);
/* The frames of a TRACE, as Python writes it, outermost first; *ID is the innermost's. */
int ml_origins_add_trace(ml_origins *origins, ml_slice trace, uint32_t *id);
/* From LINE of the file PATH on its code was made by FRAME.  The lines of a file come one
 * after the other and ascend: others are ML_EINVALID. */
int ml_origins_add_line(ml_origins *origins, ml_slice path, int64_t line,
                        uint32_t frame);

/* The text ID; empty for 0. */
ml_slice ml_origins_text(const ml_origins *origins, uint32_t id);
/* NULL where nothing is known of the file PATH. */
const ml_origin_file *ml_origins_file(const ml_origins *origins, ml_slice path);
/* What made LINE of FILE: a frame's id. */
uint32_t ml_origins_of(const ml_origins *origins, const ml_origin_file *file,
                       int64_t line);

#endif
