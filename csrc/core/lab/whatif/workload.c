/* Makes a workload.  See workload.h.
 *
 * Events show releases of cached memory, but not whether the program or the allocator
 * caused them.  The allocator releases only inside a request, before it takes new
 * memory or fails.  Releases before a free, or before a request that took no new
 * memory, are therefore the program's: torch.cuda.empty_cache().  The others are the
 * allocator's if it had a reason: a limit could have refused the request, or garbage
 * collection was set.
 *
 * Events do not show either when a CUDA graph or a torch.cuda.MemPool ended.  The
 * memory of its pool may then go back, so a pool with releases had ended by then. */
#include "lab/whatif/workload.h"

#include <string.h>

#include "analysis/analysis.h"
#include "analysis/lifetimes/lifetimes_walk.h"
#include "base/base.h"

const char *
ml_doubt_text(unsigned doubt)
{
    static const char *const texts[] = {ML_DOUBTS(ML_LISTED_TEXT)};
    return doubt < ML_DOUBT_COUNT ? texts[doubt] : "";
}

#define THRESHOLD "garbage_collection_threshold"

/* Releases whose cause the next events decide. */
typedef struct run {
    size_t first;      /* event; ML_NO_EVENT: none */
    size_t end;        /* event after the run of releases */
    uint64_t reserved; /* before it */
    bool grew;         /* the allocator took memory after it */
    bool of_many;      /* of several pools, or of the default one */
    uint32_t pool[2];  /* the last private pool among them */
} run;

typedef struct builder {
    ml_workload *workload;
    const ml_device_trace *trace;
    const ml_analysis *analysis; /* borrowed */
    ml_lifetimes_walk walk;
    ml_event_cursor cursor;
    size_t mark_capacity;
    run run;
    bool collects; /* garbage collection is set */
} builder;

/* ---- Before the first event ---- */

static int
keep_segment(void *context, const ml_segment *segment)
{
    ml_workload *workload = context;
    workload->segments[workload->segment_count++] = *segment;
    return 0;
}

/* Takes the segments and demands of the start. */
static int
take_start(builder *b)
{
    ml_workload *workload = b->workload;
    const ml_lifetimes *lifetimes = &b->analysis->lifetimes;
    ml_replay *replay;
    int error = ml_analysis_replay(b->analysis, 0, &replay);
    if (error < 0) {
        return error;
    }
    const ml_ledger *ledger = ml_replay_ledger(replay);
    size_t count = ml_ledger_get_totals(ledger).segments;
    workload->segments = ml_alloc_zeroed(count + 1, sizeof(ml_segment));
    workload->before_count = lifetimes->earlier_count;
    workload->before_states = ml_alloc_zeroed(workload->before_count + 1, 1);
    if (workload->segments == NULL || workload->before_states == NULL) {
        ml_replay_free(replay);
        return ML_ENOMEM;
    }
    ml_ledger_visitor keeper = {.context = workload, .segment = keep_segment};
    ml_ledger_visit(ledger, &keeper);
    ml_replay_free(replay);
    for (size_t i = 0; error == 0 && i < workload->before_count; i++) {
        const ml_earlier_block *block = &lifetimes->earlier[i];
        const ml_lifetime *row = &lifetimes->rows[i];
        ml_demand *demand = &workload->demands[workload->count++];
        *demand = (ml_demand){.bytes = block->size,
                              .born = ML_NO_EVENT,
                              .freed = ML_NO_EVENT,
                              .completed = ML_NO_EVENT,
                              .addr = block->addr,
                              .block_bytes = row->bytes,
                              .stack = block->stack};
        error = ml_stream_pools_of_block(&workload->stream_pools, workload->segments,
                                         workload->segment_count, demand->addr,
                                         &demand->stream_pool);
        workload->before_states[i] =
            row->requested == 0 ? ML_BLOCK_PENDING_FREE : ML_BLOCK_ALLOCATED;
    }
    return error;
}

/* ---- Demands ---- */

/* The demand of row INDEX of the lifetimes. */
static ml_demand *
demand_of(const builder *b, size_t index)
{
    const ml_lifetime *row = &b->analysis->lifetimes.rows[index];
    ml_workload *workload = b->workload;
    if (row->birth == 0) {
        return &workload->demands[row->earlier];
    }
    return &workload->demands[workload->of_event[row->birth - 1] - 1];
}

/* The demand that the next event ends, by a free or by an allocation in its place;
 * NULL: none. */
static ml_demand *
find_ended(const builder *b)
{
    const ml_lifetimes *lifetimes = &b->analysis->lifetimes;
    size_t event = b->walk.position;
    if (ml_events_action(&b->trace->events, event) != ML_ACTION_ALLOC) {
        uint32_t row = lifetimes->of_event[event];
        return row == 0 ? NULL : demand_of(b, row - 1);
    }
    for (size_t i = b->walk.change;
         i < lifetimes->change_count && lifetimes->changes[i].moment == event + 1;
         i++) {
        size_t row = lifetimes->changes[i].row;
        if (lifetimes->rows[row].end == event + 1 &&
            ml_lifetimes_request(lifetimes, row).addr ==
                ml_events_addr(&b->trace->events, event)) {
            return demand_of(b, row);
        }
    }
    return NULL;
}

/* Whether its free was requested before the recording. */
static bool
was_pending(const ml_workload *workload, const ml_demand *demand)
{
    size_t i = (size_t)(demand - workload->demands);
    return i < workload->before_count &&
           workload->before_states[i] == ML_BLOCK_PENDING_FREE;
}

static void
end_demand(builder *b, ml_demand *demand, size_t index)
{
    bool pending = was_pending(b->workload, demand);
    if (demand->freed == ML_NO_EVENT && !pending) {
        demand->freed = (uint32_t)index;
    }
    demand->completed = (uint32_t)index;
    if (pending || index > demand->freed + 1) {
        b->workload->doubts |= 1u << ML_DOUBT_DEFERRED;
    }
}

static int
take_alloc(builder *b, size_t index, const ml_event *event)
{
    ml_workload *workload = b->workload;
    const ml_lifetimes *lifetimes = &b->analysis->lifetimes;
    ml_demand *demand = &workload->demands[workload->count++];
    *demand = (ml_demand){.bytes = event->size,
                          .born = (uint32_t)index,
                          .freed = ML_NO_EVENT,
                          .completed = ML_NO_EVENT,
                          .addr = event->addr,
                          .block_bytes =
                              lifetimes->rows[ml_lifetimes_row(lifetimes, index)].bytes,
                          .stack = event->stack};
    if (workload->own_of_event != NULL) {
        workload->own_of_event[index] = (uint32_t)workload->count;
    }
    return ml_stream_pools_of_event(&workload->stream_pools, index, event,
                                    &demand->stream_pool);
}

/* ---- What the program did besides ---- */

static int
add_mark(builder *b, ml_mark mark)
{
    ml_workload *workload = b->workload;
    void *items = workload->marks;
    int error =
        ml_grow(&items, &b->mark_capacity, workload->mark_count + 1, sizeof(ml_mark));
    if (error == 0) {
        workload->marks = items;
        workload->marks[workload->mark_count++] = mark;
    }
    return error;
}

/* Marks what the run OF gave back as KIND of the program. */
static int
mark_run(builder *b, const run *of, enum ml_mark_kind kind)
{
    return add_mark(b, (ml_mark){.event = of->first,
                                 .end = of->end,
                                 .pool = {of->pool[0], of->pool[1]},
                                 .kind = (uint8_t)kind});
}

static bool
has_pool(const run *of)
{
    return of->pool[0] != 0 || of->pool[1] != 0;
}

/* The bytes that the allocator requests from the driver for BYTES. */
static uint64_t
segment_bytes(const ml_allocator_rules *rules, uint64_t bytes)
{
    return ml_segment_bytes(ml_allocator_round(rules, bytes), ML_LARGE_SEGMENT_BYTES);
}

static void
note_refusal(ml_workload *workload, uint64_t reserved, uint64_t wanted)
{
    uint64_t sum = reserved <= UINT64_MAX - wanted ? reserved + wanted : UINT64_MAX;
    if (sum < workload->refused) {
        workload->refused = sum;
    }
}

/* Whether the allocator itself made the releases of ENDED, for a request of BYTES. */
static bool
was_in_want(builder *b, const run *ended, uint64_t bytes)
{
    ml_workload *workload = b->workload;
    uint64_t wanted = segment_bytes(&workload->recording->rules, bytes);
    bool above = ended->reserved > workload->peak.reserved ||
                 wanted > workload->peak.reserved - ended->reserved;
    if (workload->failed && above) {
        note_refusal(workload, ended->reserved, wanted);
        return true;
    }
    if (b->collects && ended->reserved < workload->collected) {
        workload->collected = ended->reserved;
    }
    return b->collects;
}

/* Decides the cause of the releases before EVENT, or before the end (NULL). */
static int
end_run(builder *b, const ml_event *event)
{
    run ended = b->run;
    b->run = (run){.first = ML_NO_EVENT};
    if (ended.first == ML_NO_EVENT) {
        return 0;
    }
    if (event != NULL && event->action == ML_ACTION_OOM) {
        note_refusal(b->workload, ended.reserved,
                     segment_bytes(&b->workload->recording->rules, event->size));
        return 0;
    }
    if (event != NULL && event->action == ML_ACTION_ALLOC && ended.grew &&
        was_in_want(b, &ended, event->size)) {
        return 0;
    }
    return mark_run(b, &ended,
                    ended.of_many ? ML_MARK_EMPTY_CACHE : ML_MARK_EMPTY_POOL);
}

/* EVENT's pool gives memory back.  If all pools do, the default one comes first. */
static int
follow_release(builder *b, size_t index, const ml_event *event)
{
    const uint32_t *pool = event->pool;
    bool is_private =
        (event->flags & ML_EVENT_POOL_KNOWN) != 0 && (pool[0] != 0 || pool[1] != 0);
    bool other = pool[0] != b->run.pool[0] || pool[1] != b->run.pool[1];
    int error = !is_private && has_pool(&b->run) ? end_run(b, NULL) : 0;
    if (b->run.first == ML_NO_EVENT) {
        b->run = (run){.first = index, .end = index, .reserved = b->walk.reserved};
        other = true;
    }
    b->run.end += b->run.end == index;
    b->run.of_many |= !is_private || (other && has_pool(&b->run));
    if (error < 0 || !is_private || !other) {
        return error;
    }
    memcpy(b->run.pool, pool, sizeof(b->run.pool));
    return mark_run(b, &b->run, ML_MARK_POOL_DONE);
}

static int
follow_run(builder *b, size_t index, const ml_event *event)
{
    if (event->action == ML_ACTION_SEGMENT_FREE ||
        event->action == ML_ACTION_SEGMENT_UNMAP) {
        return follow_release(b, index, event);
    }
    if (event->action == ML_ACTION_SEGMENT_ALLOC ||
        event->action == ML_ACTION_SEGMENT_MAP) {
        b->run.grew = true;
    }
    return 0;
}

static int
take_oom(builder *b, size_t index, const ml_event *event)
{
    /* An OOM event has the rounded bytes, its address the device's free bytes. */
    ml_workload *workload = b->workload;
    uint64_t reserved = b->walk.reserved;
    uint64_t wanted = segment_bytes(&workload->recording->rules, event->size);
    note_refusal(workload, reserved, wanted);
    if (event->addr < wanted && event->addr <= UINT64_MAX - reserved) {
        workload->limit = reserved + event->addr;
        workload->by_driver = true;
    }
    return event->size == 0
               ? 0
               : add_mark(b, (ml_mark){.event = index,
                                       .end = index,
                                       .bytes = event->size,
                                       .stream = event->stream,
                                       .pool = {event->pool[0], event->pool[1]},
                                       .kind = ML_MARK_OOM});
}

/* Reads the notes of the last out of memory: the process may have had a limit below the
 * device's memory. */
static void
take_limit(ml_workload *workload)
{
    for (size_t i = 0; i < workload->recording->note_count; i++) {
        const ml_note *note = &workload->recording->notes[i];
        bool here = note->device == (int32_t)workload->device || note->device == -1;
        uint64_t allowed = note->values[3];
        if (note->kind == ML_NOTE_OOM && here && allowed != ML_NOTE_UNKNOWN &&
            allowed >= workload->peak.reserved && allowed < workload->refused) {
            workload->limit = allowed;
            workload->by_driver = false;
        }
    }
}

/* ---- All events ---- */

static int
take_event(builder *b, size_t index)
{
    const ml_event *event = ml_event_cursor_at(&b->cursor, index);
    ml_demand *demand = NULL;
    int error = follow_run(b, index, event);
    if (error < 0) {
        return error;
    }
    switch (event->action) {
    case ML_ACTION_ALLOC:
        error = end_run(b, event);
        demand = find_ended(b);
        if (demand != NULL) { /* its free was lost */
            end_demand(b, demand, index);
        }
        break;
    case ML_ACTION_FREE_REQUESTED:
        error = end_run(b, event);
        demand = find_ended(b);
        if (demand != NULL && demand->freed == ML_NO_EVENT &&
            !was_pending(b->workload, demand)) {
            demand->freed = (uint32_t)index;
        }
        break;
    case ML_ACTION_FREE_COMPLETED:
        demand = find_ended(b);
        if (demand != NULL) {
            end_demand(b, demand, index);
        }
        break;
    case ML_ACTION_OOM:
        error = end_run(b, event);
        error = error < 0 ? error : take_oom(b, index, event);
        break;
    default:
        break;
    }
    ml_lifetimes_walk_next(&b->walk);
    if (error == 0 && event->action == ML_ACTION_ALLOC) {
        error = take_alloc(b, index, event);
    }
    else if (demand != NULL && b->workload->own_of_event != NULL) {
        b->workload->own_of_event[index] =
            (uint32_t)(demand - b->workload->demands) + 1;
    }
    return error;
}

/* Finds the peaks, and whether a request failed; the later steps need both. */
static void
look_ahead(builder *b)
{
    ml_workload *workload = b->workload;
    const ml_replay_result *fit = &b->analysis->fit;
    workload->peak = b->analysis->peaks;
    size_t count = b->trace->event_count;
    workload->failed =
        ml_events_find_action(&b->trace->events, count, 0, ML_ACTION_OOM) < count;
    workload->doubts |= (uint32_t)(fit->misfits != 0) << ML_DOUBT_MISFITS |
                        (uint32_t)(fit->uncertain_blocks != 0) << ML_DOUBT_UNCERTAIN |
                        (uint32_t)(!fit->compared) << ML_DOUBT_NO_END |
                        (uint32_t)(b->trace->overwritten_events != 0)
                            << ML_DOUBT_OVERWRITTEN |
                        (uint32_t)(b->trace->dropped_events != 0) << ML_DOUBT_DROPPED;
}

static bool
collects_garbage(const ml_recording *recording)
{
    for (size_t i = 0; i < recording->setting_count; i++) {
        const ml_setting *setting = &recording->settings[i];
        if (ml_string_holds(recording->strings[setting->key], THRESHOLD)) {
            return setting->kind == 'f' && setting->real > 0 && setting->real < 1;
        }
    }
    return false;
}

/* A demand is a row of the lifetimes, unless one event changed the rows of others. */
static int
begin_of_event(builder *b)
{
    ml_workload *workload = b->workload;
    const ml_lifetimes *lifetimes = &b->analysis->lifetimes;
    if (lifetimes->change_count != 0) {
        workload->own_of_event =
            ml_alloc_zeroed(b->trace->event_count + 1, sizeof(uint32_t));
        workload->of_event = workload->own_of_event;
        return workload->of_event == NULL ? ML_ENOMEM : 0;
    }
    workload->of_event = lifetimes->of_event;
    return 0;
}

static int
build(builder *b)
{
    ml_workload *workload = b->workload;
    const ml_device_trace *trace = b->trace;
    const ml_lifetimes *lifetimes = &b->analysis->lifetimes;
    workload->demands = ml_alloc_zeroed(lifetimes->count + 1, sizeof(ml_demand));
    if (workload->demands == NULL) {
        return ML_ENOMEM;
    }
    look_ahead(b);
    int error = begin_of_event(b);
    error = error < 0 ? error : ml_stream_pools_init(&workload->stream_pools, trace);
    error = error < 0 ? error : take_start(b);
    if (error < 0) {
        return error;
    }
    ml_lifetimes_walk_begin(&b->walk, lifetimes, NULL, NULL);
    workload->doubts |= (uint32_t)(workload->before_count != 0) << ML_DOUBT_BEFORE;
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        error = take_event(b, i);
    }
    if (error == 0) {
        take_limit(workload);
        error = end_run(b, NULL);
    }
    return error;
}

int
ml_workload_new(const ml_recording *recording, size_t device, ml_workload **out)
{
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    if (!recording->rules.has_segments) {
        return ML_EUNSUPPORTED;
    }
    const ml_device_trace *trace = &recording->devices[device];
    if (trace->event_count >= UINT32_MAX / 4) {
        return ML_ELIMIT;
    }
    builder b = {.trace = trace,
                 .run = {.first = ML_NO_EVENT},
                 .collects = collects_garbage(recording)};
    ml_event_cursor_init(&b.cursor, &trace->events, ML_EVENT_MEMORY);
    b.workload = ml_alloc_zeroed(1, sizeof(ml_workload));
    if (b.workload == NULL) {
        return ML_ENOMEM;
    }
    b.workload->recording = recording;
    b.workload->device = device;
    b.workload->trace = trace;
    b.workload->refused = UINT64_MAX;
    b.workload->limit = UINT64_MAX;
    b.workload->collected = UINT64_MAX;
    b.workload->original = true;
    int error = ml_analysis_of(recording, device, &b.analysis);
    error = error < 0 ? error : build(&b);
    error = error < 0 ? error : ml_workload_take_uses(b.workload);
    if (error < 0) {
        ml_workload_free(b.workload);
        return error;
    }
    *out = b.workload;
    return 0;
}

int
ml_workload_copy(const ml_workload *from, ml_workload **out)
{
    ml_workload *copy = ml_alloc_zeroed(1, sizeof(*copy));
    ml_demand *demands = ml_alloc_zeroed(from->count + 1, sizeof(ml_demand));
    if (copy == NULL || demands == NULL) {
        ml_free(copy);
        ml_free(demands);
        return ML_ENOMEM;
    }
    *copy = *from;
    copy->original = false;
    copy->demands = demands;
    memcpy(demands, from->demands, from->count * sizeof(ml_demand));
    *out = copy;
    return 0;
}

uint64_t
ml_workload_start_cached(const ml_workload *workload)
{
    uint64_t reserved = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < workload->segment_count; i++) {
        reserved += workload->segments[i].total;
    }
    for (size_t i = 0; i < workload->before_count; i++) {
        used += workload->demands[i].block_bytes;
    }
    return reserved > used ? reserved - used : 0;
}

void
ml_workload_free(ml_workload *workload)
{
    if (workload == NULL) {
        return;
    }
    ml_free(workload->demands);
    if (workload->original) {
        ml_free(workload->own_of_event);
        ml_stream_pools_fini(&workload->stream_pools);
        ml_free(workload->marks);
        ml_free(workload->segments);
        ml_free(workload->before_states);
    }
    ml_free(workload);
}
