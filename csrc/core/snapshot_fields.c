/* Reading the fields of a snapshot: what a value must be before it is believed.
 *
 * Every array of the recording is charged to the tree's memory limit before it is made,
 * since a file may refer to one list of events many times with two bytes each. */
#include "snapshot_fields.h"

#include <stdarg.h>
#include <stdio.h>

void
ml_reader_enter(ml_reader *r, const char *outer, size_t index)
{
    r->outer = outer;
    r->outer_index = index;
    r->inner = NULL;
}

void
ml_reader_leave(ml_reader *r)
{
    r->outer = NULL;
    r->inner = NULL;
}

void
ml_reader_enter_inner(ml_reader *r, const char *inner, size_t index)
{
    r->inner = inner;
    r->inner_index = index;
}

int
ml_reader_fail(ml_reader *r, int code, const char *format, ...)
{
    char what[120];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (r->inner != NULL) {
        ml_read_fail(r->error, code, 0, "%s[%zu]%s[%zu]: %s", r->outer, r->outer_index,
                     r->inner, r->inner_index, what);
    }
    else if (r->outer != NULL) {
        ml_read_fail(r->error, code, 0, "%s[%zu]: %s", r->outer, r->outer_index, what);
    }
    else {
        ml_read_fail(r->error, code, 0, "%s", what);
    }
    return code;
}

int
ml_reader_fail_code(ml_reader *r, int code)
{
    if (code == ML_EFORMAT) {
        return ml_reader_fail(r, code, "%s", r->tables.trouble);
    }
    return ml_reader_fail(r, code, "%s",
                          code == ML_ELIMIT
                              ? "the data would take far more memory than the file"
                              : ml_strerror(code));
}

static int
fail_kind(ml_reader *r, const char *key, ml_value value, const char *wanted)
{
    return ml_reader_fail(r, ML_EFORMAT, "%s is %s, not %s", key,
                          ml_kind_text(ml_value_kind(value)), wanted);
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
    return error == 0 ? 0 : ml_reader_fail_code(r, error);
}

int
ml_reader_natural(ml_reader *r, ml_value value, const char *key, uint64_t *out)
{
    switch (ml_value_kind(value)) {
    case ML_VALUE_UNSIGNED:
        *out = ml_value_as_scalar(value)->as.natural;
        return 0;
    case ML_VALUE_INT:
        if (ml_value_as_int(value) < 0) {
            return ml_reader_fail(r, ML_EFORMAT, "%s is negative", key);
        }
        *out = (uint64_t)ml_value_as_int(value);
        return 0;
    default:
        return fail_kind(r, key, value, "an integer");
    }
}

int
ml_reader_address(ml_reader *r, ml_value value, const char *key, uint64_t *out)
{
    if (ml_value_is(value, ML_VALUE_INT)) {
        *out = (uint64_t)ml_value_as_int(value);
        return 0;
    }
    return ml_reader_natural(r, value, key, out);
}

int
ml_reader_string(ml_reader *r, ml_value value, const char *key, uint32_t *out)
{
    if (!ml_value_is(value, ML_VALUE_STRING)) {
        return fail_kind(r, key, value, "a string");
    }
    int error = ml_tables_string(&r->tables, value, out);
    return error == 0 ? 0 : ml_reader_fail_code(r, error);
}

int
ml_reader_stack(ml_reader *r, ml_value value, uint32_t *out)
{
    int error = ml_tables_stack(&r->tables, value, out);
    return error == 0 ? 0 : ml_reader_fail_code(r, error);
}

int
ml_reader_list(ml_reader *r, ml_value value, const char *key, const ml_array **out)
{
    if (!ml_value_is(value, ML_VALUE_LIST)) {
        return fail_kind(r, key, value, "a list");
    }
    *out = ml_value_as_array(value);
    return 0;
}

int
ml_reader_dict(ml_reader *r, ml_value value, const char *key, const ml_array **out)
{
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        return fail_kind(r, key, value, "a dictionary");
    }
    *out = ml_value_as_array(value);
    return 0;
}

int
ml_reader_pool(ml_reader *r, ml_value value, const char *key, uint64_t pool[2])
{
    enum ml_value_kind kind = ml_value_kind(value);
    if ((kind != ML_VALUE_TUPLE && kind != ML_VALUE_LIST) ||
        ml_value_as_array(value)->count != 2) {
        return ml_reader_fail(r, ML_EFORMAT, "%s is not a pair", key);
    }
    const ml_array *pair = ml_value_as_array(value);
    int error = ml_reader_address(r, pair->items[0], key, &pool[0]);
    return error == 0 ? ml_reader_address(r, pair->items[1], key, &pool[1]) : error;
}

int
ml_reader_need_devices(ml_reader *r, size_t count)
{
    if (count > ML_RECORDING_DEVICES_MAX) {
        return ml_reader_fail(r, ML_ELIMIT, "more than %d devices",
                              ML_RECORDING_DEVICES_MAX);
    }
    r->recording->device_count =
        count > r->recording->device_count ? count : r->recording->device_count;
    return 0;
}
