/* Reads the key "memlab" of a snapshot, trusting it no more than the rest. */
#include "file/snapshot/snapshot_extras.h"

#include <string.h>

#include "file/snapshot/snapshot_extras_parts.h"

/* ---- Lines of code ---- */

enum {
    CODE_COLUMNS = 9,
    CODE_COLUMNS_REQUIRED = 8 /* the last came later */
};

/* A line without a place or a text is dropped; the rest may be unknown. */
static int
read_code_line(ml_snapshot_tables *tables, const ml_array *const columns[CODE_COLUMNS],
               uint32_t index, ml_intern *known)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_CODE;
    ml_code_line line = {0};
    uint32_t *const strings[] = {&line.filename, &line.name, &line.text,
                                 &line.qualname};
    uint64_t numbers[CODE_COLUMNS - 4] = {0};
    ml_value place = columns[4]->items[index];
    bool whole = ml_value_is(place, ML_VALUE_INT) && ml_value_as_int(place) > 0;
    for (unsigned k = 0; k < 4; k++) {
        whole = whole && ml_value_is(columns[k]->items[index], ML_VALUE_STRING);
    }
    if (!whole) {
        ml_snapshot_tables_lose(tables, what);
        return 0;
    }
    int error = 0;
    for (unsigned k = 0; k < 4 && error == 0; k++) {
        error = ml_snapshot_tables_string(tables, columns[k]->items[index], what,
                                          strings[k]);
    }
    for (unsigned k = 4; k < CODE_COLUMNS && columns[k] != NULL; k++) {
        ml_extras_read_count(tables, columns[k]->items[index], what, &numbers[k - 4]);
    }
    line.line = (int64_t)numbers[0];
    line.first_line = (int64_t)numbers[1];
    line.last_line = (int64_t)numbers[2];
    line.changed_us = (int64_t)numbers[3];
    line.forward = ml_code_forward_of(numbers[4]);
    return error == 0 ? ml_recording_add_first_code_line(tables->recording, known, line)
                      : error;
}

static int
read_code(ml_snapshot_tables *tables, ml_value value)
{
    static const ml_extras_table table = {
        ML_UNREAD_MEMLAB_CODE,
        CODE_COLUMNS,
        CODE_COLUMNS_REQUIRED,
        ML_WORD_COUNT,
        {ML_WORD_FILE, ML_WORD_FUNCTION, ML_WORD_TEXT, ML_WORD_QUALNAME, ML_WORD_LINE,
         ML_WORD_FIRST_LINE, ML_WORD_LAST_LINE, ML_WORD_CHANGED_US, ML_WORD_FORWARD}};
    const ml_array *columns[CODE_COLUMNS] = {NULL};
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB_CODE);
    if (dict == NULL || tables->recording->code_lines != NULL ||
        !ml_extras_columns(tables, dict, &table, columns)) {
        return 0;
    }
    uint32_t count = columns[0]->count;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_code_line));
    ml_intern known = {0};
    for (uint32_t i = 0; i < count && error == 0; i++) {
        error = read_code_line(tables, columns, i, &known);
    }
    ml_intern_fini(&known);
    return error;
}

/* ---- The whole ---- */

static void
read_source(ml_snapshot_tables *tables, ml_value value)
{
    ml_recording *recording = tables->recording;
    const ml_text *text =
        ml_value_is(value, ML_VALUE_STRING) ? ml_value_as_text(value) : NULL;
    bool readable = text != NULL && text->length < sizeof(recording->source);
    for (size_t i = 0; readable && i < text->length; i++) {
        readable = text->bytes[i] > ' ' && text->bytes[i] <= '~';
    }
    if (!readable) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_SOURCE);
        return;
    }
    memcpy(recording->source, text->bytes, text->length);
    recording->source[text->length] = '\0';
    recording->source_known = text->length != 0;
}

/* What could not be read of this file's original. */
static void
read_unread(ml_snapshot_tables *tables, ml_value value)
{
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB);
    for (uint32_t i = 0; dict != NULL && i < dict->count; i += 2) {
        unsigned kind =
            ml_extras_choice(dict->items[i], ml_unread_text, ML_UNREAD_COUNT);
        uint64_t count = 0;
        if (ml_extras_read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB,
                                 &count)) {
            uint64_t *sum =
                &tables->recording->unread[kind < ML_UNREAD_COUNT
                                               ? kind
                                               : (unsigned)ML_UNREAD_MEMLAB_NEWER];
            *sum = count < ML_SIZE_MOST - *sum ? *sum + count : ML_SIZE_MOST;
        }
    }
}

static int64_t
version_of(ml_snapshot_tables *tables, const ml_array *dict)
{
    int64_t version = 0;
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (ml_snapshot_tables_word(tables, dict->items[i]) == ML_WORD_VERSION &&
            ml_value_is(dict->items[i + 1], ML_VALUE_INT)) {
            version = ml_value_as_int(dict->items[i + 1]);
        }
    }
    return version;
}

static int
read_modules(ml_snapshot_tables *tables, ml_value value)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_MODULE;
    if (!ml_value_is(value, ML_VALUE_LIST)) {
        ml_snapshot_tables_lose(tables, what);
        return 0;
    }
    const ml_array *pairs = ml_value_as_array(value);
    int error = 0;
    for (uint32_t k = 0; error == 0 && k + 1 < pairs->count; k += 2) {
        const ml_array *modules = ml_extras_dict(tables, pairs->items[k + 1], what);
        if (modules != NULL) {
            error =
                ml_snapshot_tables_stack_of_modules(tables, pairs->items[k], modules);
        }
    }
    return error;
}

int
ml_extras_read_modules(ml_snapshot_tables *tables, ml_value value)
{
    if (!ml_value_is(value, ML_VALUE_DICT) ||
        version_of(tables, ml_value_as_array(value)) != 1) {
        return 0;
    }
    const ml_array *dict = ml_value_as_array(value);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        if (ml_snapshot_tables_word(tables, dict->items[i]) == ML_WORD_MODULES) {
            error = read_modules(tables, dict->items[i + 1]);
        }
    }
    return error;
}

int
ml_extras_read(ml_snapshot_tables *tables, ml_value value)
{
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB);
    int64_t version = dict != NULL ? version_of(tables, dict) : 0;
    if (dict != NULL && version < 1) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB);
    }
    if (version > 1) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
    }
    int error = 0;
    for (uint32_t i = 0; version == 1 && error == 0 && i < dict->count; i += 2) {
        ml_value item = dict->items[i + 1];
        switch (ml_snapshot_tables_word(tables, dict->items[i])) {
        case ML_WORD_SOURCE:
            read_source(tables, item);
            break;
        case ML_WORD_HAS_SEGMENTS:
            tables->recording->rules.has_segments = item.bits != ML_VALUE_OF_FALSE.bits;
            if (!ml_value_is(item, ML_VALUE_BOOL)) {
                ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB);
            }
            break;
        case ML_WORD_DEVICES:
            error = ml_extras_read_devices(tables, item);
            break;
        case ML_WORD_NOTES:
            error = ml_extras_read_notes(tables, item, tables->recording);
            break;
        case ML_WORD_CODE:
            error = read_code(tables, item);
            break;
        case ML_WORD_RANKS:
            error = ml_extras_read_ranks(tables, item);
            break;
        case ML_WORD_UNREAD:
            read_unread(tables, item);
            break;
        case ML_WORD_VERSION:
        case ML_WORD_MODULES: /* read before all stacks */
            break;
        default:
            ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_NEWER);
            break;
        }
    }
    return error;
}
