/* Memory of the host.  See host_memory.h. */
#define _GNU_SOURCE /* for O_CLOEXEC */
#include "gpu/host_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t
ml_host_resident(void)
{
    /* Pages: of the whole program, resident, and more. */
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return UINT64_MAX;
    }
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    long page = sysconf(_SC_PAGESIZE);
    if (length <= 0 || page <= 0) {
        return UINT64_MAX;
    }
    text[length] = '\0';
    char *second, *end;
    strtoull(text, &second, 10);
    uint64_t pages = strtoull(second, &end, 10);
    return end != second ? pages * (uint64_t)page : UINT64_MAX;
}
