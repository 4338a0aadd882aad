/* Reads names of actions.  See actions.h. */
#include "dicts/actions.h"

#include <string.h>

#include "core/recording/recording.h"

int
ml_py_actions(PyObject *names, uint32_t *actions)
{
    *actions = 0;
    if (names == NULL) {
        return 0;
    }
    PyObject *items = PySequence_Fast(names, "actions to skip must be a sequence");
    if (items == NULL) {
        return -1;
    }
    int result = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items) && result == 0; i++) {
        const char *name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, i));
        unsigned action = 0;
        while (name != NULL && action < ML_ACTION_OTHER &&
               strcmp(ml_action_text(action), name) != 0) {
            action++;
        }
        if (name == NULL || action == ML_ACTION_OTHER) {
            if (name != NULL) {
                PyErr_Format(PyExc_ValueError, "unknown action: %s", name);
            }
            result = -1;
        }
        else {
            *actions |= 1u << action;
        }
    }
    Py_DECREF(items);
    return result;
}
