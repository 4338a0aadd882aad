/* Reads pickles of plain data: a loop over an allow-list of opcodes.
 *
 * Every length is checked against the bytes left, every stack use against the innermost
 * mark, and every memo index against the stored ones.  All memory is charged to the
 * tree before it is taken.  So a short file can cost neither time nor memory. */
#include "file/snapshot/unpickle.h"

#include <string.h>

#include "base/base.h"

/* The known opcodes of CPython's pickle module. */
#define OPCODES(XX) \
    XX(PROTO, 0x80) \
    XX(STOP, '.') \
    XX(MARK, '(') \
    XX(NONE, 'N') \
    XX(NEWTRUE, 0x88) \
    XX(NEWFALSE, 0x89) \
    XX(BININT, 'J') \
    XX(BININT1, 'K') \
    XX(BININT2, 'M') \
    XX(LONG1, 0x8a) \
    XX(LONG4, 0x8b) \
    XX(BINFLOAT, 'G') \
    XX(BINUNICODE, 'X') \
    XX(SHORT_BINUNICODE, 0x8c) \
    XX(BINUNICODE8, 0x8d) \
    XX(BINBYTES, 'B') \
    XX(SHORT_BINBYTES, 'C') \
    XX(BINBYTES8, 0x8e) \
    XX(EMPTY_LIST, ']') \
    XX(APPEND, 'a') \
    XX(APPENDS, 'e') \
    XX(LIST, 'l') \
    XX(EMPTY_TUPLE, ')') \
    XX(TUPLE1, 0x85) \
    XX(TUPLE2, 0x86) \
    XX(TUPLE3, 0x87) \
    XX(TUPLE, 't') \
    XX(EMPTY_DICT, '}') \
    XX(SETITEM, 's') \
    XX(SETITEMS, 'u') \
    XX(DICT, 'd') \
    XX(BINPUT, 'q') \
    XX(LONG_BINPUT, 'r') \
    XX(MEMOIZE, 0x94) \
    XX(BINGET, 'h') \
    XX(LONG_BINGET, 'j') \
    XX(FRAME, 0x95)

/* Opcodes that import, call or look up: the whole of pickle's danger. */
#define UNSAFE_OPCODES(XX) \
    XX(GLOBAL, 'c') \
    XX(STACK_GLOBAL, 0x93) \
    XX(INST, 'i') \
    XX(OBJ, 'o') \
    XX(NEWOBJ, 0x81) \
    XX(NEWOBJ_EX, 0x92) \
    XX(REDUCE, 'R') \
    XX(BUILD, 'b') \
    XX(EXT1, 0x82) \
    XX(EXT2, 0x83) \
    XX(EXT4, 0x84) \
    XX(PERSID, 'P') \
    XX(BINPERSID, 'Q') \
    XX(NEXT_BUFFER, 0x97) \
    XX(READONLY_BUFFER, 0x98)

#define CUT_SHORT "needs more bytes than there are: the file is cut short or damaged"

enum opcode {
#define XX(name, byte) OP_##name = byte,
    OPCODES(XX)
#undef XX
};

typedef struct reader {
    const unsigned char *bytes; /* borrowed */
    size_t length;
    size_t at;
    size_t opcode_at; /* where the current opcode began */
    ml_tree *tree;
    ml_value *stack; /* owned */
    size_t depth;
    size_t stack_capacity;
    ml_value *memo; /* owned */
    size_t memo_count;
    size_t memo_capacity;
    size_t marks[ML_DEPTH_MAX + 1]; /* stack depths, innermost last */
    size_t mark_count;
    ml_read_error *error;
} reader;

static const char *
opcode_text(unsigned byte)
{
    switch (byte) {
#define XX(name, byte) \
    case byte: \
        return #name;
        OPCODES(XX)
        UNSAFE_OPCODES(XX)
#undef XX
    default:
        return "not plain data";
    }
}

static int
fail(reader *r, int code, const char *what)
{
    unsigned byte = r->opcode_at < r->length ? r->bytes[r->opcode_at] : 0;
    return ml_read_fail(r->error, code, r->opcode_at,
                        "byte %zu, opcode 0x%02x (%s): %s", r->opcode_at, byte,
                        opcode_text(byte), what);
}

/* For errors of the tree: memory and its limit. */
static int
fail_memory(reader *r, int code)
{
    return fail(r, code,
                code == ML_ELIMIT ? "the data would take far more memory than the file"
                                  : ml_strerror(code));
}

static int
refuse(reader *r, unsigned byte)
{
    switch (byte) {
#define XX(name, byte) case byte:
        UNSAFE_OPCODES(XX)
#undef XX
        return fail(r, ML_EUNSAFE, "asks for code or objects from outside the file");
    default:
        return fail(r, ML_EFORMAT, "not an opcode of a memory snapshot");
    }
}

/* Takes COUNT bytes of the file as the little-endian argument of an opcode. */
static int
argument(reader *r, size_t count, uint64_t *out)
{
    if (count > r->length - r->at) {
        return fail(r, ML_EFORMAT, CUT_SHORT);
    }
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        value |= (uint64_t)r->bytes[r->at + i] << (8 * i);
    }
    r->at += count;
    *out = value;
    return 0;
}

static int
grow(reader *r, ml_value **items, size_t *capacity)
{
    size_t old = *capacity;
    size_t wanted = old < 256 ? 256 : old + old / 2;
    int error = ml_tree_charge(r->tree, (wanted - old) * sizeof(ml_value));
    if (error == 0) {
        error = ml_grow((void **)items, capacity, wanted, sizeof(ml_value));
    }
    return error == 0 ? 0 : fail_memory(r, error);
}

static int
push(reader *r, ml_value value)
{
    if (r->depth == r->stack_capacity) {
        int error = grow(r, &r->stack, &r->stack_capacity);
        if (error != 0) {
            return error;
        }
    }
    r->stack[r->depth++] = value;
    return 0;
}

/* Values above the innermost mark: an opcode may take no others. */
static size_t
available(const reader *r)
{
    size_t floor = r->mark_count != 0 ? r->marks[r->mark_count - 1] : 0;
    return r->depth - floor;
}

static int
need(reader *r, size_t count)
{
    return available(r) >= count
               ? 0
               : fail(r, ML_EFORMAT, "takes more values than there are");
}

/* Removes the innermost mark; the COUNT values above it stay on the stack. */
static int
unmark(reader *r, size_t *count)
{
    if (r->mark_count == 0) {
        return fail(r, ML_EFORMAT, "no mark before it");
    }
    *count = available(r);
    r->mark_count--;
    return 0;
}

/* Takes LENGTH bytes of the file as a value of KIND. */
static int
push_text(reader *r, enum ml_value_kind kind, uint64_t length)
{
    if (length > r->length - r->at) {
        return fail(r, ML_EFORMAT, CUT_SHORT);
    }
    ml_value value;
    int error = ml_value_text(r->tree, kind, (const char *)r->bytes + r->at,
                              (size_t)length, &value);
    if (error != 0) {
        return fail_memory(r, error);
    }
    r->at += (size_t)length;
    return push(r, value);
}

static int
read_text(reader *r, enum ml_value_kind kind, size_t length_bytes)
{
    uint64_t length = 0;
    int error = argument(r, length_bytes, &length);
    return error == 0 ? push_text(r, kind, length) : error;
}

static int
push_int(reader *r, int64_t integer)
{
    ml_value value;
    int error = ml_value_int(r->tree, integer, &value);
    return error == 0 ? push(r, value) : fail_memory(r, error);
}

static int
read_int(reader *r, size_t bytes)
{
    uint64_t integer = 0;
    int error = argument(r, bytes, &integer);
    if (error != 0) {
        return error;
    }
    /* Only the four-byte form is signed. */
    return push_int(r, bytes == 4 ? (int64_t)(int32_t)(uint32_t)integer
                                  : (int64_t)integer);
}

static int
read_long(reader *r, size_t length_bytes)
{
    uint64_t length = 0;
    uint64_t low = 0;
    int error = argument(r, length_bytes, &length);
    if (error != 0) {
        return error;
    }
    if (length > r->length - r->at) {
        return fail(r, ML_EFORMAT, CUT_SHORT);
    }
    if (length > 9) {
        return push_text(r, ML_VALUE_HUGE, length);
    }
    size_t low_bytes = length < 8 ? (size_t)length : 8;
    if ((error = argument(r, low_bytes, &low)) != 0) {
        return error;
    }
    if (length == 9) {
        uint64_t high = 0;
        if ((error = argument(r, 1, &high)) != 0) {
            return error;
        }
        if (high != 0 || low >> 63 == 0) {
            r->at -= 9;
            return push_text(r, ML_VALUE_HUGE, length);
        }
        ml_value value;
        error = ml_value_unsigned(r->tree, low, &value);
        return error == 0 ? push(r, value) : fail_memory(r, error);
    }
    if (low_bytes != 0 && low_bytes < 8 && (low >> (8 * low_bytes - 1) & 1) != 0) {
        low |= UINT64_MAX << (8 * low_bytes);
    }
    return push_int(r, (int64_t)low);
}

static int
read_float(reader *r)
{
    uint64_t swapped = 0;
    int error = argument(r, 8, &swapped);
    if (error != 0) {
        return error;
    }
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) {
        bits = bits << 8 | (swapped >> (8 * i) & 0xff);
    }
    double real;
    memcpy(&real, &bits, sizeof(real));
    ml_value value;
    error = ml_value_real(r->tree, real, &value);
    return error == 0 ? push(r, value) : fail_memory(r, error);
}

static int
check_keys(reader *r, size_t count)
{
    return count % 2 == 0 ? 0 : fail(r, ML_EFORMAT, "a key without a value");
}

/* Replaces the COUNT topmost values by one container of KIND that holds them. */
static int
build(reader *r, enum ml_value_kind kind, size_t count)
{
    const ml_value *items = r->depth != 0 ? r->stack + r->depth - count : NULL;
    if (kind == ML_VALUE_DICT) {
        int error = check_keys(r, count);
        if (error != 0) {
            return error;
        }
    }
    ml_value value;
    int error = ml_value_array(r->tree, kind, count, &value);
    if (error == 0) {
        error = ml_array_add(r->tree, ml_value_as_array(value), items, count);
    }
    if (error != 0) {
        return fail_memory(r, error);
    }
    r->depth -= count;
    return push(r, value);
}

static int
build_small(reader *r, enum ml_value_kind kind, size_t count)
{
    int error = need(r, count);
    return error == 0 ? build(r, kind, count) : error;
}

static int
build_marked(reader *r, enum ml_value_kind kind)
{
    size_t count = 0;
    int error = unmark(r, &count);
    return error == 0 ? build(r, kind, count) : error;
}

/* Moves the COUNT topmost values into the container of KIND below them. */
static int
extend(reader *r, enum ml_value_kind kind, size_t count)
{
    int error = need(r, count + 1);
    if (error != 0) {
        return error;
    }
    const ml_value *items = r->stack + r->depth - count;
    ml_value target = items[-1];
    if (!ml_value_is(target, kind)) {
        return fail(r, ML_EFORMAT,
                    kind == ML_VALUE_DICT ? "the value to extend is not a dictionary"
                                          : "the value to extend is not a list");
    }
    if (kind == ML_VALUE_DICT && (error = check_keys(r, count)) != 0) {
        return error;
    }
    error = ml_array_add(r->tree, ml_value_as_array(target), items, count);
    if (error != 0) {
        return fail_memory(r, error);
    }
    r->depth -= count;
    return 0;
}

static int
extend_marked(reader *r, enum ml_value_kind kind)
{
    size_t count = 0;
    int error = unmark(r, &count);
    return error == 0 ? extend(r, kind, count) : error;
}

static int
put_memo(reader *r, uint64_t index)
{
    int error = need(r, 1);
    if (error != 0) {
        return error;
    }
    if (index > r->memo_count) {
        return fail(r, ML_EFORMAT, "stores past the next free place of the memo");
    }
    if (index == r->memo_count) {
        if (r->memo_count == r->memo_capacity &&
            (error = grow(r, &r->memo, &r->memo_capacity)) != 0) {
            return error;
        }
        r->memo_count++;
    }
    r->memo[index] = r->stack[r->depth - 1];
    return 0;
}

static int
read_put(reader *r, size_t bytes)
{
    uint64_t index = 0;
    int error = argument(r, bytes, &index);
    return error == 0 ? put_memo(r, index) : error;
}

static int
read_get(reader *r, size_t bytes)
{
    uint64_t index = 0;
    int error = argument(r, bytes, &index);
    if (error != 0) {
        return error;
    }
    if (index >= r->memo_count) {
        return fail(r, ML_EFORMAT, "refers to an empty place of the memo");
    }
    return push(r, r->memo[index]);
}

static int
read_mark(reader *r)
{
    if (r->mark_count == sizeof(r->marks) / sizeof(r->marks[0])) {
        return fail(r, ML_ELIMIT, "the data nest too deep");
    }
    r->marks[r->mark_count++] = r->depth;
    return 0;
}

static int
read_frame(reader *r)
{
    uint64_t length = 0;
    int error = argument(r, 8, &length);
    if (error == 0 && length > r->length - r->at) {
        return fail(r, ML_EFORMAT, CUT_SHORT);
    }
    return error;
}

static int
step(reader *r, unsigned opcode)
{
    switch (opcode) {
    case OP_NONE:
        return push(r, ML_VALUE_OF_NONE);
    case OP_NEWTRUE:
        return push(r, ML_VALUE_OF_TRUE);
    case OP_NEWFALSE:
        return push(r, ML_VALUE_OF_FALSE);
    case OP_BININT1:
        return read_int(r, 1);
    case OP_BININT2:
        return read_int(r, 2);
    case OP_BININT:
        return read_int(r, 4);
    case OP_LONG1:
        return read_long(r, 1);
    case OP_LONG4:
        return read_long(r, 4);
    case OP_BINFLOAT:
        return read_float(r);
    case OP_SHORT_BINUNICODE:
        return read_text(r, ML_VALUE_STRING, 1);
    case OP_BINUNICODE:
        return read_text(r, ML_VALUE_STRING, 4);
    case OP_BINUNICODE8:
        return read_text(r, ML_VALUE_STRING, 8);
    case OP_SHORT_BINBYTES:
        return read_text(r, ML_VALUE_BYTES, 1);
    case OP_BINBYTES:
        return read_text(r, ML_VALUE_BYTES, 4);
    case OP_BINBYTES8:
        return read_text(r, ML_VALUE_BYTES, 8);
    case OP_MARK:
        return read_mark(r);
    case OP_EMPTY_LIST:
        return build(r, ML_VALUE_LIST, 0);
    case OP_EMPTY_DICT:
        return build(r, ML_VALUE_DICT, 0);
    case OP_EMPTY_TUPLE:
        return build(r, ML_VALUE_TUPLE, 0);
    case OP_TUPLE1:
        return build_small(r, ML_VALUE_TUPLE, 1);
    case OP_TUPLE2:
        return build_small(r, ML_VALUE_TUPLE, 2);
    case OP_TUPLE3:
        return build_small(r, ML_VALUE_TUPLE, 3);
    case OP_TUPLE:
        return build_marked(r, ML_VALUE_TUPLE);
    case OP_LIST:
        return build_marked(r, ML_VALUE_LIST);
    case OP_DICT:
        return build_marked(r, ML_VALUE_DICT);
    case OP_APPEND:
        return extend(r, ML_VALUE_LIST, 1);
    case OP_APPENDS:
        return extend_marked(r, ML_VALUE_LIST);
    case OP_SETITEM:
        return extend(r, ML_VALUE_DICT, 2);
    case OP_SETITEMS:
        return extend_marked(r, ML_VALUE_DICT);
    case OP_MEMOIZE:
        return put_memo(r, r->memo_count);
    case OP_BINPUT:
        return read_put(r, 1);
    case OP_LONG_BINPUT:
        return read_put(r, 4);
    case OP_BINGET:
        return read_get(r, 1);
    case OP_LONG_BINGET:
        return read_get(r, 4);
    case OP_FRAME:
        return read_frame(r);
    default:
        return refuse(r, opcode);
    }
}

static int
read_header(reader *r)
{
    if (r->length < 2 || r->bytes[0] != OP_PROTO) {
        return ml_read_fail(r->error, ML_EFORMAT, 0,
                            "not a pickle of protocol 2 or newer");
    }
    if (r->bytes[1] < 2 || r->bytes[1] > 5) {
        return ml_read_fail(r->error, ML_EFORMAT, 1,
                            "pickle protocol %u is not one of 2 to 5",
                            (unsigned)r->bytes[1]);
    }
    r->at = 2;
    return 0;
}

static int
read_all(reader *r)
{
    int error = read_header(r);
    while (error == 0) {
        r->opcode_at = r->at;
        if (r->at == r->length) {
            return ml_read_fail(r->error, ML_EFORMAT, r->at,
                                "the file ends at byte %zu, within the data: it was "
                                "not written to its end",
                                r->at);
        }
        unsigned opcode = r->bytes[r->at++];
        if (opcode == OP_STOP) {
            if (r->mark_count != 0 || r->depth != 1) {
                return fail(r, ML_EFORMAT, "the data end with parts left over");
            }
            r->tree->root = r->stack[0];
            return ml_tree_check(r->tree, r->error);
        }
        error = step(r, opcode);
    }
    return error;
}

int
ml_unpickle(const void *bytes, size_t length, ml_tree *tree, ml_read_error *error)
{
    const size_t slack = (size_t)8 << 20;
    /* The densest snapshots, of events that all look alike, take six and a half times. */
    const size_t most = 8;
    ml_tree_init(tree,
                 length < (SIZE_MAX - slack) / most ? most * length + slack : SIZE_MAX);
    reader r = {.bytes = bytes, .length = length, .tree = tree, .error = error};
    int result = read_all(&r);
    ml_free(r.stack);
    ml_free(r.memo);
    if (result != 0) {
        ml_tree_fini(tree);
    }
    return result;
}
