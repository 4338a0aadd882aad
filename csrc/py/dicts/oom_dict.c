/* The answer to "why was it out of memory" as a Python dict.  See oom_dict.h. */
#include "dicts/oom_dict.h"

#include "core/analysis/answers/oom.h"
#include "core/base/base.h"
#include "dicts/dict_values.h"
#include "dicts/peak_dict.h"

static PyObject *
known(uint64_t value)
{
    return value == ML_OOM_UNKNOWN ? Py_NewRef(Py_None) : number(value);
}

static PyObject *
word(const char *bytes)
{
    return PyUnicode_FromString(bytes);
}

/* The frame that called the line of CAUSE; None if there is none. */
static PyObject *
caller_dict(const ml_recording *recording, const ml_cause *cause)
{
    uint32_t frame =
        cause->frame == 0 ? 0 : ml_stack_caller(recording, cause->stack, cause->frame);
    if (frame == 0) {
        Py_RETURN_NONE;
    }
    PyObject *dict = PyDict_New();
    if (dict != NULL && set_frame(dict, recording, frame) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
set_line(PyObject *dict, const ml_peak_line *line)
{
    if (set_place(dict, line->file, line->line, line->function) < 0 ||
        ml_py_set(dict, "phase", word(ml_phase_text(line->phase))) < 0) {
        return -1;
    }
    return ml_py_set(dict, "reason", word(ml_no_line_text(line->no_line)));
}

static PyObject *
request_dict(const ml_recording *recording, const ml_oom *oom)
{
    const ml_cause *cause = &oom->cause;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    PyObject *pool = oom->pool_known
                         ? Py_BuildValue("[KK]", (unsigned long long)oom->pool[0],
                                         (unsigned long long)oom->pool[1])
                         : Py_NewRef(Py_None);
    if (ml_py_set(dict, "pool", pool) < 0 ||
        set_frame(dict, recording, cause->frame) < 0 ||
        ml_py_set(dict, "caller", caller_dict(recording, cause)) < 0 ||
        ml_py_set(dict, "how", word(ml_how_text(cause->how))) < 0 ||
        ml_py_set(dict, "module", text(recording->strings[cause->module])) < 0 ||
        ml_py_set(dict, "phase", word(ml_phase_text(cause->phase))) < 0 ||
        ml_py_set(dict, "reason", word(ml_no_line_text(cause->no_line))) < 0 ||
        ml_py_set(dict, "bytes", number(oom->requested)) < 0 ||
        ml_py_set(dict, "driver_bytes", number(oom->driver_request)) < 0 ||
        ml_py_set(dict, "stream", number(oom->stream)) < 0 ||
        ml_py_set(dict, "small_pool", PyBool_FromLong(oom->small)) < 0 ||
        ml_py_set(dict, "frames", ml_py_frames(recording, cause->stack)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
device_dict(const ml_oom *oom)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "free_bytes", number(oom->device_free)) < 0 ||
        ml_py_set(dict, "total_bytes", known(oom->total)) < 0 ||
        ml_py_set(dict, "allowed_bytes", known(oom->allowed)) < 0 ||
        ml_py_set(dict, "headroom_bytes", number(oom->headroom)) < 0 ||
        ml_py_set(dict, "outside_bytes", known(oom->outside)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
unused_dict(const ml_oom *oom)
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < ML_OOM_UNUSED_COUNT; i++) {
        const ml_oom_unused *unused = &oom->unused[i];
        PyObject *part =
            Py_BuildValue("{s:K,s:K,s:K}", "bytes", (unsigned long long)unused->bytes,
                          "pieces", (unsigned long long)unused->pieces, "largest_bytes",
                          (unsigned long long)unused->largest);
        if (ml_py_set(dict, ml_oom_unused_text(i), part) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

/* None if there is no block. */
static PyObject *
block_dict(const ml_recording *recording, const ml_oom *oom, const ml_oom_block *block)
{
    if (block->size == 0) {
        Py_RETURN_NONE;
    }
    static const ml_peak_block pending = {.verdict = {.category = ML_CATEGORY_UNKNOWN},
                                          .cause = {.phase = ML_PHASE_UNKNOWN}};
    const ml_peak_block *known_block =
        block->place < 0 ? &pending : &oom->state->blocks[block->place];
    const ml_cause *cause = &known_block->cause;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "bytes", number(block->size)) < 0 ||
        ml_py_set(dict, "address", number(block->addr)) < 0 ||
        ml_py_set(dict, "event", PyLong_FromLongLong(block->event)) < 0 ||
        ml_py_set(dict, "pending_free", PyBool_FromLong(block->place < 0)) < 0 ||
        ml_py_set(dict, "category",
                  word(ml_category_text(known_block->verdict.category))) < 0 ||
        set_frame(dict, recording, cause->frame) < 0 ||
        ml_py_set(dict, "caller", caller_dict(recording, cause)) < 0 ||
        ml_py_set(dict, "how", word(ml_how_text(cause->how))) < 0 ||
        ml_py_set(dict, "module", text(recording->strings[cause->module])) < 0 ||
        ml_py_set(dict, "phase", word(ml_phase_text(cause->phase))) < 0 ||
        ml_py_set(dict, "reason", word(ml_no_line_text(cause->no_line))) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* Appends VALUE, whose reference is taken even on failure.  Returns whether it
 * succeeded. */
static bool
append_value(PyObject *list, PyObject *value)
{
    bool done = value != NULL && PyList_Append(list, value) == 0;
    Py_XDECREF(value);
    return done;
}

static PyObject *
hole_dict(const ml_recording *recording, const ml_oom *oom, const ml_oom_hole *hole)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "bytes", number(hole->size)) < 0 ||
        ml_py_set(dict, "address", number(hole->addr)) < 0 ||
        ml_py_set(dict, "segment_bytes", number(hole->segment_bytes)) < 0 ||
        ml_py_set(dict, "before", block_dict(recording, oom, &hole->before)) < 0 ||
        ml_py_set(dict, "after", block_dict(recording, oom, &hole->after)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
holes_list(const ml_recording *recording, const ml_oom *oom)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < oom->hole_count; i++) {
        if (!append_value(list, hole_dict(recording, oom, &oom->holes[i]))) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* None if nothing fits. */
static PyObject *
fit_dict(const ml_recording *recording, const ml_oom *oom)
{
    const ml_oom_fit *fit = &oom->fit;
    if (fit->size == 0) {
        Py_RETURN_NONE;
    }
    PyObject *blocks = PyList_New(0);
    for (size_t i = 0; blocks != NULL && i < ML_OOM_HOLES && fit->largest[i].size != 0;
         i++) {
        if (!append_value(blocks, block_dict(recording, oom, &fit->largest[i]))) {
            Py_CLEAR(blocks);
        }
    }
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        Py_XDECREF(blocks);
        return NULL;
    }
    if (ml_py_set(dict, "blocks", blocks) < 0 ||
        ml_py_set(dict, "bytes", number(fit->size)) < 0 ||
        ml_py_set(dict, "address", number(fit->addr)) < 0 ||
        ml_py_set(dict, "used_bytes", number(fit->used)) < 0 ||
        ml_py_set(dict, "used_blocks", number(fit->used_blocks)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
growing_dict(const ml_oom_growing *line)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (set_place(dict, line->file, line->line, line->function) < 0 ||
        ml_py_set(dict, "before_bytes", number(line->before)) < 0 ||
        ml_py_set(dict, "after_bytes", number(line->after)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* None if memory did not grow. */
static PyObject *
growth_dict(const ml_oom *oom)
{
    const ml_oom_growth *growth = &oom->growth;
    if (growth->steps == 0) {
        Py_RETURN_NONE;
    }
    PyObject *lines = PyList_New(0);
    for (size_t i = 0; lines != NULL && i < growth->line_count; i++) {
        if (!append_value(lines, growing_dict(&growth->lines[i]))) {
            Py_CLEAR(lines);
        }
    }
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        Py_XDECREF(lines);
        return NULL;
    }
    if (ml_py_set(dict, "by_line", lines) < 0 ||
        ml_py_set(dict, "steps", number(growth->steps)) < 0 ||
        ml_py_set(dict, "marked_steps", PyBool_FromLong(growth->marked)) < 0 ||
        ml_py_set(dict, "first_bytes", number(growth->first)) < 0 ||
        ml_py_set(dict, "last_bytes", number(growth->last)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
advice_list(const ml_oom *oom)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < oom->advice_count; i++) {
        const ml_oom_advice *advice = &oom->advice[i];
        PyObject *item =
            Py_BuildValue("{s:s,s:K}", "kind", ml_oom_advice_text(advice->kind),
                          "bytes", (unsigned long long)advice->bytes);
        if (item != NULL && advice->kind == ML_OOM_ADVICE_ONE_LINE &&
            set_line(item, &oom->state->lines[oom->line]) < 0) {
            Py_CLEAR(item);
        }
        if (!append_value(list, item)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
oom_dict(const ml_recording *recording, int device, const ml_oom *oom)
{
    const ml_replay_result *replay = &oom->state->replay;
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "event", number(oom->event)) < 0 ||
        ml_py_set(dict, "number", number(oom->number)) < 0 ||
        ml_py_set(dict, "count", number(oom->count)) < 0 ||
        ml_py_set(dict, "time_us", number(oom->time / 1000)) < 0 ||
        ml_py_set(dict, "verdict", word(ml_oom_verdict_text(oom->verdict))) < 0 ||
        ml_py_set(dict, "request", request_dict(recording, oom)) < 0 ||
        ml_py_set(dict, "on_device", device_dict(oom)) < 0 ||
        ml_py_set(dict, "at", ml_py_totals(&oom->state->totals)) < 0 ||
        ml_py_set(dict, "unused", unused_dict(oom)) < 0 ||
        ml_py_set(dict, "pending_bytes", number(oom->pending)) < 0 ||
        ml_py_set(dict, "released_bytes", number(oom->released)) < 0 ||
        ml_py_set(dict, "expandable_segments", PyBool_FromLong(oom->expandable)) < 0 ||
        ml_py_set(dict, "holes", holes_list(recording, oom)) < 0 ||
        ml_py_set(dict, "nearest_fit", fit_dict(recording, oom)) < 0 ||
        ml_py_set(dict, "growth", growth_dict(oom)) < 0 ||
        ml_py_set(dict, "advice", advice_list(oom)) < 0 ||
        ml_py_set(dict, "by_line", ml_py_peak_lines(oom->state)) < 0 ||
        ml_py_set(dict, "by_category", ml_py_peak_categories(oom->state)) < 0 ||
        ml_py_set(dict, "unknown_because", ml_py_peak_whys(oom->state)) < 0 ||
        ml_py_set(dict, "mismatches",
                  number(replay->misfits + replay->mismatched_blocks)) < 0 ||
        ml_py_set(dict, "uncertain_bytes", number(replay->uncertain_bytes)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_oom(ml_state *state, const ml_recording *recording, int device)
{
    ml_oom *oom = NULL;
    int result = 0;
    int64_t event;
    Py_BEGIN_ALLOW_THREADS
    event = ml_oom_last(recording, (size_t)device);
    if (event >= 0) {
        result = ml_oom_new(recording, (size_t)device, (uint64_t)event, &oom);
    }
    Py_END_ALLOW_THREADS
    if (event < 0) {
        Py_RETURN_NONE;
    }
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    PyObject *dict = oom_dict(recording, device, oom);
    ml_oom_free(oom);
    return dict;
}
