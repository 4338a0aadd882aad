/* What nccl.c and nccl_memory.c share: a communicator, and what its memory is. */
#ifndef ML_NCCL_H
#define ML_NCCL_H

#include "phantom.h"

/* In MiB, for all that NCCL's code takes: the module, and what its kernels add. */
enum {
    ML_NCCL_CODE = 168,
    ML_NCCL_RUN = 354,
    ML_NCCL_RUN_BROADCAST = 358,
    ML_NCCL_RUN_P2P = 416
};

enum {
    ML_NCCL_SENT = 1,
    ML_NCCL_RECEIVED = 2
};

typedef struct {
    int ranks, rank, device;
    int channels;      /* of them `ring_channels` for collectives */
    int ring_channels; /* each a connection to the next rank and from the one before */
    int peer_channels; /* connections to a peer that is sent to */
    bool by_host;      /* buffers are in host memory */
    bool rings_connected; /* guarded by the lock, as is what follows */
    unsigned char *peers; /* by rank: what it is of ML_NCCL_SENT, _RECEIVED */
    size_t charged;       /* bytes of the device */
} ml_nccl_comm;

/* Decides how many channels a new communicator has; `most` is ncclConfig_t's, or 0. */
void ml_nccl_choose_channels(ml_nccl_comm *comm, int most);

/* What a new communicator takes, what a collective does for which NCCL's code takes `mib`,
 * what to send to a peer or to receive from it does; false where memory has run out. */
bool ml_nccl_take_new(ml_nccl_comm *comm);
bool ml_nccl_take_collective(ml_nccl_comm *comm, size_t mib);
bool ml_nccl_take_peer(ml_nccl_comm *comm, int peer, unsigned char way);

/* Gives back what the communicator itself took. */
void ml_nccl_give(ml_nccl_comm *comm);

#endif
