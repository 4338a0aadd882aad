/* Makes the answer to "what to change" a Python dict.  See advice_dict.h. */
#include "dicts/advice_dict.h"

#include "core/base/base.h"
#include "core/lab/verdict/make_fit.h"
#include "core/show/text/markup.h"
#include "core/show/text/verdict_text.h"
#include "dicts/dict_values.h"
#include "dicts/growth_dict.h"
#include "dicts/make_fit_dict.h"
#include "dicts/peak_dict.h"
#include "dicts/trial_dict.h"

/* BEFORE minus AFTER; negative if AFTER is more. */
static PyObject *
saving(uint64_t before, uint64_t after)
{
    PyObject *bytes = number(before > after ? before - after : after - before);
    if (bytes == NULL || before >= after) {
        return bytes;
    }
    PyObject *less = PyNumber_Negative(bytes);
    Py_DECREF(bytes);
    return less;
}

static PyObject *
saving_words(const ml_advices *advices, uint64_t allocated, uint64_t reserved,
             bool most)
{
    ml_buffer out = {0};
    ml_markup(&out, most ? "at most " : "");
    ml_verdict_saving(&out, advices, allocated, reserved);
    return text_of(&out);
}

static int
set_savings(PyObject *dict, const ml_advices *advices, uint64_t allocated,
            uint64_t reserved, bool most)
{
    const ml_totals *before = &advices->before.peak;
    if (ml_py_set(dict, "allocated_saving_bytes",
                  saving(before->allocated, allocated)) < 0) {
        return -1;
    }
    if (ml_py_set(dict, "reserved_saving_bytes", saving(before->reserved, reserved)) <
        0) {
        return -1;
    }
    return ml_py_set(dict, "saves", saving_words(advices, allocated, reserved, most));
}

PyObject *
ml_py_advice_item(const ml_recording *recording, const ml_advices *advices,
                  size_t index)
{
    const ml_advice *advice = &advices->list[index];
    const char *module = advice->module != NULL ? advice->module : "";
    ml_cause line = {
        .frame = advice->frame, .model = advice->model, .how = ML_HOW_FRAMES};
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "kind", PyUnicode_FromString(ml_advice_text(advice->kind))) <
             0 ||
         set_savings(dict, advices, advice->alone.peak.allocated,
                     advice->alone.peak.reserved, advice->most) < 0 ||
         ml_py_set(dict, "exact", PyBool_FromLong(advice->exact)) < 0 ||
         ml_py_set(dict, "at_most", PyBool_FromLong(advice->most)) < 0 ||
         ml_py_set(dict, "batch_norm", PyBool_FromLong(advice->normalizes)) < 0 ||
         ml_py_set(dict, "garbage", PyBool_FromLong(advice->garbage)) < 0 ||
         ml_py_set(dict, "together", PyBool_FromLong(advice->together)) < 0 ||
         set_frame(dict, recording, advice->frame) < 0 ||
         ml_py_set(dict, "inner", ml_py_inner(recording, &line)) < 0 ||
         ml_py_set(dict, "module", text_at(module)) < 0 ||
         ml_py_set(dict, "name", text(recording->strings[advice->name])) < 0 ||
         ml_py_set(dict, "library_switch",
                   text_at(advice->library_switch != NULL ? advice->library_switch
                                                          : "")) < 0 ||
         ml_py_set(dict, "optimizer", text(advice->optimizer)) < 0 ||
         ml_py_set(dict, "bytes", number(advice->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(advice->blocks)) < 0 ||
         ml_py_set(dict, "count", number(advice->count)) < 0 ||
         ml_py_set(dict, "conf", text_at(advice->conf)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
part_dict(const ml_advice_part *part)
{
    PyObject *module = text(part->module);
    if (module != NULL && part->repeats) {
        Py_SETREF(module, PyUnicode_FromFormat("%U*", module));
    }
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        Py_XDECREF(module);
        return NULL;
    }
    if (ml_py_set(dict, "module", module) < 0 ||
        ml_py_set(dict, "category",
                  PyUnicode_FromString(ml_category_text(part->category))) < 0 ||
        ml_py_set(dict, "reason", PyUnicode_FromString(ml_why_text(part->why))) < 0 ||
        ml_py_set(dict, "bytes", number(part->bytes)) < 0 ||
        ml_py_set(dict, "blocks", number(part->blocks)) < 0 ||
        ml_py_set(dict, "modules", number(part->modules)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
batch_dict(const ml_batch_fit *batch)
{
    if (batch->memory_bytes == UINT64_MAX) {
        Py_RETURN_NONE;
    }
    double factor = (double)batch->parts / ML_BATCH_PARTS;
    PyObject *dict = ml_py_totals(&batch->peak);
    if (dict != NULL &&
        (ml_py_set(dict, "memory_bytes", number(batch->memory_bytes)) < 0 ||
         ml_py_set(dict, "scaling_bytes", number(batch->scaling)) < 0 ||
         ml_py_set(dict, "factor", PyFloat_FromDouble(factor)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The instant of the peak, and the allocation that made it. */
static PyObject *
peak_dict(const ml_recording *recording, const ml_advices *advices)
{
    const ml_trial_result *before = &advices->before;
    const ml_cause *at = &advices->at_peak;
    PyObject *event = before->peak_event == ML_NO_EVENT
                          ? PyLong_FromLong(-1)
                          : PyLong_FromSize_t(before->peak_event);
    PyObject *dict = ml_py_totals(&before->peak);
    if (dict == NULL) {
        Py_XDECREF(event);
        return NULL;
    }
    if (ml_py_set(dict, "event", event) < 0 ||
        ml_py_set(dict, "time_us", number(advices->peak_time / 1000)) < 0 ||
        ml_py_set(dict, "moment", ml_py_moment(recording, advices->peak_time)) < 0 ||
        set_frame(dict, recording, at->frame) < 0 ||
        ml_py_set(dict, "module", text(recording->strings[at->module])) < 0 ||
        ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(at->phase))) < 0 ||
        ml_py_set(dict, "how", PyUnicode_FromString(ml_how_text(at->how))) < 0 ||
        ml_py_set(dict, "reason", PyUnicode_FromString(ml_no_line_text(at->no_line))) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
reserved_dict(const ml_trial_result *before)
{
    PyObject *dict = ml_py_totals(&before->at_reserved_peak);
    if (dict != NULL &&
        ml_py_set(dict, "inactive_split_bytes", number(before->inactive_split)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
together_dict(const ml_advices *advices)
{
    const ml_totals *after = &advices->after.peak;
    bool most = false;
    for (size_t i = 0; i < advices->count; i++) {
        most = most || (advices->list[i].together && advices->list[i].most);
    }
    PyObject *dict = ml_py_totals(after);
    if (dict != NULL &&
        set_savings(dict, advices, after->allocated, after->reserved, most) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
advice_list(const ml_recording *recording, const ml_advices *advices)
{
    PyObject *list;
    FILL_LIST(list, i, advices->count, ml_py_advice_item(recording, advices, i));
    return list;
}

static PyObject *
part_list(const ml_advices *advices)
{
    PyObject *list;
    FILL_LIST(list, i, advices->part_count, part_dict(&advices->parts[i]));
    return list;
}

static PyObject *
answer_dict(const ml_recording *recording, int device, const ml_advices *advices)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
         ml_py_set(dict, "exact", PyBool_FromLong(advices->exact)) < 0 ||
         ml_py_set(dict, "inexact_because", ml_py_doubts(advices->doubts)) < 0 ||
         ml_py_set(dict, "recorded", ml_py_totals(&advices->recorded)) < 0 ||
         ml_py_set(dict, "start_cached_bytes", number(advices->start_cached)) < 0 ||
         ml_py_set(dict, "peak", peak_dict(recording, advices)) < 0 ||
         ml_py_set(dict, "at_reserved_peak", reserved_dict(&advices->before)) < 0 ||
         ml_py_set(dict, "parts", part_list(advices)) < 0 ||
         ml_py_set(dict, "advice", advice_list(recording, advices)) < 0 ||
         ml_py_set(dict, "together", together_dict(advices)) < 0 ||
         ml_py_set(dict, "batch", batch_dict(&advices->batch)) < 0 ||
         ml_py_set(dict, "uses_known", PyBool_FromLong(advices->uses_known)) < 0 ||
         ml_py_set(dict, "failed", PyBool_FromLong(advices->failed)) < 0 ||
         ml_py_set(dict, "tried", number(advices->tried)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_advice(ml_state *state, const ml_recording *recording, int device,
             PyObject *memory)
{
    uint64_t bytes;
    if (ml_py_memory(memory, &bytes) < 0) {
        return NULL;
    }
    ml_advices *advices = NULL;
    ml_make_fit fit;
    bool asked = false;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_advices_new(recording, (size_t)device, bytes, &advices);
    asked = result == 0 && (advices->failed || bytes != UINT64_MAX);
    if (asked) {
        result = ml_make_fit_of(recording, (size_t)device, bytes, &fit);
    }
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_advices_free(advices);
        return ml_py_raise_trial(state, result, "");
    }
    PyObject *dict = answer_dict(recording, device, advices);
    if (dict != NULL &&
        ml_py_set(dict, "make_fit", asked ? ml_py_make_fit(&fit) : Py_NewRef(Py_None)) <
            0) {
        Py_CLEAR(dict);
    }
    ml_advices_free(advices);
    return dict;
}
