/* The tree of modules as Python lists.  See module_dict.h. */
#include "dicts/module_dict.h"

#include "core/analysis/answers/module_rows.h"
#include "dicts/dict_values.h"

static PyObject *
path_of(const ml_module_tree *tree, uint32_t node)
{
    ml_buffer buffer = {0};
    ml_module_path(tree, node, &buffer);
    return text_of(&buffer);
}

/* Keys common to a node and its row. */
static PyObject *
named_dict(const ml_module_tree *tree, uint32_t id, ml_peak_sum sum)
{
    const ml_module_node *node = &tree->nodes[id];
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "module", path_of(tree, id)) < 0 ||
         ml_py_set(dict, "reason",
                   PyUnicode_FromString(ml_no_module_text(node->no_module))) < 0 ||
         ml_py_set(dict, "modules", number(node->modules)) < 0 ||
         ml_py_set(dict, "bytes", number(sum.bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(sum.blocks)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The children of node ID, recursively, at most twice ML_MODULE_DEPTH levels. */
static PyObject *
children_list(const ml_module_tree *tree, uint32_t id)
{
    const ml_module_node *of = &tree->nodes[id];
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < of->children; i++) {
        const ml_module_node *node = &tree->nodes[of->first + i];
        PyObject *dict = named_dict(tree, of->first + i, node->all);
        if (dict == NULL || ml_py_set(dict, "own_bytes", number(node->own.bytes)) < 0 ||
            ml_py_set(dict, "own_blocks", number(node->own.blocks)) < 0 ||
            ml_py_set(dict, "children", children_list(tree, of->first + i)) < 0 ||
            PyList_Append(list, dict) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(dict);
    }
    return list;
}

static PyObject *
row_dict(const ml_module_tree *tree, const ml_module_row *row)
{
    PyObject *dict = named_dict(tree, row->node, row->sum);
    if (dict != NULL &&
        ml_py_set(dict, "share",
                  PyUnicode_FromString(ml_module_share_text(row->share))) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
rows_list(const ml_module_tree *tree, size_t most)
{
    ml_module_row rows[ML_MODULE_ROWS];
    size_t count;
    if (ml_module_rows(tree, rows, most, &count) < 0) {
        return PyErr_NoMemory();
    }
    PyObject *list;
    FILL_LIST(list, i, count, row_dict(tree, &rows[i]));
    return list;
}

int
ml_py_set_modules(PyObject *dict, const ml_recording *recording, const ml_peak *peak,
                  size_t most)
{
    ml_module_tree *tree;
    if (ml_module_tree_new(recording, peak->modules, peak->module_count, &tree) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    int result = ml_py_set(dict, "module_tree", children_list(tree, 0)) < 0 ||
                         ml_py_set(dict, "module_rows", rows_list(tree, most)) < 0
                     ? -1
                     : 0;
    ml_module_tree_free(tree);
    return result;
}
