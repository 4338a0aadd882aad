/* A table: columns of numbers, one after the other in memory.
 *
 * Owns their memory, and how a row is spread over them. */
#ifndef ML_COLUMN_TABLE_H
#define ML_COLUMN_TABLE_H

#include "base/base.h"

/* A column, and the place of its value in a row. */
typedef struct ml_column_table_field {
    const char *name;
    char format; /* as in Python's struct: B uint8, I uint32, q int64, Q uint64 */
    size_t offset;
} ml_column_table_field;

typedef struct ml_column_table_column {
    const char *name; /* static */
    char format;
    void *items; /* owned */
    size_t count;
} ml_column_table_column;

#define ML_COLUMN_TABLE_COLUMNS_MAX 24

typedef struct ml_column_table {
    const ml_column_table_field *fields; /* static */
    ml_column_table_column columns[ML_COLUMN_TABLE_COLUMNS_MAX];
    size_t column_count;
} ml_column_table;

size_t ml_column_table_item_size(char format);

/* COUNT columns of ROWS zeros.  0 or ML_ENOMEM.  Free it in any case. */
int ml_column_table_init(ml_column_table *table, const ml_column_table_field *fields,
                         size_t count, size_t rows);
/* Sets row number INDEX from ROW, a struct with FIELDS. */
void ml_column_table_put(ml_column_table *table, size_t index, const void *row);
void ml_column_table_fini(ml_column_table *table);

#endif
