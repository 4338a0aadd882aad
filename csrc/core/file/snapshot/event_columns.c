/* Reads and sets columns of events as 64 bits.  See event_columns.h. */
#include "file/snapshot/event_columns.h"

enum {
    BYTES_U16 = 2,
    BYTES_U32 = 4,
    BYTES_BITS = 8,
    BYTES_STRING = 4,
    BYTES_POOL = 8,
    BYTES_REST = 8
};

#define XX(name, key, member, holds, of) \
    _Static_assert(sizeof(((ml_event *)0)->member) == BYTES_##holds, \
                   "a column holds what its member does");
ML_EVENT_COLUMNS(XX)
#undef XX

#define KEY_TORCH(name) ML_KEY_##name
#define KEY_MEMLAB(name) 0
#define UNREAD_TORCH(name) ML_UNREAD_EVENT_##name
#define UNREAD_MEMLAB(name) ML_UNREAD_MEMLAB_EVENT

const ml_event_column ml_event_columns[ML_EVENT_COLUMN_COUNT] = {
#define XX(name, key, member, holds, of) \
    [ML_WORD_##name] = {ML_WORD_##name, ML_HOLDS_##holds, KEY_##of(name), \
                        UNREAD_##of(name), offsetof(ml_event, member)},
    ML_EVENT_COLUMNS(XX)
#undef XX
};

uint64_t
ml_event_column_get(const ml_event_column *column, const ml_event *event)
{
    const void *member = (const char *)event + column->offset;
    switch (column->holds) {
    case ML_HOLDS_U16:
        return *(const uint16_t *)member;
    case ML_HOLDS_U32:
    case ML_HOLDS_STRING:
        return *(const uint32_t *)member;
    case ML_HOLDS_POOL:
        return (uint64_t)((const uint32_t *)member)[0] << 32 |
               ((const uint32_t *)member)[1];
    case ML_HOLDS_REST:
        return *(const uint64_t *)member % 1000;
    default:
        return *(const uint64_t *)member;
    }
}

void
ml_event_column_set(const ml_event_column *column, uint64_t bits, ml_event *event)
{
    void *member = (char *)event + column->offset;
    switch (column->holds) {
    case ML_HOLDS_U16:
        *(uint16_t *)member = (uint16_t)bits;
        break;
    case ML_HOLDS_U32:
    case ML_HOLDS_STRING:
        *(uint32_t *)member = (uint32_t)bits;
        break;
    case ML_HOLDS_POOL:
        ((uint32_t *)member)[0] = (uint32_t)(bits >> 32);
        ((uint32_t *)member)[1] = (uint32_t)bits;
        break;
    case ML_HOLDS_REST:
        *(uint64_t *)member = *(uint64_t *)member / 1000 * 1000 + bits;
        break;
    default:
        *(uint64_t *)member = bits;
        break;
    }
}
