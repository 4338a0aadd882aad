/* The verdict on a run as a Python dict.  See verdict_dict.h. */
#include "dicts/verdict_dict.h"

#include "core/base/base.h"
#include "core/lab/verdict/run_verdict.h"
#include "dicts/advice_dict.h"
#include "dicts/dict_values.h"
#include "dicts/peak_dict.h"
#include "dicts/trial_dict.h"

/* DICT with the line, module and how these are known. */
static int
set_cause(PyObject *dict, const ml_recording *recording, const ml_cause *cause)
{
    if (ml_py_set_frame(dict, recording, cause->frame) < 0 ||
        ml_py_set(dict, "module", text(recording->strings[cause->module])) < 0) {
        return -1;
    }
    return ml_py_set(dict, "how", PyUnicode_FromString(ml_how_text(cause->how)));
}

static PyObject *
finding_dict(const ml_recording *recording, const ml_finding *finding)
{
    const char *stage =
        finding->stage < ML_STAGE_COUNT ? ml_stage_text(finding->stage) : "";
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "kind", PyUnicode_FromString(ml_finding_text(finding->kind))) <
             0 ||
         ml_py_set(dict, "stage", PyUnicode_FromString(stage)) < 0 ||
         ml_py_set(dict, "bytes", number(finding->bytes)) < 0 ||
         ml_py_set(dict, "of_bytes", number(finding->of)) < 0 ||
         set_cause(dict, recording, &finding->cause) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
peak_dict(const ml_recording *recording, const ml_run_verdict *verdict)
{
    PyObject *dict = ml_py_totals(&verdict->peak);
    if (dict != NULL &&
        (ml_py_set(dict, "stage", PyUnicode_FromString(ml_stage_text(verdict->stage))) <
             0 ||
         ml_py_set(dict, "moment", ml_py_moment(recording, verdict->peak_time)) < 0 ||
         set_cause(dict, recording, &verdict->at) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
finding_list(const ml_recording *recording, const ml_run_verdict *verdict)
{
    PyObject *list;
    FILL_LIST(list, i, verdict->finding_count,
              finding_dict(recording, &verdict->findings[i]));
    return list;
}

static PyObject *
change_list(const ml_recording *recording, const ml_run_verdict *verdict)
{
    PyObject *list;
    FILL_LIST(list, i, verdict->change_count,
              ml_py_advice_item(recording, verdict->advices, verdict->changes[i]));
    return list;
}

static PyObject *
untold_list(uint32_t untold)
{
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; i < ML_UNTOLD_COUNT && list != NULL; i++) {
        if ((untold >> i & 1) == 0) {
            continue;
        }
        PyObject *word = PyUnicode_FromString(ml_untold_text(i));
        if (word == NULL || PyList_Append(list, word) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(word);
    }
    return list;
}

static PyObject *
unseen_dict(const ml_make_fit *fit)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "modules", number(fit->modules)) < 0 ||
         ml_py_set(dict, "forward_bytes", number(fit->forward)) < 0 ||
         ml_py_set(dict, "gradient_bytes", number(fit->gradients)) < 0 ||
         ml_py_set(dict, "optimizer_state_bytes", number(fit->state)) < 0 ||
         ml_py_set(dict, "optimizer_assumed", PyBool_FromLong(fit->state_assumed)) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
part_of_batch(uint32_t parts)
{
    return PyFloat_FromDouble((double)parts / ML_FIT_PARTS);
}

static PyObject *
fit_dict(const ml_make_fit *fit)
{
    PyObject *dict = PyDict_New();
    PyObject *memory = fit->memory_bytes == UINT64_MAX ? Py_NewRef(Py_None)
                                                       : number(fit->memory_bytes);
    if (dict == NULL) {
        Py_XDECREF(memory);
        return NULL;
    }
    if (ml_py_set(dict, "memory_bytes", memory) < 0 ||
        ml_py_set(dict, "untold_because", untold_list(fit->untold)) < 0 ||
        ml_py_set(dict, "unseen", unseen_dict(fit)) < 0 ||
        ml_py_set(dict, "needs_least_bytes", number(fit->needs_least)) < 0 ||
        ml_py_set(dict, "needs_most_bytes", number(fit->needs_most)) < 0 ||
        ml_py_set(dict, "batch_named", PyBool_FromLong(fit->batch_named)) < 0 ||
        ml_py_set(dict, "batch_factor", part_of_batch(fit->batch_safe)) < 0 ||
        ml_py_set(dict, "batch_factor_most", part_of_batch(fit->batch_most)) < 0 ||
        ml_py_set(dict, "fragmented", PyBool_FromLong(fit->fragmented)) < 0 ||
        ml_py_set(dict, "unfragmented_fits", PyBool_FromLong(fit->unfragmented_fits)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
answer_dict(const ml_recording *recording, int device, const ml_run_verdict *verdict)
{
    PyObject *dict = PyDict_New();
    PyObject *total = verdict->total == 0 ? Py_NewRef(Py_None) : number(verdict->total);
    if (dict == NULL) {
        Py_XDECREF(total);
        return NULL;
    }
    if (ml_py_set(dict, "total_bytes", total) < 0 ||
        ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "peak", peak_dict(recording, verdict)) < 0 ||
        ml_py_set(dict, "findings", finding_list(recording, verdict)) < 0 ||
        ml_py_set(dict, "tried", PyBool_FromLong(verdict->advices != NULL)) < 0 ||
        ml_py_set(dict, "changes", change_list(recording, verdict)) < 0 ||
        ml_py_set(dict, "make_fit",
                  verdict->has_fit ? fit_dict(&verdict->fit) : Py_NewRef(Py_None)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_verdict(ml_state *state, const ml_recording *recording, int device, bool trials)
{
    ml_run_verdict *verdict = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_run_verdict_new(recording, (size_t)device, trials, &verdict);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise_trial(state, result, "");
    }
    PyObject *dict = answer_dict(recording, device, verdict);
    ml_run_verdict_free(verdict);
    return dict;
}
