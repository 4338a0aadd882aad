/* The names in a snapshot: its keys, strings, frames and stacks, each read once.
 *
 * Keeps the result for every shared node of a value tree: fifty thousand references to
 * ninety frames cost fifty thousand array reads.  Also counts unreadable values.  It
 * knows nothing of segments or events.  Private to the snapshot reader. */
#ifndef ML_SNAPSHOT_TABLES_H
#define ML_SNAPSHOT_TABLES_H

#include "base/base.h"
#include "file/snapshot/torch_schema.h"
#include "file/snapshot/value.h"
#include "recording/interner.h"

typedef struct ml_snapshot_tables {
    ml_tree *tree;           /* borrowed */
    ml_recording *recording; /* borrowed */
    uint8_t *words;          /* by node id: word + 1, 0 not looked at; owned */
    uint32_t *made;          /* by node id: id in its column + 1, 0 none; owned */
    ml_intern word_index;
    ml_interner interner;
    uint64_t given[ML_UNREAD_COUNT]; /* how many there were, readable or not */
} ml_snapshot_tables;

int ml_snapshot_tables_init(ml_snapshot_tables *tables, ml_tree *tree,
                            ml_recording *recording);
void ml_snapshot_tables_fini(ml_snapshot_tables *tables);

/* The word that KEY spells, or ML_WORD_COUNT. */
unsigned ml_snapshot_tables_word(ml_snapshot_tables *tables, ml_value key);

/* One bad value costs that value, never the file.  Counts an unreadable WHAT; the
 * recording has nothing in its place. */
void ml_snapshot_tables_lose(ml_snapshot_tables *tables, enum ml_unread what);
/* Counts a WHAT; if it is not READABLE, also as unreadable.  Returns READABLE. */
bool ml_snapshot_tables_give(ml_snapshot_tables *tables, enum ml_unread what,
                             bool readable);
/* Handles RESULT of an addition to the recording; a refused value counts as an
 * unreadable WHAT. */
int ml_tables_taken(ml_snapshot_tables *tables, enum ml_unread what, int result);
/* Counts missing values, after everything is read. */
void ml_snapshot_tables_count_missing(ml_snapshot_tables *tables);

/* *ID is the recording's id for a string, or for a list of frames, innermost first; 0
 * if it cannot be read.  Returns 0, ML_ELIMIT or ML_ENOMEM. */
int ml_snapshot_tables_string(ml_snapshot_tables *tables, ml_value value,
                              enum ml_unread what, uint32_t *id);
int ml_snapshot_tables_stack(ml_snapshot_tables *tables, ml_value value,
                             enum ml_unread what, uint32_t *id);
/* *ID is the recording's id for the texts of a list, with a zero byte between them. */
int ml_snapshot_tables_texts(ml_snapshot_tables *tables, ml_value value,
                             enum ml_unread what, uint32_t *id);
/* As ml_snapshot_tables_stack for a list whose frames have MODULES, a dict of names by
 * place in the list.  Call it before ml_snapshot_tables_stack sees the list, which then
 * uses the modules. */
int ml_snapshot_tables_stack_of_modules(ml_snapshot_tables *tables, ml_value value,
                                        const ml_array *modules);

#endif
