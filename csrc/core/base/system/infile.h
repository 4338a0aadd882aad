/* Files that are read at any offset, by their descriptors. */
#ifndef ML_INFILE_H
#define ML_INFILE_H

#include <stddef.h>
#include <stdint.h>

/* The descriptor of the file at PATH, or -1 with errno.  A pipe does not make it wait
 * for a writer. */
int ml_infile_open(const char *path);
/* Accepts -1. */
void ml_infile_close(int descriptor);

/* The current length of the file.  0, or ML_EIO with errno. */
int ml_infile_bytes(int descriptor, uint64_t *bytes);
/* All of LENGTH bytes from OFFSET on.  0 or ML_EIO. */
int ml_infile_read(int descriptor, uint64_t offset, void *to, size_t length);

/* The text of the small file at PATH, as the kernel's are, cut to BYTES with a NUL; empty if
 * there is none. */
void ml_infile_text(const char *path, char *text, size_t bytes);

#endif
