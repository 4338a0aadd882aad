/* Makes the account of a whole GPU a Python dict.  See gpu_dict.h. */
#include "dicts/gpu_dict.h"

#include "core/base/base.h"
#include "core/gpu/gpu_account.h"
#include "core/record/recorder.h"
#include "core/record/sampler.h"
#include "core/record/use_turns.h"

/* Sources with real memory, of the process or a GPU; a script's is neither. */
static const char *const sampled_sources[] = {"cuda", "cpu"};

static PyObject *
known(uint64_t value)
{
    return value == ML_NOTE_UNKNOWN ? Py_NewRef(Py_None)
                                    : PyLong_FromUnsignedLongLong(value);
}

static PyObject *
lines_dict(const ml_gpu_account *account)
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < ML_LINE_COUNT; i++) {
        char key[64];
        PyOS_snprintf(key, sizeof(key), "%s_bytes", ml_gpu_account_line_text(i));
        PyObject *bytes = account->known[i] ? PyLong_FromLongLong(account->bytes[i])
                                            : Py_NewRef(Py_None);
        if (ml_py_set(dict, key, bytes) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
account_dict(const ml_gpu_account *account)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "used_bytes", PyLong_FromLongLong(account->used)) < 0 ||
         ml_py_set(dict, "total_bytes", known(account->total)) < 0 ||
         ml_py_set(dict, "driver_reserve_bytes", known(account->reserve)) < 0 ||
         ml_py_set(dict, "lines", lines_dict(account)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
set_after(PyObject *dict, uint64_t time, int64_t after)
{
    return ml_py_set(dict, "time_us", PyLong_FromUnsignedLongLong(time / 1000)) < 0
               ? -1
               : ml_py_set(dict, "after_us", PyLong_FromLongLong(after / 1000));
}

static int
set_host(PyObject *dict, const uint64_t values[ML_NOTE_VALUES])
{
    /* Older recordings include torch's wrong counts. */
    const uint64_t in_use = values[1] <= values[2] ? values[1] : ML_NOTE_UNKNOWN;
    if (ml_py_set(dict, "rss_bytes", known(values[0])) < 0 ||
        ml_py_set(dict, "pinned_allocated_bytes", known(in_use)) < 0) {
        return -1;
    }
    return ml_py_set(dict, "pinned_reserved_bytes", known(values[2]));
}

static PyObject *
gpu_at(const ml_gpu_account *account)
{
    PyObject *dict = account_dict(account);
    if (dict != NULL &&
        (ml_py_set(dict, "moved_bytes", PyLong_FromLongLong(account->moved)) < 0 ||
         set_after(dict, account->time, account->after) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
host_at(const ml_recording *recording, uint64_t time)
{
    const ml_note *note = ml_gpu_account_host_at(recording, time);
    if (note == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (set_host(dict, note->values) < 0 ||
         set_after(dict, note->time, (int64_t)(note->time - time)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

int
ml_py_set_gpu(PyObject *dict, const ml_recording *recording, int device, uint64_t time,
              const ml_totals *torch)
{
    ml_gpu_account account;
    uint32_t reason = 0;
    bool found = ml_gpu_account_at(recording, device, time, torch, &account, &reason);
    const ml_string *why = &recording->strings[reason];
    if (ml_py_set(dict, "gpu", found ? gpu_at(&account) : Py_NewRef(Py_None)) < 0 ||
        ml_py_set(dict, "gpu_reason",
                  PyUnicode_DecodeUTF8(why->bytes, (Py_ssize_t)why->length,
                                       "backslashreplace")) < 0) {
        return -1;
    }
    return ml_py_set(dict, "host", host_at(recording, time));
}

/* ---- Sampling ---- */

static void
sample_all(void (*sample)(const ml_source *source))
{
    Py_BEGIN_ALLOW_THREADS
    for (unsigned i = 0; i < 2; i++) {
        const ml_source *source = ml_recorder_source(sampled_sources[i]);
        if (source != NULL && ml_recorder_enabled(source)) {
            sample(source);
        }
    }
    Py_END_ALLOW_THREADS
}

static void
end_step(const ml_source *source)
{
    ml_sampler_step(source);
    ml_use_turns_step(source);
}

void
ml_py_end_step(void)
{
    if (ml_recorder_noting()) {
        sample_all(end_step);
    }
}

const char ml_py_sample_doc[] =
    "sample($module, begin, /)\n--\n\n"
    "Samples the memory of the host and of whole GPUs for every recording under way:\n"
    "as one begins, or as one is read.";

PyObject *
ml_py_sample(PyObject *Py_UNUSED(module), PyObject *begin)
{
    int begins = PyObject_IsTrue(begin);
    if (begins < 0) {
        return NULL;
    }
    sample_all(begins ? ml_sampler_begin : ml_sampler_read);
    Py_RETURN_NONE;
}

const char ml_py_ledger_doc[] =
    "ledger($module, source, device, /)\n--\n\n"
    "The account of a whole GPU and of the host's memory now, as a dict: all bytes.\n\n"
    "device is an index. Raises ValueError for no such device, memlab.Error where the\n"
    "driver's management library does not tell.";

PyObject *
ml_py_ledger(PyObject *module, PyObject *args)
{
    ml_state *state = PyModule_GetState(module);
    const char *name, *reason = NULL;
    int device, result;
    if (!PyArg_ParseTuple(args, "si:ledger", &name, &device)) {
        return NULL;
    }
    const ml_source *source = ml_recorder_source(name);
    if (source == NULL || device < 0 || device >= source->device_count(source->self)) {
        PyErr_Format(PyExc_ValueError, "no device %s:%d", name, device);
        return NULL;
    }
    ml_gpu_account account;
    uint64_t host[ML_NOTE_VALUES];
    Py_BEGIN_ALLOW_THREADS
    result = ml_sampler_account(source, device, &account, &reason);
    ml_sampler_host(source, host);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, ML_ESOURCE,
                           reason != NULL ? reason : ml_strerror(result));
    }
    PyObject *dict = account_dict(&account), *held = PyDict_New();
    if (dict == NULL || held == NULL || set_host(held, host) < 0) {
        Py_XDECREF(held);
        Py_XDECREF(dict);
        return NULL;
    }
    if (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "host", held) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}
