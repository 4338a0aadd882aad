/* The answer to "what was live at the peak" as a Python dict.  See peak_dict.h. */
#include "dicts/peak_dict.h"

#include "dicts/gpu_dict.h"

#include "core/analysis/answers/peak.h"
#include "core/base/base.h"
#include "core/recording/program_position.h"
#include "dicts/dict_values.h"
#include "dicts/module_dict.h"

static PyObject *
string(const ml_recording *recording, uint32_t id)
{
    return text(recording->strings[id]);
}

PyObject *
ml_py_totals(const ml_totals *totals)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
#define XX(name) \
    if (ml_py_set(dict, #name "_bytes", number(totals->name)) < 0) { \
        Py_DECREF(dict); \
        return NULL; \
    }
    ML_TOTALS(XX)
#undef XX
    return dict;
}

static PyObject *
instant_dict(const ml_peak *peak)
{
    PyObject *dict = ml_py_totals(&peak->totals);
    if (dict != NULL && (ml_py_set(dict, "time_us", number(peak->time / 1000)) < 0 ||
                         ml_py_set(dict, "event", number(peak->position)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* Bytes by name, without zeros. */
static PyObject *
bytes_dict(const uint64_t *bytes, unsigned count, const char *(*name)(unsigned))
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < count; i++) {
        if (bytes[i] != 0 && ml_py_set(dict, name(i), number(bytes[i])) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
sums_dict(const ml_peak_sum *sums, unsigned count, const char *(*name)(unsigned))
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < count; i++) {
        if (sums[i].blocks != 0 && name(i)[0] != 0 &&
            ml_py_set(dict, name(i), number(sums[i].bytes)) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyObject *
ml_py_peak_line(const ml_peak_line *line)
{
    const char *module = line->module != NULL ? line->module : "";
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "file", text(line->file)) < 0 ||
        ml_py_set(dict, "line", PyLong_FromLongLong(line->line)) < 0 ||
        ml_py_set(dict, "until_line",
                  PyLong_FromLongLong(line->until != 0 ? line->until : line->line)) <
            0 ||
        ml_py_set(dict, "function", text(line->function)) < 0 ||
        ml_py_set(dict, "bytes", number(line->bytes)) < 0 ||
        ml_py_set(dict, "blocks", number(line->blocks)) < 0 ||
        ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(line->phase))) <
            0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(ml_no_line_text(line->no_line))) < 0 ||
        ml_py_set(dict, "backward", PyBool_FromLong(line->phase == ML_PHASE_BACKWARD)) <
            0 ||
        ml_py_set(dict, "how", PyUnicode_FromString(ml_how_text(line->how))) < 0 ||
        ml_py_set(dict, "module", text_at(module)) < 0 ||
        ml_py_set(dict, "by_category",
                  bytes_dict(line->categories, ML_CATEGORY_COUNT, ml_category_text)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_frames(const ml_recording *recording, uint32_t stack)
{
    PyObject *list = PyList_New(0);
    for (uint32_t at = stack; list != NULL && at != 0;
         at = recording->stacks[at].parent) {
        const ml_frame *frame = &recording->frames[recording->stacks[at].frame];
        PyObject *dict = PyDict_New();
        if (dict == NULL ||
            ml_py_set(dict, "name", string(recording, frame->name)) < 0 ||
            ml_py_set(dict, "filename", string(recording, frame->filename)) < 0 ||
            ml_py_set(dict, "line", PyLong_FromLongLong(frame->line)) < 0 ||
            PyList_Append(list, dict) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(dict);
    }
    return list;
}

static PyObject *
stack_dict(const ml_recording *recording, const ml_peak_stack *stack)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "frames", ml_py_frames(recording, stack->stack)) < 0 ||
        ml_py_set(dict, "bytes", number(stack->bytes)) < 0 ||
        ml_py_set(dict, "blocks", number(stack->blocks)) < 0 ||
        ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(stack->phase))) <
            0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(ml_no_line_text(stack->no_line))) < 0 ||
        ml_py_set(dict, "how", PyUnicode_FromString(ml_how_text(stack->how))) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
inner_dict(const ml_peak_inner *inner)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (set_place(dict, inner->file, inner->line, inner->function) < 0 ||
         ml_py_set(dict, "qualname", text(inner->qualname)) < 0 ||
         ml_py_set(dict, "bytes", number(inner->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(inner->blocks)) < 0 ||
         ml_py_set(dict, "module",
                   text_at(inner->module != NULL ? inner->module : "")) < 0 ||
         ml_py_set(dict, "by_category",
                   bytes_dict(inner->categories, ML_CATEGORY_COUNT, ml_category_text)) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
line_with_inner(const ml_peak *peak, const ml_peak_line *line)
{
    PyObject *list;
    FILL_LIST(list, i, line->inner_count,
              inner_dict(&peak->inner[line->first_inner + i]));
    PyObject *dict = list != NULL ? ml_py_peak_line(line) : NULL;
    if (dict == NULL) {
        Py_XDECREF(list);
        return NULL;
    }
    if (ml_py_set(dict, "inner", list) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_peak_lines(const ml_peak *peak)
{
    PyObject *list;
    FILL_LIST(list, i, peak->line_count, line_with_inner(peak, &peak->lines[i]));
    return list;
}

static PyObject *
stacks_list(const ml_recording *recording, const ml_peak *peak)
{
    PyObject *list;
    FILL_LIST(list, i, peak->stack_count, stack_dict(recording, &peak->stacks[i]));
    return list;
}

static PyObject *
module_dict(const ml_recording *recording, const ml_peak_module *module)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "module", string(recording, module->module)) < 0 ||
         ml_py_set(dict, "reason",
                   PyUnicode_FromString(ml_no_module_text(module->no_module))) < 0 ||
         ml_py_set(dict, "bytes", number(module->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(module->blocks)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static uint64_t
sum_no_modules(const ml_peak *peak, unsigned first, unsigned end)
{
    uint64_t bytes = 0;
    for (unsigned i = first; i < end; i++) {
        bytes += peak->no_modules[i].bytes;
    }
    return bytes;
}

static uint64_t
outside_modules(const ml_peak *peak)
{
    return sum_no_modules(peak, ML_NO_MODULE_NONE + 1, ML_NO_MODULE_OUTSIDE_LAST + 1);
}

static uint64_t
unknown_module(const ml_peak *peak)
{
    return sum_no_modules(peak, ML_NO_MODULE_OUTSIDE_LAST + 1, ML_NO_MODULE_COUNT);
}

static PyObject *
modules_list(const ml_recording *recording, const ml_peak *peak)
{
    PyObject *list;
    FILL_LIST(list, i, peak->module_count, module_dict(recording, &peak->modules[i]));
    return list;
}

static PyObject *
size_dict(unsigned group, const ml_peak_sum *sum)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "least_bytes", number(ml_peak_size_least(group))) < 0 ||
         ml_py_set(dict, "bytes", number(sum->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(sum->blocks)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* Groups with blocks, the largest sizes first. */
static PyObject *
sizes_list(const ml_peak *peak)
{
    PyObject *list = PyList_New(0);
    for (unsigned i = ML_PEAK_SIZE_COUNT; list != NULL && i-- > 0;) {
        if (peak->sizes[i].blocks == 0) {
            continue;
        }
        PyObject *item = size_dict(i, &peak->sizes[i]);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyObject *
ml_py_peak_whys(const ml_peak *peak)
{
    return sums_dict(peak->whys, ML_WHY_COUNT, ml_why_text);
}

PyObject *
ml_py_peak_categories(const ml_peak *peak)
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < ML_CATEGORY_COUNT; i++) {
        if (ml_py_set(dict, ml_category_text(i), number(peak->categories[i].bytes)) <
            0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
overhead_dict(const ml_peak_overhead *overhead)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "inactive_bytes", number(overhead->inactive)) < 0 ||
        ml_py_set(dict, "slack_bytes", number(overhead->slack)) < 0 ||
        ml_py_set(dict, "largest_free_bytes", number(overhead->largest_free)) < 0 ||
        ml_py_set(dict, "free_blocks", number(overhead->free_blocks)) < 0 ||
        ml_py_set(dict, "segments", number(overhead->segments)) < 0 ||
        ml_py_set(dict, "fragmentation", PyFloat_FromDouble(overhead->fragmentation)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
peak_dict(const ml_recording *recording, int device, const ml_peak *peak, size_t rows)
{
    const ml_device_trace *trace = &recording->devices[device];
    const ml_replay_result *replay = &peak->replay;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "events", number(trace->event_count)) < 0 ||
        ml_py_set(dict, "overwritten_events", number(trace->overwritten_events)) < 0 ||
        ml_py_set(dict, "dropped_events", number(trace->dropped_events)) < 0 ||
        ml_py_set(dict, "lost_stacks", number(trace->lost_stacks)) < 0 ||
        ml_py_set(dict, "lost_names", number(trace->lost_names)) < 0 ||
        ml_py_set(dict, "peak", instant_dict(peak)) < 0 ||
        ml_py_set(dict, "whole_peak", ml_py_totals(&peak->known_peaks)) < 0 ||
        ml_py_set(dict, "peak_before_window", PyBool_FromLong(peak->earlier)) < 0 ||
        ml_py_set(dict, "by_line", ml_py_peak_lines(peak)) < 0 ||
        ml_py_set(dict, "by_stack", stacks_list(recording, peak)) < 0 ||
        ml_py_set(dict, "by_category", ml_py_peak_categories(peak)) < 0 ||
        ml_py_set(dict, "by_module", modules_list(recording, peak)) < 0 ||
        ml_py_set_modules(dict, recording, peak, rows) < 0 ||
        ml_py_set(dict, "by_size", sizes_list(peak)) < 0 ||
        ml_py_set(dict, "outside_modules_bytes", number(outside_modules(peak))) < 0 ||
        ml_py_set(dict, "unknown_module_bytes", number(unknown_module(peak))) < 0 ||
        ml_py_set(dict, "by_phase",
                  sums_dict(peak->phases, ML_PHASE_COUNT, ml_phase_text)) < 0 ||
        ml_py_set(dict, "by_how", sums_dict(peak->hows, ML_HOW_COUNT, ml_how_text)) <
            0 ||
        ml_py_set(dict, "unknown_because", ml_py_peak_whys(peak)) < 0 ||
        ml_py_set(dict, "inexact_category_bytes", number(peak->inexact)) < 0 ||
        ml_py_set(dict, "step", number(peak->step)) < 0 ||
        ml_py_set(dict, "unattributed_bytes", number(peak->unattributed)) < 0 ||
        ml_py_set(dict, "overhead", overhead_dict(&peak->overhead)) < 0 ||
        ml_py_set(dict, "mismatches",
                  number(replay->misfits + replay->mismatched_blocks)) < 0 ||
        ml_py_set(dict, "uncertain_bytes", number(replay->uncertain_bytes)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
moment_dict(const ml_recording *recording, const ml_program_position *moment)
{
    const ml_string *phase = &recording->strings[moment->phase];
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "step",
                   moment->has_steps ? PyLong_FromUnsignedLongLong(moment->step)
                                     : Py_NewRef(Py_None)) < 0 ||
         ml_py_set(dict, "phase",
                   moment->in_phase
                       ? PyUnicode_DecodeUTF8(phase->bytes, (Py_ssize_t)phase->length,
                                              "surrogatepass")
                       : Py_NewRef(Py_None)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_moment(const ml_recording *recording, uint64_t time)
{
    ml_program_position moment;
    return ml_program_position_at(recording, time, &moment) < 0
               ? PyErr_NoMemory()
               : moment_dict(recording, &moment);
}

PyObject *
ml_py_peak(ml_state *state, const ml_recording *recording, int device,
           const uint64_t *position, size_t rows)
{
    ml_peak *peak = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = position == NULL
                 ? ml_peak_new(recording, (size_t)device, &peak)
                 : ml_peak_new_at(recording, (size_t)device, *position, &peak);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    PyObject *dict = peak_dict(recording, device, peak, rows);
    if (dict != NULL &&
        (ml_py_set(dict, "moment", ml_py_moment(recording, peak->time)) < 0 ||
         ml_py_set_gpu(dict, recording, device, peak->time, &peak->totals) < 0)) {
        Py_CLEAR(dict);
    }
    ml_peak_free(peak);
    return dict;
}
