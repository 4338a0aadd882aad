/* A recording: the data of a run, recorded or read from a file, complete and immutable.
 *
 * Owns the columns that every analysis and writer reads: strings, frames, stacks, and
 * for each device its events, its memory at the end, and its losses.  All analyses are
 * functions of a recording. */
#ifndef ML_RECORDING_H
#define ML_RECORDING_H

#include <stdbool.h>

#include "memlab.h"
#include "recording/events.h"

struct ml_intern; /* base.h */

/* Strings, frames and stacks are referred to by index.  Index 0 is the empty string,
 * the unknown frame and the empty stack. */
typedef struct ml_string {
    const char *bytes; /* UTF-8 (surrogates passed through), not NUL-terminated; owned
                          by the recording's arena */
    uint32_t length;   /* bytes */
} ml_string;

bool ml_string_holds(ml_string text, const char *part);
/* Compares bytes, as memcmp. */
int ml_string_compare(ml_string a, ml_string b);

typedef struct ml_frame {
    uint32_t name;     /* string: function */
    uint32_t filename; /* string */
    int64_t line;      /* 0: unknown */
} ml_frame;

/* The place of a line of code; texts are borrowed. */
typedef struct ml_code_place {
    ml_string file;
    int64_t line;
    ml_string function;
} ml_code_place;

/* Their order by file, then line, then function. */
int ml_code_place_compare(ml_code_place a, ml_code_place b);

/* A stack is its innermost frame and the stack of the caller: a trie. */
typedef struct ml_stack {
    uint32_t parent; /* stack id of the callers; 0: none.  Always below its own id. */
    uint32_t frame;  /* frame id */
    /* String: path of the torch.nn.Module whose call this frame is; 0: none. */
    uint32_t module;
} ml_stack;

/* The owner of a block, if known exactly: name, number, text.  Texts are JSON keys;
 * numbers are in files. */
#define ML_CATEGORIES(XX) \
    XX(PARAMETER, 0, "parameter") \
    XX(BUFFER, 1, "buffer") \
    XX(GRADIENT, 2, "gradient") \
    XX(OPTIMIZER_STATE, 3, "optimizer_state") \
    XX(ACTIVATION, 4, "activation") \
    XX(TEMPORARY, 5, "temporary") \
    XX(INPUT, 6, "input") \
    XX(WORKSPACE, 7, "workspace") \
    XX(COMMUNICATION, 8, "communication") \
    XX(BEFORE_RECORDING, 9, "before_recording") \
    XX(UNKNOWN, 10, "unknown") \
    XX(OTHER, 11, "other") /* the program's, made outside any module's call */

/* The last owner that a tag can name; later ones own no tensor. */
#define ML_CATEGORY_TAG_LAST ML_CATEGORY_UNKNOWN

enum ml_category {
#define XX(name, number, text) ML_CATEGORY_##name = (number),
    ML_CATEGORIES(XX)
#undef XX
    ML_CATEGORY_COUNT = 0 ML_CATEGORIES(ML_NUMBERED_ONE)
};

/* A tensor's owner, reported while recording: "now the block that holds ADDR is a
 * parameter".  POSITION counts the device's earlier events. */
typedef struct ml_tag {
    uint64_t addr;
    uint64_t position; /* index into the device's events, 0..event_count */
    uint32_t name;     /* string: "weight" or the like; 0: none */
    uint32_t module;   /* string: path of the module that has the owner; 0: none */
    uint8_t category;  /* enum ml_category, up to ML_CATEGORY_TAG_LAST */
    uint8_t pad[7];
} ml_tag;

/* The last use, by an operator, of a block that is live at the end.  POSITION counts
 * the device's earlier events. */
typedef struct ml_use {
    uint64_t addr;
    uint64_t position;
} ml_use;

typedef struct ml_annotation {
    uint64_t time; /* unix ns */
    uint32_t name; /* string */
    int32_t device;
    uint8_t end; /* 0: START, 1: END */
    uint8_t pad[7];
} ml_annotation;

/* Values of a note, and the value for unknown. */
#define ML_NOTE_VALUES 7
#define ML_NOTE_UNKNOWN UINT64_MAX

/* Notes beside memory events, on the same clock: name, number, text, then the meaning
 * of the values, bytes unless said otherwise; other values are 0.  The numbers are in
 * files. */
#define ML_NOTES(XX) \
    XX(STEP, 0, "step") /* a training step ended; its number, from 0 */ \
    /* A named part of the program, memlab.phase(); a number that its end shares. */ \
    XX(PHASE_BEGIN, 1, "phase_begin") \
    XX(PHASE_END, 2, "phase_end") \
    XX(MARK, 3, "mark") /* memlab.mark() */ \
    /* torch.profiler.record_function(); a number that its end shares. */ \
    XX(REGION_BEGIN, 4, "region_begin") \
    XX(REGION_END, 5, "region_end") \
    XX(HOST, 6, "host") /* resident set; pinned allocated; pinned reserved */ \
    /* Of the whole device, as it says itself: used; total; of this process; of other \
     * processes; the driver's reserve, in total but not in used.  Then torch's reserved; \
     * torch's allocated.  All unknown: it could not be read, and the name says why. */ \
    XX(GPU, 7, "gpu") \
    XX(OOM, 8, "oom") /* asked for; free on the device; total; allowed */ \
    /* Who holds the block at this address; the name says who.  Of a variable that \
     * nothing reads until it is set again the name is "NAME of FUNCTION": the line that sets \
     * it. */ \
    XX(HOLDER, 9, "holder") \
    /* Where memory runs out, what no event tells.  Of an optimizer, whose class the name is: \
     * bytes of the state that it will keep; of the parameters that it trains. */ \
    XX(OPTIMIZER, 10, "optimizer") \
    /* The program's argument of this name, a batch: its number. */ \
    XX(BATCH, 11, "batch") \
    /* The loop that trains, each enum ml_loop_fact: whether gradients live while the next \
     * forward runs; whether what the module under way returns does.  Then bytes of what was \
     * returned before and does, and enum ml_loop_loss: what follows. */ \
    XX(LOOP, 12, "loop") \
    /* The program and its arguments, as a shell takes them. */ \
    XX(PROGRAM, 13, "program") \
    /* Memory outside torch's allocator ran out, which ended the program: free on the device; \
     * total.  The name says it in sentences. */ \
    XX(NO_ROOM, 14, "no_room") \
    /* Where memory runs out, the last linear layer of the model under way: features that it \
     * takes; that it makes, 0 if in parts; bytes of its weight; enum ml_loop_fact: whether another module has \
     * that weight, too. */ \
    XX(HEAD, 15, "head")

enum ml_loop_fact {
    ML_LOOP_UNKNOWN = 0,
    ML_LOOP_NO = 1,
    ML_LOOP_YES = 2,
    /* Of what a call returns: also while the next call makes its loss. */
    ML_LOOP_YES_AND_LOSS = 3
};

/* What the program makes of the model's result before the backward pass. */
enum ml_loop_loss {
    ML_LOSS_UNKNOWN = 0,
    ML_LOSS_REDUCES = 1,  /* its mean or sum */
    ML_LOSS_CLASSES = 2,  /* a loss over classes, which keeps as much as the result */
    ML_LOSS_ELEMENTS = 3, /* a loss element by element, which keeps nothing */
    ML_LOSS_SQUARES = 4,  /* the mean or sum of its squares */
    /* A loss over classes that the result goes into, held by nothing else: gone before the
     * backward pass. */
    ML_LOSS_CLASSES_ALONE = 5,
    ML_LOSS_REDUCES_ALONE = 6, /* likewise its mean or sum */
    /* A loss over classes of the result in float32, where that has 16 bits. */
    ML_LOSS_CLASSES_FLOAT32 = 7
};

enum ml_note_kind {
#define XX(name, number, text) ML_NOTE_##name = (number),
    ML_NOTES(XX)
#undef XX
    ML_NOTE_COUNT = 0 ML_NOTES(ML_NUMBERED_ONE)
};

typedef struct ml_note {
    uint64_t time; /* ticks of the source's clock; unix ns in a recording */
    uint64_t values[ML_NOTE_VALUES]; /* ML_NOTE_UNKNOWN: not known */
    uint32_t name;                   /* string; 0: none */
    int32_t device;                  /* -1: no particular device */
    uint32_t thread;                 /* as in ml_event */
    uint8_t kind;                    /* enum ml_note_kind */
    uint8_t pad[3];
} ml_note;

/* Whether the running program's torch.autograd.Function classes have a function as their
 * forward.  The numbers are in files. */
enum ml_code_forward {
    ML_CODE_FORWARD_UNKNOWN = 0,
    ML_CODE_FORWARD_NONE = 1,
    ML_CODE_FORWARD_FUNCTIONS = 2,
};

/* Of a NUMBER in a file. */
static inline uint8_t
ml_code_forward_of(uint64_t number)
{
    return (uint8_t)(number <= ML_CODE_FORWARD_FUNCTIONS ? number
                                                         : ML_CODE_FORWARD_UNKNOWN);
}

/* The text of a line of code that frames name, from the program's file while it was
 * recorded. */
typedef struct ml_code_line {
    uint32_t filename; /* string; with the next two members, those of a frame */
    uint32_t name;     /* string: function */
    int64_t line;      /* above 0 */
    uint32_t text;     /* string: without its line end */
    /* String: the qualified name of the function; 0: the file has no such function at
     * this line, and TEXT is empty. */
    uint32_t qualname;
    int64_t first_line; /* of the function; 0: not known */
    int64_t last_line;
    int64_t changed_us; /* unix us; the file's last change; 0: unknown */
    uint8_t forward;    /* enum ml_code_forward: of the function */
} ml_code_line;

/* One entry of allocator_settings, in torch's order. */
typedef struct ml_setting {
    uint32_t key;  /* string */
    char kind;     /* 'b' bool, 'i' integer, 'f' double, 's' string, 'd' divisions */
    uint32_t text; /* string; only for 's' */
    int64_t integer;
    double real;
    uint64_t divisions[16];
} ml_setting;

typedef struct ml_device_trace {
    size_t event_count;
    ml_events events;     /* oldest first; times in unix ns; block_bytes as known */
    ml_segment *segments; /* at the end of the recording, by address */
    size_t segment_count;
    ml_block *blocks; /* of all segments, in segment then address order */
    size_t block_count;
    ml_tag *tags; /* by position */
    size_t tag_count;
    uint64_t overwritten_events; /* recorded, then overwritten by newer ones */
    uint64_t dropped_events;     /* never recorded */
    /* It is known that no memory was there before the first event, and all events fit. */
    bool begins_empty;
    uint64_t lost_stacks; /* events whose stack did not fit the tables */
    /* Names in it that did not fit the tables (metadata, autograd nodes, owners);
     * they read "<lost>". */
    uint64_t lost_names;
    /* While the window was recorded, including events since overwritten; 0 if not known
     * (a foreign snapshot). */
    ml_totals peak;
    ml_use *uses; /* by address; of blocks live at the end, as far as known */
    size_t use_count;
    bool uses_sampled; /* uses were followed in some steps only */
    /* in its process; differs from the index only in a merged recording */
    uint32_t number;
    /* Owned; by address: facts about blocks from before the first event, in recordings
     * that are followed. */
    struct ml_prior_block *prior_blocks;
    size_t prior_block_count;
} ml_device_trace;

/* How the clock of a rank was aligned with that of the first; JSON keys. */
#define ML_ALIGNMENTS(XX) \
    XX(NONE, "")               /* none: a recording of one process */ \
    XX(REFERENCE, "reference") /* the others are aligned with it */ \
    XX(HOST, "same_host")      /* both have the clock of one kernel */ \
    XX(STEPS, "steps")         /* by the ends of the steps that both recorded */ \
    XX(WALL, "wall_clock")     /* the hosts' own clocks */

enum ml_alignment {
#define XX(name, text) ML_ALIGNMENT_##name,
    ML_ALIGNMENTS(XX)
#undef XX
    ML_ALIGNMENT_COUNT
};

/* The state of the process, from its .mlab file; JSON keys. */
#define ML_RANK_STATES(XX) \
    XX(UNKNOWN, "") \
    XX(ENDED, "ended") \
    XX(RECORDING, "recording") /* it was still recording when the file was read */ \
    XX(CUT_OFF, "cut off")     /* it was killed or lost */

enum ml_rank_state {
#define XX(name, text) ML_RANK_##name,
    ML_RANK_STATES(XX)
#undef XX
    ML_RANK_STATE_COUNT
};

/* A process of a recording.  An unmerged recording has one or none.  Unknown members
 * are zeros, except rank and local_rank. */
typedef struct ml_rank {
    int32_t rank;        /* -1: not known */
    int32_t local_rank;  /* -1: not known */
    uint32_t world_size; /* 0: not known */
    uint32_t file;       /* string: name of the file that it was merged from */
    uint32_t host;       /* string: name of its machine */
    uint32_t boot;       /* string: id of the machine's boot; 0: not known */
    uint64_t pid;        /* 0: not known */
    /* One moment on its own clock (unix ns) and the kernel's since boot (ns); 0: not
     * known. */
    uint64_t anchor_time;
    uint64_t anchor_boot;
    /* In a merged recording, offset was subtracted from all its times, which then agree
     * within bound (ns, ML_NOTE_UNKNOWN: unknown). */
    int64_t offset;
    uint64_t bound;
    uint32_t common_steps; /* of ML_ALIGNMENT_STEPS: ends that were compared */
    uint8_t alignment;     /* enum ml_alignment */
    uint8_t state;         /* enum ml_rank_state */
    uint8_t pad[2];
    size_t first_device; /* of the merged recording */
    size_t device_count;
    /* The rank alone, as a recording with all tables of the whole; owned.  NULL if the
     * recording is not merged. */
    struct ml_recording *part;
} ml_rank;

/* Limits of one recording: devices, and ranks (some without devices); and of a run:
 * ranks. */
#define ML_RECORDING_DEVICES_MAX 4096
#define ML_WORLD_MAX (1 << 20)

/* Values of a snapshot that may be missing or unreadable: a name, its key, its owner,
 * and whether all snapshots have it (2), all of one or none (1), or any (0). */
#define ML_UNREADS(XX) \
    XX(SEGMENTS, "segments", NONE, 0) \
    XX(DEVICE_TRACES, "device_traces", NONE, 0) \
    XX(ALLOCATOR_SETTINGS, "allocator_settings", NONE, 0) \
    XX(EXTERNAL_ANNOTATIONS, "external_annotations", NONE, 0) \
    /* The host's pinned memory: recordings are of devices. */ \
    XX(HOST_SEGMENTS, "host_segments", NONE, 0) \
    XX(HOST_TRACES, "host_traces", NONE, 0) \
    XX(SEGMENT, "segment", NONE, 0) \
    XX(SEGMENT_DEVICE, "segment.device", SEGMENT, 1) \
    XX(SEGMENT_ADDRESS, "segment.address", SEGMENT, 2) \
    XX(SEGMENT_TOTAL_SIZE, "segment.total_size", SEGMENT, 2) \
    XX(SEGMENT_ALLOCATED_SIZE, "segment.allocated_size", SEGMENT, 1) \
    XX(SEGMENT_ACTIVE_SIZE, "segment.active_size", SEGMENT, 1) \
    XX(SEGMENT_REQUESTED_SIZE, "segment.requested_size", SEGMENT, 1) \
    XX(SEGMENT_STREAM, "segment.stream", SEGMENT, 1) \
    XX(SEGMENT_TYPE, "segment.segment_type", SEGMENT, 1) \
    XX(SEGMENT_POOL, "segment.segment_pool_id", SEGMENT, 1) \
    XX(SEGMENT_EXPANDABLE, "segment.is_expandable", SEGMENT, 1) \
    XX(SEGMENT_BLOCKS, "segment.blocks", SEGMENT, 1) \
    XX(SEGMENT_FRAMES, "segment.frames", NONE, 0) \
    XX(BLOCK, "block", NONE, 0) \
    XX(BLOCK_ADDRESS, "block.address", BLOCK, 1) \
    XX(BLOCK_SIZE, "block.size", BLOCK, 2) \
    XX(BLOCK_REQUESTED_SIZE, "block.requested_size", BLOCK, 1) \
    XX(BLOCK_STATE, "block.state", BLOCK, 2) \
    XX(BLOCK_HISTORY, "block.history", NONE, 0) \
    XX(BLOCK_FRAMES, "block.frames", NONE, 0) \
    XX(TRACE, "trace", NONE, 0) \
    XX(EVENT, "event", NONE, 0) \
    XX(EVENT_ACTION, "event.action", EVENT, 2) \
    XX(EVENT_ADDR, "event.addr", EVENT, 2) \
    XX(EVENT_SIZE, "event.size", EVENT, 2) \
    XX(EVENT_STREAM, "event.stream", EVENT, 1) \
    XX(EVENT_TIME, "event.time_us", EVENT, 1) \
    XX(EVENT_COMPILE_CONTEXT, "event.compile_context", EVENT, 1) \
    XX(EVENT_USER_METADATA, "event.user_metadata", EVENT, 1) \
    XX(EVENT_INTERNAL_METADATA, "event.internal_metadata", NONE, 0) \
    XX(EVENT_POOL_ID, "event.pool_id", EVENT, 1) \
    XX(EVENT_FRAMES, "event.frames", NONE, 0) \
    XX(EVENT_FORWARD_FRAMES, "event.forward_frames", NONE, 0) \
    XX(FRAME, "frame", NONE, 0) \
    XX(FRAME_NAME, "frame.name", FRAME, 2) \
    XX(FRAME_FILENAME, "frame.filename", FRAME, 2) \
    XX(FRAME_LINE, "frame.line", FRAME, 2) \
    XX(SETTING, "setting", NONE, 0) \
    XX(ANNOTATION, "annotation", NONE, 0) \
    XX(ANNOTATION_STAGE, "annotation.stage", ANNOTATION, 2) \
    XX(ANNOTATION_NAME, "annotation.name", ANNOTATION, 2) \
    XX(ANNOTATION_DEVICE, "annotation.device", ANNOTATION, 2) \
    XX(ANNOTATION_TIME, "annotation.time_us", ANNOTATION, 2) \
    /* Below the key "memlab". */ \
    XX(MEMLAB, "memlab", NONE, 0) \
    XX(MEMLAB_SOURCE, "memlab.source", NONE, 0) \
    XX(MEMLAB_DEVICE, "memlab.device", NONE, 0) \
    XX(MEMLAB_TAG, "memlab.tag", NONE, 0) \
    XX(MEMLAB_USE, "memlab.use", NONE, 0) \
    XX(MEMLAB_EVENT, "memlab.event", NONE, 0) \
    XX(MEMLAB_MODULE, "memlab.module", NONE, 0) \
    XX(MEMLAB_NOTE, "memlab.note", NONE, 0) \
    XX(MEMLAB_RANK, "memlab.rank", NONE, 0) \
    XX(MEMLAB_CODE, "memlab.code", NONE, 0) \
    /* Keys, kinds and categories there that this memlab does not know. */ \
    XX(MEMLAB_NEWER, "memlab.newer", NONE, 0)

enum ml_unread {
#define XX(name, text, owner, everywhere) ML_UNREAD_##name,
    ML_UNREADS(XX)
#undef XX
    ML_UNREAD_COUNT,
    ML_UNREAD_NONE = ML_UNREAD_COUNT
};

/* Larger sizes and counts are invalid.  torch's schema has none, so a recording with
 * one could not be saved and read again. */
#define ML_SIZE_MOST ((uint64_t)INT64_MAX)

/* Bits of ml_recording.known: the snapshot's optional keys. */
#define ML_KEY_COMPILE_CONTEXT 0x01u
#define ML_KEY_USER_METADATA 0x02u
#define ML_KEY_POOL_ID 0x04u
#define ML_KEY_EXTERNAL_ANNOTATIONS 0x08u
#define ML_KEY_ALLOCATOR_SETTINGS 0x10u
#define ML_KEY_HOST 0x20u
#define ML_KEY_INTERNAL_METADATA 0x40u /* of the events that have one */

/* An object made from a recording and kept with it, and how it is freed. */
typedef struct ml_attached {
    void (*free)(struct ml_attached *attached);
} ml_attached;

typedef struct ml_recording {
    ml_string *strings;
    size_t string_count;
    ml_frame *frames;
    size_t frame_count;
    ml_stack *stacks;
    size_t stack_count;
    ml_device_trace *devices;
    size_t device_count;
    ml_setting *settings;
    size_t setting_count;
    ml_annotation *annotations;
    size_t annotation_count;
    ml_note *notes; /* oldest first */
    size_t note_count;
    uint64_t lost_notes; /* older notes, overwritten */
    ml_code_line
        *code_lines; /* of the whole; the first for a file, function and line counts */
    size_t code_line_count;
    /* Of a snapshot: values that could not be read; they are unknown here. */
    uint64_t unread[ML_UNREAD_COUNT];
    /* The merged processes, by rank, with their devices in the same order.  Notes are
     * in the parts, because threads, steps and phases belong to one process. */
    ml_rank *ranks;
    size_t rank_count;
    ml_allocator_rules rules;
    uint32_t keys;        /* ML_KEY_* */
    uint8_t foreign;      /* read from a file that memlab did not write */
    uint8_t source_known; /* 1: source has the events' origin */
    char source[13];      /* "cuda", "cpu", "script" */
    void *arena;          /* owned: string bytes */
    /* Owned; analysis/analysis.h's.  The only field that changes, from NULL, once the
     * recording is shared. */
    _Atomic(ml_attached *) attached;
} ml_recording;

static inline ml_string
ml_frame_file(const ml_recording *recording, uint32_t frame)
{
    return recording->strings[recording->frames[frame].filename];
}

static inline ml_string
ml_frame_name(const ml_recording *recording, uint32_t frame)
{
    return recording->strings[recording->frames[frame].name];
}

/* Those of a stack's innermost frame. */
static inline ml_string
ml_stack_file(const ml_recording *recording, uint32_t stack)
{
    return ml_frame_file(recording, recording->stacks[stack].frame);
}

static inline ml_string
ml_stack_name(const ml_recording *recording, uint32_t stack)
{
    return ml_frame_name(recording, recording->stacks[stack].frame);
}

/* Whether two frames, by id, are of functions of one name and file. */
bool ml_frame_same_function(const ml_recording *recording, uint32_t a, uint32_t b);

/* A recording with only index 0 of strings, frames and stacks. */
int ml_recording_new(ml_recording **out);
/* Takes NULL and half-built recordings. */
void ml_recording_free(ml_recording *recording);

/* While building: add to a column, growing it; ids are written on success only.
 * String bytes are copied, with '?' for each that is not UTF-8.  These do not
 * deduplicate: keep an ml_intern for that. */
int ml_recording_add_string(ml_recording *recording, const char *bytes, size_t length,
                            uint32_t *id);
int ml_recording_add_frame(ml_recording *recording, ml_frame frame, uint32_t *id);
int ml_recording_add_stack(ml_recording *recording, ml_stack stack, uint32_t *id);
int ml_recording_add_code_line(ml_recording *recording, ml_code_line line);
/* The same, unless the recording has a line of that file, function and number: the
 * first counts.  INDEX has all lines of RECORDING, added by this function. */
int ml_recording_add_first_code_line(ml_recording *recording, struct ml_intern *index,
                                     ml_code_line line);

/* The trace of DEVICE, made with all before it; NULL without memory. */
ml_device_trace *ml_recording_add_device(ml_recording *recording, size_t device);

/* Removes all ranks and their parts. */
void ml_recording_drop_ranks(ml_recording *recording);
/* Removes the attached objects, before an unshared recording is changed. */
void ml_recording_detach(ml_recording *recording);

/* Whether RECORDING was merged of ranks. */
bool ml_recording_is_merged(const ml_recording *recording);
/* Gives every rank of a merged RECORDING its part: its tables, source and devices;
 * the part's notes, settings and rules stay.  Parts exist, and nothing is added
 * after this. */
void ml_recording_seal(ml_recording *recording);
/* The recording whose analyses are right for device *DEVICE, which exists, and its
 * index there: RECORDING itself, or the part of the rank. */
const ml_recording *ml_recording_part(const ml_recording *recording, size_t *device);

/* The number of events of TRACE, sorted by time, up to and including TIME (unix ns). */
size_t ml_device_trace_until(const ml_device_trace *trace, uint64_t time);

/* The number of events of TRACE before an operator last used the block of event INDEX,
 * a FREE_REQUESTED: at most INDEX, never too early.  UINT64_MAX: unknown, or not after
 * the allocation. */
uint64_t ml_device_trace_last_use(const ml_device_trace *trace, size_t index);
/* The same for the block at ADDR, which is live at the end. */
uint64_t ml_device_trace_last_use_live(const ml_device_trace *trace, uint64_t addr);

/* What to call RANK: "process" if it is known to be of no group, else "rank". */
const char *ml_rank_word(const ml_rank *rank);

/* Writes the label of DEVICE to OUT of BYTES, cut if too long: cuda:0, or in a merged
 * recording rank 1 (cuda:1), or process 1 (cuda:1) if it is of no group, with the host if
 * there are several. */
void ml_recording_device_name(const ml_recording *recording, size_t device, char *out,
                              size_t bytes);

/* Packs the plain events of all devices.  0; or ML_ENOMEM, and some stay plain. */
int ml_recording_pack(ml_recording *recording);

/* Checks every index and order promised above; 0 or ML_EFORMAT.  All readers of a
 * recording rely on them. */
int ml_recording_validate(const ml_recording *recording);

const char *ml_action_text(unsigned action);       /* "other" for an unknown one */
const char *ml_category_text(unsigned category);   /* "unknown" for an unknown one */
const char *ml_note_text(unsigned kind);           /* "" for an unknown one */
const char *ml_unread_text(unsigned kind);         /* "" for an unknown one */
const char *ml_rank_state_text(unsigned state);    /* "" for an unknown one */
const char *ml_alignment_text(unsigned alignment); /* "" for an unknown one */

#endif
