/* NCCL: each rank is answered where it is, without the others. Communicators are made and
 * what they take of the device is counted; what is sent is moved only as far as values.c
 * keeps it, and then each rank receives what it sent itself, as if all had sent the same.
 *
 * The memory is a rule, measured with NCCL 2.28.9 on two H200s without NVLink multicast
 * (NVLS), and equal there to every figure of bench/results/nccl_2xh200_*.json within 2 MiB:
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
 * communicator has 32 channels, 24 of them for collectives; 64 where it has but one rank,
 * which connects nothing and launches nothing.  NCCL_MAX_NCHANNELS, NCCL_P2P_DISABLE,
 * NCCL_CUMEM_ENABLE and NCCL_RUNTIME_CONNECT were measured too and count.
 *
 * More ranks are taken to need as much: a ring has one neighbour on each side, however
 * many there are.  Not counted are the trees that NCCL may prefer for small sums of more
 * than two ranks (up to as much as the rings again), NVLS and networks.  GPUs that NVLink
 * does not join talk through host memory, as two H200s did with NCCL_P2P_DISABLE=1: those
 * are the ones without high-bandwidth memory, and 4 channels.
 */
#include "phantom.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES 128

enum {
    OK = 0,
    CUDA_ERROR = 1,
    INVALID_ARGUMENT = 4
};

/* In MiB, for all that NCCL's code takes: the module, and what its kernels add. */
enum {
    CODE = 168,
    RUN = 354,
    RUN_BROADCAST = 358,
    RUN_P2P = 416
};

typedef struct {
    char internal[ID_BYTES];
} unique_id;

/* The beginning of ncclConfig_t, the same since NCCL 2.17. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cluster_size, min_blocks, max_blocks;
} comm_config;

typedef struct {
    int ranks, rank, device;
    int channels;      /* of them `ring_channels` for collectives */
    int ring_channels; /* each a connection to the next rank and from the one before */
    int peer_channels; /* connections to a peer that is sent to */
    bool by_host;      /* buffers are in host memory */
    bool rings_connected; /* guarded by the lock, as is what follows */
    unsigned char *peers; /* by rank: SENT and RECEIVED */
    size_t charged;       /* bytes of the device */
} communicator;

enum {
    SENT = 1,
    RECEIVED = 2
};

static size_t code[ML_PHANTOM_MAX_DEVICES]; /* bytes of NCCL's own; guarded */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const char *last_error = "";

static int
fail(int error, const char *why)
{
    last_error = why;
    return error;
}

/* --- Memory ---------------------------------------------------------------------- */

static int
out_of_memory(void)
{
    return fail(CUDA_ERROR, "Cuda failure 2 'out of memory'");
}

/* The caller holds the lock. */
static bool
take(communicator *comm, size_t bytes)
{
    if (!ml_phantom_charge(bytes, comm->device)) {
        return false;
    }
    comm->charged += bytes;
    return true;
}

/* NCCL's code takes `mib` from now on, unless it takes more. Likewise. */
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

/* A number from the environment, in NCCL's words; `otherwise` where there is none. */
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
receive_bytes(const communicator *comm)
{
    size_t simple = setting("NCCL_BUFFSIZE", 4 * ML_MIB);

    simple = simple < 1024 * ML_MIB ? simple : 4 * ML_MIB;
    return comm->by_host ? 0 : in_granules((512 << 10) + (4800 << 10) + simple + 4096);
}

static size_t
send_bytes(const communicator *comm)
{
    return comm->by_host ? 0 : ML_PHANTOM_GRANULE;
}

static bool
connect_rings(communicator *comm)
{
    size_t bytes =
        (size_t)comm->ring_channels * (send_bytes(comm) + receive_bytes(comm));

    if (!comm->rings_connected && !take(comm, bytes)) {
        return false;
    }
    comm->rings_connected = true;
    return true;
}

static bool
connect_peer(communicator *comm, int peer, unsigned char way)
{
    size_t bytes = way == SENT ? send_bytes(comm) : receive_bytes(comm);

    if (peer == comm->rank || comm->peers[peer] & way) {
        return true;
    }
    if (!take(comm, (size_t)comm->peer_channels * bytes)) {
        return false;
    }
    comm->peers[peer] |= way;
    return true;
}

/* --- Communicators ----------------------------------------------------------------- */

/* No more than the user wants: `most` is ncclConfig_t's. */
static int
at_most(int channels, int most)
{
    size_t limit = setting("NCCL_MAX_CTAS", setting("NCCL_MAX_NCHANNELS", 64));

    if (most > 0 && (size_t)most < limit) {
        limit = (size_t)most;
    }
    return limit > 0 && limit < (size_t)channels ? (int)limit : channels;
}

static void
choose_channels(communicator *comm, int most)
{
    /* High-bandwidth memory has a wide bus. */
    bool joined = ml_phantom_configure()->gpu->bus_bits >= 4096 &&
                  setting("NCCL_P2P_DISABLE", 0) == 0;

    comm->by_host = !joined;
    comm->channels = at_most(comm->ranks == 1 ? 64 : joined ? 32 : 4, most);
    comm->ring_channels = at_most(joined ? 24 : 4, most);
    comm->peer_channels = at_most(joined ? 32 : 2, most);
}

/* What a new communicator takes. Without CUDA's virtual memory its small arrays share
 * pages with others; and where it connects at once, it makes buffers for a network too. */
static bool
take_at_start(communicator *comm)
{
    bool virtual = setting("NCCL_CUMEM_ENABLE", 1) != 0;
    bool at_once = !virtual || setting("NCCL_RUNTIME_CONNECT", 1) == 0;
    size_t arrays = virtual ? 3 * (size_t)comm->channels + 2 : 0;

    return grow_code(comm->device, CODE) && take(comm, arrays * ML_PHANTOM_GRANULE) &&
           (!at_once || comm->ranks == 1 ||
            (take(comm, 256 * ML_MIB) && connect_rings(comm)));
}

static void
comm_free(communicator *comm)
{
    if (comm != NULL) {
        ml_phantom_discharge(comm->charged, comm->device);
        free(comm->peers);
        free(comm);
    }
}

static int
comm_new(communicator **out, int ranks, int rank, const comm_config *config, int device)
{
    *out = NULL;
    if (ranks < 1 || rank < 0 || rank >= ranks) {
        return fail(INVALID_ARGUMENT, "Invalid rank requested");
    }
    ml_values_use();
    communicator *made = calloc(1, sizeof *made);
    unsigned char *peers = calloc((size_t)ranks, 1);

    if (made == NULL || peers == NULL) {
        free(made);
        free(peers);
        return fail(2, "Call to calloc failed");
    }
    *made =
        (communicator){.ranks = ranks, .rank = rank, .device = device, .peers = peers};
    choose_channels(made, config != NULL ? config->max_blocks : 0);
    pthread_mutex_lock(&lock);
    bool fits = take_at_start(made);
    pthread_mutex_unlock(&lock);
    if (!fits) {
        comm_free(made);
        return out_of_memory();
    }
    *out = made;
    return OK;
}

ML_EXPORT(int, ncclGetVersion, (int *version))
{
    ml_values_use();
    *version = ml_phantom_nccl_version();
    return OK;
}

ML_EXPORT(int, ncclGetUniqueId, (unique_id * id))
{
    memset(id, 0, sizeof *id);
    return OK;
}

ML_EXPORT(int, ncclCommInitRank,
          (communicator * *made, int ranks, unique_id id, int rank))
{
    (void)id;
    return comm_new(made, ranks, rank, NULL, ml_phantom_device());
}

ML_EXPORT(int, ncclCommInitRankConfig,
          (communicator * *made, int ranks, unique_id id, int rank,
           const comm_config *config))
{
    (void)id;
    return comm_new(made, ranks, rank, config, ml_phantom_device());
}

ML_EXPORT(int, ncclCommInitRankScalable,
          (communicator * *made, int ranks, int rank, int ids, const unique_id *id,
           const comm_config *config))
{
    (void)ids, (void)id;
    return comm_new(made, ranks, rank, config, ml_phantom_device());
}

ML_EXPORT(int, ncclCommInitAll, (communicator * *made, int count, const int *devices))
{
    for (int i = 0; i < count; i++) {
        int device = devices != NULL ? devices[i] : i;
        int error = device >= 0 && device < ml_phantom_configure()->devices
                        ? comm_new(&made[i], count, i, NULL, device)
                        : fail(INVALID_ARGUMENT, "Invalid device requested");

        if (error != OK) {
            while (i-- > 0) {
                comm_free(made[i]);
            }
            return error;
        }
    }
    return OK;
}

/* Who else is of the colour only the others know, and torch asks neither how many they
 * are nor which number the rank has among them. So a split is of the size of what it is
 * split from, and takes what a new communicator would, which was not measured. */
ML_EXPORT(int, ncclCommSplit,
          (const communicator *comm, int color, int key, communicator **made,
           const comm_config *config))
{
    (void)key;
    *made = NULL;
    return color < 0 ? OK
                     : comm_new(made, comm->ranks, comm->rank, config, comm->device);
}

ML_EXPORT(int, ncclCommShrink,
          (const communicator *comm, const int *excluded, int count,
           communicator **made, const comm_config *config))
{
    int before = 0;

    for (int i = 0; i < count; i++) {
        before += excluded[i] < comm->rank;
    }
    return comm_new(made, comm->ranks - count, comm->rank - before, config,
                    comm->device);
}

ML_EXPORT(int, ncclCommDestroy, (communicator * comm))
{
    comm_free(comm);
    return OK;
}

ML_EXPORT(int, ncclCommAbort, (communicator * comm))
{
    comm_free(comm);
    return OK;
}

ML_SUCCEED(ncclCommFinalize)

ML_EXPORT(int, ncclCommCount, (const communicator *comm, int *count))
{
    *count = comm->ranks;
    return OK;
}

ML_EXPORT(int, ncclCommUserRank, (const communicator *comm, int *rank))
{
    *rank = comm->rank;
    return OK;
}

ML_EXPORT(int, ncclCommGetAsyncError, (const communicator *comm, int *error))
{
    (void)comm;
    *error = OK;
    return OK;
}

ML_EXPORT(const char *, ncclGetErrorString, (int error))
{
    switch (error) {
    case OK:
        return "no error";
    case CUDA_ERROR:
        return "unhandled cuda error";
    case INVALID_ARGUMENT:
        return "invalid argument";
    default:
        return "unhandled system error";
    }
}

ML_EXPORT(const char *, ncclGetLastError, (void))
{
    return last_error;
}

/* --- Collectives --------------------------------------------------------------------- */

/* By ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64,
 * bfloat16, and float8 of two kinds. */
static size_t
type_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

/* What `mib` of code and a connection of the rings are for, once. */
static int
collect(communicator *comm, size_t mib)
{
    ml_phantom_wait();
    if (comm->ranks == 1) {
        return OK;
    }
    pthread_mutex_lock(&lock);
    bool fits = grow_code(comm->device, mib) && connect_rings(comm);
    pthread_mutex_unlock(&lock);
    return fits ? OK : out_of_memory();
}

/* The rank's own `bytes` from `from` arrive at `to`. Where memory has pages, the same that
 * values.c would keep is moved there. */
static void
deliver(void *to, const void *from, size_t bytes)
{
    if (!ml_phantom_configure()->backed) {
        ml_values_move((uintptr_t)to, (uintptr_t)from, bytes, true);
    }
    else if (bytes <= ML_VALUES_MOST) {
        memmove(to, from, bytes);
    }
}

ML_EXPORT(int, ncclAllReduce,
          (const void *from, void *to, size_t count, int type, int op,
           communicator *comm))
{
    (void)op;
    deliver(to, from, count * type_bytes(type));
    return collect(comm, RUN);
}

ML_EXPORT(int, ncclReduce,
          (const void *from, void *to, size_t count, int type, int op, int root,
           communicator *comm))
{
    (void)op;
    if (comm->rank == root) {
        deliver(to, from, count * type_bytes(type));
    }
    return collect(comm, RUN);
}

ML_EXPORT(int, ncclBroadcast,
          (const void *from, void *to, size_t count, int type, int root,
           communicator *comm))
{
    deliver(to, comm->rank == root ? from : to, count * type_bytes(type));
    return collect(comm, RUN_BROADCAST);
}

ML_EXPORT(int, ncclBcast,
          (void *buffer, size_t count, int type, int root, communicator *comm))
{
    (void)root;
    deliver(buffer, buffer, count * type_bytes(type));
    return collect(comm, RUN_BROADCAST);
}

ML_EXPORT(int, ncclAllGather,
          (const void *from, char *to, size_t count, int type, communicator *comm))
{
    size_t bytes = count * type_bytes(type);

    for (int i = 0; i < comm->ranks; i++) {
        deliver(to + (size_t)i * bytes, from, bytes);
    }
    return collect(comm, RUN);
}

ML_EXPORT(int, ncclReduceScatter,
          (const char *from, void *to, size_t count, int type, int op,
           communicator *comm))
{
    size_t bytes = count * type_bytes(type);

    (void)op;
    deliver(to, from + (size_t)comm->rank * bytes, bytes);
    return collect(comm, RUN);
}

/* --- From one to another ------------------------------------------------------------- */

static int
pass(communicator *comm, int peer, unsigned char way)
{
    ml_phantom_wait();
    if (peer < 0 || peer >= comm->ranks) {
        return fail(INVALID_ARGUMENT, "Invalid peer requested");
    }
    pthread_mutex_lock(&lock);
    bool fits = comm->ranks == 1 ||
                (grow_code(comm->device, RUN_P2P) && connect_peer(comm, peer, way));
    pthread_mutex_unlock(&lock);
    return fits ? OK : out_of_memory();
}

ML_EXPORT(int, ncclSend,
          (const void *from, size_t count, int type, int peer, communicator *comm))
{
    (void)from, (void)count, (void)type;
    return pass(comm, peer, SENT);
}

ML_EXPORT(int, ncclRecv,
          (void *to, size_t count, int type, int peer, communicator *comm))
{
    ml_values_forget((uintptr_t)to, count * type_bytes(type));
    return pass(comm, peer, RECEIVED);
}

ML_EXPORT(int, ncclAlltoAll,
          (const void *from, char *to, size_t count, int type, communicator *comm))
{
    int error = OK;

    (void)from;
    ml_values_forget((uintptr_t)to, count * type_bytes(type) * (size_t)comm->ranks);
    for (int i = 0; i < comm->ranks && error == OK; i++) {
        error = pass(comm, i, SENT);
        error = error == OK ? pass(comm, i, RECEIVED) : error;
    }
    return error;
}

ML_SUCCEED(ncclGroupStart)
ML_SUCCEED(ncclGroupEnd)

/* --- Operators, buffers and windows ---------------------------------------------------- */

ML_EXPORT(int, ncclRedOpCreatePreMulSum, (int *op))
{
    *op = 5; /* the first that is not built in */
    return OK;
}

ML_SUCCEED(ncclRedOpDestroy)

ML_EXPORT(int, ncclMemAlloc, (void **pointer, size_t bytes))
{
    return ml_phantom_malloc(pointer, bytes, ml_phantom_device()) == ML_CUDA_Success
               ? OK
               : out_of_memory();
}

ML_EXPORT(int, ncclMemFree, (void *pointer))
{
    return ml_phantom_free(pointer) == ML_CUDA_Success
               ? OK
               : fail(INVALID_ARGUMENT, "Not allocated by ncclMemAlloc");
}

ML_EXPORT(int, ncclCommRegister,
          (const communicator *comm, void *buffer, size_t bytes, void **handle))
{
    (void)comm, (void)buffer, (void)bytes;
    *handle = ml_phantom_handle();
    return OK;
}

ML_SUCCEED(ncclCommDeregister)

ML_EXPORT(int, ncclCommWindowRegister,
          (const communicator *comm, void *buffer, size_t bytes, void **window))
{
    (void)comm, (void)buffer, (void)bytes;
    *window = ml_phantom_handle();
    return OK;
}

ML_SUCCEED(ncclCommWindowDeregister)
