/* Reads pickles of plain data, without trusting them.
 *
 * Protocols 2 to 5 with None, bool, int, float, str, bytes, list, tuple and dict.
 * Every other opcode is refused; one that could run code or import something is refused
 * by name.  It knows nothing of snapshots. */
#ifndef ML_UNPICKLE_H
#define ML_UNPICKLE_H

#include "file/snapshot/value.h"

/* Reads the pickle at the start of BYTES; what follows it is ignored, as
 * pickle.load does.  TREE is uninitialised before and needs ml_tree_fini after success
 * only; it borrows BYTES.  A tree that is returned has passed ml_tree_check.
 * Memory stays below 6 * LENGTH + 8 MiB, time is linear.
 * 0, or ML_EFORMAT, ML_EUNSAFE, ML_ELIMIT, ML_ENOMEM with *ERROR filled in. */
int ml_unpickle(const void *bytes, size_t length, ml_tree *tree, ml_read_error *error);

#endif
