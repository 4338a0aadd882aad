/* Drops the older half of the events of a followed recording, and keeps their facts
 * about the blocks that outlive them.  See follower.h. */
#include <string.h>

#include "analysis/answers/peak.h"
#include "analysis/follow/follower_parts.h"
#include "ledger/replay/replay.h"
#include "ledger/replay/unordered_events.h"

/* A recording of everything kept, and the way back from its ids. */
typedef struct past {
    ml_follower *live;
    mlab_reader *whole;   /* owned; finished */
    uint32_t *raw_stacks; /* owned; by stack id of its recording, ids of the file */
    uint64_t positions[ML_DEVICE_MAX]; /* events to drop */
    ml_peak *there[ML_DEVICE_MAX];     /* owned; the memory after these */
    mlab_start starts[ML_DEVICE_MAX];  /* owned; the same with free blocks */
} past;

/* ---- Forgetting ---- */

/* The last of DEVICE's places up to event INDEX; 0 if there is none. */
static size_t
place_at(const mlab_reader *reader, unsigned device, uint64_t index)
{
    size_t at = 0;
    for (size_t i = 0; i < reader->place_count[device]; i++) {
        if (reader->places[device][i].index <= index) {
            at = i;
        }
    }
    return at;
}

/* The number of events of DEVICE's lane before kept event INDEX. */
static uint64_t
ordinal_at(const mlab_reader *reader, unsigned device, uint64_t index)
{
    uint64_t start = reader->starts[device].head.events;
    if (reader->place_count[device] == 0) {
        return start + index;
    }
    mlab_place place = reader->places[device][place_at(reader, device, index)];
    uint64_t from = place.ordinal < start ? start : place.ordinal;
    return from + (index > place.index ? index - place.index : 0);
}

static void
move_places(mlab_reader *reader, unsigned device, uint64_t index)
{
    mlab_place *places = reader->places[device];
    size_t count = reader->place_count[device];
    if (count == 0) {
        return;
    }
    size_t first = place_at(reader, device, index);
    places[first] = (mlab_place){ordinal_at(reader, device, index), index};
    for (size_t i = first; i < count; i++) {
        places[i].index -= index;
    }
    reader->place_count[device] = count - first;
    memmove(places, places + first, (count - first) * sizeof(*places));
}

void
follower_forget(ml_follower *live, unsigned device, size_t count)
{
    ml_device_trace *trace = &live->reader->recording->devices[device];
    move_places(live->reader, device, count);
    trace->event_count -= count;
    if (count > 0) {
        memmove(trace->events.plain, trace->events.plain + count,
                trace->event_count * sizeof(ml_event));
    }
    for (size_t i = 0; i < live->info.gap_count; i++) {
        ml_mlab_gap *gap = &live->info.gaps[i];
        if (gap->device == device) {
            gap->position = gap->position > count ? gap->position - count : 0;
        }
    }
    live->gone[device] += count;
}

/* ---- Where to cut ---- */

/* Between two steps if possible, when hardly any block waits for a backward pass. */
static void
choose_moment(past *of)
{
    const ml_recording *recording = of->whole->recording;
    const ml_device_trace *most = &recording->devices[0];
    for (size_t d = 1; d < recording->device_count; d++) {
        if (recording->devices[d].event_count > most->event_count) {
            most = &recording->devices[d];
        }
    }
    size_t count = most->event_count;
    uint64_t time = count > 0 ? ml_events_time(&most->events, count / 2) : 0;
    uint64_t latest =
        count > 0 ? ml_events_time(&most->events, count - count / 4 - 1) : 0;
    uint64_t cut = time;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_STEP && note->time >= time && note->time <= latest) {
            cut = note->time;
            break;
        }
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        of->positions[d] = ml_device_trace_until(&recording->devices[d], cut);
    }
}

/* ---- What was there then ---- */

static int
invert_stacks(past *of)
{
    const ml_recording *kept = of->live->reader->recording;
    const ml_recording *recording = of->whole->recording;
    of->raw_stacks = ml_alloc_zeroed(recording->stack_count + 1, sizeof(uint32_t));
    if (of->raw_stacks == NULL) {
        return ML_ENOMEM;
    }
    for (size_t d = 0; d < kept->device_count; d++) {
        for (size_t i = 0; i < kept->devices[d].event_count; i++) {
            of->raw_stacks[ml_events_stack(&recording->devices[d].events, i)] =
                ml_events_stack(&kept->devices[d].events, i);
        }
    }
    of->raw_stacks[0] = 0;
    return 0;
}

static int
keep_segment(void *context, const ml_segment *segment)
{
    mlab_start *start = context;
    if (ml_grow((void **)&start->segments, &start->segment_capacity,
                start->segment_count + 1, sizeof(*segment)) < 0) {
        return ML_ENOMEM;
    }
    ml_segment *copy = &start->segments[start->segment_count++];
    *copy = *segment;
    copy->stack = 0;
    copy->first_block = start->block_count;
    copy->block_count = 0;
    return 0;
}

static int
keep_block(void *context, const ml_block *block, uint64_t birth)
{
    mlab_start *start = context;
    (void)birth;
    if (block->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    if (ml_grow((void **)&start->blocks, &start->block_capacity, start->block_count + 1,
                sizeof(*block)) < 0) {
        return ML_ENOMEM;
    }
    start->blocks[start->block_count] = *block;
    start->blocks[start->block_count++].stack = 0;
    start->segments[start->segment_count - 1].block_count++;
    return 0;
}

static int
walk(past *of, unsigned device)
{
    mlab_start *start = &of->starts[device];
    ml_replay *replay;
    const ml_analysis *analysis;
    int result = ml_analysis_of(of->whole->recording, device, &analysis);
    if (result == 0) {
        result = ml_analysis_replay(analysis, (size_t)of->positions[device], &replay);
    }
    if (result < 0) {
        return result;
    }
    ml_ledger_visitor visitor = {start, keep_segment, keep_block};
    result = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
    ml_replay_free(replay);
    return result;
}

static int
look_at_past(past *of)
{
    const ml_recording *recording = of->whole->recording;
    int result = invert_stacks(of);
    for (unsigned d = 0; d < recording->device_count && result == 0; d++) {
        result = walk(of, d);
        if (result == 0) {
            result = ml_peak_new_at(recording, d, of->positions[d], &of->there[d]);
        }
    }
    return result;
}

/* ---- What stays of it ---- */

static int
keep_text(const past *of, uint32_t string, uint32_t *kept)
{
    const ml_string *text = &of->whole->recording->strings[string];
    return mlab_add_name(of->live->reader, (const uint8_t *)text->bytes, text->length,
                         kept);
}

static int
keep_frame(const past *of, uint32_t frame, ml_frame *kept)
{
    const ml_frame *from = &of->whole->recording->frames[frame];
    int result = keep_text(of, from->name, &kept->name);
    kept->line = from->line;
    return result < 0 ? result : keep_text(of, from->filename, &kept->filename);
}

/* For a block whose own allocation is dropped: STACK becomes the file's. */
static int
make_prior_block(const past *of, unsigned device, const ml_peak_block *block,
                 follower_prior_block *prior_block, uint32_t *stack)
{
    const ml_events *events = &of->live->reader->recording->devices[device].events;
    *prior_block = (follower_prior_block){.prior_block = {.addr = block->addr,
                                                          .cause = block->cause,
                                                          .verdict = block->verdict}};
    *stack = of->raw_stacks[block->cause.stack];
    *stack = *stack != 0 || block->cause.stack == 0
                 ? *stack
                 : ml_events_stack(events, (size_t)block->event);
    int result = keep_frame(of, block->cause.frame, &prior_block->frame);
    if (result == 0) {
        result = keep_frame(of, block->cause.until, &prior_block->until);
    }
    if (result == 0) {
        result = keep_frame(of, block->cause.model, &prior_block->model);
    }
    return result < 0 ? result
                      : keep_text(of, block->cause.module,
                                  &prior_block->prior_block.cause.module);
}

/* The earlier facts about a block: its prior_block, if any, and its stack. */
static const follower_prior_block *
known_prior_block(const past *of, unsigned device, uint64_t addr, uint32_t *stack)
{
    const follower_prior_blocks *prior_blocks = &of->live->prior_blocks[device];
    const mlab_start *start = &of->live->reader->starts[device];
    size_t at =
        ml_find_address(start->blocks, sizeof(ml_block), start->block_count, addr);
    bool there = at < start->block_count && start->blocks[at].addr == addr;
    *stack = there ? start->blocks[at].stack : 0;
    at = ml_find_address(prior_blocks->items, sizeof(follower_prior_block),
                         prior_blocks->count, addr);
    return at < prior_blocks->count && prior_blocks->items[at].prior_block.addr == addr
               ? &prior_blocks->items[at]
               : NULL;
}

/* Puts the prior blocks of DEVICE into PRIOR_BLOCKS, and their stacks into its new
 * start. */
static int
keep_prior_blocks(past *of, unsigned device, follower_prior_blocks *prior_blocks)
{
    const ml_peak *there = of->there[device];
    mlab_start *start = &of->starts[device];
    int result = 0;
    size_t block = 0;
    for (size_t i = 0; i < there->block_count && result == 0; i++) {
        uint64_t addr = there->blocks[i].addr;
        follower_prior_block prior_block;
        uint32_t stack = 0;
        const follower_prior_block *known = NULL;
        bool before = there->blocks[i].event < 0;
        if (before) {
            known = known_prior_block(of, device, addr, &stack);
        }
        else {
            result =
                make_prior_block(of, device, &there->blocks[i], &prior_block, &stack);
            known = &prior_block;
        }
        while (block < start->block_count && start->blocks[block].addr < addr) {
            block++;
        }
        if (block < start->block_count && start->blocks[block].addr == addr) {
            start->blocks[block].stack = stack;
        }
        if (result == 0 && known != NULL) {
            prior_block = *known;
            result = ml_grow((void **)&prior_blocks->items, &prior_blocks->capacity,
                             prior_blocks->count + 1, sizeof(prior_block));
        }
        if (result == 0 && known != NULL) {
            prior_blocks->items[prior_blocks->count++] = prior_block;
        }
    }
    return result;
}

/* Whether TAG, before the cut, is of a block that is live there. */
static bool
lasts(const past *of, const mlab_tag *tag, uint64_t index)
{
    const ml_peak *there = of->there[tag->device];
    size_t at =
        ml_find_address(there->blocks, sizeof(ml_peak_block), there->block_count,
                        tag->addr == UINT64_MAX ? tag->addr : tag->addr + 1);
    if (at == 0) {
        return false;
    }
    const ml_peak_block *block = &there->blocks[at - 1];
    return tag->addr - block->addr < block->size &&
           (block->event < 0 || (uint64_t)block->event < index);
}

/* Drops tags of dead blocks, and moves the others to the new start. */
static void
keep_tags(past *of, const uint64_t *ordinals, const uint64_t *times)
{
    mlab_reader *reader = of->live->reader;
    size_t count = 0;
    for (size_t i = 0; i < reader->tag_count; i++) {
        mlab_tag tag = reader->tags[i];
        unsigned d = tag.device;
        bool told = d < of->whole->recording->device_count;
        uint64_t cut = reader->ordered ? ordinals[d] : times[d];
        if (told && tag.place <= cut) {
            const ml_device_trace *trace = &reader->recording->devices[d];
            uint64_t index = reader->ordered ? mlab_index_of(reader, d, tag.place)
                                             : ml_device_trace_until(trace, tag.place);
            if (!lasts(of, &tag, index)) {
                continue;
            }
            tag.place = cut;
        }
        reader->tags[count++] = tag;
    }
    reader->tag_count = count;
}

/* Old samples and regions are not shown. */
static void
keep_notes(past *of)
{
    ml_recording *kept = of->live->reader->recording;
    size_t count = 0;
    for (size_t i = 0; i < kept->note_count; i++) {
        uint8_t kind = kept->notes[i].kind;
        bool last = i + 1000 >= kept->note_count;
        if (last ||
            (kind != ML_NOTE_HOST && kind != ML_NOTE_GPU && kind != ML_NOTE_MARK &&
             kind != ML_NOTE_REGION_BEGIN && kind != ML_NOTE_REGION_END)) {
            kept->notes[count++] = kept->notes[i];
        }
    }
    kept->note_count = count;
}

static void
keep_peaks(past *of, unsigned device)
{
    const ml_totals *seen = &of->whole->recording->devices[device].peak;
    ml_totals *most = &of->live->peaks[device];
#define XX(name) most->name = most->name < seen->name ? seen->name : most->name;
    ML_TOTALS(XX)
#undef XX
}

/* Cannot fail from here on. */
static void
forget_past(past *of, follower_prior_blocks *prior_blocks)
{
    ml_follower *live = of->live;
    mlab_reader *reader = live->reader;
    uint64_t ordinals[ML_DEVICE_MAX] = {0};
    uint64_t times[ML_DEVICE_MAX] = {0};
    size_t count = reader->recording->device_count;
    for (unsigned d = 0; d < count; d++) {
        size_t gone = (size_t)of->positions[d];
        times[d] = gone > 0
                       ? ml_events_time(&reader->recording->devices[d].events, gone - 1)
                       : 0;
        ordinals[d] = ordinal_at(reader, d, gone);
    }
    keep_tags(of, ordinals, times);
    keep_notes(of);
    for (unsigned d = 0; d < count; d++) {
        mlab_start *start = &reader->starts[d];
        mlab_start kept = of->starts[d];
        keep_peaks(of, d);
        follower_forget(live, d, (size_t)of->positions[d]);
        kept.head = start->head;
        kept.known = start->known;
        kept.complete = start->complete;
        kept.repeated = start->repeated;
        if (reader->ordered) {
            kept.head.events = ordinals[d];
            live->begun[d] = ordinals[d];
        }
        of->starts[d] = *start; /* the caller frees it */
        *start = kept;
        follower_prior_blocks old = live->prior_blocks[d];
        live->prior_blocks[d] = prior_blocks[d];
        prior_blocks[d] = old;
    }
}

static void
past_fini(past *of, follower_prior_blocks *prior_blocks)
{
    for (unsigned d = 0; d < ML_DEVICE_MAX; d++) {
        ml_peak_free(of->there[d]);
        ml_free(of->starts[d].segments);
        ml_free(of->starts[d].blocks);
        ml_free(prior_blocks[d].items);
    }
    if (of->whole != NULL) {
        mlab_reader_free(of->whole);
    }
    ml_free(of->raw_stacks);
    ml_free(of);
    ml_free(prior_blocks);
}

int
follower_condense(ml_follower *live)
{
    ml_recording *kept = live->reader->recording;
    ml_mlab_info info = {0};
    past *of = ml_alloc_zeroed(1, sizeof(*of));
    follower_prior_blocks *prior_blocks =
        ml_alloc_zeroed(ML_DEVICE_MAX, sizeof(*prior_blocks));
    int result = of == NULL || prior_blocks == NULL ? ML_ENOMEM : 0;
    if (result < 0) {
        ml_free(of);
        ml_free(prior_blocks);
        return result;
    }
    of->live = live;
    if (!live->reader->ordered && kept->device_count > 0) {
        /* In the recording's order. */
        result = ml_unordered_events_sort(kept->devices[0].events.plain,
                                          kept->devices[0].event_count);
    }
    if (result == 0) {
        result = follower_finish(live, &of->whole, &info);
    }
    if (result == 0) {
        choose_moment(of);
        result = look_at_past(of);
    }
    for (unsigned d = 0; result == 0 && d < kept->device_count; d++) {
        result = keep_prior_blocks(of, d, &prior_blocks[d]);
    }
    if (result == 0) {
        forget_past(of, prior_blocks);
    }
    ml_mlab_info_fini(&info);
    past_fini(of, prior_blocks);
    return result;
}
