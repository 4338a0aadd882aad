/* Kinds of allocations: properties that many share, stored once for a page.
 *
 * Owns the combinations of stack, line, module, category and the like in a recording,
 * and their lines and streams.  cause.h and category.h have the rules. */
#ifndef ML_ALLOCATION_KINDS_H
#define ML_ALLOCATION_KINDS_H

#include "analysis/analysis.h"
#include "analysis/attribution/frame_lines.h"
#include "base/base.h"

typedef struct ml_allocation_kind {
    uint32_t stack;  /* of the allocation's own event; 0: none */
    uint32_t line;   /* index into lines */
    uint32_t inner;  /* frame of the model's own line, if different; 0: none */
    int64_t until;   /* the last possible line; 0: the line itself */
    uint32_t module; /* string; 0: none */
    uint32_t name;   /* string: the owner's; 0: none */
    uint32_t stream; /* index into streams */
    uint8_t no_module;
    uint8_t category;
    uint8_t why;
    uint8_t phase;
    uint8_t how;
    uint8_t exact;
    uint8_t pad[2];
} ml_allocation_kind;

/* The lines that a report distinguishes; phase and way belong to the kinds. */
typedef struct ml_allocation_line {
    uint32_t frame;  /* a frame with this line; 0: no line */
    uint8_t no_line; /* enum ml_no_line: why there is none */
    int64_t until;   /* the last possible line over all its kinds; 0: the line itself */
} ml_allocation_line;

/* A cache of each stack's last kind. */
#define ML_ALLOCATION_KINDS_RECENT 1024u

typedef struct ml_allocation_kinds {
    const ml_recording *recording; /* borrowed */
    ml_frame_lines frames;
    uint32_t *of_frame; /* owned; the line of each frame, plus 1 */
    uint32_t of_reason[ML_NO_LINE_COUNT];
    ml_allocation_line *lines; /* owned */
    size_t line_count;
    size_t line_capacity;
    ml_allocation_kind *list; /* owned */
    size_t count;
    size_t capacity;
    ml_intern interned;
    uint32_t recent[ML_ALLOCATION_KINDS_RECENT]; /* each stack's last kind, plus 1 */
    uint64_t *streams;                           /* owned */
    size_t stream_count;
    size_t stream_capacity;
    uint32_t last_stream;
    ml_intern interned_streams;
} ml_allocation_kinds;

/* RECORDING is borrowed and outlives the kinds.  0, or ML_ENOMEM with nothing to
 * free. */
int ml_allocation_kinds_init(ml_allocation_kinds *kinds, const ml_recording *recording);
void ml_allocation_kinds_fini(ml_allocation_kinds *kinds);

/* Each adds a new entry unless it exists.  0 or ML_ENOMEM. */
int ml_allocation_kinds_line(ml_allocation_kinds *kinds, const ml_cause *cause,
                             uint32_t *line);
int ml_allocation_kinds_stream(ml_allocation_kinds *kinds, uint64_t stream,
                               uint32_t *index);
/* The kind of an allocation explained by IT, with STACK, on STREAM, an index. */
int ml_allocation_kinds_add(ml_allocation_kinds *kinds, uint32_t stack, uint32_t stream,
                            const ml_explained *it, uint32_t *kind);

#endif
