/* What the parts of an event cost: the events of a recorded training step, given to the ledger,
 * the lane and the journal alone, as the allocator's callback does.
 *
 *     causes_events FILE.mlab FOLDER PASSES
 *
 * Prints one JSON object: nanoseconds an event of each part, by pass.  Warm passes give one event
 * after the other.  In cold ones, memory of some size is read between events, so that the event
 * finds its tables in none of the caches below that size.  bench/causes.py builds and runs it. */
#define _GNU_SOURCE 1

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "file/codec/chunk.h"
#include "file/journal/journal.h"
#include "file/mlab/mlab_reader.h"
#include "ledger/ledger.h"
#include "ledger/replay/replay.h"
#include "ledger/replay/replay_start.h"
#include "record/lane.h"
#include "stacks/stacks.h"

/* Each part includes those before it. */
enum part { NONE, LEDGER, PACKED, FILED, PART_COUNT };
static const char *const part_names[] = {"none", "ledger", "packing", "file"};

/* Bytes read between events: nothing, more than a second level cache has, more than most
 * third level caches leave to one core. */
static const size_t walks[] = {0, (size_t)4 << 20, (size_t)64 << 20};
#define WALK_COUNT (sizeof(walks) / sizeof(walks[0]))
/* So many events of each cold pass are enough: each takes up to milliseconds. */
static const size_t most_events[] = {SIZE_MAX, 500, 40};

typedef struct work {
    ml_event *events;
    size_t count;
    ml_ledger *ledger;
    ml_ledger_image *start;
    ml_lane lane;
    ml_journal_port port;
    uint8_t *buffer;
    volatile uint64_t sink;
} work;

/* Of this thread: what other processes take does not count. */
static uint64_t
processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void
need(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "causes_events: %s: %s\n", what, ml_strerror(result));
        exit(1);
    }
}

static inline void
give(work *of, enum part part, ml_event *event)
{
    if (part >= LEDGER) {
        ml_ledger_apply(of->ledger, event);
    }
    if (part == PACKED) {
        ml_lane_push(&of->lane, event);
    }
    if (part == FILED) {
        ml_packed_event packed;
        ml_journal_turns turns;
        ml_journal_port_begin(&of->port, 0, event, &of->lane.state, &turns);
        ml_lane_push_shared(&of->lane, event, &packed);
        ml_journal_port_record(&of->port, 0, event, &packed, &turns);
    }
}

static void
walk(work *of, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 64) {
        sum += of->buffer[i];
    }
    of->sink += sum;
}

/* Nanoseconds an event. */
static double
pass(work *of, enum part part, size_t bytes, size_t most)
{
    size_t count = of->count < most ? of->count : most;
    uint64_t sum = 0;
    ml_ledger_load(of->ledger, of->start);
    if (bytes == 0) {
        uint64_t begin = processor_ns();
        for (size_t i = 0; i < count; i++) {
            ml_event own = of->events[i];
            give(of, part, &own);
            of->sink += own.block_bytes;
        }
        sum = processor_ns() - begin;
    }
    for (size_t i = 0; i < count && bytes > 0; i++) {
        walk(of, bytes);
        ml_event own = of->events[i];
        uint64_t begin = processor_ns();
        give(of, part, &own);
        sum += processor_ns() - begin;
        of->sink += own.block_bytes;
    }
    return (double)sum / (double)count;
}

/* ---- Making the work ---- */

static void
read_events(work *to, const char *path)
{
    int descriptor = open(path, O_RDONLY);
    ml_mlab_input input;
    ml_recording *recording;
    ml_mlab_info info = {0};
    ml_read_error error = {0};
    ml_replay_start *start;
    ml_replay *replay;
    need(ml_mlab_input_of(&input, &descriptor), path);
    need(ml_mlab_read(&input, &recording, &info, &error), path);
    const ml_device_trace *trace = &recording->devices[0];
    to->count = trace->event_count;
    to->events = ml_events_copy(&trace->events, trace->event_count);
    need(to->events != NULL && to->count > 0 ? 0 : ML_EINVALID, "events");
    need(ml_replay_start_new(recording, 0, &start), "start");
    need(ml_replay_from(start, &replay), "start");
    need(ml_ledger_new(&to->ledger, &start->rules, 0), "ledger");
    to->start = ml_ledger_save(ml_replay_ledger(replay));
    need(to->start != NULL ? 0 : ML_ENOMEM, "start");
    for (size_t i = 0; i < to->count; i++) {
        /* As they come: the ledger finds the rest. */
        to->events[i].block_bytes = 0;
        to->events[i].origin_stack = 0;
        to->events[i].flags &= (uint8_t)~ML_EVENT_BLOCK_KNOWN;
    }
}

static uint64_t
source_now(void *self)
{
    (void)self;
    return processor_ns();
}

static int
source_unix(void *self, uint64_t *ticks, size_t stride, size_t count)
{
    (void)self;
    (void)ticks;
    (void)stride;
    (void)count;
    return 0;
}

static const char *
source_error(void *self)
{
    (void)self;
    return NULL;
}

static ml_source source = {.size = sizeof(ml_source),
                           .version = ML_ABI_VERSION,
                           .name = "script",
                           .ordered = 1,
                           .unix_ns = source_unix,
                           .now = source_now,
                           .error = source_error};

static ml_journal *
open_journal(work *to, const char *folder)
{
    char path[4096], problem[4096] = "";
    ml_stacks *stacks;
    ml_journal *journal;
    snprintf(path, sizeof(path), "%s/again.mlab", folder);
    ml_journal_options options = {
        .path = path, .limit_bytes = UINT64_MAX, .device = -1, .warn = NULL};
    pthread_mutex_init(&to->port.control, NULL);
    need(ml_stacks_new(&stacks, NULL), "stacks");
    need(ml_journal_open(&journal, &source, stacks, &options, problem, sizeof(problem)),
         problem);
    ml_journal_begin_lane(journal, 0);
    need(ml_journal_attach(&to->port, journal), "journal");
    return journal;
}

int
main(int count, char **words)
{
    static work of;
    if (count != 4) {
        fprintf(stderr, "causes_events FILE.mlab FOLDER PASSES\n");
        return 2;
    }
    int passes = atoi(words[3]);
    ml_crc32c_choose();
    read_events(&of, words[1]);
    need(ml_lane_reserve(&of.lane, 100000), "lane");
    of.buffer = malloc(walks[WALK_COUNT - 1]);
    need(of.buffer != NULL ? 0 : ML_ENOMEM, "buffer");
    memset(of.buffer, 1, walks[WALK_COUNT - 1]);
    ml_journal *journal = open_journal(&of, words[2]);
    printf("{\"events\": %zu", of.count);
    for (size_t w = 0; w < WALK_COUNT; w++) {
        double *values = ml_alloc_zeroed((size_t)passes * PART_COUNT, sizeof(*values));
        need(values != NULL ? 0 : ML_ENOMEM, "values");
        for (int i = -1; i < passes; i++) {
            for (int part = NONE; part < PART_COUNT; part++) {
                double ns = pass(&of, (enum part)part, walks[w], most_events[w]);
                if (i >= 0) {
                    values[part * passes + i] = ns;
                }
            }
        }
        printf(", \"%zu\": {", walks[w]);
        for (int part = NONE; part < PART_COUNT; part++) {
            printf("%s\"%s\": [", part > 0 ? ", " : "", part_names[part]);
            for (int i = 0; i < passes; i++) {
                printf("%s%.2f", i > 0 ? ", " : "", values[part * passes + i]);
            }
            printf("]");
        }
        printf("}");
        ml_free(values);
    }
    printf("}\n");
    ml_journal_detach(&of.port, journal);
    ml_journal_close(journal);
    return 0;
}
