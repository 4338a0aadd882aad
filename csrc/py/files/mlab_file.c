/* Files that are written while a recording is made.  See mlab_file.h. */
#define _GNU_SOURCE 1 /* flock */

#include "files/mlab_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/file/codec/mlab_format.h"
#include "core/file/mlab/mlab_reader.h"
#include "core/recording/annotations.h"
#include "files/load.h"

static PyObject *
gaps_of(const ml_mlab_info *info)
{
    PyObject *list = PyList_New((Py_ssize_t)info->gap_count);
    for (size_t i = 0; list != NULL && i < info->gap_count; i++) {
        const ml_mlab_gap *gap = &info->gaps[i];
        PyObject *item = Py_BuildValue("{s:I,s:K,s:K,s:K}", "device", gap->device,
                                       "position", (unsigned long long)gap->position,
                                       "dropped", (unsigned long long)gap->dropped,
                                       "lost", (unsigned long long)gap->lost);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *
ml_py_about_mlab(const ml_mlab_info *info, bool locked)
{
    const char *state = info->ended ? "ended" : locked ? "recording" : "cut off";
    PyObject *dict = PyDict_New();
    if (dict == NULL || ml_py_set(dict, "state", PyUnicode_FromString(state)) < 0 ||
        ml_py_set(dict, "stopped",
                  PyUnicode_FromString(
                      ml_mlab_stop_text((enum ml_mlab_stop)info->stop))) < 0 ||
        ml_py_set(dict, "errno", PyLong_FromLong(info->stop_errno)) < 0 ||
        ml_py_set(dict, "pid", PyLong_FromUnsignedLongLong(info->pid)) < 0 ||
        ml_py_set(dict, "host",
                  PyUnicode_DecodeUTF8(info->host, (Py_ssize_t)strlen(info->host),
                                       "backslashreplace")) < 0 ||
        ml_py_set(dict, "gaps", gaps_of(info)) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"start_time_us", info->start_time / 1000},
        {"bytes", info->bytes},
        {"event_bytes", info->event_bytes},
        {"definition_bytes", info->definition_bytes},
        {"control_bytes", info->control_bytes},
        {"damaged_chunks", info->damaged_chunks},
        {"lost_records", info->lost_records},
        {"unread_records", info->unread_records},
        {"unknown_starts", info->unknown_starts},
        {"repeated_starts", info->repeated_starts},
        {"native_frames", info->native_frames},
        {"gone_events", info->gone_events},
        {"gone_steps", info->gone_steps},
        {"gone_until_us", info->gone_until / 1000},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (ml_py_set(dict, numbers[i].name,
                      PyLong_FromUnsignedLongLong(numbers[i].value)) < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    }
    return dict;
}

bool
ml_py_mlab_locked(int descriptor)
{
    if (flock(descriptor, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    flock(descriptor, LOCK_UN);
    return false;
}

ml_recording *
ml_py_read_mlab(ml_state *state, PyObject *path, PyObject **about)
{
    ml_recording *recording = NULL;
    ml_mlab_info info = {0};
    ml_read_error error = {0};
    ml_mlab_input input;
    bool locked = false;
    int result = ML_EIO;
    int errnum = 0;
    Py_BEGIN_ALLOW_THREADS
    int descriptor = open(PyBytes_AS_STRING(path), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0 && ml_mlab_input_of(&input, &descriptor) == 0) {
        result = ml_mlab_read(&input, &recording, &info, &error);
        locked = result == 0 && !info.ended && ml_py_mlab_locked(descriptor);
        if (locked) {
            recording->ranks[0].state = ML_RANK_RECORDING;
        }
        if (result == 0 && ml_annotations_add_notes(recording) < 0) {
            ml_mlab_info_fini(&info);
            ml_recording_free(recording);
            result = error.code = ML_ENOMEM;
        }
    }
    errnum = errno;
    if (descriptor >= 0) {
        close(descriptor);
    }
    Py_END_ALLOW_THREADS
    if (result < 0) {
        if (error.code == 0) {
            errno = errnum;
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        }
        else {
            ml_py_raise_read(&error, state->snapshot_error);
        }
        return NULL;
    }
    *about = ml_py_about_mlab(&info, locked);
    ml_mlab_info_fini(&info);
    if (*about == NULL) {
        ml_recording_free(recording);
        return NULL;
    }
    return recording;
}
