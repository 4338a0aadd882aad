/* Programs that tests/lab/allocator_programs.py ran: what each asked of torch's caching
 * allocator, and what torch did. */
#ifndef ALLOCATOR_TRACE_H
#define ALLOCATOR_TRACE_H

#include "lab/simulator/allocator.h"

#define POOLS_MAX 4096

enum request_kind {
    REQUEST_MALLOC,
    REQUEST_FREE,
    REQUEST_RECORD_STREAM,
    REQUEST_EMPTY_CACHE,
    REQUEST_CREATE,
    REQUEST_BEGIN,
    REQUEST_END,
    REQUEST_DROP,
    REQUEST_SETTINGS,
    REQUEST_FRACTION,
};

#define REQUEST_KINDS (REQUEST_FRACTION + 1)

extern const char *const request_names[REQUEST_KINDS];

/* Slots and pools are numbers from 1 on that the program gives. */
typedef struct {
    enum request_kind kind;
    uint64_t number; /* slot or pool */
    uint64_t bytes;
    uint64_t stream;
    uint64_t addr; /* where torch put it; 0: it raised */
    uint32_t pool[2];
    unsigned flags;
    double fraction;
    char conf[256];
} request;

typedef struct {
    int action;
    uint64_t addr, size, stream;
    uint32_t pool[2];
    bool has_pool;
} trace_event;

typedef struct {
    char name[64];
    uint64_t value;
} statistic;

#define ARRAY(type) \
    struct { \
        type *items; \
        size_t count, capacity; \
    }

typedef struct {
    char name[64];
    unsigned version;
    char conf[1024];
    double fraction;
    uint64_t ballast, free_bytes, total_bytes, end;
    ARRAY(request) requests;
    ARRAY(trace_event) events;
    ARRAY(ml_segment) segments;
    ARRAY(ml_block) blocks;
    ARRAY(statistic) statistics;
} program;

/* As realloc(); ends the process where there is no memory. */
void *grown(void *memory, size_t bytes);

/* Adds a line of a file to what is TOLD of a program; false where it makes no sense. */
bool read_line(program *told, const char *line);
void program_clear(program *told);

#endif
