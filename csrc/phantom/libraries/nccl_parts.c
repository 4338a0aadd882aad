/* Rows for experts: how many come to a rank follows from data of other ranks.
 *
 * Ranks tell each other the numbers of rows first, then they send the rows.  The numbers are
 * integers, as many for each rank: in an exchange each rank is told its own, or each gathers
 * those of all.  Owns by what a program is known to do so, and what numbers other ranks are
 * assumed to tell.
 *
 * MEMLAB_PHANTOM_PARTS says the latter: "none", "even" or "all" of the rows come here, a
 * colon, and how many integers there are for each rank, less than 0 where they are gathered,
 * as "all:2,-8".  Each other rank is taken to have as many rows as this one. */
#include "libraries/nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that a program tells apart by their sizes. */
#define MOST_SIZES 8

static long long sizes[MOST_SIZES]; /* guarded by the lock */
static int size_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts up to `most` of what may follow the colon into `found`, and returns how many. */
ML_EXPORT(int, memlab_phantom_told_parts, (long long *found, int most))
{
    pthread_mutex_lock(&lock);
    int count = size_count < most ? size_count : most;
    memcpy(found, sizes, (size_t)count * sizeof *sizes);
    pthread_mutex_unlock(&lock);
    return count;
}

static void
note_size(long long size)
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

/* Notes how many rows this rank tells each peer, by `parts` of all ranks; returns those of
 * all, 0: it is not known. */
static long long
note_told(ml_nccl_comm *comm, ml_nccl_way way, const ml_nccl_part *parts)
{
    unsigned char content[ML_VALUES_MOST];
    ml_nccl_told *told = &comm->told[way];
    long long all = 0;

    told->size = 0;
    if (told->rows == NULL) {
        told->rows = calloc((size_t)comm->ranks, sizeof *told->rows);
    }
    if (told->rows == NULL) {
        return 0;
    }
    memset(told->rows, 0, (size_t)comm->ranks * sizeof *told->rows);
    for (int i = 0; i < comm->ranks; i++) {
        size_t width = (size_t)parts[i].width;

        if (!ml_contents_find((uintptr_t)parts[i].at, content, parts[i].bytes)) {
            return 0;
        }
        for (size_t at = 0; at < parts[i].bytes; at += width) {
            told->rows[parts[i].peer] += integer(content + at, parts[i].width);
        }
        all += told->rows[parts[i].peer];
    }
    told->size = parts[0].bytes / (size_t)parts[0].width;
    return all;
}

/* Their size as MEMLAB_PHANTOM_PARTS has it. */
static long long
size_of(const ml_nccl_comm *comm, ml_nccl_way way)
{
    long long size = (long long)comm->told[way].size;

    return way == ML_NCCL_GATHERED ? -size : size;
}

/* What is assumed of numbers of that size: the first letter of a word of
 * MEMLAB_PHANTOM_PARTS, 0: nothing. */
static char
assumed(long long size)
{
    const char *parts = getenv("MEMLAB_PHANTOM_PARTS");
    const char *at = parts != NULL ? strchr(parts, ':') : NULL;

    while (at != NULL) {
        if (strtoll(at + 1, NULL, 10) == size) {
            return parts[0];
        }
        at = strchr(at + 1, ',');
    }
    return 0;
}

/* How many of the `rows` of a rank are for `expert`, of which each rank has `size`: all
 * experts that have some share them. */
static long long
share(const ml_nccl_comm *comm, long long size, char how, long long rows,
      long long expert)
{
    long long first = size * comm->rank;
    bool own = expert >= first && expert < first + size;
    long long sharing = size * comm->ranks;
    long long place = expert;

    if (how == 'a' ? !own : how == 'n' && own) {
        return 0;
    }
    if (how == 'a') {
        sharing = size;
        place -= first;
    }
    else if (how == 'n') {
        sharing -= size;
        place -= expert > first ? size : 0;
    }
    return rows / sharing + (place < rows % sharing);
}

/* Lets each rank tell what is assumed: `received`, one from each. */
static void
assume(const ml_nccl_comm *comm, ml_nccl_way way, const ml_nccl_part *received,
       size_t count, long long rows, char how)
{
    unsigned char content[ML_VALUES_MOST];
    long long size = (long long)comm->told[way].size;
    bool gathered = way == ML_NCCL_GATHERED;
    size_t numbers = (size_t)(gathered ? size * comm->ranks : size);

    for (size_t i = 0; i < count; i++) {
        if (received[i].width == 0 || received[i].bytes > sizeof content ||
            received[i].bytes / (size_t)received[i].width != numbers) {
            return;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < numbers; j++) {
            long long expert = (long long)j + (gathered ? 0 : size * comm->rank);
            int64_t wide = share(comm, size, how, rows, expert);
            int32_t narrow = (int32_t)wide;
            size_t width = (size_t)received[i].width;

            memcpy(content + j * width,
                   width == sizeof wide ? (const void *)&wide : &narrow, width);
        }
        ml_values_arrive((uintptr_t)received[i].at, content, received[i].bytes);
        ml_contents_arrive((uintptr_t)received[i].at, content, received[i].bytes);
    }
}

/* Notes what this rank told by `sent`, one part for each, and lets all tell what is assumed. */
static void
tell_parts(ml_nccl_comm *comm, ml_nccl_way way, const ml_nccl_part *sent,
           const ml_nccl_part *received, size_t receives)
{
    long long rows = note_told(comm, way, sent);
    char how = rows > 0 ? assumed(size_of(comm, way)) : 0;

    if (how != 0) {
        assume(comm, way, received, receives, rows, how);
    }
}

/* Whether this rank sends as many rows as it told. */
static bool
sends_as_told(const ml_nccl_comm *comm, const ml_nccl_told *told,
              const ml_nccl_part *sent, size_t count)
{
    size_t bytes = 0;
    long long rows = 0;

    if (told->size == 0) {
        return false;
    }
    for (int i = 0; i < comm->ranks; i++) {
        rows += told->rows[i];
    }
    for (size_t i = 0; i < count; i++) {
        bytes += sent[i].bytes;
    }
    if (rows <= 0 || bytes == 0 || bytes % (size_t)rows != 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        long long to_peer = told->rows[sent[i].peer];

        if (to_peer < 0 || sent[i].bytes != (size_t)to_peer * (bytes / (size_t)rows)) {
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
    if (are_numbers(comm, sent, sends)) {
        tell_parts(comm, ML_NCCL_EXCHANGED, sent, received, receives);
        return;
    }
    for (int way = 0; way < ML_NCCL_WAYS; way++) {
        if (sends_as_told(comm, &comm->told[way], sent, sends)) {
            note_size(size_of(comm, (ml_nccl_way)way));
        }
    }
}

void
ml_nccl_gathered(ml_nccl_comm *comm, ml_nccl_part own, char *to)
{
    size_t ranks = (size_t)comm->ranks;
    size_t bytes = own.bytes / ranks;
    bool numbers = ranks > 1 && own.width > 0 && bytes > 0 &&
                   own.bytes % (ranks * (size_t)own.width) == 0 &&
                   own.bytes <= ML_VALUES_MOST / ranks;
    ml_nccl_part *parts = numbers ? malloc(2 * ranks * sizeof *parts) : NULL;

    if (parts == NULL) {
        return; /* they are none, or, without memory, are not noticed */
    }
    for (size_t i = 0; i < ranks; i++) {
        char *from = (char *)own.at + i * bytes;

        parts[i] = (ml_nccl_part){from, bytes, (int)i, own.width};
        parts[ranks + i] =
            (ml_nccl_part){to + i * own.bytes, own.bytes, (int)i, own.width};
    }
    tell_parts(comm, ML_NCCL_GATHERED, parts, parts + ranks, ranks);
    free(parts);
}
