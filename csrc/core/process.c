/* Which process of a run this is.  See process.h. */
#define _GNU_SOURCE 1 /* gethostname, CLOCK_BOOTTIME */

#include "process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

static uint64_t
read_clock(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

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
    out->unix_ns = read_clock(CLOCK_REALTIME);
    out->boot_ns = read_clock(CLOCK_BOOTTIME);
    uint64_t now = source != NULL ? source->now(source->self) : 0;
    if (source != NULL && source->unix_ns(source->self, &now, sizeof(now), 1) == 0) {
        out->unix_ns = now;
    }
}

/* As the kernel writes it; empty where it is not known. */
static size_t
write_boot(const unsigned char boot[ML_BOOT_BYTES], char text[2 * ML_BOOT_BYTES + 5])
{
    static const unsigned char none[ML_BOOT_BYTES] = {0};
    size_t length = 0;
    text[0] = '\0';
    if (memcmp(boot, none, ML_BOOT_BYTES) == 0) {
        return 0;
    }
    for (unsigned i = 0; i < ML_BOOT_BYTES; i++) {
        bool hyphen = i == 4 || i == 6 || i == 8 || i == 10;
        length += (size_t)snprintf(text + length, 2 * ML_BOOT_BYTES + 5 - length,
                                   "%s%02x", hyphen ? "-" : "", (unsigned)boot[i]);
    }
    return length;
}

static int
add_text(ml_recording *recording, const char *text, size_t length, uint32_t *id)
{
    return length == 0 ? 0 : ml_recording_add_string(recording, text, length, id);
}

int
ml_process_tell(const ml_process *process, uint8_t state, ml_recording *recording)
{
    bool placed = process->place.world_size > 0;
    ml_rank *rank = ml_alloc_zeroed(1, sizeof(ml_rank));
    if (rank == NULL) {
        return ML_ENOMEM;
    }
    *rank = (ml_rank){.rank = placed ? (int32_t)process->place.rank : -1,
                      .local_rank = placed ? (int32_t)process->place.local_rank : -1,
                      .world_size = process->place.world_size,
                      .pid = process->pid,
                      .anchor_time = process->unix_ns,
                      .anchor_boot = process->boot_ns,
                      .state = state};
    recording->ranks = rank;
    recording->rank_count = 1;
    char boot[2 * ML_BOOT_BYTES + 5];
    int result = add_text(recording, process->host, strlen(process->host), &rank->host);
    return result < 0 ? result
                      : add_text(recording, boot, write_boot(process->boot, boot),
                                 &rank->boot);
}
