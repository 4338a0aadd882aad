/* What the C library would import of a system to write errors to: it is refused, and
 * nothing is imported. */
#include <stdint.h>

#define REFUSED 52 /* ENOSYS of WASI */

int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t descriptor);
int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t descriptor, int64_t offset,
                                                  int32_t from, int32_t at);
int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t descriptor, int32_t parts,
                                                   int32_t count, int32_t written);

int32_t
__imported_wasi_snapshot_preview1_fd_close(int32_t descriptor)
{
    (void)descriptor;
    return REFUSED;
}

int32_t
__imported_wasi_snapshot_preview1_fd_seek(int32_t descriptor, int64_t offset,
                                          int32_t from, int32_t at)
{
    (void)descriptor, (void)offset, (void)from, (void)at;
    return REFUSED;
}

int32_t
__imported_wasi_snapshot_preview1_fd_write(int32_t descriptor, int32_t parts,
                                           int32_t count, int32_t written)
{
    (void)descriptor, (void)parts, (void)count, (void)written;
    return REFUSED;
}
