/* The allocator model on memory that lies where a counter says: the first segment at BASE,
 * each next one behind it, address space from SPACE on. */
#ifndef ML_TEST_ALLOCATOR_FIXTURE_H
#define ML_TEST_ALLOCATOR_FIXTURE_H

#include "lab/simulator/allocator.h"
#include "test.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define BASE (UINT64_C(1) << 40)
#define SPACE (UINT64_C(1) << 44)

static const uint32_t DEFAULT_POOL[2] = {0, 0};
static const uint32_t PRIVATE_POOL[2] = {0, 1};

typedef struct fixture {
    ml_allocator_settings settings;
    ml_allocator *allocator;
    uint64_t next;       /* where the next segment goes */
    uint64_t next_space; /* and the next address space */
    uint64_t left;       /* bytes that the driver has */
    bool fails;          /* the driver did what it may not do */
    char log[4096];
} fixture;

static inline bool
take(fixture *f, uint64_t bytes)
{
    if (bytes > f->left) {
        return false;
    }
    f->left -= bytes;
    return true;
}

static inline uint64_t
segment_alloc(void *self, uint64_t bytes, uint64_t stream, const uint32_t pool[2],
              bool small)
{
    fixture *f = self;
    (void)stream, (void)pool, (void)small;
    if (!take(f, bytes)) {
        return 0;
    }
    f->next += bytes;
    return f->next - bytes;
}

static inline void
give(void *self, uint64_t addr, uint64_t bytes)
{
    fixture *f = self;
    f->left += bytes;
    f->fails |= addr < BASE;
}

static inline uint64_t
reserve(void *self, uint64_t bytes, uint64_t stream, const uint32_t pool[2], bool small)
{
    fixture *f = self;
    (void)stream, (void)pool, (void)small;
    f->next_space += bytes;
    return f->next_space - bytes;
}

static inline void
release(void *self, uint64_t addr, uint64_t bytes)
{
    fixture *f = self;
    f->fails |= addr < SPACE || bytes == 0;
}

static inline bool
map(void *self, uint64_t addr, uint64_t bytes)
{
    (void)addr;
    return take(self, bytes);
}

static inline uint64_t
free_bytes(void *self)
{
    return ((fixture *)self)->left;
}

/* "S0+2M " for a segment of 2 MiB at BASE; sizes in MiB, KiB or bytes as they come. */
static inline void
event(void *self, const ml_event *e)
{
    static const char letters[] = "afFSsMU?O?";
    fixture *f = self;
    size_t used = strlen(f->log);
    uint64_t from = e->addr >= SPACE ? SPACE : BASE;
    uint64_t at = e->action == ML_ACTION_OOM ? e->addr : e->addr - from;
    uint64_t numbers[2] = {at, e->size};
    used += (size_t)snprintf(f->log + used, sizeof(f->log) - used, "%c",
                             letters[e->action]);
    for (int i = 0; i < 2; i++) {
        uint64_t n = numbers[i];
        const char *unit = n == 0 ? "" : n % MIB == 0 ? "M" : n % KIB == 0 ? "K" : "";
        n /= *unit == 'M' ? MIB : *unit == 'K' ? KIB : 1;
        used += (size_t)snprintf(f->log + used, sizeof(f->log) - used, "%llu%s%s",
                                 (unsigned long long)n, unit, i == 0 ? "+" : " ");
    }
}

static inline void
set_up_version(fixture *f, unsigned version, const char *conf)
{
    char problem[200];
    memset(f, 0, sizeof(*f));
    f->next = BASE;
    f->next_space = SPACE;
    f->left = UINT64_C(1) << 50;
    f->fails = ml_allocator_settings_default(&f->settings, version) != 0;
    f->fails |=
        ml_allocator_settings_parse(&f->settings, conf, problem, sizeof(problem)) != 0;
    ml_allocator_driver driver = {f,   segment_alloc, give,       reserve, release,
                                  map, give,          free_bytes, event};
    f->fails |= ml_allocator_new(&f->settings, &driver, 1024 * MIB, &f->allocator) != 0;
}

static inline void
set_up(fixture *f, const char *conf)
{
    set_up_version(f, 211, conf);
}

/* The address, as an offset from BASE or from SPACE; UINT64_MAX: out of memory. */
static inline uint64_t
get_from(fixture *f, uint64_t bytes, uint64_t stream, const uint32_t pool[2])
{
    uint64_t addr = 0;
    int result = ml_allocator_malloc(f->allocator, bytes, stream, pool, &addr);
    f->fails |= result < 0;
    return result != 0 ? UINT64_MAX : addr - (addr >= SPACE ? SPACE : BASE);
}

static inline uint64_t
get(fixture *f, uint64_t bytes)
{
    return get_from(f, bytes, 0, DEFAULT_POOL);
}

static inline void
drop(fixture *f, uint64_t offset)
{
    uint64_t from = f->settings.expandable_segments ? SPACE : BASE;
    f->fails |= ml_allocator_free(f->allocator, from + offset) != 0;
}

#define TEAR_DOWN(f) \
    do { \
        CHECK_STR(validate(&(f)), "whole"); \
        ml_allocator_delete((f).allocator); \
        CHECK(!(f).fails); \
    } while (0)

static inline const char *
validate(const fixture *f)
{
    const char *problem = ml_allocator_validate(f->allocator);
    return problem != NULL ? problem : "whole";
}

#endif
