/* Reads the lines that tests/lab/allocator_programs.py wrote of programs. */
#include "allocator_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const request_names[REQUEST_KINDS] = {
    "malloc", "free", "record_stream", "empty_cache", "create",
    "begin",  "end",  "drop",          "settings",    "fraction",
};

void *
grown(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes);
    if (memory == NULL) {
        fprintf(stderr, "allocator_checker: out of memory\n");
        exit(2);
    }
    return memory;
}

/* Makes room for one more and returns it, zeroed. */
#define ARRAY_ADD(array) \
    ((array).count == (array).capacity \
         ? ((array).capacity = 2 * (array).capacity + 64, \
            (array).items = \
                grown((array).items, (array).capacity * sizeof *(array).items)) \
         : NULL, \
     memset(&(array).items[(array).count], 0, sizeof *(array).items), \
     &(array).items[(array).count++])

static int
action_of(const char *name)
{
#define XX(action, number, text) \
    if (strcmp(name, text) == 0) { \
        return ML_ACTION_##action; \
    }
    ML_ACTIONS(XX)
#undef XX
    return -1;
}

static bool
read_request(program *told, enum request_kind kind, const char *words)
{
    request *made = ARRAY_ADD(told->requests);
    unsigned no_split, use_on_oom;

    made->kind = kind;
    switch (kind) {
    case REQUEST_MALLOC:
        return sscanf(words, "%" SCNu64 " %" SCNu64 " %*u %" SCNu64 " %" SCNu64,
                      &made->number, &made->bytes, &made->stream, &made->addr) == 4;
    case REQUEST_RECORD_STREAM:
        return sscanf(words, "%" SCNu64 " %*u %" SCNu64, &made->number,
                      &made->stream) == 2;
    case REQUEST_CREATE:
        if (sscanf(words, "%" SCNu64 " %u %u %" SCNu32 " %" SCNu32, &made->number,
                   &no_split, &use_on_oom, &made->pool[0], &made->pool[1]) != 5) {
            return false;
        }
        made->flags =
            (no_split ? ML_POOL_NO_SPLIT : 0) | (use_on_oom ? ML_POOL_USE_ON_OOM : 0);
        return made->number < POOLS_MAX;
    case REQUEST_EMPTY_CACHE:
        return true;
    case REQUEST_SETTINGS:
        return sscanf(words, "%255s", made->conf) == 1;
    case REQUEST_FRACTION:
        return sscanf(words, "%lf", &made->fraction) == 1;
    default:
        return sscanf(words, "%" SCNu64, &made->number) == 1;
    }
}

static bool
read_event(program *told, const char *words)
{
    trace_event *made = ARRAY_ADD(told->events);
    char action[32], pool[2][24];

    if (sscanf(words, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64 " %23s %23s", action,
               &made->addr, &made->size, &made->stream, pool[0], pool[1]) != 6) {
        return false;
    }
    made->action = action_of(action);
    made->has_pool = pool[0][0] != '-';
    if (made->has_pool) {
        made->pool[0] = (uint32_t)strtoul(pool[0], NULL, 10);
        made->pool[1] = (uint32_t)strtoul(pool[1], NULL, 10);
    }
    return made->action >= 0;
}

static bool
read_segment(program *told, const char *words)
{
    ml_segment *made = ARRAY_ADD(told->segments);
    char type[16];
    unsigned expandable;

    if (sscanf(words,
               "%" SCNu64 " %" SCNu64 " %" SCNu64 " %15s %u %" SCNu64 " %" SCNu64,
               &made->addr, &made->total, &made->stream, type, &expandable,
               &made->pool[0], &made->pool[1]) != 7) {
        return false;
    }
    made->small = strcmp(type, "small") == 0;
    made->expandable = expandable != 0;
    return true;
}

static bool
read_block(program *told, const char *words)
{
    ml_block *made = ARRAY_ADD(told->blocks);
    char state[32];

    if (sscanf(words, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %31s", &made->addr,
               &made->size, &made->requested, state) != 4) {
        return false;
    }
    made->state = strcmp(state, "inactive") == 0           ? ML_BLOCK_INACTIVE
                  : strcmp(state, "active_allocated") == 0 ? ML_BLOCK_ALLOCATED
                                                           : ML_BLOCK_PENDING_FREE;
    return true;
}

bool
read_line(program *told, const char *line)
{
    char kind[32];
    int length = 0;

    if (sscanf(line, "%31s%n", kind, &length) != 1) {
        return false;
    }
    const char *words = line + length;
    for (size_t i = 0; i < REQUEST_KINDS; i++) {
        if (strcmp(kind, request_names[i]) == 0) {
            return read_request(told, (enum request_kind)i, words);
        }
    }
    if (strcmp(kind, "program") == 0) {
        return sscanf(words, "%63s %u %1023s", told->name, &told->version,
                      told->conf) == 3;
    }
    if (strcmp(kind, "device") == 0) {
        return sscanf(words, "%lf %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
                      &told->fraction, &told->ballast, &told->free_bytes,
                      &told->total_bytes, &told->end) == 5;
    }
    if (strcmp(kind, "event") == 0) {
        return read_event(told, words);
    }
    if (strcmp(kind, "segment") == 0) {
        return read_segment(told, words);
    }
    if (strcmp(kind, "block") == 0) {
        return read_block(told, words);
    }
    if (strcmp(kind, "statistic") == 0) {
        statistic *made = ARRAY_ADD(told->statistics);

        return sscanf(words, "%63s %" SCNu64, made->name, &made->value) == 2;
    }
    return false;
}

void
program_clear(program *told)
{
    free(told->requests.items);
    free(told->events.items);
    free(told->segments.items);
    free(told->blocks.items);
    free(told->statistics.items);
    memset(told, 0, sizeof *told);
}
