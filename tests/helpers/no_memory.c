/* Preloaded: fails allocations of one thread, of the program's choice.
 *
 * no_memory(first, last): of the calling thread's allocations from now on those from FIRST
 * to LAST, counted from 1, fail; no_memory(0, 0) ends that.  Returns how many there were
 * since the last call. */
#include <errno.h>
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);

static __thread long passed, first_failing, last_failing;

long
no_memory(long first, long last)
{
    long count = passed;
    passed = 0;
    first_failing = first;
    last_failing = last;
    return count;
}

static int
fails(void)
{
    passed++;
    if (first_failing == 0 || passed < first_failing || passed > last_failing) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *
malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *
calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *
realloc(void *pointer, size_t bytes)
{
    /* Of 0 bytes it frees. */
    return bytes != 0 && fails() ? NULL : __libc_realloc(pointer, bytes);
}
