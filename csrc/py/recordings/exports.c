/* A recording in other forms.  See exports.h. */
#include "recordings/exports.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/base.h"
#include "core/file/snapshot/pickle_writer.h"
#include "core/file/snapshot/snapshot_reader.h"
#include "core/ledger/replay/event_filter.h"
#include "core/show/draw/torch_segsum.h"
#include "core/show/draw/torch_trace.h"
#include "core/show/export/recording_json.h"
#include "core/show/export/perfetto.h"
#include "core/show/export/stack_text.h"
#include "dicts/columns.h"
#include "files/pictures.h"
#include "files/whole_file.h"
#include "recordings/recording_object.h"

const char ml_recording_flame_difference_doc[] =
    "flame_difference($self, after, /)\n--\n\n"
    "The memory at the end of two recordings by the stacks that hold it, coloured "
    "by what\n"
    "came and what went from this one to after: bytes of an SVG file.\n\n"
    "Raises TypeError, MemoryError.";

static PyObject *
flame_difference(PyObject *op, PyObject *after, bool folded)
{
    ml_state *state = ml_state_of(Py_TYPE(op));
    const ml_recording *other = ml_recording_behind(state, after);
    if (other == NULL) {
        PyErr_Format(PyExc_TypeError, "after is a %s, not a Recording",
                     Py_TYPE(after)->tp_name);
        return NULL;
    }
    return ml_py_flame_difference(state, ml_recording_of(op), other, folded);
}

PyObject *
ml_recording_flame_difference(PyObject *op, PyObject *after)
{
    return flame_difference(op, after, false);
}

const char ml_recording_flame_folded_difference_doc[] =
    "flame_folded_difference($self, after, /)\n--\n\n"
    "The segments that only one of both recordings has, as bytes of text that "
    "torch's\n"
    "compare() gives to flamegraph.pl. Raises TypeError, MemoryError.";

PyObject *
ml_recording_flame_folded_difference(PyObject *op, PyObject *after)
{
    return flame_difference(op, after, true);
}

static int
sink_file(void *context, const void *bytes, size_t length)
{
    return ml_outfile_write(context, bytes, length);
}

static int
write_perfetto_job(void *context, ml_outfile *file)
{
    return ml_perfetto_write(context, sink_file, file);
}

const char ml_recording_write_perfetto_doc[] =
    "write_perfetto($self, path, /)\n--\n\n"
    "Writes a trace that ui.perfetto.dev opens; it appears whole or not at "
    "all.\n\n"
    "path is a str, bytes or os.PathLike. Raises OSError, memlab.Error for "
    "over two\n"
    "billion events, MemoryError.";

PyObject *
ml_recording_write_perfetto(PyObject *op, PyObject *path)
{
    return ml_py_write_whole(ml_state_of(Py_TYPE(op)), path, write_perfetto_job,
                             (void *)(uintptr_t)ml_recording_of(op));
}

typedef struct json_job {
    const ml_recording *recording; /* borrowed */
    unsigned options;
} json_job;

static int
write_json_job(void *context, ml_outfile *file)
{
    const json_job *job = context;
    return ml_recording_json_write(job->recording, job->options, sink_file, file);
}

const char ml_recording_write_json_doc[] =
    "write_json($self, path, expand, /)\n--\n\n"
    "Writes the recording as JSON (docs/FORMAT.md); the file appears whole or not "
    "at all.\n\n"
    "path is a str, bytes or os.PathLike. expand: version 1, with every stack "
    "written out\n"
    "wherever it is referred to. Raises OSError, MemoryError.";

PyObject *
ml_recording_write_json(PyObject *op, PyObject *args)
{
    PyObject *path;
    int expand;
    if (!PyArg_ParseTuple(args, "Op:write_json", &path, &expand)) {
        return NULL;
    }
    json_job job = {ml_recording_of(op), expand ? ML_RECORDING_JSON_EXPAND : 0};
    return ml_py_write_whole(ml_state_of(Py_TYPE(op)), path, write_json_job, &job);
}

const char ml_recording_stacks_folded_doc[] =
    "stacks_folded($self, device, /)\n--\n\n"
    "What is live at the peak of a device, None for all, by stack: bytes of "
    "text, a line of\n"
    "frames from the outermost on with ';' between, and of bytes, for each.\n\n"
    "Raises IndexError for a device that the recording does not have, "
    "MemoryError.";

PyObject *
ml_recording_stacks_folded(PyObject *op, PyObject *device)
{
    return ml_py_stacks(ml_state_of(Py_TYPE(op)), ml_recording_of(op), device,
                        ml_stack_folded);
}

const char ml_recording_stacks_speedscope_doc[] =
    "stacks_speedscope($self, device, /)\n--\n\n"
    "The same as bytes of a file of speedscope, a profile for each device.";

PyObject *
ml_recording_stacks_speedscope(PyObject *op, PyObject *device)
{
    return ml_py_stacks(ml_state_of(Py_TYPE(op)), ml_recording_of(op), device,
                        ml_stack_speedscope);
}

PyObject *
ml_recording_columns(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return ml_py_columns(ml_state_of(Py_TYPE(op)), ml_recording_of(op), args, kwargs);
}

static int
sink_buffer(void *context, const void *bytes, size_t length)
{
    ml_buffer *buffer = context;
    ml_buffer_append(buffer, bytes, length);
    return buffer->error;
}

/* By way of the file that memlab would write, which holds all that a recording
 * knows. */
static int
copy_recording(const ml_recording *recording, ml_recording **out)
{
    ml_buffer buffer = {0};
    ml_read_error error = {0};
    int result = ml_pickle_write(recording, ML_PICKLE_EXTRAS, sink_buffer, &buffer);
    if (result == 0) {
        result = ml_snapshot_read(buffer.bytes, buffer.length, out, &error);
    }
    ml_buffer_fini(&buffer);
    return result;
}

const char ml_recording_timeline_svg_doc[] =
    "timeline_svg($self, device, /)\n--\n\n"
    "A small picture of a device's allocated bytes by category over time, with the "
    "reserved\n"
    "ones and the peak: bytes of an SVG element; empty if it has no memory.\n\n"
    "Raises IndexError for a device that the recording does not have, MemoryError.";

PyObject *
ml_recording_timeline_svg(PyObject *op, PyObject *arg)
{
    const ml_recording *recording = ml_recording_of(op);
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    return ml_py_timeline_svg(ml_state_of(Py_TYPE(op)), recording, (size_t)device);
}

const char ml_recording_segsum_doc[] =
    "segsum($self, /)\n--\n\n"
    "How full the segments are at the end, as torch.cuda._memory_viz.segsum() "
    "says it: a str.";

PyObject *
ml_recording_segsum(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_text(ml_state_of(Py_TYPE(op)), ml_recording_of(op), ml_torch_segsum);
}

const char ml_recording_trace_text_doc[] =
    "trace_text($self, /)\n--\n\n"
    "The events of all devices, as torch.cuda._memory_viz.trace() says them: "
    "a str.";

PyObject *
ml_recording_trace_text(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_text(ml_state_of(Py_TYPE(op)), ml_recording_of(op), ml_torch_trace);
}

const char ml_recording_excerpt_doc[] =
    "excerpt($self, what, /)\n--\n\n"
    "The recording without some of its events: a new Recording.\n\n"
    "what is 'unfreed', without allocations whose free completed while "
    "recording, or\n"
    "'segments', where segments are the blocks and there are no others. Raises "
    "ValueError,\n"
    "memlab.Error for a recording that has more pieces of segments than memory "
    "is lent to,\n"
    "MemoryError.";

PyObject *
ml_recording_excerpt(PyObject *op, PyObject *what)
{
    ml_state *state = ml_state_of(Py_TYPE(op));
    const char *name = PyUnicode_AsUTF8(what);
    if (name == NULL) {
        return NULL;
    }
    bool unfreed = strcmp(name, "unfreed") == 0;
    if (!unfreed && strcmp(name, "segments") != 0) {
        PyErr_Format(PyExc_ValueError,
                     "what must be \"unfreed\" or \"segments\", not %R", what);
        return NULL;
    }
    ml_recording *copy = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = copy_recording(ml_recording_of(op), &copy);
    if (result == 0) {
        result =
            unfreed ? ml_event_filter_unfreed(copy) : ml_event_filter_segments(copy);
    }
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_recording_free(copy);
        return ml_py_raise(state, result, ml_strerror(result));
    }
    return ml_recording_wrap(state, copy);
}
