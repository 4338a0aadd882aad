/* Holds the model of torch's caching allocator against what torch did.
 *
 *     allocator_checker FILE
 *
 * Reads programs that tests/lab/allocator_programs.py ran, gives each one's requests to
 * the model, and compares every event, address, final segment and block and statistic
 * with torch's own, in order.  Where the device's memory lies and when it runs out is
 * the model's to say as well: of the recording this uses only how much there was and at
 * which address it ended.
 *
 * Writes a line for each program that differs, and last `N programs, N events, N
 * reordered, N differ`; the exit status is 1 where any differs.  "Reordered" are frees
 * that several streams held back and that were completed at one moment, and segments of
 * several private pools that were given back at one moment, in another order than the
 * model's: torch takes streams and pools in the order of a hash table. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator_trace.h"
#include "gpu/placement.h"

#define ARENA_BYTES ((uint64_t)4 << 40) /* the phantom's */

/* A program being run on the model. */
typedef struct {
    const program *told;
    ml_allocator_settings settings;
    ml_allocator *model;
    ml_placement *placement;
    uint64_t free_bytes;
    size_t request, event, segment, block;
    uint64_t reordered;
    uint64_t *slots; /* number -> address; 0: none */
    size_t slot_count;
    uint32_t pools[POOLS_MAX][2];
    unsigned pool_flags[POOLS_MAX];
    uint64_t begun[POOLS_MAX]; /* pools allocated to, the last begun last */
    size_t begun_count;
    char problem[512]; /* empty: none yet */
} run;

/* Keeps the first problem only: what follows it is its consequence. */
__attribute__((format(printf, 2, 3))) static void
differ(run *running, const char *format, ...)
{
    if (running->problem[0] == '\0') {
        va_list arguments;
        const request *made = &running->told->requests.items[running->request];
        int length = 0;

        if (running->request < running->told->requests.count) {
            length =
                snprintf(running->problem, sizeof running->problem,
                         "request %zu (%s %" PRIu64 "), event %zu: ", running->request,
                         request_names[made->kind], made->number, running->event);
        }
        va_start(arguments, format);
        vsnprintf(running->problem + length, sizeof running->problem - (size_t)length,
                  format, arguments);
        va_end(arguments);
    }
}

/* --- The driver ----------------------------------------------------------- */

static uint64_t
granules(uint64_t bytes)
{
    return (bytes + ML_PLACEMENT_GRANULE - 1) / ML_PLACEMENT_GRANULE *
           ML_PLACEMENT_GRANULE;
}

static uint64_t
driver_segment_alloc(void *self, uint64_t bytes, uint64_t stream,
                     const uint32_t pool[2], bool small)
{
    run *running = self;

    (void)stream, (void)pool, (void)small;
    if (granules(bytes) > running->free_bytes) {
        return 0;
    }
    uint64_t addr = ml_placement_take(running->placement, granules(bytes), 0);
    running->free_bytes -= addr ? granules(bytes) : 0;
    return addr;
}

static void
driver_segment_free(void *self, uint64_t addr, uint64_t bytes)
{
    run *running = self;

    if (ml_placement_give(running->placement, addr) != granules(bytes)) {
        differ(running, "the model frees a segment that is none: %" PRIx64, addr);
    }
    running->free_bytes += granules(bytes);
}

static uint64_t
driver_reserve(void *self, uint64_t bytes, uint64_t stream, const uint32_t pool[2],
               bool small)
{
    run *running = self;

    (void)stream, (void)pool, (void)small;
    return ml_placement_take(running->placement, bytes, 0);
}

static void
driver_release(void *self, uint64_t addr, uint64_t bytes)
{
    run *running = self;

    if (ml_placement_give(running->placement, addr) != bytes) {
        differ(running, "the model releases a reservation that is none: %" PRIx64,
               addr);
    }
}

static bool
driver_map(void *self, uint64_t addr, uint64_t bytes)
{
    run *running = self;
    uint64_t start, reserved;

    if (bytes > running->free_bytes) {
        return false;
    }
    if (!ml_placement_find(running->placement, addr, &start, &reserved) ||
        addr + bytes > start + reserved) {
        differ(running, "the model maps what is not reserved: %" PRIx64, addr);
    }
    running->free_bytes -= bytes;
    return true;
}

static void
driver_unmap(void *self, uint64_t addr, uint64_t bytes)
{
    run *running = self;

    (void)addr;
    running->free_bytes += bytes;
}

static uint64_t
driver_free_bytes(void *self)
{
    run *running = self;

    return running->free_bytes;
}

/* --- Comparing ------------------------------------------------------------ */

static bool
same_event(const trace_event *told, const ml_event *made)
{
    return told->action == made->action && told->addr == made->addr &&
           told->size == made->size && told->stream == made->stream &&
           (!told->has_pool ||
            (told->pool[0] == made->pool[0] && told->pool[1] == made->pool[1]));
}

/* Looks for MADE among the events of its kind that follow, where their order is a
 * hash's, and brings it to the front. */
static bool
reorder(run *running, const ml_event *made)
{
    trace_event *events = running->told->events.items;
    size_t end = running->told->events.count;
    bool private = made->pool[0] != 0 || made->pool[1] != 0;

    if (made->action != ML_ACTION_FREE_COMPLETED &&
        !(made->action == ML_ACTION_SEGMENT_FREE && private) &&
        !(made->action == ML_ACTION_SEGMENT_UNMAP && private)) {
        return false;
    }
    for (size_t i = running->event; i < end && events[i].action == made->action; i++) {
        if (same_event(&events[i], made)) {
            trace_event found = events[i];

            memmove(&events[running->event + 1], &events[running->event],
                    (i - running->event) * sizeof *events);
            events[running->event] = found;
            running->reordered++;
            return true;
        }
    }
    return false;
}

static void
driver_event(void *self, const ml_event *made)
{
    run *running = self;
    const trace_event *told = &running->told->events.items[running->event];
    const char *const names[] = {
#define XX(name, number, text) [number] = text,
        ML_ACTIONS(XX)
#undef XX
    };

    if (running->problem[0] != '\0') {
        return;
    }
    if (running->event == running->told->events.count) {
        differ(running, "torch is done, the model goes on with %s %" PRIx64 " %" PRIu64,
               names[made->action], made->addr, made->size);
        return;
    }
    if (!same_event(told, made) && !reorder(running, made)) {
        differ(running,
               "torch %s %" PRIx64 " %" PRIu64 " stream %" PRIx64 " pool %u,%u; "
               "the model %s %" PRIx64 " %" PRIu64 " stream %" PRIx64 " pool %u,%u",
               names[told->action], told->addr, told->size, told->stream, told->pool[0],
               told->pool[1], names[made->action], made->addr, made->size, made->stream,
               made->pool[0], made->pool[1]);
        return;
    }
    running->event++;
}

static int
visit_segment(void *context, const ml_segment *made)
{
    run *running = context;

    if (running->segment == running->told->segments.count) {
        differ(running, "the model has a segment more: %" PRIx64, made->addr);
        return 1;
    }
    const ml_segment *told = &running->told->segments.items[running->segment++];
    if (told->addr != made->addr || told->total != made->total ||
        told->stream != made->stream || told->small != made->small ||
        told->expandable != made->expandable || told->pool[0] != made->pool[0] ||
        told->pool[1] != made->pool[1]) {
        differ(running,
               "torch's segment %" PRIx64 " of %" PRIu64 " stream %" PRIx64
               " small %u expandable %u pool %" PRIu64 ",%" PRIu64
               "; the model's %" PRIx64 " of %" PRIu64 " stream %" PRIx64
               " small %u expandable %u pool %" PRIu64 ",%" PRIu64,
               told->addr, told->total, told->stream, told->small, told->expandable,
               told->pool[0], told->pool[1], made->addr, made->total, made->stream,
               made->small, made->expandable, made->pool[0], made->pool[1]);
        return 1;
    }
    return 0;
}

static int
visit_block(void *context, const ml_block *made, uint64_t birth)
{
    run *running = context;

    (void)birth;
    if (running->block == running->told->blocks.count) {
        differ(running, "the model has a block more: %" PRIx64, made->addr);
        return 1;
    }
    const ml_block *told = &running->told->blocks.items[running->block++];
    if (told->addr != made->addr || told->size != made->size ||
        told->state != made->state ||
        (told->state != ML_BLOCK_INACTIVE && told->requested != made->requested)) {
        differ(running,
               "torch's block %" PRIx64 " of %" PRIu64 " state %d, the model's %" PRIx64
               " of %" PRIu64 " state %d",
               told->addr, told->size, told->state, made->addr, made->size,
               made->state);
        return 1;
    }
    return 0;
}

/* The model's value of torch's statistic; false: it has none. */
static bool
figure(const ml_allocator_stats *figures, const char *name, uint64_t *value)
{
    const struct {
        const char *name;
        uint64_t value;
    } known[] = {
#define XX(total) \
    {#total "_bytes.all.current", figures->current.total}, \
        {#total "_bytes.all.peak", figures->peak.total},
        ML_TOTALS(XX)
#undef XX
#define XX(counter) {#counter, figures->counters.of[ML_SOURCE_COUNTER_##counter]},
            ML_SOURCE_COUNTERS(XX)
#undef XX
                {"inactive_split_bytes.all.current", figures->inactive_split},
        {"inactive_split_bytes.all.peak", figures->inactive_split_peak},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *value = known[i].value;
            return true;
        }
    }
    return false;
}

static void
compare_end(run *running)
{
    const program *told = running->told;
    const ml_ledger_visitor visitor = {running, visit_segment, visit_block};
    const ml_allocator_stats *figures = ml_allocator_get_stats(running->model);

    running->request = told->requests.count;
    if (running->event != told->events.count) {
        differ(running, "torch goes on with %zu events",
               told->events.count - running->event);
    }
    ml_allocator_visit(running->model, &visitor);
    if (running->segment != told->segments.count ||
        running->block != told->blocks.count) {
        differ(running, "torch has %zu segments and %zu blocks, the model %zu and %zu",
               told->segments.count, told->blocks.count, running->segment,
               running->block);
    }
    size_t compared = 0;
    for (size_t i = 0; i < told->statistics.count; i++) {
        const statistic *each = &told->statistics.items[i];
        uint64_t value;

        /* The order in which blocks are joined decides this one. */
        bool moot = running->reordered > 0 &&
                    strcmp(each->name, "inactive_split_bytes.all.peak") == 0;
        if (!moot && figure(figures, each->name, &value)) {
            compared++;
            if (value != each->value) {
                differ(running, "torch's %s %" PRIu64 ", the model's %" PRIu64,
                       each->name, each->value, value);
            }
        }
    }
    if (compared < 14) { /* those that every version has */
        differ(running, "only %zu statistics to compare", compared);
    }
    const char *wrong = ml_allocator_validate(running->model);
    if (wrong != NULL) {
        differ(running, "the model is not whole: %s", wrong);
    }
}

/* --- Requests ------------------------------------------------------------- */

static uint64_t *
slot_of(run *running, uint64_t number)
{
    static uint64_t none;

    while (running->slot_count <= number) {
        running->slots =
            grown(running->slots, (running->slot_count + 1024) * sizeof(uint64_t));
        memset(running->slots + running->slot_count, 0, 1024 * sizeof(uint64_t));
        running->slot_count += 1024;
    }
    return number < running->slot_count ? &running->slots[number] : &none;
}

/* The pool that a request of this moment is taken from. */
static const uint32_t *
current_pool(const run *running)
{
    static const uint32_t none[2] = {0, 0};

    if (running->begun_count == 0) {
        return none;
    }
    /* Of nested ones the innermost; before 2.9 the outermost. */
    bool innermost = running->told->version >= 209;
    return running->pools[running->begun[innermost ? running->begun_count - 1 : 0]];
}

static void
parse(run *running, const char *conf)
{
    char problem[256] = "";

    if (ml_allocator_settings_parse(&running->settings, conf, problem,
                                    sizeof problem) != 0) {
        differ(running, "torch took %s, the model does not: %s", conf, problem);
    }
}

static void
limit(run *running, double fraction)
{
    if (fraction > 0) {
        running->settings.memory_fraction = fraction;
        running->settings.limited = true;
    }
}

static int
make_malloc(run *running, const request *made)
{
    uint64_t addr = 0;
    /* On the phantom device all work is done at once. */
    int result = ml_allocator_process_events(running->model);
    if (result != 0) {
        return result;
    }
    result = ml_allocator_malloc(running->model, made->bytes, made->stream,
                                 current_pool(running), &addr);

    if (result != 0 && result != ML_ALLOCATOR_OOM) {
        return result;
    }
    if ((result == ML_ALLOCATOR_OOM) != (made->addr == 0)) {
        differ(running, "torch %s, the model %s",
               made->addr ? "found a block" : "raised",
               result == 0 ? "found a block" : "raises");
    }
    *slot_of(running, made->number) = result == 0 ? addr : 0;
    return 0;
}

static int
make(run *running, const request *made)
{
    uint32_t *pool = running->pools[made->number % POOLS_MAX];

    switch (made->kind) {
    case REQUEST_MALLOC:
        return make_malloc(running, made);
    case REQUEST_FREE:
        return ml_allocator_free(running->model, *slot_of(running, made->number));
    case REQUEST_RECORD_STREAM:
        return ml_allocator_record_stream(
            running->model, *slot_of(running, made->number), made->stream);
    case REQUEST_EMPTY_CACHE:
        return ml_allocator_empty_cache(running->model);
    case REQUEST_CREATE: {
        memcpy(pool, made->pool, sizeof made->pool);
        running->pool_flags[made->number] = made->flags;
        int result = ml_allocator_pool_begin(running->model, pool, made->flags);
        return result ? result : ml_allocator_pool_end(running->model, pool);
    }
    case REQUEST_BEGIN:
        running->begun[running->begun_count++] = made->number;
        return ml_allocator_pool_begin(running->model, pool,
                                       running->pool_flags[made->number]);
    case REQUEST_END: {
        running->begun_count--;
        int result = ml_allocator_pool_end(running->model, pool);
        return result ? result : ml_allocator_pool_release(running->model, pool);
    }
    case REQUEST_DROP: {
        int result = ml_allocator_pool_release(running->model, pool);
        return result ? result : ml_allocator_pool_empty(running->model, pool);
    }
    case REQUEST_SETTINGS:
        parse(running, made->conf);
        return ml_allocator_change_settings(running->model, &running->settings);
    case REQUEST_FRACTION:
        limit(running, made->fraction);
        return ml_allocator_change_settings(running->model, &running->settings);
    }
    return ML_EINVALID;
}

/* --- A program ------------------------------------------------------------ */

static void
run_program(run *running)
{
    const program *told = running->told;
    const ml_allocator_driver driver = {
        .self = running,
        .segment_alloc = driver_segment_alloc,
        .segment_free = driver_segment_free,
        .reserve = driver_reserve,
        .release = driver_release,
        .map = driver_map,
        .unmap = driver_unmap,
        .free_bytes = driver_free_bytes,
        .event = driver_event,
    };

    if (ml_allocator_settings_default(&running->settings, told->version) != 0) {
        differ(running, "the model knows no torch %u", told->version);
        return;
    }
    parse(running, told->conf);
    limit(running, told->fraction);
    if (ml_placement_new(told->end - ARENA_BYTES, ARENA_BYTES, ML_PLACEMENT_DRIVER, 0,
                         &running->placement) != 0 ||
        ml_allocator_new(&running->settings, &driver, told->total_bytes,
                         &running->model) != 0) {
        differ(running, "the model cannot be made");
        return;
    }
    running->free_bytes = told->free_bytes;
    if (told->ballast) {
        ml_placement_take(running->placement, told->ballast, 0);
    }
    for (running->request = 0; running->request < told->requests.count;
         running->request++) {
        int result = make(running, &told->requests.items[running->request]);

        if (result != 0) {
            differ(running, "the model answers %d", result);
        }
        if (running->problem[0] != '\0') {
            return;
        }
    }
    compare_end(running);
}

int
main(int count, char **arguments)
{
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
    program told = {0};
    char line[2048];
    uint64_t programs = 0, events = 0, reordered = 0, differing = 0;

    if (file == NULL) {
        fprintf(stderr, "usage: allocator_checker FILE\n");
        return 2;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "finished", 8) != 0) {
            if (!read_line(&told, line)) {
                fprintf(stderr, "allocator_checker: cannot read: %s", line);
                return 2;
            }
            continue;
        }
        run *running = grown(NULL, sizeof *running);

        memset(running, 0, sizeof *running);
        running->told = &told;
        run_program(running);
        programs++;
        events += running->event;
        reordered += running->reordered;
        if (running->problem[0] != '\0') {
            differing++;
            printf("program %s (%s, fraction %g): %s\n", told.name, told.conf,
                   told.fraction, running->problem);
        }
        ml_allocator_delete(running->model);
        ml_placement_free(running->placement);
        free(running->slots);
        free(running);
        program_clear(&told);
    }
    fclose(file);
    printf("%" PRIu64 " programs, %" PRIu64 " events, %" PRIu64 " reordered, %" PRIu64
           " differ\n",
           programs, events, reordered, differing);
    return differing > 0;
}
