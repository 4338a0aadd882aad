/* Internals of the key "memlab" of a snapshot, shared by the files
 * snapshot_extras*.c. */
#ifndef ML_SNAPSHOT_EXTRAS_PARTS_H
#define ML_SNAPSHOT_EXTRAS_PARTS_H

#include "file/snapshot/snapshot_tables.h"

/* Reads VALUE to *OUT.  If it is no WHAT, counts that and returns false, with *OUT
 * unchanged, here and below. */
bool ml_extras_read_count(ml_snapshot_tables *tables, ml_value value,
                          enum ml_unread what, uint64_t *out);
/* A count, at most MOST. */
bool ml_extras_read_small(ml_snapshot_tables *tables, ml_value value,
                          enum ml_unread what, uint64_t most, uint32_t *out);
/* Signed, like all integers of the schema: -1 is a node without a number. */
bool ml_extras_read_bits(ml_snapshot_tables *tables, ml_value value,
                         enum ml_unread what, uint64_t *out);
/* From -1 (none) on. */
bool ml_extras_read_number(ml_snapshot_tables *tables, ml_value value,
                           enum ml_unread what, int32_t *out);
const ml_array *ml_extras_dict(ml_snapshot_tables *tables, ml_value value,
                               enum ml_unread what);
/* A list of COUNT items. */
const ml_array *ml_extras_list(ml_snapshot_tables *tables, ml_value value,
                               enum ml_unread what, size_t count);
bool ml_extras_is_text(ml_value value, const char *name);
/* The index of VALUE among the COUNT texts of TEXT_OF; COUNT if it is none of them. */
unsigned ml_extras_choice(ml_value value, const char *(*text_of)(unsigned),
                          unsigned count);

/* A dict of lists of one length. */
typedef struct ml_extras_table {
    enum ml_unread what; /* as which unreadable lists count */
    unsigned count;
    unsigned required; /* the first so many must exist */
    unsigned aside; /* a key of the dict that is not for a list; ML_WORD_COUNT: none */
    unsigned keys[9];
} ml_extras_table;

/* The lists of DICT for TABLE's keys; a missing one stays NULL. */
bool ml_extras_columns(ml_snapshot_tables *tables, const ml_array *dict,
                       const ml_extras_table *table, const ml_array **columns);

int ml_extras_read_devices(ml_snapshot_tables *tables, ml_value value);

/* Of RECORDING, which is the whole or a rank's part. */
int ml_extras_read_notes(ml_snapshot_tables *tables, ml_value value,
                         ml_recording *recording);

int ml_extras_read_ranks(ml_snapshot_tables *tables, ml_value value);

#endif
