/* The inside of the key "memlab" of a snapshot, shared by snapshot_extras.c (the
 * whole), snapshot_extras_fields.c, snapshot_extras_devices.c,
 * snapshot_extras_notes.c and snapshot_extras_ranks.c.  For no one else. */
#ifndef ML_SNAPSHOT_EXTRAS_PARTS_H
#define ML_SNAPSHOT_EXTRAS_PARTS_H

#include "file/snapshot/snapshot_tables.h"

/* Reads VALUE to *OUT.  If it is no WHAT, counts that and returns false, with *OUT
 * unchanged, here and below. */
bool ml_extras_read_count(ml_snapshot_tables *tables, ml_value value,
                          enum ml_unread what, uint64_t *out);
/* A count of MOST at most. */
bool ml_extras_read_small(ml_snapshot_tables *tables, ml_value value,
                          enum ml_unread what, uint64_t most, uint32_t *out);
/* Signed, as all integers of the schema leave: -1 is a node without a number. */
bool ml_extras_read_bits(ml_snapshot_tables *tables, ml_value value,
                         enum ml_unread what, uint64_t *out);
/* From -1, for none, on. */
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
/* The lists of DICT for the COUNT KEYS, all as long as the first.  Only the first
 * REQUIRED must exist; a missing one stays NULL. */
bool ml_extras_columns(ml_snapshot_tables *tables, const ml_array *dict,
                       enum ml_unread what, const unsigned *keys, unsigned count,
                       unsigned required, const ml_array **columns);

int ml_extras_read_devices(ml_snapshot_tables *tables, ml_value value);

/* Of RECORDING, the whole or the part of a rank. */
int ml_extras_read_notes(ml_snapshot_tables *tables, ml_value value,
                         ml_recording *recording);

int ml_extras_read_ranks(ml_snapshot_tables *tables, ml_value value);

#endif
