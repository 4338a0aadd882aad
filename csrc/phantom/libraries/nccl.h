/* Declarations that nccl.c and nccl_memory.c share: a communicator and its memory. */
#ifndef ML_NCCL_H
#define ML_NCCL_H

#include "phantom.h"

/* In MiB, for all of NCCL's code: the module, and its kernels' additions. */
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
    int channels;         /* `ring_channels` of these are for collectives */
    int ring_channels;    /* each connects to the next rank and from the previous one */
    int peer_channels;    /* connections to a peer that receives */
    bool by_host;         /* buffers are in host memory */
    bool rings_connected; /* guarded by the lock, as is everything below */
    unsigned char *peers; /* by rank: bits ML_NCCL_SENT, _RECEIVED */
    size_t sent_to, received_from; /* peers whose memory was taken */
    size_t charged;                /* bytes of the device */
} ml_nccl_comm;

/* Chooses a new communicator's number of channels; `most` is ncclConfig_t's, or 0. */
void ml_nccl_choose_channels(ml_nccl_comm *comm, int most);

/* Take the memory of a new communicator, of a collective whose code takes `mib`, and of
 * sending to or receiving from a peer.  False: no memory left. */
bool ml_nccl_take_new(ml_nccl_comm *comm);
bool ml_nccl_take_collective(ml_nccl_comm *comm, size_t mib);
bool ml_nccl_take_peer(ml_nccl_comm *comm, int peer, unsigned char way);

/* Gives back the communicator's own memory. */
void ml_nccl_give(ml_nccl_comm *comm);

#endif
