/* Makes the answer to "what did memory do while each line ran" a Python dict.  See
 * stack_lines_dict.h. */
#include "dicts/stack_lines_dict.h"

#include "core/analysis/answers/stack_lines.h"
#include "core/base/base.h"
#include "dicts/dict_values.h"

static PyObject *
line_dict(const ml_stack_line *line)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
#define XX(name, key) ml_py_set(dict, key, number(line->figures.name)) < 0 ||
    if (ML_STACK_LINE_SUMS(XX)
                ml_py_set(dict, "peak_bytes", number(line->figures.peak)) < 0 ||
        ml_py_set(dict, "line", PyLong_FromLongLong(line->line)) < 0) {
        Py_CLEAR(dict);
    }
#undef XX
    return dict;
}

/* The function with the next COUNT lines. */
static PyObject *
function_dict(const ml_stack_line *lines, size_t count)
{
    PyObject *list;
    FILL_LIST(list, i, count, line_dict(&lines[i]));
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        Py_XDECREF(list);
        return NULL;
    }
    if (ml_py_set(dict, "lines", list) < 0 ||
        ml_py_set(dict, "file", text(lines->file)) < 0 ||
        ml_py_set(dict, "function", text(lines->function)) < 0 ||
        ml_py_set(dict, "user", PyBool_FromLong(lines->place == ML_PLACE_USER)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static bool
same_function(const ml_stack_line *a, const ml_stack_line *b)
{
    return ml_string_compare(a->file, b->file) == 0 &&
           ml_string_compare(a->function, b->function) == 0;
}

static PyObject *
functions_list(const ml_stack_lines *all)
{
    PyObject *list = PyList_New(0);
    size_t end;
    for (size_t i = 0; list != NULL && i < all->count; i = end) {
        end = i + 1;
        while (end < all->count && same_function(&all->lines[i], &all->lines[end])) {
            end++;
        }
        PyObject *item = function_dict(&all->lines[i], end - i);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyObject *
ml_py_lines(ml_state *state, const ml_recording *recording, int device)
{
    ml_peak *peak = NULL;
    ml_stack_lines all = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_peak_new(recording, (size_t)device, &peak);
    if (result == 0) {
        result = ml_stack_lines_init(&all, recording, (size_t)device, peak);
    }
    ml_peak_free(peak);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    const ml_device_trace *trace = &recording->devices[device];
    uint64_t start =
        trace->event_count != 0 ? ml_events_time(&trace->events, 0) / 1000 : 0;
    PyObject *dict = PyDict_New();
    if (dict != NULL && (ml_py_set(dict, "start_time_us", number(start)) < 0 ||
                         ml_py_set(dict, "functions", functions_list(&all)) < 0)) {
        Py_CLEAR(dict);
    }
    ml_stack_lines_fini(&all);
    return dict;
}
