/* The rows of a report.  See tensor_rows.h.
 *
 * Every tensor that was added is a subject with parts: its own memory, that of its
 * components or of the tensors that it wraps, and the same of its gradient.  A part that is
 * the whole of another subject (a gradient that Python has seen, the inside of a wrapper)
 * stays where it is a part, since that says what it is for. */
#include "objects/tensor_rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/answers/unheld.h"
#include "core/base/base.h"
#include "objects/addresses.h"
#include "objects/tensor_attributes.h"
#include "state.h"

#define PATH_BYTES 512
#define DEPTH 4   /* of wrappers in wrappers */
#define BLOCK 512 /* bytes; the caching allocator's blocks are multiples */

typedef struct part {
    size_t subject;
    size_t path;  /* into text: ".grad" */
    size_t sizes; /* into sizes */
    size_t dims;
    size_t first; /* the part in whose memory it lies; its own number: none before it */
    uint64_t impl;
    uint64_t addr;
    uint64_t bytes;
    uint64_t numel;
    PyObject *name; /* owned; NULL until it is a row */
    char device_type[16];
    int device_number;
    int device;
} part;

typedef struct subject {
    PyObject *tensor; /* borrowed; not to be looked at once settled */
    uint64_t root;    /* its TensorImpl */
    size_t first_part;
    size_t part_count;
    bool leaf;
    bool owned;
} subject;

struct ml_rows {
    const ml_tensors *tensors;
    PyTypeObject *tensor_type;    /* borrowed */
    PyTypeObject *parameter_type; /* borrowed */
    subject *subjects;            /* owned, as all arrays here */
    size_t subject_count;
    size_t subject_capacity;
    part *parts;
    size_t part_count;
    size_t part_capacity;
    char *text; /* zero-terminated paths */
    size_t text_bytes;
    size_t text_capacity;
    int64_t *sizes;
    size_t size_count;
    size_t size_capacity;
    ml_addresses known;   /* subjects by their object */
    ml_addresses claimed; /* TensorImpls that are parts of a subject, its own apart */
    size_t *order;        /* parts that are rows */
    size_t row_count;
};

ml_rows *
ml_rows_new(const ml_tensors *tensors, PyTypeObject *tensor_type,
            PyTypeObject *parameter_type)
{
    ml_rows *rows = ml_alloc_zeroed(1, sizeof(*rows));
    if (rows != NULL) {
        rows->tensors = tensors;
        rows->tensor_type = tensor_type;
        rows->parameter_type = parameter_type;
    }
    return rows;
}

void
ml_rows_free(ml_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    for (size_t i = 0; i < rows->part_count; i++) {
        Py_XDECREF(rows->parts[i].name);
    }
    ml_addresses_fini(&rows->known);
    ml_addresses_fini(&rows->claimed);
    ml_free(rows->subjects);
    ml_free(rows->parts);
    ml_free(rows->text);
    ml_free(rows->sizes);
    ml_free(rows->order);
    ml_free(rows);
}

/* ---- What a tensor consists of ---- */

typedef struct reading {
    ml_rows *rows;
    const char *prefix; /* how what is read is reached from the subject */
    unsigned depth;     /* in how many wrappers it is */
} reading;

static int
claim(ml_rows *rows, uint64_t impl)
{
    const subject *s = &rows->subjects[rows->subject_count - 1];
    return impl == s->root ? 0 : ml_addresses_add(&rows->claimed, impl, 0);
}

static int
add_part(ml_rows *rows, const char *path, const ml_tensor_part *from)
{
    size_t length = strlen(path) + 1;

    if (ml_grow((void **)&rows->parts, &rows->part_capacity, rows->part_count + 1,
                sizeof(part)) < 0 ||
        ml_grow((void **)&rows->text, &rows->text_capacity, rows->text_bytes + length,
                1) < 0 ||
        ml_grow((void **)&rows->sizes, &rows->size_capacity,
                rows->size_count + from->dims, sizeof(int64_t)) < 0) {
        return ML_ENOMEM;
    }
    part *p = &rows->parts[rows->part_count];
    *p = (part){.subject = rows->subject_count - 1,
                .path = rows->text_bytes,
                .sizes = rows->size_count,
                .dims = from->dims,
                .first = rows->part_count,
                .impl = from->impl,
                .addr = from->addr,
                .bytes = from->bytes,
                .numel = from->numel,
                .device_number = from->device_number,
                .device = from->device};
    strncpy(p->device_type, from->device_type, sizeof(p->device_type) - 1);
    memcpy(rows->text + rows->text_bytes, path, length);
    if (from->dims > 0) {
        memcpy(rows->sizes + rows->size_count, from->sizes,
               from->dims * sizeof(int64_t));
    }
    rows->text_bytes += length;
    rows->size_count += from->dims;
    rows->part_count++;
    return 0;
}

static int read_part(void *context, const ml_tensor_part *from);

/* The parts of what WRAPPER holds: of one tensor by the wrapper's own name, of several by
 * their attributes'.  How many there were, or a negative error. */
static int
read_wrapper(const reading *outer, const char *path, PyObject *wrapper)
{
    ml_attribute held[ML_ATTRIBUTES];
    size_t count = ml_attributes_read(wrapper, outer->rows->tensor_type, held);
    int result = 0;

    for (size_t i = 0; i < count && result == 0; i++) {
        char inner[PATH_BYTES];
        PyOS_snprintf(inner, sizeof(inner), count == 1 ? "%s" : "%s.%s", path,
                      held[i].name);
        reading r = {outer->rows, inner, outer->depth + 1};
        result = outer->rows->tensors->parts(held[i].tensor, read_part, &r);
    }
    ml_attributes_drop(held, count);
    return result < 0 ? result : (int)count;
}

static int
read_part(void *context, const ml_tensor_part *from)
{
    const reading *r = context;
    subject *s = &r->rows->subjects[r->rows->subject_count - 1];
    const char *path = from->suffix;
    char joined[PATH_BYTES];

    if (r->prefix[0] != '\0') {
        PyOS_snprintf(joined, sizeof(joined), "%s%s", r->prefix, from->suffix);
        path = joined;
    }
    if (s->root == 0) {
        s->root = from->whole;
        s->leaf = (from->flags & ML_TENSOR_LEAF) != 0;
    }
    if (claim(r->rows, from->whole) < 0 || claim(r->rows, from->impl) < 0) {
        return ML_ENOMEM;
    }
    if ((from->flags & ML_TENSOR_WRAPPER) && from->object != NULL && r->depth < DEPTH) {
        int held = read_wrapper(r, path, (PyObject *)(uintptr_t)from->object);
        if (held != 0) {
            return held < 0 ? held : 0;
        }
    }
    return add_part(r->rows, path, from);
}

bool
ml_rows_has(const ml_rows *rows, PyObject *tensor)
{
    return ml_addresses_find(&rows->known, (uintptr_t)tensor) != NULL;
}

int
ml_rows_reserve(ml_rows *rows, size_t count)
{
    if (ml_addresses_reserve(&rows->known, rows->known.count + count) < 0 ||
        ml_grow((void **)&rows->subjects, &rows->subject_capacity,
                rows->subject_count + count, sizeof(subject)) < 0 ||
        ml_grow((void **)&rows->parts, &rows->part_capacity, rows->part_count + count,
                sizeof(part)) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

int
ml_rows_add(ml_rows *rows, PyObject *tensor, bool owned)
{
    reading r = {rows, "", 0};
    int added = ml_addresses_add(&rows->known, (uintptr_t)tensor, rows->subject_count);
    if (added == 0) {
        return 0;
    }
    if (added < 0 || ml_grow((void **)&rows->subjects, &rows->subject_capacity,
                             rows->subject_count + 1, sizeof(subject)) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    subject *s = &rows->subjects[rows->subject_count++];
    *s = (subject){.tensor = tensor, .first_part = rows->part_count, .owned = owned};
    if (rows->tensors->parts(tensor, read_part, &r) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    s->part_count = rows->part_count - s->first_part;
    return 0;
}

/* ---- Which parts are rows ---- */

static int
order_subject(ml_rows *rows, const subject *s, ml_addresses *seen)
{
    for (size_t i = s->first_part; i < s->first_part + s->part_count; i++) {
        const part *p = &rows->parts[i];
        if (p->numel == 0 && p->bytes == 0) {
            continue;
        }
        int added = ml_addresses_add(seen, p->impl, i);
        if (added < 0) {
            return added;
        }
        if (added > 0) {
            rows->order[rows->row_count++] = i;
        }
    }
    return 0;
}

/* Subjects that are parts of others come last, where nothing should be left of them. */
static int
order_parts(ml_rows *rows)
{
    ml_addresses seen = {0};
    int result = ml_addresses_reserve(&seen, rows->part_count);

    rows->order = ml_alloc_zeroed(rows->part_count + 1, sizeof(*rows->order));
    if (rows->order == NULL) {
        result = ML_ENOMEM;
    }
    for (int last = 0; last < 2; last++) {
        for (size_t i = 0; i < rows->subject_count && result == 0; i++) {
            const subject *s = &rows->subjects[i];
            bool is_part =
                !s->owned && ml_addresses_find(&rows->claimed, s->root) != NULL;
            if (is_part == (last == 1)) {
                result = order_subject(rows, s, &seen);
            }
        }
    }
    ml_addresses_fini(&seen);
    return result;
}

/* ---- Whose memory it is ---- */

/* What is compared, in one place. */
typedef struct extent {
    uint64_t device; /* and its kind */
    uint64_t addr;
    uint64_t bytes;
    const part *p;
    size_t position; /* among the rows */
} extent;

static extent
extent_of(const part *p, size_t position)
{
    uint64_t device = (uint64_t)(uint32_t)p->device_number << 32 | (uint32_t)p->device;
    return (extent){device, p->addr, p->bytes, p, position};
}

#define COMPARE(a, b) \
    if ((a) != (b)) { \
        return (a) < (b) ? -1 : 1; \
    }

/* By address, the larger first; of equal ones the first row, empty views last. */
static int
compare_extents(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    COMPARE(a->device, b->device)
    COMPARE(a->addr, b->addr)
    COMPARE(b->bytes, a->bytes)
    COMPARE(a->p->numel == 0, b->p->numel == 0)
    COMPARE(a->position, b->position)
    return 0;
}

static bool
lies_in(const part *inner, const part *outer)
{
    return inner->device_number == outer->device_number &&
           inner->device == outer->device && inner->addr >= outer->addr &&
           inner->bytes <= outer->bytes &&
           inner->addr - outer->addr <= outer->bytes - inner->bytes;
}

/* Finds for each row the first in whose memory it lies.  Storages of one address may be
 * several objects of torch's: through DLPack, for one. */
static int
find_shared(ml_rows *rows)
{
    extent *extents = ml_alloc_zeroed(rows->row_count + 1, sizeof(*extents));
    size_t count = 0;
    const part *outer = NULL;

    if (extents == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < rows->row_count; i++) {
        const part *p = &rows->parts[rows->order[i]];
        if (p->bytes > 0) {
            extents[count++] = extent_of(p, i);
        }
    }
    qsort(extents, count, sizeof(*extents), compare_extents);
    for (size_t i = 0; i < count; i++) {
        const part *p = extents[i].p;
        if (outer != NULL && lies_in(p, outer)) {
            rows->parts[p - rows->parts].first = (size_t)(outer - rows->parts);
        }
        else {
            outer = p;
        }
    }
    ml_free(extents);
    return 0;
}

/* An empty view says something only where nobody else shows its memory. */
static void
drop_empty(ml_rows *rows)
{
    size_t kept = 0;

    for (size_t i = 0; i < rows->row_count; i++) {
        const part *p = &rows->parts[rows->order[i]];
        if (p->numel > 0 || p->first == rows->order[i]) {
            rows->order[kept++] = rows->order[i];
        }
    }
    rows->row_count = kept;
}

/* ---- Names ---- */

static PyObject *
base_name(const ml_rows *rows, ml_names *names, const subject *s, unsigned long *number)
{
    uint64_t order;
    PyObject *name = ml_names_find(names, s->tensor, &order);
    if (name != NULL) {
        return Py_NewRef(name);
    }
    bool mark = s->leaf || PyType_IsSubtype(Py_TYPE(s->tensor), rows->parameter_type);
    return ml_names_number(names, s->tensor, mark, number);
}

static int
name_rows(ml_rows *rows, ml_names *names, unsigned long *number)
{
    for (size_t i = 0; i < rows->row_count; i++) {
        part *p = &rows->parts[rows->order[i]];
        const char *path = rows->text + p->path;
        PyObject *name = base_name(rows, names, &rows->subjects[p->subject], number);
        if (name != NULL && path[0] != '\0') {
            Py_SETREF(name, PyUnicode_FromFormat("%U%s", name, path));
        }
        if (name == NULL) {
            return -1;
        }
        p->name = name;
    }
    return 0;
}

int
ml_rows_settle(ml_rows *rows, ml_names *names, unsigned long *number)
{
    if (order_parts(rows) < 0 || find_shared(rows) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    drop_empty(rows);
    return name_rows(rows, names, number);
}

/* ---- For Python ---- */

static bool
is_own(const ml_rows *rows, const part *p)
{
    return p->first == (size_t)(p - rows->parts);
}

static uint64_t
used_bytes(const ml_rows *rows, const part *p)
{
    return is_own(rows, p) ? (p->bytes + BLOCK - 1) / BLOCK * BLOCK : 0;
}

static PyObject *
sizes_tuple(const ml_rows *rows, const part *p)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)p->dims);
    for (size_t i = 0; i < p->dims && tuple != NULL; i++) {
        PyObject *size = PyLong_FromLongLong(rows->sizes[p->sizes + i]);
        if (size == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, size);
    }
    return tuple;
}

/* The keys of a row, made once for all rows. */
#define ROW_KEYS(XX) \
    XX(name) XX(sizes) XX(elements) XX(used_bytes) XX(storage_bytes) XX(shared_with)

enum row_key {
#define XX(key) KEY_##key,
    ROW_KEYS(XX)
#undef XX
    KEY_COUNT
};

/* False with an exception.  *FORM: a dict of all keys, which it owns, and whose copies need
 * not grow. */
static bool
make_keys(PyObject *keys[KEY_COUNT], PyObject **form)
{
    static const char *const texts[] = {
#define XX(key) #key,
        ROW_KEYS(XX)
#undef XX
    };
    *form = PyDict_New();
    bool made = *form != NULL;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        keys[i] = PyUnicode_InternFromString(texts[i]);
        made = made && keys[i] != NULL && PyDict_SetItem(*form, keys[i], Py_None) == 0;
        Py_XDECREF(keys[i]);
    }
    return made;
}

static PyObject *
row_dict(const ml_rows *rows, const part *p, PyObject *const keys[KEY_COUNT],
         PyObject *form)
{
    PyObject *shared = is_own(rows, p) ? Py_None : rows->parts[p->first].name;
    PyObject *values[KEY_COUNT] = {
        [KEY_name] = Py_NewRef(p->name),
        [KEY_sizes] = sizes_tuple(rows, p),
        [KEY_elements] = PyLong_FromUnsignedLongLong(p->numel),
        [KEY_used_bytes] = PyLong_FromUnsignedLongLong(used_bytes(rows, p)),
        [KEY_storage_bytes] = PyLong_FromUnsignedLongLong(p->bytes),
        [KEY_shared_with] = Py_NewRef(shared),
    };
    PyObject *dict = PyDict_Copy(form);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (dict != NULL &&
            (values[i] == NULL || PyDict_SetItem(dict, keys[i], values[i]) < 0)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(values[i]);
    }
    return dict;
}

static bool
same_device(const part *a, const part *b)
{
    return a->device_number == b->device_number && a->device == b->device;
}

/* The rows of the device of LIKE. */
static PyObject *
device_dict(const ml_rows *rows, const part *like)
{
    PyObject *dict = PyDict_New(), *list = PyList_New(0);
    /* Of these there is one each. */
    bool single =
        strcmp(like->device_type, "cpu") == 0 || strcmp(like->device_type, "meta") == 0;
    uint64_t elements = 0, used = 0;
    PyObject *keys[KEY_COUNT], *form;

    if (!make_keys(keys, &form)) {
        Py_CLEAR(list);
    }
    for (size_t i = 0; i < rows->row_count && list != NULL; i++) {
        const part *p = &rows->parts[rows->order[i]];
        if (!same_device(p, like)) {
            continue;
        }
        PyObject *row = row_dict(rows, p, keys, form);
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
        elements += p->numel;
        used += used_bytes(rows, p);
    }
    PyObject *name =
        single ? PyUnicode_FromString(like->device_type)
               : PyUnicode_FromFormat("%s:%d", like->device_type, like->device);
    if (dict == NULL || ml_py_set(dict, "device", name) < 0 ||
        ml_py_set(dict, "elements", PyLong_FromUnsignedLongLong(elements)) < 0 ||
        ml_py_set(dict, "used_bytes", PyLong_FromUnsignedLongLong(used)) < 0 ||
        list == NULL || ml_py_set(dict, "rows", Py_NewRef(list)) < 0) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(list);
    Py_XDECREF(form);
    return dict;
}

/* The part whose device comes next after that of LAST; NULL: there is none. */
static const part *
next_device(const ml_rows *rows, const part *last)
{
    const part *next = NULL;

    for (size_t i = 0; i < rows->row_count; i++) {
        const part *p = &rows->parts[rows->order[i]];
        bool after =
            last == NULL || p->device_number > last->device_number ||
            (p->device_number == last->device_number && p->device > last->device);
        bool before =
            next == NULL || p->device_number < next->device_number ||
            (p->device_number == next->device_number && p->device < next->device);
        if (after && before) {
            next = p;
        }
    }
    return next;
}

PyObject *
ml_rows_list(const ml_rows *rows)
{
    PyObject *list = PyList_New(0);

    for (const part *p = next_device(rows, NULL); p != NULL && list != NULL;
         p = next_device(rows, p)) {
        PyObject *dict = device_dict(rows, p);
        if (dict == NULL || PyList_Append(list, dict) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(dict);
    }
    return list;
}

PyObject *
ml_rows_claims(const ml_rows *rows, int device)
{
    ml_claim *claims = ml_alloc((rows->row_count + 1) * sizeof(*claims));
    size_t count = 0;

    if (claims == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < rows->row_count; i++) {
        const part *p = &rows->parts[rows->order[i]];
        if (p->bytes > 0 && is_own(rows, p) && p->device == device &&
            strcmp(p->device_type, "cuda") == 0) {
            claims[count++] = (ml_claim){p->addr, used_bytes(rows, p)};
        }
    }
    PyObject *packed = PyBytes_FromStringAndSize((char *)claims,
                                                 (Py_ssize_t)(count * sizeof(*claims)));
    ml_free(claims);
    return packed;
}
