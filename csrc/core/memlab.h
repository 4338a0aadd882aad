/* The ABI that every part of memlab shares: memory events, error codes, and the two
 * tables through which a source of events and the recorder meet.
 *
 * Plain data only.  This header compiles as C11 and as C++17 and knows neither Python
 * nor torch; it is the one header that crosses from memlab._core to memlab._torch. */
#ifndef ML_MEMLAB_H
#define ML_MEMLAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows whenever a struct or table below changes in a way old readers cannot take. */
#define ML_ABI_VERSION 15u

/* A list whose numbers are in files has entries XX(name, number, text): the number
 * stands where a reader looks, and moving a line changes none.  Its count is 0
 * LIST(ML_NUMBERED_ONE); that all numbers below COUNT are there, each once, is
 * ML_IS_NUMBERED(LIST, COUNT), a constant for a static assert. */
#define ML_NUMBERED_ONE(name, number, text) +1
#define ML_NUMBERED_TEXT(name, number, text) [number] = text,
#define ML_NUMBERED_BIT(name, number, text) | UINT64_C(1) << (number)
#define ML_IS_NUMBERED(LIST, count) \
    ((0 LIST(ML_NUMBERED_BIT)) == (UINT64_C(1) << (count)) - 1)

/* LIST(ML_LISTED_TEXT) is the texts of a list of entries XX(name, text), in their order;
 * LIST(ML_NUMBERED_TEXT) those of one with numbers, at their numbers. */
#define ML_LISTED_TEXT(name, text) text,

/* name, text.  Functions return 0 or the negative of one of these. */
#define ML_ERRORS(XX) \
    XX(NOMEM, "out of memory") \
    XX(INVALID, "invalid argument") \
    XX(STATE, "not possible in this state") \
    XX(FULL, "a fixed-size table is full") \
    XX(IO, "input or output failed") \
    XX(FORMAT, "not a memory snapshot") \
    XX(UNSAFE, "refused: the file asks for more than data") \
    XX(LIMIT, "over a limit set to protect this process") \
    XX(UNSUPPORTED, "not supported here") \
    XX(SOURCE, "the source of events failed")

enum ml_error {
    ML_OK = 0,
#define XX(name, text) ML_E_##name##_POSITIVE,
    ML_ERRORS(XX)
#undef XX
#define XX(name, text) ML_E##name = -ML_E_##name##_POSITIVE,
    ML_ERRORS(XX)
#undef XX
};

/* Events with the names of torch's trace entries: name, number, text.  The numbers
 * are in files; the first nine equal c10's TraceEntry::Action.  A value unknown to
 * us becomes OTHER. */
#define ML_ACTIONS(XX) \
    XX(ALLOC, 0, "alloc") \
    XX(FREE_REQUESTED, 1, "free_requested") \
    XX(FREE_COMPLETED, 2, "free_completed") \
    XX(SEGMENT_ALLOC, 3, "segment_alloc") \
    XX(SEGMENT_FREE, 4, "segment_free") \
    XX(SEGMENT_MAP, 5, "segment_map") \
    XX(SEGMENT_UNMAP, 6, "segment_unmap") \
    XX(SNAPSHOT, 7, "snapshot") \
    XX(OOM, 8, "oom") \
    XX(OTHER, 9, "other")

enum ml_action {
#define XX(name, number, text) ML_ACTION_##name = (number),
    ML_ACTIONS(XX)
#undef XX
    ML_ACTION_COUNT = 0 ML_ACTIONS(ML_NUMBERED_ONE)
};

/* Which OTHER an event is, of those that torch has and that change no memory: name,
 * number, text.  The numbers are in files. */
#define ML_OTHERS(XX) \
    XX(UNKNOWN, 0, "other") \
    XX(ANNOTATE, 1, "annotate") /* the user's words about the block at addr */

enum ml_other {
#define XX(name, number, text) ML_OTHER_##name = (number),
    ML_OTHERS(XX)
#undef XX
    ML_OTHER_COUNT = 0 ML_OTHERS(ML_NUMBERED_ONE)
};

/* Whether ACTION gives back a block. */
static inline int
ml_action_frees_block(unsigned action)
{
    return action == ML_ACTION_FREE_REQUESTED || action == ML_ACTION_FREE_COMPLETED;
}

/* Whether ACTION frees a block or a segment. */
static inline int
ml_action_frees(unsigned action)
{
    const unsigned frees = 1u << ML_ACTION_FREE_REQUESTED |
                           1u << ML_ACTION_FREE_COMPLETED |
                           1u << ML_ACTION_SEGMENT_FREE | 1u << ML_ACTION_SEGMENT_UNMAP;
    return action < ML_ACTION_COUNT && (frees >> action & 1u) != 0;
}

/* Bits of ml_event.flags. */
#define ML_EVENT_BACKWARD 0x01u    /* an autograd node was running on the thread */
#define ML_EVENT_BLOCK_KNOWN 0x02u /* block_bytes was measured, not inferred */
#define ML_EVENT_NO_PYTHON 0x04u   /* the thread had no Python frames */
#define ML_EVENT_STACK_LOST 0x08u  /* a stack table was full: the stack is missing */
#define ML_EVENT_POOL_KNOWN 0x10u  /* pool is the id of the memory pool, whole */
#define ML_EVENT_CONTEXT 0x20u /* a stack was requested: "frames" is written, even [] */

/* One memory event.  Addresses and sizes in bytes. */
typedef struct ml_event {
    uint64_t addr;        /* of the block or segment; for OOM the device's free bytes */
    uint64_t size;        /* requested bytes; for segments their full bytes */
    uint64_t time;        /* ticks of the source's clock; unix ns in a recording */
    uint64_t block_bytes; /* bytes the block occupies; 0: not known */
    uint64_t stream;      /* stream handle */
    /* Autograd's numbers, which count the nodes that a thread makes.  With
     * ML_EVENT_BACKWARD that of the running node, UINT64_MAX for one that has none
     * (AccumulateGrad); else the number that the thread's next node will get.  They
     * belong to autograd_thread. */
    uint64_t sequence;
    /* Where a running node makes nodes itself, as a recomputation does, the number that
     * the calling thread's next one will get.  It belongs to next_thread. */
    uint64_t next;
    uint32_t stack;        /* stack id at the event; 0: none captured */
    uint32_t origin_stack; /* stack id of the allocation, for frees; 0: unknown */
    uint32_t pool[2];      /* id of the memory pool; (0, 0): the default pool */
    uint32_t metadata;     /* string id of the user's metadata; 0: empty */
    uint32_t node;         /* string id of the running node's C++ type; 0: none */
    uint32_t thread;       /* small per-process number of the thread */
    /* Autograd's own number of the thread that made the running node, without one that
     * of the calling thread; 0: not known or above 16 bits, and then so is sequence. */
    uint16_t autograd_thread;
    uint16_t next_thread; /* as autograd_thread; 0: next says nothing and is 0 */
    uint8_t action;       /* enum ml_action */
    uint8_t flags;        /* ML_EVENT_* */
    /* Of a FREE_REQUESTED: how many events of the device came between the last use
     * of the block by an operator and this one, plus 1.  0: not known. */
    uint32_t unused;
    uint32_t internal; /* string id of what torch's allocator notes; 0: nothing */
    /* Of an OTHER: enum ml_other.  Of all others, see ml_event_forward. */
    uint32_t other;
    uint32_t compiled; /* string id of the running region of torch.compile; 0: none */
} ml_event;

/* String id of the traceback of the forward that made the running node, which autograd
 * keeps in anomaly mode: its entries, with a zero byte between them.  0: none. */
static inline uint32_t
ml_event_forward(const ml_event *event)
{
    return event->action != ML_ACTION_OTHER ? event->other : 0;
}

/* Every member of ml_event: name, member, type. */
#define ML_EVENT_MEMBERS(XX) \
    XX(addr, addr, uint64_t) \
    XX(size, size, uint64_t) \
    XX(time, time, uint64_t) \
    XX(block_bytes, block_bytes, uint64_t) \
    XX(stream, stream, uint64_t) \
    XX(sequence, sequence, uint64_t) \
    XX(next, next, uint64_t) \
    XX(stack, stack, uint32_t) \
    XX(origin_stack, origin_stack, uint32_t) \
    XX(pool_first, pool[0], uint32_t) \
    XX(pool_second, pool[1], uint32_t) \
    XX(metadata, metadata, uint32_t) \
    XX(node, node, uint32_t) \
    XX(thread, thread, uint32_t) \
    XX(autograd_thread, autograd_thread, uint16_t) \
    XX(next_thread, next_thread, uint16_t) \
    XX(action, action, uint8_t) \
    XX(flags, flags, uint8_t) \
    XX(unused, unused, uint32_t) \
    XX(internal, internal, uint32_t) \
    XX(other, other, uint32_t) \
    XX(compiled, compiled, uint32_t)

/* Columns of an event that snapshots keep by what they hold, in the order of their
 * keys: name, key, member, what it holds, whose key it is.  0 says nothing.
 *
 * U16, U32: a number.  BITS: 64 of them, signed in snapshots.  STRING: id of a string.
 * POOL: id of a memory pool.  REST: nanoseconds beyond whole microseconds.
 * TORCH, and first: a key of torch's own events, in versions of torch that have the bit
 * ML_KEY_ of NAME; of others, and MEMLAB: a list below the key "memlab". */
#define ML_EVENT_COLUMNS(XX) \
    XX(COMPILE_CONTEXT, "compile_context", compiled, STRING, TORCH) \
    XX(USER_METADATA, "user_metadata", metadata, STRING, TORCH) \
    XX(POOL_ID, "pool_id", pool, POOL, TORCH) \
    XX(INTERNAL_METADATA, "internal_metadata", internal, STRING, TORCH) \
    XX(TIME, "time", time, REST, MEMLAB) \
    XX(THREAD, "thread", thread, U32, MEMLAB) \
    XX(AUTOGRAD_THREAD, "autograd_thread", autograd_thread, U16, MEMLAB) \
    XX(SEQUENCE, "sequence", sequence, BITS, MEMLAB) \
    XX(NEXT, "next", next, BITS, MEMLAB) \
    XX(NEXT_THREAD, "next_thread", next_thread, U16, MEMLAB) \
    XX(NODE, "node", node, STRING, MEMLAB) \
    XX(UNUSED, "unused", unused, U32, MEMLAB)

/* Sparse columns, of 32 bits: packed only where they are not 0.  Member, number,
 * text; the numbers are in files. */
#define ML_SPARSE_COLUMNS(XX) \
    XX(unused, 0, "unused") /* of a free: events since its block was used, plus 1 */ \
    XX(internal, 1, "internal") /* string id of the allocator's own note */ \
    XX(other, 2, "other")       /* of an action 9: enum ml_other; else its forward */ \
    XX(compiled, 3, "compiled") /* string id of the region of torch.compile */

enum {
    ML_SPARSE_COLUMN_COUNT = 0 ML_SPARSE_COLUMNS(ML_NUMBERED_ONE)
};

/* Members that are ids of texts, which ml_event_text has under the same name. */
#define ML_EVENT_TEXTS(XX) \
    XX(metadata) \
    XX(internal) \
    XX(compiled)

/* Texts of an event, borrowed for the length of the call. */
typedef struct ml_event_text {
    const char *metadata; /* the user's, of metadata_bytes bytes */
    size_t metadata_bytes;
    const char *node;     /* mangled C++ type of the running node, static; NULL: none */
    const char *internal; /* the allocator's own note, of internal_bytes bytes */
    size_t internal_bytes;
    const char *compiled; /* the region of torch.compile, of compiled_bytes bytes */
    size_t compiled_bytes;
    const void *anomaly; /* Python's dict of the node in anomaly mode, or NULL */
} ml_event_text;

#define ML_DEVICE_MAX 64

/* name in memlab.stats(), meaning follows torch's memory_stats(): bytes unless it says
 * otherwise; each has a current value and a peak. */
#define ML_TOTALS(XX) \
    XX(allocated) \
    XX(active) \
    XX(requested) \
    XX(reserved)

typedef struct ml_totals {
#define XX(name) uint64_t name;
    ML_TOTALS(XX)
#undef XX
} ml_totals;

/* How the allocator rounds and splits; see docs/ALLOCATOR.md. */
typedef struct ml_allocator_rules {
    uint64_t max_split_bytes;       /* UINT64_MAX: unlimited */
    uint32_t roundup_divisions[16]; /* per power of two from 1 MiB on; 0 or 1: off */
    uint8_t expandable_segments;
    uint8_t has_segments; /* 0: every block is its own (cpu): no rounding, no splits */
} ml_allocator_rules;

enum ml_block_state {
    ML_BLOCK_INACTIVE = 0,
    ML_BLOCK_ALLOCATED = 1,   /* active_allocated */
    ML_BLOCK_PENDING_FREE = 2 /* active_pending_free */
};

typedef struct ml_block {
    uint64_t addr;
    uint64_t size;      /* bytes it occupies */
    uint64_t requested; /* requested bytes; stale on an inactive block, as in torch */
    uint32_t stack;     /* stack id of its allocation; 0: unknown */
    uint8_t state;      /* enum ml_block_state */
    uint8_t pad[3];
} ml_block;

typedef struct ml_segment {
    uint64_t addr;
    uint64_t total;
    uint64_t allocated;
    uint64_t active;
    uint64_t requested;
    uint64_t stream;
    uint64_t pool[2];
    uint32_t stack; /* stack id of the segment's allocation; 0: unknown */
    uint8_t small;  /* of the pool for blocks up to 1 MiB */
    uint8_t expandable;
    uint8_t split; /* its first block was once split, as far as is known */
    uint8_t pad;
    size_t first_block; /* index into the device's blocks */
    size_t block_count;
} ml_segment;

/* Receives a walk over one device's memory: each segment, then its blocks by address.
 * A non-zero return stops the walk and becomes its result. */
typedef struct ml_walk_visitor {
    void *context;
    int (*segment)(void *context, int device, const ml_segment *segment);
    int (*block)(void *context, int device, const ml_block *block);
    /* allocator_settings in torch's key order; KIND one of 'b','i','f','s','d' (bool,
     * integer, double, string, the sixteen roundup divisions). Pointers borrowed. */
    int (*setting)(void *context, const char *key, char kind, int64_t integer,
                   double real, const char *text, const uint64_t *divisions);
    /* external_annotations of the source, in its order. STAGE "START" or "END". */
    int (*annotation)(void *context, const char *stage, const char *name, int device,
                      uint64_t ticks);
} ml_walk_visitor;

/* What an allocator counts of a device since the program began, or last reset it,
 * and its events do not tell; torch's names. */
#define ML_SOURCE_COUNTERS(XX) \
    XX(num_alloc_retries) \
    XX(num_ooms) \
    XX(num_sync_all_streams) \
    XX(num_device_alloc) \
    XX(num_device_free) \
    XX(num_oom_rejections)

enum ml_source_counter {
#define XX(name) ML_SOURCE_COUNTER_##name,
    ML_SOURCE_COUNTERS(XX)
#undef XX
    ML_SOURCE_COUNTER_MAX
};

typedef struct ml_source_counters {
    uint64_t of[ML_SOURCE_COUNTER_MAX];
} ml_source_counters;

/* The recorder's destination for the events of a source. */
typedef struct ml_feed ml_feed;

/* A source of events.  All functions may be called without the GIL unless noted. */
typedef struct ml_source {
    uint32_t size;    /* bytes of this struct */
    uint32_t version; /* ML_ABI_VERSION */
    const char *name; /* "cuda", "cpu", "script"; static */
    void *self;
    int ordered; /* 1: events of one device never overlap (a lock orders them) */
    /* Number of devices whose events arrive, 0 while the runtime is not initialised. */
    int (*device_count)(void *self);
    /* Begins to deliver events to the recorder; idempotent, never undone. */
    int (*attach)(void *self);
    /* Tells the source whether anyone listens, so that it can skip its own work. */
    void (*enable)(void *self, int enabled);
    /* Visits all memory of every device in device order.  An ordered source delivers
     * one SNAPSHOT event a device, on this thread, at the instant that the visit
     * describes, before it visits the device. */
    int (*walk)(void *self, const ml_walk_visitor *visitor);
    int (*rules)(void *self, int device, ml_allocator_rules *out);
    /* The allocator's own current totals and peaks. */
    int (*totals)(void *self, int device, ml_totals *current, ml_totals *peak);
    /* Converts ticks of the source's clock to unix nanoseconds, in place. */
    int (*unix_ns)(void *self, uint64_t *ticks, size_t stride_bytes, size_t count);
    /* The source's clock now. */
    uint64_t (*now)(void *self);
    /* A sentence about the last failure of any of the above; static or thread-local. */
    const char *(*error)(void *self);
    /* Host memory that the source has pinned for its devices, bytes: in use, UINT64_MAX
     * where it does not know, and held with what is cached.  0 or ML_E*.  NULL: it pins
     * none. */
    int (*pinned)(void *self, uint64_t *in_use, uint64_t *held);
    /* The allocator's own counters.  0 or ML_E*.  NULL: it keeps none. */
    int (*counters)(void *self, int device, ml_source_counters *out);
    /* A number that grows whenever memory of DEVICE comes, goes or waits to, until the
     * program resets the allocator's counters.  0 or ML_E*.  NULL: it keeps none. */
    int (*changes)(void *self, int device, uint64_t *out);
    /* Tells the source whether to report uses.  NULL: it cannot. */
    void (*watch_uses)(void *self, int enabled);
    /* Set by register_source, before the first event; NULL until then.  An event
     * finds its feed here without a search. */
    ml_feed *feed;
} ml_source;

/* An operator's use of memory. */
typedef struct ml_use_mark {
    uint64_t addr;
    int32_t device; /* -1: it may use any memory of any device */
    int32_t inner;  /* addr may lie within a block, and not be its own */
} ml_use_mark;

/* A frame of a program in TorchScript; texts end with 0. */
typedef struct ml_torchscript_frame {
    const char *name;
    const char *filename;
    int64_t line; /* 0: unknown */
} ml_torchscript_frame;

typedef void (*ml_torchscript_visitor)(void *context,
                                       const ml_torchscript_frame *frame);
/* Visits the frames of TorchScript on the calling thread, the outermost first.  Takes
 * memory, no lock and not the GIL; throws nothing. */
typedef void (*ml_torchscript_frames)(ml_torchscript_visitor visit, void *context);

/* What memlab._core offers a source, handed over in the capsule named
 * ML_API_CAPSULE. */
#define ML_API_CAPSULE "memlab._core._api"

typedef struct ml_api {
    uint32_t size;    /* bytes of this struct */
    uint32_t version; /* ML_ABI_VERSION */
    /* Registers SOURCE, which must live for ever. Replaces none: a second one of the
     * same name is an error. */
    int (*register_source)(ml_source *source);
    /* The hot path: takes no lock, memory, GIL or I/O, never fails.  Fields of EVENT
     * that the core fills itself (stack, origin_stack, block_bytes, thread) are
     * ignored on entry, but for SOURCEs that are not ordered: those give block_bytes
     * and origin_stack.  So are metadata and node, which come from TEXT (NULL: no
     * texts).  EVENT of an ordered source is filled in where it is, that of another
     * left alone.  Returns the stack id recorded for the event. */
    uint32_t (*record)(const ml_source *source, int device, ml_event *event,
                       const ml_event_text *text);
    /* 1 while any recording wants events of SOURCE. */
    int (*enabled)(const ml_source *source);
    /* SOURCE had no memory left on DEVICE; ASKED of the driver, FREE and TOTAL on the
     * device, ALLOWED to the process: bytes, UINT64_MAX where not known.  Takes a lock,
     * never the GIL: not from the allocator's callback. */
    void (*out_of_memory)(const ml_source *source, int device, uint64_t asked,
                          uint64_t free, uint64_t total, uint64_t allowed);
    /* A region of the program that has NAME of LENGTH bytes begins, or ends (END):
     * both with one NUMBER.  Takes a lock, never the GIL: not from the allocator's
     * callback. */
    void (*region)(int end, uint64_t number, const char *name, size_t length);
    /* COUNT blocks of SOURCE are used now.  Takes no lock. */
    void (*used)(const ml_source *source, const ml_use_mark *marks, size_t count);
    /* The memory of SOURCE is used from now on in ways that it does not see. */
    void (*use_unseen)(const ml_source *source);
    /* SOURCE has devices now: recordings that wait for them begin.  Takes a lock,
     * never the GIL, which the caller must not hold: not from the allocator's
     * callback.  0 or ML_E*. */
    int (*ready)(const ml_source *source);
    /* A program in TorchScript begins, whose frames are asked of FRAMES from now on.
     * Any number of times; takes no lock. */
    void (*torchscript_begun)(ml_torchscript_frames frames);
} ml_api;

#ifdef __cplusplus
}
#endif
#endif
