/* The columns of ML_EVENT_COLUMNS in snapshots: the place and the value of each. */
#ifndef ML_EVENT_COLUMNS_H
#define ML_EVENT_COLUMNS_H

#include "file/snapshot/torch_schema.h"

enum ml_holds {
    ML_HOLDS_U16,
    ML_HOLDS_U32,
    ML_HOLDS_BITS,
    ML_HOLDS_STRING,
    ML_HOLDS_POOL,
    ML_HOLDS_REST
};

typedef struct ml_event_column {
    enum ml_word word; /* its key */
    enum ml_holds holds;
    uint32_t key;          /* ML_KEY_ of a key of torch's; 0: it is memlab's */
    enum ml_unread unread; /* kind of an unreadable value of torch's key */
    size_t offset;         /* of the member */
} ml_event_column;

enum {
#define XX(name, key, member, holds, of) +1
    ML_EVENT_COLUMN_COUNT = 0 ML_EVENT_COLUMNS(XX)
#undef XX
};

/* By their words; torch's before memlab's. */
extern const ml_event_column ml_event_columns[ML_EVENT_COLUMN_COUNT];

/* EVENT's value in COLUMN, as 64 bits: a pool's first number is the high half. */
uint64_t ml_event_column_get(const ml_event_column *column, const ml_event *event);
/* Sets EVENT's value in COLUMN to BITS, which fit. */
void ml_event_column_set(const ml_event_column *column, uint64_t bits, ml_event *event);

#endif
