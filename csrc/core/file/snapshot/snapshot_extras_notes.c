/* Reads the notes of the key "memlab". */
#include "file/snapshot/snapshot_extras_parts.h"
#include "recording/side_data.h"

enum {
    NOTE_COLUMNS = 6
};

/* *TIMED: the note has a time; without one it is dropped. */
static int
read_note(ml_snapshot_tables *tables, const ml_array *const columns[NOTE_COLUMNS],
          uint32_t index, ml_note *note, bool *timed)
{
    const enum ml_unread what = ML_UNREAD_MEMLAB_NOTE;
    note->device = -1;
    ml_extras_read_number(tables, columns[3]->items[index], what, &note->device);
    *timed = ml_extras_read_bits(tables, columns[0]->items[index], what, &note->time);
    ml_extras_read_small(tables, columns[4]->items[index], what, UINT32_MAX,
                         &note->thread);
    for (uint32_t k = 0; k < ML_NOTE_VALUES; k++) {
        note->values[k] = ML_NOTE_UNKNOWN;
        ml_extras_read_bits(tables, columns[5]->items[ML_NOTE_VALUES * index + k], what,
                            &note->values[k]);
    }
    return ml_snapshot_tables_string(tables, columns[2]->items[index], what,
                                     &note->name);
}

/* Notes of an unknown kind are left out and counted. */
static int
fill_notes(ml_snapshot_tables *tables, const ml_array *const columns[NOTE_COLUMNS],
           ml_recording *recording)
{
    uint32_t count = columns[0]->count;
    int error = ml_tree_charge(tables->tree, count * sizeof(ml_note));
    size_t capacity = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        unsigned kind =
            ml_extras_choice(columns[1]->items[i], ml_note_text, ML_NOTE_COUNT);
        if (kind == ML_NOTE_COUNT) {
            bool named = ml_value_is(columns[1]->items[i], ML_VALUE_STRING);
            ml_snapshot_tables_lose(tables, named ? ML_UNREAD_MEMLAB_NEWER
                                                  : ML_UNREAD_MEMLAB_NOTE);
            continue;
        }
        ml_note note = {.kind = (uint8_t)kind};
        bool timed = false;
        error = read_note(tables, columns, i, &note, &timed);
        if (error == 0 && timed) {
            error = ml_tables_taken(tables, ML_UNREAD_MEMLAB_NOTE,
                                    ml_recording_add_note(recording, &capacity, &note));
        }
    }
    return error;
}

int
ml_extras_read_notes(ml_snapshot_tables *tables, ml_value value,
                     ml_recording *recording)
{
    static const ml_extras_table table = {ML_UNREAD_MEMLAB_NOTE,
                                          NOTE_COLUMNS,
                                          NOTE_COLUMNS,
                                          ML_WORD_LOST,
                                          {ML_WORD_TIME, ML_WORD_KIND, ML_WORD_NAME,
                                           ML_WORD_DEVICE, ML_WORD_THREAD,
                                           ML_WORD_VALUES}};
    const ml_array *columns[NOTE_COLUMNS] = {NULL};
    const ml_array *dict = ml_extras_dict(tables, value, ML_UNREAD_MEMLAB_NOTE);
    if (dict == NULL || recording->notes != NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (ml_snapshot_tables_word(tables, dict->items[i]) == ML_WORD_LOST) {
            ml_extras_read_count(tables, dict->items[i + 1], ML_UNREAD_MEMLAB_NOTE,
                                 &recording->lost_notes);
        }
    }
    return ml_extras_columns(tables, dict, &table, columns)
               ? fill_notes(tables, columns, recording)
               : 0;
}
