/* Memory for large tables when the host has little left: in a file without a name, to which
 * the system writes pages that it wants back.
 *
 * So a recording can be read whose tables are larger than memory.  Disk space is allocated
 * before a page is touched.  Where the disk has none, memory comes from the C library. */
#ifndef ML_SPILL_H
#define ML_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smaller tables always come from the C library. */
#define ML_SPILL_LEAST ((size_t)16 << 20)

/* From now on ml_realloc() and ml_alloc_zeroed() put a table there if it would take more than
 * a sixteenth of the memory that is left.  Any number of times. */
void ml_spill_begin(void);
/* Whether the memory at POINTER is in such a file.  A forked child shares its contents. */
bool ml_spill_owns(const void *pointer);

/* For tests: NULL restores ml_host_memory_left().  Not thread-safe. */
void ml_set_spill_left(uint64_t (*left)(void));

#endif
