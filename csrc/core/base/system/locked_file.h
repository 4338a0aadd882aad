/* A file that one process at a time writes: a lock keeps others off.
 *
 * Where an older file of the same kind lies at the path, the new one is made beside it and
 * takes its place when it is kept: a reader of the old one keeps it whole, and a start that
 * fails leaves it. */
#ifndef ML_LOCKED_FILE_H
#define ML_LOCKED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/permission.h"

typedef struct ml_locked_file {
    const char *path; /* borrowed */
    char *apart;      /* owned: where it lies until it is kept; NULL: at its path */
    int descriptor;
    int replaced;             /* the file at the path until then, locked; -1: none */
    ml_permission permission; /* where it replaces one */
    bool kept;
    bool named; /* at first; some file systems count no names */
} ml_locked_file;

/* Why there is no such file.  Those of the system's have errno. */
enum ml_locked_failure {
    ML_LOCKED_OK,
    ML_LOCKED_SYSTEM,    /* errno says it */
    ML_LOCKED_LINK,      /* the path is a symbolic link */
    ML_LOCKED_IRREGULAR, /* a folder, a device, a pipe */
    ML_LOCKED_TAKEN,     /* another writer has it */
    ML_LOCKED_FOREIGN,   /* the file there is of another kind */
    ML_LOCKED_CONTESTED, /* others are replacing it */
    ML_LOCKED_BESIDE,    /* no file can be made beside the old one; errno says why */
    ML_LOCKED_NO_MEMORY
};

/* Makes a file for PATH, which must outlive it: locked, empty, and, where no file lies
 * there, open to all whom the umask lets.  An old file is replaced only if it is empty, or
 * begins with the 8 bytes of MAGIC.  On failure it is still to be closed. */
enum ml_locked_failure ml_locked_file_open(ml_locked_file *file, const char *path,
                                           const void *magic);
/* The file lies at its path from here on, and what was there is gone. */
enum ml_locked_failure ml_locked_file_keep(ml_locked_file *file);
/* The file becomes BYTES long, or was never there where it is not kept.  For half-open
 * files too. */
void ml_locked_file_close(ml_locked_file *file, uint64_t bytes);
/* In a forked child: gives up the descriptors, and with them the parent's locks. */
void ml_locked_file_forked(ml_locked_file *file);

/* Whether nobody removed the file or cut it below BYTES. */
bool ml_locked_file_is_whole(const ml_locked_file *file, uint64_t bytes);

#endif
