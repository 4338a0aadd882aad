/* NCCL's device memory, outside torch's allocator.
 *
 * The rule was measured with NCCL 2.28.9 on two H200s without NVLink multicast (NVLS).
 * It is within 2 MiB of every figure in bench/results/nccl_2xh200_*.json:
 *
 *   what                                      MiB  taken
 *   NCCL's code, once a device                168  with the first communicator
 *   its kernels and their stacks              186  with the first collective
 *   those of broadcast, of send and receive   +4, +62  (the larger) with the first of them
 *   a communicator                            2 for each of 3 things a channel, and 2 more
 *   its rings                                 12 a channel, with its first collective
 *   a peer sent to, a peer received from      2 or 10 a channel, with the first send
 *
 * A channel's buffers are one of 2 MiB at the sender, and at the receiver one for each of
 * the protocols: 512 KiB, 4,800 KiB and NCCL_BUFFSIZE (4 MiB), rounded up to 2 MiB.  A
 * communicator has 32 channels, 24 of them for collectives.  With one rank it has 64, and
 * connects and launches nothing.  The rule covers NCCL_MAX_NCHANNELS, NCCL_P2P_DISABLE,
 * NCCL_CUMEM_ENABLE and NCCL_RUNTIME_CONNECT, which were measured too.
 *
 * On four H200s (bench/results/nccl_4xh200_*.json) it is right too, but for 2 MiB more with
 * the first communicator, and with some of the others: for each call from 4 KiB to 64 MiB,
 * groups of all ranks and of two, and peers.  Sums of any size went through rings.
 *
 * More ranks are assumed to need the same: a ring has one neighbour on each side.  The
 * rule leaves out trees, which NCCL may prefer for small sums of more ranks (at most the
 * rings' memory again), NVLS and networks: at most as many peers count as a node has other
 * ranks.  GPUs without high-bandwidth memory are assumed to have no NVLink.  They communicate
 * through host memory with 4 channels, as two H200s did with NCCL_P2P_DISABLE=1.
 */
#include "libraries/nccl.h"

#include <pthread.h>
#include <stdlib.h>

static size_t code[ML_PHANTOM_MAX_DEVICES]; /* bytes of NCCL's own; guarded */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The caller holds the lock. */
static bool
charge_bytes(ml_nccl_comm *comm, size_t bytes)
{
    if (!ml_phantom_charge(bytes, comm->device)) {
        return false;
    }
    comm->charged += bytes;
    return true;
}

/* NCCL's code takes at least `mib` from now on.  Returns as take. */
static bool
grow_code(int device, size_t mib)
{
    size_t bytes = mib * ML_MIB;

    if (bytes <= code[device]) {
        return true;
    }
    if (!ml_phantom_charge(bytes - code[device], device)) {
        return false;
    }
    code[device] = bytes;
    return true;
}

/* A number from the environment, in NCCL's form; `otherwise` if it is not set. */
static size_t
setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL || *text < '0' || *text > '9') {
        return otherwise;
    }
    unsigned long value = strtoul(text, &end, 10);
    return *end == '\0' ? (size_t)value : otherwise;
}

static size_t
in_granules(size_t bytes)
{
    return (bytes + ML_PHANTOM_GRANULE - 1) / ML_PHANTOM_GRANULE * ML_PHANTOM_GRANULE;
}

/* Buffers of the protocols LL, LL128 and Simple, and a page of counters. */
static size_t
receive_bytes(const ml_nccl_comm *comm)
{
    size_t simple = setting("NCCL_BUFFSIZE", 4 * ML_MIB);

    simple = simple < 1024 * ML_MIB ? simple : 4 * ML_MIB;
    return comm->by_host ? 0 : in_granules((512 << 10) + (4800 << 10) + simple + 4096);
}

static size_t
send_bytes(const ml_nccl_comm *comm)
{
    return comm->by_host ? 0 : ML_PHANTOM_GRANULE;
}

static bool
connect_rings(ml_nccl_comm *comm)
{
    size_t bytes =
        (size_t)comm->ring_channels * (send_bytes(comm) + receive_bytes(comm));

    if (!comm->rings_connected && !charge_bytes(comm, bytes)) {
        return false;
    }
    comm->rings_connected = true;
    return true;
}

static bool
connect_peer(ml_nccl_comm *comm, int peer, unsigned char way)
{
    size_t bytes = way == ML_NCCL_SENT ? send_bytes(comm) : receive_bytes(comm);

    if (peer == comm->rank || comm->peers[peer] & way) {
        return true;
    }
    /* torchrun says how many ranks a node has.  Which ones they are is not known here. */
    size_t *near = way == ML_NCCL_SENT ? &comm->sent_to : &comm->received_from;

    if (*near + 1 < setting("LOCAL_WORLD_SIZE", SIZE_MAX)) {
        if (!charge_bytes(comm, (size_t)comm->peer_channels * bytes)) {
            return false;
        }
        ++*near;
    }
    comm->peers[peer] |= way;
    return true;
}

/* At most the user's limit: `most` is ncclConfig_t's. */
static int
at_most(int channels, int most)
{
    size_t limit = setting("NCCL_MAX_CTAS", setting("NCCL_MAX_NCHANNELS", 64));

    if (most > 0 && (size_t)most < limit) {
        limit = (size_t)most;
    }
    return limit > 0 && limit < (size_t)channels ? (int)limit : channels;
}

void
ml_nccl_choose_channels(ml_nccl_comm *comm, int most)
{
    /* High-bandwidth memory has a wide bus. */
    bool joined = ml_phantom_configure()->gpu->bus_bits >= 4096 &&
                  setting("NCCL_P2P_DISABLE", 0) == 0;

    comm->by_host = !joined;
    comm->channels = at_most(comm->ranks == 1 ? 64 : joined ? 32 : 4, most);
    comm->ring_channels = at_most(joined ? 24 : 4, most);
    comm->peer_channels = at_most(joined ? 32 : 2, most);
}

/* The memory of a new communicator.  Without CUDA's virtual memory, its small arrays
 * share pages with others.  If it connects at once, it makes buffers for a network
 * too. */
static bool
take_at_start(ml_nccl_comm *comm)
{
    bool virtual = setting("NCCL_CUMEM_ENABLE", 1) != 0;
    bool at_once = !virtual || setting("NCCL_RUNTIME_CONNECT", 1) == 0;
    size_t arrays = virtual ? 3 * (size_t)comm->channels + 2 : 0;

    return grow_code(comm->device, ML_NCCL_CODE) &&
           charge_bytes(comm, arrays * ML_PHANTOM_GRANULE) &&
           (!at_once || comm->ranks == 1 ||
            (charge_bytes(comm, 256 * ML_MIB) && connect_rings(comm)));
}

bool
ml_nccl_take_new(ml_nccl_comm *comm)
{
    pthread_mutex_lock(&lock);
    bool fits = take_at_start(comm);
    pthread_mutex_unlock(&lock);
    return fits;
}

bool
ml_nccl_take_collective(ml_nccl_comm *comm, size_t mib)
{
    pthread_mutex_lock(&lock);
    bool fits =
        comm->ranks == 1 || (grow_code(comm->device, mib) && connect_rings(comm));
    pthread_mutex_unlock(&lock);
    return fits;
}

bool
ml_nccl_take_peer(ml_nccl_comm *comm, int peer, unsigned char way)
{
    pthread_mutex_lock(&lock);
    bool fits = comm->ranks == 1 || (grow_code(comm->device, ML_NCCL_RUN_P2P) &&
                                     connect_peer(comm, peer, way));
    pthread_mutex_unlock(&lock);
    return fits;
}

void
ml_nccl_give(ml_nccl_comm *comm)
{
    ml_phantom_discharge(comm->charged, comm->device);
}
