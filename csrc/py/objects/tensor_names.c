/* Names tensors.  See tensor_names.h. */
#include "objects/tensor_names.h"

#include <string.h>

#include "core/base/base.h"
#include "objects/addresses.h"

typedef struct entry {
    PyObject *tensor;    /* its address; borrowed, and maybe dead */
    PyObject *reference; /* weak; owned; NULL where there is a mark */
    void *mark;          /* owned */
    PyObject *name;      /* owned */
    uint64_t order;      /* when it was named */
    uint64_t look;       /* the last look that met it */
    enum ml_name_source source;
} entry;

struct ml_names {
    const ml_tensors *tensors;
    entry *entries; /* owned */
    size_t count;
    size_t capacity;
    ml_addresses map; /* of tensors to entries */
    uint64_t look;
    uint64_t named; /* so far */
    bool owners_gone;
};

ml_names *
ml_names_new(const ml_tensors *tensors)
{
    ml_names *names = ml_alloc_zeroed(1, sizeof(*names));
    if (names != NULL) {
        names->tensors = tensors;
    }
    return names;
}

static void
drop(const ml_names *names, entry *e)
{
    names->tensors->release(e->mark);
    Py_XDECREF(e->reference);
    Py_XDECREF(e->name);
}

void
ml_names_free(ml_names *names)
{
    if (names == NULL) {
        return;
    }
    for (size_t i = 0; i < names->count; i++) {
        drop(names, &names->entries[i]);
    }
    ml_addresses_fini(&names->map);
    ml_free(names->entries);
    ml_free(names);
}

void
ml_names_begin(ml_names *names, bool owners_gone)
{
    names->look++;
    names->owners_gone = owners_gone;
}

void
ml_names_end(ml_names *names)
{
    size_t kept = 0;

    while (kept < names->count && names->entries[kept].look == names->look) {
        kept++;
    }
    if (kept == names->count) {
        return;
    }
    kept = 0;
    ml_addresses_fini(&names->map);
    for (size_t i = 0; i < names->count; i++) {
        entry *e = &names->entries[i];
        /* Without memory for the map, the name is lost; the next look restores it. */
        if (e->look == names->look &&
            ml_addresses_add(&names->map, (uintptr_t)e->tensor, kept) > 0) {
            names->entries[kept++] = *e;
        }
        else {
            drop(names, e);
        }
    }
    names->count = kept;
}

/* Whether TENSOR is the tensor of E, and not a later one at its address. */
static bool
is_same(const ml_names *names, const entry *e, PyObject *tensor)
{
    if (e->mark != NULL) {
        return names->tensors->marked(tensor, e->mark);
    }
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *alive = NULL;
    bool same = PyWeakref_GetRef(e->reference, &alive) > 0 && alive == tensor;
    Py_XDECREF(alive);
    return same;
#else
    return PyWeakref_GET_OBJECT(e->reference) == tensor;
#endif
}

static entry *
entry_at(const ml_names *names, PyObject *tensor)
{
    size_t *number = ml_addresses_find(&names->map, (uintptr_t)tensor);
    return number != NULL ? &names->entries[*number] : NULL;
}

PyObject *
ml_names_find(ml_names *names, PyObject *tensor, uint64_t *order)
{
    entry *e = entry_at(names, tensor);
    if (e == NULL || !is_same(names, e, tensor)) {
        return NULL;
    }
    if (e->look != names->look && e->source == ML_NAME_OWNER && !names->owners_gone) {
        return NULL;
    }
    e->look = names->look;
    *order = e->order;
    return e->name;
}

PyObject *
ml_names_find_number(const ml_names *names, PyObject *tensor)
{
    const entry *e = entry_at(names, tensor);
    bool numbered =
        e != NULL && e->source == ML_NAME_NUMBER && is_same(names, e, tensor);
    return numbered ? e->name : NULL;
}

/* Gives E, which has none, an identity of TENSOR.  0, or -1 with an exception. */
static int
know(const ml_names *names, entry *e, PyObject *tensor, bool mark)
{
    e->tensor = tensor;
    e->mark = mark ? names->tensors->mark(tensor) : NULL;
    e->reference = e->mark == NULL ? PyWeakref_NewRef(tensor, NULL) : NULL;
    return e->mark == NULL && e->reference == NULL ? -1 : 0;
}

/* The entry for TENSOR, new if needed; NULL with an exception. */
static entry *
entry_for(ml_names *names, PyObject *tensor)
{
    entry *e = entry_at(names, tensor);
    if (e != NULL) {
        return e;
    }
    if (ml_grow((void **)&names->entries, &names->capacity, names->count + 1,
                sizeof(*names->entries)) < 0 ||
        ml_addresses_add(&names->map, (uintptr_t)tensor, names->count) < 0) {
        PyErr_NoMemory();
        return NULL;
    }
    e = &names->entries[names->count++];
    *e = (entry){.tensor = tensor};
    return e;
}

int
ml_names_give(ml_names *names, PyObject *tensor, PyObject *name,
              enum ml_name_source source, bool mark)
{
    uint64_t order;
    entry *e = entry_at(names, tensor);
    bool known = e != NULL && is_same(names, e, tensor);
    if (known && e->look == names->look && ml_names_find(names, tensor, &order)) {
        return 0;
    }
    if (known && (e->mark != NULL) == mark) {
        Py_SETREF(e->name, Py_NewRef(name));
        e->look = names->look;
        e->source = source;
        return 0;
    }
    entry made = {.name = Py_NewRef(name),
                  .order = names->named++,
                  .look = names->look,
                  .source = source};
    e = know(names, &made, tensor, mark) == 0 ? entry_for(names, tensor) : NULL;
    if (e == NULL) {
        drop(names, &made);
        return -1;
    }
    drop(names, e);
    *e = made;
    return 0;
}

PyObject *
ml_names_number(ml_names *names, PyObject *tensor, bool mark, unsigned long *number)
{
    const char *type = Py_TYPE(tensor)->tp_name;
    const char *dot = strrchr(type, '.');
    PyObject *name =
        PyUnicode_FromFormat("%s%lu", dot != NULL ? dot + 1 : type, *number);

    if (name != NULL && ml_names_give(names, tensor, name, ML_NAME_NUMBER, mark) < 0) {
        Py_CLEAR(name);
    }
    *number += name != NULL;
    return name;
}
