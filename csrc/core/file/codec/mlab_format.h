/* The layout of a .mlab file: its header and the records in its chunks.
 *
 * Numbers and structs, and the rules that one holds, which journal.c writes and
 * mlab_reader.c reads; docs/FORMAT.md is the specification in words.  All integers have
 * the byte order of the writing machine, which the header tells. */
#ifndef ML_MLAB_FORMAT_H
#define ML_MLAB_FORMAT_H

#include "file/codec/chunk.h"
#include "memlab.h"

#include <string.h>

#define ML_MLAB_MAGIC "\x89MLAB\r\n\x1a"
#define ML_MLAB_VERSION 1u
#define ML_MLAB_BYTE_ORDER UINT32_C(0x01020304)
/* Bits of required: a reader that does not know one refuses the file.  Bits of
 * optional: a reader that does not know one loses only that feature. */
#define ML_MLAB_USES UINT64_C(1)   /* its events say how long blocks were not used */
#define ML_MLAB_STATES UINT64_C(2) /* its chunks have states before their events */
#define ML_MLAB_TRIMS UINT64_C(4)  /* its first part is dropped; see ml_mlab_trim */
#define ML_MLAB_REQUIRED (ML_MLAB_USES | ML_MLAB_STATES | ML_MLAB_TRIMS)
#define ML_MLAB_USES_SAMPLED UINT64_C(1) /* optional; in some steps only */
/* A reader accepts chunk sizes that are a power of two between these; the header fits
 * into one chunk. */
#define ML_MLAB_CHUNK_LEAST (UINT32_C(1) << 13)
#define ML_MLAB_CHUNK_MOST (UINT32_C(1) << 24)

/* Lanes of events: one a device, or one a thread of an unordered source.  The control
 * lane comes after them. */
#define ML_MLAB_LANES 64u

enum ml_mlab_state {
    ML_MLAB_OPEN = 1, /* being written, or its process died */
    ML_MLAB_ENDED = 2
};

/* Why the file has no more events, although more came; name, number, text. */
#define ML_MLAB_STOPS(XX) \
    XX(NONE, 0, "") /* everything was stored */ \
    XX(LIMIT, 1, "the limit of the file's size was reached") \
    XX(DISK, 2, "the file could not grow") \
    XX(CUT, 3, "another process cut or removed the file")

enum ml_mlab_stop {
#define XX(name, number, text) ML_MLAB_STOP_##name = (number),
    ML_MLAB_STOPS(XX)
#undef XX
    ML_MLAB_STOP_COUNT = 0 ML_MLAB_STOPS(ML_NUMBERED_ONE)
};

_Static_assert(ML_IS_NUMBERED(ML_MLAB_STOPS, ML_MLAB_STOP_COUNT),
               "a number is missing or twice");

static inline const char *
ml_mlab_stop_text(enum ml_mlab_stop stop)
{
    static const char *const texts[] = {ML_MLAB_STOPS(ML_NUMBERED_TEXT)};
    return texts[stop];
}

/* One cache line each: lanes are written by different threads. */
typedef struct ml_mlab_lane {
    _Atomic uint64_t events;  /* that came: stored or dropped; records in the last */
    _Atomic uint64_t dropped; /* of these, not stored */
    uint64_t reserved[6];
} ml_mlab_lane;

/* The start of the file.  It takes the place of one chunk; the rest of that is zeros. */
typedef struct ml_mlab_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t required;
    uint64_t optional;
    uint32_t chunk_bytes;
    uint32_t keys;       /* ML_KEY_* of the snapshots of that torch */
    uint64_t start_time; /* unix ns */
    uint64_t pid;
    char source[16]; /* name of the source, NUL-terminated, as the next */
    char host[64];
    uint8_t ordered; /* a lane a device; else all lanes are of device 0 */
    uint8_t context; /* 1 + enum ml_context of what was wanted; 0: not told */
    uint8_t native;  /* of that: C++ frames too */
    uint8_t reserved;
    uint32_t checksum; /* CRC-32C of all before */
    /* From here on it changes while the file is written. */
    _Atomic uint32_t state;      /* enum ml_mlab_state */
    _Atomic uint32_t stop;       /* enum ml_mlab_stop */
    _Atomic uint32_t stop_errno; /* of ML_MLAB_STOP_DISK */
    /* The process's place in a run of several, as known so far; world_size 0: not
     * known. */
    _Atomic uint32_t local_rank;
    /* Since boot, when the clock of the events said start_time; 0: not known. */
    uint64_t boot_ns;
    unsigned char boot[16]; /* id of the kernel's boot; zeros: not known */
    _Atomic uint32_t rank;
    _Atomic uint32_t world_size;
    ml_mlab_lane lanes[ML_MLAB_LANES + 1];
    /* How often the first part was dropped: only the start of this number counts. */
    _Atomic uint64_t trims;
} ml_mlab_header;

_Static_assert(offsetof(ml_mlab_header, checksum) == 140 &&
                   offsetof(ml_mlab_header, boot_ns) == 160 &&
                   offsetof(ml_mlab_header, lanes) == 192 &&
                   offsetof(ml_mlab_header, trims) == 192 + 65 * 64,
               "the header is part of the file format");

/* kind of a chunk */
enum ml_mlab_chunk {
    ML_MLAB_EVENTS = 0, /* events, and what they refer to before it is first used */
    ML_MLAB_CONTROL = 1,
    /* A start after the first part was dropped: ml_chunk.first is its number, index
     * counts from 0. */
    ML_MLAB_START_DEFINITIONS = 2, /* definitions alone */
    ML_MLAB_START_CONTROL = 3      /* records as of control */
};

/* ---- Records in chunks of events ----
 *
 * Ids are those of the process that recorded, the same in all lanes. */

enum ml_mlab_definition {
    ML_MLAB_STRING = 0,
    ML_MLAB_CODE = 1,
    ML_MLAB_NODE = 2,
    ML_MLAB_OBJECT = 3
};

/* A part of a string; its bytes follow.  A long string has several parts, in order. */
typedef struct ml_mlab_string {
    uint32_t id;
    uint32_t total; /* bytes of the whole */
    uint32_t start; /* of this part in it */
} ml_mlab_string;

typedef struct ml_mlab_code {
    uint32_t id;
    uint32_t name; /* string ids */
    uint32_t filename;
    uint32_t linetable;
    int32_t firstlineno;
    int32_t python_minor; /* 0: the offsets of its frames are lines */
} ml_mlab_code;

typedef struct ml_mlab_node {
    uint32_t id;
    uint32_t parent;
    uint32_t code; /* 0: a C++ frame */
    uint32_t offset;
    uint64_t counter; /* program counter of a C++ frame */
    uint32_t object;  /* id of the module whose call the frame is; 0: of none */
    uint32_t reserved;
} ml_mlab_node;

typedef struct ml_mlab_object {
    uint32_t id;
    uint32_t type_name; /* string id; its own name is in the control lane */
} ml_mlab_object;

/* ---- Records in chunks of control ---- */

enum ml_mlab_control {
    ML_MLAB_CLOCK = 0,
    ML_MLAB_START = 1,   /* a device's memory from here to ML_MLAB_STARTED */
    ML_MLAB_SEGMENT = 2, /* ml_mlab_segment, then its blocks */
    ML_MLAB_BLOCK = 3,
    ML_MLAB_STARTED = 4, /* ml_mlab_device */
    ML_MLAB_SETTING = 5,
    ML_MLAB_TAG = 6,
    ML_MLAB_NOTE = 7,
    ML_MLAB_NAME = 8,
    ML_MLAB_USE = 9,
    ML_MLAB_CODE_LINE = 10,
    ML_MLAB_ORIGIN_FRAME = 11,
    ML_MLAB_ORIGIN_LINE = 12,
    /* Only in chunks of ML_MLAB_START_CONTROL. */
    ML_MLAB_TRIM = 13,
    ML_MLAB_TRIM_LANE = 14
};

/* Ticks of the source's clock, and their unix time. */
typedef struct ml_mlab_clock {
    uint64_t ticks;
    uint64_t unix_ns;
} ml_mlab_clock;

/* A device's memory at an instant: after EVENTS of its lane.  A later start of the same
 * device replaces the earlier one and the events in between.  But if the earlier one is
 * not complete and EVENTS is the same, the later one continues it: early writers wrote
 * starts in parts. */
typedef struct ml_mlab_start {
    uint64_t events;
    uint64_t max_split_bytes; /* ml_allocator_rules */
    uint32_t roundup_divisions[16];
    uint32_t device;
    uint8_t expandable_segments;
    uint8_t has_segments;
    uint8_t reserved[2];
} ml_mlab_start;

/* The rules of the memory that START is of; NULL: of a device without a start. */
static inline ml_allocator_rules
ml_mlab_start_rules(const ml_mlab_start *start)
{
    ml_allocator_rules rules = {.max_split_bytes = UINT64_MAX, .has_segments = 1};
    if (start != NULL) {
        rules.max_split_bytes = start->max_split_bytes;
        memcpy(rules.roundup_divisions, start->roundup_divisions,
               sizeof(rules.roundup_divisions));
        rules.expandable_segments = start->expandable_segments;
        rules.has_segments = start->has_segments;
    }
    return rules;
}

/* In chunks of ML_MLAB_START_CONTROL the id of its stack, 4 bytes, follows; so it does
 * a block. */
typedef struct ml_mlab_segment {
    uint64_t addr;
    uint64_t total;
    uint64_t stream;
    uint64_t pool[2];
    uint32_t device;
    uint8_t small;
    uint8_t expandable;
    uint8_t reserved[2];
} ml_mlab_segment;

typedef struct ml_mlab_block {
    uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint32_t device;
    uint8_t state; /* enum ml_block_state */
    uint8_t reserved[3];
} ml_mlab_block;

typedef struct ml_mlab_device {
    uint64_t device;
} ml_mlab_device;

/* An entry of allocator_settings; the key follows, then the text. */
typedef struct ml_mlab_setting {
    int64_t integer;
    double real;
    uint64_t divisions[16];
    uint32_t key_bytes;
    char kind;
    uint8_t reserved[3];
} ml_mlab_setting;

/* Bits of a tag's category: its name, or its module's path, did not fit the tables. */
#define ML_MLAB_NAME_LOST 0x80u
#define ML_MLAB_MODULE_LOST 0x40u

/* ML_MLAB_TAG has no struct, since tags are many and have to be short: a byte of
 * category, one of device, three LEB128 numbers (the address; the events of the device
 * before it, or of an unordered source ticks; the bytes of the module's path), the
 * path, the name. */

/* ML_MLAB_USE has no struct either: a byte of device, two LEB128 numbers (the address
 * of a block that is live at the end, the events of the device before its last use). */

/* ml_note; the name follows. */
typedef struct ml_mlab_note {
    uint64_t time; /* ticks */
    uint64_t values[7];
    int32_t device;
    uint16_t thread;     /* its low bits; 0 with thread_high 0: not known */
    uint8_t kind;        /* enum ml_note_kind */
    uint8_t thread_high; /* bits 16 to 23 */
} ml_mlab_note;

/* ml_code_line; the file's name, the function's, its qualified name and the text follow. */
typedef struct ml_mlab_code_line {
    int64_t changed_us;
    uint32_t line;
    uint32_t first_line;
    uint32_t last_line;
    uint16_t file_bytes;
    uint16_t name_bytes;
    uint16_t qualname_bytes;
    uint16_t forward; /* enum ml_code_forward */
    uint16_t reserved[2];
} ml_mlab_code_line;

/* What was dropped, beside events. */
typedef struct ml_mlab_trim {
    uint64_t ticks;      /* when the last of the events was */
    uint64_t steps;      /* notes of steps */
    uint64_t first_step; /* with any: number in the process of the recording's first */
} ml_mlab_trim;

/* Where a lane goes on.  Its chunks of lower index no longer count. */
typedef struct ml_mlab_trim_lane {
    uint32_t lane; /* ML_MLAB_LANES: the control lane */
    uint32_t reserved;
    uint64_t chunk;   /* index of its first chunk */
    uint64_t events;  /* of the lane, before the first that counts */
    uint64_t dropped; /* of these, not stored */
    /* Of a device, since its first start. */
    uint64_t gone;     /* events, stored or not */
    uint64_t missing;  /* of these, those not in the memory of this start */
    uint64_t peaks[4]; /* highest allocated, active, requested and reserved bytes */
} ml_mlab_trim_lane;

/* An object's name, which follows.  The last one counts. */
typedef struct ml_mlab_name {
    uint64_t object;
} ml_mlab_name;

/* A frame of ml_origins; its function's name follows, then its file's. */
typedef struct ml_mlab_origin_frame {
    uint32_t id; /* one more than that of the one before; the first is 1 */
    uint32_t caller;
    int64_t line;
    uint32_t name_bytes;
    uint32_t reserved;
} ml_mlab_origin_frame;

/* A line of ml_origins; the path follows. */
typedef struct ml_mlab_origin_line {
    int64_t line;
    uint32_t frame;
    uint32_t reserved;
} ml_mlab_origin_line;

#endif
