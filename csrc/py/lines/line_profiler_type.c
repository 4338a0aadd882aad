/* memlab._core.LineProfiler: line tables of some functions, as a Python object.
 *
 * Owns the tables and their functions; meters move while it is enabled (metering.h).
 * Python makes names, text and HTML. */
#include "state.h"

#include <string.h>

#include "core/base/base.h"
#include "core/inspect/lines.h"
#include "core/record/recorder.h"
#include "lines/line_events.h"
#include "lines/metering.h"

typedef struct profiled {
    PyObject *code; /* owned */
    ml_lines_function *function;
} profiled;

typedef struct profiler_object {
    PyObject_HEAD
    ml_lines *lines;     /* owned; made with the first function */
    profiled *functions; /* owned */
    size_t count;
    size_t capacity;
    /* the source whose meters it keeps moving; NULL: not enabled */
    const ml_source *metered;
    bool changing; /* another thread is enabling it */
} profiler_object;

/* The source NAME for the tables; NULL with an exception. */
static const ml_source *
source_of(PyObject *op, const char *name)
{
    const ml_source *source = ml_recorder_source(name);
    if (source == NULL) {
        PyErr_Format(ml_state_of(Py_TYPE(op))->error,
                     "no source of events named '%s' here; memlab.backends() says why",
                     name);
    }
    return source;
}

static ml_lines *
lines_of(profiler_object *self)
{
    if (self->lines == NULL) {
        self->lines = ml_lines_new();
        if (self->lines == NULL) {
            PyErr_NoMemory();
        }
    }
    return self->lines;
}

/* The source and *DEVICE in ARGS, with the tables made; NULL with an exception. */
static const ml_source *
parse_target(PyObject *op, PyObject *args, const char *format, int *device)
{
    const char *name;
    if (!PyArg_ParseTuple(args, format, &name, device)) {
        return NULL;
    }
    const ml_source *source = source_of(op, name);
    return source != NULL && lines_of((profiler_object *)op) != NULL ? source : NULL;
}

PyDoc_STRVAR(add_doc,
             "_add($self, code, /)\n--\n\n"
             "Registers a code object; its number, that of earlier where it is "
             "registered already.");

static PyObject *
profiler_add(PyObject *op, PyObject *code)
{
    profiler_object *self = (profiler_object *)op;
    if (!PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "expected a code object, not %.200s",
                     Py_TYPE(code)->tp_name);
        return NULL;
    }
    for (size_t i = 0; i < self->count; i++) {
        if (self->functions[i].code == code) {
            return PyLong_FromSize_t(i);
        }
    }
    ml_lines *lines = lines_of(self);
    if (lines == NULL) {
        return NULL;
    }
    ml_lines_function *function =
        ml_lines_add(lines, (uint32_t)((PyCodeObject *)code)->co_firstlineno);
    if (function == NULL || ml_grow((void **)&self->functions, &self->capacity,
                                    self->count + 1, sizeof(*self->functions)) < 0) {
        return PyErr_NoMemory();
    }
    /* Registered before the watch, which may run other Python code. */
    size_t number = self->count++;
    self->functions[number] = (profiled){.code = Py_NewRef(code), .function = function};
    PyObject *error = ml_state_of(Py_TYPE(op))->error;
    if (self->metered != NULL &&
        ml_line_events_watch(code, lines, function, error) < 0) {
        if (self->count == number + 1 && self->functions[number].code == code) {
            self->count = number;
            Py_DECREF(code);
        }
        return NULL;
    }
    return PyLong_FromSize_t(number);
}

/* Nothing is profiled from here on.  Releases the GIL meanwhile. */
static void
disable(profiler_object *self)
{
    const ml_source *metered = self->metered;
    if (metered == NULL) {
        return;
    }
    self->metered = NULL;
    ml_line_events_forget(self->lines);
    ml_lines_close(self->lines);
    ml_metering_end(metered);
}

/* Other Python code may run meanwhile, and disable or clear. */
static int
watch_all(profiler_object *self)
{
    PyObject *error = ml_state_of(Py_TYPE(self))->error;
    for (size_t i = 0; i < self->count && self->metered != NULL; i++) {
        if (ml_line_events_watch(self->functions[i].code, self->lines,
                                 self->functions[i].function, error) < 0) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(enable_doc,
             "_enable($self, source, device, /)\n--\n\n"
             "Profiles the lines of the registered functions from here on.");

static PyObject *
profiler_enable(PyObject *op, PyObject *args)
{
    profiler_object *self = (profiler_object *)op;
    int device;
    const ml_source *source = parse_target(op, args, "si:_enable", &device);
    if (source == NULL) {
        return NULL;
    }
    if (self->metered != NULL || self->changing) {
        Py_RETURN_NONE;
    }
    self->changing = true;
    int result = ml_metering_begin(source);
    self->changing = false;
    if (result < 0) {
        return ml_py_raise(ml_state_of(Py_TYPE(op)), result, NULL);
    }
    self->metered = source;
    ml_lines_target(self->lines, source, device);
    if (watch_all(self) < 0) {
        disable(self);
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(disable_doc, "_disable($self, /)\n--\n\n"
                          "Profiles no more; what was seen stays.");

static PyObject *
profiler_disable(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    disable((profiler_object *)op);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(target_doc, "_target($self, source, device, /)\n--\n\n"
                         "The memory of that device is what counts from here on.");

static PyObject *
profiler_target(PyObject *op, PyObject *args)
{
    profiler_object *self = (profiler_object *)op;
    int device;
    const ml_source *source = parse_target(op, args, "si:_target", &device);
    if (source == NULL) {
        return NULL;
    }
    ml_lines_target(self->lines, source, device);
    Py_RETURN_NONE;
}

/* Unregisters everything, except what other Python code registers meanwhile. */
static void
drop_functions(profiler_object *self)
{
    if (self->lines == NULL) {
        return;
    }
    profiled *dropped = self->functions;
    size_t count = self->count;
    self->functions = NULL;
    self->count = self->capacity = 0;
    ml_line_events_forget(self->lines);
    ml_lines_close(self->lines);
    for (size_t i = count; i-- > 0;) {
        ml_lines_remove(self->lines, dropped[i].function);
    }
    for (size_t i = 0; i < count; i++) {
        Py_DECREF(dropped[i].code);
    }
    ml_free(dropped);
}

PyDoc_STRVAR(clear_doc, "_clear($self, functions, /)\n--\n\n"
                        "Forgets what was seen and, where functions is true, what is "
                        "registered.");

static PyObject *
profiler_clear_tables(PyObject *op, PyObject *arg)
{
    profiler_object *self = (profiler_object *)op;
    int forget = PyObject_IsTrue(arg);
    if (forget < 0 || self->lines == NULL) {
        return forget < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (forget) {
        drop_functions(self);
    }
    ml_lines_clear(self->lines);
    Py_RETURN_NONE;
}

/* ---- Rows ---- */

enum metric {
    CURRENT,
    PEAK,
    ALLOCATED,
    FREED,
    COUNTED, /* of the allocator's own counters */
    MAX_SPLIT
};

/* A figure with its name in torch.cuda.memory_stats(). */
typedef struct column {
    char name[48];
    enum metric metric;
    int figure; /* ml_meter_stat(); enum ml_source_counter for COUNTED; 0 for MAX_SPLIT */
} column;

enum {
    COLUMNS = ML_METER_STAT_COUNT * COUNTED + ML_SOURCE_COUNTER_MAX + 1
};

/* One column for each metric of COUNT in POOL. */
static column *
list_figures(column *next, const char *count_name, int count, int pool)
{
    static const char *const pools[] = {".large_pool", ".small_pool", ".all"};
    static const char *const metrics[] = {"current", "peak", "allocated", "freed"};
    _Static_assert(ML_POOL_LARGE == 0 && ML_POOL_SMALL == 1 && ML_METER_STAT_ALL == 2,
                   "the names of the pools are in their order");
    bool pooled = count < ML_POOL_STAT_oversize_allocations;
    for (int metric = 0; metric < COUNTED && (pooled || pool == ML_METER_STAT_ALL);
         metric++) {
        PyOS_snprintf(next->name, sizeof(next->name), "%s%s.%s", count_name,
                      pooled ? pools[pool] : "", metrics[metric]);
        next->metric = (enum metric)metric;
        next->figure = ml_meter_stat(pool, count);
        next++;
    }
    return next;
}

/* Lists all columns; returns their number. */
static size_t
list_columns(column out[COLUMNS])
{
    static const char *const counts[ML_POOL_STAT_MAX] = {
#define XX(name) #name,
        ML_POOL_STATS(XX)
#undef XX
    };
    static const char *const counters[ML_SOURCE_COUNTER_MAX] = {
#define XX(name) #name,
        ML_SOURCE_COUNTERS(XX)
#undef XX
    };
    column *next = out;
    for (int count = 0; count < ML_POOL_STAT_MAX; count++) {
        for (int pool = 0; pool < ML_METER_STAT_POOLS; pool++) {
            next = list_figures(next, counts[count], count, pool);
        }
    }
    for (int counter = 0; counter < ML_SOURCE_COUNTER_MAX; counter++) {
        PyOS_snprintf(next->name, sizeof(next->name), "%s", counters[counter]);
        next->metric = COUNTED;
        next->figure = counter;
        next++;
    }
    *next++ = (column){.name = "max_split_size", .metric = MAX_SPLIT};
    return (size_t)(next - out);
}

PyObject *
ml_line_profiler_columns(void)
{
    column columns[COLUMNS];
    size_t count = list_columns(columns);
    PyObject *names = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && names != NULL; i++) {
        PyObject *name = PyUnicode_FromString(columns[i].name);
        if (name == NULL) {
            Py_CLEAR(names);
            break;
        }
        PyTuple_SET_ITEM(names, (Py_ssize_t)i, name);
    }
    return names;
}

static bool
find_column(const char *name, column *out)
{
    column columns[COLUMNS];
    size_t count = list_columns(columns);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(columns[i].name, name) == 0) {
            *out = columns[i];
            return true;
        }
    }
    return false;
}

/* The target allocator's own facts. */
typedef struct allocator_facts {
    bool counting;
    uint64_t max_split_bytes;
} allocator_facts;

static PyObject *
figure_of(const ml_line_row *row, const column *wanted, const allocator_facts *facts)
{
    const uint64_t *figures[] = {row->most.current, row->most.peak, row->most.allocated,
                                 row->most.freed, row->most.counted};
    if (wanted->metric >= COUNTED && !facts->counting) {
        return Py_NewRef(Py_None);
    }
    if (wanted->metric == MAX_SPLIT) {
        /* torch's form: -1 for unlimited. */
        return PyLong_FromLongLong((long long)facts->max_split_bytes);
    }
    return PyLong_FromUnsignedLongLong(figures[wanted->metric][wanted->figure]);
}

static PyObject *
row_tuple(const ml_line_row *row, const column *columns, Py_ssize_t count,
          const allocator_facts *facts)
{
    PyObject *values = PyTuple_New(count);
    if (values == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = figure_of(row, &columns[i], facts);
        if (value == NULL) {
            Py_DECREF(values);
            return NULL;
        }
        PyTuple_SET_ITEM(values, i, value);
    }
    return Py_BuildValue("(IKLN)", row->line, (unsigned long long)row->calls,
                         (long long)row->delta, values);
}

/* Copies of FUNCTION's rows, *COUNT of them, for the caller to free; NULL with an
 * exception.  Making Python objects may run other Python code, profiled functions
 * included. */
static ml_line_row *
copy_rows(const ml_lines_function *function, size_t *count)
{
    ml_line_row *const *rows = ml_lines_rows(function, count);
    ml_line_row *copies = ml_alloc_zeroed(*count + 1, sizeof(*copies));
    for (size_t i = 0; i < *count && copies != NULL; i++) {
        copies[i] = *rows[i];
    }
    if (copies == NULL) {
        PyErr_NoMemory();
    }
    return copies;
}

/* The columns of NAMES, a tuple of str, for the caller to free; NULL with an
 * exception. */
static column *
parse_columns(PyObject *names)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    column *columns = ml_alloc_zeroed((size_t)count + 1, sizeof(*columns));
    if (columns == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        if (text != NULL && find_column(text, &columns[i])) {
            continue;
        }
        if (text != NULL) {
            PyErr_Format(PyExc_ValueError, "'%s' is not a figure of a line", text);
        }
        ml_free(columns);
        return NULL;
    }
    return columns;
}

PyDoc_STRVAR(
    rows_doc,
    "_rows($self, number, columns, /)\n--\n\n"
    "The lines of a function that ran, by line: (line, calls, delta, values).\n\n"
    "columns is a tuple of names of COLUMNS, values one of ints: of each the most that "
    "a\n"
    "run of the line had; None where the target's allocator does not count it. delta "
    "is\n"
    "the bytes that the line left allocated, summed over its runs.");

static PyObject *
profiler_rows(PyObject *op, PyObject *args)
{
    profiler_object *self = (profiler_object *)op;
    Py_ssize_t number;
    PyObject *names;
    if (!PyArg_ParseTuple(args, "nO!:_rows", &number, &PyTuple_Type, &names)) {
        return NULL;
    }
    if (number < 0 || (size_t)number >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no function has that number");
        return NULL;
    }
    size_t count;
    ml_line_row *rows = copy_rows(self->functions[number].function, &count);
    allocator_facts facts = {0};
    facts.counting = ml_lines_counting(self->lines, &facts.max_split_bytes);
    column *columns = rows != NULL ? parse_columns(names) : NULL;
    PyObject *list = columns != NULL ? PyList_New(0) : NULL;
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *row = row_tuple(&rows[i], columns, PyTuple_GET_SIZE(names), &facts);
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    ml_free(columns);
    ml_free(rows);
    return list;
}

/* ---- The type ---- */

static PyObject *
profiler_get_enabled(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((profiler_object *)op)->metered != NULL);
}

static PyObject *
profiler_get_lost(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_lines *lines = ((profiler_object *)op)->lines;
    return PyLong_FromUnsignedLongLong(lines != NULL ? ml_lines_lost(lines) : 0);
}

static PyMethodDef profiler_methods[] = {
    {"_add", profiler_add, METH_O, add_doc},
    {"_enable", profiler_enable, METH_VARARGS, enable_doc},
    {"_disable", profiler_disable, METH_NOARGS, disable_doc},
    {"_target", profiler_target, METH_VARARGS, target_doc},
    {"_clear", profiler_clear_tables, METH_O, clear_doc},
    {"_rows", profiler_rows, METH_VARARGS, rows_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef profiler_getset[] = {
    {"enabled", profiler_get_enabled, NULL, "bool: whether lines are profiled now",
     NULL},
    {"lost_lines", profiler_get_lost, NULL,
     "int: runs of lines that have no figures, since more threads than memlab has room "
     "for ran\nprofiled functions at once, or memory was short",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int
profiler_traverse(PyObject *op, visitproc visit, void *arg)
{
    profiler_object *self = (profiler_object *)op;
    Py_VISIT(Py_TYPE(op));
    for (size_t i = 0; i < self->count; i++) {
        Py_VISIT(self->functions[i].code);
    }
    return 0;
}

static void
profiler_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    profiler_object *self = (profiler_object *)op;
    PyObject_GC_UnTrack(op);
    disable(self);
    drop_functions(self);
    ml_lines_free(self->lines);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(profiler_doc,
             "LineProfiler()\n--\n\n"
             "The C half of memlab.LineProfiler: what memory did while each line ran.");

static PyType_Slot profiler_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)profiler_doc},
    {Py_tp_methods, profiler_methods},
    {Py_tp_getset, profiler_getset},
    {Py_tp_traverse, profiler_traverse},
    {Py_tp_dealloc, profiler_dealloc},
    {0, NULL},
};

static PyType_Spec profiler_spec = {
    .name = "memlab._core.LineProfiler",
    .basicsize = sizeof(profiler_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = profiler_slots,
};

PyObject *
ml_line_profiler_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &profiler_spec, NULL);
}
