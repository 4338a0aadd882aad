/* The recorder's beginning, its place in forked children, and its end.  See
 * recorder.h. */
#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "file/codec/chunk.h"
#include "record/registry.h"
#include "record/script.h"
#include "record/window.h"

/* Whether FEED was recorded, or its source's threads may be anywhere in it. */
static bool
was_used(const ml_feed *feed)
{
    bool used = feed->forked || feed->logs == NULL;
    for (int i = 0; i < ML_DEVICE_MAX && !used; i++) {
        used = feed->logs[i].ledger != NULL;
    }
    return used;
}

static void
forked_ledgers(ml_feed *feed)
{
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        if (feed->logs[i].ledger != NULL) {
            ml_ledger_forked(feed->logs[i].ledger);
        }
    }
}

/* A forked child does not share the parent's recordings, and threads that it lacks may
 * have held the locks.  It may record what the parent has not: that is in no half-done
 * state, because a start holds the lock.  The stack table waits for no thread. */
static void
forked(void)
{
    bool quiet = pthread_mutex_trylock(&ml_registered.lock) == 0;
    pthread_mutex_init(&ml_registered.lock, NULL);
    ml_notes_forked();
    ml_sampler_forked();
    for (int i = 0; i < ML_WINDOW_MAX; i++) {
        if (ml_registered.windows[i] != NULL) {
            pthread_mutex_init(&ml_registered.windows[i]->tags_lock, NULL);
            ml_journal_forked(ml_registered.windows[i]->journal);
            ml_registered.windows[i]->forked = true;
            ml_registered.windows[i] = NULL;
        }
    }
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        atomic_store(&ml_registered.feeds[i].enabled, 0);
        ml_journal_port_forked(&ml_registered.feeds[i].port);
        forked_ledgers(&ml_registered.feeds[i]);
        ml_registered.feeds[i].forked = !quiet || was_used(&ml_registered.feeds[i]);
    }
}

int
ml_recorder_init(ml_stack_walker walker)
{
    int result = 0;
    ml_crc32c_choose();
    ml_recorder_lock();
    if (ml_registered.stacks == NULL) {
        result = ml_stacks_new(&ml_registered.stacks, NULL);
        ml_registered.walker = walker;
        if (result == 0 && !ml_registered.follows_forks) {
            pthread_atfork(NULL, NULL, forked);
            ml_registered.follows_forks = true;
        }
    }
    ml_recorder_unlock();
    return result;
}

void
ml_recorder_fini(void)
{
    int count = atomic_load(&ml_registered.feed_count);
    for (int i = 0; i < count; i++) {
        ml_feed_fini(&ml_registered.feeds[i]);
    }
    ml_notes_fini();
    ml_script_fini();
    ml_stacks_free(ml_registered.stacks);
    bool follows_forks = ml_registered.follows_forks;
    memset(&ml_registered, 0, sizeof(ml_registered));
    pthread_mutex_init(&ml_registered.lock, NULL);
    pthread_mutex_init(&ml_registered.notes.lock, NULL);
    pthread_mutex_init(&ml_registered.sampler.lock, NULL);
    ml_registered.follows_forks = follows_forks;
}
