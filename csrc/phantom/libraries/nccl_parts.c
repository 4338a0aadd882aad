/* Rows for experts: how many come to a rank follows from data of other ranks.
 *
 * Ranks exchange the numbers of rows first, as many integers with each, then the rows.  Owns
 * by what a program is known to do so, and what numbers other ranks are assumed to tell.
 *
 * MEMLAB_PHANTOM_PARTS says the latter: "none", "even" or "all" of the rows come here, a
 * colon, and of how many integers for each rank the exchanges of numbers are, as "all:2,8".
 * Each other rank is taken to have as many rows as this one. */
#include "libraries/nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Exchanges of numbers that a program tells apart by their sizes. */
#define MOST_SIZES 8

static size_t sizes[MOST_SIZES]; /* guarded by the lock */
static int size_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts up to `most` numbers of integers for each rank into `found`, and returns how many. */
ML_EXPORT(int, memlab_phantom_told_parts, (size_t * found, int most))
{
    pthread_mutex_lock(&lock);
    int count = size_count < most ? size_count : most;
    memcpy(found, sizes, (size_t)count * sizeof *sizes);
    pthread_mutex_unlock(&lock);
    return count;
}

static void
note_size(size_t size)
{
    pthread_mutex_lock(&lock);
    bool known = false;
    for (int i = 0; i < size_count; i++) {
        known = known || sizes[i] == size;
    }
    if (!known && size_count < MOST_SIZES) {
        sizes[size_count++] = size;
    }
    pthread_mutex_unlock(&lock);
}

/* Whether `parts`, of which there are `count`, are as many integers for each rank. */
static bool
are_numbers(const ml_nccl_comm *comm, const ml_nccl_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (parts[i].width == 0 || parts[i].bytes != parts[0].bytes) {
            return false;
        }
    }
    return count == (size_t)comm->ranks &&
           parts[0].bytes <= ML_VALUES_MOST / (size_t)comm->ranks;
}

static long long
integer(const unsigned char *at, int width)
{
    int32_t narrow;
    int64_t wide;

    memcpy(&narrow, at, sizeof narrow);
    if (width == sizeof narrow) {
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* Notes how many rows this rank tells each peer; returns those of all, 0: it is not known. */
static long long
note_told(ml_nccl_comm *comm, const ml_nccl_part *sent)
{
    unsigned char content[ML_VALUES_MOST];
    long long all = 0;

    if (comm->told == NULL) {
        comm->told = calloc((size_t)comm->ranks, sizeof *comm->told);
    }
    if (comm->told == NULL) {
        return 0;
    }
    memset(comm->told, 0, (size_t)comm->ranks * sizeof *comm->told);
    for (int i = 0; i < comm->ranks; i++) {
        size_t width = (size_t)sent[i].width;

        if (!ml_contents_find((uintptr_t)sent[i].at, content, sent[i].bytes)) {
            return 0;
        }
        for (size_t at = 0; at < sent[i].bytes; at += width) {
            comm->told[sent[i].peer] += integer(content + at, sent[i].width);
        }
        all += comm->told[sent[i].peer];
    }
    comm->told_size = sent[0].bytes / (size_t)sent[0].width;
    return all;
}

/* What is assumed of exchanges of `size` integers for each rank: the first letter of a word of
 * MEMLAB_PHANTOM_PARTS, 0: nothing. */
static char
assumed(size_t size)
{
    const char *parts = getenv("MEMLAB_PHANTOM_PARTS");
    const char *at = parts != NULL ? strchr(parts, ':') : NULL;

    while (at != NULL) {
        if (strtoull(at + 1, NULL, 10) == size) {
            return parts[0];
        }
        at = strchr(at + 1, ',');
    }
    return 0;
}

/* Lets each rank tell as many of `rows` as are assumed to come from it. */
static void
assume(const ml_nccl_comm *comm, const ml_nccl_part *received, size_t count,
       long long rows, char how)
{
    unsigned char content[ML_VALUES_MOST];
    size_t size = comm->told_size;

    for (size_t i = 0; i < count; i++) {
        if (received[i].width == 0 || received[i].bytes > sizeof content ||
            received[i].bytes / (size_t)received[i].width != size) {
            return;
        }
    }
    /* Among these experts the rows are shared, of which this rank's begin at `first`. */
    long long experts = (long long)size * (how == 'e' ? comm->ranks : 1);
    long long first = how == 'e' ? (long long)size * comm->rank : 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < size; j++) {
            bool one_more = first + (long long)j < rows % experts;
            int64_t wide = how == 'n' ? 0 : rows / experts + one_more;
            int32_t narrow = (int32_t)wide;
            size_t width = (size_t)received[i].width;

            memcpy(content + j * width,
                   width == sizeof wide ? (const void *)&wide : &narrow, width);
        }
        ml_values_arrive((uintptr_t)received[i].at, content, received[i].bytes);
        ml_contents_arrive((uintptr_t)received[i].at, content, received[i].bytes);
    }
}

/* Whether this rank sends as many rows as it told. */
static bool
follow(const ml_nccl_comm *comm, const ml_nccl_part *sent, size_t count)
{
    size_t bytes = 0;
    long long rows = 0;

    for (int i = 0; i < comm->ranks; i++) {
        rows += comm->told[i];
    }
    for (size_t i = 0; i < count; i++) {
        bytes += sent[i].bytes;
    }
    if (rows <= 0 || bytes == 0 || bytes % (size_t)rows != 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        long long told = comm->told[sent[i].peer];

        if (told < 0 || sent[i].bytes != (size_t)told * (bytes / (size_t)rows)) {
            return false;
        }
    }
    return true;
}

void
ml_nccl_exchanged(ml_nccl_comm *comm, const ml_nccl_part *sent, size_t sends,
                  const ml_nccl_part *received, size_t receives)
{
    if (comm->ranks < 2 || sends == 0) {
        return;
    }
    if (!are_numbers(comm, sent, sends)) {
        if (comm->told_size > 0 && follow(comm, sent, sends)) {
            note_size(comm->told_size);
        }
        return;
    }
    comm->told_size = 0;
    long long rows = note_told(comm, sent);
    char how = rows > 0 ? assumed(comm->told_size) : 0;

    if (how != 0) {
        assume(comm, received, receives, rows, how);
    }
}
