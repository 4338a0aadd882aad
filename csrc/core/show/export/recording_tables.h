/* A recording as tables, for programs that read columns.
 *
 * Owns which tables there are, their columns and what stands for "none":
 * docs/VIEWING.md names them. */
#ifndef ML_RECORDING_TABLES_H
#define ML_RECORDING_TABLES_H

#include "recording/recording.h"
#include "show/export/column_table.h"

/* name, text, whether a device has its own. */
#define ML_RECORDING_TABLES(XX) \
    XX(EVENTS, "events", true) \
    XX(ALLOCATIONS, "allocations", true) \
    XX(SEGMENTS, "segments", true) \
    XX(BLOCKS, "blocks", true) \
    XX(NOTES, "notes", false) \
    XX(STACKS, "stacks", false) \
    XX(FRAMES, "frames", false) \
    XX(STRINGS, "strings", false) /* offsets, one more than strings, and bytes */

enum ml_recording_table_kind {
#define XX(name, text, of_device) ML_RECORDING_TABLE_##name,
    ML_RECORDING_TABLES(XX)
#undef XX
    ML_RECORDING_TABLE_COUNT
};

bool ml_recording_table_is_of_device(enum ml_recording_table_kind kind);

/* DEVICE, which exists, counts for tables that a device has.  0, ML_ELIMIT for more
 * events than can be numbered, or ML_ENOMEM; to be taken down in any case. */
int ml_recording_tables_make(ml_column_table *table, const ml_recording *recording,
                             enum ml_recording_table_kind kind, size_t device);

#endif
