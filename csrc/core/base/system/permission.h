/* The permission of an output file: that of the file that it replaces, or else that of
 * the umask and the folder's default ACL.
 *
 * No other user can open it while it is written.  The process's umask is not read:
 * reading it sets it for a moment, in which other threads may make files. */
#ifndef ML_PERMISSION_H
#define ML_PERMISSION_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

typedef struct ml_permission {
    bool replaces;
    struct stat old; /* where it replaces */
    mode_t mode;     /* the file's final mode, once begun */
} ml_permission;

/* For the file to be NAME in the open FOLDER, where a regular file may exist.  A link
 * there is replaced, not followed, and grants nothing.  Neither does another user's
 * file in a sticky folder, where anybody may have put it. */
ml_permission ml_permission_of(int folder, const char *name);
/* The mode for creating the file, with O_EXCL. */
mode_t ml_permission_to_make(const ml_permission *permission);
/* Closes the new, empty file to others; group, owner and ACL become those of the
 * replaced file, NAME in FOLDER. */
void ml_permission_begin(ml_permission *permission, int file, int folder,
                         const char *name);
/* Opens the complete file to everyone who may read it.  A file system without modes
 * grants what it always grants. */
void ml_permission_grant(const ml_permission *permission, int file);

#endif
