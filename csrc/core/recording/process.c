/* Which process of a run this is.  See process.h. */
#define _GNU_SOURCE 1 /* gethostname, CLOCK_BOOTTIME */

#include "recording/process.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/system/clock.h"

static int
digit_of(char character)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = character != '\0' ? strchr(digits, character) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* The kernel's text, 32 hexadecimal digits and hyphens between; zeros where there is none. */
static void
read_boot(unsigned char boot[ML_BOOT_BYTES])
{
    char text[64] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, sizeof(text) - 1) : 0;
    if (file >= 0) {
        close(file);
    }
    memset(boot, 0, ML_BOOT_BYTES);
    unsigned count = 0;
    for (ssize_t i = 0; i < length && count < 2 * ML_BOOT_BYTES; i++) {
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

void
ml_process_here(ml_process *out, ml_process_place place, const ml_source *source)
{
    *out = (ml_process){.place = place, .pid = (uint64_t)getpid()};
    gethostname(out->host, sizeof(out->host) - 1);
    read_boot(out->boot);
    out->unix_ns = ml_clock_unix_ns();
    out->boot_ns = ml_clock_boot_ns();
    uint64_t now = source != NULL ? source->now(source->self) : 0;
    if (source != NULL && source->unix_ns(source->self, &now, sizeof(now), 1) == 0) {
        out->unix_ns = now;
    }
}
