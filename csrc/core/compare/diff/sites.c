/* Finds the allocating sites of one device.  See sites.h. */
#include "compare/diff/sites.h"

#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "base/base.h"
#include "ledger/replay/replay.h"

/* Sites found last: a line's blocks are mostly of one. */
#define RECENT 1024u

typedef struct sites_work {
    ml_sites *sites;
    const ml_recording *recording;
    const uint32_t *texts; /* by string id */
    const ml_analysis *analysis;
    /* Owned; by frame id; NOT_ASKED; ROUTER; 0: not in a library. */
    uint64_t *operations;
    uint32_t recent[RECENT]; /* the last one found, by stack */
} sites_work;

#define NOT_ASKED UINT64_MAX
/* From torch 2.15 on, beside Triton, operators with a second implementation are called
 * through a frame of Python: it tells nothing of the operation. */
#define ROUTER (UINT64_MAX - 1)

/* Sites that always exist: for blocks without event and without block in the list, as
 * misfits may leave, and for slack. */
enum {
    UNTOLD,
    SLACK
};

/* ---- What a site is ---- */

typedef struct query {
    const ml_sites *sites;
    const ml_site_key *key;
} query;

static bool
same_key(const void *context, uint32_t id)
{
    const query *asked = context;
    return memcmp(&asked->sites->items[id].key, asked->key, sizeof(ml_site_key)) == 0;
}

static int
find_site(ml_sites *sites, const ml_site_key *key, uint8_t phase, uint32_t *id)
{
    uint64_t hash = ml_hash_bytes(key, sizeof(*key));
    query asked = {sites, key};
    if (ml_intern_find(&sites->table, hash, same_key, &asked, id)) {
        return 0;
    }
    int result = ml_grow((void **)&sites->items, &sites->capacity, sites->count + 1,
                         sizeof(*sites->items));
    if (result == 0) {
        result = ml_intern_add(&sites->table, hash);
    }
    if (result == 0) {
        *id = (uint32_t)sites->count;
        sites->items[sites->count++] = (ml_site){.key = *key, .phase = phase};
    }
    return result;
}

/* For a library's frame: its function and its file's own name.  Folders differ between
 * machines, and lines between releases. */
static uint64_t
name_operation(const ml_recording *recording, uint32_t frame)
{
    enum ml_frame_place place = ml_frame_place_of(recording, frame);
    if (place != ML_PLACE_LIBRARY && place != ML_PLACE_PACKAGE) {
        return 0;
    }
    ml_string file = ml_frame_file(recording, frame);
    ml_string name = ml_frame_name(recording, frame);
    if (ml_string_holds(file, "torch/_native/registry.py")) {
        return ROUTER;
    }
    uint32_t start = file.length;
    while (start > 0 && file.bytes[start - 1] != '/') {
        start--;
    }
    uint64_t parts[2] = {
        ml_hash_bytes(file.bytes + start, file.length - start),
        ml_hash_bytes(name.bytes, name.length),
    };
    uint64_t hash = ml_hash_bytes(parts, sizeof(parts)) | 1;
    return hash == NOT_ASKED ? 1 : hash; /* ROUTER is even */
}

static uint64_t
operation_of(sites_work *w, const ml_events *events, size_t index)
{
    uint64_t operation = ROUTER;
    uint32_t stack = ml_events_stack(events, index);
    for (; stack != 0 && operation == ROUTER;
         stack = w->recording->stacks[stack].parent) {
        uint32_t frame = w->recording->stacks[stack].frame;
        if (w->operations[frame] == NOT_ASKED) {
            w->operations[frame] = name_operation(w->recording, frame);
        }
        operation = w->operations[frame];
    }
    if (operation != 0 && operation != ROUTER) {
        return operation;
    }
    ml_string node = w->recording->strings[ml_events_node(events, index)];
    return node.length == 0 ? 0 : ml_hash_bytes(node.bytes, node.length) | 1;
}

/* The site of a block with CAUSE and VERDICT, allocated by OPERATION. */
static int
site_of(sites_work *w, const ml_cause *cause, const ml_verdict *verdict,
        uint64_t operation, uint64_t bytes, uint32_t *site)
{
    ml_site_key key = {.operation = operation,
                       .module = w->texts[cause->module],
                       .backward = cause->phase == ML_PHASE_BACKWARD,
                       .category = verdict->category,
                       .no_line = cause->no_line,
                       .no_module = cause->no_module};
    if (cause->how != ML_HOW_NONE) {
        const ml_frame *frame = &w->recording->frames[cause->frame];
        key.line = frame->line;
        key.file = w->texts[frame->filename];
        key.function = w->texts[frame->name];
        key.category = ML_CATEGORY_COUNT;
    }
    uint32_t *recent = &w->recent[cause->stack % RECENT];
    query asked = {w->sites, &key};
    int result =
        same_key(&asked, *recent) ? 0 : find_site(w->sites, &key, cause->phase, recent);
    if (result == 0) {
        *site = *recent;
        ml_site *found = &w->sites->items[*site];
        found->kinds |= UINT32_C(1) << verdict->category;
        found->largest = found->largest < bytes ? bytes : found->largest;
    }
    return result;
}

/* The size that rounding gives REQUESTED bytes, for a block of BYTES. */
static uint64_t
without_slack(const ml_recording *recording, uint64_t requested, uint64_t bytes)
{
    uint64_t rounded =
        requested == 0 ? bytes : ml_allocator_round(&recording->rules, requested);
    /* Sizes in a forged file may be anything. */
    return rounded >= requested && rounded < bytes ? rounded : bytes;
}

static int
note_step(ml_sites *sites, size_t event, uint32_t step)
{
    if (sites->step_count != 0 && sites->steps[sites->step_count - 1].step == step) {
        return 0;
    }
    int result = ml_grow((void **)&sites->steps, &sites->step_capacity,
                         sites->step_count + 1, sizeof(*sites->steps));
    if (result == 0) {
        sites->steps[sites->step_count++] = (ml_site_step){event, step};
    }
    return result;
}

/* The block whose first row is INDEX. */
static int
describe(sites_work *w, size_t index)
{
    ml_sites *sites = w->sites;
    const ml_lifetimes *lifetimes = &w->analysis->lifetimes;
    const ml_events *events = &w->analysis->trace->events;
    const ml_lifetime *row = &lifetimes->rows[index];
    uint64_t bytes = without_slack(
        w->recording, ml_lifetimes_request(lifetimes, index).size, row->bytes);
    ml_explained it = ml_explain_row(w->analysis, index);
    sites->category[index] = it.verdict.category;
    sites->bytes[index] = bytes;
    uint64_t operation = row->birth == 0 ? 0 : operation_of(w, events, row->birth - 1);
    int result = row->birth == 0 ? 0 : note_step(sites, row->birth - 1, it.cause.step);
    return result == 0 ? site_of(w, &it.cause, &it.verdict, operation, bytes,
                                 &sites->site[index])
                       : result;
}

/* ---- All of them ---- */

static int
add_own_sites(ml_sites *sites)
{
    ml_site_key untold = {.category = ML_CATEGORY_BEFORE_RECORDING,
                          .no_line = ML_NO_LINE_BEFORE,
                          .no_module = ML_NO_MODULE_STACK};
    ml_site_key slack = {.category = ML_CATEGORY_UNKNOWN,
                         .no_line = ML_NO_LINE_SLACK,
                         .no_module = ML_NO_MODULE_SLACK};
    uint32_t site;
    int result = find_site(sites, &untold, ML_PHASE_BEFORE_RECORDING, &site);
    return result == 0 ? find_site(sites, &slack, ML_PHASE_UNKNOWN, &site) : result;
}

/* The event that ends the block whose first row is INDEX; the last such block counts. */
static void
note_end(ml_sites *sites, size_t index)
{
    const ml_lifetimes *lifetimes = &sites->analysis->lifetimes;
    const ml_lifetime *last = ml_lifetime_last(lifetimes, &lifetimes->rows[index]);
    /* A block that waited for its free at the start ends with that. */
    uint32_t end = last->requested != 0 ? last->requested : last->end;
    if (end != ML_NEVER) {
        sites->ended[end - 1] = (uint32_t)index + 1;
    }
}

static int
describe_all(sites_work *w)
{
    ml_sites *sites = w->sites;
    const ml_lifetimes *lifetimes = &w->analysis->lifetimes;
    int result = add_own_sites(sites);
    if (result == 0) {
        result = note_step(sites, 0, 0);
    }
    for (size_t i = 0; i < lifetimes->count && result == 0; i++) {
        sites->site[i] = ML_NO_SITE;
        if (ml_lifetimes_is_first(lifetimes, i)) {
            result = describe(w, i);
            note_end(sites, i);
        }
    }
    return result;
}

static int
grow_table(ml_sites *sites)
{
    size_t rows = sites->analysis->lifetimes.count + 1;
    sites->site = ml_alloc(rows * sizeof(*sites->site));
    sites->category = ml_alloc(rows * sizeof(*sites->category));
    sites->bytes = ml_alloc(rows * sizeof(*sites->bytes));
    sites->ended = ml_alloc_zeroed(sites->event_count + 1, sizeof(*sites->ended));
    bool all = sites->site != NULL && sites->category != NULL && sites->bytes != NULL &&
               sites->ended != NULL;
    return all ? 0 : ML_ENOMEM;
}

static int
fill_sites(sites_work *w)
{
    size_t frames = w->recording->frame_count;
    w->operations = ml_alloc_zeroed(frames + 1, sizeof(uint64_t));
    int result = w->operations == NULL ? ML_ENOMEM : grow_table(w->sites);
    for (size_t i = 0; i < frames && result == 0; i++) {
        w->operations[i] = NOT_ASKED;
    }
    if (result == 0) {
        result = describe_all(w);
    }
    ml_free(w->operations);
    return result;
}

int
ml_sites_init(ml_sites *sites, ml_string_pool *texts, const ml_recording *recording,
              size_t device)
{
    *sites = (ml_sites){.recording = recording};
    uint32_t *ids = NULL;
    int result = ml_analysis_of(recording, device, &sites->analysis);
    if (result < 0) {
        return result;
    }
    sites->event_count = recording->devices[device].event_count;
    result = ml_string_pool_of(texts, recording, &ids);
    if (result == 0) {
        sites_work w = {.sites = sites,
                        .recording = recording,
                        .texts = ids,
                        .analysis = sites->analysis};
        result = fill_sites(&w);
    }
    ml_free(ids);
    if (result < 0) {
        ml_sites_fini(sites);
    }
    return result;
}

void
ml_sites_fini(ml_sites *sites)
{
    ml_intern_fini(&sites->table);
    ml_free(sites->items);
    ml_free(sites->site);
    ml_free(sites->category);
    ml_free(sites->bytes);
    ml_free(sites->ended);
    ml_free(sites->steps);
    *sites = (ml_sites){0};
}

/* ---- Events ---- */

const ml_lifetime *
ml_sites_begun(const ml_sites *sites, size_t index)
{
    const ml_lifetimes *lifetimes = &sites->analysis->lifetimes;
    uint32_t own = lifetimes->of_event[index];
    const ml_lifetime *row = own != 0 ? &lifetimes->rows[own - 1] : NULL;
    return row != NULL && row->birth == index + 1 ? row : NULL;
}

unsigned
ml_sites_phase(const ml_sites *sites, size_t index)
{
    const ml_analysis *analysis = sites->analysis;
    return ml_sites_begun(sites, index) != NULL
               ? ml_causes_phase(analysis->causes, analysis->device, index)
               : ML_PHASE_UNKNOWN;
}

size_t
ml_sites_step(const ml_sites *sites, size_t index)
{
    size_t low;
    ML_SEARCH(low, sites->step_count, sites->steps[low].event <= index);
    return low - 1;
}

/* ---- What is live ---- */

typedef struct look {
    const ml_sites *sites;
    ml_site_live *live;
} look;

static int
see_segment(void *context, const ml_segment *segment)
{
    (void)context;
    (void)segment;
    return 0;
}

static int
see_block(void *context, const ml_block *block, uint64_t birth)
{
    const look *l = context;
    const ml_sites *sites = l->sites;
    if (block->state != ML_BLOCK_ALLOCATED) {
        return 0;
    }
    uint32_t site = UNTOLD;
    uint8_t category = ML_CATEGORY_BEFORE_RECORDING;
    const ml_lifetimes *lifetimes = &sites->analysis->lifetimes;
    size_t index = birth == ML_BEFORE_EVENTS
                       ? ml_lifetimes_earlier(lifetimes, block->addr)
                       : ml_lifetimes_row(lifetimes, birth);
    if (index != SIZE_MAX) {
        site = sites->site[index];
        category = sites->category[index];
    }
    uint64_t bytes = without_slack(sites->recording, block->requested, block->size);
    l->live[SLACK].bytes += block->size - bytes;
    l->live[site].bytes += bytes;
    l->live[site].blocks++;
    l->live[site].of[category] += block->size;
    return 0;
}

/* From the memory itself: whatever the events are, the sum is the allocated bytes. */
static int
see_instant(const ml_sites *sites, size_t position, ml_site_live *live)
{
    ml_replay *replay;
    int result = ml_analysis_replay(sites->analysis, position, &replay);
    if (result < 0) {
        return result;
    }
    look l = {sites, live};
    ml_ledger_visitor visitor = {&l, see_segment, see_block};
    result = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
    ml_replay_free(replay);
    return result;
}

static void
raise(uint64_t *most, uint64_t now)
{
    *most = *most < now ? now : *most;
}

/* The most live bytes from state FIRST to state LAST, where a state's number is its
 * events; NOW is live before the first. */
static void
sum_live(const ml_sites *sites, size_t position, size_t first, size_t last,
         uint64_t *now, ml_site_live *live)
{
    for (size_t i = 0; i < last; i++) {
        for (size_t s = 0; i == first && s < sites->count; s++) {
            raise(&live[s].most_before, now[s]);
        }
        for (size_t s = 0; i == position && s < sites->count; s++) {
            raise(&live[s].most_after, now[s]);
        }
        if (sites->ended[i] != 0) {
            size_t row = sites->ended[i] - 1;
            now[sites->site[row]] -= sites->bytes[row];
        }
        const ml_lifetime *begun = ml_sites_begun(sites, i);
        if (begun != NULL) {
            size_t row = ml_lifetimes_index(&sites->analysis->lifetimes, begun);
            uint32_t site = sites->site[row];
            now[site] += sites->bytes[row];
            if (i >= first) {
                raise(i < position ? &live[site].most_before : &live[site].most_after,
                      now[site]);
            }
        }
    }
}

int
ml_sites_live(const ml_sites *sites, size_t position, size_t first, size_t last,
              ml_site_live **live)
{
    ml_site_live *made = ml_alloc_zeroed(sites->count + 1, sizeof(*made));
    uint64_t *now = ml_alloc_zeroed(sites->count + 1, sizeof(*now));
    int result =
        made == NULL || now == NULL ? ML_ENOMEM : see_instant(sites, position, made);
    if (result == 0) {
        for (size_t i = 0; i < sites->analysis->lifetimes.earlier_count; i++) {
            now[sites->site[i]] += sites->bytes[i];
        }
        sum_live(sites, position, first, last, now, made);
        for (size_t s = 0; s < sites->count; s++) {
            raise(&made[s].most_before, made[s].bytes);
            raise(&made[s].most_after, made[s].bytes);
        }
    }
    ml_free(now);
    if (result < 0) {
        ml_free(made);
        return result;
    }
    *live = made;
    return 0;
}
