/* Reads code objects' texts and watches their deaths.  See codes.h. */
#include "frames/codes.h"

#include "core/base/base.h"

ml_slice
ml_codes_unicode(PyObject *string, char buffer[ML_CODES_TEXT_BYTES])
{
#if PY_VERSION_HEX < 0x030c0000
    if (!PyUnicode_IS_READY(string)) {
        return (ml_slice){.bytes = "", .length = 0};
    }
#endif
    size_t length = (size_t)PyUnicode_GET_LENGTH(string);
    const void *data = PyUnicode_DATA(string);
    if (PyUnicode_IS_ASCII(string)) {
        return (ml_slice){.bytes = data, .length = length};
    }
    int kind = (int)PyUnicode_KIND(string);
    size_t used = 0;
    for (size_t i = 0; i < length && used + ML_UTF8_MAX <= ML_CODES_TEXT_BYTES; i++) {
        Py_UCS4 c = kind == 1   ? ((const Py_UCS1 *)data)[i]
                    : kind == 2 ? ((const Py_UCS2 *)data)[i]
                                : ((const Py_UCS4 *)data)[i];
        used += ml_utf8_encode(buffer + used, c);
    }
    return (ml_slice){.bytes = buffer, .length = used};
}

ml_code_text
ml_codes_text(const PyCodeObject *code, ml_codes_buffers *buffers, bool with_lines)
{
    ml_code_text text = {
        .name = ml_codes_unicode(code->co_name, buffers->name),
        .filename = ml_codes_unicode(code->co_filename, buffers->filename),
        .firstlineno = code->co_firstlineno,
    };
    if (with_lines) {
        text.linetable.bytes = PyBytes_AS_STRING(code->co_linetable);
        text.linetable.length = (size_t)PyBytes_GET_SIZE(code->co_linetable);
        text.python_minor = PY_MINOR_VERSION;
    }
    return text;
}

#if PY_VERSION_HEX >= 0x030e0000
#define hash_bytes Py_HashBuffer
#else
/* A pure function of the bytes.  Every version exports it; some do not declare it. */
extern Py_hash_t _Py_HashBytes(const void *bytes, Py_ssize_t length);
#define hash_bytes _Py_HashBytes
#endif

uint64_t
ml_codes_hash_now(PyObject *text)
{
    /* PyObject_Hash would run a subclass's own method. */
    if (PyBytes_Check(text)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        Py_hash_t *kept = &((PyBytesObject *)text)->ob_shash;
#pragma GCC diagnostic pop
        Py_hash_t hash = hash_bytes(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text));
        __atomic_store_n(kept, hash, __ATOMIC_RELAXED);
        return (uint64_t)hash;
    }
#if PY_VERSION_HEX < 0x030c0000
    if (!PyUnicode_IS_READY(text)) {
        return (uintptr_t)text;
    }
#endif
    Py_hash_t hash = hash_bytes(PyUnicode_DATA(text),
                                PyUnicode_GET_LENGTH(text) * (int)PyUnicode_KIND(text));
    __atomic_store_n(&((PyASCIIObject *)text)->hash, hash, __ATOMIC_RELAXED);
    return (uint64_t)hash;
}

#ifdef ML_CODES_WATCHED

_Atomic uint64_t ml_codes_died = 1;
_Atomic bool ml_codes_watched;

static int
on_code_event(PyCodeEvent event, PyCodeObject *Py_UNUSED(code))
{
    if (event == PY_CODE_EVENT_DESTROY) {
        atomic_fetch_add_explicit(&ml_codes_died, 1, memory_order_relaxed);
    }
    return 0;
}

void
ml_codes_watch(void)
{
    if (!atomic_load(&ml_codes_watched)) {
        atomic_store(&ml_codes_watched, PyCode_AddWatcher(on_code_event) >= 0);
        PyErr_Clear();
    }
}

#endif
