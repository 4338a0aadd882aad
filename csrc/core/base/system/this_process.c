/* Reads facts about this process and its machine.  See this_process.h. */
#define _GNU_SOURCE 1 /* gethostname, O_CLOEXEC */

#include "base/system/this_process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text of the kernel's file at PATH, cut to BYTES with a NUL; empty if there is
 * none. */
static void
read_text(const char *path, char *text, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, bytes - 1) : 0;
    if (file >= 0) {
        close(file);
    }
    text[length > 0 ? length : 0] = '\0';
}

int
ml_this_process_id(void)
{
    return (int)getpid();
}

uint64_t
ml_this_process_resident(void)
{
    /* Pages: of the whole program, resident, and more. */
    char text[128];
    read_text("/proc/self/statm", text, sizeof(text));
    long page = sysconf(_SC_PAGESIZE);
    char *second, *end;
    strtoull(text, &second, 10);
    uint64_t pages = strtoull(second, &end, 10);
    return end != second && page > 0 ? pages * (uint64_t)page : UINT64_MAX;
}

void
ml_this_process_host(char *name, size_t bytes)
{
    memset(name, 0, bytes);
    gethostname(name, bytes - 1);
}

static int
digit_of(char character)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = character != '\0' ? strchr(digits, character) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* The kernel's text is 32 hexadecimal digits, with hyphens between. */
void
ml_this_process_boot(unsigned char boot[ML_BOOT_BYTES])
{
    char text[64];
    unsigned count = 0;
    read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    memset(boot, 0, ML_BOOT_BYTES);
    for (size_t i = 0; text[i] != '\0' && count < 2 * ML_BOOT_BYTES; i++) {
        int digit = digit_of(text[i]);
        if (digit >= 0) {
            boot[count / 2] = (unsigned char)(boot[count / 2] << 4 | digit);
            count++;
        }
    }
    if (count < 2 * ML_BOOT_BYTES) {
        memset(boot, 0, ML_BOOT_BYTES);
    }
}
