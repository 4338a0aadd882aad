/* To be preloaded: a machine whose file systems map no files to be written, as some do.
 * ERRNUM is what mmap answers there. */
#define _GNU_SOURCE

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *
mmap(void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    struct stat status;
    if ((flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0 &&
        descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
        errno = ERRNUM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, descriptor, offset);
}

void *
mmap64(void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    return mmap(at, bytes, protection, flags, descriptor, offset);
}
