/* A journal's thread, which keeps chunks ready.  See journal.h.
 *
 * The callback can wake no thread.  So this thread inspects its chunks at short
 * intervals, and keeps more of them ready the faster they are taken.  A forked child
 * does not have the thread and releases the file.  Because of the thread, CPython 3.12
 * and later may warn at os.fork.
 *
 * A start waits at most ML_JOURNAL_PATIENCE_NS for a disk without progress.  The memory
 * at the start is then unknown, and reported so. */

#define _GNU_SOURCE 1 /* PATH_MAX */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/system/clock.h"
#include "base/system/thread.h"
#include "file/journal/journal_parts.h"

/* The others are in use by lanes. */
#define READY_MOST (ML_JOURNAL_SLOTS - 2 * ML_JOURNAL_LANES)
#define BUSY_NS 2000000
#define IDLE_NS 20000000

static void
warn_stopped(const ml_journal *journal, enum ml_mlab_stop stop, int errnum)
{
    if (journal->warn == NULL) {
        return;
    }
    char text[PATH_MAX + 256];
    snprintf(text, sizeof(text),
             "memlab: %s: %s%s%s%s; later events are counted, not stored",
             journal->path, ml_mlab_stop_text(stop), errnum != 0 ? " (" : "",
             errnum != 0 ? strerror(errnum) : "", errnum != 0 ? ")" : "");
    journal->warn(text);
}

static void
stop_storing(ml_journal *journal, enum ml_mlab_stop stop, int errnum)
{
    atomic_store(&journal->header->stop_errno, (uint32_t)errnum);
    atomic_store(&journal->header->stop, (uint32_t)stop);
    /* At the limit, or on a full disk, mapped chunks can still be filled. */
    if (stop == ML_MLAB_STOP_CUT) {
        atomic_store(&journal->stopped, true);
    }
    warn_stopped(journal, stop, errnum);
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
    uint64_t grown =
        4 * rate > ML_JOURNAL_READY_LEAST ? 4 * rate : ML_JOURNAL_READY_LEAST;
    /* Rises quickly, falls slowly. */
    *wanted = grown > *wanted ? (unsigned)(grown < READY_MOST ? grown : READY_MOST)
                              : *wanted - (*wanted > ML_JOURNAL_READY_LEAST);
    if (atomic_load(&journal->header->stop) != ML_MLAB_STOP_NONE) {
        ml_journal_refill(journal, 0);
        return IDLE_NS;
    }
    if (!ml_journal_file_is_whole(&journal->file)) {
        stop_storing(journal, ML_MLAB_STOP_CUT, 0);
        return IDLE_NS;
    }
    int result = ml_journal_refill(journal, *wanted);
    bool trims = ml_trimmer_go_on(journal);
    if (result == ML_ELIMIT) {
        /* The ready chunks suffice for a while, or until the first part is dropped. */
        if (!trims && !any_ready(journal)) {
            stop_storing(journal, ML_MLAB_STOP_LIMIT, 0);
        }
    }
    else if (result < 0) {
        stop_storing(journal, ML_MLAB_STOP_DISK, errno);
    }
    return rate > 0 || ml_trimmer_is_busy(journal) ? BUSY_NS : IDLE_NS;
}

static int
open_parts(ml_journal *journal)
{
    uint64_t offset = UINT64_MAX;
    int result = ml_journal_file_map(&journal->file, 0, &offset);
    return result == 0 ? ml_journal_refill(journal, ML_JOURNAL_READY_LEAST) : result;
}

static void
await(ml_journal *journal, pthread_cond_t *condition, int64_t ns)
{
    int64_t end = (int64_t)ml_clock_steady_ns() + ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000),
                             .tv_nsec = (long)(end % 1000000000)};
    pthread_cond_timedwait(condition, &journal->mutex, &until);
}

static void *
run(void *context)
{
    ml_journal *journal = context;
    uint64_t taken = 0;
    unsigned wanted = ML_JOURNAL_READY_LEAST;
    /* Only this thread grows the file; here the signal for a too large file stays
     * blocked. */
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

int
ml_journal_thread_start(ml_journal *journal)
{
    return ml_thread_start(&journal->thread, run, journal);
}

void
ml_journal_thread_stop(ml_journal *journal)
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
    bool useful = atomic_load(&journal->header->stop) == ML_MLAB_STOP_NONE &&
                  journal->waited_ns < ML_JOURNAL_PATIENCE_NS;
    if (useful) {
        int64_t begin = (int64_t)ml_clock_steady_ns();
        pthread_cond_signal(&journal->wake);
        await(journal, &journal->refilled, ML_JOURNAL_PATIENCE_NS - journal->waited_ns);
        journal->waited_ns += (int64_t)ml_clock_steady_ns() - begin;
    }
    pthread_mutex_unlock(&journal->mutex);
    return useful;
}
