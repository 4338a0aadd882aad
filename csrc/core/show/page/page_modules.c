/* The groups by module of a page's device: repeated modules rolled up into the rows of
 * the report's peak.  See page_device.h. */
#include "show/page/page_device.h"
#include "show/text/json.h"

/* The modules of the peak with their bytes, then the device's other modules without
 * bytes. */
static int
make_tree(ml_page_device *device, const bool *present)
{
    const ml_peak *peak = device->peak;
    const ml_allocation_kind *kinds = device->kinds->list;
    size_t count = peak->module_count;
    ml_peak_module *modules =
        ml_alloc_zeroed(count + device->groups.kind_count + 1, sizeof(*modules));
    if (modules == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        modules[i] = peak->modules[i];
    }
    for (size_t i = 0; i < device->groups.kind_count; i++) {
        if (present[i]) {
            modules[count++] = (ml_peak_module){.module = kinds[i].module,
                                                .no_module = kinds[i].no_module};
        }
    }
    int error =
        ml_module_tree_new(device->part, modules, count, &device->groups.modules);
    ml_free(modules);
    return error;
}

int
ml_page_group_modules(ml_page_device *device, const bool *present)
{
    ml_page_groups *groups = &device->groups;
    int error = make_tree(device, present);
    if (error < 0) {
        return error;
    }
    const ml_module_tree *tree = groups->modules;
    size_t rows;
    error = ml_module_rows(tree, groups->module_rows, ML_MODULE_ROWS, &rows);
    if (error < 0) {
        return error;
    }
    groups->module_row_count = rows;
    /* If only modules without bytes are left, they are the others too. */
    size_t others = rows;
    for (size_t i = 0; i < rows; i++) {
        bool rest = groups->module_rows[i].node == 0;
        groups->ids[ML_PAGE_BY_MODULE][i] = rest ? -1 : (int64_t)i;
        others = rest ? i : others;
    }
    groups->counts[ML_PAGE_BY_MODULE] = rows;
    for (size_t i = 0; i < groups->kind_count; i++) {
        const ml_allocation_kind *kind = &device->kinds->list[i];
        uint32_t node = kind->module != 0 ? tree->of_module[kind->module]
                                          : tree->of_reason[kind->no_module];
        size_t row =
            !present[i] ? 0 : ml_module_row_of(tree, groups->module_rows, rows, node);
        row = row == rows ? others : row;
        groups->of_kind[ML_PAGE_BY_MODULE][i] =
            present[i] ? (uint32_t)row : ML_PAGE_NO_GROUP;
        if (present[i] && row == rows) {
            groups->ids[ML_PAGE_BY_MODULE][rows] = -1;
            groups->counts[ML_PAGE_BY_MODULE] = rows + 1;
        }
    }
    return 0;
}

void
ml_page_put_path(ml_buffer *out, const ml_module_tree *tree, uint32_t node)
{
    ml_buffer path = {0};
    ml_module_path(tree, node, &path);
    if (path.error < 0) {
        out->error = path.error;
    }
    else {
        ml_json_string(out, path.length == 0 ? "" : path.bytes, path.length);
    }
    ml_buffer_fini(&path);
}

void
ml_page_write_modules(ml_buffer *out, const ml_page_device *device)
{
    const ml_page_groups *groups = &device->groups;
    const ml_module_tree *tree = groups->modules;
    const ml_module_row *rows = groups->module_rows;
    ml_json_key(out, "module_rows");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "path", i, groups->module_row_count,
                   ml_page_put_path(out, tree, rows[i].node));
    ML_JSON_COLUMN(out, "modules", i, groups->module_row_count,
                   ml_json_unsigned(out, tree->nodes[rows[i].node].modules));
    ML_JSON_COLUMN(out, "no_module", i, groups->module_row_count,
                   ml_json_unsigned(out, tree->nodes[rows[i].node].no_module));
    ML_JSON_COLUMN(out, "share", i, groups->module_row_count,
                   ml_json_c_string(out, ml_module_share_text(rows[i].share)));
    ml_json_text(out, "}");
}
