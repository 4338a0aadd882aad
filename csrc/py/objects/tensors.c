/* Keeps the torch bridge's view of tensors.  See tensors.h. */
#include "objects/tensors.h"

const char ml_tensors_use_doc[] = "use_tensors($module, capsule, /)\n--\n\n"
                                  "Takes the view of tensors that the torch bridge "
                                  "offers, by which owners are found.";

PyObject *
ml_tensors_use(PyObject *module, PyObject *capsule)
{
    const ml_tensors *table =
        ml_py_bridge_table(module, capsule, ML_TENSORS_CAPSULE, sizeof(ml_tensors));
    if (table == NULL) {
        return NULL;
    }
    ((ml_state *)PyModule_GetState(module))->tensors = table;
    Py_RETURN_NONE;
}
