/* The file of a recording in progress: locked, grown and mapped a chunk at a time.
 * Errors are sentences for users. */
#ifndef ML_JOURNAL_FILE_H
#define ML_JOURNAL_FILE_H

#include "base/system/locked_file.h"
#include "base/system/mapping.h"
#include "file/codec/chunk.h"

/* Chunks mapped at once, of one file; the first is the header. */
#define ML_JOURNAL_SLOTS 256u

typedef struct ml_journal_file {
    ml_locked_file file;
    ml_mapping chunks; /* ML_JOURNAL_SLOTS of them */
    uint64_t bytes;    /* of the file */
    uint64_t limit;    /* size limit in bytes */
} ml_journal_file;

/* Makes a file for PATH, which must outlive it: locked and empty.  If no file is there,
 * the umask decides the permission.  If a recording is there that nothing writes any
 * more, it stays until the file is kept.  0 or ML_E*, with a sentence in PROBLEM. */
int ml_journal_file_open(ml_journal_file *file, const char *path, uint32_t chunk_bytes,
                         uint64_t limit, char *problem, size_t problem_bytes);
/* Moves the file to its path, in place of the file there.  0 or ML_EIO, with a sentence
 * in PROBLEM. */
int ml_journal_file_keep(ml_journal_file *file, char *problem, size_t problem_bytes);
/* Cuts the file to BYTES, or removes it if it was not kept; ends all mappings.  For
 * half-open files too. */
void ml_journal_file_close(ml_journal_file *file, uint64_t bytes);
/* In a forked child: closes the descriptors, and with them the parent's locks.  Nothing
 * is mapped there. */
void ml_journal_file_forked(ml_journal_file *file);

/* Maps at SLOT the chunk at *OFFSET, which is used again, its header zeros.  With
 * UINT64_MAX it appends a chunk of zeros, and sets *OFFSET.  0, ML_ELIMIT at the limit,
 * or ML_EIO with errno. */
int ml_journal_file_map(ml_journal_file *file, unsigned slot, uint64_t *offset);
/* Reads the chunk at OFFSET, as far as it is complete, into BUFFER, which has room for a
 * chunk.  0, ML_EIO, or ML_EFORMAT as ml_chunk_open. */
int ml_journal_file_read(const ml_journal_file *file, uint64_t offset, void *buffer,
                         ml_chunk_reader *reader, ml_chunk *header);

/* Whether the mapped chunks are still in the file: no process cut or removed it. */
bool ml_journal_file_is_whole(const ml_journal_file *file);

#endif
