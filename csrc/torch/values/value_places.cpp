/* Owns where the program read values that are made up. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h> /* CPython 3.10: PyFrame_GetBack */

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bridge.h"
#include "values.h"

namespace memlab {

namespace {

using place = std::pair<std::string, int>;

constexpr size_t MOST_PLACES = 256;

std::map<place, unsigned long long> places; /* under the GIL, as is the next */
unsigned long long all;

/* Whether code of FILE is a library's: the line that counts is the program's. */
bool
is_library(const char *file)
{
    return std::strstr(file, "-packages/") != nullptr || file[0] == '<' ||
           std::strstr(file, "/lib/python3") != nullptr;
}

/* Whether CODE of FILE reads for others than the program: memlab's rank that is alone, for the
 * ranks that it sends to; inductor, which moves what a kernel writes out of the way while it
 * times it; and a check of torch's that all ranks have the same shapes, which passes. */
bool
is_for_others(PyCodeObject *code, const char *file)
{
    if (std::strstr(file, "/memlab/_fit/alone.py") != nullptr ||
        std::strstr(file, "/torch/_inductor/runtime/") != nullptr) {
        return true;
    }
    const char *name = PyUnicode_AsUTF8(code->co_name);
    return is_library(file) && name != nullptr &&
           std::strcmp(name, "_verify_param_shape_across_processes") == 0;
}

/* The innermost line of the program; with none, of all.  Line -1: it did not read. */
place
place_now()
{
    place found{"", 0};
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != nullptr) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const char *file = PyUnicode_AsUTF8(code->co_filename);
        const bool other = file != nullptr && is_for_others(code, file);
        const bool own = file != nullptr && !is_library(file);
        if (other) {
            found = {"", -1};
        }
        else if (file != nullptr && (own || found.second == 0)) {
            found = {file, PyFrame_GetLineNumber(frame)};
        }
        Py_DECREF(code);
        PyFrameObject *back = own || other ? nullptr : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    PyErr_Clear();
    return found;
}

} // namespace

void
note_place(size_t count)
{
    if (!Py_IsInitialized()) {
        return;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const place now = place_now();
    if (now.second < 0) {
        count = 0;
    }
    all += count;
    if (count > 0 && (places.size() < MOST_PLACES || places.count(now) != 0)) {
        places[now] += count;
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
}

} // namespace memlab

PyObject *
ml_values_made_up(void)
{
    PyObject *list = PyList_New(0);
    for (const auto &[at, count] : memlab::places) {
        PyObject *item = list == nullptr ? nullptr
                                         : Py_BuildValue("(siK)", at.first.c_str(),
                                                         at.second, count);
        if (item == nullptr || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list == nullptr ? nullptr : Py_BuildValue("(KN)", memlab::all, list);
}
