/* The identity of a process in a run, and the relation of its clock to others'.
 *
 * A recording keeps it so that recordings of several ranks can be merged: the process's
 * place among them, the machine, its boot, and one moment on the kernel's clock. */
#ifndef ML_PROCESS_H
#define ML_PROCESS_H

#include "base/system/this_process.h"
#include "recording/recording.h"

/* A process's place in a run of several; all zeros: not known. */
typedef struct ml_process_place {
    uint32_t world_size; /* 0: unknown, and so are the others */
    uint32_t rank;
    uint32_t local_rank;
} ml_process_place;

typedef struct ml_process {
    ml_process_place place;
    uint64_t pid;
    uint64_t unix_ns;                  /* one moment */
    uint64_t boot_ns;                  /* the same, since boot; 0: not known */
    char host[64];                     /* NUL-terminated */
    unsigned char boot[ML_BOOT_BYTES]; /* id of the boot; zeros: not known */
} ml_process;

/* This process, now.  With SOURCE the moment is on the clock of its events, which each
 * process measures against the kernel's, with an error.  NULL: on the kernel's
 * clock. */
void ml_process_here(ml_process *out, ml_process_place place, const ml_source *source);

/* Makes PROCESS the one rank of RECORDING, which has none yet, with STATE, an enum
 * ml_rank_state.  0 or ML_ENOMEM. */
int ml_process_tell(const ml_process *process, uint8_t state, ml_recording *recording);

#endif
