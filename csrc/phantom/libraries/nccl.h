/* Declarations that nccl*.c share: a communicator, its memory and its board. */
#ifndef ML_NCCL_H
#define ML_NCCL_H

#include "phantom.h"

/* Of ncclResult_t. */
enum {
    ML_NCCL_OK = 0,
    ML_NCCL_CUDA_ERROR = 1,
    ML_NCCL_INVALID_ARGUMENT = 4
};

/* Both return what the call does; `why` is what ncclGetLastError() says. */
int ml_nccl_fail(int error, const char *why);
int ml_nccl_out_of_memory(void);

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

typedef struct ml_nccl_board ml_nccl_board;

/* How ranks tell each other numbers of rows. */
typedef enum {
    ML_NCCL_EXCHANGED,
    ML_NCCL_GATHERED,
    ML_NCCL_WAYS
} ml_nccl_way;

typedef struct {
    long long *rows; /* by rank: rows that it is told will come; NULL: none was told */
    size_t size;     /* integers that say so to each rank; 0: it is not known */
} ml_nccl_told;

typedef struct {
    int ranks, rank, device;
    ml_nccl_board *board; /* NULL: the ranks share none */
    uint64_t broadcasts;  /* of small data so far, the same number on all ranks */
    int channels;         /* `ring_channels` of these are for collectives */
    int ring_channels;    /* each connects to the next rank and from the previous one */
    int peer_channels;    /* connections to a peer that receives */
    bool by_host;         /* buffers are in host memory */
    bool rings_connected; /* guarded by the lock, as is everything below */
    unsigned char *peers; /* by rank: bits ML_NCCL_SENT, _RECEIVED */
    size_t sent_to, received_from; /* peers whose memory was taken */
    size_t charged;                /* bytes of the device */
    ml_nccl_told told[ML_NCCL_WAYS];
} ml_nccl_comm;

/* What a rank sends to a peer, or receives from it. */
typedef struct {
    void *at;
    size_t bytes;
    int peer;
    int width; /* bytes of an integer; 0: other data */
} ml_nccl_part;

/* Chooses a new communicator's number of channels; `most` is ncclConfig_t's, or 0. */
void ml_nccl_choose_channels(ml_nccl_comm *comm, int most);

/* Take the memory of a new communicator, of a collective whose code takes `mib`, and of
 * sending to or receiving from a peer.  False: no memory left. */
bool ml_nccl_take_new(ml_nccl_comm *comm);
bool ml_nccl_take_collective(ml_nccl_comm *comm, size_t mib);
bool ml_nccl_take_peer(ml_nccl_comm *comm, int peer, unsigned char way);

/* Gives back the communicator's own memory. */
void ml_nccl_give(ml_nccl_comm *comm);

/* A rank sent and received these at once, among them a part of its own. */
void ml_nccl_exchanged(ml_nccl_comm *comm, const ml_nccl_part *sent, size_t sends,
                       const ml_nccl_part *received, size_t receives);

/* A rank gathered parts of the size of its `own` from all, by rank, at `to`. */
void ml_nccl_gathered(ml_nccl_comm *comm, ml_nccl_part own, char *to);

/* Writes to a communicator's unique id, of zeros, where its ranks find their board; leaves
 * it as it is if there can be none. */
void ml_nccl_board_offer(void *id);

/* The board of that id, or NULL. */
ml_nccl_board *ml_nccl_board_join(const void *id);
void ml_nccl_board_leave(ml_nccl_board *board); /* takes NULL */

/* The root's data of the broadcast `number`, from 1 on; no bytes: they are not known. */
void ml_nccl_board_post(ml_nccl_board *board, uint64_t number, const void *content,
                        size_t bytes);

enum {
    ML_NCCL_TAKEN,
    ML_NCCL_UNKNOWN, /* to the root, or overwritten by now */
    ML_NCCL_NEVER    /* not posted within the time that a rank waits */
};

/* Waits for these data, and copies them. */
int ml_nccl_board_take(ml_nccl_board *board, uint64_t number, void *content,
                       size_t bytes);

#endif
