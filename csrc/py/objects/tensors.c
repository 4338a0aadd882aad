/* Keeps the torch bridge's view of tensors.  See tensors.h. */
#include "objects/tensors.h"

#include "state.h"

/* Set once. */
static const ml_tensors *view;

const ml_tensors *
ml_tensors_view(void)
{
    return view;
}

const char ml_tensors_use_doc[] = "use_tensors($module, capsule, /)\n--\n\n"
                                  "Takes the view of tensors that the torch bridge "
                                  "offers, by which owners are found.";

PyObject *
ml_tensors_use(PyObject *module, PyObject *capsule)
{
    const ml_tensors *table = PyCapsule_GetPointer(capsule, ML_TENSORS_CAPSULE);
    if (table == NULL) {
        return NULL;
    }
    if (table->size < sizeof(ml_tensors) || table->version != ML_ABI_VERSION) {
        return ml_py_raise(
            PyModule_GetState(module), ML_ESTATE,
            "the torch bridge was built for another memlab; reinstall it "
            "with: pip install --no-build-isolation --force-reinstall .");
    }
    view = table;
    Py_RETURN_NONE;
}
