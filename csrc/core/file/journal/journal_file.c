/* The file under a recording that is written while it is made.  See journal_file.h. */
#define _GNU_SOURCE 1 /* flock, MADV_POPULATE_WRITE, O_CLOEXEC */

#include "file/journal/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h> /* mkostemp */
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "file/codec/mlab_format.h"

#define ATTEMPTS 16

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
    _Atomic bool cut; /* a page was missing */
} guard;

static guard guards[ML_JOURNAL_FILES];
static int guard_count; /* in use */
static struct sigaction previous;
/* Guards taking a place in the list, and `previous`. */
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts memory at ADDRESS where it lies in a file of ours. */
static bool
mend(uintptr_t address)
{
    for (int i = 0; i < ML_JOURNAL_FILES; i++) {
        uintptr_t begin = atomic_load(&guards[i].begin);
        size_t bytes = atomic_load(&guards[i].chunk_bytes);
        if (begin == 0 || address < begin ||
            address - begin >= bytes * ML_JOURNAL_SLOTS) {
            continue;
        }
        uintptr_t chunk = address - (address - begin) % bytes;
        atomic_store(&guards[i].cut, true);
        /* The system call itself: the C library's function need not be safe in a signal
         * handler, and sanitizers put one of theirs before it that is not. */
        return syscall(SYS_mmap, chunk, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
    }
    return false;
}

/* Who prints a traceback at SIGBUS (faulthandler) raises it again without the address:
 * then all that the files lack is put in their place. */
static bool
mend_all(void)
{
    bool found = false;
    for (int i = 0; i < ML_JOURNAL_FILES; i++) {
        uintptr_t begin = atomic_load(&guards[i].begin);
        size_t bytes = atomic_load(&guards[i].chunk_bytes);
        for (unsigned slot = 0; begin != 0 && slot < ML_JOURNAL_SLOTS; slot++) {
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

/* To the handler before ours.  One that was set over ours, and found again when the next
 * file was begun, has ours for its own predecessor: it passes on to us what we pass to it,
 * and that is where it ends. */
static void
pass_on(int number, siginfo_t *info, void *context)
{
    static __thread volatile bool passing __attribute__((tls_model("initial-exec")));
    bool again = passing;
    passing = true;
    if (again || ((previous.sa_flags & SA_SIGINFO) == 0 &&
                  (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN))) {
        /* A fault comes again at once, and then ends the process. */
        signal(number, SIG_DFL);
        if (info->si_code <= 0) {
            raise(number);
        }
    }
    else if ((previous.sa_flags & SA_SIGINFO) != 0) {
        previous.sa_sigaction(number, info, context);
    }
    else {
        previous.sa_handler(number);
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
guard_begin(ml_journal_file *file)
{
    struct sigaction now;
    pthread_mutex_lock(&guard_lock);
    sigaction(SIGBUS, NULL, &now);
    if (!is_ours(&now)) {
        previous = now;
        struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        action.sa_sigaction = on_bus_error;
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, NULL);
    }
    for (int i = 0; i < ML_JOURNAL_FILES && file->guard < 0; i++) {
        if (atomic_load(&guards[i].begin) == 0) {
            file->guard = i;
            atomic_store(&guards[i].chunk_bytes, file->chunk_bytes);
            atomic_store(&guards[i].cut, false);
            atomic_store(&guards[i].begin, (uintptr_t)file->slots);
            guard_count++;
        }
    }
    pthread_mutex_unlock(&guard_lock);
}

static void
guard_end(ml_journal_file *file)
{
    if (file->guard < 0) {
        return;
    }
    struct sigaction now;
    pthread_mutex_lock(&guard_lock);
    atomic_store(&guards[file->guard].begin, 0);
    file->guard = -1;
    /* A handler set since then may call ours, which then passes everything on. */
    if (--guard_count == 0 && sigaction(SIGBUS, NULL, &now) == 0 && is_ours(&now)) {
        sigaction(SIGBUS, &previous, NULL);
    }
    pthread_mutex_unlock(&guard_lock);
}

/* ---- Opening ---- */

__attribute__((format(printf, 4, 5))) static int
fail(char *problem, size_t problem_bytes, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, problem_bytes, format, arguments);
    va_end(arguments);
    return error;
}

/* Whether an old recording is at the open file; nothing else is replaced. */
static bool
is_recording(int descriptor)
{
    char magic[8];
    return pread(descriptor, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
           memcmp(magic, ML_MLAB_MAGIC, sizeof(magic)) == 0;
}

/* Whether the open file DESCRIPTOR is what PATH names. */
static bool
lies_at(const char *path, int descriptor)
{
    struct stat mine, there;
    return fstat(descriptor, &mine) == 0 && stat(path, &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* One attempt at the file itself, or at the recording whose place it takes: *DESCRIPTOR is
 * of the locked file at PATH, with its *BYTES, or -1 to try again. */
static int
try_open(const char *path, int *descriptor, uint64_t *bytes, char *problem,
         size_t problem_bytes)
{
    *descriptor = -1;
    int file;
    do {
        file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    } while (file < 0 && errno == EINTR);
    if (file < 0) {
        const char *reason = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
        return fail(problem, problem_bytes, ML_EIO, "cannot record to %s: %s", path,
                    reason);
    }
    struct stat mine;
    int result = 0;
    if (fstat(file, &mine) != 0 || !S_ISREG(mine.st_mode)) {
        result = fail(problem, problem_bytes, ML_EIO,
                      "cannot record to %s: it is no regular file", path);
    }
    else if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        result = fail(problem, problem_bytes, ML_ESTATE,
                      "%s is being recorded already; choose another file", path);
    }
    else if (!lies_at(path, file)) {
        /* Another writer took its place meanwhile. */
    }
    else if (mine.st_size == 0 || is_recording(file)) {
        *descriptor = file;
        *bytes = (uint64_t)mine.st_size;
        return 0;
    }
    else {
        result = fail(problem, problem_bytes, ML_EIO,
                      "%s exists and is no recording of memlab; choose another file or "
                      "remove it",
                      path);
    }
    close(file);
    return result;
}

/* The file is made beside the recording that it will replace: who reads that keeps it
 * whole, and a start that fails leaves it. */
static int
make_apart(ml_journal_file *file, char *problem, size_t problem_bytes)
{
    static const char name[] = ".memlab-XXXXXX";
    const char *slash = strrchr(file->path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - file->path) + 1 : 0;
    file->apart = ml_alloc(folder + sizeof(name));
    if (file->apart == NULL) {
        return fail(problem, problem_bytes, ML_ENOMEM, "%s", ml_strerror(ML_ENOMEM));
    }
    memcpy(file->apart, file->path, folder);
    memcpy(file->apart + folder, name, sizeof(name));
    file->descriptor = mkostemp(file->apart, O_CLOEXEC);
    if (file->descriptor < 0) {
        int error = errno;
        ml_free(file->apart);
        file->apart = NULL;
        return fail(problem, problem_bytes, ML_EIO,
                    "cannot record to %s: no file can be made beside it: %s",
                    file->path, strerror(error));
    }
    flock(file->descriptor, LOCK_EX | LOCK_NB);
    file->apart[folder] = '\0';
    int around =
        open(folder != 0 ? file->apart : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file->apart[folder] = name[0];
    file->permission = ml_permission_of(around, file->path + folder);
    ml_permission_begin(&file->permission, file->descriptor, around,
                        file->path + folder);
    if (around >= 0) {
        close(around);
    }
    return 0;
}

static int
open_file(ml_journal_file *file, char *problem, size_t problem_bytes)
{
    int descriptor = -1;
    uint64_t bytes = 0;
    for (int i = 0; i < ATTEMPTS && descriptor < 0; i++) {
        int result = try_open(file->path, &descriptor, &bytes, problem, problem_bytes);
        if (result < 0) {
            return result;
        }
    }
    if (descriptor < 0) {
        return fail(problem, problem_bytes, ML_ESTATE,
                    "%s is being replaced by others; choose another file", file->path);
    }
    if (bytes > 0) {
        file->replaced = descriptor;
        return make_apart(file, problem, problem_bytes);
    }
    file->descriptor = descriptor;
    return 0;
}

int
ml_journal_file_open(ml_journal_file *file, const char *path, uint32_t chunk_bytes,
                     uint64_t limit, char *problem, size_t problem_bytes)
{
    *file = (ml_journal_file){.path = path,
                              .descriptor = -1,
                              .replaced = -1,
                              .guard = -1,
                              .chunk_bytes = chunk_bytes,
                              .limit = limit};
    void *slots = mmap(NULL, (size_t)ML_JOURNAL_SLOTS * chunk_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED) {
        return fail(problem, problem_bytes, ML_ENOMEM, "cannot record to %s: %s", path,
                    strerror(errno));
    }
    file->slots = slots;
    guard_begin(file);
    if (file->guard < 0) {
        return fail(problem, problem_bytes, ML_EFULL,
                    "%d files are being recorded already; stop one of these recordings "
                    "first",
                    ML_JOURNAL_FILES);
    }
    int result = open_file(file, problem, problem_bytes);
    struct stat status;
    file->named =
        result == 0 && fstat(file->descriptor, &status) == 0 && status.st_nlink > 0;
    return result;
}

int
ml_journal_file_keep(ml_journal_file *file, char *problem, size_t problem_bytes)
{
    bool taken = file->apart != NULL && !lies_at(file->path, file->replaced) &&
                 access(file->path, F_OK) == 0;
    if (taken) {
        return fail(problem, problem_bytes, ML_ESTATE,
                    "%s is being replaced by others; choose another file", file->path);
    }
    if (file->apart != NULL) {
        ml_permission_grant(&file->permission, file->descriptor);
    }
    if (file->apart != NULL && rename(file->apart, file->path) != 0) {
        return fail(problem, problem_bytes, ML_EIO, "cannot replace %s: %s", file->path,
                    strerror(errno));
    }
    file->kept = true;
    if (file->replaced >= 0) {
        close(file->replaced);
        file->replaced = -1;
    }
    ml_free(file->apart);
    file->apart = NULL;
    return 0;
}

static void
cut_file(int descriptor, uint64_t bytes)
{
    struct stat status;
    int done = fstat(descriptor, &status);
    if (done == 0 && (uint64_t)status.st_size > bytes) {
        done = ftruncate(descriptor, (off_t)bytes);
    }
    /* What is left over is zeros, which say nothing. */
    (void)done;
}

/* A child that was forked just now may still have the descriptor: the lock goes for it,
 * too. */
static void
unlock_and_close(int *descriptor)
{
    if (*descriptor >= 0) {
        flock(*descriptor, LOCK_UN);
        close(*descriptor);
        *descriptor = -1;
    }
}

void
ml_journal_file_close(ml_journal_file *file, uint64_t bytes)
{
    guard_end(file);
    if (file->slots != NULL) {
        munmap(file->slots, (size_t)ML_JOURNAL_SLOTS * file->chunk_bytes);
        file->slots = NULL;
    }
    if (file->descriptor >= 0) {
        const char *at = file->apart != NULL ? file->apart : file->path;
        if (file->kept) {
            cut_file(file->descriptor, bytes);
        }
        else if (lies_at(at, file->descriptor)) {
            unlink(at);
        }
    }
    unlock_and_close(&file->descriptor);
    unlock_and_close(&file->replaced);
    ml_free(file->apart);
    file->apart = NULL;
}

void
ml_journal_file_forked(ml_journal_file *file)
{
    pthread_mutex_init(&guard_lock, NULL);
    if (file->guard >= 0) {
        atomic_store(&guards[file->guard].begin, 0);
        file->guard = -1;
        guard_count--;
    }
    if (file->descriptor >= 0) {
        close(file->descriptor);
        file->descriptor = -1;
    }
    if (file->replaced >= 0) {
        close(file->replaced);
        file->replaced = -1;
    }
    file->slots = NULL;
}

/* ---- Growing ---- */

/* Every page is made memory now, so that the callback meets no fault. */
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
ml_journal_file_map(ml_journal_file *file, unsigned slot)
{
    size_t bytes = file->chunk_bytes;
    if (file->bytes + bytes > file->limit) {
        return ML_ELIMIT;
    }
    int error;
    do {
        error = posix_fallocate(file->descriptor, (off_t)file->bytes, (off_t)bytes);
    } while (error == EINTR);
    if (error != 0) {
        errno = error;
        return ML_EIO;
    }
    void *at = ml_journal_file_at(file, slot);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             file->descriptor, (off_t)file->bytes) == MAP_FAILED) {
        return ML_EIO;
    }
    madvise(at, bytes, MADV_DONTFORK);
    populate(at, bytes);
    file->bytes += bytes;
    return 0;
}

void
ml_journal_file_unmap(ml_journal_file *file, unsigned slot)
{
    mmap(ml_journal_file_at(file, slot), file->chunk_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool
ml_journal_file_whole(const ml_journal_file *file)
{
    struct stat status;
    return !atomic_load(&guards[file->guard].cut) &&
           fstat(file->descriptor, &status) == 0 &&
           (uint64_t)status.st_size >= file->bytes &&
           (status.st_nlink > 0 || !file->named);
}
