/* One device of a page: its rows with their kinds, their groups, and its blobs.
 *
 * Owns what the writers of blobs share.  docs/FORMAT.md specifies their output. */
#ifndef ML_PAGE_DEVICE_H
#define ML_PAGE_DEVICE_H

#include "analysis/allocations/allocation_kinds.h"
#include "analysis/allocations/allocation_rows.h"
#include "analysis/answers/module_rows.h"
#include "analysis/answers/peak.h"
#include "analysis/lifetimes/lifetimes_walk.h"

/* Puts what is kept of a blob in its place, once it is complete: a page has several bytes of
 * blobs for each byte of packed ones.  0 or an error. */
typedef struct ml_page_packer {
    int (*pack)(void *context, ml_buffer *blob);
    void *context;
} ml_page_packer;

/* Each of a page's blobs is written once, in the order of their numbers. */
typedef struct ml_page_blobs {
    const ml_page_packer *packer; /* borrowed; NULL: blobs stay as they are */
    ml_buffer *list;              /* owned */
    size_t count;
    size_t capacity;
    bool rounded; /* some number exceeds 2^53 */
} ml_page_blobs;

static inline void
ml_page_note_value(ml_page_blobs *blobs, uint64_t value)
{
    blobs->rounded |= value > UINT64_C(1) << 53;
}

/* A new blob, borrowed until the next one.  NULL: out of memory, or the packer failed. */
ml_buffer *ml_page_blobs_add(ml_page_blobs *blobs);
/* After the last.  0 or what the packer says. */
int ml_page_blobs_end(const ml_page_blobs *blobs);
void ml_page_blobs_fini(ml_page_blobs *blobs);

#define ML_PAGE_SCHEMES_OF(XX) \
    XX(CATEGORY, 0, "category") \
    XX(MODULE, 1, "module") \
    XX(LINE, 2, "line") \
    XX(SIZE, 3, "size")

enum ml_page_scheme {
#define XX(name, number, text) ML_PAGE_BY_##name = (number),
    ML_PAGE_SCHEMES_OF(XX)
#undef XX
    ML_PAGE_SCHEMES = 0 ML_PAGE_SCHEMES_OF(ML_NUMBERED_ONE)
};

#define ML_PAGE_NO_GROUP UINT32_MAX
/* Lines with a group of their own; the others share one. */
#define ML_PAGE_GROUPS_MOST 24
/* 0, and the powers of 4 up to 2^52, which JavaScript represents exactly. */
#define ML_PAGE_SIZES 28

typedef struct ml_page_groups {
    size_t kind_count; /* at the making; later kinds are of other devices */
    /* Groups by scheme.  An id is a category, a module row, a line (-1: all others), or
     * the least bytes. */
    int64_t ids[ML_PAGE_SCHEMES][ML_PAGE_SIZES + 1];
    size_t counts[ML_PAGE_SCHEMES];
    size_t firsts[ML_PAGE_SCHEMES];     /* number of groups in earlier schemes */
    size_t total;                       /* of all schemes */
    uint32_t *of_kind[ML_PAGE_BY_SIZE]; /* owned; ML_PAGE_NO_GROUP: not of the device */
    uint8_t of_size[ML_PAGE_SIZES];
    /* owned; modules of the peak, then all others of the device */
    ml_module_tree *modules;
    ml_module_row module_rows[ML_MODULE_ROWS];
    size_t module_row_count;
} ml_page_groups;

/* What is known of a chunk of events before it is written. */
typedef struct ml_page_chunk {
    uint64_t time;      /* us; of its first event */
    uint64_t allocated; /* bytes before its first event */
    uint64_t active;
    uint64_t reserved;
    uint64_t peak; /* the most allocated bytes after an event of it */
} ml_page_chunk;

typedef struct ml_page_device {
    const ml_recording *part; /* borrowed; the device is its number OWN */
    size_t own;
    uint64_t base_us;
    ml_allocation_kinds *kinds; /* borrowed */
    ml_page_blobs *blobs;       /* borrowed */
    ml_allocation_rows rows;
    ml_page_groups groups;
    ml_peak *peak;         /* owned */
    ml_page_chunk *chunks; /* owned; the levels fill them; the first is always there */
    size_t chunk_count;
} ml_page_device;

/* Fills rows, their kinds, and the peak.  0, ML_ELIMIT or ML_ENOMEM.  Free the device
 * in any case. */
int ml_page_device_rows(ml_page_device *device);
void ml_page_device_fini(ml_page_device *device);

/* The groups by module: the rows with most of the peak.  PRESENT: by kind, whether the
 * device has it.  0 or ML_ENOMEM. */
int ml_page_group_modules(ml_page_device *device, const bool *present);
/* A node's path as a string. */
void ml_page_put_path(ml_buffer *out, const ml_module_tree *tree, uint32_t node);
/* Writes the module tree as a member of the device. */
void ml_page_write_modules(ml_buffer *out, const ml_page_device *device);
/* Fills groups from rows.  0 or ML_ENOMEM. */
int ml_page_groups_make(ml_page_device *device);
/* The group by size of BYTES, among those of all schemes. */
size_t ml_page_group_of_size(const ml_page_device *device, uint64_t bytes);

/* Each writes blobs, and the head's members about them; in this order.  0 or
 * ML_ENOMEM. */
int ml_page_write_levels(ml_page_device *device, ml_buffer *head);
int ml_page_write_bands(ml_page_device *device, ml_buffer *head);
int ml_page_write_segments(ml_page_device *device, ml_buffer *head);
int ml_page_write_chunks(ml_page_device *device, ml_buffer *head);

/* Flags of a segment. */
#define ML_PAGE_EXPANDABLE 1u
#define ML_PAGE_SMALL 2u
#define ML_PAGE_PRIVATE 4u

#define ML_PAGE_CHUNK_EVENTS ((size_t)65536)
#define ML_PAGE_BLOB_CHUNKS ((size_t)64)
#define ML_PAGE_SPAN ((size_t)256)
#define ML_PAGE_BLOB_COLUMNS ((size_t)4096)
#define ML_PAGE_BLOB_BANDS ((size_t)8192)

/* The columns of the COUNT rows in INDEX; or, where it is NULL, of those from FIRST on,
 * with the address by the last of them there. */
void ml_page_write_rows(ml_buffer *out, const ml_page_device *device,
                        const uint32_t *index, size_t first, size_t count);

/* ---- Going over the events again ---- */

typedef struct ml_page_walk {
    ml_lifetimes_walk memory;
    uint64_t base_us;
    uint64_t time; /* us from the base; never less than before */
    size_t first;
    size_t count;
    uint64_t times[ML_EVENTS_CHUNK]; /* of COUNT events from FIRST on, as they say it */
} ml_page_walk;

/* Starts before the first event; CHANGED and CONTEXT as of
 * ml_lifetimes_walk_begin(). */
void ml_page_walk_begin(ml_page_walk *walk, const ml_page_device *device,
                        ml_lifetime_changed *changed, void *context);
/* Reads the times from the next event on.  False: there is none. */
bool ml_page_walk_read(ml_page_walk *walk);
/* Sets TIMES to those of the events from FIRST on in its chunk of events, as they say it;
 * returns how many. */
size_t ml_page_read_times(const ml_page_device *device, size_t first,
                          uint64_t times[ML_EVENTS_CHUNK]);

/* The time that it will have after the next event; behind the last, that it has. */
static inline uint64_t
ml_page_walk_peek(ml_page_walk *walk)
{
    if (walk->memory.position - walk->first >= walk->count &&
        !ml_page_walk_read(walk)) {
        return walk->time;
    }
    uint64_t time = walk->times[walk->memory.position - walk->first];
    return time > walk->time ? time : walk->time;
}

/* Moves over the next event, which must exist. */
static inline void
ml_page_walk_next(ml_page_walk *walk)
{
    walk->time = ml_page_walk_peek(walk);
    ml_lifetimes_walk_next(&walk->memory);
}

/* The time of event INDEX as it says it, and the most of the ML_EVENTS_CHUNK from FIRST
 * on. */
uint64_t ml_page_time_of(const ml_page_device *device, size_t index);
uint64_t ml_page_most_time(const ml_page_device *device, size_t first);
/* The walk's time after the first event, and after the last. */
uint64_t ml_page_first_time(const ml_page_device *device);
uint64_t ml_page_last_time(const ml_page_device *device);

#endif
