/* Python's code objects, as a walk over frames takes them: which one it is, what it says,
 * and when one dies.
 *
 * A code object may die and another take its address, hence fingerprints, and the
 * copies of its texts that ml_stacks keeps.  But for ml_codes_watch all is for the
 * allocator callback: plain reads of an object that someone keeps alive. */
#ifndef ML_CODES_H
#define ML_CODES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/stacks/stacks.h"

/* A name that is not ASCII is transcoded; longer ones are cut. */
#define ML_CODES_TEXT_BYTES 4096

typedef struct ml_codes_buffers {
    char name[ML_CODES_TEXT_BYTES];
    char filename[ML_CODES_TEXT_BYTES];
} ml_codes_buffers;

/* Name, file and first line of CODE, with its line table where WITH_LINES; borrowed from
 * CODE and BUFFERS.  torch shows a frame by co_name, so memlab does. */
ml_code_text ml_codes_text(const PyCodeObject *code, ml_codes_buffers *buffers,
                           bool with_lines);

/* From 3.12 on Python tells when a code object dies.  Until one does an instruction's
 * address stands for its code, and a stack is compared by these alone. */
#if PY_VERSION_HEX >= 0x030c0000
#define ML_CODES_WATCHED 1
/* How many died, and what else makes a comparison by addresses wrong, from 1. */
extern _Atomic uint64_t ml_codes_died;
/* Whether Python tells; if not, every comparison has to read the code objects. */
extern _Atomic bool ml_codes_watched;

/* Asks Python to tell; once is enough.  With the GIL. */
void ml_codes_watch(void);
#endif

/* Python's own hash of the content of TEXT, a str or bytes, which is then kept where Python
 * keeps it: whoever computes it stores the same word, GIL or not. */
uint64_t ml_codes_hash_now(PyObject *text);

static inline uint64_t
ml_codes_hash_of(PyObject *text, Py_hash_t kept)
{
    return __builtin_expect(kept != -1, 1) ? (uint64_t)kept : ml_codes_hash_now(text);
}

/* Tells apart code objects that lived at the same address.  When one dies its texts often
 * die with it, and those of the next take their addresses in the same order: nothing but
 * what they say will do. */
static inline uint64_t
ml_codes_print(const PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030c0000
    /* Never given twice; 0 once the interpreter has run out of numbers. */
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
