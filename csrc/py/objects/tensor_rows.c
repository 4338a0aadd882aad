/* Makes the rows of a report.  See tensor_rows.h.
 *
 * Each added tensor is a subject with parts: its own memory, that of its components or
 * wrapped tensors, and the same of its gradient.  A part may be the whole of another
 * subject, such as a gradient that Python has seen.  It then stays a part, because that
 * tells its purpose. */
#include "objects/tensor_rows_parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"
#include "objects/tensor_attributes.h"
#include "state.h"

#define PATH_BYTES 512
#define DEPTH 4 /* of nested wrappers */

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
    const char *prefix; /* the path from the ml_row_subject */
    unsigned depth;     /* number of wrappers around it */
} reading;

static int
claim(ml_rows *rows, uint64_t impl)
{
    const ml_row_subject *s = &rows->subjects[rows->subject_count - 1];
    return impl == s->root ? 0 : ml_addresses_add(&rows->claimed, impl, 0);
}

static int
add_part(ml_rows *rows, const char *path, const ml_tensor_part *from)
{
    size_t length = strlen(path) + 1;

    if (ml_grow((void **)&rows->parts, &rows->part_capacity, rows->part_count + 1,
                sizeof(ml_row_part)) < 0 ||
        ml_grow((void **)&rows->text, &rows->text_capacity, rows->text_bytes + length,
                1) < 0 ||
        ml_grow((void **)&rows->sizes, &rows->size_capacity,
                rows->size_count + from->dims, sizeof(int64_t)) < 0) {
        return ML_ENOMEM;
    }
    ml_row_part *p = &rows->parts[rows->part_count];
    *p = (ml_row_part){.subject = rows->subject_count - 1,
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

/* The parts in WRAPPER: one tensor has the wrapper's own name, several have their
 * attributes'.  Returns their number, or a negative error. */
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
    ml_row_subject *s = &r->rows->subjects[r->rows->subject_count - 1];
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
                rows->subject_count + count, sizeof(ml_row_subject)) < 0 ||
        ml_grow((void **)&rows->parts, &rows->part_capacity, rows->part_count + count,
                sizeof(ml_row_part)) < 0) {
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
                             rows->subject_count + 1, sizeof(ml_row_subject)) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    ml_row_subject *s = &rows->subjects[rows->subject_count++];
    *s = (ml_row_subject){
        .tensor = tensor, .first_part = rows->part_count, .owned = owned};
    if (rows->tensors->parts(tensor, read_part, &r) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    s->part_count = rows->part_count - s->first_part;
    return 0;
}

/* ---- Which parts are rows ---- */

static int
order_subject(ml_rows *rows, const ml_row_subject *s, ml_addresses *seen)
{
    for (size_t i = s->first_part; i < s->first_part + s->part_count; i++) {
        const ml_row_part *p = &rows->parts[i];
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

/* Subjects that are parts of others come last; nothing should be left of them. */
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
            const ml_row_subject *s = &rows->subjects[i];
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

/* Memory to compare, in one place. */
typedef struct extent {
    uint64_t device; /* and its kind */
    uint64_t addr;
    uint64_t bytes;
    const ml_row_part *p;
    size_t position; /* among the rows */
} extent;

static extent
extent_of(const ml_row_part *p, size_t position)
{
    uint64_t device = (uint64_t)(uint32_t)p->device_number << 32 | (uint32_t)p->device;
    return (extent){device, p->addr, p->bytes, p, position};
}

#define COMPARE(a, b) \
    if ((a) != (b)) { \
        return (a) < (b) ? -1 : 1; \
    }

/* By address, larger first; of equal ones, the first row first and empty views last. */
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
lies_in(const ml_row_part *inner, const ml_row_part *outer)
{
    return inner->device_number == outer->device_number &&
           inner->device == outer->device && inner->addr >= outer->addr &&
           inner->bytes <= outer->bytes &&
           inner->addr - outer->addr <= outer->bytes - inner->bytes;
}

/* Finds for each row the first row whose memory contains it.  torch may have several
 * storages at one address, for example through DLPack. */
static int
find_shared(ml_rows *rows)
{
    extent *extents = ml_alloc_zeroed(rows->row_count + 1, sizeof(*extents));
    size_t count = 0;
    const ml_row_part *outer = NULL;

    if (extents == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < rows->row_count; i++) {
        const ml_row_part *p = &rows->parts[rows->order[i]];
        if (p->bytes > 0) {
            extents[count++] = extent_of(p, i);
        }
    }
    qsort(extents, count, sizeof(*extents), compare_extents);
    for (size_t i = 0; i < count; i++) {
        const ml_row_part *p = extents[i].p;
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

/* An empty view matters only if no other row shows its memory. */
static void
drop_empty(ml_rows *rows)
{
    size_t kept = 0;

    for (size_t i = 0; i < rows->row_count; i++) {
        const ml_row_part *p = &rows->parts[rows->order[i]];
        if (p->numel > 0 || p->first == rows->order[i]) {
            rows->order[kept++] = rows->order[i];
        }
    }
    rows->row_count = kept;
}

/* ---- Names ---- */

static PyObject *
base_name(const ml_rows *rows, ml_names *names, const ml_row_subject *s,
          unsigned long *number)
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
        ml_row_part *p = &rows->parts[rows->order[i]];
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
