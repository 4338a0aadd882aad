/* Internals of a journal, shared by these files:
 *
 * journal_lane.c (chunks), journal_define.c (definitions), journal.c (events),
 * journal_slots.c (the file's chunks), journal_thread.c (ready chunks), journal_control.c
 * (the control lane), journal_trim.c (the first part is dropped) and journal_open.c
 * (opening and closing). */
#ifndef ML_JOURNAL_PARTS_H
#define ML_JOURNAL_PARTS_H

#include "base/system/region.h"
#include "file/codec/chunk.h"
#include "file/codec/mlab_format.h"
#include "file/journal/journal.h"
#include "file/journal/journal_file.h"
#include "file/journal/journal_marks.h"
#include "file/journal/journal_trim.h"
#include "stacks/stacks_records.h"

/* Measured: smaller chunks cost more system calls, larger ones more unused disk. */
#define ML_JOURNAL_CHUNK_BYTES (UINT32_C(1) << 16)
/* The least number of ready chunks, 1 MiB: a training process records that much in a
 * burst while the thread sleeps. */
#define ML_JOURNAL_READY_LEAST 16u
/* Longest text in one record. */
#define ML_JOURNAL_TEXT_BYTES 2048u
/* The least limit of a file whose first part is dropped, 16 MiB: beside the events it
 * holds two starts for a while. */
#define ML_JOURNAL_TRIM_LEAST (256u * ML_JOURNAL_CHUNK_BYTES)
/* Lanes of the thread, beside those of the file: they write a start when the first part
 * of the file is dropped. */
#define ML_JOURNAL_START_DEFINITIONS (ML_MLAB_LANES + 1)
#define ML_JOURNAL_START_CONTROL (ML_MLAB_LANES + 2)
#define ML_JOURNAL_LANES (ML_MLAB_LANES + 3)
/* The longest total wait of a start for a disk without progress. */
#define ML_JOURNAL_PATIENCE_NS INT64_C(2000000000)

/* Life of a slot: the thread maps a chunk there, a lane takes it, fills it and leaves it,
 * the thread unmaps it. */
enum ml_journal_slot {
    ML_SLOT_EMPTY,
    ML_SLOT_READY,
    ML_SLOT_TAKEN,
    ML_SLOT_FULL
};

/* The lane's holder writes it; for events that is the holder of the device's lock. */
typedef struct ml_journal_lane {
    _Alignas(64) ml_chunk_writer writer;
    _Atomic bool begun;
    unsigned slot; /* slot of the writer's chunk; 0: none yet */
    bool stated;   /* the chunk has the base of its next event */
    _Atomic uint64_t events;
    _Atomic uint64_t start; /* of these, before the lane's last start */
    uint64_t pending;       /* dropped since the last one stored */
    uint64_t dropped;
    uint64_t chunks; /* begun */
    /* Bits: ids defined in this lane; in the journal's region. */
    _Atomic uint64_t *nodes;
    _Atomic uint64_t *codes;
    _Atomic uint64_t *strings;
    _Atomic uint64_t *objects;
    ml_journal_marks marks;
} ml_journal_lane;

struct ml_journal {
    ml_journal_file file;
    ml_mlab_header *header; /* in the file */
    const ml_source *source;
    const ml_stacks *stacks;
    ml_journal_port *port; /* borrowed; while attached */
    int device;            /* -1: all */
    void (*warn)(const char *text);
    char *path; /* owned */
    bool forked;
    ml_region defined; /* owned */
    ml_region marks;   /* owned; of sources whose lanes are devices */
    uint32_t *named;   /* by object: hash of the name in the file; port->control */
    size_t
        origin_frames; /* of the stacks' origins, in the file or dropped; by whoever */
    size_t origin_lines; /* the single writer's count */
    ml_journal_lane lanes[ML_JOURNAL_LANES];
    /* Guarded by port->control. */
    uint64_t clock_ticks;   /* of the last anchor */
    _Atomic uint64_t steps; /* notes of steps */
    _Atomic bool started;   /* every start that the file gets is complete */
    ml_trimmer *trimmer;    /* owned; the thread's; NULL: the first part stays */

    _Atomic int slots[ML_JOURNAL_SLOTS]; /* enum ml_journal_slot */
    uint64_t offsets[ML_JOURNAL_SLOTS];  /* in the file; the thread's, like the next */
    uint64_t mapped;                     /* chunks, ever */
    _Atomic uint64_t taken;              /* chunks, ever */
    _Atomic bool stopped;                /* nothing more is stored */

    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows; taken after port->control */
    pthread_cond_t wake;
    pthread_cond_t refilled;
    int64_t waited_ns; /* by the start, for room */
    bool opened;       /* or opening failed */
    bool closing;
    int error; /* of opening: ML_E*, with errnum */
    int errnum;
};

/* Slots are reused cyclically; the first is the header's. */
static inline unsigned
ml_journal_slot_at(uint64_t number)
{
    return 1 + (unsigned)(number % (ML_JOURNAL_SLOTS - 1));
}

/* Hot path.  Gives LANE a new chunk; false if none is ready. */
bool ml_journal_turn(ml_journal *journal, ml_journal_lane *lane);
/* Hot path.  Writes a record of LENGTH bytes; false without room. */
bool ml_journal_append(ml_journal *journal, ml_journal_lane *lane, unsigned kind,
                       const void *bytes, uint32_t length);

int ml_journal_define_init(ml_journal *journal);
/* Hot path.  Defines in LANE everything that EVENT refers to; false without room. */
bool ml_journal_define(ml_journal *journal, ml_journal_lane *lane,
                       const ml_event *event);

/* Defines in LANE everything that lanes of events have defined; ROOM makes room.  False
 * without. */
bool ml_journal_define_again(ml_journal *journal, ml_journal_lane *lane,
                             bool (*room)(ml_journal *journal));

/* The thread's own.  Unmaps full chunks, and maps chunks until WANTED are ready.  0, or
 * ML_E* with errno. */
int ml_journal_refill(ml_journal *journal, unsigned wanted);

/* Whether the bit of ID is set, or ID is 0. */
static inline bool
ml_journal_has(const _Atomic uint64_t *bits, uint32_t id)
{
    return id == 0 ||
           (atomic_load_explicit(&bits[id / 64], memory_order_relaxed) >> (id % 64) &
            1) != 0;
}

/* Hot path.  Whether LANE has already what most events refer to, and EVENT no more. */
static inline bool
ml_journal_defined(const ml_journal *journal, const ml_journal_lane *lane,
                   const ml_event *event)
{
    const ml_stacks *stacks = journal->stacks;
#define XX(member) | event->member
    const uint32_t texts = event->other ML_EVENT_TEXTS(XX);
#undef XX
    return texts == 0 && event->stack < stacks->nodes.limit &&
           event->origin_stack < stacks->nodes.limit &&
           event->node < stacks->strings.limit &&
           ml_journal_has(lane->nodes, event->stack) &&
           ml_journal_has(lane->nodes, event->origin_stack) &&
           ml_journal_has(lane->strings, event->node);
}

/* Starts the thread, which opens the file's parts, sets opened, and signals refilled.
 * 0 or ML_ENOMEM. */
int ml_journal_thread_start(ml_journal *journal);
/* Ends it and waits for its end. */
void ml_journal_thread_stop(ml_journal *journal);
/* Waits for one round of the thread.  False if waiting is of no use: nothing more is
 * stored, or this journal's start has waited ML_JOURNAL_PATIENCE_NS in all. */
bool ml_journal_await_room(ml_journal *journal);

/* Writes the clock's anchors at the start, before any other thread uses the control
 * lane. */
void ml_journal_control_begin(ml_journal *journal);

#endif
