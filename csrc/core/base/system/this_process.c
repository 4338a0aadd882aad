/* Reads facts about this process and its machine.  See this_process.h. */
#define _GNU_SOURCE 1 /* gethostname */

#include "base/system/this_process.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/infile.h"

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
    ml_infile_text("/proc/self/statm", text, sizeof(text));
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
    ml_infile_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
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
