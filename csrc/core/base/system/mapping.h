/* Address space for mapped chunks of a file, written by a thread that must not fail
 * there.
 *
 * The memory stays writable whatever happens to the file.  Disk space is allocated
 * before a chunk is mapped.  If another process cuts the file, a SIGBUS handler for
 * these addresses puts other memory there. */
#ifndef ML_MAPPING_H
#define ML_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At once, in a process. */
#define ML_MAPPINGS 8

typedef struct ml_mapping {
    uint8_t *base; /* owned address space; NULL: none */
    uint32_t chunk_bytes;
    uint32_t slots; /* number of chunks that fit */
    int guard;      /* its slot in the handler's list, plus 1; 0: none */
} ml_mapping;

/* Reserves room for SLOTS chunks.  0; ML_EFULL if there are ML_MAPPINGS already; or
 * ML_ENOMEM with errno. */
int ml_mapping_init(ml_mapping *mapping, uint32_t chunk_bytes, uint32_t slots);
/* Unmaps everything.  Accepts an all-zero or finished mapping. */
void ml_mapping_fini(ml_mapping *mapping);
/* For a forked child, where nothing is mapped. */
void ml_mapping_forked(ml_mapping *mapping);

/* Allocates disk space for a chunk at OFFSET of the open file, and maps it at SLOT,
 * already in memory.  0, or ML_EIO with errno. */
int ml_mapping_map(ml_mapping *mapping, unsigned slot, int file, uint64_t offset);
void ml_mapping_unmap(ml_mapping *mapping, unsigned slot);

static inline void *
ml_mapping_at(const ml_mapping *mapping, unsigned slot)
{
    return mapping->base + (size_t)slot * mapping->chunk_bytes;
}

/* Whether a write met a page that the file no longer had. */
bool ml_mapping_was_cut(const ml_mapping *mapping);

#endif
