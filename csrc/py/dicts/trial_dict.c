/* Makes the answer to "what if" a Python dict.  See trial_dict.h. */
#include "dicts/trial_dict.h"

#include "core/analysis/analysis.h"
#include "core/base/base.h"
#include "core/lab/whatif/tune.h"
#include "core/lab/whatif/whatif.h"
#include "dicts/dict_values.h"
#include "dicts/peak_dict.h"

static PyObject *
event_or_none(size_t event)
{
    return event == ML_NO_EVENT ? PyLong_FromLong(-1) : PyLong_FromSize_t(event);
}

static PyObject *
bytes_or_none(uint64_t bytes)
{
    return bytes == UINT64_MAX ? Py_NewRef(Py_None) : number(bytes);
}

PyObject *
ml_py_doubts(uint32_t doubts)
{
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; list != NULL && i < ML_DOUBT_COUNT; i++) {
        if ((doubts >> i & 1) == 0) {
            continue;
        }
        PyObject *word = PyUnicode_FromString(ml_doubt_text(i));
        if (word == NULL || PyList_Append(list, word) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(word);
    }
    return list;
}

/* The line of the first failed request; NULL with an exception. */
static PyObject *
oom_dict(const ml_recording *recording, int device, const ml_whatif *whatif)
{
    const ml_trial_result *result = &whatif->result;
    if (result->ooms == 0) {
        Py_RETURN_NONE;
    }
    ml_cause cause = {.phase = ML_PHASE_BEFORE_RECORDING, .no_line = ML_NO_LINE_BEFORE};
    uint64_t time = 0;
    if (result->oom_event != ML_NO_EVENT) {
        const ml_causes *causes;
        int error = ml_analysis_causes(recording, &causes);
        if (error < 0) {
            return PyErr_NoMemory();
        }
        cause = ml_causes_of(causes, (size_t)device, result->oom_event);
        time =
            ml_events_time(&whatif->workload->trace->events, result->oom_event) / 1000;
    }
    uint64_t memory = ml_whatif_memory(whatif);
    uint64_t least = whatif->least_memory;
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "event", event_or_none(result->oom_event)) < 0 ||
         ml_py_set(dict, "time_us", number(time)) < 0 ||
         ml_py_set(dict, "requested_bytes", number(result->oom_bytes)) < 0 ||
         ml_py_set(dict, "reserved_bytes", number(result->oom_reserved)) < 0 ||
         set_frame(dict, recording, cause.frame) < 0 ||
         ml_py_set(dict, "module", text(recording->strings[cause.module])) < 0 ||
         ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(cause.phase))) <
             0 ||
         ml_py_set(dict, "reason",
                   PyUnicode_FromString(ml_no_line_text(cause.no_line))) < 0 ||
         ml_py_set(dict, "step", number(cause.step)) < 0 ||
         ml_py_set(dict, "least_memory_bytes", number(least)) < 0 ||
         ml_py_set(dict, "missing_bytes", number(least > memory ? least - memory : 0)) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
at_peak_dict(const ml_trial_result *result)
{
    PyObject *dict = ml_py_totals(&result->at_reserved_peak);
    if (dict != NULL &&
        (ml_py_set(dict, "event", event_or_none(result->reserved_peak_event)) < 0 ||
         ml_py_set(dict, "unused_bytes",
                   number(result->at_reserved_peak.reserved -
                          result->at_reserved_peak.active)) < 0 ||
         ml_py_set(dict, "inactive_split_bytes", number(result->inactive_split)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
recorded_dict(const ml_whatif *whatif)
{
    const ml_totals *peak = &whatif->workload->peak;
    PyObject *dict = PyDict_New();
#define XX(name) \
    if (dict != NULL && \
        ml_py_set(dict, #name "_peak_bytes", number(peak->name)) < 0) { \
        Py_CLEAR(dict); \
    }
    ML_TOTALS(XX)
#undef XX
    return dict;
}

static PyObject *
whatif_dict(const ml_recording *recording, int device, const ml_whatif *whatif)
{
    const ml_trial_result *result = &whatif->result;
    const ml_trial_result *check = &whatif->check;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "events", number(check->events)) < 0 ||
        ml_py_set(dict, "mismatched_addresses", number(check->mismatched_addresses)) <
            0 ||
        ml_py_set(dict, "mismatched_segments", number(check->mismatched_segments)) <
            0 ||
        ml_py_set(dict, "mismatched_blocks", number(check->mismatched_blocks)) < 0 ||
        ml_py_set(dict, "compared", PyBool_FromLong(check->compared)) < 0 ||
        ml_py_set(dict, "allocations", number(result->demands)) < 0 ||
        ml_py_set(dict, "allocated_peak_bytes", number(result->peak.allocated)) < 0 ||
        ml_py_set(dict, "active_peak_bytes", number(result->peak.active)) < 0 ||
        ml_py_set(dict, "requested_peak_bytes", number(result->peak.requested)) < 0 ||
        ml_py_set(dict, "reserved_peak_bytes", number(result->peak.reserved)) < 0 ||
        ml_py_set(dict, "peak_event", event_or_none(result->peak_event)) < 0 ||
        ml_py_set(dict, "reserved_peak_range_bytes",
                  Py_BuildValue("[KK]", (unsigned long long)whatif->low,
                                (unsigned long long)whatif->high)) < 0 ||
        ml_py_set(dict, "at_reserved_peak", at_peak_dict(result)) < 0 ||
        ml_py_set(dict, "retries", number(result->retries)) < 0 ||
        ml_py_set(dict, "ooms", number(result->ooms)) < 0 ||
        ml_py_set(dict, "oom", oom_dict(recording, device, whatif)) < 0 ||
        ml_py_set(dict, "driver_calls", number(result->driver_calls)) < 0 ||
        ml_py_set(dict, "memory_bytes", bytes_or_none(ml_whatif_memory(whatif))) < 0 ||
        ml_py_set(dict, "recorded", recorded_dict(whatif)) < 0 ||
        ml_py_set(dict, "exact", PyBool_FromLong(whatif->doubts == 0)) < 0 ||
        ml_py_set(dict, "inexact_because", ml_py_doubts(whatif->doubts)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

int
ml_py_memory(PyObject *memory, uint64_t *out)
{
    *out = ML_WHATIF_RECORDED;
    if (memory == Py_None) {
        return 0;
    }
    *out = PyLong_AsUnsignedLongLong(memory);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (*out == 0 || *out >= UINT64_C(1) << 62) {
        PyErr_SetString(PyExc_ValueError, "memory is from 1 byte to below 2^62 bytes");
        return -1;
    }
    return 0;
}

/* Sets *OUT to CONF, a str or None, as NUL-terminated bytes; NULL for None. */
static int
conf_of(PyObject *conf, const char **out)
{
    *out = NULL;
    if (conf == Py_None) {
        return 0;
    }
    Py_ssize_t length;
    *out = PyUnicode_AsUTF8AndSize(conf, &length);
    if (*out == NULL) {
        return -1;
    }
    if (strlen(*out) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "conf holds a null character");
        return -1;
    }
    return 0;
}

PyObject *
ml_py_raise_trial(ml_state *state, int error, const char *problem)
{
    if (error == ML_EINVALID && problem[0] != '\0') {
        return PyErr_Format(PyExc_ValueError, "conf: %s", problem);
    }
    if (error == ML_EUNSUPPORTED) {
        return ml_py_raise(state, error,
                           "this device's allocator keeps no cache: there is nothing "
                           "to replay");
    }
    return ml_py_raise(state, error, ml_strerror(error));
}

PyObject *
ml_py_replay(ml_state *state, const ml_recording *recording, int device, PyObject *conf,
             PyObject *memory, PyObject *fraction)
{
    const char *settings;
    uint64_t bytes;
    if (conf_of(conf, &settings) < 0 || ml_py_memory(memory, &bytes) < 0) {
        return NULL;
    }
    double part =
        fraction == Py_None ? ML_WHATIF_RECORDED_FRACTION : PyFloat_AsDouble(fraction);
    if (part == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    if (fraction != Py_None && !(part > 0 && part <= 1)) {
        return PyErr_Format(PyExc_ValueError,
                            "memory_fraction must be above 0 and at most 1, not %R",
                            fraction);
    }
    char problem[800];
    ml_whatif *whatif = NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = ml_whatif_new(recording, (size_t)device, settings, bytes, part, &whatif,
                          problem, sizeof(problem));
    Py_END_ALLOW_THREADS
    if (error < 0) {
        return ml_py_raise_trial(state, error, problem);
    }
    PyObject *dict = whatif_dict(recording, device, whatif);
    ml_whatif_free(whatif);
    return dict;
}

/* ---- Tuning ---- */

static PyObject *
tuned_dict(const char *conf, const ml_trial_result *result, uint64_t low, uint64_t high)
{
    PyObject *dict = PyDict_New();
    PyObject *name = conf == NULL ? Py_NewRef(Py_None) : text_at(conf);
    if (ml_py_set(dict, "conf", name) < 0 ||
        ml_py_set(dict, "reserved_peak_bytes", number(result->peak.reserved)) < 0 ||
        ml_py_set(dict, "reserved_peak_range_bytes",
                  Py_BuildValue("[KK]", (unsigned long long)low,
                                (unsigned long long)high)) < 0 ||
        ml_py_set(dict, "allocated_peak_bytes", number(result->peak.allocated)) < 0 ||
        ml_py_set(dict, "retries", number(result->retries)) < 0 ||
        ml_py_set(dict, "ooms", number(result->ooms)) < 0 ||
        ml_py_set(dict, "driver_calls", number(result->driver_calls)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
choice_dict(const ml_tuned *tuned)
{
    return tuned_dict(tuned->conf, &tuned->result, tuned->low, tuned->high);
}

static PyObject *
others_list(const ml_tune *tune)
{
    PyObject *list;
    FILL_LIST(list, i, tune->other_count, choice_dict(&tune->others[i]));
    return list;
}

static PyObject *
tune_dict(int device, const ml_tune *tune)
{
    const ml_whatif *whatif = tune->whatif;
    const ml_tuned *base = &tune->base;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "events", number(whatif->check.events)) < 0 ||
        ml_py_set(dict, "memory_bytes", bytes_or_none(ml_whatif_memory(whatif))) < 0 ||
        ml_py_set(dict, "base",
                  tuned_dict(NULL, &base->result, base->low, base->high)) < 0 ||
        ml_py_set(dict, "start_cached_bytes", number(tune->start_cached)) < 0 ||
        ml_py_set(dict, "best",
                  tune->helps ? choice_dict(&tune->best) : Py_NewRef(Py_None)) < 0 ||
        ml_py_set(dict, "fits", PyBool_FromLong(tune->fits)) < 0 ||
        ml_py_set(dict, "others", others_list(tune)) < 0 ||
        ml_py_set(dict, "trials", PyLong_FromUnsignedLong(tune->trials)) < 0 ||
        ml_py_set(dict, "out_of_trials", PyBool_FromLong(tune->out_of_trials)) < 0 ||
        ml_py_set(dict, "perfect_packing_bytes", number(tune->packed)) < 0 ||
        ml_py_set(dict, "perfect_frees_bytes", bytes_or_none(tune->freed_soon)) < 0 ||
        ml_py_set(dict, "exact", PyBool_FromLong(whatif->doubts == 0)) < 0 ||
        ml_py_set(dict, "inexact_because", ml_py_doubts(whatif->doubts)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_tune(ml_state *state, const ml_recording *recording, int device, PyObject *memory)
{
    uint64_t bytes;
    if (ml_py_memory(memory, &bytes) < 0) {
        return NULL;
    }
    ml_tune *tune = NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = ml_tune_new(recording, (size_t)device, bytes, &tune);
    Py_END_ALLOW_THREADS
    if (error < 0) {
        return ml_py_raise_trial(state, error, "");
    }
    PyObject *dict = tune_dict(device, tune);
    ml_tune_free(tune);
    return dict;
}
