/* Reads the fields of a snapshot: typed, range-checked, and counted if they cannot be
 * read.
 *
 * Knows types and limits but no schema.  Private to the snapshot reader. */
#ifndef ML_SNAPSHOT_FIELDS_H
#define ML_SNAPSHOT_FIELDS_H

#include "file/snapshot/event_columns.h"
#include "file/snapshot/snapshot_tables.h"

struct ml_pending; /* a segment before its blocks are read */

typedef struct ml_reader {
    ml_snapshot_tables tables;
    ml_recording *recording; /* owned until success */
    ml_read_error *error;
    struct ml_pending *pending; /* owned */
    size_t pending_count;
} ml_reader;

/* Fills in the error of CODE, ML_ENOMEM or ML_ELIMIT, and returns CODE. */
int ml_reader_refuse(ml_reader *r, int code);

/* An array of COUNT items for the recording, charged and zeroed; NULL for none.  0,
 * ML_ELIMIT or ML_ENOMEM. */
int ml_reader_column(ml_reader *r, size_t count, size_t size, void **out);
/* Makes sure that the recording will have COUNT devices. */
void ml_reader_need_devices(ml_reader *r, size_t count);

/* Whether VALUE is a count or a size in bytes, up to ML_SIZE_MOST; or an address or a
 * stream handle: 64 bits, which some writers show as signed.  *OUT is written only
 * then, below too. */
bool ml_value_natural(ml_value value, uint64_t *out);
bool ml_value_address(ml_value value, uint64_t *out);

/* VALUE as a WHAT.  If it is invalid: false or NULL, and it is counted. */
bool ml_reader_natural(ml_reader *r, ml_value value, enum ml_unread what,
                       uint64_t *out);
bool ml_reader_address(ml_reader *r, ml_value value, enum ml_unread what,
                       uint64_t *out);
bool ml_reader_pool(ml_reader *r, ml_value value, enum ml_unread what,
                    uint64_t pool[2]);
/* Sets EVENT's value in COLUMN to VALUE; if VALUE is no WHAT, only counts that.  A pool
 * is one number.  0, ML_ELIMIT or ML_ENOMEM. */
int ml_tables_column(ml_snapshot_tables *tables, const ml_event_column *column,
                     ml_value value, enum ml_unread what, ml_event *event);
const ml_array *ml_reader_list(ml_reader *r, ml_value value, enum ml_unread what);
const ml_array *ml_reader_dict(ml_reader *r, ml_value value, enum ml_unread what);

#endif
