/* Small values on their way from rank to rank: recent writes of the host to a device,
 * and NCCL's results from them.
 *
 * Device memory without pages reads as zeros.  But DistributedDataParallel sends its
 * number of parameters, their shapes and the order of its buckets through the device.
 * It ends the program if another rank's differ.  So once NCCL is in use, small copies
 * from the host are kept, collectives deliver them, and delivered values can be read.
 * Everything else still reads as zeros.
 *
 * A kernel may overwrite a value unseen.  So a value lives for a limited number of
 * launches.  The limit is above torch's number between the copy and the collective, and
 * between the collective and the read. */
#include "phantom.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCHES 256
#define VALUES 256

typedef struct {
    uintptr_t start;
    size_t bytes; /* 0: an empty slot */
    unsigned char *content;
    unsigned long launch; /* number of earlier launches */
    bool delivered;
} value;

static value values[VALUES]; /* guarded by the lock, as is everything else here */
static int next;
static atomic_bool in_use;
static atomic_ulong launches;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void
ml_values_use(void)
{
    atomic_store_explicit(&in_use, true, memory_order_relaxed);
}

bool
ml_values_in_use(void)
{
    return atomic_load_explicit(&in_use, memory_order_relaxed);
}

void
ml_values_launched(void)
{
    atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
}

static void
drop(value *dropped)
{
    free(dropped->content);
    *dropped = (value){0};
}

static bool
is_there(value *asked)
{
    if (asked->bytes != 0 && atomic_load(&launches) - asked->launch > LAUNCHES) {
        drop(asked);
    }
    return asked->bytes != 0;
}

static void
forget_values(uintptr_t start, size_t bytes)
{
    for (int i = 0; i < VALUES; i++) {
        if (values[i].bytes != 0 && values[i].start < start + bytes &&
            start < values[i].start + values[i].bytes) {
            drop(&values[i]);
        }
    }
}

void
ml_values_forget(uintptr_t start, size_t bytes)
{
    if (ml_values_in_use() && bytes > 0) {
        pthread_mutex_lock(&lock);
        forget_values(start, bytes);
        pthread_mutex_unlock(&lock);
    }
}

/* Takes `content`. */
static void
keep_value(uintptr_t start, size_t bytes, unsigned char *content, bool delivered)
{
    drop(&values[next]);
    values[next] = (value){start, bytes, content, atomic_load(&launches), delivered};
    next = (next + 1) % VALUES;
}

static void
put_value(uintptr_t start, const void *content, size_t bytes, bool delivered)
{
    if (!ml_values_in_use() || bytes == 0) {
        return;
    }
    unsigned char *copy = bytes <= ML_VALUES_MOST ? malloc(bytes) : NULL;

    pthread_mutex_lock(&lock);
    forget_values(start, bytes);
    if (copy != NULL) {
        memcpy(copy, content, bytes);
        keep_value(start, bytes, copy, delivered);
    }
    pthread_mutex_unlock(&lock);
}

void
ml_values_write(uintptr_t start, const void *content, size_t bytes)
{
    put_value(start, content, bytes, false);
}

void
ml_values_arrive(uintptr_t start, const void *content, size_t bytes)
{
    put_value(start, content, bytes, true);
}

/* The value that contains the `bytes` from `start` on, or NULL. */
static const value *
find_value(uintptr_t start, size_t bytes)
{
    for (int i = 0; i < VALUES; i++) {
        if (is_there(&values[i]) && values[i].start <= start &&
            bytes <= values[i].bytes &&
            start - values[i].start <= values[i].bytes - bytes) {
            return &values[i];
        }
    }
    return NULL;
}

bool
ml_values_find(uintptr_t start, unsigned char *content, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const value *found = find_value(start, bytes);

    if (found != NULL) {
        memcpy(content, found->content + (start - found->start), bytes);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

void
ml_values_move(uintptr_t to, uintptr_t from, size_t bytes, bool deliver)
{
    if (!ml_values_in_use() || bytes == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    const value *found = bytes <= ML_VALUES_MOST ? find_value(from, bytes) : NULL;
    unsigned char *copy = found ? malloc(bytes) : NULL;
    bool delivered = deliver || (found != NULL && found->delivered);

    if (copy != NULL) {
        memcpy(copy, found->content + (from - found->start), bytes);
    }
    forget_values(to, bytes);
    if (copy != NULL) {
        keep_value(to, bytes, copy, delivered);
    }
    pthread_mutex_unlock(&lock);
}

void
ml_values_largest(uintptr_t to, uintptr_t from, size_t count)
{
    int64_t *largest = malloc(sizeof *largest);

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && largest != NULL; i++) {
        const value *found = find_value(from + i * sizeof *largest, sizeof *largest);
        int64_t each;

        if (found == NULL || !found->delivered) {
            free(largest);
            largest = NULL;
            break;
        }
        memcpy(&each, found->content + (from + i * sizeof each - found->start),
               sizeof each);
        if (i == 0 || each > *largest) {
            *largest = each;
        }
    }
    forget_values(to, sizeof *largest);
    if (largest != NULL) {
        keep_value(to, sizeof *largest, (unsigned char *)largest, true);
    }
    pthread_mutex_unlock(&lock);
}

void
ml_values_read(uintptr_t start, unsigned char *content, size_t bytes)
{
    if (!ml_values_in_use()) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < VALUES; i++) {
        const value *each = &values[i];
        uintptr_t from = each->start > start ? each->start : start;
        uintptr_t to = each->start + each->bytes < start + bytes
                           ? each->start + each->bytes
                           : start + bytes;

        if (is_there(&values[i]) && each->delivered && from < to) {
            memcpy(content + (from - start), each->content + (from - each->start),
                   to - from);
        }
    }
    pthread_mutex_unlock(&lock);
}
