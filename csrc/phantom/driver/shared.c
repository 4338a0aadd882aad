/* Devices shared with other phantom processes: each process's memory is in one file,
 * which all processes map whose MEMLAB_PHANTOM_SHARED names it.  Without the variable,
 * a process is alone.
 *
 * A process gets a slot in the file when it first takes memory.  The slot is free again
 * once the process has ended. */
#define _GNU_SOURCE
#include "phantom.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 64

typedef struct {
    _Atomic int pid;                             /* 0: free */
    _Atomic size_t used[ML_PHANTOM_MAX_DEVICES]; /* bytes, of the installed devices */
} process_place;

static process_place *places; /* mapped; NULL: alone */
static process_place *own;    /* of the process own_pid; guarded by the lock */
static int own_pid;           /* likewise; a forked child is another process */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void
map_places(void)
{
    const char *path = getenv("MEMLAB_PHANTOM_SHARED");
    size_t bytes = PLACES * sizeof(process_place);

    if (path == NULL || *path == '\0') {
        return;
    }
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        return;
    }
    if (ftruncate(file, (off_t)bytes) == 0) {
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        places = mapped == MAP_FAILED ? NULL : mapped;
    }
    close(file);
}

static bool
is_alive(int pid)
{
    return pid != 0 && (kill(pid, 0) == 0 || errno != ESRCH);
}

static process_place *
claim(void)
{
    for (int i = 0; i < PLACES; i++) {
        int pid = places[i].pid;

        if (!is_alive(pid) &&
            atomic_compare_exchange_strong(&places[i].pid, &pid, (int)getpid())) {
            for (int j = 0; j < ML_PHANTOM_MAX_DEVICES; j++) {
                places[i].used[j] = 0;
            }
            return &places[i];
        }
    }
    return NULL;
}

void
ml_shared_post(int installed, size_t bytes)
{
    pthread_once(&once, map_places);
    if (places == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (own_pid != (int)getpid()) {
        own_pid = (int)getpid();
        own = claim();
    }
    if (own != NULL) {
        own->used[installed] = bytes;
    }
    pthread_mutex_unlock(&lock);
}

unsigned int
ml_shared_others(int installed, ml_phantom_user *users, unsigned int room)
{
    unsigned int count = 0;

    pthread_once(&once, map_places);
    for (int i = 0; places != NULL && i < PLACES && count < room; i++) {
        int pid = places[i].pid;
        size_t bytes = places[i].used[installed];

        if (bytes > 0 && pid != (int)getpid() && is_alive(pid)) {
            users[count++] = (ml_phantom_user){(unsigned int)pid, bytes};
        }
    }
    return count;
}

size_t
ml_shared_used(int installed)
{
    ml_phantom_user users[PLACES];
    unsigned int count = ml_shared_others(installed, users, PLACES);
    size_t sum = 0;

    for (unsigned int i = 0; i < count; i++) {
        sum += users[i].bytes;
    }
    return sum;
}
