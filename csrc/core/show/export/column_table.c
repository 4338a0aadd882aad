/* A table of columns.  See column_table.h. */
#include "show/export/column_table.h"

#include <string.h>

size_t
ml_column_table_item_size(char format)
{
    return format == 'B' ? 1 : format == 'I' ? 4 : 8;
}

int
ml_column_table_init(ml_column_table *table, const ml_column_table_field *fields,
                     size_t count, size_t rows)
{
    *table = (ml_column_table){.fields = fields};
    for (size_t i = 0; i < count; i++) {
        void *items =
            ml_alloc_zeroed(rows + 1, ml_column_table_item_size(fields[i].format));
        if (items == NULL) {
            return ML_ENOMEM;
        }
        table->columns[table->column_count++] =
            (ml_column_table_column){fields[i].name, fields[i].format, items, rows};
    }
    return 0;
}

void
ml_column_table_put(ml_column_table *table, size_t index, const void *row)
{
    for (size_t i = 0; i < table->column_count; i++) {
        const ml_column_table_column *column = &table->columns[i];
        size_t size = ml_column_table_item_size(column->format);
        memcpy((char *)column->items + index * size,
               (const char *)row + table->fields[i].offset, size);
    }
}

void
ml_column_table_fini(ml_column_table *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        ml_free(table->columns[i].items);
    }
    *table = (ml_column_table){0};
}
