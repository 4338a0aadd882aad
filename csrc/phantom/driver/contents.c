/* What device memory holds, of the little that is known.
 *
 * Kernels do nothing, so memory has addresses without values.  The bridge (csrc/torch/
 * values) sees torch's operators, computes small results on the host and puts them
 * here; small copies and fills of the host are put here too.  Every byte has a kind:
 * nothing is known of it, it is made up (it follows from a value that is not known), or
 * it is as on a GPU.  Without the bridge nothing is kept, and all reads are zeros.
 *
 * Owns the bytes and their kinds, and how the calling thread's reads are filled up. */
#include "phantom.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PAGE ((uintptr_t)4096)
#define REGION ((uintptr_t)ML_PHANTOM_GRANULE)
#define PAGES (REGION / PAGE)
#define BUCKETS 4096

/* 128 MiB of contents; whatever is beyond is not known. */
#define MOST_PAGES 32768

/* A larger copy or fill is not kept: tensors that are computed are no larger. */
#define MOST_BYTES ML_MIB

typedef struct {
    unsigned char content[PAGE];
    unsigned char kinds[PAGE];
} page;

typedef struct region {
    struct region *next; /* in its bucket */
    uintptr_t start;
    size_t count; /* pages */
    page *pages[PAGES];
} region;

static region *buckets[BUCKETS]; /* guarded by the lock, as are the next two */
static size_t pages;
static bool certain; /* some byte may be as on a GPU */
static atomic_bool in_use;
static atomic_int captures; /* streams that capture a graph */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local struct {
    int operators; /* of torch, that run on this thread */
    size_t width;  /* bytes of a value that is read: 1, 2, 4, 8 or 16; or 0 */
    unsigned char filler[16]; /* what fills up one of that width */
    size_t made_up;           /* values read so far that were not as on a GPU */
    bool answers;             /* `answer` is what a kernel would have counted */
    long long answer;
} reader;

bool
ml_contents_in_use(void)
{
    return atomic_load_explicit(&in_use, memory_order_relaxed);
}

static region **
bucket_of(uintptr_t start)
{
    return &buckets[start / REGION % BUCKETS];
}

static region *
region_find(uintptr_t start)
{
    region *each = *bucket_of(start);

    while (each != NULL && each->start != start) {
        each = each->next;
    }
    return each;
}

/* Gives up a region without pages. */
static void
region_drop(region *dropped)
{
    region **link = bucket_of(dropped->start);

    while (*link != dropped) {
        link = &(*link)->next;
    }
    *link = dropped->next;
    free(dropped);
}

/* The page at `address`; NULL: there is none, or no room for a new one. */
static page *
page_at(uintptr_t address, bool make)
{
    uintptr_t start = address / REGION * REGION;
    region *found = region_find(start);

    if (found == NULL && make) {
        found = calloc(1, sizeof *found);
        if (found == NULL) {
            return NULL;
        }
        found->start = start;
        found->next = *bucket_of(start);
        *bucket_of(start) = found;
    }
    if (found == NULL) {
        return NULL;
    }
    page **slot = &found->pages[(address - start) / PAGE];
    if (*slot == NULL && make && pages < MOST_PAGES) {
        *slot = calloc(1, sizeof **slot);
        pages += *slot != NULL;
        found->count += *slot != NULL;
    }
    if (found->count == 0) {
        region_drop(found);
        return NULL;
    }
    return *slot;
}

/* The bytes from `address` on that lie in one page, at most `bytes`. */
static size_t
in_page(uintptr_t address, size_t bytes)
{
    size_t room = PAGE - address % PAGE;

    return bytes < room ? bytes : room;
}

/* Forgets the part of a region from `from` to `to`. */
static void
region_forget(region *kept, uintptr_t from, uintptr_t to)
{
    while (from < to) {
        size_t part = in_page(from, to - from);
        page **slot = &kept->pages[(from - kept->start) / PAGE];

        if (*slot != NULL && part == PAGE) {
            free(*slot);
            *slot = NULL;
            kept->count--;
            pages--;
        }
        else if (*slot != NULL) {
            memset((*slot)->kinds + from % PAGE, ML_CONTENTS_UNKNOWN, part);
        }
        from += part;
    }
    if (kept->count == 0) {
        region_drop(kept);
    }
}

static void
forget_contents(uintptr_t start, size_t bytes)
{
    uintptr_t end = start + bytes;

    while (pages > 0 && start < end) {
        uintptr_t base = start / REGION * REGION;
        uintptr_t next = end - base < REGION ? end : base + REGION;
        region *kept = region_find(base);

        if (kept != NULL) {
            region_forget(kept, start, next);
        }
        start = next;
    }
}

void
ml_contents_forget(uintptr_t start, size_t bytes)
{
    if (ml_contents_in_use()) {
        pthread_mutex_lock(&lock);
        forget_contents(start, bytes);
        pthread_mutex_unlock(&lock);
    }
}

static bool
is_unknown(const unsigned char *kinds, size_t bytes)
{
    static const unsigned char unknown[PAGE]; /* ML_CONTENTS_UNKNOWN is 0 */

    return memcmp(kinds, unknown, bytes) == 0;
}

/* Whether something is known of the bytes. */
static bool
holds_some(uintptr_t start, size_t bytes)
{
    while (bytes > 0) {
        size_t part = in_page(start, bytes);
        const page *kept = page_at(start, false);

        if (kept != NULL && !is_unknown(kept->kinds + start % PAGE, part)) {
            return true;
        }
        start += part;
        bytes -= part;
    }
    return false;
}

/* Puts bytes of the given kinds, or all of `kind`.  What is not known takes no room. */
static void
put_contents(uintptr_t start, const unsigned char *content, const unsigned char *kinds,
             unsigned char kind, size_t bytes)
{
    while (bytes > 0) {
        size_t part = in_page(start, bytes);
        page *kept = page_at(start, kinds == NULL || !is_unknown(kinds, part));

        if (kept != NULL) {
            memcpy(kept->content + start % PAGE, content, part);
            if (kinds != NULL) {
                memcpy(kept->kinds + start % PAGE, kinds, part);
            }
            else {
                memset(kept->kinds + start % PAGE, kind, part);
            }
        }
        kinds = kinds == NULL ? NULL : kinds + part;
        start += part;
        content += part;
        bytes -= part;
    }
}

/* Work that a graph captures is done at its replays, which change nothing here. */
static bool
is_kept(size_t bytes)
{
    return bytes <= MOST_BYTES && atomic_load(&captures) == 0;
}

static void
write_as(unsigned char kind, uintptr_t start, const void *content, size_t bytes)
{
    if (!ml_contents_in_use()) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (is_kept(bytes)) {
        certain = certain || kind == ML_CONTENTS_KNOWN;
        put_contents(start, content, NULL, kind, bytes);
    }
    else {
        forget_contents(start, bytes);
    }
    pthread_mutex_unlock(&lock);
}

void
ml_contents_write(uintptr_t start, const void *content, size_t bytes)
{
    write_as(ML_CONTENTS_KNOWN, start, content, bytes);
}

void
ml_contents_arrive(uintptr_t start, const void *content, size_t bytes)
{
    write_as(ML_CONTENTS_MADE_UP, start, content, bytes);
}

void
ml_contents_fill(uintptr_t start, int byte, size_t bytes)
{
    unsigned char *content =
        ml_contents_in_use() && is_kept(bytes) ? malloc(bytes) : NULL;

    if (content == NULL) {
        ml_contents_forget(start, bytes);
        return;
    }
    memset(content, byte, bytes);
    ml_contents_write(start, content, bytes);
    free(content);
}

/* Copies what is known; the rest of `content` stays as it is. */
static void
get(uintptr_t start, unsigned char *content, unsigned char *kinds, size_t bytes)
{
    while (bytes > 0) {
        size_t part = in_page(start, bytes);
        const page *kept = page_at(start, false);

        if (kept == NULL) {
            memset(kinds, ML_CONTENTS_UNKNOWN, part);
        }
        else {
            const unsigned char *known = kept->content + start % PAGE;
            memcpy(kinds, kept->kinds + start % PAGE, part);
            if (memchr(kinds, ML_CONTENTS_UNKNOWN, part) == NULL) {
                memcpy(content, known, part);
            }
            else {
                for (size_t i = 0; i < part; i++) {
                    content[i] =
                        kinds[i] != ML_CONTENTS_UNKNOWN ? known[i] : content[i];
                }
            }
        }
        start += part;
        content += part;
        kinds += part;
        bytes -= part;
    }
}

bool
ml_contents_find(uintptr_t start, unsigned char *content, size_t bytes)
{
    unsigned char *kinds = ml_contents_in_use() ? malloc(bytes) : NULL;

    if (kinds == NULL) {
        return false;
    }
    pthread_mutex_lock(&lock);
    get(start, content, kinds, bytes);
    pthread_mutex_unlock(&lock);
    bool found = memchr(kinds, ML_CONTENTS_UNKNOWN, bytes) == NULL;
    free(kinds);
    return found;
}

void
ml_contents_move(uintptr_t to, uintptr_t from, size_t bytes, bool as_is)
{
    if (!ml_contents_in_use()) {
        return;
    }
    pthread_mutex_lock(&lock);
    unsigned char *content =
        is_kept(bytes) && holds_some(from, bytes) ? calloc(2, bytes) : NULL;

    if (content == NULL) {
        forget_contents(to, bytes);
    }
    else {
        unsigned char *kinds = content + bytes;

        get(from, content, kinds, bytes);
        for (size_t i = 0; i < bytes && !as_is; i++) {
            kinds[i] = kinds[i] == ML_CONTENTS_UNKNOWN ? kinds[i] : ML_CONTENTS_MADE_UP;
        }
        put_contents(to, content, kinds, 0, bytes);
    }
    pthread_mutex_unlock(&lock);
    free(content);
}

/* Fills up one value of `width` bytes.  Returns whether it is as on a GPU. */
static bool
complete(unsigned char *content, const unsigned char *kinds, size_t width)
{
    bool known = true, there = true;

    for (size_t i = 0; i < width; i++) {
        known = known && kinds[i] == ML_CONTENTS_KNOWN;
        there = there && kinds[i] != ML_CONTENTS_UNKNOWN;
    }
    if (!there) {
        memcpy(content, reader.filler, width);
    }
    return known;
}

void
ml_contents_read(uintptr_t start, unsigned char *content, size_t bytes)
{
    unsigned char kinds[PAGE];

    if (reader.answers && bytes <= sizeof reader.answer) {
        memcpy(content, &reader.answer, bytes);
        return;
    }
    if (reader.operators > 0 && reader.width == 0) {
        return; /* what a kernel of the operator left in memory of its own */
    }
    while (ml_contents_in_use() && bytes > 0) {
        size_t part = bytes < PAGE ? bytes : PAGE;

        pthread_mutex_lock(&lock);
        get(start, content, kinds, part);
        pthread_mutex_unlock(&lock);
        for (size_t at = 0; reader.width > 0 && at + reader.width <= part;
             at += reader.width) {
            reader.made_up += !complete(content + at, kinds + at, reader.width);
        }
        start += part;
        content += part;
        bytes -= part;
    }
}

void
ml_contents_doubt(void)
{
    if (!ml_contents_in_use() || reader.operators > 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (size_t i = 0; certain && i < BUCKETS; i++) {
        for (region *each = buckets[i]; each != NULL; each = each->next) {
            for (size_t j = 0; j < PAGES; j++) {
                for (size_t k = 0; each->pages[j] != NULL && k < PAGE; k++) {
                    unsigned char *kind = &each->pages[j]->kinds[k];

                    *kind = *kind == ML_CONTENTS_KNOWN ? ML_CONTENTS_MADE_UP : *kind;
                }
            }
        }
    }
    certain = false;
    pthread_mutex_unlock(&lock);
}

void
ml_contents_capture(bool begins)
{
    atomic_fetch_add(&captures, begins ? 1 : -1);
}

/* --- For the bridge ------------------------------------------------------------ */

/* From now on, contents are kept.  Returns 0 where memory has pages, which hold them. */
ML_EXPORT(int, memlab_contents_use, (void))
{
    bool used = !ml_phantom_configure()->backed;

    atomic_store(&in_use, used);
    return used;
}

/* An operator of torch begins (+1) or ends (-1) on this thread. */
ML_EXPORT(void, memlab_contents_operator, (int change))
{
    reader.operators += change;
}

ML_EXPORT(void, memlab_contents_get,
          (uintptr_t start, unsigned char *content, unsigned char *kinds, size_t bytes))
{
    pthread_mutex_lock(&lock);
    get(start, content, kinds, bytes);
    pthread_mutex_unlock(&lock);
}

ML_EXPORT(void, memlab_contents_put,
          (uintptr_t start, const unsigned char *content, const unsigned char *kinds,
           size_t bytes))
{
    ml_values_forget(start, bytes); /* what was there before */
    pthread_mutex_lock(&lock);
    if (is_kept(bytes)) {
        certain = certain || memchr(kinds, ML_CONTENTS_KNOWN, bytes) != NULL;
        put_contents(start, content, kinds, 0, bytes);
    }
    else {
        forget_contents(start, bytes);
    }
    pthread_mutex_unlock(&lock);
}

ML_EXPORT(void, memlab_contents_forget, (uintptr_t start, size_t bytes))
{
    ml_values_forget(start, bytes);
    ml_contents_forget(start, bytes);
}

/* From now on this thread reads values of `width` bytes, filled up with `filler`; 0: it
 * reads for itself, and zeros fill up.  Returns how many were not as on a GPU since the
 * call before. */
ML_EXPORT(size_t, memlab_contents_reading, (const unsigned char *filler, size_t width))
{
    size_t made_up = reader.made_up;

    reader.made_up = 0;
    reader.width = width <= sizeof reader.filler ? width : 0;
    memcpy(reader.filler, filler, reader.width);
    return made_up;
}

/* What this thread reads of a number that is not known; NULL: nothing special. */
ML_EXPORT(void, memlab_contents_answer, (const long long *answer))
{
    reader.answers = answer != NULL;
    reader.answer = answer != NULL ? *answer : 0;
}
