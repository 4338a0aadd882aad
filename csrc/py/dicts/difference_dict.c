/* Makes the difference of two devices' memory a dict.  See difference_dict.h. */
#include "dicts/difference_dict.h"

#include "core/base/base.h"
#include "core/show/draw/difference_page.h"
#include "dicts/dict_values.h"

/* Sizes from a file may differ by more than a signed 64-bit integer holds. */
static PyObject *
difference_of(const ml_two *two)
{
    if (two->bytes[1] >= two->bytes[0]) {
        return number(two->bytes[1] - two->bytes[0]);
    }
    PyObject *less = number(two->bytes[0] - two->bytes[1]);
    PyObject *difference = less != NULL ? PyNumber_Negative(less) : NULL;
    Py_XDECREF(less);
    return difference;
}

static int
set_two(PyObject *dict, const ml_two *two)
{
    if (ml_py_set(dict, "before_bytes", number(two->bytes[0])) < 0 ||
        ml_py_set(dict, "after_bytes", number(two->bytes[1])) < 0 ||
        ml_py_set(dict, "difference_bytes", difference_of(two)) < 0 ||
        ml_py_set(dict, "before_blocks", number(two->blocks[0])) < 0 ||
        ml_py_set(dict, "after_blocks", number(two->blocks[1])) < 0) {
        return -1;
    }
    return 0;
}

static PyObject *
line_dict(const ml_difference_line *line)
{
    PyObject *dict = PyDict_New();
    const char *module = line->module != NULL ? line->module : "";
    const ml_difference_place *was = &line->at[0];
    const ml_difference_place *is = line->at[1].file.length != 0 ? &line->at[1] : was;
    if (dict == NULL || set_place(dict, is->file, is->line, is->function) < 0 ||
        ml_py_set(dict, "before_file", text(was->file)) < 0 ||
        ml_py_set(dict, "before_line", PyLong_FromLongLong(was->line)) < 0 ||
        ml_py_set(dict, "before_function", text(was->function)) < 0 ||
        ml_py_set(dict, "change", PyUnicode_FromString(ml_change_text(line->change))) <
            0 ||
        ml_py_set(dict, "move", PyUnicode_FromString(ml_move_text(line->move))) < 0 ||
        ml_py_set(dict, "matched_by",
                  PyUnicode_FromString(ml_match_rule_text(line->rule))) < 0 ||
        ml_py_set(dict, "module", text_at(module)) < 0 ||
        ml_py_set(dict, "category",
                  PyUnicode_FromString(ml_category_text(line->category))) < 0 ||
        ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(line->phase))) <
            0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(ml_difference_no_line_text(line->no_line))) <
            0 ||
        set_two(dict, &line->two) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
module_dict(const ml_difference_module *module)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL || ml_py_set(dict, "module", text(module->module)) < 0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(
                      ml_difference_no_module_text(module->no_module))) < 0 ||
        set_two(dict, &module->two) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
categories_dict(const ml_difference_part *part)
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < ML_CATEGORY_COUNT; i++) {
        const ml_two *two = &part->categories[i];
        if (two->bytes[0] != two->bytes[1] &&
            ml_py_set(dict, ml_category_text(i), difference_of(two)) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
lines_list(const ml_difference_part *part)
{
    PyObject *list;
    FILL_LIST(list, i, part->line_count, line_dict(&part->lines[i]));
    return list;
}

static PyObject *
modules_list(const ml_difference_part *part)
{
    PyObject *list;
    FILL_LIST(list, i, part->module_count, module_dict(&part->modules[i]));
    return list;
}

/* None if unknown. */
static PyObject *
instant_dict(const ml_difference_instant *at)
{
    if (!at->known) {
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("{s:L,s:K,s:I,s:s}", "event", (long long)at->position,
                         "time_us", (unsigned long long)(at->time / 1000), "step",
                         (unsigned int)at->step, "phase", ml_phase_text(at->phase));
}

static PyObject *
part_dict(const ml_difference_part *part)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL || ml_py_set(dict, "phase", text(part->phase)) < 0 ||
        ml_py_set(dict, "before", instant_dict(&part->at[0])) < 0 ||
        ml_py_set(dict, "after", instant_dict(&part->at[1])) < 0 ||
        set_two(dict, &part->whole) < 0 ||
        ml_py_set(dict, "by_line", lines_list(part)) < 0 ||
        ml_py_set(dict, "by_module", modules_list(part)) < 0 ||
        ml_py_set(dict, "by_category", categories_dict(part)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The difference at the instant, and at each phase's peak. */
static PyObject *
difference_dict(const ml_difference *difference)
{
    PyObject *dict = part_dict(&difference->parts[0]);
    PyObject *phases = PyList_New(0);
    for (size_t i = 1; phases != NULL && i < difference->part_count; i++) {
        PyObject *part = part_dict(&difference->parts[i]);
        if (part == NULL || PyList_Append(phases, part) < 0) {
            Py_CLEAR(phases);
        }
        Py_XDECREF(part);
    }
    if (dict == NULL) {
        Py_XDECREF(phases);
        return NULL;
    }
    if (PyDict_DelItemString(dict, "phase") < 0 ||
        ml_py_set(dict, "phases", phases) < 0 ||
        ml_py_set(dict, "phases_left_out", number(difference->phases_left_out)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The answer to ASK; NULL with an exception. */
static ml_difference *
answer(ml_state *state, const ml_difference_ask *ask)
{
    ml_difference *difference = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_difference_new(ask, &difference);
    Py_END_ALLOW_THREADS
    if (result == ML_EINVALID) {
        PyErr_SetString(PyExc_IndexError, "the recording has no such event");
    }
    else if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    return result < 0 ? NULL : difference;
}

PyObject *
ml_py_difference(ml_state *state, const ml_difference_ask *ask)
{
    ml_difference *difference = answer(state, ask);
    PyObject *dict = difference == NULL ? NULL : difference_dict(difference);
    ml_difference_free(difference);
    return dict;
}

static ml_string
string_of(PyObject *bytes)
{
    return (ml_string){.bytes = PyBytes_AS_STRING(bytes),
                       .length = (uint32_t)PyBytes_GET_SIZE(bytes)};
}

static PyObject *
page_of(ml_state *state, const ml_difference_ask *ask, PyObject *title, PyObject *said)
{
    ml_difference *difference = answer(state, ask);
    if (difference == NULL) {
        return NULL;
    }
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_difference_page_write(difference, string_of(title), string_of(said),
                                      &buffer);
    Py_END_ALLOW_THREADS
    PyObject *page = NULL;
    if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    else {
        page = PyBytes_FromStringAndSize(buffer.bytes, (Py_ssize_t)buffer.length);
    }
    ml_buffer_fini(&buffer);
    ml_difference_free(difference);
    return page;
}

PyObject *
ml_py_difference_page(ml_state *state, const ml_difference_ask *ask, PyObject *title,
                      PyObject *said)
{
    PyObject *head = PyUnicode_AsEncodedString(title, "utf-8", "surrogatepass");
    PyObject *body =
        head == NULL ? NULL : PyUnicode_AsEncodedString(said, "utf-8", "surrogatepass");
    PyObject *page = NULL;
    if (body != NULL) {
        if (PyBytes_GET_SIZE(head) > UINT32_MAX ||
            PyBytes_GET_SIZE(body) > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "the title is too long");
        }
        else {
            page = page_of(state, ask, head, body);
        }
    }
    Py_XDECREF(head);
    Py_XDECREF(body);
    return page;
}
