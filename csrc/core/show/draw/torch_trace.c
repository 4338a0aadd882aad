/* Writes the events of a recording as text.  See torch_trace.h.
 *
 * A letter is released when its block's free completes, or when its segment's last byte
 * goes.  The letter released last is reused first.  Segments from before the first
 * event are seg_N, by their place among those at the end. */
#include "show/draw/torch_trace.h"

#include <string.h>

#include "show/text/markup.h"

#define NO_NAME UINT32_MAX

/* A run of a segment's bytes, from ADDR to END. */
typedef struct range {
    uint64_t addr;
    uint64_t end;
    uint64_t origin; /* where its segment begins */
    size_t segment;  /* seg_N */
    uint32_t name;   /* NO_NAME: it has a number */
} range;

/* The current block at an address. */
typedef struct held {
    uint64_t addr;
    uint64_t size;
    uint32_t name; /* NO_NAME: not allocated in the trace */
} held;

typedef struct torch_trace_work {
    ml_buffer *out;
    range *ranges; /* owned; by address, without overlaps */
    size_t range_count;
    size_t range_capacity;
    uint64_t *left; /* owned; by name, the bytes left of its segment */
    uint32_t name_count;
    size_t left_capacity;
    uint32_t *unused; /* owned; released names */
    size_t unused_count;
    size_t unused_capacity;
    held *blocks; /* owned; by id of ADDRESSES */
    size_t block_capacity;
    ml_intern addresses;
    uint64_t total; /* bytes allocated and not freed by the trace */
    int error;
} torch_trace_work;

/* ---- Names ---- */

static uint32_t
take_name(torch_trace_work *w)
{
    if (w->unused_count > 0) {
        return w->unused[--w->unused_count];
    }
    uint32_t name = w->name_count;
    int error = ml_grow((void **)&w->left, &w->left_capacity, (size_t)name + 1,
                        sizeof(*w->left));
    /* Reserved here, so that a release never fails. */
    error = error < 0 ? error
                      : ml_grow((void **)&w->unused, &w->unused_capacity,
                                (size_t)name + 1, sizeof(*w->unused));
    if (error < 0) {
        w->error = error;
        return NO_NAME;
    }
    w->left[name] = 0;
    w->name_count++;
    return name;
}

static void
give_name(torch_trace_work *w, uint32_t name)
{
    w->unused[w->unused_count++] = name;
}

static void
put_name(torch_trace_work *w, uint32_t name)
{
    char letter = (char)('a' + name % 26);
    ml_buffer_append(w->out, &letter, 1);
    if (name >= 26) {
        ml_markup_unsigned(w->out, name / 26);
    }
}

/* Writes NAME, or the address if there is no name. */
static void
put_name_or_address(torch_trace_work *w, uint32_t name, uint64_t addr)
{
    if (name == NO_NAME) {
        ml_markup_unsigned(w->out, addr);
    }
    else {
        put_name(w, name);
    }
}

/* ---- Segments ---- */

/* The first range that ends after ADDR. */
static size_t
range_behind(const torch_trace_work *w, uint64_t addr)
{
    size_t low;
    ML_SEARCH(low, w->range_count, w->ranges[low].end <= addr);
    return low;
}

static const range *
range_at(const torch_trace_work *w, uint64_t addr)
{
    size_t at = range_behind(w, addr);
    return at < w->range_count && w->ranges[at].addr <= addr ? &w->ranges[at] : NULL;
}

/* Replaces the OLD ranges from AT on by COUNT ranges. */
static void
replace(torch_trace_work *w, size_t at, size_t old, const range *ranges, size_t count)
{
    size_t total = w->range_count - old + count;
    int error =
        ml_grow((void **)&w->ranges, &w->range_capacity, total + 1, sizeof(*w->ranges));
    if (error < 0) {
        w->error = error;
        return;
    }
    memmove(&w->ranges[at + count], &w->ranges[at + old],
            (w->range_count - at - old) * sizeof(*w->ranges));
    for (size_t i = 0; i < count; i++) {
        w->ranges[at + i] = ranges[i];
    }
    w->range_count = total;
}

/* Removes SIZE bytes from ADDR on from their segments. */
static void
cut(torch_trace_work *w, uint64_t addr, uint64_t size)
{
    uint64_t end = ml_markup_add(addr, size);
    size_t at = range_behind(w, addr);
    while (w->error == 0 && at < w->range_count && w->ranges[at].addr < end) {
        range r = w->ranges[at];
        range kept[2];
        size_t count = 0;
        uint64_t low = r.addr;
        uint64_t high = r.end;
        if (r.addr < addr) {
            low = addr;
            kept[count] = r;
            kept[count++].end = addr;
        }
        if (r.end > end) {
            high = end;
            kept[count] = r;
            kept[count++].addr = end;
        }
        replace(w, at, 1, kept, count);
        if (r.name != NO_NAME) {
            w->left[r.name] -= high - low;
            if (w->left[r.name] == 0) {
                give_name(w, r.name);
            }
        }
        at += count;
    }
}

static void
add_range(torch_trace_work *w, range r)
{
    if (r.end > r.addr) {
        replace(w, range_behind(w, r.addr), 0, &r, 1);
    }
}

/* Adds the final segments that no event made. */
static void
begin_ranges(torch_trace_work *w, const ml_device_trace *trace, size_t first)
{
    w->range_count = 0;
    for (size_t i = 0; i < trace->segment_count; i++) {
        const ml_segment *s = &trace->segments[i];
        cut(w, s->addr, s->total);
        add_range(w, (range){.addr = s->addr,
                             .end = ml_markup_add(s->addr, s->total),
                             .origin = s->addr,
                             .segment = first + i,
                             .name = NO_NAME});
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (event->action == ML_ACTION_SEGMENT_ALLOC ||
            event->action == ML_ACTION_SEGMENT_MAP) {
            cut(w, event->addr, event->size);
        }
    }
}

/* ---- Blocks ---- */

typedef struct sought_name {
    const torch_trace_work *w;
    uint64_t addr;
} sought_name;

static bool
is_at(const void *context, uint32_t id)
{
    const sought_name *asked = context;
    return asked->w->blocks[id].addr == asked->addr;
}

/* The entry for ADDR; NULL: no block was seen there, or no memory. */
static held *
block_at(torch_trace_work *w, uint64_t addr, bool add)
{
    sought_name asked = {w, addr};
    uint64_t hash = ml_hash_u64(addr);
    uint32_t id;
    if (ml_intern_find(&w->addresses, hash, is_at, &asked, &id)) {
        return &w->blocks[id];
    }
    if (!add) {
        return NULL;
    }
    id = (uint32_t)w->addresses.count;
    w->error = ml_grow((void **)&w->blocks, &w->block_capacity, (size_t)id + 1,
                       sizeof(*w->blocks));
    if (w->error == 0) {
        w->blocks[id] = (held){.addr = addr, .name = NO_NAME};
        w->error = ml_intern_add(&w->addresses, hash);
    }
    return w->error == 0 ? &w->blocks[id] : NULL;
}

static void
end_block(torch_trace_work *w, held *block)
{
    if (block != NULL && block->name != NO_NAME) {
        w->total -= block->size;
        give_name(w, block->name);
        block->name = NO_NAME;
    }
}

/* ---- Lines ---- */

static void
put_size(torch_trace_work *w, const char *before, uint64_t bytes, const char *behind)
{
    ml_markup(w->out, before);
    ml_markup_torch_size(w->out, bytes);
    ml_markup(w->out, behind);
}

static void
put_alloc(torch_trace_work *w, const ml_event *event)
{
    held *block = block_at(w, event->addr, true);
    if (block == NULL) {
        return;
    }
    /* The event of the old block's free is missing. */
    end_block(w, block);
    block->size = event->size;
    block->name = take_name(w);
    if (block->name == NO_NAME) {
        return;
    }
    w->total += event->size;
    put_name(w, block->name);
    const range *r = range_at(w, event->addr);
    if (r == NULL) {
        ml_markup(w->out, " = MEM[");
        ml_markup_unsigned(w->out, event->addr);
    }
    else {
        ml_markup(w->out, r->name == NO_NAME ? " = seg_" : " = ");
        if (r->name == NO_NAME) {
            ml_markup_unsigned(w->out, r->segment);
        }
        else {
            put_name(w, r->name);
        }
        ml_markup(w->out, "[");
        ml_markup_unsigned(w->out, event->addr - r->origin);
    }
    put_size(w, ":", event->size, "]\n");
}

static void
put_free(torch_trace_work *w, const ml_event *event)
{
    bool completed = event->action == ML_ACTION_FREE_COMPLETED;
    held *block = block_at(w, event->addr, false);
    ml_markup(w->out, completed ? "# free completed for " : "del ");
    put_name_or_address(w, block == NULL ? NO_NAME : block->name, event->addr);
    put_size(w, completed ? " " : " # ", event->size, "\n");
    if (completed) {
        end_block(w, block);
    }
}

static void
put_segment(torch_trace_work *w, const ml_event *event)
{
    bool mapped = event->action == ML_ACTION_SEGMENT_MAP;
    cut(w, event->addr, event->size);
    uint32_t name = take_name(w);
    if (w->error < 0 || name == NO_NAME) {
        return;
    }
    put_name(w, name);
    ml_markup(w->out, mapped ? " = cuMemMap(" : " = cudaMalloc(");
    ml_markup_unsigned(w->out, event->addr);
    put_size(w, ", ", event->size, ")\n");
    uint64_t end = ml_markup_add(event->addr, event->size);
    w->left[name] = end - event->addr;
    add_range(
        w,
        (range){.addr = event->addr, .end = end, .origin = event->addr, .name = name});
    if (event->size == 0) {
        give_name(w, name);
    }
}

static void
put_segment_end(torch_trace_work *w, const ml_event *event)
{
    bool mapped = event->action == ML_ACTION_SEGMENT_UNMAP;
    const range *r = range_at(w, event->addr);
    uint32_t name = r != NULL && r->addr == event->addr ? r->name : NO_NAME;
    ml_markup(w->out, mapped ? "cuMemUnmap(" : "cudaFree(");
    put_name_or_address(w, name, event->addr);
    put_size(w, ") # ", event->size, "\n");
    cut(w, event->addr, event->size);
}

static void
put_event(torch_trace_work *w, const ml_event *event)
{
    switch (event->action) {
    case ML_ACTION_ALLOC:
        put_alloc(w, event);
        break;
    case ML_ACTION_FREE_REQUESTED:
    case ML_ACTION_FREE_COMPLETED:
        put_free(w, event);
        break;
    case ML_ACTION_SEGMENT_ALLOC:
    case ML_ACTION_SEGMENT_MAP:
        put_segment(w, event);
        break;
    case ML_ACTION_SEGMENT_FREE:
    case ML_ACTION_SEGMENT_UNMAP:
        put_segment_end(w, event);
        break;
    case ML_ACTION_OOM:
        put_size(w, "raise OutOfMemoryError # ", event->size, " requested, ");
        put_size(w, "", event->addr, " free in CUDA\n");
        break;
    default:
        ml_markup(w->out, "# ");
        ml_markup(w->out, ml_action_text(event->action));
        ml_markup(w->out, "\n");
        break;
    }
}

static void
work_fini(torch_trace_work *w)
{
    ml_free(w->ranges);
    ml_free(w->left);
    ml_free(w->unused);
    ml_free(w->blocks);
    ml_intern_fini(&w->addresses);
}

/* FIRST: number of segments in earlier devices. */
static int
put_device(const ml_device_trace *trace, size_t device, size_t first, ml_buffer *out)
{
    torch_trace_work w = {.out = out};
    ml_markup(out, out->length > 0 ? "\nDevice " : "Device ");
    ml_markup_unsigned(out, device);
    ml_markup(out, " ----------------\n");
    ml_markup_unsigned(out, trace->event_count);
    ml_markup(out, " entries\n");
    begin_ranges(&w, trace, first);
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = 0; i < trace->event_count && w.error == 0; i++) {
        put_event(&w, ml_event_cursor_at(&cursor, i));
    }
    put_size(&w, "TOTAL MEM: ", w.total, "");
    work_fini(&w);
    return w.error < 0 ? w.error : out->error;
}

int
ml_torch_trace(const ml_recording *recording, ml_buffer *out)
{
    size_t first = 0;
    int error = 0;
    for (size_t d = 0; d < recording->device_count && error == 0; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        if (trace->event_count > 0) {
            error = put_device(trace, d, first, out);
        }
        first += trace->segment_count;
    }
    return error;
}
