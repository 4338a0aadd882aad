/* Output files that appear whole or not at all.
 *
 * Owns a temporary file beside the wanted one: mode 0600, an unpredictable name, never
 * an existing file or link.  Commit puts it in the place of the old file in one step,
 * with the permission of permission.h.  Until then, and after any failure, the old file
 * is untouched. */
#ifndef ML_OUTFILE_H
#define ML_OUTFILE_H

#include <stddef.h>
#include <sys/types.h>

#include "memlab.h"

typedef struct ml_outfile ml_outfile;

typedef struct ml_outfile_error {
    int errnum;       /* errno of the step that failed */
    const char *step; /* "open", "write", ...; static */
} ml_outfile_error;

/* Begins to write the file at PATH.  A link at PATH is replaced, not followed; anything
 * else but a regular file is refused, with EISDIR or EINVAL.  ENDING, of at most 16
 * bytes, is the temporary name's ending, for writers that depend on it.  0, ML_EIO or
 * ML_ENOMEM with *ERROR filled in. */
int ml_outfile_open(ml_outfile **out, const char *path, const char *ending,
                    ml_outfile_error *error);

/* The name of the temporary file, in the path's folder, for writers that need a
 * name. */
const char *ml_outfile_temporary(const ml_outfile *file);
/* Commits what was written under that name, possibly as a new file in its place.  0 or
 * ML_EIO, which is remembered. */
int ml_outfile_take(ml_outfile *file);

/* Adds bytes.  0 or ML_EIO, which is remembered: all further calls fail with the first
 * error. */
int ml_outfile_write(ml_outfile *file, const void *bytes, size_t length);

/* Makes the file durable and puts it at its path.  FILE is gone afterwards, whatever the
 * result.  0 or ML_EIO with *ERROR filled in; then the old file is untouched, unless the
 * step is "fsync of the folder": then the new one is in place, but a power failure may
 * still bring the old one back. */
int ml_outfile_commit(ml_outfile *file, ml_outfile_error *error);

/* Gives up: removes the temporary file.  FILE, which may be NULL, is gone afterwards.
 * *ERROR is filled in if a write had failed. */
void ml_outfile_abort(ml_outfile *file, ml_outfile_error *error);

/* The system calls used, in the order of their first use. */
typedef struct ml_outfile_calls {
    int (*open)(const char *path, int flags);
    int (*create)(int folder, const char *name, int flags, mode_t mode);
    ssize_t (*write)(int file, const void *bytes, size_t length);
    int (*fsync)(int file);
    int (*close)(int file);
    int (*rename)(int old_folder, const char *old_name, int folder, const char *name);
    int (*unlink)(int folder, const char *name, int flags);
} ml_outfile_calls;

extern const ml_outfile_calls ml_outfile_system_calls;
/* For tests: NULL restores the system's.  Not thread-safe. */
void ml_set_outfile_calls(const ml_outfile_calls *calls);

#endif
