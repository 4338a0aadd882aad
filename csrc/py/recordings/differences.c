/* Compares a recording with another.  See differences.h. */
#include "recordings/differences.h"

#include "dicts/difference_dict.h"
#include "recordings/recording_object.h"

const char ml_recording_difference_doc[] =
    "difference($self, device, after, after_device, /, *, event=None, "
    "after_event=None,\n"
    "           same_code=False, phases=False, one_step=False)\n--\n\n"
    "What of a device of the recording after is more, and what less, than of one "
    "here, as a\n"
    "dict: at their peaks, or after event number event here, and after_event there; "
    "-1 is\n"
    "before the first.\n\n"
    "same_code: both ran the same files, so that a line is what it says. phases: of "
    "each\n"
    "phase too, one_step: only of those in the instant's step. Bytes; docs/REPORT.md\n"
    "describes each key. Raises IndexError for a device or an event that its recording "
    "does\n"
    "not have, TypeError, MemoryError.";

/* Sets the side: DEVICE of RECORDING after EVENT, or for None at its peak.  0 or -1. */
static int
side_of(const ml_recording *recording, PyObject *device, PyObject *event,
        ml_difference_side *side)
{
    Py_ssize_t index = ml_recording_device_of(recording, device);
    if (index < 0) {
        return -1;
    }
    side->device = (size_t)index;
    side->recording = ml_recording_part(recording, &side->device);
    side->position = ML_DIFFERENCE_PEAK;
    if (event != Py_None) {
        Py_ssize_t number = PyNumber_AsSsize_t(event, PyExc_IndexError);
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (number < -1) {
            PyErr_Format(PyExc_IndexError, "no event has number %zd", number);
            return -1;
        }
        side->position = (uint64_t)number + 1;
    }
    return 0;
}

/* Reads the arguments of difference(), or those of difference_page(), which start with
 * a title and a sentence.  0 or -1. */
static int
read_ask(PyObject *op, PyObject *args, PyObject *kwargs, ml_difference_ask *ask,
         PyObject **title, PyObject **said)
{
    static char *keywords[] = {
        "", "", "", "event", "after_event", "same_code", "phases", "one_step", NULL};
    static char *page_keywords[] = {
        "",       "",         "",      "event", "after_event", "same_code",
        "phases", "one_step", "title", "said",  NULL};
    PyTypeObject *type = (PyTypeObject *)ml_state_of(Py_TYPE(op))->recording_type;
    PyObject *device, *after, *after_device;
    PyObject *event = Py_None, *after_event = Py_None;
    int same_code = 0, phases = 0, one_step = 0;
    int read = title == NULL
                   ? PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|$OOppp:difference",
                                                 keywords, &device, type, &after,
                                                 &after_device, &event, &after_event,
                                                 &same_code, &phases, &one_step)
                   : PyArg_ParseTupleAndKeywords(
                         args, kwargs, "OO!O|$OOpppUU:difference_page", page_keywords,
                         &device, type, &after, &after_device, &event, &after_event,
                         &same_code, &phases, &one_step, title, said);
    if (!read || side_of(ml_recording_of(op), device, event, &ask->sides[0]) < 0 ||
        side_of(ml_recording_of(after), after_device, after_event, &ask->sides[1]) <
            0) {
        return -1;
    }
    ask->same_code = same_code != 0;
    ask->phases = phases != 0;
    ask->one_step = one_step != 0;
    return 0;
}

PyObject *
ml_recording_difference(PyObject *op, PyObject *args, PyObject *kwargs)
{
    ml_difference_ask ask;
    return read_ask(op, args, kwargs, &ask, NULL, NULL) < 0
               ? NULL
               : ml_py_difference(ml_state_of(Py_TYPE(op)), &ask);
}

const char ml_recording_difference_page_doc[] =
    "difference_page($self, device, after, after_device, /, *, event=None,\n"
    "                after_event=None, same_code=False, phases=False, "
    "one_step=False,\n"
    "                title=\"Two recordings\", said=\"\")\n--\n\n"
    "What difference() says as an HTML page, which loads nothing: UTF-8 bytes, with "
    "title\n"
    "and below it the sentence said, both from anywhere. Raises what it raises, and "
    "ValueError\n"
    "for a title that is too long.";

PyObject *
ml_recording_difference_page(PyObject *op, PyObject *args, PyObject *kwargs)
{
    ml_difference_ask ask;
    PyObject *title = NULL, *said = NULL;
    if (read_ask(op, args, kwargs, &ask, &title, &said) < 0) {
        return NULL;
    }
    /* A missing argument, as a new reference. */
    PyObject *head =
        title != NULL ? Py_NewRef(title) : PyUnicode_FromString("Two recordings");
    PyObject *body = said != NULL ? Py_NewRef(said) : PyUnicode_FromString("");
    PyObject *page = NULL;
    if (head != NULL && body != NULL) {
        page = ml_py_difference_page(ml_state_of(Py_TYPE(op)), &ask, head, body);
    }
    Py_XDECREF(head);
    Py_XDECREF(body);
    return page;
}
