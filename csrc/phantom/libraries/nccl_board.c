/* The board of a communicator: small values that one rank broadcasts, for the others to
 * take.
 *
 * It is memory of the process that made the communicator's unique id.  The id says which
 * process and which of its files; a rank that cannot open it (in another container, or
 * on another machine) has no board.  No name stays behind: the memory ends with the
 * processes.
 *
 * The root of a broadcast never waits.  A rank that takes waits until the root has posted,
 * as it would on a GPU, for a limited time: after that its communicator has no board.
 * MEMLAB_PHANTOM_ALONE, of any value, says that there are no other ranks to wait for. */
#define _GNU_SOURCE
#include "libraries/nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* A rank that is further behind takes nothing. */
#define POSTS 1024

/* Of which most are never touched, and so take no memory. */
#define BOARD_BYTES sizeof(ml_nccl_board)

#define WAITS_SECONDS 30
#define LOOKS_NANOSECONDS 200000

static const char MAGIC[8] = "memlab";

typedef struct {
    _Atomic uint64_t number; /* of the broadcast; 0: none yet, or being written */
    uint32_t bytes;          /* 0: the root does not know its data */
    unsigned char content[ML_VALUES_MOST];
} post;

struct ml_nccl_board {
    uint64_t key; /* as in the id */
    post posts[POSTS];
};

/* What the id contains. */
typedef struct {
    char magic[sizeof MAGIC];
    int process, file;
    uint64_t key;
} board_place;

static ml_nccl_board *
map(int file)
{
    void *mapped = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    return mapped == MAP_FAILED ? NULL : mapped;
}

void
ml_nccl_board_offer(void *id)
{
    board_place made = {.process = (int)getpid()};
    ml_nccl_board *board = NULL;

    if (getenv("MEMLAB_PHANTOM_ALONE") != NULL) {
        return;
    }
    /* The file stays open for ranks that come later, until the process ends. */
    made.file = memfd_create("memlab-nccl", MFD_CLOEXEC);
    if (made.file >= 0 && ftruncate(made.file, (off_t)BOARD_BYTES) == 0 &&
        getrandom(&made.key, sizeof made.key, GRND_NONBLOCK) ==
            (ssize_t)sizeof made.key) {
        board = map(made.file);
    }
    if (board == NULL) {
        if (made.file >= 0) {
            close(made.file);
        }
        return;
    }
    board->key = made.key;
    munmap(board, BOARD_BYTES);
    memcpy(made.magic, MAGIC, sizeof MAGIC);
    memcpy(id, &made, sizeof made);
}

ml_nccl_board *
ml_nccl_board_join(const void *id)
{
    board_place made;
    char path[64];

    memcpy(&made, id, sizeof made);
    if (memcmp(made.magic, MAGIC, sizeof MAGIC) != 0) {
        return NULL;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", made.process, made.file);
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        return NULL;
    }
    off_t bytes = lseek(file, 0, SEEK_END);
    ml_nccl_board *board = bytes == (off_t)BOARD_BYTES ? map(file) : NULL;

    close(file);
    if (board != NULL && board->key != made.key) {
        ml_nccl_board_leave(board);
        return NULL;
    }
    return board;
}

void
ml_nccl_board_leave(ml_nccl_board *board)
{
    if (board != NULL) {
        munmap(board, BOARD_BYTES);
    }
}

void
ml_nccl_board_post(ml_nccl_board *board, uint64_t number, const void *content,
                   size_t bytes)
{
    post *slot = &board->posts[number % POSTS];

    atomic_store(&slot->number, 0);
    slot->bytes = (uint32_t)bytes;
    memcpy(slot->content, content, bytes);
    atomic_store(&slot->number, number);
}

int
ml_nccl_board_take(ml_nccl_board *board, uint64_t number, void *content, size_t bytes)
{
    post *slot = &board->posts[number % POSTS];
    struct timespec pause = {.tv_nsec = LOOKS_NANOSECONDS};
    long looks = WAITS_SECONDS * (1000000000L / LOOKS_NANOSECONDS);
    uint64_t there = atomic_load(&slot->number);

    while (there < number && looks-- > 0) {
        nanosleep(&pause, NULL);
        there = atomic_load(&slot->number);
    }
    if (there < number) {
        return ML_NCCL_NEVER;
    }
    if (there > number || slot->bytes != bytes) {
        return ML_NCCL_UNKNOWN;
    }
    memcpy(content, slot->content, bytes);
    /* The root may have begun its next post meanwhile. */
    return atomic_load(&slot->number) == number ? ML_NCCL_TAKEN : ML_NCCL_UNKNOWN;
}
