/* Gives chunks of events their memory.  See event_slab.h. */
#include "recording/event_slab.h"

#include <stdint.h>

#include "base/base.h"

struct ml_event_slab {
    size_t chunks; /* that lie here, and 1 while it is the last */
    size_t used;   /* bytes */
    size_t bytes;
    uint64_t at[];
};

/* Each is twice as large as the one before: few events take little, and of many, slabs are
 * large tables of their own. */
#define LEAST (2 * ML_EVENT_CHUNK_MOST)
#define MOST ((size_t)64 << 20)

void
ml_event_slab_leave(ml_event_slab *slab)
{
    if (slab != NULL && --slab->chunks == 0) {
        ml_free(slab);
    }
}

void *
ml_event_slab_room(ml_event_slab **last)
{
    ml_event_slab *slab = *last;
    if (slab == NULL || slab->bytes - slab->used < ML_EVENT_CHUNK_MOST) {
        size_t bytes = slab != NULL ? slab->bytes * 2 : LEAST;
        bytes = bytes < MOST ? bytes : MOST;
        slab = ml_alloc(sizeof(*slab) + bytes);
        if (slab == NULL) {
            return NULL;
        }
        *slab = (ml_event_slab){.chunks = 1, .bytes = bytes};
        ml_event_slab_leave(*last);
        *last = slab;
    }
    return &slab->at[slab->used / sizeof(slab->at[0])];
}

void
ml_event_slab_keep(ml_event_slab *last, size_t bytes)
{
    last->chunks++;
    last->used +=
        (bytes + sizeof(last->at[0]) - 1) / sizeof(last->at[0]) * sizeof(last->at[0]);
}
