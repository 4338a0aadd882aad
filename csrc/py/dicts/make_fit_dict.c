/* What makes a run fit, as a Python dict.  See make_fit_dict.h. */
#include "dicts/make_fit_dict.h"

#include "core/base/base.h"
#include "core/show/text/make_fit_text.h"
#include "dicts/dict_values.h"

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
part_of_batch(const ml_make_fit *fit, uint32_t batch)
{
    return PyFloat_FromDouble((double)batch / ml_make_fit_whole(fit));
}

static PyObject *
remedy_words(const ml_remedy *remedy)
{
    ml_buffer out = {0};
    ml_fit_put_remedy(&out, remedy);
    return text_of(&out);
}

static PyObject *
fit_words(void (*put)(ml_buffer *, const ml_make_fit *), const ml_make_fit *fit)
{
    ml_buffer out = {0};
    put(&out, fit);
    return text_of(&out);
}

static PyObject *
remedy_dict(const ml_remedy *remedy)
{
    PyObject *module = text(remedy->module);
    PyObject *dict = PyDict_New();
    if (module != NULL && remedy->count != 0 && remedy->kind == ML_REMEDY_CHECKPOINT) {
        Py_SETREF(module, PyUnicode_FromFormat("%U*", module));
    }
    if (dict == NULL) {
        Py_XDECREF(module);
        return NULL;
    }
    if (ml_py_set(dict, "module", module) < 0 ||
        ml_py_set(dict, "kind", PyUnicode_FromString(ml_remedy_text(remedy->kind))) <
            0 ||
        ml_py_set(dict, "text", remedy_words(remedy)) < 0 ||
        ml_py_set(dict, "costs", text_at(ml_remedy_cost(remedy->kind))) < 0 ||
        ml_py_set(dict, "tried", PyBool_FromLong(remedy->exact)) < 0 ||
        ml_py_set(dict, "count", number(remedy->count)) < 0 ||
        ml_py_set(dict, "saving_bytes", number(remedy->saving)) < 0 ||
        ml_py_set(dict, "needs_bytes", number(remedy->needs)) < 0 ||
        ml_py_set(dict, "fits", PyBool_FromLong(remedy->fits)) < 0 ||
        ml_py_set(dict, "chosen", PyBool_FromLong(remedy->chosen)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
remedy_list(const ml_remedies *remedies)
{
    PyObject *list;
    FILL_LIST(list, i, remedies->count, remedy_dict(&remedies->list[i]));
    return list;
}

static PyObject *
number_or_none(uint64_t value, uint64_t unknown)
{
    return value == unknown ? Py_NewRef(Py_None) : number(value);
}

PyObject *
ml_py_make_fit(const ml_make_fit *fit)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "memory_bytes", number_or_none(fit->memory_bytes, UINT64_MAX)) <
            0 ||
        ml_py_set(dict, "untold_because", untold_list(fit->untold)) < 0 ||
        ml_py_set(dict, "unseen", unseen_dict(fit)) < 0 ||
        ml_py_set(dict, "needs_least_bytes", number(fit->needs_least)) < 0 ||
        ml_py_set(dict, "needs_most_bytes", number(fit->needs_most)) < 0 ||
        ml_py_set(dict, "batch_argument", text_at(fit->batch_name)) < 0 ||
        ml_py_set(dict, "batch_recorded", number(fit->batch_number)) < 0 ||
        ml_py_set(dict, "batch", number(ml_make_fit_number(fit))) < 0 ||
        ml_py_set(dict, "program", text(fit->program)) < 0 ||
        ml_py_set(dict, "gpu_bytes", number_or_none(fit->gpu_bytes, 0)) < 0 ||
        ml_py_set(dict, "failed", PyBool_FromLong(fit->failed)) < 0 ||
        ml_py_set(dict, "batch_named", PyBool_FromLong(fit->batch_named)) < 0 ||
        ml_py_set(dict, "batch_factor", part_of_batch(fit, fit->batch_safe)) < 0 ||
        ml_py_set(dict, "batch_factor_most", part_of_batch(fit, fit->batch_most)) < 0 ||
        ml_py_set(dict, "batch_text", fit_words(ml_fit_put_batch, fit)) < 0 ||
        ml_py_set(dict, "chosen_text", fit_words(ml_fit_put_chosen, fit)) < 0 ||
        ml_py_set(dict, "remedies", remedy_list(&fit->remedies)) < 0 ||
        ml_py_set(dict, "chosen_need_bytes", number(fit->remedies.together)) < 0 ||
        ml_py_set(dict, "fragmented", PyBool_FromLong(fit->fragmented)) < 0 ||
        ml_py_set(dict, "unfragmented_fits", PyBool_FromLong(fit->unfragmented_fits)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}
