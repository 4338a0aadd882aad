/* Memory for the packed events of a device: few large pieces, each filled by many chunks. */
#ifndef ML_EVENT_SLAB_H
#define ML_EVENT_SLAB_H

#include <stddef.h>

/* Freed with its last chunk. */
typedef struct ml_event_slab ml_event_slab;

/* No chunk has more bytes. */
#define ML_EVENT_CHUNK_MOST ((size_t)32 << 10)

/* Room for a chunk of any size at the end of *LAST, to be filled and kept.  Where it has
 * none, *LAST becomes a new one; NULL, at first: there is none.  NULL: no memory. */
void *ml_event_slab_room(ml_event_slab **last);
/* The chunk in this room has BYTES. */
void ml_event_slab_keep(ml_event_slab *last, size_t bytes);
/* A chunk of SLAB is no more; or SLAB, which may be NULL, is no longer the last. */
void ml_event_slab_leave(ml_event_slab *slab);

#endif
