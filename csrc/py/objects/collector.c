/* Finds objects in Python's garbage collector.  See collector.h.
 *
 * gc.get_objects() lists all objects, which costs tens of milliseconds once torch is
 * imported, mostly for references.  This walk reads two words of each object.  It waits
 * less for memory, because it follows a list from many places at once.  Lists cannot
 * change meanwhile: the GIL is held and no object is made. */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
/* CPython's internal headers cause warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#include <Python.h>

/* From CPython 3.14 on, releases of one version have other lists: a public function walks
 * them. */
#if PY_VERSION_HEX >= 0x030e0000
#define COLLECTOR_VISITED
#else
#include <internal/pycore_interp.h>
#endif
#undef Py_BUILD_CORE
#pragma GCC diagnostic pop

#include "objects/collector.h"

#include <stdbool.h>
#include <stdint.h>

#include "core/base/base.h"

/* A cache of types' verdicts.  A process with torch has about a thousand types, and a
 * few of them have most objects. */
#define KNOWN 1024

typedef struct finding {
    PyObject *object; /* owned */
    size_t walk;      /* the walk that met it */
} finding;

typedef struct search {
    PyTypeObject *const *types; /* borrowed */
    size_t count;
    finding *found; /* owned.  Not a Python list: none may be made meanwhile */
    size_t found_count;
    size_t capacity;
    size_t walk; /* the current walk */
    bool failed; /* for want of memory, or with an exception */
    const PyTypeObject *unwanted[KNOWN];
    const PyTypeObject *wanted[KNOWN];
} search;

static bool
derives(const search *s, PyTypeObject *type)
{
    for (size_t i = 0; i < s->count; i++) {
        /* isinstance() would run __class__ of any object on the heap. */
        if (PyType_IsSubtype(type, s->types[i])) {
            return true;
        }
    }
    return false;
}

static void
add_object(search *s, PyObject *object)
{
    if (ml_grow((void **)&s->found, &s->capacity, s->found_count + 1,
                sizeof(*s->found)) < 0) {
        s->failed = true;
        return;
    }
    s->found[s->found_count++] = (finding){Py_NewRef(object), s->walk};
}

static inline void
look_at_object(search *s, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    size_t at = ((uintptr_t)type >> 4 ^ (uintptr_t)type >> 14) % KNOWN;

    /* Most objects end here. */
    if (s->unwanted[at] == type) {
        return;
    }
    if (s->wanted[at] == type || derives(s, type)) {
        s->wanted[at] = type;
        add_object(s, object);
    }
    else {
        s->unwanted[at] = type;
    }
}

#ifdef COLLECTOR_VISITED

static int
visit(PyObject *object, void *s)
{
    look_at_object(s, object);
    return 1;
}

static void
look_at_all(search *s)
{
    PyUnstable_GC_VisitObjects(visit, s);
}

#else

/* The list of all objects must be gone before any Python code runs: it refers to tuples
 * that other threads are still filling, and CPython raises SystemError in a thread whose
 * unfinished tuple someone else refers to. */
static void
look_at_listed(search *s)
{
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *all = gc != NULL ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;

    s->failed = all == NULL || !PyList_Check(all);
    for (Py_ssize_t i = 0; !s->failed && i < PyList_GET_SIZE(all); i++) {
        look_at_object(s, PyList_GET_ITEM(all, i));
    }
    Py_XDECREF(all);
    Py_XDECREF(gc);
}

/* Where walks begin, and where the walk that comes there ends: the heads of the lists, and
 * objects in them that can be had otherwise. */
#define STARTS 256
#define PLACES (4 * STARTS)
#define MARKS (64 * STARTS)
#define WALKS 16

typedef struct starts {
    const PyGC_Head *at[STARTS];
    size_t count;
    size_t heads; /* the first are heads, not objects */
    size_t begun;
    const PyGC_Head *places[PLACES]; /* a hash set of the starts */
    uint64_t marks[MARKS / 64];      /* of their hashes: few other objects share one */
    const PyGC_Head *ends[STARTS];   /* the start at which each walk ended */
} starts;

/* The two low bits are the collector's. */
static inline const PyGC_Head *
next_of(const PyGC_Head *at)
{
    return (const PyGC_Head *)(at->_gc_next & ~(uintptr_t)3);
}

static inline size_t
hash_of(const PyGC_Head *at)
{
    return (uintptr_t)at >> 4 ^ (uintptr_t)at >> 13;
}

static size_t
place_of(const starts *all, const PyGC_Head *at)
{
    size_t place = hash_of(at) % PLACES;

    while (all->places[place] != NULL && all->places[place] != at) {
        place = (place + 1) % PLACES;
    }
    return place;
}

static inline bool
is_start(const starts *all, const PyGC_Head *at)
{
    size_t mark = hash_of(at) % MARKS;

    return (all->marks[mark / 64] >> mark % 64 & 1) != 0 &&
           all->places[place_of(all, at)] != NULL;
}

static void
add_start(starts *all, const PyGC_Head *at)
{
    if (all->count < STARTS && !is_start(all, at)) {
        size_t mark = hash_of(at) % MARKS;
        all->marks[mark / 64] |= UINT64_C(1) << mark % 64;
        all->places[place_of(all, at)] = at;
        all->at[all->count++] = at;
    }
}

/* Python modules lie among the objects that their import made. */
static void
add_python_modules(starts *all)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *name, *module;
    Py_ssize_t position = 0;

    if (modules == NULL || !PyDict_Check(modules)) {
        return;
    }
    Py_ssize_t stride = PyDict_GET_SIZE(modules) / STARTS + 1;
    for (Py_ssize_t i = 0; PyDict_Next(modules, &position, &name, &module); i++) {
        if (i % stride == 0 && PyModule_CheckExact(module) &&
            PyObject_GC_IsTracked(module)) {
            add_start(all, (const PyGC_Head *)(uintptr_t)module - 1);
        }
    }
}

typedef struct walk {
    const PyGC_Head *at;
    size_t start; /* where it began */
} walk;

/* The first object of the next walk; false if there is none. */
static bool
begin_walk(starts *all, walk *w)
{
    while (all->begun < all->count) {
        size_t i = all->begun++;
        const PyGC_Head *at = i < all->heads ? next_of(all->at[i]) : all->at[i];
        if (i >= all->heads || !is_start(all, at)) {
            *w = (walk){.at = at, .start = i};
            return true;
        }
        all->ends[i] = at;
    }
    return false;
}

static void
look_from(search *s, starts *all)
{
    walk walks[WALKS];
    size_t count = 0;

    while (count < WALKS && begin_walk(all, &walks[count])) {
        count++;
    }
    while (count > 0) {
        for (size_t i = 0; i < count;) {
            const PyGC_Head *next = next_of(walks[i].at);
            s->walk = walks[i].start;
            look_at_object(s, (PyObject *)(uintptr_t)(walks[i].at + 1));
            if (!is_start(all, next)) {
                /* In the cache by its next turn. */
                __builtin_prefetch(next);
                __builtin_prefetch(next + 1);
                walks[i++].at = next;
                continue;
            }
            all->ends[walks[i].start] = next;
            if (begin_walk(all, &walks[i])) {
                i++;
            }
            else {
                walks[i] = walks[--count];
            }
        }
    }
}

static size_t
start_at(const starts *all, const PyGC_Head *at)
{
    size_t i = 0;

    while (all->at[i] != at) {
        i++;
    }
    return i;
}

/* Numbers the walks by their place in the lists: each continues where the next began.
 * The oldest generation comes first, after that of gc.freeze(). */
static void
order_walks(const starts *all, size_t rank[STARTS])
{
    size_t count = 0;

    for (size_t head = all->heads; head-- > 0;) {
        size_t at = head;
        do {
            rank[at] = count++;
            at = start_at(all, all->ends[at]);
        } while (at >= all->heads);
    }
}

/* Sorts the findings by walk. */
static void
sort_found(search *s, const starts *all)
{
    size_t rank[STARTS] = {0}, from[STARTS + 1] = {0};
    finding *sorted = ml_alloc((s->found_count + 1) * sizeof(*sorted));

    if (sorted == NULL) {
        s->failed = true;
        return;
    }
    order_walks(all, rank);
    for (size_t i = 0; i < s->found_count; i++) {
        from[rank[s->found[i].walk] + 1]++;
    }
    for (size_t i = 0; i < all->count; i++) {
        from[i + 1] += from[i];
    }
    for (size_t i = 0; i < s->found_count; i++) {
        sorted[from[rank[s->found[i].walk]]++] = s->found[i];
    }
    ml_free(s->found);
    s->found = sorted;
    s->capacity = s->found_count + 1;
}

static void
look_at_all(search *s)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    const struct _gc_runtime_state *gc = &interpreter->gc;
    starts all = {.count = 0};

    /* If the headers are those of another build of Python, this word differs. */
    if (gc->generation0 != &gc->generations[0].head) {
        look_at_listed(s);
        return;
    }
    for (size_t i = 0; i < NUM_GENERATIONS; i++) {
        add_start(&all, &gc->generations[i].head);
    }
    add_start(&all, &gc->permanent_generation.head);
    all.heads = all.count;
    /* Inside a collection (in a finalizer), an object may be in a list known only to
     * the collector. */
    if (!gc->collecting) {
        add_python_modules(&all);
    }
    look_from(s, &all);
    sort_found(s, &all);
}

#endif

/* A list of what was found, which takes the references. */
static PyObject *
list_of(search *s)
{
    PyObject *list = s->failed ? NULL : PyList_New((Py_ssize_t)s->found_count);

    for (size_t i = 0; i < s->found_count; i++) {
        if (list != NULL) {
            PyList_SET_ITEM(list, (Py_ssize_t)i, s->found[i].object);
        }
        else {
            Py_DECREF(s->found[i].object);
        }
    }
    ml_free(s->found);
    return list;
}

PyObject *
ml_collector_find(PyTypeObject *const *types, size_t count)
{
    search s = {.types = types, .count = count};

    look_at_all(&s);
    PyObject *list = list_of(&s);
    if (list == NULL && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return list;
}
