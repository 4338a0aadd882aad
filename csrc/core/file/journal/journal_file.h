/* The file of a journal: it is made, locked, and then grown and mapped a chunk at a
 * time.
 *
 * Owns the descriptor, the lock against a second writer, and the address space of the
 * mapped chunks; it does not know their content.  Mapped memory stays writable whatever
 * happens to the file.  Room is taken on the disk before it is mapped.  If another
 * process cuts the file, a SIGBUS handler maps other memory there; it handles these
 * addresses alone. */
#ifndef ML_JOURNAL_FILE_H
#define ML_JOURNAL_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/permission.h"

/* Files being written at once, in a process. */
#define ML_JOURNAL_FILES 8
/* Chunks mapped at once, of one file; the first is the header. */
#define ML_JOURNAL_SLOTS 256u

typedef struct ml_journal_file {
    const char *path; /* borrowed */
    char *apart;      /* owned: where it lies until it is kept; NULL: at its path */
    int descriptor;
    int replaced; /* the recording at the path until then, locked; -1: none */
    ml_permission permission; /* where it replaces one */
    bool kept;
    int guard; /* its place in the handler's list */
    uint32_t chunk_bytes;
    uint8_t *slots; /* owned address space, ML_JOURNAL_SLOTS chunks */
    uint64_t bytes; /* of the file */
    uint64_t limit; /* bytes it may have */
    bool named;     /* at first; some file systems count no names */
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

/* Appends a chunk of zeros to the file and maps it at SLOT.  0, ML_ELIMIT at the limit,
 * or ML_EIO with errno. */
int ml_journal_file_map(ml_journal_file *file, unsigned slot);
void ml_journal_file_unmap(ml_journal_file *file, unsigned slot);

static inline void *
ml_journal_file_at(const ml_journal_file *file, unsigned slot)
{
    return file->slots + (size_t)slot * file->chunk_bytes;
}

/* Whether the mapped chunks are still in the file: no process cut or removed it. */
bool ml_journal_file_whole(const ml_journal_file *file);

#endif
