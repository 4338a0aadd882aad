/* Reading the segments and blocks of a snapshot. */
#include "snapshot_memory.h"

#include <stdlib.h>

typedef struct ml_pending {
    ml_segment segment;
    const ml_array *blocks; /* borrowed from the tree; NULL: none given */
    size_t index;           /* in the file's list */
    uint32_t device;
    uint32_t totals_given; /* bits of TOTAL_* */
} ml_pending;

enum {
    TOTAL_ALLOCATED = 1,
    TOTAL_ACTIVE = 2,
    TOTAL_REQUESTED = 4
};

enum {
    SEEN_SIZE = 1,
    SEEN_STATE = 2
};

static int
read_state(ml_reader *r, ml_value value, uint8_t *state)
{
    switch (ml_tables_word(&r->tables, value)) {
    case ML_WORD_INACTIVE:
        *state = ML_BLOCK_INACTIVE;
        return 0;
    case ML_WORD_ACTIVE_ALLOCATED:
        *state = ML_BLOCK_ALLOCATED;
        return 0;
    case ML_WORD_ACTIVE_PENDING_FREE:
    case ML_WORD_ACTIVE_AWAITING_FREE:
        *state = ML_BLOCK_PENDING_FREE;
        return 0;
    default:
        return ml_reader_fail(r, ML_EFORMAT, "state is not one of torch's");
    }
}

/* torch 2.0 kept requests and frames in a list of former owners, newest first. */
static int
read_history(ml_reader *r, ml_value value, ml_block *block)
{
    const ml_array *list = NULL;
    int error = ml_reader_list(r, value, "history", &list);
    if (error != 0 || list->count == 0) {
        return error;
    }
    const ml_array *dict = NULL;
    error = ml_reader_dict(r, list->items[0], "history", &dict);
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        switch (ml_tables_word(&r->tables, dict->items[i])) {
        case ML_WORD_REAL_SIZE:
            error = ml_reader_natural(r, dict->items[i + 1], "real_size",
                                      &block->requested);
            break;
        case ML_WORD_FRAMES:
            error = ml_reader_stack(r, dict->items[i + 1], &block->stack);
            break;
        default:
            break;
        }
    }
    return error;
}

static int
read_block_field(ml_reader *r, unsigned word, ml_value value, ml_block *block,
                 unsigned *seen)
{
    switch (word) {
    case ML_WORD_ADDRESS:
        return ml_reader_address(r, value, "address", &block->addr);
    case ML_WORD_SIZE:
        *seen |= SEEN_SIZE;
        return ml_reader_natural(r, value, "size", &block->size);
    case ML_WORD_REQUESTED_SIZE:
        return ml_reader_natural(r, value, "requested_size", &block->requested);
    case ML_WORD_STATE:
        *seen |= SEEN_STATE;
        return read_state(r, value, &block->state);
    case ML_WORD_FRAMES:
        return ml_reader_stack(r, value, &block->stack);
    case ML_WORD_HISTORY:
        return read_history(r, value, block);
    default:
        return 0;
    }
}

/* LOW is where the previous block ended, where a block without an address (torch 2.0)
 * begins. */
static int
read_block(ml_reader *r, ml_value value, const ml_segment *segment, uint64_t low,
           ml_block *block)
{
    const ml_array *dict = NULL;
    unsigned seen = 0;
    int error = ml_reader_dict(r, value, "the block", &dict);
    block->addr = low;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_tables_word(&r->tables, dict->items[i]);
        error = read_block_field(r, word, dict->items[i + 1], block, &seen);
    }
    if (error != 0) {
        return error;
    }
    if ((seen & SEEN_SIZE) == 0 || (seen & SEEN_STATE) == 0) {
        return ml_reader_fail(r, ML_EFORMAT, "no %s",
                              (seen & SEEN_SIZE) == 0 ? "size" : "state");
    }
    if (block->state != ML_BLOCK_INACTIVE && block->requested > block->size) {
        return ml_reader_fail(r, ML_EFORMAT, "requested_size is more than size");
    }
    uint64_t end = segment->addr + segment->total;
    if (block->addr < low) {
        return ml_reader_fail(r, ML_EFORMAT, "overlaps the block before it");
    }
    if (block->addr > end || block->size > end - block->addr) {
        return ml_reader_fail(r, ML_EFORMAT, "reaches past its segment");
    }
    return 0;
}

static int
read_blocks(ml_reader *r, const ml_pending *from, ml_device_trace *device)
{
    ml_segment *segment = &device->segments[device->segment_count];
    *segment = from->segment;
    segment->first_block = device->block_count;
    segment->block_count = from->blocks != NULL ? from->blocks->count : 0;
    uint64_t low = segment->addr;
    ml_segment sums = {0};
    for (size_t i = 0; i < segment->block_count; i++) {
        ml_block *block = &device->blocks[segment->first_block + i];
        ml_reader_enter_inner(r, ".blocks", i);
        int error = read_block(r, from->blocks->items[i], segment, low, block);
        if (error != 0) {
            return error;
        }
        low = block->addr + block->size;
        if (block->state != ML_BLOCK_INACTIVE) {
            sums.active += block->size;
            sums.requested += block->requested;
            sums.allocated += block->state == ML_BLOCK_ALLOCATED ? block->size : 0;
        }
    }
    if ((from->totals_given & TOTAL_ALLOCATED) == 0) {
        segment->allocated = sums.allocated;
    }
    if ((from->totals_given & TOTAL_ACTIVE) == 0) {
        segment->active = sums.active;
    }
    if ((from->totals_given & TOTAL_REQUESTED) == 0) {
        segment->requested = sums.requested;
    }
    device->block_count += segment->block_count;
    device->segment_count++;
    return 0;
}

static int
read_device(ml_reader *r, ml_value value, uint32_t *out)
{
    uint64_t device = 0;
    int error = ml_reader_natural(r, value, "device", &device);
    *out = device < UINT32_MAX ? (uint32_t)device : UINT32_MAX;
    return error;
}

static int
read_segment_field(ml_reader *r, unsigned word, ml_value value, ml_pending *into)
{
    ml_segment *segment = &into->segment;
    switch (word) {
    case ML_WORD_DEVICE:
        return read_device(r, value, &into->device);
    case ML_WORD_ADDRESS:
        return ml_reader_address(r, value, "address", &segment->addr);
    case ML_WORD_TOTAL_SIZE:
        return ml_reader_natural(r, value, "total_size", &segment->total);
    case ML_WORD_ALLOCATED_SIZE:
        into->totals_given |= TOTAL_ALLOCATED;
        return ml_reader_natural(r, value, "allocated_size", &segment->allocated);
    case ML_WORD_ACTIVE_SIZE:
        into->totals_given |= TOTAL_ACTIVE;
        return ml_reader_natural(r, value, "active_size", &segment->active);
    case ML_WORD_REQUESTED_SIZE:
        into->totals_given |= TOTAL_REQUESTED;
        return ml_reader_natural(r, value, "requested_size", &segment->requested);
    case ML_WORD_STREAM:
        return ml_reader_address(r, value, "stream", &segment->stream);
    case ML_WORD_SEGMENT_TYPE:
        segment->small = ml_tables_word(&r->tables, value) == ML_WORD_SMALL;
        return 0;
    case ML_WORD_SEGMENT_POOL_ID:
        return ml_reader_pool(r, value, "segment_pool_id", segment->pool);
    case ML_WORD_IS_EXPANDABLE:
        segment->expandable = value.bits == ML_VALUE_OF_TRUE.bits;
        return 0;
    case ML_WORD_FRAMES:
        return ml_reader_stack(r, value, &segment->stack);
    case ML_WORD_BLOCKS:
        return ml_reader_list(r, value, "blocks", &into->blocks);
    default:
        return 0;
    }
}

static int
read_segment(ml_reader *r, ml_value value, ml_pending *into)
{
    const ml_array *dict = NULL;
    bool placed = false;
    int error = ml_reader_dict(r, value, "the segment", &dict);
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        unsigned word = ml_tables_word(&r->tables, dict->items[i]);
        placed = placed || word == ML_WORD_ADDRESS;
        error = read_segment_field(r, word, dict->items[i + 1], into);
    }
    if (error != 0) {
        return error;
    }
    const ml_segment *segment = &into->segment;
    error = ml_reader_need_devices(r, (size_t)into->device + 1);
    if (error != 0) {
        return error;
    }
    if (!placed) {
        return ml_reader_fail(r, ML_EFORMAT, "no address");
    }
    if (segment->total > UINT64_MAX - segment->addr) {
        return ml_reader_fail(r, ML_EFORMAT, "reaches past the last address");
    }
    if (segment->allocated > segment->total || segment->active > segment->total) {
        return ml_reader_fail(r, ML_EFORMAT, "holds more than its total_size");
    }
    return 0;
}

static int
by_device_and_address(const void *a, const void *b)
{
    const ml_pending *left = a;
    const ml_pending *right = b;
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
    r->pending_count = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        ml_reader_enter(r, "segments", i);
        r->pending[i].index = i;
        error = read_segment(r, list->items[i], &r->pending[i]);
        if (error != 0) {
            return error;
        }
    }
    ml_reader_leave(r);
    if (list->count != 0) {
        qsort(r->pending, r->pending_count, sizeof(*r->pending), by_device_and_address);
    }
    return 0;
}

/* Columns of exactly the size that the pending segments of device INDEX need. */
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

int
ml_memory_read_blocks(ml_reader *r)
{
    size_t first = 0;
    while (first < r->pending_count) {
        size_t device = r->pending[first].device;
        size_t end = first + 1;
        while (end < r->pending_count && r->pending[end].device == device) {
            end++;
        }
        int error = make_memory_columns(r, device, first, end);
        for (size_t i = first; error == 0 && i < end; i++) {
            const ml_segment *segment = &r->pending[i].segment;
            const ml_segment *before = &r->pending[i - (i != first)].segment;
            ml_reader_enter(r, "segments", r->pending[i].index);
            if (i != first && (segment->addr == before->addr ||
                               segment->addr < before->addr + before->total)) {
                return ml_reader_fail(r, ML_EFORMAT, "overlaps another segment");
            }
            error = read_blocks(r, &r->pending[i], &r->recording->devices[device]);
        }
        if (error != 0) {
            return error;
        }
        first = end;
    }
    ml_reader_leave(r);
    return 0;
}
