/* Files that are read at any place, by their descriptors. */
#ifndef ML_INFILE_H
#define ML_INFILE_H

#include <stddef.h>
#include <stdint.h>

/* The descriptor of the file at PATH, or -1 with errno.  Of a pipe there is no waiting for
 * who writes it. */
int ml_infile_open(const char *path);
/* Takes -1, too. */
void ml_infile_close(int descriptor);

/* How long the file is now.  0, or ML_EIO with errno. */
int ml_infile_bytes(int descriptor, uint64_t *bytes);
/* All of LENGTH bytes from OFFSET on.  0 or ML_EIO. */
int ml_infile_read(int descriptor, uint64_t offset, void *to, size_t length);

#endif
