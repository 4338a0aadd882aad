/* Finds tensors by the address of their memory.  See tensors_at.h. */
#include "objects/tensors_at.h"

#include "core/base/base.h"
#include "objects/addresses.h"
#include "objects/collector.h"
#include "objects/tensors.h"

const char ml_py_tensors_at_doc[] =
    "tensors_at($module, type, cuda, device, addresses, /)\n--\n\n"
    "A list with a tensor for each of a list of addresses: one that derives from type "
    "and\n"
    "whose storage begins there, on the CUDA device of that index or on the CPU; None "
    "where "
    "there\n"
    "is none.\n\n"
    "Raises TypeError, OverflowError, MemoryError.";

/* Adds each of ADDRESSES to MAP, with its index.  0, or -1 with an exception. */
static int
take_addresses(PyObject *addresses, ml_addresses *map)
{
    Py_ssize_t count = PyList_GET_SIZE(addresses);
    if (ml_addresses_reserve(map, (size_t)count) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t address = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(addresses, i));
        if (address == UINT64_MAX && PyErr_Occurred()) {
            return -1;
        }
        if (address != 0 && ml_addresses_add(map, address, (size_t)i) < 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

static void
put_tensor(const ml_tensors *tensors, const ml_addresses *map, PyObject *tensor,
           int cuda, int device, PyObject *found)
{
    ml_tensor place;
    if (!tensors->storage(tensor, &place) || (place.cuda != 0) != (cuda != 0) ||
        (cuda != 0 && place.device != device)) {
        return;
    }
    const size_t *number = ml_addresses_find(map, place.addr);
    if (number != NULL && PyList_GET_ITEM(found, (Py_ssize_t)*number) == Py_None) {
        /* The list has room: this cannot fail. */
        PyList_SetItem(found, (Py_ssize_t)*number, Py_NewRef(tensor));
    }
}

PyObject *
ml_py_tensors_at(PyObject *module, PyObject *args)
{
    const ml_tensors *tensors = ((ml_state *)PyModule_GetState(module))->tensors;
    PyTypeObject *type;
    PyObject *addresses;
    int cuda, device;
    if (!PyArg_ParseTuple(args, "O!piO!:tensors_at", &PyType_Type, &type, &cuda,
                          &device, &PyList_Type, &addresses)) {
        return NULL;
    }
    ml_addresses map = {0};
    PyObject *all = NULL;
    PyObject *found = PyList_New(PyList_GET_SIZE(addresses));
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(found); i++) {
        PyList_SET_ITEM(found, i, Py_NewRef(Py_None));
    }
    if (found != NULL && take_addresses(addresses, &map) == 0) {
        all = tensors != NULL ? ml_collector_find(&type, 1) : PyList_New(0);
    }
    for (Py_ssize_t i = 0; all != NULL && i < PyList_GET_SIZE(all); i++) {
        put_tensor(tensors, &map, PyList_GET_ITEM(all, i), cuda, device, found);
    }
    ml_addresses_fini(&map);
    if (all == NULL) {
        Py_CLEAR(found);
    }
    Py_XDECREF(all);
    return found;
}
