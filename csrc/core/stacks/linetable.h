/* Line numbers of Python instructions, from a copied co_linetable.
 *
 * Decodes CPython's tables without Python, so a stack can be named after its code
 * object has died. */
#ifndef ML_LINETABLE_H
#define ML_LINETABLE_H

#include <stddef.h>
#include <stdint.h>

/* The line of the instruction at byte OFFSET of a code object that starts at line
 * FIRSTLINENO; -1: the table has none.  TABLE has LENGTH bytes of the co_linetable of
 * CPython 3.PYTHON_MINOR: the pairs of PEP 626 for 10, the location table from 11 on;
 * older ones give -1.  A negative OFFSET is a frame that has not started: FIRSTLINENO.
 * Any bytes are safe. */
int64_t ml_linetable_line(const uint8_t *table, size_t length, int64_t firstlineno,
                          int python_minor, int64_t offset);

#endif
