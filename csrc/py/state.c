/* The module state of memlab._core.  See state.h. */
#include "state.h"

#include "core/record/recorder.h"

struct PyModuleDef ml_core_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "memlab._core",
    .m_size = sizeof(ml_state),
};

ml_state *
ml_state_of(PyTypeObject *type)
{
    PyObject *module = PyType_GetModuleByDef(type, &ml_core_module);
    return PyModule_GetState(module);
}

PyObject *
ml_py_raise(ml_state *state, int error, const char *text)
{
    if (text == NULL) {
        text = ml_recorder_error();
    }
    PyObject *type = state->error;
    if (error == ML_ENOMEM) {
        type = PyExc_MemoryError;
    }
    else if (error == ML_EINVALID) {
        type = PyExc_ValueError;
    }
    else if (error == ML_EFORMAT || error == ML_EUNSAFE || error == ML_ELIMIT) {
        type = state->snapshot_error;
    }
    PyErr_SetString(type, text);
    return NULL;
}

const void *
ml_py_bridge_table(PyObject *module, PyObject *capsule, const char *name, uint32_t size)
{
    /* As every table of bridge.h begins. */
    const struct {
        uint32_t size;
        uint32_t version;
    } *table = PyCapsule_GetPointer(capsule, name);
    if (table != NULL && (table->size < size || table->version != ML_ABI_VERSION)) {
        return ml_py_raise(
            PyModule_GetState(module), ML_ESTATE,
            "the torch bridge was built for another memlab; reinstall it "
            "with: pip install --no-build-isolation --force-reinstall .");
    }
    return table;
}

int
ml_py_set(PyObject *dict, const char *key, PyObject *value)
{
    if (value == NULL) {
        return -1;
    }
    int result = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return result;
}

int
ml_py_get(PyObject *dict, const char *key, PyObject **value)
{
    *value = NULL;
    PyObject *name = PyUnicode_FromString(key);
    if (name == NULL) {
        return -1;
    }
    *value = PyDict_GetItemWithError(dict, name);
    Py_DECREF(name);
    return *value == NULL && PyErr_Occurred() ? -1 : 0;
}

PyObject *
ml_py_seek(PyObject *dict, const char *key)
{
    PyObject *value;
    if (ml_py_get(dict, key, &value) < 0) {
        PyErr_Clear();
    }
    return value;
}
