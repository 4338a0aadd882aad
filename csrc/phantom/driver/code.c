/* The device code in the program's libraries, and which of it a GPU would run.
 *
 * nvcc's start-up code registers fat binaries, each with code for several compute
 * capabilities, and the host functions of their kernels.  CUB chooses its tuning, and
 * so its temporary memory, by the version of the code that would run.  It has tuning
 * only for the versions that it was compiled for. */
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The argument of nvcc's start-up code.  Its `data` points to a header and then
 * entries, each with its own header.  NVIDIA does not document this layout; it was read
 * from torch's wheels. */
typedef struct {
    unsigned int magic; /* WRAPPER */
    unsigned int version;
    const void *data;
    const void *more;
} wrapper;

typedef struct {
    unsigned int magic; /* CONTAINER */
    unsigned short version;
    unsigned short header_bytes;
    unsigned long long bytes; /* of the entries */
} container;

typedef struct {
    unsigned short kind; /* PTX, or a program for one capability */
    unsigned short version;
    unsigned int header_bytes;
    unsigned long long bytes; /* bytes of the code, which follows */
    unsigned int compressed[2];
    unsigned short ptx[2];
    unsigned int capability; /* 86 for 8.6 */
    unsigned int name[2];
    unsigned long long flags;
} entry;

#define WRAPPER 0x466243b1U
#define CONTAINER 0xba55ed50U
#define PTX 1
#define SPECIFIC 0x100000U /* only for this capability, as sm_90a */

/* Above the number of capabilities that have code. */
#define MOST_CAPABILITIES 256

typedef struct binary {
    struct binary *next;
    const container *content; /* NULL: unregistered, or of an unknown form */
    bool chosen, runs;        /* `runs` and `code` say what the GPU runs of it */
    ml_code code;
} binary;

typedef struct {
    const void *function; /* NULL: free */
    binary *from;
    const char *name; /* mangled; of the library that has the kernel */
} kernel;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static binary *binaries;
static kernel *kernels; /* a hash table, at most three quarters full */
static size_t room, count;

static void
hold(void)
{
    pthread_mutex_lock(&lock);
}

static void
let_go(void)
{
    pthread_mutex_unlock(&lock);
}

/* Kernel launches in other threads may hold the lock at a fork.  The child would wait
 * for it forever, at the latest when it unregisters its code at exit. */
__attribute__((constructor)) static void
survive_forks(void)
{
    pthread_atfork(hold, let_go, let_go);
}

/* --- Fat binaries ------------------------------------------------------------------- */

/* The next entry of a fat binary, or the first; NULL: no more. */
static const entry *
next_entry(const container *content, const entry *last)
{
    const char *start = (const char *)content + content->header_bytes;
    const char *end = start + content->bytes;
    const char *at =
        last == NULL ? start : (const char *)last + last->header_bytes + last->bytes;
    const entry *found = (const void *)at;

    if (at < start || at >= end || (size_t)(end - at) < sizeof *found ||
        found->header_bytes < sizeof *found) {
        return NULL;
    }
    return found;
}

/* A program for a capability runs on newer or equal ones of the same major version.
 * PTX runs on every newer or equal capability. */
static bool
runs(const entry *code, unsigned int capability)
{
    if (code->flags & SPECIFIC) {
        return code->capability == capability;
    }
    return code->capability <= capability &&
           (code->kind == PTX || code->capability / 10 == capability / 10);
}

static unsigned int
capability_of_gpu(void)
{
    const ml_phantom_gpu *gpu = ml_phantom_chosen_gpu();

    return (unsigned int)(gpu->major * 10 + gpu->minor);
}

/* Whether the GPU runs code of the fat binary, which is then in `code`.  Programs come
 * before PTX, newer code before older. */
static bool
choose_entry(binary *from)
{
    const unsigned int capability = capability_of_gpu();
    const entry *best = NULL;

    if (from->chosen) {
        return from->runs;
    }
    for (const entry *at = NULL; (at = next_entry(from->content, at)) != NULL;) {
        if (runs(at, capability) &&
            (best == NULL || (at->kind == PTX) < (best->kind == PTX) ||
             ((at->kind == PTX) == (best->kind == PTX) &&
              at->capability > best->capability))) {
            best = at;
        }
    }
    from->chosen = true;
    from->runs = best != NULL;
    if (best != NULL) {
        from->code.ptx = (int)best->capability;
        from->code.binary = (int)(best->kind == PTX ? capability : best->capability);
    }
    return from->runs;
}

/* --- Registration by nvcc's start-up code ------------------------------------------- */

ML_EXPORT(void **, __cudaRegisterFatBinary, (const wrapper *wrapped))
{
    const container *content = wrapped->data;
    binary *made = calloc(1, sizeof *made);

    if (made == NULL) {
        ml_phantom_refuse("no memory is left for the list of the program's kernels");
    }
    if (wrapped->magic == WRAPPER && content != NULL && content->magic == CONTAINER) {
        made->content = content;
    }
    pthread_mutex_lock(&lock);
    made->next = binaries;
    binaries = made;
    pthread_mutex_unlock(&lock);
    return (void **)made;
}

ML_SUCCEED(__cudaRegisterFatBinaryEnd)
ML_SUCCEED(__cudaRegisterVar)

/* The program unloads the library.  Kernels may still point here. */
ML_EXPORT(void, __cudaUnregisterFatBinary, (void **handle))
{
    pthread_mutex_lock(&lock);
    ((binary *)handle)->content = NULL;
    pthread_mutex_unlock(&lock);
}

ML_EXPORT(char, __cudaInitModule, (void))
{
    return 1;
}

/* The function's slot in the table, which has a free one. */
static kernel *
place_of(const void *function)
{
    size_t at = (size_t)(((uintptr_t)function >> 4) * 0x9e3779b97f4a7c15U >> 32);

    for (;; at++) {
        kernel *place = &kernels[at & (room - 1)];

        if (place->function == function || place->function == NULL) {
            return place;
        }
    }
}

static bool
grow(void)
{
    const kernel *old = kernels;
    const size_t had = room;
    kernel *larger = calloc(had ? 2 * had : 1 << 12, sizeof *larger);

    if (larger == NULL) {
        return false;
    }
    kernels = larger;
    room = had ? 2 * had : 1 << 12;
    for (size_t i = 0; i < had; i++) {
        if (old[i].function != NULL) {
            *place_of(old[i].function) = old[i];
        }
    }
    free((void *)old);
    return true;
}

ML_EXPORT(void, __cudaRegisterFunction,
          (void **handle, const void *function, const char *device, const char *name))
{
    (void)device;
    pthread_mutex_lock(&lock);
    if (4 * (count + 1) > 3 * room && !grow()) {
        ml_phantom_refuse("no memory is left for the list of the program's kernels");
    }
    kernel *place = place_of(function);

    count += place->function == NULL;
    *place = (kernel){function, (binary *)handle, name};
    pthread_mutex_unlock(&lock);
}

/* --- Questions ---------------------------------------------------------------------- */

bool
ml_code_find(const void *function, ml_code *code)
{
    bool found = true;

    /* Unknown code, such as a kernel made at run time, is for this GPU. */
    code->ptx = code->binary = (int)capability_of_gpu();
    code->name = "";
    pthread_mutex_lock(&lock);
    const kernel *place = room != 0 ? place_of(function) : NULL;
    if (place != NULL && place->function != NULL && place->from->content != NULL) {
        found = choose_entry(place->from);
        if (found) {
            *code = place->from->code;
            code->name = place->name;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Writes the capabilities that most fat binaries have code for. */
static void
list_capabilities(char *list, size_t bytes, unsigned int known)
{
    unsigned int have[MOST_CAPABILITIES] = {0};
    size_t length = 0;

    for (const binary *item = binaries; item != NULL; item = item->next) {
        for (const entry *at = NULL;
             item->content != NULL && (at = next_entry(item->content, at)) != NULL;) {
            if (at->capability < MOST_CAPABILITIES && !(at->flags & SPECIFIC)) {
                have[at->capability]++;
            }
        }
    }
    for (unsigned int i = 0; i < MOST_CAPABILITIES && length < bytes; i++) {
        if (2 * have[i] > known) {
            length += (size_t)snprintf(list + length, bytes - length, "%ssm_%u",
                                       length ? ", " : "", i);
        }
    }
}

/* The majority decides: a library may have a few kernels for other GPUs.  Exported for
 * Python, which asks before a program starts. */
ML_EXPORT(const char *, memlab_phantom_refusal, (void))
{
    static char text[1024];
    const ml_phantom_gpu *gpu = ml_phantom_chosen_gpu();
    unsigned int known = 0, running = 0;
    char list[512] = "none";

    pthread_mutex_lock(&lock);
    for (binary *item = binaries; item != NULL; item = item->next) {
        if (item->content != NULL) {
            known++;
            running += choose_entry(item);
        }
    }
    const bool refused = 2 * running < known;
    if (refused) {
        list_capabilities(list, sizeof list, known);
        snprintf(
            text, sizeof text,
            "the installed torch has no code for %s (sm_%d%d): it was built for %s; "
            "name another GPU of memlab phantom --list, or install a torch that "
            "was built for this one",
            gpu->full_name, gpu->major, gpu->minor, list);
    }
    pthread_mutex_unlock(&lock);
    return refused ? text : NULL;
}
