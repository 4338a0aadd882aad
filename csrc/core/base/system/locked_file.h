/* A file with one writer process at a time, held by a lock.
 *
 * If an older file of the same kind is at the path, the new one is made beside it and
 * replaces it when it is kept.  So a reader of the old file keeps it whole, and a
 * failed start leaves it. */
#ifndef ML_LOCKED_FILE_H
#define ML_LOCKED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/permission.h"

typedef struct ml_locked_file {
    const char *path; /* borrowed */
    char *apart;      /* owned: its path until it is kept; NULL: the final path */
    int descriptor;
    int replaced; /* the old file at the path until then, locked; -1: none */
    ml_permission permission; /* if it replaces a file */
    bool kept;
    bool named; /* whether it had a name at first; some file systems count no names */
} ml_locked_file;

/* Why there is no such file.  The system's failures have errno. */
enum ml_locked_failure {
    ML_LOCKED_OK,
    ML_LOCKED_SYSTEM,    /* see errno */
    ML_LOCKED_LINK,      /* the path is a symbolic link */
    ML_LOCKED_IRREGULAR, /* a folder, a device, a pipe */
    ML_LOCKED_TAKEN,     /* another writer has it */
    ML_LOCKED_FOREIGN,   /* the file there is of another kind */
    ML_LOCKED_CONTESTED, /* others are replacing it */
    ML_LOCKED_BESIDE,    /* no file can be made beside the old one; errno says why */
    ML_LOCKED_NO_MEMORY
};

/* Makes a file for PATH, which must outlive it: locked and empty.  A new file's
 * permission follows the umask.  An old file is replaced only if it is empty, or begins
 * with the 8 bytes of MAGIC.  After a failure, it must still be closed. */
enum ml_locked_failure ml_locked_file_open(ml_locked_file *file, const char *path,
                                           const void *magic);
/* Moves the file to its path, replacing the old one. */
enum ml_locked_failure ml_locked_file_keep(ml_locked_file *file);
/* Cuts the file to BYTES; a file that was not kept is removed.  For half-open files
 * too. */
void ml_locked_file_close(ml_locked_file *file, uint64_t bytes);
/* In a forked child: closes the descriptors, and with them the parent's locks. */
void ml_locked_file_forked(ml_locked_file *file);

/* Whether no process removed the file or cut it below BYTES. */
bool ml_locked_file_is_whole(const ml_locked_file *file, uint64_t bytes);

#endif
