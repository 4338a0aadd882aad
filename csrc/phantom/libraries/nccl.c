/* NCCL: each rank runs alone.  Communicators exist and their device memory is counted.
 * Data moves only as far as values.c and contents.c keep it.  Small broadcasts arrive
 * (nccl_board.c); otherwise each rank receives its own data, as if all ranks had sent the
 * same. */
#include "libraries/nccl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES 128

typedef struct {
    char internal[ID_BYTES];
} unique_id;

/* The beginning of ncclConfig_t, the same since NCCL 2.17. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cluster_size, min_blocks, max_blocks;
} comm_config;

static _Thread_local const char *last_error = "";

int
ml_nccl_fail(int error, const char *why)
{
    last_error = why;
    return error;
}

int
ml_nccl_out_of_memory(void)
{
    return ml_nccl_fail(ML_NCCL_CUDA_ERROR, "Cuda failure 2 'out of memory'");
}

/* --- Communicators ----------------------------------------------------------------- */

static void
comm_free(ml_nccl_comm *comm)
{
    if (comm != NULL) {
        ml_nccl_give(comm);
        ml_nccl_board_leave(comm->board);
        free(comm->peers);
        for (int way = 0; way < ML_NCCL_WAYS; way++) {
            free(comm->told[way].rows);
        }
        free(comm);
    }
}

/* `id`: NULL where the ranks cannot know it, and so have no board. */
static int
comm_new(ml_nccl_comm **out, int ranks, int rank, const comm_config *config, int device,
         const unique_id *id)
{
    *out = NULL;
    if (ranks < 1 || rank < 0 || rank >= ranks) {
        return ml_nccl_fail(ML_NCCL_INVALID_ARGUMENT, "Invalid rank requested");
    }
    ml_values_use();
    ml_nccl_comm *made = calloc(1, sizeof *made);
    unsigned char *peers = calloc((size_t)ranks, 1);

    if (made == NULL || peers == NULL) {
        free(made);
        free(peers);
        return ml_nccl_fail(2, "Call to calloc failed");
    }
    *made =
        (ml_nccl_comm){.ranks = ranks, .rank = rank, .device = device, .peers = peers};
    ml_nccl_choose_channels(made, config != NULL ? config->max_blocks : 0);
    if (!ml_nccl_take_new(made)) {
        comm_free(made);
        return ml_nccl_out_of_memory();
    }
    made->board = id != NULL && ranks > 1 ? ml_nccl_board_join(id) : NULL;
    *out = made;
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclGetVersion, (int *version))
{
    ml_values_use();
    *version = ml_phantom_nccl_version();
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclGetUniqueId, (unique_id * id))
{
    memset(id, 0, sizeof *id);
    ml_nccl_board_offer(id);
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclCommInitRank,
          (ml_nccl_comm * *made, int ranks, unique_id id, int rank))
{
    return comm_new(made, ranks, rank, NULL, ml_phantom_device(), &id);
}

ML_EXPORT(int, ncclCommInitRankConfig,
          (ml_nccl_comm * *made, int ranks, unique_id id, int rank,
           const comm_config *config))
{
    return comm_new(made, ranks, rank, config, ml_phantom_device(), &id);
}

ML_EXPORT(int, ncclCommInitRankScalable,
          (ml_nccl_comm * *made, int ranks, int rank, int ids, const unique_id *id,
           const comm_config *config))
{
    return comm_new(made, ranks, rank, config, ml_phantom_device(),
                    ids > 0 ? id : NULL);
}

ML_EXPORT(int, ncclCommInitAll, (ml_nccl_comm * *made, int count, const int *devices))
{
    for (int i = 0; i < count; i++) {
        int device = devices != NULL ? devices[i] : i;
        int error =
            device >= 0 && device < ml_phantom_configure()->devices
                ? comm_new(&made[i], count, i, NULL, device, NULL)
                : ml_nccl_fail(ML_NCCL_INVALID_ARGUMENT, "Invalid device requested");

        if (error != ML_NCCL_OK) {
            while (i-- > 0) {
                comm_free(made[i]);
            }
            return error;
        }
    }
    return ML_NCCL_OK;
}

/* Of what this thread splits off now: how many ranks, and which of them this is; 0: not
 * told. */
static _Thread_local int split_ranks, split_rank;

/* For memlab's Python, before and after torch splits a group. */
ML_EXPORT(void, memlab_phantom_split, (int ranks, int rank))
{
    split_ranks = ranks;
    split_rank = rank;
}

/* Only the other ranks know who shares the colour; torch does, too, and memlab asks it.  A
 * split of which nothing was told has its parent's size.  It takes the memory of a new
 * communicator, which was not measured. */
ML_EXPORT(int, ncclCommSplit,
          (const ml_nccl_comm *comm, int color, int key, ml_nccl_comm **made,
           const comm_config *config))
{
    bool told = split_ranks > 0;

    (void)key;
    *made = NULL;
    return color < 0
               ? ML_NCCL_OK
               : comm_new(made, told ? split_ranks : comm->ranks,
                          told ? split_rank : comm->rank, config, comm->device, NULL);
}

ML_EXPORT(int, ncclCommShrink,
          (const ml_nccl_comm *comm, const int *excluded, int count,
           ml_nccl_comm **made, const comm_config *config))
{
    int before = 0;

    for (int i = 0; i < count; i++) {
        before += excluded[i] < comm->rank;
    }
    return comm_new(made, comm->ranks - count, comm->rank - before, config,
                    comm->device, NULL);
}

ML_EXPORT(int, ncclCommDestroy, (ml_nccl_comm * comm))
{
    comm_free(comm);
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclCommAbort, (ml_nccl_comm * comm))
{
    comm_free(comm);
    return ML_NCCL_OK;
}

ML_SUCCEED(ncclCommFinalize)
ML_SUCCEED(ncclCommRevoke)

ML_EXPORT(int, ncclCommCount, (const ml_nccl_comm *comm, int *count))
{
    *count = comm->ranks;
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclCommUserRank, (const ml_nccl_comm *comm, int *rank))
{
    *rank = comm->rank;
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclCommGetAsyncError, (const ml_nccl_comm *comm, int *error))
{
    (void)comm;
    *error = ML_NCCL_OK;
    return ML_NCCL_OK;
}

ML_EXPORT(const char *, ncclGetErrorString, (int error))
{
    switch (error) {
    case ML_NCCL_OK:
        return "no error";
    case ML_NCCL_CUDA_ERROR:
        return "unhandled cuda error";
    case ML_NCCL_INVALID_ARGUMENT:
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

static int
run_collective(ml_nccl_comm *comm, size_t mib)
{
    ml_phantom_wait();
    return ml_nccl_take_collective(comm, mib) ? ML_NCCL_OK : ml_nccl_out_of_memory();
}

/* Delivers the rank's own `bytes` from `from` to `to`.  Where memory has pages, the
 * data that values.c would keep is moved there. */
static void
deliver(void *to, const void *from, size_t bytes)
{
    if (!ml_phantom_configure()->backed) {
        ml_values_move((uintptr_t)to, (uintptr_t)from, bytes, true);
        ml_contents_move((uintptr_t)to, (uintptr_t)from, bytes, false);
    }
    else if (bytes <= ML_VALUES_MOST) {
        memmove(to, from, bytes);
    }
}

/* --- Small broadcasts ---------------------------------------------------------------- */

/* Posts the root's data, or that they are not known. */
static void
post(ml_nccl_comm *comm, const void *from, size_t bytes, uint64_t number)
{
    unsigned char content[ML_VALUES_MOST];
    bool known = true;

    if (ml_phantom_configure()->backed) {
        memcpy(content, from, bytes);
    }
    else {
        known = ml_contents_find((uintptr_t)from, content, bytes) ||
                ml_values_find((uintptr_t)from, content, bytes);
    }
    ml_nccl_board_post(comm->board, number, content, known ? bytes : 0);
}

/* Puts what the root has posted to `to`; false: nothing is known of it. */
static bool
take_posted(ml_nccl_comm *comm, void *to, size_t bytes, uint64_t number)
{
    unsigned char content[ML_VALUES_MOST];

    switch (ml_nccl_board_take(comm->board, number, content, bytes)) {
    case ML_NCCL_TAKEN:
        break;
    case ML_NCCL_NEVER:
        ml_nccl_board_leave(comm->board);
        comm->board = NULL;
        return false;
    default:
        return false;
    }
    if (ml_phantom_configure()->backed) {
        memcpy(to, content, bytes);
    }
    else {
        ml_values_arrive((uintptr_t)to, content, bytes);
        ml_contents_arrive((uintptr_t)to, content, bytes);
    }
    return true;
}

/* The number of a broadcast that goes over the board; 0: it does not. */
static uint64_t
number_of(ml_nccl_comm *comm, size_t bytes)
{
    bool goes = comm->board != NULL && bytes > 0 && bytes <= ML_VALUES_MOST;

    return goes ? ++comm->broadcasts : 0;
}

/* --- Collectives of all ranks -------------------------------------------------------- */

ML_EXPORT(int, ncclAllReduce,
          (const void *from, void *to, size_t count, int type, int op,
           ml_nccl_comm *comm))
{
    (void)op;
    deliver(to, from, count * type_bytes(type));
    return run_collective(comm, ML_NCCL_RUN);
}

ML_EXPORT(int, ncclReduce,
          (const void *from, void *to, size_t count, int type, int op, int root,
           ml_nccl_comm *comm))
{
    (void)op;
    if (comm->rank == root) {
        deliver(to, from, count * type_bytes(type));
    }
    return run_collective(comm, ML_NCCL_RUN);
}

typedef struct {
    ml_nccl_comm *comm;
    void *to;
    size_t bytes;
    uint64_t number; /* 0: not over the board */
} arrival;

typedef struct {
    ml_nccl_part *all;
    size_t count, room;
} parts;

/* From torch 2.15 on, an all_gather into a list of tensors is a group of broadcasts, one
 * from each rank; the rank's own is from another place than where it goes. */
typedef struct {
    int depth;         /* calls of ncclGroupStart without ncclGroupEnd */
    const void *from;  /* the rank's own; NULL: no such broadcast yet */
    size_t bytes;      /* of that */
    arrival *arrivals; /* from the other ranks */
    size_t count, room;
    parts sent, received; /* from one to another */
    ml_nccl_comm *comm;   /* of these */
    bool mixed;           /* they are of several communicators */
    bool own;             /* a part is this rank's: of all_to_all, not of a pipeline */
} calls;

static _Thread_local calls group;

/* False: no memory. */
static bool
add_part(parts *to, ml_nccl_part added)
{
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 16;
        ml_nccl_part *grown = realloc(to->all, room * sizeof *grown);

        if (grown == NULL) {
            return false;
        }
        to->all = grown;
        to->room = room;
    }
    to->all[to->count++] = added;
    return true;
}

static void
receive_in_group(arrival arrived)
{
    if (group.count == group.room) {
        size_t room = group.room ? 2 * group.room : 16;
        arrival *grown = realloc(group.arrivals, room * sizeof *grown);

        if (grown == NULL) {
            return; /* what arrives reads as zeros */
        }
        group.arrivals = grown;
        group.room = room;
    }
    group.arrivals[group.count++] = arrived;
}

/* Whether a rank had parts of unequal sizes for all ranks. */
static atomic_bool unequal;

ML_EXPORT(int, memlab_phantom_unequal_exchange, (void))
{
    return atomic_load(&unequal);
}

ML_EXPORT(int, ncclGroupStart, (void))
{
    group.depth++;
    return ML_NCCL_OK;
}

ML_EXPORT(int, ncclGroupEnd, (void))
{
    if (--group.depth > 0) {
        return ML_NCCL_OK;
    }
    for (size_t i = 0; i < group.count; i++) {
        const arrival *each = &group.arrivals[i];

        if (each->number > 0 && each->comm->board != NULL &&
            take_posted(each->comm, each->to, each->bytes, each->number)) {
            continue;
        }
        if (group.from != NULL && each->bytes == group.bytes) {
            deliver(each->to, group.from, group.bytes);
        }
    }
    if (group.own) {
        for (size_t i = 1; i < group.sent.count; i++) {
            if (group.sent.all[i].bytes != group.sent.all[0].bytes) {
                atomic_store(&unequal, true);
            }
        }
    }
    if (group.own && !group.mixed) {
        ml_nccl_exchanged(group.comm, group.sent.all, group.sent.count,
                          group.received.all, group.received.count);
    }
    free(group.sent.all);
    free(group.received.all);
    free(group.arrivals);
    group = (calls){.depth = 0};
    return ML_NCCL_OK;
}

static int
broadcast(const void *from, void *to, size_t bytes, int root, ml_nccl_comm *comm)
{
    uint64_t number = number_of(comm, bytes);

    if (comm->rank == root) {
        if (number > 0) {
            post(comm, from, bytes, number);
        }
        deliver(to, from, bytes);
        if (group.depth > 0 && from != to) {
            group.from = from;
            group.bytes = bytes;
        }
    }
    else if (group.depth > 0) {
        deliver(to, to, bytes);
        receive_in_group((arrival){comm, to, bytes, number});
    }
    else if (number == 0 || !take_posted(comm, to, bytes, number)) {
        deliver(to, to, bytes);
    }
    return run_collective(comm, ML_NCCL_RUN_BROADCAST);
}

ML_EXPORT(int, ncclBroadcast,
          (const void *from, void *to, size_t count, int type, int root,
           ml_nccl_comm *comm))
{
    return broadcast(from, to, count * type_bytes(type), root, comm);
}

ML_EXPORT(int, ncclBcast,
          (void *buffer, size_t count, int type, int root, ml_nccl_comm *comm))
{
    return broadcast(buffer, buffer, count * type_bytes(type), root, comm);
}

/* Of ncclDataType_t those that may be numbers of something: 32 and 64 bits. */
static ml_nccl_part
part(void *at, size_t count, int type, int peer)
{
    size_t width = type_bytes(type);
    bool integers = type >= 2 && type <= 5;

    return (ml_nccl_part){at, count * width, peer, integers ? (int)width : 0};
}

ML_EXPORT(int, ncclAllGather,
          (const void *from, char *to, size_t count, int type, ml_nccl_comm *comm))
{
    size_t bytes = count * type_bytes(type);

    for (int i = 0; i < comm->ranks; i++) {
        deliver(to + (size_t)i * bytes, from, bytes);
    }
    ml_nccl_gathered(comm, part((void *)from, count, type, comm->rank), to);
    return run_collective(comm, ML_NCCL_RUN);
}

ML_EXPORT(int, ncclReduceScatter,
          (const char *from, void *to, size_t count, int type, int op,
           ml_nccl_comm *comm))
{
    size_t bytes = count * type_bytes(type);

    (void)op;
    deliver(to, from + (size_t)comm->rank * bytes, bytes);
    return run_collective(comm, ML_NCCL_RUN);
}

/* --- From one to another ------------------------------------------------------------- */

/* Ranks that exchange data, as in all_to_all, receive from each peer what they send it:
 * of tokens for experts, as many come as go. */

static int
pass(ml_nccl_comm *comm, int peer, unsigned char way)
{
    ml_phantom_wait();
    if (peer < 0 || peer >= comm->ranks) {
        return ml_nccl_fail(ML_NCCL_INVALID_ARGUMENT, "Invalid peer requested");
    }
    return ml_nccl_take_peer(comm, peer, way) ? ML_NCCL_OK : ml_nccl_out_of_memory();
}

ML_EXPORT(int, ncclSend,
          (void *from, size_t count, int type, int peer, ml_nccl_comm *comm))
{
    if (group.depth > 0 && peer >= 0 && peer < comm->ranks &&
        add_part(&group.sent, part(from, count, type, peer))) {
        group.own = group.own || peer == comm->rank;
        group.mixed = group.mixed || (group.comm != NULL && group.comm != comm);
        group.comm = comm;
    }
    return pass(comm, peer, ML_NCCL_SENT);
}

ML_EXPORT(int, ncclRecv,
          (void *to, size_t count, int type, int peer, ml_nccl_comm *comm))
{
    ml_nccl_part own = part(to, count, type, peer);
    size_t sends = group.sent.count;
    const ml_nccl_part *last = sends > 0 ? &group.sent.all[sends - 1] : NULL;

    if (last != NULL && last->peer == peer && last->bytes == own.bytes) {
        deliver(to, last->at, own.bytes);
    }
    else {
        ml_values_forget((uintptr_t)to, own.bytes);
        ml_contents_forget((uintptr_t)to, own.bytes);
    }
    if (group.depth > 0) {
        /* Without memory for it, what other ranks are assumed to tell is left out. */
        add_part(&group.received, own);
    }
    return pass(comm, peer, ML_NCCL_RECEIVED);
}

ML_EXPORT(int, ncclAlltoAll,
          (char *from, char *to, size_t count, int type, ml_nccl_comm *comm))
{
    size_t bytes = count * type_bytes(type);
    int error = ML_NCCL_OK;

    ncclGroupStart();
    for (int i = 0; i < comm->ranks && error == ML_NCCL_OK; i++) {
        error = ncclSend(from + (size_t)i * bytes, count, type, i, comm);
        if (error == ML_NCCL_OK) {
            error = ncclRecv(to + (size_t)i * bytes, count, type, i, comm);
        }
    }
    ncclGroupEnd();
    return error;
}
