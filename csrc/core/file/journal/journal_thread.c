/* A journal's life: the file is opened, its thread keeps chunks ready, it is closed.  See
 * journal.h.
 *
 * The callback can wake nobody, so the thread looks at its chunks at short intervals and
 * keeps more of them ready the faster they are taken.  It blocks every signal but faults.
 * A forked child has no such thread, and lets the file go; that there is one may make
 * CPython 3.12 and later warn at os.fork.
 *
 * A start waits ML_JOURNAL_PATIENCE_NS at most for a disk that takes nothing; the memory at
 * the start is then unknown, and said to be. */

#define _GNU_SOURCE 1 /* pthread_condattr_setclock, PATH_MAX */

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "file/journal/journal_parts.h"

/* 1 MiB: what a training process records in a burst while the thread sleeps. */
#define READY_LEAST 16u
/* The others are those that lanes are writing. */
#define READY_MOST (ML_JOURNAL_SLOTS - 2 * (ML_MLAB_LANES + 1))
#define BUSY_NS 2000000
#define IDLE_NS 20000000
/* No clock of events is farther from the kernel's. */
#define SANE_NS 1000000000u
#define STACK_BYTES ((size_t)1 << 19)

/* ---- The thread ---- */

static void
warn_stopped(const ml_journal *journal, enum ml_mlab_stop stop, int errnum)
{
    static const char *const texts[] = {[ML_MLAB_STORES] = "",
#define XX(name, text) [ML_MLAB_STOP_##name] = text,
                                        ML_MLAB_STOPS(XX)
#undef XX
    };
    if (journal->warn == NULL) {
        return;
    }
    char text[PATH_MAX + 256];
    snprintf(text, sizeof(text),
             "memlab: %s: %s%s%s%s; later events are counted, not stored",
             journal->path, texts[stop], errnum != 0 ? " (" : "",
             errnum != 0 ? strerror(errnum) : "", errnum != 0 ? ")" : "");
    journal->warn(text);
}

static void
stop_storing(ml_journal *journal, enum ml_mlab_stop stop, int errnum)
{
    atomic_store(&journal->header->stop_errno, (uint32_t)errnum);
    atomic_store(&journal->header->stop, (uint32_t)stop);
    /* At the limit, and on a full disk, what is mapped can still be filled. */
    if (stop == ML_MLAB_STOP_CUT) {
        atomic_store(&journal->stopped, true);
    }
    warn_stopped(journal, stop, errnum);
}

/* Maps chunks until WANTED are ready.  0, or ML_E* with errno. */
static int
refill(ml_journal *journal, unsigned wanted)
{
    unsigned ready = 0;
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS; i++) {
        ready += atomic_load(&journal->slots[i]) == ML_SLOT_READY;
    }
    uint64_t first = journal->mapped;
    for (unsigned n = 0; n < ML_JOURNAL_SLOTS - 1 && ready < wanted; n++) {
        unsigned i = ml_journal_slot_at(first + n);
        if (atomic_load(&journal->slots[i]) != ML_SLOT_EMPTY) {
            continue;
        }
        uint64_t offset = journal->file.bytes;
        int result = ml_journal_file_map(&journal->file, i);
        if (result < 0) {
            return result;
        }
        journal->offsets[i] = offset;
        journal->mapped++;
        atomic_store_explicit(&journal->slots[i], ML_SLOT_READY, memory_order_release);
        ready++;
    }
    return 0;
}

static void
reap(ml_journal *journal)
{
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS; i++) {
        if (atomic_load_explicit(&journal->slots[i], memory_order_acquire) ==
            ML_SLOT_FULL) {
            ml_journal_file_unmap(&journal->file, i);
            atomic_store(&journal->slots[i], ML_SLOT_EMPTY);
        }
    }
}

static bool
any_ready(ml_journal *journal)
{
    bool ready = false;
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS && !ready; i++) {
        ready = atomic_load(&journal->slots[i]) == ML_SLOT_READY;
    }
    return ready;
}

/* One round; the time in ns until the next. */
static long
tend(ml_journal *journal, uint64_t *taken, unsigned *wanted)
{
    uint64_t now = atomic_load(&journal->taken);
    uint64_t rate = now - *taken;
    *taken = now;
    uint64_t grown = 4 * rate > READY_LEAST ? 4 * rate : READY_LEAST;
    /* Quickly up, slowly down. */
    *wanted = grown > *wanted ? (unsigned)(grown < READY_MOST ? grown : READY_MOST)
                              : *wanted - (*wanted > READY_LEAST);
    reap(journal);
    if (atomic_load(&journal->header->stop) != ML_MLAB_STORES) {
        return IDLE_NS;
    }
    if (!ml_journal_file_whole(&journal->file)) {
        stop_storing(journal, ML_MLAB_STOP_CUT, 0);
        return IDLE_NS;
    }
    int result = refill(journal, *wanted);
    if (result == ML_ELIMIT) {
        /* What is ready serves a while yet. */
        if (!any_ready(journal)) {
            stop_storing(journal, ML_MLAB_STOP_LIMIT, 0);
        }
    }
    else if (result < 0) {
        stop_storing(journal, ML_MLAB_STOP_DISK, errno);
    }
    return rate > 0 ? BUSY_NS : IDLE_NS;
}

void
ml_journal_place(ml_journal *journal, ml_process_place place)
{
    ml_mlab_header *header = journal->header;
    atomic_store(&header->rank, place.rank);
    atomic_store(&header->local_rank, place.local_rank);
    /* Last, so that who reads it reads the others. */
    atomic_store(&header->world_size, place.world_size);
}

/* When the clock of SOURCE's events said START, by the kernel's since boot; 0: one that is
 * no clock, as a script's. */
static uint64_t
boot_of_start(const ml_source *source, uint64_t start)
{
    ml_process process;
    ml_process_here(&process, (ml_process_place){0}, source);
    uint64_t since = process.unix_ns - start;
    bool sane = process.unix_ns >= start ? since < SANE_NS : 0 - since < SANE_NS;
    return sane ? process.boot_ns - since : 0;
}

static void
write_header(ml_journal *journal, const ml_journal_options *options)
{
    ml_mlab_header *header = journal->header;
    ml_process process;
    ml_process_here(&process, options->place, NULL);
    memcpy(header->magic, ML_MLAB_MAGIC, sizeof(header->magic));
    header->version = ML_MLAB_VERSION;
    header->byte_order = ML_MLAB_BYTE_ORDER;
    header->required = journal->uses ? ML_MLAB_USES : 0;
    header->chunk_bytes = journal->file.chunk_bytes;
    header->keys = options->keys;
    header->start_time = process.unix_ns;
    header->pid = process.pid;
    strncpy(header->source, journal->source->name, sizeof(header->source) - 1);
    memcpy(header->host, process.host, sizeof(header->host));
    header->ordered = journal->source->ordered != 0;
    header->context = (uint8_t)(1 + options->wanted.context);
    header->native = options->wanted.native;
    header->checksum = ml_crc32c(0, header, offsetof(ml_mlab_header, checksum));
    header->boot_ns = boot_of_start(journal->source, process.unix_ns);
    memcpy(header->boot, process.boot, sizeof(header->boot));
    ml_journal_place(journal, process.place);
    atomic_store(&header->state, ML_MLAB_OPEN);
}

static int
open_parts(ml_journal *journal)
{
    int result = ml_journal_file_map(&journal->file, 0);
    return result == 0 ? refill(journal, READY_LEAST) : result;
}

static int64_t
monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void
await(ml_journal *journal, pthread_cond_t *condition, int64_t ns)
{
    int64_t end = monotonic_ns() + ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000),
                             .tv_nsec = (long)(end % 1000000000)};
    pthread_cond_timedwait(condition, &journal->mutex, &until);
}

static void *
run(void *context)
{
    ml_journal *journal = context;
    uint64_t taken = 0;
    unsigned wanted = READY_LEAST;
    /* All growing is done here, where the signal for a file that is too large is blocked
     * for good. */
    int result = open_parts(journal);
    pthread_mutex_lock(&journal->mutex);
    journal->error = result;
    journal->errnum = errno;
    journal->opened = true;
    pthread_cond_broadcast(&journal->refilled);
    while (!journal->closing && result == 0) {
        pthread_mutex_unlock(&journal->mutex);
        int64_t ns = tend(journal, &taken, &wanted);
        pthread_mutex_lock(&journal->mutex);
        pthread_cond_broadcast(&journal->refilled);
        if (!journal->closing) {
            await(journal, &journal->wake, ns);
        }
    }
    pthread_mutex_unlock(&journal->mutex);
    return NULL;
}

static int
start_thread(ml_journal *journal)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return ML_ENOMEM;
    }
    size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    pthread_attr_setstacksize(&attributes, STACK_BYTES > least ? STACK_BYTES : least);
    /* Signals are the program's.  Faults of the thread itself cannot be blocked. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&journal->thread, &attributes, run, journal);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0 ? 0 : ML_ENOMEM;
}

static void
stop_thread(ml_journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    journal->closing = true;
    pthread_cond_signal(&journal->wake);
    pthread_mutex_unlock(&journal->mutex);
    pthread_join(journal->thread, NULL);
}

bool
ml_journal_await_room(ml_journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    bool useful = atomic_load(&journal->header->stop) == ML_MLAB_STORES &&
                  journal->waited_ns < ML_JOURNAL_PATIENCE_NS;
    if (useful) {
        int64_t begin = monotonic_ns();
        pthread_cond_signal(&journal->wake);
        await(journal, &journal->refilled, ML_JOURNAL_PATIENCE_NS - journal->waited_ns);
        journal->waited_ns += monotonic_ns() - begin;
    }
    pthread_mutex_unlock(&journal->mutex);
    return useful;
}

/* ---- Opening and closing ---- */

static void
discard(ml_journal *journal)
{
    ml_region_fini(&journal->defined);
    ml_region_fini(&journal->marks);
    pthread_cond_destroy(&journal->wake);
    pthread_cond_destroy(&journal->refilled);
    pthread_mutex_destroy(&journal->mutex);
    ml_free(journal->path);
    ml_free(journal);
}

/* Where lanes are threads, a block's end may come on another lane than its begin. */
static int
marks_init(ml_journal *journal)
{
    if (!journal->source->ordered) {
        return 0;
    }
    size_t bytes = ML_MLAB_LANES * ML_MARK_BYTES;
    int result = ml_region_init(&journal->marks, bytes, bytes);
    for (size_t i = 0; i < ML_MLAB_LANES && result == 0; i++) {
        uint64_t *at = (uint64_t *)journal->marks.base + (i << (ML_MARK_BITS + 1));
        journal->lanes[i].marks = (ml_journal_marks){
            .blocks = (_Atomic uint64_t *)at,
            .owners = at + (UINT64_C(1) << ML_MARK_BITS),
        };
    }
    return result;
}

static ml_journal *
make(const ml_source *source, const ml_stacks *stacks,
     const ml_journal_options *options)
{
    ml_journal *journal = ml_alloc_zeroed(1, sizeof(*journal));
    size_t length = strlen(options->path) + 1;
    char *path = ml_alloc(length);
    if (journal == NULL || path == NULL) {
        ml_free(journal);
        ml_free(path);
        return NULL;
    }
    memcpy(path, options->path, length);
    journal->path = path;
    journal->source = source;
    journal->stacks = stacks;
    journal->device = options->device;
    journal->uses = options->uses;
    journal->warn = options->warn;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&journal->wake, &monotonic);
    pthread_cond_init(&journal->refilled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&journal->mutex, NULL);
    if (ml_journal_define_init(journal) < 0 || marks_init(journal) < 0) {
        discard(journal);
        return NULL;
    }
    return journal;
}

/* File systems answer differently to what they do not support. */
static bool
maps_no_files(int errnum)
{
    return errnum == ENODEV || errnum == EINVAL || errnum == EOPNOTSUPP;
}

/* The file is there and empty: the thread fills it. */
static int
begin(ml_journal *journal, char *text, size_t text_bytes)
{
    int result = start_thread(journal);
    if (result < 0) {
        snprintf(text, text_bytes, "cannot record to %s: no thread can be started",
                 journal->path);
        return result;
    }
    pthread_mutex_lock(&journal->mutex);
    while (!journal->opened) {
        pthread_cond_wait(&journal->refilled, &journal->mutex);
    }
    result = journal->error;
    pthread_mutex_unlock(&journal->mutex);
    if (result < 0) {
        stop_thread(journal);
        snprintf(text, text_bytes, "cannot record to %s: %s", journal->path,
                 maps_no_files(journal->errnum)
                     ? "its file system cannot map files into memory; choose a file on "
                       "another, such as a local disk"
                     : strerror(journal->errnum));
        return result;
    }
    return 0;
}

int
ml_journal_open(ml_journal **out, const ml_source *source, const ml_stacks *stacks,
                const ml_journal_options *options, char *text, size_t text_bytes)
{
    const uint64_t least = (READY_LEAST + 1) * ML_JOURNAL_CHUNK_BYTES;
    if (options->limit_bytes < least) {
        snprintf(text, text_bytes,
                 "a file of %llu bytes is too small to record to; allow at least %llu",
                 (unsigned long long)options->limit_bytes, (unsigned long long)least);
        return ML_EINVALID;
    }
    ml_journal *journal = make(source, stacks, options);
    if (journal == NULL) {
        snprintf(text, text_bytes, "%s", ml_strerror(ML_ENOMEM));
        return ML_ENOMEM;
    }
    int result =
        ml_journal_file_open(&journal->file, journal->path, ML_JOURNAL_CHUNK_BYTES,
                             options->limit_bytes, text, text_bytes);
    if (result == 0) {
        journal->header = ml_journal_file_at(&journal->file, 0);
        result = begin(journal, text, text_bytes);
    }
    if (result < 0) {
        ml_journal_file_close(&journal->file, 0);
        discard(journal);
        return result;
    }
    write_header(journal, options);
    ml_journal_control_begin(journal);
    *out = journal;
    return 0;
}

int
ml_journal_keep(ml_journal *journal, char *text, size_t text_bytes)
{
    return ml_journal_file_keep(&journal->file, text, text_bytes);
}

/* The bytes of the file less the chunks at its end that nobody took. */
static uint64_t
used_bytes(const ml_journal *journal)
{
    uint64_t used = journal->file.bytes;
    bool found = true;
    while (found) {
        found = false;
        for (unsigned i = 1; i < ML_JOURNAL_SLOTS && !found; i++) {
            found = atomic_load(&journal->slots[i]) == ML_SLOT_READY &&
                    journal->offsets[i] + journal->file.chunk_bytes == used;
        }
        used -= found ? journal->file.chunk_bytes : 0;
    }
    return used;
}

void
ml_journal_close(ml_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    if (!journal->forked) {
        stop_thread(journal);
        atomic_store(&journal->header->state, ML_MLAB_ENDED);
        ml_journal_file_close(&journal->file, used_bytes(journal));
    }
    discard(journal);
}

void
ml_journal_forked(ml_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    journal->forked = true;
    /* The thread that waits there is the parent's: to destroy them would wait for it. */
    pthread_cond_init(&journal->wake, NULL);
    pthread_cond_init(&journal->refilled, NULL);
    pthread_mutex_init(&journal->mutex, NULL);
    ml_journal_file_forked(&journal->file);
}
