/* The peak: finding the instant, its blocks and their categories.  See peak.h. */
#include "peak.h"

#include <string.h>

#include "base.h"
#include "peak_groups.h"

/* A position that no recording has: look for the peak. */
#define ANY_POSITION UINT64_MAX
#define NEVER UINT64_MAX

/* What is worked out of one block on the way to its category. */
typedef struct life {
    uint64_t birth; /* index of its allocation, or ML_BEFORE_EVENTS */
    uint64_t end;   /* index of its free, or NEVER */
    uint8_t tag;    /* enum ml_category, or ML_CATEGORY_COUNT for none */
} life;

typedef struct work {
    ml_peak *peak;
    const ml_recording *recording;
    const ml_device_trace *trace;
    size_t block_capacity;
    life *lives; /* of peak->blocks */
    size_t life_capacity;
    size_t block_end;  /* walked so far: not all are allocated */
    uint32_t *passes;  /* backward passes that began before each event, and in all */
    bool phases_known; /* the recording says which events a backward pass made */
    bool owners_known; /* it has tagged parameters */
} work;

/* ---- The instant ---- */

static void
raise(ml_totals *peak, const ml_totals *current)
{
#define XX(name) peak->name = peak->name < current->name ? current->name : peak->name;
    ML_TOTALS(XX)
#undef XX
}

static void
find_instant(ml_peak *peak, ml_replay *replay, bool given)
{
    uint64_t most = ml_replay_totals(replay)->allocated;
    peak->window_peaks = *ml_replay_totals(replay);
    while (ml_replay_next(replay) != NULL) {
        const ml_totals *now = ml_replay_totals(replay);
        if (now->allocated > most && !given) {
            most = now->allocated;
            peak->position = ml_replay_position(replay);
        }
        raise(&peak->window_peaks, now);
    }
    peak->replay = ml_replay_check(replay);
}

static int
go_to(ml_replay *replay, uint64_t position)
{
    int error = ml_replay_rewind(replay);
    while (error == 0 && ml_replay_position(replay) < position) {
        ml_replay_next(replay);
    }
    return error;
}

/* ---- The memory there ---- */

static int
visit_segment(void *context, const ml_segment *segment)
{
    work *w = context;
    (void)segment;
    w->peak->overhead.segments++;
    return 0;
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    work *w = context;
    ml_peak *peak = w->peak;
    if (block->state == ML_BLOCK_INACTIVE) {
        ml_peak_overhead *overhead = &peak->overhead;
        overhead->free_blocks++;
        if (overhead->largest_free < block->size) {
            overhead->largest_free = block->size;
        }
    }
    if (block->state != ML_BLOCK_ALLOCATED) {
        return 0;
    }
    void *blocks = peak->blocks;
    int error = ml_grow(&blocks, &w->block_capacity, peak->block_count + 1,
                        sizeof(ml_peak_block));
    if (error < 0) {
        return error;
    }
    peak->blocks = blocks;
    void *lives = w->lives;
    error = ml_grow(&lives, &w->life_capacity, peak->block_count + 1, sizeof(life));
    if (error < 0) {
        return error;
    }
    w->lives = lives;
    w->lives[peak->block_count] =
        (life){.birth = birth, .end = NEVER, .tag = ML_CATEGORY_COUNT};
    peak->blocks[peak->block_count++] = (ml_peak_block){
        .addr = block->addr,
        .size = block->size,
        .requested = block->requested,
        .event = birth == ML_BEFORE_EVENTS ? -1 : (int64_t)birth,
        .stack = block->stack,
    };
    return 0;
}

static void
fill_overhead(ml_peak *peak)
{
    ml_peak_overhead *overhead = &peak->overhead;
    const ml_totals *totals = &peak->totals;
    if (totals->reserved > totals->active) {
        overhead->inactive = totals->reserved - totals->active;
        overhead->fragmentation =
            (double)(overhead->inactive - overhead->largest_free) /
            (double)overhead->inactive;
    }
    if (totals->active > totals->requested) {
        overhead->slack = totals->active - totals->requested;
    }
}

/* ---- Lives ---- */

/* The last block that starts at or below ADDR; block_count where there is none. */
static size_t
find_block(const ml_peak *peak, uint64_t addr)
{
    size_t low = 0;
    size_t high = peak->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peak->blocks[middle].addr <= addr) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low == 0 ? peak->block_count : low - 1;
}

static void
find_ends(work *w)
{
    const ml_peak *peak = w->peak;
    size_t open = peak->block_count;
    for (uint64_t i = peak->position; i < w->trace->event_count && open > 0; i++) {
        const ml_event *event = &w->trace->events[i];
        /* An allocation ends a block whose free is missing. */
        if (event->action > ML_ACTION_FREE_COMPLETED) {
            continue;
        }
        size_t at = find_block(peak, event->addr);
        if (at < peak->block_count && peak->blocks[at].addr == event->addr &&
            w->lives[at].end == NEVER) {
            w->lives[at].end = i;
            open--;
        }
    }
}

static void
apply_tags(work *w)
{
    const ml_peak *peak = w->peak;
    for (size_t i = 0; i < w->trace->tag_count; i++) {
        const ml_tag *tag = &w->trace->tags[i];
        w->owners_known = w->owners_known || tag->category == ML_CATEGORY_PARAMETER;
        size_t at = find_block(peak, tag->addr);
        if (at == peak->block_count ||
            tag->addr - peak->blocks[at].addr >= peak->blocks[at].size) {
            continue;
        }
        life *l = &w->lives[at];
        bool born = l->birth == ML_BEFORE_EVENTS || tag->position > l->birth;
        if (born && tag->position <= l->end && l->tag != ML_CATEGORY_PARAMETER) {
            l->tag = tag->category;
        }
    }
}

/* ---- Backward passes ---- */

static bool
any_backward(const ml_recording *recording)
{
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            if (trace->events[i].flags & ML_EVENT_BACKWARD) {
                return true;
            }
        }
    }
    return false;
}

static int
count_passes(work *w)
{
    size_t count = w->trace->event_count;
    w->phases_known = !w->recording->foreign || w->recording->source_known ||
                      any_backward(w->recording);
    w->passes = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
    if (w->passes == NULL) {
        return ML_ENOMEM;
    }
    bool inside = false;
    for (size_t i = 0; i < count; i++) {
        const ml_event *event = &w->trace->events[i];
        w->passes[i + 1] = w->passes[i];
        if (event->flags & ML_EVENT_BACKWARD) {
            w->passes[i + 1] += !inside;
            inside = true;
        }
        else if (event->action == ML_ACTION_ALLOC) {
            inside = false;
        }
    }
    return 0;
}

/* ---- What each block is ---- */

static enum ml_category
category_of(const work *w, const life *l)
{
    const ml_event *events = w->trace->events;
    if (l->tag != ML_CATEGORY_COUNT) {
        return (enum ml_category)l->tag;
    }
    if (l->birth == ML_BEFORE_EVENTS) {
        return ML_CATEGORY_BEFORE_RECORDING;
    }
    if (!w->phases_known) {
        return ML_CATEGORY_UNKNOWN;
    }
    bool freed = l->end != NEVER;
    bool freed_by_pass = freed && (events[l->end].flags & ML_EVENT_BACKWARD) != 0;
    /* Begun after the allocation, up to the free and with it. */
    uint64_t last = freed ? l->end + 1 : w->trace->event_count;
    uint32_t passes = w->passes[last] - w->passes[l->birth + 1];
    if (events[l->birth].flags & ML_EVENT_BACKWARD) {
        return freed_by_pass && passes == 0 ? ML_CATEGORY_TEMPORARY
                                            : ML_CATEGORY_UNKNOWN;
    }
    if (freed_by_pass || (passes == 1 && w->owners_known)) {
        return ML_CATEGORY_ACTIVATION;
    }
    return freed && passes == 0 ? ML_CATEGORY_TEMPORARY : ML_CATEGORY_UNKNOWN;
}

static enum ml_phase
phase_of(const work *w, const ml_peak_block *block)
{
    if (block->event < 0) {
        return ML_PHASE_BEFORE_RECORDING;
    }
    if (w->trace->events[block->event].flags & ML_EVENT_BACKWARD) {
        return ML_PHASE_BACKWARD;
    }
    return w->phases_known || block->stack != 0 ? ML_PHASE_FORWARD : ML_PHASE_UNKNOWN;
}

static enum ml_no_line
no_line_of(const work *w, const ml_peak_block *block)
{
    if (block->stack != 0) {
        return ML_NO_LINE_NONE;
    }
    if (block->event < 0) {
        return ML_NO_LINE_BEFORE;
    }
    uint8_t flags = w->trace->events[block->event].flags;
    if (flags & ML_EVENT_STACK_LOST) {
        return ML_NO_LINE_LOST;
    }
    if (flags & ML_EVENT_NO_PYTHON) {
        return flags & ML_EVENT_BACKWARD ? ML_NO_LINE_BACKWARD : ML_NO_LINE_NO_PYTHON;
    }
    return flags & ML_EVENT_CONTEXT ? ML_NO_LINE_EMPTY : ML_NO_LINE_NOT_RECORDED;
}

static int
describe_blocks(work *w)
{
    ml_peak *peak = w->peak;
    int error = count_passes(w);
    if (error < 0) {
        return error;
    }
    find_ends(w);
    apply_tags(w);
    for (size_t i = 0; i < peak->block_count; i++) {
        ml_peak_block *block = &peak->blocks[i];
        block->category = (uint8_t)category_of(w, &w->lives[i]);
        block->phase = (uint8_t)phase_of(w, block);
        block->no_line = (uint8_t)no_line_of(w, block);
    }
    return 0;
}

/* ---- The whole ---- */

static int
fill(work *w, ml_replay *replay, uint64_t position)
{
    ml_peak *peak = w->peak;
    bool given = position != ANY_POSITION;
    peak->position = given ? position : 0;
    find_instant(peak, replay, given);
    peak->known_peaks = peak->window_peaks;
    raise(&peak->known_peaks, &w->trace->peak);
    peak->earlier = w->trace->peak.allocated > peak->window_peaks.allocated;
    int error = go_to(replay, peak->position);
    if (error < 0) {
        return error;
    }
    peak->totals = *ml_replay_totals(replay);
    if (w->trace->event_count != 0) {
        size_t event = peak->position == 0 ? 0 : (size_t)peak->position - 1;
        peak->time = w->trace->events[event].time;
    }
    ml_ledger_visitor visitor = {w, visit_segment, visit_block};
    error = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
    if (error < 0) {
        return error;
    }
    fill_overhead(peak);
    error = describe_blocks(w);
    return error < 0 ? error : ml_peak_group(peak, w->recording);
}

static int
make(const ml_recording *recording, size_t device, uint64_t position, ml_peak **out)
{
    ml_replay *replay;
    int error = ml_replay_new(recording, device, &replay);
    if (error < 0) {
        return error;
    }
    work w = {.recording = recording,
              .trace = &recording->devices[device],
              .peak = ml_alloc_zeroed(1, sizeof(ml_peak))};
    error = w.peak == NULL ? ML_ENOMEM : fill(&w, replay, position);
    ml_replay_free(replay);
    ml_free(w.lives);
    ml_free(w.passes);
    if (error < 0) {
        ml_peak_free(w.peak);
        return error;
    }
    *out = w.peak;
    return 0;
}

int
ml_peak_new(const ml_recording *recording, size_t device, ml_peak **out)
{
    return make(recording, device, ANY_POSITION, out);
}

int
ml_peak_new_at(const ml_recording *recording, size_t device, uint64_t position,
               ml_peak **out)
{
    if (device >= recording->device_count ||
        position > recording->devices[device].event_count) {
        return ML_EINVALID;
    }
    return make(recording, device, position, out);
}

void
ml_peak_free(ml_peak *peak)
{
    if (peak != NULL) {
        ml_free(peak->blocks);
        ml_free(peak->lines);
        ml_free(peak->stacks);
        ml_free(peak);
    }
}

const char *
ml_phase_text(unsigned phase)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_PHASES(XX)
#undef XX
    };
    return texts[phase < ML_PHASE_COUNT ? phase : ML_PHASE_UNKNOWN];
}

const char *
ml_no_line_text(unsigned no_line)
{
    static const char *const texts[] = {
#define XX(name, text) text,
        ML_NO_LINES(XX)
#undef XX
    };
    return texts[no_line < ML_NO_LINE_COUNT ? no_line : ML_NO_LINE_NONE];
}
