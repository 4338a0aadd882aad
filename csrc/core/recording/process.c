/* Identifies a process of a run.  See process.h. */
#include "recording/process.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/system/clock.h"

void
ml_process_here(ml_process *out, ml_process_place place, const ml_source *source)
{
    *out = (ml_process){.place = place, .pid = (uint64_t)ml_this_process_id()};
    ml_this_process_host(out->host, sizeof(out->host));
    ml_this_process_boot(out->boot);
    out->unix_ns = ml_clock_unix_ns();
    out->boot_ns = ml_clock_boot_ns();
    uint64_t now = source != NULL ? source->now(source->self) : 0;
    if (source != NULL && source->unix_ns(source->self, &now, sizeof(now), 1) == 0) {
        out->unix_ns = now;
    }
}

/* In the kernel's form; empty if unknown. */
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
