/* Reads the units of FullyShardedDataParallel.  See shards.h. */
#include "training/shards.h"

#include "core/base/base.h"
#include "objects/addresses.h"
#include "training/owners.h"
#include "state.h"

/* The places of unit types in torch. */
static const struct {
    const char *module;
    const char *type;
} units[ML_SHARD_TYPES] = {
    {"torch.distributed.fsdp._fully_shard._fsdp_param", "FSDPParam"},
    {"torch.distributed.fsdp._flat_param", "FlatParamHandle"},
};

static PyTypeObject *
unit_type(size_t index)
{
    PyObject *module = ml_py_seek(PyImport_GetModuleDict(), units[index].module);
    PyObject *type = module != NULL && PyModule_Check(module)
                         ? ml_py_seek(PyModule_GetDict(module), units[index].type)
                         : NULL;
    return type != NULL && PyType_Check(type) ? (PyTypeObject *)type : NULL;
}

size_t
ml_shards_types(PyTypeObject *types[ML_SHARD_TYPES])
{
    size_t count = 0;
    for (size_t i = 0; i < ML_SHARD_TYPES; i++) {
        PyTypeObject *type = unit_type(i);
        if (type != NULL) {
            types[count++] = type;
        }
    }
    return count;
}

/* The value NAME in OBJECT's own dict, borrowed; NULL if missing or None. */
static PyObject *
own(PyObject *object, const char *name)
{
    PyObject *attributes =
        object != NULL ? PyObject_GenericGetDict(object, NULL) : NULL;
    PyObject *value = attributes != NULL && PyDict_Check(attributes)
                          ? ml_py_seek(attributes, name)
                          : NULL;
    Py_XDECREF(attributes);
    PyErr_Clear();
    return value != Py_None ? value : NULL;
}

/* The item of a list or tuple; NULL: there is none. */
static PyObject *
item(PyObject *list, Py_ssize_t index)
{
    if (list != NULL && PyList_Check(list) && index < PyList_GET_SIZE(list)) {
        return PyList_GET_ITEM(list, index);
    }
    if (list != NULL && PyTuple_Check(list) && index < PyTuple_GET_SIZE(list)) {
        return PyTuple_GET_ITEM(list, index);
    }
    return NULL;
}

/* One parameter of fully_shard(), which several modules may share. */
static void
visit_param(PyObject *param, ml_shard_visitor visit, void *context)
{
    PyObject *info = own(param, "_module_info");
    PyObject *sharded = own(param, "sharded_param");
    ml_shard shard = {.module = own(info, "module"),
                      .name = own(info, "param_name"),
                      .tensor = sharded,
                      .owner = sharded,
                      .whole = own(param, "_unsharded_param")};
    PyObject *modules = own(info, "shared_modules");
    PyObject *names = own(info, "shared_param_names");
    for (Py_ssize_t i = 0; shard.module != NULL && shard.name != NULL; i++) {
        visit(context, &shard);
        shard = (ml_shard){.module = item(modules, i), .name = item(names, i)};
    }
}

/* The flat parameter of a FullyShardedDataParallel; its modules' parameters are views
 * of it.  INFOS name their modules, in the order of ORIGINALS, which exist with
 * use_orig_params=True. */
static void
visit_views(PyObject *infos, PyObject *originals, ml_shard_visitor visit, void *context)
{
    PyObject *info;
    for (Py_ssize_t i = 0; (info = item(infos, i)) != NULL; i++) {
        ml_shard shard = {.module = item(info, 1),
                          .name = item(info, 0),
                          .owner = item(originals, i)};
        if (shard.module != NULL && shard.name != NULL) {
            visit(context, &shard);
        }
    }
}

static void
visit_handle(PyObject *handle, ml_shard_visitor visit, void *context)
{
    PyObject *flat = own(handle, "flat_param");
    PyObject *module = own(handle, "_fully_sharded_module");
    PyObject *name = PyUnicode_InternFromString("_flat_param");
    if (flat == NULL || module == NULL || name == NULL) {
        PyErr_Clear();
        Py_XDECREF(name);
        return;
    }
    PyObject *local = own(flat, "_local_shard"); /* none before the first forward */
    visit(context, &(ml_shard){.module = module,
                               .name = name,
                               .tensor = local != NULL ? local : flat,
                               .owner = flat});
    Py_DECREF(name);
    visit_views(own(flat, "_param_infos"), own(flat, "_params"), visit, context);
    visit_views(own(flat, "_shared_param_infos"), own(flat, "_shared_params"), visit,
                context);
}

void
ml_shards_visit(PyObject *object, ml_shard_visitor visit, void *context)
{
    static void (*const visitors[])(PyObject * unit, ml_shard_visitor visit,
                                    void *context) = {visit_param, visit_handle};
    for (size_t i = 0; i < ML_SHARD_TYPES; i++) {
        PyTypeObject *type = unit_type(i);
        if (type != NULL && PyType_IsSubtype(Py_TYPE(object), type)) {
            visitors[i](object, visit, context);
        }
    }
}

/* Not 0. */
static uint64_t
key_of(PyObject *module, PyObject *name)
{
    Py_hash_t hash = PyUnicode_CheckExact(name) ? PyObject_Hash(name) : 0;
    return (ml_hash_u64((uintptr_t)module) ^ (uint64_t)hash) | 1;
}

static void
keep_shard(void *context, const ml_shard *shard)
{
    (void)ml_addresses_add(context, key_of(shard->module, shard->name), 0);
}

void
ml_shards_note(ml_state *state, PyObject *objects)
{
    ml_shards_forget(state);
    ml_addresses *kept = ml_alloc_zeroed(1, sizeof(*kept));
    for (Py_ssize_t i = 0; kept != NULL && i < PyList_GET_SIZE(objects); i++) {
        ml_shards_visit(PyList_GET_ITEM(objects, i), keep_shard, kept);
    }
    state->shards = kept;
}

void
ml_shards_forget(ml_state *state)
{
    if (state->shards != NULL) {
        ml_addresses_fini(state->shards);
        ml_free(state->shards);
        state->shards = NULL;
    }
}

bool
ml_shards_keep(const ml_state *state, PyObject *module, PyObject *name)
{
    return state->shards != NULL && state->shards->count != 0 &&
           ml_addresses_find(state->shards, key_of(module, name)) != NULL;
}
