/* The recorder: the one place of a process where sources deliver memory events and
 * recordings begin and end.
 *
 * Owns the lanes and ledgers of each source's devices, the stack table, and the
 * windows.  A window is one recording under way.  It is only a starting place on the
 * shared lanes, so windows do not disturb each other.  The recorder does not know
 * Python or torch: a walker gives it the stacks.
 *
 * A process has one recorder, because torch's allocator trackers belong to the process
 * and can never be detached.  All functions but ml_recorder_record, ml_recorder_used,
 * ml_recorder_note, ml_window_begun and ml_window_tag take the recorder's lock: callers
 * release the GIL.  Only ml_recorder_record may be called within the callback. */
#ifndef ML_RECORDER_H
#define ML_RECORDER_H

#include <stdbool.h>

#include "ledger/meter.h"
#include "memlab.h"
#include "recording/process.h"
#include "recording/recording.h"
#include "stacks/stacks.h"
#include "stacks/wanted.h"

/* Sources of a process. */
#define ML_SOURCE_MAX 8

typedef struct ml_window ml_window;

typedef struct ml_window_options {
    uint64_t max_entries; /* newest events kept for each device */
    /* Bits 1 << enum ml_action: events that do not count in max_entries. */
    uint32_t skipped;
    enum ml_context context;
    bool native;      /* C++ frames too: takes locks and memory in the callback */
    bool keep_events; /* false: only the state of live memory ("state") */
    /* Last uses of blocks, in one step of so many (use_turns.h); 0: none.  Costs a part of
     * every operator. */
    unsigned uses;
    bool meter; /* the devices' meters follow the events: ml_recorder_meter */
    int device; /* -1: all */
    /* The .mlab file that also gets the whole recording; NULL: none. */
    const char *file;    /* borrowed for the call */
    uint64_t file_bytes; /* its size limit; UINT64_MAX: none */
    uint64_t kept_steps; /* as in ml_journal_options */
    uint32_t keys;       /* ML_KEY_* of the running torch, for the file */
    /* reports one sentence to people; from any thread */
    void (*warn)(const char *text);
    ml_process_place place; /* for the file */
} ml_window_options;

/* Counters of one device since the process began, over all recordings.  A recording's
 * trace has its own. */
typedef struct ml_recorder_stats {
    uint64_t events;
    uint64_t dropped_events;
    uint64_t lost_stacks;
    uint64_t lost_names;      /* of all devices; see ml_stacks_lost_names */
    uint64_t inconsistencies; /* events that contradicted the ledger */
    uint64_t lane_events;     /* in memory now */
    uint64_t lane_bytes;      /* memory that holds the events */
    ml_totals current;
    /* since the first of the current recordings began; if no lock orders the source,
     * since the process began */
    ml_totals peak;
} ml_recorder_stats;

/* Captures the calling thread's stack into STACKS and returns its id, 0 for none.  Sets
 * ML_EVENT_* bits in *FLAGS.  Runs inside the allocator's callback. */
typedef uint32_t (*ml_stack_walker)(void *stacks, uint8_t *flags);
/* Adds native frames on top of stack PARENT. */
typedef uint32_t (*ml_native_walker)(void *stacks, uint32_t parent, uint8_t *flags);

/* The string id of the traceback in ANOMALY, as ml_event_forward; 0: it has none.  Runs
 * inside the allocator's callback. */
typedef uint32_t (*ml_forward_reader)(void *stacks, const void *anomaly);

/* Once, before anything else; idempotent.  0 or ML_ENOMEM. */
int ml_recorder_init(ml_stack_walker walker);
/* Frees all that the recorder has; sources are registered anew afterwards.  For tests:
 * no recording is under way, and no other thread uses the recorder or a source. */
void ml_recorder_fini(void);
/* Before the first source. */
void ml_recorder_set_forward(ml_forward_reader reader);
void ml_recorder_set_native(ml_native_walker walker, const ml_symbolizer *symbolizer);
/* As ml_api.torchscript_begun in memlab.h. */
void ml_recorder_torchscript_begun(ml_torchscript_frames frames);

int ml_recorder_add_source(ml_source *source);
/* NULL if no source of that name is registered. */
const ml_source *ml_recorder_source(const char *name);

/* Begins a recording of SOURCE.  If the source has no devices yet (CUDA is not
 * initialised), the recording waits for ml_recorder_ready.  0 or ML_E*, with the reason
 * in ml_recorder_error(). */
int ml_window_start(const ml_source *source, const ml_window_options *options,
                    ml_window **out);
/* The source's devices exist now: waiting recordings begin. */
int ml_recorder_ready(const ml_source *source);
/* Changes what is captured from here on; recorded events stay. */
int ml_window_configure(ml_window *window, const ml_window_options *options);
/* Forgets the events, counts and peak so far, and continues. */
void ml_window_clear(ml_window *window);
/* Whether the recording has begun (its source has devices). */
bool ml_window_begun(const ml_window *window);
/* An owner of memory.  Strings are ids of the recorder's stack table; 0: none. */
typedef struct ml_owner {
    enum ml_category category;
    uint32_t module; /* string: path of its module */
    uint32_t name;   /* string: its name there */
} ml_owner;

/* The block that holds ADDR belongs to OWNER now.  Tags whose events are overwritten
 * are dropped in time. */
int ml_window_tag(ml_window *window, int device, uint64_t addr, const ml_owner *owner);
/* An immutable recording of the events so far; the window continues.  KEYS and
 * EVENT_FRAMES as in ml_recording.  Not from the allocator's callback. */
int ml_window_freeze(ml_window *window, uint32_t keys, ml_recording **out);
/* Writes the process's PLACE, new or changed, to WINDOW's file. */
void ml_window_place(ml_window *window, ml_process_place place);
/* For ml_window_tell_code: a recording with the Python frames that WINDOW's file names
 * so far, and nothing else.  NULL without a file, and in a forked child.  0 or
 * ML_ENOMEM. */
int ml_window_file_frames(const ml_window *window, ml_recording **out);
/* Writes the code lines of RECORDING to WINDOW's file.  Waits for room. */
void ml_window_tell_code(ml_window *window, const ml_recording *recording);
/* Ends and frees; accepts NULL. */
void ml_window_stop(ml_window *window);

/* Adds NOTE to every recording of SOURCE that is under way or waits; SOURCE NULL: of
 * all sources.  Fills in time, thread, name (from NAME of LENGTH bytes, cut at
 * ML_NOTE_NAME_MAX) and the number of a step.  Any thread, with or without the GIL.
 * Without a recording it does nothing.  It never fails: overwritten notes are
 * counted. */
void ml_recorder_note(const ml_source *source, const ml_note *note, const char *name,
                      size_t length);
/* The note of an OOM; see ml_api. */
void ml_recorder_note_oom(const ml_source *source, int device, uint64_t asked,
                          uint64_t free, uint64_t total, uint64_t allowed);
/* As ml_api.region in memlab.h. */
void ml_recorder_region(int end, uint64_t number, const char *name, size_t length);
/* Names the object ID in the stacks of all recordings; see ml_stacks_name_object. */
void ml_recorder_name_object(uint32_t id, const char *name, size_t length);
/* A line of a generated file, and the trace of the code behind it; borrowed. */
typedef struct ml_made_line {
    int64_t line;
    ml_slice trace; /* in Python's form, outermost frame first; empty: none */
} ml_made_line;
/* Gives the COUNT LINES, ascending, of the file PATH: see origins.h.  A file's earlier
 * lines stay.  0 or ML_E*. */
int ml_recorder_add_origins(ml_slice path, const ml_made_line *lines, size_t count);
/* Whether a recording would keep a note. */
bool ml_recorder_noting(void);

/* The meter of DEVICE of SOURCE.  It moves while a window with `meter` has begun, and
 * is never freed.  NULL without such a device or without memory.  Takes no lock. */
ml_meter *ml_recorder_meter(const ml_source *source, int device);

/* The calling thread's number in its events. */
uint32_t ml_recorder_thread(void);

/* 0, or ML_EINVALID for a device without events so far. */
int ml_recorder_stats_of(const ml_source *source, int device, ml_recorder_stats *out);

/* The hot path; see ml_api in memlab.h. */
uint32_t ml_recorder_record(const ml_source *source, int device, ml_event *event,
                            const ml_event_text *text);
int ml_recorder_enabled(const ml_source *source);
/* As ml_api.used and ml_api.use_unseen in memlab.h. */
void ml_recorder_used(const ml_source *source, const ml_use_mark *marks, size_t count);
void ml_recorder_use_unseen(const ml_source *source);

/* A sentence about the last failure on this thread; valid until the next. */
const char *ml_recorder_error(void);

#endif
