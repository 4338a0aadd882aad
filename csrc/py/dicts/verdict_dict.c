/* The verdict on a run as a Python dict.  See verdict_dict.h. */
#include "dicts/verdict_dict.h"

#include "core/base/base.h"
#include "dicts/advice_dict.h"
#include "dicts/dict_values.h"
#include "dicts/growth_dict.h"
#include "dicts/make_fit_dict.h"
#include "dicts/peak_dict.h"

static int
set_setting(PyObject *dict, const ml_blamed_setting *blamed)
{
    if (ml_py_set(dict, "setting", text_at(blamed->setting)) < 0 ||
        ml_py_set(dict, "setting_instead", text_at(blamed->instead)) < 0 ||
        ml_py_set(dict, "setting_saving_bytes", number(blamed->saving)) < 0) {
        return -1;
    }
    return 0;
}

typedef void put_words(ml_buffer *out, const ml_verdict_words *words, size_t index);

/* What PUT writes of item INDEX. */
static PyObject *
words_of(put_words *put, const ml_verdict_words *words, size_t index)
{
    ml_buffer out = {0};
    put(&out, words, index);
    return text_of(&out);
}

static PyObject *
finding_dict(const ml_verdict_words *words, size_t index)
{
    static const ml_blamed_setting none;
    const ml_recording *recording = words->recording;
    const ml_run_verdict *verdict = words->verdict;
    const ml_finding *finding = &verdict->findings[index];
    const ml_growing_streams *streams = &verdict->growth->workspaces;
    const ml_growing of_streams = {.since = streams->since, .steps = streams->steps};
    bool is_of_streams = finding->kind == ML_FINDING_WORKSPACES_GROW;
    const char *stage =
        finding->stage < ML_STAGE_COUNT ? ml_stage_text(finding->stage) : "";
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "kind", PyUnicode_FromString(ml_finding_text(finding->kind))) <
             0 ||
         ml_py_set(dict, "text", words_of(ml_verdict_finding, words, index)) < 0 ||
         ml_py_set(dict, "stage", PyUnicode_FromString(stage)) < 0 ||
         ml_py_set(dict, "bytes", number(finding->bytes)) < 0 ||
         ml_py_set(dict, "of_bytes", number(finding->of)) < 0 ||
         set_setting(dict, finding->kind == ML_FINDING_CACHE_HELD ? &verdict->blamed
                                                                  : &none) < 0 ||
         ml_py_set_growing(dict, recording,
                           is_of_streams ? &of_streams : finding->growing) < 0 ||
         ml_py_set_cause(dict, recording, &finding->cause) < 0)) {
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
         ml_py_set_cause(dict, recording, &verdict->at) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
finding_list(const ml_verdict_words *words)
{
    PyObject *list;
    FILL_LIST(list, i, words->verdict->finding_count, finding_dict(words, i));
    return list;
}

static PyObject *
change_dict(const ml_verdict_words *words, size_t index)
{
    const ml_run_verdict *verdict = words->verdict;
    PyObject *dict =
        ml_py_advice_item(words->recording, verdict->advices, verdict->changes[index]);
    if (dict != NULL &&
        (ml_py_set(dict, "text", words_of(ml_verdict_change, words, index)) < 0 ||
         ml_py_set(dict, "code", words_of(ml_verdict_code, words, index)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
change_list(const ml_verdict_words *words)
{
    PyObject *list;
    FILL_LIST(list, i, words->verdict->change_count, change_dict(words, i));
    return list;
}

PyObject *
ml_py_verdict(const ml_verdict_words *words, int device)
{
    const ml_run_verdict *verdict = words->verdict;
    PyObject *dict = PyDict_New();
    PyObject *total = verdict->total == 0 ? Py_NewRef(Py_None) : number(verdict->total);
    if (dict == NULL) {
        Py_XDECREF(total);
        return NULL;
    }
    if (ml_py_set(dict, "total_bytes", total) < 0 ||
        ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "peak", peak_dict(words->recording, verdict)) < 0 ||
        ml_py_set(dict, "findings", finding_list(words)) < 0 ||
        ml_py_set(dict, "tried", PyBool_FromLong(verdict->advices != NULL)) < 0 ||
        ml_py_set(dict, "uses_known",
                  PyBool_FromLong(verdict->advices != NULL &&
                                  verdict->advices->uses_known)) < 0 ||
        ml_py_set(dict, "changes", change_list(words)) < 0 ||
        ml_py_set(dict, "make_fit",
                  verdict->has_fit ? ml_py_make_fit(&verdict->fit)
                                   : Py_NewRef(Py_None)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}
