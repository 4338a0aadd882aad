/* Maps tensors to their modules.  See paths.h. */
#include "training/paths.h"

#include <string.h>

#include "core/base/base.h"
#include "core/record/window.h"
#include "objects/tensors.h"

/* Names of states with cached strings: an optimizer has a few. */
#define STATES 8
#define NAME_BYTES 256
#define NO_SLOT UINT32_MAX

typedef struct entry {
    PyObject *tensor;    /* its address; borrowed, and maybe dead */
    PyObject *reference; /* weak; owned; NULL where there is a mark */
    void *mark;          /* owned */
    uint32_t module;
    uint32_t name;
    uint32_t states[STATES]; /* strings; 0: not made yet */
} entry;

struct ml_paths {
    const ml_tensors *tensors; /* NULL: no bridge, so no tensors */
    PyObject *module_type;     /* owned */
    PyObject *states[STATES];  /* owned: keys of optimizers' states, as objects */
    entry *entries;            /* owned; hashed by address */
    size_t mask;
    size_t count;
};

ml_paths *
ml_paths_begin(const ml_tensors *tensors, PyObject *module_type)
{
    ml_paths *paths = ml_alloc_zeroed(1, sizeof(*paths));
    if (paths == NULL) {
        return NULL;
    }
    paths->mask = 63;
    paths->entries = ml_alloc_zeroed(paths->mask + 1, sizeof(entry));
    if (paths->entries == NULL) {
        ml_free(paths);
        return NULL;
    }
    paths->tensors = tensors;
    paths->module_type = Py_NewRef(module_type);
    return paths;
}

static void
drop(const ml_paths *paths, const entry *e)
{
    if (e->mark != NULL) {
        paths->tensors->release(e->mark);
    }
    Py_XDECREF(e->reference);
}

void
ml_paths_free(ml_paths *paths)
{
    if (paths == NULL) {
        return;
    }
    for (size_t i = 0; i <= paths->mask; i++) {
        drop(paths, &paths->entries[i]);
    }
    for (size_t i = 0; i < STATES; i++) {
        Py_XDECREF(paths->states[i]);
    }
    Py_DECREF(paths->module_type);
    ml_free(paths->entries);
    ml_free(paths);
}

void
ml_paths_end(ml_state *state, ml_paths *paths, bool done)
{
    ml_paths *old = paths;
    if (done) {
        old = state->paths;
        state->paths = paths;
    }
    ml_paths_free(old);
}

PyObject *
ml_paths_module_type(const ml_paths *paths)
{
    return paths != NULL ? paths->module_type : NULL;
}

/* The entry at the address of TENSOR, or the free one for it. */
static entry *
slot_of(const ml_paths *paths, const PyObject *tensor)
{
    size_t at = ml_hash_u64((uintptr_t)tensor) & paths->mask;
    while (paths->entries[at].tensor != NULL && paths->entries[at].tensor != tensor) {
        at = (at + 1) & paths->mask;
    }
    return &paths->entries[at];
}

/* Whether the tensor added at this address is still there. */
static bool
is_alive(const ml_paths *paths, const entry *e)
{
    if (e->tensor == NULL) {
        return false;
    }
    if (e->mark != NULL) {
        return paths->tensors->marked(e->tensor, e->mark);
    }
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *tensor = NULL;
    bool alive = PyWeakref_GetRef(e->reference, &tensor) > 0 && tensor == e->tensor;
    Py_XDECREF(tensor);
    return alive;
#else
    return PyWeakref_GET_OBJECT(e->reference) == e->tensor;
#endif
}

/* False without memory. */
static bool
grow_paths(ml_paths *paths)
{
    if (2 * (paths->count + 1) <= paths->mask) {
        return true;
    }
    ml_paths larger = *paths;
    larger.mask = 2 * paths->mask + 1;
    larger.entries = ml_alloc_zeroed(larger.mask + 1, sizeof(entry));
    if (larger.entries == NULL) {
        return false;
    }
    for (size_t i = 0; i <= paths->mask; i++) {
        if (paths->entries[i].tensor != NULL) {
            *slot_of(&larger, paths->entries[i].tensor) = paths->entries[i];
        }
    }
    ml_free(paths->entries);
    *paths = larger;
    return true;
}

static uint32_t
string_of(const char *text, size_t length)
{
    return ml_stacks_string(ml_recorder_stacks(), text, length);
}

/* The bytes of KEY; empty if it is no text.  Raises nothing. */
static ml_slice
text_of(PyObject *key)
{
    Py_ssize_t length = 0;
    const char *text = key != NULL && PyUnicode_Check(key)
                           ? PyUnicode_AsUTF8AndSize(key, &length)
                           : NULL;
    if (text == NULL) {
        PyErr_Clear();
        return (ml_slice){.bytes = "", .length = 0};
    }
    return (ml_slice){.bytes = text, .length = (size_t)length};
}

/* Gives E an identity that distinguishes its tensor from a later one.  A weak reference
 * would prevent torch from swapping a module's parameters and buffers.  False: not a
 * tensor. */
static bool
know(const ml_paths *paths, entry *e)
{
    e->mark = paths->tensors != NULL ? paths->tensors->mark(e->tensor) : NULL;
    if (e->mark == NULL) {
        e->reference = PyWeakref_NewRef(e->tensor, NULL);
    }
    PyErr_Clear();
    return e->mark != NULL || e->reference != NULL;
}

void
ml_paths_add(ml_paths *paths, PyObject *tensor, uint32_t module, PyObject *name)
{
    entry *e = slot_of(paths, tensor);
    if (is_alive(paths, e) || !grow_paths(paths)) {
        return;
    }
    entry made = {.tensor = tensor};
    if (!know(paths, &made)) {
        return;
    }
    ml_slice text = text_of(name);
    e = slot_of(paths, tensor);
    paths->count += e->tensor == NULL;
    drop(paths, e);
    *e = (entry){.tensor = tensor,
                 .reference = made.reference,
                 .mark = made.mark,
                 .module = module,
                 .name = string_of(text.bytes, text.length)};
}

bool
ml_paths_find(const ml_paths *paths, PyObject *tensor, ml_path *out)
{
    *out = (ml_path){.slot = NO_SLOT};
    if (paths == NULL) {
        return false;
    }
    const entry *e = slot_of(paths, tensor);
    if (!is_alive(paths, e)) {
        return false;
    }
    *out = (ml_path){
        .module = e->module, .name = e->name, .slot = (uint32_t)(e - paths->entries)};
    return true;
}

void
ml_paths_fetch(const ml_paths *paths, PyObject *const *tensors, size_t count)
{
    for (size_t i = 0; paths != NULL && i < count; i++) {
        __builtin_prefetch(
            &paths->entries[ml_hash_u64((uintptr_t)tensors[i]) & paths->mask]);
    }
    for (size_t i = 0; paths != NULL && i < count; i++) {
        __builtin_prefetch(slot_of(paths, tensors[i])->mark);
    }
}

/* "weight.exp_avg", or as much of it as exists. */
static uint32_t
join(uint32_t name, PyObject *key)
{
    char text[NAME_BYTES];
    ml_slice first = ml_stacks_text(ml_recorder_stacks(), name);
    ml_slice last = text_of(key);
    if (name == ML_STACK_LOST) {
        return name;
    }
    if (first.length == 0 || first.length + 1 + last.length > sizeof(text)) {
        return string_of(last.bytes, last.length);
    }
    memcpy(text, first.bytes, first.length);
    text[first.length] = '.';
    memcpy(text + first.length + 1, last.bytes, last.length);
    return string_of(text, first.length + 1 + last.length);
}

uint32_t
ml_paths_state(ml_paths *paths, const ml_path *path, PyObject *key)
{
    for (size_t i = 0; path->slot != NO_SLOT && i < STATES; i++) {
        if (paths->states[i] == NULL) {
            paths->states[i] = Py_NewRef(key);
        }
        if (paths->states[i] == key) {
            uint32_t *known = &paths->entries[path->slot].states[i];
            *known = *known != 0 ? *known : join(path->name, key);
            return *known;
        }
    }
    return join(path->name, key);
}
