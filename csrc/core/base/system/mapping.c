/* Maps chunks of a file into address space.  See mapping.h. */
#define _GNU_SOURCE 1 /* MADV_POPULATE_WRITE, posix_fallocate */

#include "base/system/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memlab.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* ---- The handler ----
 *
 * Writing to a mapped page that the file no longer has raises SIGBUS on the writer, who
 * is in the allocator's callback.  The list is of atomics alone, for a handler may run at
 * any moment. */

typedef struct guard {
    _Atomic uintptr_t begin; /* 0: unused */
    _Atomic uint32_t chunk_bytes;
    _Atomic uint32_t slots;
    _Atomic bool cut; /* a page was missing */
} guard;

static struct {
    guard list[ML_MAPPINGS];
    pthread_mutex_t lock; /* guards taking a slot in the list, and the members below */
    int count;            /* used slots of the list */
    struct sigaction previous;
} guards = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Puts memory at ADDRESS if it lies in one of memlab's files. */
static bool
mend(uintptr_t address)
{
    for (int i = 0; i < ML_MAPPINGS; i++) {
        guard *at = &guards.list[i];
        uintptr_t begin = atomic_load(&at->begin);
        size_t bytes = atomic_load(&at->chunk_bytes);
        if (begin == 0 || address < begin ||
            address - begin >= bytes * atomic_load(&at->slots)) {
            continue;
        }
        uintptr_t chunk = address - (address - begin) % bytes;
        atomic_store(&at->cut, true);
        /* The system call itself: the C library's function need not be safe in a signal
         * handler, and sanitizers' replacements are not. */
        return syscall(SYS_mmap, chunk, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
    }
    return false;
}

/* faulthandler re-raises SIGBUS without an address.  Then every missing page of all
 * files is replaced. */
static bool
mend_all(void)
{
    bool found = false;
    for (int i = 0; i < ML_MAPPINGS; i++) {
        guard *of = &guards.list[i];
        uintptr_t begin = atomic_load(&of->begin);
        size_t bytes = atomic_load(&of->chunk_bytes);
        unsigned slots = atomic_load(&of->slots);
        for (unsigned slot = 0; begin != 0 && slot < slots; slot++) {
            /* EFAULT says that touching the memory would raise SIGBUS. */
            uintptr_t at = begin + slot * bytes;
            if (madvise((void *)at, bytes, MADV_POPULATE_WRITE) != 0 &&
                errno == EFAULT) {
                found |= mend(at);
            }
        }
    }
    return found;
}

/* Passes the signal to the handler before memlab's.  A handler installed over memlab's
 * may have memlab's as its own predecessor, and pass the signal back: it then ends
 * there. */
static void
pass_on(int number, siginfo_t *info, void *context)
{
    static __thread volatile bool passing __attribute__((tls_model("initial-exec")));
    const struct sigaction *previous = &guards.previous;
    bool again = passing;
    passing = true;
    if (again ||
        ((previous->sa_flags & SA_SIGINFO) == 0 &&
         (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN))) {
        /* A real fault recurs at once and ends the process. */
        signal(number, SIG_DFL);
        if (info->si_code <= 0) {
            raise(number);
        }
    }
    else if ((previous->sa_flags & SA_SIGINFO) != 0) {
        previous->sa_sigaction(number, info, context);
    }
    else {
        previous->sa_handler(number);
    }
    passing = again;
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool ours = info->si_code > 0 ? mend((uintptr_t)info->si_addr) : mend_all();
    errno = saved;
    if (!ours) {
        pass_on(number, info, context);
    }
}

static bool
is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_bus_error;
}

static void
guard_begin(ml_mapping *mapping)
{
    struct sigaction now;
    pthread_mutex_lock(&guards.lock);
    sigaction(SIGBUS, NULL, &now);
    if (!is_ours(&now)) {
        guards.previous = now;
        struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        action.sa_sigaction = on_bus_error;
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, NULL);
    }
    for (int i = 0; i < ML_MAPPINGS && mapping->guard == 0; i++) {
        guard *at = &guards.list[i];
        if (atomic_load(&at->begin) == 0) {
            mapping->guard = i + 1;
            atomic_store(&at->chunk_bytes, mapping->chunk_bytes);
            atomic_store(&at->slots, mapping->slots);
            atomic_store(&at->cut, false);
            atomic_store(&at->begin, (uintptr_t)mapping->base);
            guards.count++;
        }
    }
    pthread_mutex_unlock(&guards.lock);
}

static void
guard_end(ml_mapping *mapping)
{
    if (mapping->guard == 0) {
        return;
    }
    struct sigaction now;
    pthread_mutex_lock(&guards.lock);
    atomic_store(&guards.list[mapping->guard - 1].begin, 0);
    mapping->guard = 0;
    /* A handler installed since then may call memlab's, which then passes everything
     * on. */
    if (--guards.count == 0 && sigaction(SIGBUS, NULL, &now) == 0 && is_ours(&now)) {
        sigaction(SIGBUS, &guards.previous, NULL);
    }
    pthread_mutex_unlock(&guards.lock);
}

bool
ml_mapping_was_cut(const ml_mapping *mapping)
{
    return atomic_load(&guards.list[mapping->guard - 1].cut);
}

/* ---- The address space ---- */

int
ml_mapping_init(ml_mapping *mapping, uint32_t chunk_bytes, uint32_t slots)
{
    *mapping = (ml_mapping){.chunk_bytes = chunk_bytes, .slots = slots};
    void *base = mmap(NULL, (size_t)slots * chunk_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return ML_ENOMEM;
    }
    mapping->base = base;
    guard_begin(mapping);
    if (mapping->guard == 0) {
        ml_mapping_fini(mapping);
        return ML_EFULL;
    }
    return 0;
}

void
ml_mapping_fini(ml_mapping *mapping)
{
    guard_end(mapping);
    if (mapping->base != NULL) {
        munmap(mapping->base, (size_t)mapping->slots * mapping->chunk_bytes);
        mapping->base = NULL;
    }
}

void
ml_mapping_forked(ml_mapping *mapping)
{
    pthread_mutex_init(&guards.lock, NULL);
    if (mapping->guard != 0) {
        atomic_store(&guards.list[mapping->guard - 1].begin, 0);
        mapping->guard = 0;
        guards.count--;
    }
    mapping->base = NULL;
}

/* ---- Chunks ---- */

/* Makes every page memory now, so that the callback meets no fault. */
static void
populate(uint8_t *at, size_t bytes)
{
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) {
        return;
    }
    for (size_t i = 0; i < bytes; i += 4096) {
        *(volatile uint8_t *)(at + i) = 0;
    }
}

int
ml_mapping_map(ml_mapping *mapping, unsigned slot, int file, uint64_t offset)
{
    size_t bytes = mapping->chunk_bytes;
    int error;
    do {
        error = posix_fallocate(file, (off_t)offset, (off_t)bytes);
    } while (error == EINTR);
    if (error != 0) {
        errno = error;
        return ML_EIO;
    }
    void *at = ml_mapping_at(mapping, slot);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             (off_t)offset) == MAP_FAILED) {
        return ML_EIO;
    }
    madvise(at, bytes, MADV_DONTFORK);
    populate(at, bytes);
    return 0;
}

void
ml_mapping_unmap(ml_mapping *mapping, unsigned slot)
{
    mmap(ml_mapping_at(mapping, slot), mapping->chunk_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
