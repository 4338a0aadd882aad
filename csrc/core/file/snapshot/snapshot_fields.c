/* Reads the fields of a snapshot, and checks their values.
 *
 * Every array of the recording is charged to the tree's memory limit before it is made:
 * a file may refer to one list of events many times, with two bytes each. */
#include "file/snapshot/snapshot_fields.h"

int
ml_reader_refuse(ml_reader *r, int code)
{
    return ml_read_fail(r->error, code, 0, "%s",
                        code == ML_ELIMIT
                            ? "the data would take far more memory than the file"
                            : ml_strerror(code));
}

int
ml_reader_column(ml_reader *r, size_t count, size_t size, void **out)
{
    if (count == 0) {
        *out = NULL;
        return 0;
    }
    int error = count > SIZE_MAX / size ? ML_ELIMIT
                                        : ml_tree_charge(r->tables.tree, count * size);
    if (error == 0) {
        *out = ml_alloc_zeroed(count, size);
        error = *out == NULL ? ML_ENOMEM : 0;
    }
    return error;
}

bool
ml_value_natural(ml_value value, uint64_t *out)
{
    /* A value wider than ML_VALUE_INT exceeds ML_SIZE_MOST. */
    if (ml_value_is(value, ML_VALUE_INT) && ml_value_as_int(value) >= 0) {
        *out = (uint64_t)ml_value_as_int(value);
        return true;
    }
    return false;
}

bool
ml_value_address(ml_value value, uint64_t *out)
{
    if (ml_value_is(value, ML_VALUE_INT)) {
        *out = (uint64_t)ml_value_as_int(value);
        return true;
    }
    if (ml_value_is(value, ML_VALUE_UNSIGNED)) {
        *out = ml_value_as_scalar(value)->as.natural;
        return true;
    }
    return false;
}

bool
ml_reader_natural(ml_reader *r, ml_value value, enum ml_unread what, uint64_t *out)
{
    return ml_snapshot_tables_give(&r->tables, what, ml_value_natural(value, out));
}

bool
ml_reader_address(ml_reader *r, ml_value value, enum ml_unread what, uint64_t *out)
{
    return ml_snapshot_tables_give(&r->tables, what, ml_value_address(value, out));
}

static bool
column_bits(enum ml_holds holds, ml_value value, uint64_t *bits)
{
    if (holds == ML_HOLDS_BITS || holds == ML_HOLDS_POOL) {
        *bits = ml_value_is(value, ML_VALUE_INT) ? (uint64_t)ml_value_as_int(value) : 0;
        return ml_value_is(value, ML_VALUE_INT);
    }
    uint64_t most = holds == ML_HOLDS_REST  ? 999
                    : holds == ML_HOLDS_U16 ? UINT16_MAX
                                            : UINT32_MAX;
    return ml_value_natural(value, bits) && *bits <= most;
}

int
ml_tables_column(ml_snapshot_tables *tables, const ml_event_column *column,
                 ml_value value, enum ml_unread what, ml_event *event)
{
    if (column->holds == ML_HOLDS_STRING) {
        uint32_t id;
        int error = ml_snapshot_tables_string(tables, value, what, &id);
        ml_event_column_set(column, id, event);
        return error;
    }
    uint64_t bits = 0;
    bool readable =
        ml_snapshot_tables_give(tables, what, column_bits(column->holds, value, &bits));
    ml_event_column_set(column, readable ? bits : 0, event);
    if (column->holds == ML_HOLDS_POOL && !readable) {
        event->flags &= (uint8_t)~ML_EVENT_POOL_KNOWN;
    }
    return 0;
}

const ml_array *
ml_reader_list(ml_reader *r, ml_value value, enum ml_unread what)
{
    bool readable = ml_value_is(value, ML_VALUE_LIST);
    return ml_snapshot_tables_give(&r->tables, what, readable)
               ? ml_value_as_array(value)
               : NULL;
}

const ml_array *
ml_reader_dict(ml_reader *r, ml_value value, enum ml_unread what)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        ml_snapshot_tables_lose(&r->tables, what);
        return NULL;
    }
    r->tables.given[what]++;
    return ml_value_as_array(value);
}

bool
ml_reader_pool(ml_reader *r, ml_value value, enum ml_unread what, uint64_t pool[2])
{
    enum ml_value_kind kind = ml_value_kind(value);
    uint64_t first = 0, second = 0;
    bool readable = (kind == ML_VALUE_TUPLE || kind == ML_VALUE_LIST) &&
                    ml_value_as_array(value)->count == 2 &&
                    ml_value_address(ml_value_as_array(value)->items[0], &first) &&
                    ml_value_address(ml_value_as_array(value)->items[1], &second);
    if (ml_snapshot_tables_give(&r->tables, what, readable)) {
        pool[0] = first;
        pool[1] = second;
    }
    return readable;
}

void
ml_reader_need_devices(ml_reader *r, size_t count)
{
    r->recording->device_count =
        count > r->recording->device_count ? count : r->recording->device_count;
}
