/* A table: columns of numbers, one behind the other in memory.
 *
 * Owns their memory and how a row is spread over them. */
#ifndef ML_TABLE_H
#define ML_TABLE_H

#include "base/base.h"

/* A column, and where a row has its value. */
typedef struct ml_table_field {
    const char *name;
    char format; /* as in Python's struct: B uint8, I uint32, q int64, Q uint64 */
    size_t offset;
} ml_table_field;

typedef struct ml_table_column {
    const char *name; /* static */
    char format;
    void *items; /* owned */
    size_t count;
} ml_table_column;

#define ML_TABLE_COLUMNS_MAX 24

typedef struct ml_table {
    const ml_table_field *fields; /* static */
    ml_table_column columns[ML_TABLE_COLUMNS_MAX];
    size_t column_count;
} ml_table;

size_t ml_table_item_size(char format);

/* COUNT columns of ROWS zeros.  0 or ML_ENOMEM; to be taken down in any case. */
int ml_table_init(ml_table *table, const ml_table_field *fields, size_t count,
                  size_t rows);
/* The row number INDEX becomes the one at ROW, a struct with FIELDS. */
void ml_table_put(ml_table *table, size_t index, const void *row);
void ml_table_fini(ml_table *table);

#endif
