/* A recording as tables, for programs that read columns.
 *
 * Owns the tables, their columns and the values for "none", which docs/VIEWING.md
 * lists. */
#ifndef ML_RECORDING_TABLES_H
#define ML_RECORDING_TABLES_H

#include "recording/recording.h"
#include "show/export/column_table.h"

/* name, text, whether each device has its own. */
#define ML_RECORDING_TABLES(XX) \
    XX(EVENTS, "events", true) \
    XX(ALLOCATIONS, "allocations", true) \
    XX(SEGMENTS, "segments", true) \
    XX(BLOCKS, "blocks", true) \
    XX(STEPS, "steps", true) \
    XX(NOTES, "notes", false) \
    XX(STACKS, "stacks", false) \
    XX(FRAMES, "frames", false) \
    XX(STRINGS, "strings", false) /* offsets, one more than the strings; then bytes */

enum ml_recording_table_kind {
#define XX(name, text, of_device) ML_RECORDING_TABLE_##name,
    ML_RECORDING_TABLES(XX)
#undef XX
    ML_RECORDING_TABLE_COUNT
};

bool ml_recording_table_is_of_device(enum ml_recording_table_kind kind);

/* DEVICE, which must exist, matters for tables of a device.  0, ML_ELIMIT for too many
 * events, or ML_ENOMEM.  Free the table in any case. */
int ml_recording_tables_make(ml_column_table *table, const ml_recording *recording,
                             enum ml_recording_table_kind kind, size_t device);

#endif
