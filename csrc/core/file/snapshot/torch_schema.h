/* The schema of torch.cuda.memory._snapshot(): which keys, in which order, with which
 * objects shared.
 *
 * Owns the one walk over a recording for all writers of the schema.  Writers differ
 * only in their table of constructors.  It knows neither pickles nor Python. */
#ifndef ML_TORCH_SCHEMA_H
#define ML_TORCH_SCHEMA_H

#include "file/snapshot/value.h"
#include "recording/recording.h"

/* Adds the key "memlab" with data beyond torch's keys. */
#define ML_TORCH_SCHEMA_EXTRAS 0x01u
/* Leaves out the events of an enum ml_action; not with extras, which need all. */
#define ML_TORCH_SCHEMA_SKIP(action) (0x100u << (action))

/* Every constant string of the schema but the keys of ML_EVENT_COLUMNS, by the name
 * of its enumerator. */
#define ML_WORDS(XX) \
    XX(SEGMENTS, "segments") \
    XX(DEVICE_TRACES, "device_traces") \
    XX(ALLOCATOR_SETTINGS, "allocator_settings") \
    XX(EXTERNAL_ANNOTATIONS, "external_annotations") \
    XX(HOST_SEGMENTS, "host_segments") \
    XX(HOST_TRACES, "host_traces") \
    XX(DEVICE, "device") \
    XX(ADDRESS, "address") \
    XX(TOTAL_SIZE, "total_size") \
    XX(ALLOCATED_SIZE, "allocated_size") \
    XX(ACTIVE_SIZE, "active_size") \
    XX(REQUESTED_SIZE, "requested_size") \
    XX(STREAM, "stream") \
    XX(SEGMENT_TYPE, "segment_type") \
    XX(SEGMENT_POOL_ID, "segment_pool_id") \
    XX(IS_EXPANDABLE, "is_expandable") \
    XX(FRAMES, "frames") \
    XX(FORWARD_FRAMES, "forward_frames") \
    XX(BLOCKS, "blocks") \
    XX(SMALL, "small") \
    XX(LARGE, "large") \
    XX(SIZE, "size") \
    XX(STATE, "state") \
    XX(INACTIVE, "inactive") \
    XX(ACTIVE_ALLOCATED, "active_allocated") \
    XX(ACTIVE_PENDING_FREE, "active_pending_free") \
    XX(NAME, "name") \
    XX(FILENAME, "filename") \
    XX(LINE, "line") \
    XX(ACTION, "action") \
    XX(ANNOTATE, "annotate") \
    XX(ADDR, "addr") \
    XX(DEVICE_FREE, "device_free") \
    XX(TIME_US, "time_us") \
    XX(NOT_COMPILED, "N/A") \
    XX(STAGE, "stage") \
    XX(START, "START") \
    XX(END, "END") \
    XX(MEMLAB, "memlab") \
    XX(VERSION, "version") \
    XX(SOURCE, "source") \
    XX(HAS_SEGMENTS, "has_segments") \
    XX(DEVICES, "devices") \
    XX(OVERWRITTEN_EVENTS, "overwritten_events") \
    XX(DROPPED_EVENTS, "dropped_events") \
    XX(LOST_STACKS, "lost_stacks") \
    XX(LOST_NAMES, "lost_names") \
    XX(PEAK, "peak") \
    XX(TAGS, "tags") \
    XX(POSITION, "position") \
    XX(CATEGORY, "category") \
    XX(FLAGS, "flags") \
    XX(BLOCK_BYTES, "block_bytes") \
    XX(USES, "uses") \
    XX(USES_SAMPLED, "uses_sampled") \
    XX(MODULES, "modules") \
    XX(MODULE, "module") \
    XX(NOTES, "notes") \
    XX(KIND, "kind") \
    XX(VALUES, "values") \
    XX(LOST, "lost") \
    XX(RANKS, "ranks") \
    XX(RANK, "rank") \
    XX(LOCAL_RANK, "local_rank") \
    XX(WORLD_SIZE, "world_size") \
    XX(FILE, "file") \
    XX(HOST, "host") \
    XX(BOOT_ID, "boot_id") \
    XX(PID, "pid") \
    XX(ANCHOR_UNIX_NS, "anchor_unix_ns") \
    XX(ANCHOR_BOOT_NS, "anchor_boot_ns") \
    XX(ALIGNMENT, "alignment") \
    XX(OFFSET_NS, "offset_ns") \
    XX(BOUND_NS, "bound_ns") \
    XX(COMMON_STEPS, "common_steps") \
    XX(NUMBERS, "numbers") \
    XX(RULES, "rules") \
    XX(CODE, "code") \
    XX(FUNCTION, "function") \
    XX(TEXT, "text") \
    XX(QUALNAME, "qualname") \
    XX(FIRST_LINE, "first_line") \
    XX(LAST_LINE, "last_line") \
    XX(CHANGED_US, "changed_us") \
    XX(FORWARD, "forward") \
    XX(UNREAD, "unread") \
    /* Only read. */ \
    XX(ACTIVE_AWAITING_FREE, "active_awaiting_free") \
    XX(HISTORY, "history") \
    XX(REAL_SIZE, "real_size") \
    XX(MAX_SPLIT_SIZE, "max_split_size") \
    XX(EXPANDABLE_SEGMENTS, "expandable_segments") \
    XX(ROUNDUP_POWER2_DIVISIONS, "roundup_power2_divisions")

enum ml_word {
#define XX(name, key, member, holds, of) ML_WORD_##name,
    ML_EVENT_COLUMNS(XX)
#undef XX
#define XX(name, text) ML_WORD_##name,
    ML_WORDS(XX)
#undef XX
        ML_WORD_ACTIONS, /* plus an enum ml_action */
    ML_WORD_CATEGORIES =
        ML_WORD_ACTIONS + ML_ACTION_COUNT, /* plus an enum ml_category of a tag */
    ML_WORD_COUNT = ML_WORD_CATEGORIES + ML_CATEGORY_TAG_LAST + 1
};

const char *ml_word_text(unsigned word);

/* Objects that are made once and referred to again. */
enum ml_shared {
    ML_SHARED_FRAME,
    ML_SHARED_FRAMES,
    ML_SHARED_FORWARD, /* by the id of its string */
    ML_SHARED_COUNT
};

/* How many ids of KIND, an enum ml_shared, RECORDING has; each is below it. */
size_t ml_shared_ids(const ml_recording *recording, unsigned kind);

/* Makes values one after another.  Between open and close of a container they become
 * its items; a dict's alternate key and value.  No function returns an error: ERROR
 * holds the first one, after which every call does nothing. */
typedef struct ml_builder {
    void *context;
    int error; /* 0 or ML_E* */
    void (*open)(struct ml_builder *builder, enum ml_value_kind kind);
    void (*close)(struct ml_builder *builder);
    void (*integer)(struct ml_builder *builder, int64_t integer);
    void (*boolean)(struct ml_builder *builder, bool truth);
    void (*real)(struct ml_builder *builder, double real);
    void (*word)(struct ml_builder *builder, unsigned word);
    void (*string)(struct ml_builder *builder, uint32_t id); /* of the recording */
    void (*text)(struct ml_builder *builder, const char *bytes, size_t length);
    /* Makes the value kept as ID once more, or returns false if there is none. */
    bool (*recall)(struct ml_builder *builder, enum ml_shared kind, uint32_t id);
    /* Keeps the value made last as ID. */
    void (*keep)(struct ml_builder *builder, enum ml_shared kind, uint32_t id);
} ml_builder;

/* Builds the whole snapshot of RECORDING as one value.  OPTIONS are ML_TORCH_SCHEMA_*.
 * Returns BUILDER's error. */
int ml_torch_schema_build(const ml_recording *recording, unsigned options,
                          ml_builder *builder);

#endif
