/* Internals of the schema, shared only by torch_schema.c (torch's keys) and
 * torch_schema_extras.c (memlab's key). */
#ifndef ML_TORCH_SCHEMA_PARTS_H
#define ML_TORCH_SCHEMA_PARTS_H

#include "file/snapshot/event_columns.h"
#include "file/snapshot/torch_schema.h"

static inline void
ml_put_number(ml_builder *to, enum ml_word key, uint64_t value)
{
    to->word(to, key);
    to->integer(to, (int64_t)value);
}

static inline void
ml_put_bytes(ml_builder *to, uint64_t bytes)
{
    to->integer(to, bytes < ML_SIZE_MOST ? (int64_t)bytes : INT64_MAX);
}

static inline void
ml_put_size(ml_builder *to, enum ml_word key, uint64_t bytes)
{
    to->word(to, key);
    ml_put_bytes(to, bytes);
}

static inline void
ml_put_word(ml_builder *to, enum ml_word key, unsigned word)
{
    to->word(to, key);
    to->word(to, word);
}

static inline void
ml_put_bool(ml_builder *to, enum ml_word key, bool truth)
{
    to->word(to, key);
    to->boolean(to, truth);
}

static inline void
ml_put_list(ml_builder *to, enum ml_word key)
{
    to->word(to, key);
    to->open(to, ML_VALUE_LIST);
}

/* Writes EVENT's value in COLUMN; a pool is one number. */
static inline void
ml_put_column(ml_builder *to, const ml_event_column *column, const ml_event *event)
{
    uint64_t bits = ml_event_column_get(column, event);
    if (column->holds == ML_HOLDS_STRING) {
        to->string(to, (uint32_t)bits);
    }
    else {
        to->integer(to, (int64_t)bits);
    }
}

/* The key "memlab" of RECORDING, with its value. */
void ml_put_extras(ml_builder *to, const ml_recording *recording);

#endif
