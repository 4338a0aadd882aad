/* The fields of the key "memlab".  See snapshot_extras_parts.h. */
#include "file/snapshot/snapshot_extras_parts.h"

#include <string.h>

bool
ml_extras_read_count(ml_snapshot_tables *tables, ml_value value, enum ml_unread what,
                     uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < 0) {
        ml_snapshot_tables_lose(tables, what);
        return false;
    }
    *out = (uint64_t)ml_value_as_int(value);
    return true;
}

bool
ml_extras_read_small(ml_snapshot_tables *tables, ml_value value, enum ml_unread what,
                     uint64_t most, uint32_t *out)
{
    uint64_t count = 0;
    if (!ml_extras_read_count(tables, value, what, &count)) {
        return false;
    }
    if (count > most) {
        ml_snapshot_tables_lose(tables, what);
        return false;
    }
    *out = (uint32_t)count;
    return true;
}

bool
ml_extras_read_bits(ml_snapshot_tables *tables, ml_value value, enum ml_unread what,
                    uint64_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT)) {
        ml_snapshot_tables_lose(tables, what);
        return false;
    }
    *out = (uint64_t)ml_value_as_int(value);
    return true;
}

bool
ml_extras_read_number(ml_snapshot_tables *tables, ml_value value, enum ml_unread what,
                      int32_t *out)
{
    if (!ml_value_is(value, ML_VALUE_INT) || ml_value_as_int(value) < -1 ||
        ml_value_as_int(value) > INT32_MAX) {
        ml_snapshot_tables_lose(tables, what);
        return false;
    }
    *out = (int32_t)ml_value_as_int(value);
    return true;
}

const ml_array *
ml_extras_dict(ml_snapshot_tables *tables, ml_value value, enum ml_unread what)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        ml_snapshot_tables_lose(tables, what);
        return NULL;
    }
    return ml_value_as_array(value);
}

const ml_array *
ml_extras_list(ml_snapshot_tables *tables, ml_value value, enum ml_unread what,
               size_t count)
{
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != count) {
        ml_snapshot_tables_lose(tables, what);
        return NULL;
    }
    return ml_value_as_array(value);
}

bool
ml_extras_is_text(ml_value value, const char *name)
{
    if (!ml_value_is(value, ML_VALUE_STRING)) {
        return false;
    }
    const ml_text *text = ml_value_as_text(value);
    return strlen(name) == text->length && memcmp(name, text->bytes, text->length) == 0;
}

unsigned
ml_extras_choice(ml_value value, const char *(*text_of)(unsigned), unsigned count)
{
    unsigned choice = 0;
    while (choice < count && !ml_extras_is_text(value, text_of(choice))) {
        choice++;
    }
    return choice;
}

bool
ml_extras_columns(ml_snapshot_tables *tables, const ml_array *dict,
                  const ml_extras_table *table, const ml_array **columns)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        unsigned word = ml_snapshot_tables_word(tables, dict->items[i]);
        unsigned k = 0;
        while (k < table->count && table->keys[k] != word) {
            k++;
        }
        if (k == table->count) {
            if (word == ML_WORD_COUNT || word != table->aside) {
                ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
            }
        }
        else if (ml_value_is(dict->items[i + 1], ML_VALUE_LIST)) {
            columns[k] = ml_value_as_array(dict->items[i + 1]);
        }
        else if (k >= table->required) {
            ml_snapshot_tables_lose(tables, table->what);
        }
    }
    for (unsigned k = 0; k < table->count; k++) {
        uint64_t times = table->keys[k] == ML_WORD_VALUES ? ML_NOTE_VALUES : 1;
        bool fits =
            columns[k] == NULL
                ? k >= table->required
                : columns[0] != NULL && columns[k]->count == times * columns[0]->count;
        if (!fits) {
            ml_snapshot_tables_lose(tables, table->what);
            return false;
        }
    }
    return true;
}
