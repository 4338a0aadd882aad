/* Reads the segments and blocks of a snapshot. */
#include "file/snapshot/snapshot_memory.h"

#include <stdlib.h>

typedef struct ml_pending {
    ml_segment segment;
    const ml_array *blocks; /* borrowed from the tree; NULL: none given */
    size_t index;           /* in the file's list */
    uint32_t device;
    uint32_t given; /* bits of GIVEN_*: readable members */
    bool left_out;
} ml_pending;

enum {
    GIVEN_ALLOCATED = 1,
    GIVEN_ACTIVE = 2,
    GIVEN_REQUESTED = 4,
    GIVEN_ADDRESS = 8,
    GIVEN_TOTAL = 16,
    GIVEN_DEVICE = 32 /* or a snapshot without one, as memlab's */
};

/* ---- Blocks ---- */

static uint8_t
read_state(ml_reader *r, ml_value value)
{
    switch (ml_snapshot_tables_word(&r->tables, value)) {
    case ML_WORD_INACTIVE:
        return ML_BLOCK_INACTIVE;
    case ML_WORD_ACTIVE_ALLOCATED:
        return ML_BLOCK_ALLOCATED;
    case ML_WORD_ACTIVE_PENDING_FREE:
    case ML_WORD_ACTIVE_AWAITING_FREE:
        return ML_BLOCK_PENDING_FREE;
    default:
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_BLOCK_STATE);
        return ML_BLOCK_INACTIVE;
    }
}

/* A block's facts, and which of its members could be read. */
typedef struct block_facts {
    ml_block block;
    bool placed;
    bool sized;
    bool asked; /* its requested size is known */
} block_facts;

/* torch 2.0 kept requests and frames in a list of former owners, newest first. */
static int
read_history(ml_reader *r, ml_value value, block_facts *facts)
{
    const ml_array *list = ml_reader_list(r, value, ML_UNREAD_BLOCK_HISTORY);
    if (list == NULL || list->count == 0) {
        return 0;
    }
    int error = 0;
    const ml_array *dict = ml_reader_dict(r, list->items[0], ML_UNREAD_BLOCK_HISTORY);
    for (uint32_t i = 0; dict != NULL && error == 0 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        switch (ml_snapshot_tables_word(&r->tables, dict->items[i])) {
        case ML_WORD_REAL_SIZE:
            facts->asked = ml_reader_natural(r, item, ML_UNREAD_BLOCK_REQUESTED_SIZE,
                                             &facts->block.requested);
            break;
        case ML_WORD_FRAMES:
            error = ml_snapshot_tables_stack(&r->tables, item, ML_UNREAD_BLOCK_FRAMES,
                                             &facts->block.stack);
            break;
        default:
            break;
        }
    }
    return error;
}

static int
read_block_field(ml_reader *r, unsigned word, ml_value value, block_facts *facts)
{
    ml_block *block = &facts->block;
    switch (word) {
    case ML_WORD_ADDRESS:
        facts->placed =
            ml_reader_address(r, value, ML_UNREAD_BLOCK_ADDRESS, &block->addr);
        return 0;
    case ML_WORD_SIZE:
        facts->sized = ml_reader_natural(r, value, ML_UNREAD_BLOCK_SIZE, &block->size);
        return 0;
    case ML_WORD_REQUESTED_SIZE:
        facts->asked = ml_reader_natural(r, value, ML_UNREAD_BLOCK_REQUESTED_SIZE,
                                         &block->requested);
        return 0;
    case ML_WORD_STATE:
        r->tables.given[ML_UNREAD_BLOCK_STATE]++;
        block->state = read_state(r, value);
        return 0;
    case ML_WORD_FRAMES:
        return ml_snapshot_tables_stack(&r->tables, value, ML_UNREAD_BLOCK_FRAMES,
                                        &block->stack);
    case ML_WORD_HISTORY:
        return read_history(r, value, facts);
    default:
        return 0;
    }
}

static int
read_block(ml_reader *r, const ml_array *dict, block_facts *facts)
{
    int error = 0;
    *facts = (block_facts){0};
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_snapshot_tables_word(&r->tables, dict->items[i]);
        error = read_block_field(r, word, dict->items[i + 1], facts);
    }
    return error;
}

/* The start of VALUE, a block; true if the block tells its address, *SIZED if it tells
 * its size. */
static bool
look_at_block(ml_reader *r, ml_value value, uint64_t *addr, uint64_t *size, bool *sized)
{
    bool placed = false;
    *sized = false;
    if (ml_value_is(value, ML_VALUE_DICT)) {
        const ml_array *dict = ml_value_as_array(value);
        for (uint32_t i = 0; i < dict->count; i += 2) {
            unsigned word = ml_snapshot_tables_word(&r->tables, dict->items[i]);
            if (word == ML_WORD_ADDRESS) {
                placed = ml_value_address(dict->items[i + 1], addr);
            }
            else if (word == ML_WORD_SIZE) {
                *sized = ml_value_natural(dict->items[i + 1], size);
            }
        }
    }
    return placed;
}

/* Whether the block at INDEX is at ADDR, by the next block or the segment's END.  A
 * block without a size of its own has all the rest. */
static bool
fits_behind(ml_reader *r, const ml_pending *from, size_t index, uint64_t addr,
            const block_facts *facts, uint64_t end)
{
    uint64_t next = end, size = 0;
    bool sized;
    if (index + 1 < from->blocks->count &&
        !look_at_block(r, from->blocks->items[index + 1], &next, &size, &sized)) {
        return false;
    }
    return addr <= next && next <= end && facts->sized &&
           facts->block.size == next - addr;
}

/* Places the block at INDEX of a segment that ends at END.  torch's blocks follow one
 * another, so neighbours supply missing values.  LOW is the end of the block before;
 * BEFORE is that block, or NULL. */
static void
place_block(ml_reader *r, const ml_pending *from, size_t index, block_facts *facts,
            uint64_t low, uint64_t end, ml_block *before)
{
    ml_block *block = &facts->block;
    bool fits = facts->placed && block->addr >= from->segment.addr &&
                block->addr <= end && (before == NULL || block->addr > before->addr);
    if (fits && block->addr < low) {
        fits = fits_behind(r, from, index, block->addr, facts, end);
        if (fits) {
            ml_snapshot_tables_lose(&r->tables,
                                    ML_UNREAD_BLOCK_SIZE); /* of the one before */
            before->size = block->addr - before->addr;
        }
    }
    else if (fits && block->addr > low) {
        /* A gap, unless the block begins where the one before ends. */
        fits = !fits_behind(r, from, index, low, facts, end) ||
               (facts->sized && block->size == 0);
    }
    if (facts->placed && !fits) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_BLOCK_ADDRESS);
    }
    if (!fits) {
        block->addr = low;
    }
    uint64_t next = end, size = 0;
    bool sized;
    if (facts->sized && block->size <= end - block->addr) {
        return;
    }
    if (facts->sized) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_BLOCK_SIZE);
    }
    if (index + 1 < from->blocks->count) {
        look_at_block(r, from->blocks->items[index + 1], &next, &size, &sized);
    }
    next = next >= block->addr && next <= end ? next : end;
    block->size = next - block->addr;
}

static void
check_request(ml_reader *r, block_facts *facts)
{
    ml_block *block = &facts->block;
    bool used = block->state != ML_BLOCK_INACTIVE;
    if (facts->asked && used && block->requested > block->size) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_BLOCK_REQUESTED_SIZE);
        facts->asked = false;
    }
    /* torch 2.0 does not know the request of a block without frames; then no byte
     * counts as rounding. */
    if (!facts->asked && used && r->tables.given[ML_UNREAD_BLOCK_REQUESTED_SIZE] != 0) {
        block->requested = block->size;
    }
}

static void
complete_totals(ml_segment *segment, const ml_block *blocks, uint32_t given)
{
    ml_segment sums = {0};
    for (size_t i = 0; i < segment->block_count; i++) {
        if (blocks[i].state != ML_BLOCK_INACTIVE) {
            bool allocated = blocks[i].state == ML_BLOCK_ALLOCATED;
            sums.active += blocks[i].size;
            sums.requested += blocks[i].requested;
            sums.allocated += allocated ? blocks[i].size : 0;
        }
    }
    if ((given & GIVEN_ALLOCATED) == 0) {
        segment->allocated = sums.allocated;
    }
    if ((given & GIVEN_ACTIVE) == 0) {
        segment->active = sums.active;
    }
    if ((given & GIVEN_REQUESTED) == 0) {
        segment->requested = sums.requested;
    }
}

static int
read_blocks(ml_reader *r, const ml_pending *from, ml_device_trace *device)
{
    ml_segment *segment = &device->segments[device->segment_count];
    *segment = from->segment;
    segment->first_block = device->block_count;
    ml_block *blocks =
        device->blocks != NULL ? device->blocks + device->block_count : NULL;
    uint64_t low = segment->addr;
    uint64_t end = segment->addr + segment->total;
    for (uint32_t i = 0; from->blocks != NULL && i < from->blocks->count; i++) {
        const ml_array *dict =
            ml_reader_dict(r, from->blocks->items[i], ML_UNREAD_BLOCK);
        if (dict == NULL) {
            continue;
        }
        block_facts facts;
        int error = read_block(r, dict, &facts);
        if (error != 0) {
            return error;
        }
        ml_block *before =
            segment->block_count != 0 ? &blocks[segment->block_count - 1] : NULL;
        place_block(r, from, i, &facts, low, end, before);
        check_request(r, &facts);
        blocks[segment->block_count++] = facts.block;
        low = facts.block.addr + facts.block.size;
    }
    complete_totals(segment, blocks, from->given);
    device->block_count += segment->block_count;
    device->segment_count++;
    return 0;
}

/* ---- Segments ---- */

static bool
read_device(ml_reader *r, ml_value value, uint32_t *out)
{
    uint64_t device = 0;
    bool readable =
        ml_value_natural(value, &device) && device < ML_RECORDING_DEVICES_MAX;
    *out = (uint32_t)device;
    return ml_snapshot_tables_give(&r->tables, ML_UNREAD_SEGMENT_DEVICE, readable);
}

static void
note_given(ml_pending *into, uint32_t bit, bool readable)
{
    into->given = readable ? into->given | bit : into->given & ~bit;
}

static int
read_segment_field(ml_reader *r, unsigned word, ml_value value, ml_pending *into)
{
    ml_segment *segment = &into->segment;
    unsigned kind;
    switch (word) {
#define NUMBER(name, field) \
    case ML_WORD_##name##_SIZE: \
        note_given(into, GIVEN_##name, \
                   ml_reader_natural(r, value, ML_UNREAD_SEGMENT_##name##_SIZE, \
                                     &segment->field)); \
        return 0;
        NUMBER(TOTAL, total)
        NUMBER(ALLOCATED, allocated)
        NUMBER(ACTIVE, active)
        NUMBER(REQUESTED, requested)
#undef NUMBER
    case ML_WORD_DEVICE:
        note_given(into, GIVEN_DEVICE, read_device(r, value, &into->device));
        return 0;
    case ML_WORD_ADDRESS:
        note_given(
            into, GIVEN_ADDRESS,
            ml_reader_address(r, value, ML_UNREAD_SEGMENT_ADDRESS, &segment->addr));
        return 0;
    case ML_WORD_STREAM:
        ml_reader_address(r, value, ML_UNREAD_SEGMENT_STREAM, &segment->stream);
        return 0;
    case ML_WORD_SEGMENT_TYPE:
        kind = ml_snapshot_tables_word(&r->tables, value);
        segment->small = kind == ML_WORD_SMALL;
        ml_snapshot_tables_give(&r->tables, ML_UNREAD_SEGMENT_TYPE,
                                kind == ML_WORD_SMALL || kind == ML_WORD_LARGE);
        return 0;
    case ML_WORD_SEGMENT_POOL_ID:
        ml_reader_pool(r, value, ML_UNREAD_SEGMENT_POOL, segment->pool);
        return 0;
    case ML_WORD_IS_EXPANDABLE:
        segment->expandable = value.bits == ML_VALUE_OF_TRUE.bits;
        ml_snapshot_tables_give(&r->tables, ML_UNREAD_SEGMENT_EXPANDABLE,
                                ml_value_is(value, ML_VALUE_BOOL));
        return 0;
    case ML_WORD_FRAMES:
        return ml_snapshot_tables_stack(&r->tables, value, ML_UNREAD_SEGMENT_FRAMES,
                                        &segment->stack);
    case ML_WORD_BLOCKS:
        into->blocks = ml_reader_list(r, value, ML_UNREAD_SEGMENT_BLOCKS);
        return 0;
    default:
        return 0;
    }
}

/* The start of the blocks of INTO; true if they follow one another.  *PLACES of them
 * tell their own address. */
static bool
look_at_blocks(ml_reader *r, const ml_pending *into, uint64_t *addr, uint64_t *total,
               size_t *places)
{
    uint64_t first = 0, sum = 0;
    *places = 0;
    for (uint32_t i = 0; into->blocks != NULL && i < into->blocks->count; i++) {
        uint64_t at = 0, size = 0;
        bool sized;
        if (look_at_block(r, into->blocks->items[i], &at, &size, &sized)) {
            if (*places != 0 && at != first + sum) {
                return false;
            }
            first = *places == 0 ? at - sum : first;
            ++*places;
        }
        if (!sized || size > ML_SIZE_MOST - sum) {
            return false;
        }
        sum += size;
    }
    *addr = first;
    *total = sum;
    return into->blocks != NULL && into->blocks->count != 0;
}

/* Chooses between two sizes of a segment: torch requests multiples of 2 MiB, and the
 * larger size could overlap whole segments. */
static bool
is_likelier(uint64_t size, uint64_t than)
{
    const uint64_t unit = (uint64_t)2 << 20;
    bool whole = size % unit == 0;
    return whole == (than % unit == 0) ? size < than : whole;
}

/* If a segment does not tell a valid place, its blocks do. */
static void
place_segment(ml_reader *r, ml_pending *into)
{
    ml_segment *segment = &into->segment;
    uint64_t addr = 0, total = 0;
    size_t places = 0;
    bool tiled = look_at_blocks(r, into, &addr, &total, &places);
    bool wrong = (into->given & GIVEN_ADDRESS) != 0 && places > 1 && tiled &&
                 addr != segment->addr;
    if (wrong) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENT_ADDRESS);
        into->given &= ~(uint32_t)GIVEN_ADDRESS;
    }
    if ((into->given & GIVEN_ADDRESS) == 0 && tiled && places > 0) {
        segment->addr = addr;
        into->given |= GIVEN_ADDRESS;
    }
    wrong = segment->total > UINT64_MAX - segment->addr ||
            (tiled && is_likelier(total, segment->total));
    if ((into->given & GIVEN_TOTAL) != 0 && wrong) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENT_TOTAL_SIZE);
        into->given &= ~(uint32_t)GIVEN_TOTAL;
    }
    if ((into->given & GIVEN_TOTAL) == 0 && tiled &&
        total <= UINT64_MAX - segment->addr) {
        segment->total = total;
        into->given |= GIVEN_TOTAL;
    }
}

static int
read_segment(ml_reader *r, ml_value value, ml_pending *into)
{
    const ml_array *dict = ml_reader_dict(r, value, ML_UNREAD_SEGMENT);
    int error = 0;
    into->given = GIVEN_DEVICE;
    for (uint32_t i = 0; dict != NULL && error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_snapshot_tables_word(&r->tables, dict->items[i]);
        error = read_segment_field(r, word, dict->items[i + 1], into);
    }
    const uint32_t needed = GIVEN_ADDRESS | GIVEN_TOTAL | GIVEN_DEVICE;
    place_segment(r, into);
    into->left_out = (into->given & needed) != needed;
    if (into->left_out) {
        return error;
    }
    ml_segment *segment = &into->segment;
    if ((into->given & GIVEN_ALLOCATED) != 0 && segment->allocated > segment->total) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENT_ALLOCATED_SIZE);
        into->given &= ~(uint32_t)GIVEN_ALLOCATED;
    }
    if ((into->given & GIVEN_ACTIVE) != 0 && segment->active > segment->total) {
        ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENT_ACTIVE_SIZE);
        into->given &= ~(uint32_t)GIVEN_ACTIVE;
    }
    ml_reader_need_devices(r, (size_t)into->device + 1);
    return error;
}

static int
by_device_and_address(const void *a, const void *b)
{
    const ml_pending *left = a;
    const ml_pending *right = b;
    if (left->left_out != right->left_out) {
        return left->left_out ? 1 : -1;
    }
    if (left->device != right->device) {
        return left->device < right->device ? -1 : 1;
    }
    if (left->segment.addr != right->segment.addr) {
        return left->segment.addr < right->segment.addr ? -1 : 1;
    }
    return left->index < right->index ? -1 : 1;
}

int
ml_memory_read_segments(ml_reader *r, const ml_array *list)
{
    void *column = NULL;
    int error = ml_reader_column(r, list->count, sizeof(ml_pending), &column);
    if (error != 0) {
        return error;
    }
    r->pending = column;
    for (uint32_t i = 0; error == 0 && i < list->count; i++) {
        r->pending[i].index = i;
        error = read_segment(r, list->items[i], &r->pending[i]);
    }
    if (list->count != 0) {
        qsort(r->pending, list->count, sizeof(*r->pending), by_device_and_address);
    }
    while (r->pending_count < list->count && !r->pending[r->pending_count].left_out) {
        r->pending_count++;
    }
    return error;
}

/* Columns of the exact size for the pending segments of device INDEX. */
static int
make_memory_columns(ml_reader *r, size_t index, size_t first, size_t end)
{
    ml_device_trace *device = &r->recording->devices[index];
    size_t blocks = 0;
    for (size_t i = first; i < end; i++) {
        blocks += r->pending[i].blocks != NULL ? r->pending[i].blocks->count : 0;
    }
    void *column = NULL;
    int error = ml_reader_column(r, end - first, sizeof(ml_segment), &column);
    device->segments = column;
    if (error == 0) {
        column = NULL;
        error = ml_reader_column(r, blocks, sizeof(ml_block), &column);
        device->blocks = column;
    }
    return error;
}

/* Whether the pending segment AT begins after all segments read of DEVICE. */
static bool
is_behind(const ml_pending *at, const ml_device_trace *device)
{
    if (device->segment_count == 0) {
        return true;
    }
    const ml_segment *last = &device->segments[device->segment_count - 1];
    return at->segment.addr > last->addr &&
           at->segment.addr - last->addr >= last->total;
}

int
ml_memory_read_blocks(ml_reader *r)
{
    int error = 0;
    size_t first = 0;
    while (error == 0 && first < r->pending_count) {
        size_t device = r->pending[first].device;
        size_t end = first + 1;
        while (end < r->pending_count && r->pending[end].device == device) {
            end++;
        }
        ml_device_trace *trace = &r->recording->devices[device];
        error = make_memory_columns(r, device, first, end);
        for (size_t i = first; error == 0 && i < end; i++) {
            if (is_behind(&r->pending[i], trace)) {
                error = read_blocks(r, &r->pending[i], trace);
            }
            else {
                ml_snapshot_tables_lose(&r->tables, ML_UNREAD_SEGMENT);
            }
        }
        first = end;
    }
    return error;
}
