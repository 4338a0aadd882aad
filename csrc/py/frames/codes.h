/* Python's code objects in a walk over frames: their identity, their texts, their
 * deaths.
 *
 * A code object may die and another take its address.  Fingerprints, and the copies of
 * texts in ml_stacks, detect this.  All functions but ml_codes_watch are safe in the
 * allocator callback: plain reads of a live object. */
#ifndef ML_CODES_H
#define ML_CODES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/stacks/stacks.h"

/* Names that are not ASCII are transcoded; longer ones are cut. */
#define ML_CODES_TEXT_BYTES 4096

/* The text of a str, in place if it is ASCII, else in BUFFER.  PyUnicode_AsUTF8 would
 * allocate and keep a copy in the object. */
ml_slice ml_codes_unicode(PyObject *string, char buffer[ML_CODES_TEXT_BYTES]);

typedef struct ml_codes_buffers {
    char name[ML_CODES_TEXT_BYTES];
    char filename[ML_CODES_TEXT_BYTES];
} ml_codes_buffers;

/* Name, file and first line of CODE; with its line table if WITH_LINES.  Borrowed from
 * CODE and BUFFERS.  Like torch, memlab shows co_name. */
ml_code_text ml_codes_text(const PyCodeObject *code, ml_codes_buffers *buffers,
                           bool with_lines);

/* From 3.12 on, Python reports the death of a code object.  Until a death, an
 * instruction's address identifies its code, and stacks are compared by addresses
 * alone. */
#if PY_VERSION_HEX >= 0x030c0000
#define ML_CODES_WATCHED 1
/* Number of deaths and of other events that invalidate comparison by address; starts at
 * 1. */
extern _Atomic uint64_t ml_codes_died;
/* Whether Python reports deaths; if not, every comparison reads the code objects. */
extern _Atomic bool ml_codes_watched;

/* Asks Python for reports; once is enough.  With the GIL. */
void ml_codes_watch(void);
#endif

/* Python's hash of TEXT, a str or bytes, stored where Python stores it.  All threads
 * compute the same word, with or without the GIL. */
uint64_t ml_codes_hash_now(PyObject *text);

static inline uint64_t
ml_codes_hash_of(PyObject *text, Py_hash_t kept)
{
    return __builtin_expect(kept != -1, 1) ? (uint64_t)kept : ml_codes_hash_now(text);
}

/* Distinguishes code objects that lived at the same address.  When one dies, its texts
 * often die too, and the next code's texts take their addresses in the same order.
 * Only the texts' contents tell them apart. */
static inline uint64_t
ml_codes_print(const PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030c0000
    /* Never reused; 0 once the interpreter has run out of numbers. */
    if (code->co_version != 0) {
        return code->co_version;
    }
#endif
    PyObject *name = code->co_name;
    PyObject *file = code->co_filename;
    PyObject *lines = code->co_linetable;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    uint64_t table = ml_codes_hash_of(lines, ((PyBytesObject *)lines)->ob_shash);
#pragma GCC diagnostic pop
    uint64_t hash =
        ml_codes_hash_of(name, ((PyASCIIObject *)name)->hash) +
        ml_codes_hash_of(file, ((PyASCIIObject *)file)->hash) * 0x9e3779b97f4a7c15u +
        (table + (uint64_t)(uint32_t)code->co_firstlineno) * 0xc2b2ae3d27d4eb4fu;
    return hash | (uint64_t)1 << 63;
}

#endif
