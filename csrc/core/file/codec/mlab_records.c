/* Reads control records.  See mlab_records.h. */
#include "file/codec/mlab_records.h"

#include <string.h>

#include "base/varint.h"
#include "recording/recording.h"

bool
ml_mlab_record_split(const ml_packed_other *record, void *fixed, size_t bytes,
                     const uint8_t **rest, size_t *left)
{
    if (record->length < bytes) {
        return false;
    }
    memcpy(fixed, record->bytes, bytes);
    *rest = record->bytes + bytes;
    *left = record->length - bytes;
    return true;
}

/* The id of a stack that follows a record, as in a start after the first part was
 * dropped; 0: none. */
static uint32_t
stack_after(const uint8_t *rest, size_t left)
{
    uint32_t stack = 0;
    if (left >= sizeof(stack)) {
        memcpy(&stack, rest, sizeof(stack));
    }
    return stack;
}

bool
ml_mlab_segment_read(const ml_packed_other *record, uint32_t *device, ml_segment *out)
{
    ml_mlab_segment from;
    const uint8_t *rest;
    size_t left;
    if (!ml_mlab_record_split(record, &from, sizeof(from), &rest, &left)) {
        return false;
    }
    *device = from.device;
    *out = (ml_segment){
        .addr = from.addr,
        .total = from.total,
        .stream = from.stream,
        .pool = {from.pool[0], from.pool[1]},
        .stack = stack_after(rest, left),
        .small = from.small != 0,
        .expandable = from.expandable != 0,
    };
    return true;
}

bool
ml_mlab_block_read(const ml_packed_other *record, uint32_t *device, ml_block *out)
{
    ml_mlab_block from;
    const uint8_t *rest;
    size_t left;
    if (!ml_mlab_record_split(record, &from, sizeof(from), &rest, &left)) {
        return false;
    }
    *device = from.device;
    *out = (ml_block){
        .addr = from.addr,
        .size = from.size,
        .requested = from.requested,
        .stack = stack_after(rest, left),
        .state = from.state,
    };
    return true;
}

bool
ml_mlab_tag_read(const ml_packed_other *record, ml_mlab_tag *out)
{
    const uint8_t *at = record->bytes + 2;
    const uint8_t *end = record->bytes + record->length;
    if (record->length < 2) {
        return false;
    }
    const unsigned lost = ML_MLAB_NAME_LOST | ML_MLAB_MODULE_LOST;
    *out = (ml_mlab_tag){
        .device = record->bytes[1],
        .category = (uint8_t)(record->bytes[0] & ~lost),
        .name_lost = (record->bytes[0] & ML_MLAB_NAME_LOST) != 0,
        .module_lost = (record->bytes[0] & ML_MLAB_MODULE_LOST) != 0,
    };
    if (!ml_varint_read(&at, end, &out->addr) ||
        !ml_varint_read(&at, end, &out->place)) {
        return false;
    }
    out->owner = at;
    out->owner_bytes = (size_t)(end - at);
    uint64_t module_bytes;
    if (!ml_varint_read(&at, end, &module_bytes) || module_bytes > (size_t)(end - at)) {
        return false;
    }
    out->module = at;
    out->module_bytes = (size_t)module_bytes;
    out->name = at + module_bytes;
    out->name_bytes = (size_t)(end - out->name);
    return out->device < ML_DEVICE_MAX && out->category <= ML_CATEGORY_TAG_LAST;
}
