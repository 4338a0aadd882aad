/* The file of a recording in progress.  See journal_file.h. */
#include "file/journal/journal_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/system/infile.h"
#include "file/codec/mlab_format.h"

/* ---- Words ---- */

__attribute__((format(printf, 4, 5))) static int
fail(char *problem, size_t problem_bytes, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, problem_bytes, format, arguments);
    va_end(arguments);
    return error;
}

static int
tell_failure(enum ml_locked_failure failure, const char *path, char *problem,
             size_t bytes)
{
    switch (failure) {
    case ML_LOCKED_OK:
        break;
    case ML_LOCKED_SYSTEM:
        return fail(problem, bytes, ML_EIO, "cannot record to %s: %s", path,
                    strerror(errno));
    case ML_LOCKED_LINK:
        return fail(problem, bytes, ML_EIO,
                    "cannot record to %s: it is a symbolic link", path);
    case ML_LOCKED_IRREGULAR:
        return fail(problem, bytes, ML_EIO,
                    "cannot record to %s: it is no regular file", path);
    case ML_LOCKED_TAKEN:
        return fail(problem, bytes, ML_ESTATE,
                    "%s is being recorded already; choose another file", path);
    case ML_LOCKED_FOREIGN:
        return fail(problem, bytes, ML_EIO,
                    "%s exists and is no recording of memlab; choose another file or "
                    "remove it",
                    path);
    case ML_LOCKED_CONTESTED:
        return fail(problem, bytes, ML_ESTATE,
                    "%s is being replaced by others; choose another file", path);
    case ML_LOCKED_BESIDE:
        return fail(problem, bytes, ML_EIO,
                    "cannot record to %s: no file can be made beside it: %s", path,
                    strerror(errno));
    case ML_LOCKED_NO_MEMORY:
        return fail(problem, bytes, ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
    }
    return 0;
}

/* ---- Its life ---- */

int
ml_journal_file_open(ml_journal_file *file, const char *path, uint32_t chunk_bytes,
                     uint64_t limit, char *problem, size_t problem_bytes)
{
    *file = (ml_journal_file){.file = {.path = path, .descriptor = -1, .replaced = -1},
                              .limit = limit};
    int result = ml_mapping_init(&file->chunks, chunk_bytes, ML_JOURNAL_SLOTS);
    if (result == ML_EFULL) {
        return fail(problem, problem_bytes, result,
                    "%d files are being recorded already; stop one of these recordings "
                    "first",
                    ML_MAPPINGS);
    }
    if (result < 0) {
        return fail(problem, problem_bytes, result, "cannot record to %s: %s", path,
                    strerror(errno));
    }
    return tell_failure(ml_locked_file_open(&file->file, path, ML_MLAB_MAGIC), path,
                        problem, problem_bytes);
}

int
ml_journal_file_keep(ml_journal_file *file, char *problem, size_t problem_bytes)
{
    enum ml_locked_failure failure = ml_locked_file_keep(&file->file);
    return failure == ML_LOCKED_SYSTEM
               ? fail(problem, problem_bytes, ML_EIO, "cannot replace %s: %s",
                      file->file.path, strerror(errno))
               : tell_failure(failure, file->file.path, problem, problem_bytes);
}

void
ml_journal_file_close(ml_journal_file *file, uint64_t bytes)
{
    ml_mapping_fini(&file->chunks);
    ml_locked_file_close(&file->file, bytes);
}

void
ml_journal_file_forked(ml_journal_file *file)
{
    ml_mapping_forked(&file->chunks);
    ml_locked_file_forked(&file->file);
}

/* ---- Growing ---- */

int
ml_journal_file_map(ml_journal_file *file, unsigned slot, uint64_t *offset)
{
    uint32_t bytes = file->chunks.chunk_bytes;
    bool again = *offset != UINT64_MAX;
    *offset = again ? *offset : file->bytes;
    if (!again && file->bytes + bytes > file->limit) {
        return ML_ELIMIT;
    }
    int result = ml_mapping_map(&file->chunks, slot, file->file.descriptor, *offset);
    if (result == 0 && again) {
        memset(ml_mapping_at(&file->chunks, slot), 0, sizeof(ml_chunk));
    }
    file->bytes += result == 0 && !again ? bytes : 0;
    return result;
}

int
ml_journal_file_read(const ml_journal_file *file, uint64_t offset, void *buffer,
                     ml_chunk_reader *reader, ml_chunk *header)
{
    ml_chunk *chunk = buffer;
    int descriptor = file->file.descriptor;
    /* The commit word before the bytes that it covers: a lane may write on. */
    if (ml_infile_read(descriptor, offset, chunk, sizeof(*chunk)) < 0) {
        return ML_EIO;
    }
    uint64_t used = atomic_load(&chunk->commit) & UINT32_MAX;
    if (used > file->chunks.chunk_bytes - sizeof(*chunk) ||
        ml_infile_read(descriptor, offset + sizeof(*chunk), chunk + 1, (size_t)used) <
            0) {
        return ML_EIO;
    }
    return ml_chunk_open(reader, chunk, file->chunks.chunk_bytes, header);
}

bool
ml_journal_file_is_whole(const ml_journal_file *file)
{
    return !ml_mapping_was_cut(&file->chunks) &&
           ml_locked_file_is_whole(&file->file, file->bytes);
}
