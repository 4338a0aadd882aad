/* Address space into which chunks of a file are mapped, to be written by a thread that
 * must not fail there.
 *
 * The memory stays writable whatever becomes of the file: room is taken on the disk before
 * a chunk is mapped, and where another process cuts the file, a handler for SIGBUS that
 * claims these addresses alone puts other memory there. */
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
    uint32_t slots; /* chunks that it has room for */
    int guard;      /* its place in the handler's list, plus 1; 0: none */
} ml_mapping;

/* Reserves room for SLOTS chunks.  0, ML_EFULL where there are ML_MAPPINGS, or ML_ENOMEM
 * with errno. */
int ml_mapping_init(ml_mapping *mapping, uint32_t chunk_bytes, uint32_t slots);
/* All ends that is mapped.  Takes an all-zero mapping and one already finished. */
void ml_mapping_fini(ml_mapping *mapping);
/* In a forked child, where nothing of it is mapped. */
void ml_mapping_forked(ml_mapping *mapping);

/* Takes room on the disk for a chunk at OFFSET of the open file, and maps it at SLOT, in
 * memory already.  0, or ML_EIO with errno. */
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
