/* Puts large tables into files without names.  See spill.h. */
#define _GNU_SOURCE 1 /* O_TMPFILE, fallocate, malloc_usable_size */

#include "base/system/spill.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "base/system/host_memory.h"

/* Of the pages that a table begins with, and of the rounding of its end. */
#define PAGE ((size_t)65536)
/* Address space for all tables, which is not used twice: by its place alone is a table told
 * from the C library's memory, without a lock that a fork could leave taken. */
#define SPACE ((size_t)16 << 40)
#define SPACE_LEAST ((size_t)64 << 30)
/* Of the memory that is left: so much of it stays free that the pages of files have room,
 * however many tables there are. */
#define SHARE 16

/* File systems that are memory themselves. */
#define TMPFS 0x01021994
#define RAMFS 0x858458f6

/* At the beginning of a table's file; the table follows after PAGE bytes. */
typedef struct head {
    size_t bytes; /* mapped, with PAGE */
    int file;     /* owned */
} head;

static struct {
    pthread_once_t once;
    _Atomic(char *) space; /* owned; NULL: none yet, or the system has none */
    size_t bytes;          /* of SPACE */
    _Atomic size_t taken;
    uint64_t (*left)(void);
} spilled = {.once = PTHREAD_ONCE_INIT, .left = ml_host_memory_left};

void
ml_set_spill_left(uint64_t (*left)(void))
{
    spilled.left = left != NULL ? left : ml_host_memory_left;
}

/* ---- Address space ---- */

static void *
reserve(void *at, size_t bytes)
{
    int fixed = at != NULL ? MAP_FIXED : 0;
    void *space = mmap(at, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    return space != MAP_FAILED ? space : NULL;
}

static void
reserve_space(void)
{
    char *space = NULL;
    size_t bytes = SPACE * 2;
    while (space == NULL && bytes > SPACE_LEAST) {
        bytes /= 2;
        space = reserve(NULL, bytes);
    }
    spilled.bytes = bytes;
    atomic_store(&spilled.space, space);
}

bool
ml_spill_owns(const void *pointer)
{
    const char *space = atomic_load_explicit(&spilled.space, memory_order_acquire);
    return space != NULL &&
           (uintptr_t)pointer - (uintptr_t)space < atomic_load(&spilled.taken);
}

/* Addresses for BYTES; NULL: none are left. */
static char *
take(size_t bytes)
{
    pthread_once(&spilled.once, reserve_space);
    char *space = atomic_load(&spilled.space);
    size_t at = space != NULL ? atomic_load(&spilled.taken) : 0;
    do {
        if (space == NULL || spilled.bytes - at < bytes) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&spilled.taken, &at, at + bytes));
    return space + at;
}

/* ---- A table ---- */

static bool
is_memory(int folder)
{
    struct statfs of;
    return fstatfs(folder, &of) < 0 || of.f_type == TMPFS ||
           (unsigned long)of.f_type == RAMFS;
}

/* A file without a name in FOLDER, which must be on a disk; or -1. */
static int
file_in(const char *folder)
{
    int file = folder != NULL && folder[0] == '/'
                   ? open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600)
                   : -1;
    if (file >= 0 && is_memory(file)) {
        close(file);
        file = -1;
    }
    return file;
}

static int
new_file(void)
{
    int file = file_in(getenv("TMPDIR"));
    /* What is large belongs there: /tmp is memory on many systems. */
    file = file >= 0 ? file : file_in("/var/tmp");
    return file >= 0 ? file : file_in("/tmp");
}

static head *
head_of(void *pointer)
{
    return (head *)((char *)pointer - PAGE);
}

/* BYTES and those before them in whole pages; 0: too many. */
static size_t
whole(size_t bytes)
{
    return bytes <= SPACE ? (bytes + 2 * PAGE - 1) / PAGE * PAGE : 0;
}

/* Maps BYTES of FILE, for which it makes room on the disk.  NULL: there is none. */
static head *
map(int file, size_t bytes)
{
    if (bytes == 0 || fallocate(file, 0, 0, (off_t)bytes) < 0) {
        return NULL;
    }
    char *at = take(bytes);
    if (at == NULL || mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           file, 0) == MAP_FAILED) {
        return NULL;
    }
    head *made = (head *)(void *)at;
    *made = (head){.bytes = bytes, .file = file};
    return made;
}

/* A new table of zeros; NULL: memory suffices, or the disk has no room. */
static void *
spill(size_t bytes)
{
    if (bytes < ML_SPILL_LEAST || bytes <= spilled.left() / SHARE) {
        return NULL;
    }
    int file = new_file();
    head *made = file >= 0 ? map(file, whole(bytes)) : NULL;
    if (made == NULL && file >= 0) {
        close(file);
    }
    return made != NULL ? (char *)made + PAGE : NULL;
}

static void
drop(void *pointer)
{
    head *table = head_of(pointer);
    int file = table->file;
    reserve(table, table->bytes);
    close(file);
}

/* What lies at POINTER, with room for BYTES: in its file, at other addresses. */
static void *
resize(void *pointer, size_t bytes)
{
    head *table = head_of(pointer);
    size_t before = table->bytes;
    if (whole(bytes) != 0 && whole(bytes) <= before) {
        return pointer;
    }
    head *made = map(table->file, whole(bytes));
    if (made != NULL) {
        reserve(table, before);
        return (char *)made + PAGE;
    }
    void *copy = realloc(NULL, bytes);
    if (copy != NULL) {
        memcpy(copy, pointer, before - PAGE);
        drop(pointer);
    }
    return copy;
}

/* ---- The hooks ---- */

static void *
spill_realloc(void *pointer, size_t bytes)
{
    if (ml_spill_owns(pointer)) {
        if (bytes != 0) {
            return resize(pointer, bytes);
        }
        drop(pointer);
        return NULL;
    }
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    void *table = spill(bytes);
    if (table == NULL) {
        return realloc(pointer, bytes);
    }
    if (pointer != NULL) {
        size_t there = malloc_usable_size(pointer);
        memcpy(table, pointer, there < bytes ? there : bytes);
        free(pointer);
    }
    return table;
}

static void *
spill_zeroed(size_t bytes)
{
    void *table = spill(bytes);
    return table != NULL ? table : calloc(1, bytes);
}

void
ml_spill_begin(void)
{
    ml_set_memory(&(ml_memory){spill_realloc, spill_zeroed});
}
