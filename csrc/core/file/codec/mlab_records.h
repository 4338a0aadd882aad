/* The control records that both the reader of a .mlab file and the writer that drops a
 * file's first part read.
 *
 * Trusts nothing: any bytes give a record or false. */
#ifndef ML_MLAB_RECORDS_H
#define ML_MLAB_RECORDS_H

#include <stdbool.h>

#include "file/codec/mlab_format.h"
#include "file/codec/pack.h"

/* Copies the fixed part of RECORD, of BYTES, to FIXED; *REST are the *LEFT bytes after it.
 * False: RECORD is shorter. */
bool ml_mlab_record_split(const ml_packed_other *record, void *fixed, size_t bytes,
                          const uint8_t **rest, size_t *left);

/* A segment or block of a start, with its stack where that follows.  DEVICE may be any
 * number.  Of a segment, what follows from its blocks is 0. */
bool ml_mlab_segment_read(const ml_packed_other *record, uint32_t *device,
                          ml_segment *out);
bool ml_mlab_block_read(const ml_packed_other *record, uint32_t *device, ml_block *out);

/* An owner; borrowed from its record. */
typedef struct ml_mlab_tag {
    uint64_t addr;
    uint64_t place;       /* events of the device before it, or ticks */
    const uint8_t *owner; /* OWNER_BYTES: all after PLACE, the same for each look */
    size_t owner_bytes;
    const uint8_t *module;
    size_t module_bytes;
    const uint8_t *name;
    size_t name_bytes;
    uint8_t device;   /* below ML_DEVICE_MAX */
    uint8_t category; /* up to ML_CATEGORY_TAG_LAST */
    bool name_lost;
    bool module_lost;
} ml_mlab_tag;

bool ml_mlab_tag_read(const ml_packed_other *record, ml_mlab_tag *out);

#endif
