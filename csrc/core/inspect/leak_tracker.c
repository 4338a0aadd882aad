/* Follows the blocks that each step leaves behind.  See leak_tracker.h. */
#include "inspect/leak_tracker.h"

#include <string.h>

#include "base/base.h"
#include "ledger/replay/unordered_events.h"
#include "stacks/id_remap.h"

/* ---- Blocks by address ---- */

static size_t
home(const ml_survivor_set *set, uint64_t addr)
{
    return (size_t)ml_hash_u64(addr) & (set->slot_count - 1);
}

/* The slot of ADDR, or the free one for it. */
static size_t
find_slot(const ml_survivor_set *set, uint64_t addr)
{
    size_t slot = home(set, addr);
    while (set->slots[slot] != 0 && set->items[set->slots[slot] - 1].addr != addr) {
        slot = (slot + 1) & (set->slot_count - 1);
    }
    return slot;
}

static int
grow_slots(ml_survivor_set *set)
{
    if (set->slot_count > 2 * set->count + 2) {
        return 0;
    }
    size_t wanted = set->slot_count == 0 ? 64 : 2 * set->slot_count;
    uint32_t *slots = ml_alloc_zeroed(wanted, sizeof(*slots));
    if (slots == NULL) {
        return ML_ENOMEM;
    }
    ml_free(set->slots);
    set->slots = slots;
    set->slot_count = wanted;
    for (size_t i = 0; i < set->count; i++) {
        slots[find_slot(set, set->items[i].addr)] = (uint32_t)i + 1;
    }
    return 0;
}

/* Moves entries after SLOT up, so that no search ends too early. */
static void
close_slot(ml_survivor_set *set, size_t slot)
{
    size_t mask = set->slot_count - 1;
    set->slots[slot] = 0;
    for (size_t at = (slot + 1) & mask; set->slots[at] != 0; at = (at + 1) & mask) {
        size_t from = home(set, set->items[set->slots[at] - 1].addr);
        if (((at - from) & mask) >= ((at - slot) & mask)) {
            set->slots[slot] = set->slots[at];
            set->slots[at] = 0;
            slot = at;
        }
    }
}

/* Forgets the block at ADDR from before PLACE; false: there is none. */
static bool
forget_block(ml_survivor_set *set, uint64_t addr, uint64_t place)
{
    if (set->count == 0) {
        return false;
    }
    size_t slot = find_slot(set, addr);
    if (set->slots[slot] == 0 || set->items[set->slots[slot] - 1].place > place) {
        return false;
    }
    size_t index = set->slots[slot] - 1;
    set->alive[set->items[index].step - set->first_step]--;
    close_slot(set, slot);
    size_t last = --set->count;
    if (index != last) {
        set->slots[find_slot(set, set->items[last].addr)] = (uint32_t)index + 1;
        set->items[index] = set->items[last];
    }
    return true;
}

static int
add_block(ml_survivor_set *set, const ml_survivor *block)
{
    forget_block(set, block->addr, UINT64_MAX);
    if (ml_grow((void **)&set->items, &set->capacity, set->count + 1,
                sizeof(*set->items)) < 0 ||
        grow_slots(set) < 0) {
        return ML_ENOMEM;
    }
    set->items[set->count++] = *block;
    set->slots[find_slot(set, block->addr)] = (uint32_t)set->count;
    set->alive[block->step - set->first_step]++;
    return 0;
}

static void
forget_all(ml_survivor_set *set, uint64_t step)
{
    if (set->slot_count > 0) {
        memset(set->slots, 0, set->slot_count * sizeof(*set->slots));
    }
    set->count = 0;
    set->orphan_count = 0;
    set->first_step = step;
    set->step_count = 0;
}

/* Forgets everything before the last step without survivors. */
static void
forget_before_gap(ml_survivor_set *set)
{
    size_t gap = set->step_count;
    while (gap > 0 && set->alive[gap - 1] != 0) {
        gap--;
    }
    if (gap == 0) {
        return;
    }
    uint64_t first = set->first_step + gap;
    for (size_t i = set->count; i-- > 0;) {
        if (set->items[i].step < first) {
            forget_block(set, set->items[i].addr, UINT64_MAX);
        }
    }
    set->step_count -= gap;
    memmove(set->alive, set->alive + gap, set->step_count * sizeof(*set->alive));
    set->first_step = first;
}

/* ---- The events of a step ---- */

static unsigned
lane_count(const ml_leak_tracker *s)
{
    return s->window->feed->logs != NULL ? 1 : ML_FEED_LANES;
}

static ml_lane *
lane_of(const ml_leak_tracker *s, int device, unsigned lane)
{
    const ml_feed *feed = s->window->feed;
    return feed->logs != NULL ? &feed->logs[device].lane : &feed->threads[lane].lane;
}

/* The index of DEVICE's lane, or of the unordered source, in the ends of a step. */
static size_t
place_of(const ml_leak_tracker *s, int device, unsigned lane)
{
    return s->window->feed->logs != NULL ? (size_t)device : lane;
}

/* Appends the kept events from FROM up to TO.  *WHOLE is false if some are missing. */
static int
copy_events(const ml_leak_tracker *s, int device, const uint64_t *from,
            const uint64_t *to, ml_event_list *list, bool *whole)
{
    list->count = 0;
    for (unsigned i = 0; i < lane_count(s); i++) {
        ml_lane *lane = lane_of(s, device, i);
        size_t place = place_of(s, device, i);
        uint64_t room = to[place] - from[place];
        if (room == 0) {
            continue;
        }
        if (ml_grow((void **)&list->items, &list->capacity, list->count + (size_t)room,
                    sizeof(ml_event)) < 0) {
            return ML_ENOMEM;
        }
        size_t copied =
            ml_lane_copy(lane, from[place], to[place], room, list->items + list->count);
        *whole = *whole && copied == room;
        list->count += copied;
    }
    return 0;
}

int
ml_leak_tracker_recall(ml_leak_tracker *s, int device, uint64_t step,
                       ml_event_list *list)
{
    uint64_t oldest = s->steps > ML_RECALLED_STEPS ? s->steps - ML_RECALLED_STEPS : 0;
    step = step < oldest ? oldest : step;
    const uint64_t *from = s->ends[step % ML_RECALLED_STEPS];
    bool whole = true;
    int result = copy_events(s, device, from, s->now, list, &whole);
    list->first = s->now[place_of(s, device, 0)] - list->count;
    if (result == 0 && !s->window->feed->source->ordered) {
        result = ml_unordered_events_sort(list->items, list->count);
    }
    return result;
}

/* A free without a known allocation may precede the report of another thread's
 * allocation: it waits for the next step's events. */
static int
keep_orphan(ml_survivor_set *set, const ml_event *event)
{
    if (ml_grow((void **)&set->orphans, &set->orphan_capacity, set->orphan_count + 1,
                sizeof(ml_event)) < 0) {
        return ML_ENOMEM;
    }
    set->orphans[set->orphan_count++] = *event;
    return 0;
}

static int
add_orphans(ml_survivor_set *set, ml_event_list *list)
{
    size_t total = list->count + set->orphan_count;
    if (ml_grow((void **)&list->items, &list->capacity, total, sizeof(ml_event)) < 0) {
        return ML_ENOMEM;
    }
    if (set->orphan_count > 0) {
        memcpy(list->items + list->count, set->orphans,
               set->orphan_count * sizeof(ml_event));
    }
    list->count = total;
    set->orphan_count = 0;
    return ml_unordered_events_sort(list->items, list->count);
}

static int
apply_event(ml_leak_tracker *s, ml_survivor_set *set, const ml_event *event,
            uint64_t place)
{
    bool ordered = s->window->feed->source->ordered;
    place = ordered ? place : event->time;
    if (ml_action_frees_block(event->action)) {
        /* A waiting free may be older than the current block at its address. */
        bool known = forget_block(set, event->addr, place);
        bool waits = !known && !ordered && event->time > s->last_time;
        return waits ? keep_orphan(set, event) : 0;
    }
    if (event->action != ML_ACTION_ALLOC) {
        return 0;
    }
    ml_survivor block = {
        .addr = event->addr,
        .bytes = event->block_bytes != 0 ? event->block_bytes : event->size,
        .place = place,
        .step = s->steps,
        .stack = event->stack,
    };
    return add_block(set, &block);
}

/* Follows DEVICE through the step that ends. */
static int
follow_step(ml_leak_tracker *s, int device, const uint64_t *from, bool *whole)
{
    ml_survivor_set *set = &s->sets[device];
    ml_event_list *list = &s->list;
    bool ordered = s->window->feed->source->ordered;
    if (ml_grow((void **)&set->alive, &set->alive_capacity, set->step_count + 1,
                sizeof(*set->alive)) < 0) {
        return ML_ENOMEM;
    }
    set->alive[set->step_count++] = 0;
    int result = copy_events(s, device, from, s->now, list, whole);
    uint64_t first = s->now[place_of(s, device, 0)] - list->count;
    if (result == 0 && !ordered) {
        result = add_orphans(set, list);
    }
    for (size_t i = 0; i < list->count && result == 0; i++) {
        result = apply_event(s, set, &list->items[i], first + i);
    }
    if (result == 0 && !ordered && list->count > 0) {
        s->last_time = list->items[list->count - 1].time;
    }
    forget_before_gap(set);
    return result;
}

/* ---- Steps ---- */

static void
begin_again(ml_leak_tracker *s)
{
    s->steps = 0;
    s->previous_count = 0;
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        forget_all(&s->sets[i], 0);
    }
}

static void
read_ends(const ml_leak_tracker *s, uint64_t *ends)
{
    const ml_feed *feed = s->window->feed;
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ends[i] = ml_lane_end(feed->logs != NULL ? &feed->logs[i].lane
                                                 : &feed->threads[i].lane);
    }
}

/* Events of all devices that were never recorded. */
static uint64_t
count_dropped(const ml_leak_tracker *s)
{
    const ml_feed *feed = s->window->feed;
    uint64_t dropped = atomic_load(&feed->dropped);
    for (int i = 0; feed->logs != NULL && i < ML_DEVICE_MAX; i++) {
        dropped += atomic_load(&feed->logs[i].dropped);
    }
    return dropped;
}

int
ml_leak_tracker_follow(ml_leak_tracker *s, bool *lost)
{
    ml_window *window = s->window;
    if (!s->begun) {
        s->begun = true;
        memcpy(s->now, window->marks, sizeof(s->now));
        s->dropped = count_dropped(s);
    }
    uint64_t *from = s->ends[s->steps % ML_RECALLED_STEPS];
    memcpy(from, s->now, sizeof(s->now));
    read_ends(s, s->now);
    uint64_t dropped = count_dropped(s);
    bool whole = dropped == s->dropped;
    s->dropped = dropped;
    int devices = window->feed->logs != NULL ? ML_DEVICE_MAX : 1;
    int result = 0;
    for (int i = 0; i < devices && result == 0; i++) {
        result = follow_step(s, i, from, &whole);
    }
    if (result < 0 || !whole) {
        /* Lost events may include frees: no block is known to live any more. */
        begin_again(s);
        *lost = !whole;
        return result;
    }
    s->steps++;
    return 0;
}

int
ml_leak_tracker_new(ml_window *window, ml_leak_tracker **out)
{
    ml_leak_tracker *s = ml_alloc_zeroed(1, sizeof(*s));
    int result = s != NULL ? ml_recording_new(&s->known) : ML_ENOMEM;
    if (result < 0) {
        ml_free(s);
        return result;
    }
    s->window = window;
    *out = s;
    return 0;
}

void
ml_leak_tracker_free(ml_leak_tracker *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_free(s->sets[i].items);
        ml_free(s->sets[i].slots);
        ml_free(s->sets[i].alive);
        ml_free(s->sets[i].orphans);
    }
    ml_free(s->list.items);
    ml_free(s->previous);
    ml_recording_free(s->known);
    ml_free(s);
}
