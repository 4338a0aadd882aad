/* Reads files at any offset.  See infile.h. */
#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC */

#include "base/system/infile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memlab.h"

int
ml_infile_open(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

void
ml_infile_close(int descriptor)
{
    if (descriptor >= 0) {
        close(descriptor);
    }
}

int
ml_infile_bytes(int descriptor, uint64_t *bytes)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        return ML_EIO;
    }
    *bytes = (uint64_t)status.st_size;
    return 0;
}

int
ml_infile_read(int descriptor, uint64_t offset, void *to, size_t length)
{
    char *at = to;
    while (length > 0) {
        ssize_t got = pread(descriptor, at, length, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return ML_EIO;
        }
        at += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return 0;
}

void
ml_infile_text(const char *path, char *text, size_t bytes)
{
    int file = ml_infile_open(path);
    size_t length = 0;
    ssize_t got = file >= 0 ? 1 : 0;
    while (got != 0 && length < bytes - 1) {
        got = read(file, text + length, bytes - 1 - length);
        if (got < 0 && errno != EINTR) {
            break;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    ml_infile_close(file);
    text[length] = '\0';
}
