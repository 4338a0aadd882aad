/* A feed: the events of one source, from the callback to the lanes.
 *
 * For each device of the source it owns the lane with the newest events and the ledger
 * of the blocks.  It does not know recordings: its fields say whether to record and
 * what to capture. ml_feed_record is the hot path: it runs inside the allocator's
 * callback and touches plain memory only. */
#ifndef ML_FEED_H
#define ML_FEED_H

#include <stdatomic.h>

#include "file/journal/journal.h"
#include "ledger/ledger.h"
#include "ledger/meter.h"
#include "ledger/uses.h"
#include "memlab.h"
#include "record/lane.h"
#include "record/recorder.h"
#include "record/use_turns.h"
#include "stacks/stacks.h"

/* Recordings under way at once. */
#define ML_WINDOW_MAX 16
/* Lanes of an unordered source: so many threads can record at once. */
#define ML_FEED_LANES 64
/* Events kept while a ledger's start is being read. */
#define ML_FEED_PENDING (UINT32_C(1) << 16)

/* What to capture; bits of ml_feed.capture. */
#define ML_CAPTURE_ALLOC 1u
#define ML_CAPTURE_FREE 2u
#define ML_CAPTURE_NATIVE 4u

enum ml_log_state {
    ML_LOG_OFF,       /* events are not wanted */
    ML_LOG_BUFFERING, /* events wait in `pending` while the ledger's start is read */
    ML_LOG_SEEDED,    /* the start is known; the next writer records pending events */
    ML_LOG_LIVE       /* the ledger is at the lane's end */
};

/* String ids of the names of autograd nodes, by address.  The names are static, so each
 * is hashed once. */
#define ML_NODE_NAMES 64u
typedef struct ml_node_names {
    struct {
        const char *name;
        uint32_t id;
    } slots[ML_NODE_NAMES];
} ml_node_names;

/* One device of an ordered source.  The holder of the source's device lock writes all
 * plain fields: the callback, or memlab's own thread inside a walk. */
typedef struct ml_device_log {
    ml_lane lane;
    ml_ledger *ledger; /* owned; NULL until the device is first recorded */
    bool counting;     /* the ledger keeps torch's own counts, for the meter */
    /* the last event requested the free of this address; 0: it did not */
    uint64_t freeing;
    _Atomic int state; /* enum ml_log_state */
    /* Events not yet in the lane, which holds only finished ones. */
    ml_region pending_region;         /* owned */
    _Atomic uint32_t pending;         /* of them */
    _Atomic(ml_meter *) meter;        /* owned; NULL until a window wants it */
    _Atomic(ml_uses *) uses;          /* owned; NULL until a window wants it */
    _Atomic unsigned peaks_forgotten; /* bit i: window_peak[i] must restart */
    ml_totals window_peak[ML_WINDOW_MAX];
    _Atomic uint64_t dropped;
    _Atomic uint64_t lost_stacks;
    _Atomic uint64_t inconsistencies;
    ml_node_names names;
} ml_device_log;

/* One lane of an unordered source; except for the lane, its claimant's. */
typedef struct ml_thread_log {
    _Alignas(64) ml_lane lane;
    ml_node_names names;
} ml_thread_log;

struct ml_feed {
    const ml_source *source; /* borrowed, never freed */
    ml_stacks *stacks;       /* borrowed from the recorder */
    ml_stack_walker walker;
    ml_forward_reader forward;
    _Atomic(ml_native_walker) native_walker;
    _Atomic(ml_torchscript_frames) torchscript; /* NULL: no such program has run */
    _Atomic int enabled;
    _Atomic unsigned capture;  /* ML_CAPTURE_* */
    _Atomic unsigned windows;  /* bit i: window_peak[i] is in use */
    _Atomic bool metering;     /* the meters follow the events */
    _Atomic bool using;        /* the last uses of blocks are kept; ordered sources */
    ml_use_turns use_turns;    /* the steps in which they are followed */
    ml_device_log *logs;       /* owned; ML_DEVICE_MAX of an ordered source */
    ml_thread_log *threads;    /* owned; ML_FEED_LANES of an unordered source */
    _Atomic(ml_meter *) meter; /* of an unordered source; owned; NULL until wanted */
    _Atomic uint64_t dropped;  /* of an unordered source, or for a missing device */
    _Atomic uint64_t lost_stacks;
    ml_journal_port port; /* the files that also get its events */
    bool forked;          /* in a forked child of a recording process: stays off */
};

/* A walk over a source's memory by memlab itself.  The source's SNAPSHOT event arrives
 * on this thread with the device's lock held: the one moment at which lane and ledger
 * can be read or set as a whole. */
typedef struct ml_feed_walk {
    ml_feed *feed;
    void (*arrive)(struct ml_feed_walk *walk, int device);
    bool silent; /* the SNAPSHOT event itself is not recorded */
} ml_feed_walk;

/* Frees what FEED owns.  No thread may be in it. */
void ml_feed_fini(ml_feed *feed);

/* Sets the walk of the calling thread; NULL ends it. */
void ml_feed_set_walk(ml_feed_walk *walk);

/* The small number of the calling thread in its events and notes, from 1. */
uint32_t ml_feed_thread_number(void);

/* As ml_api.record in memlab.h. */
uint32_t ml_feed_record(ml_feed *feed, int device, ml_event *event,
                        const ml_event_text *text);

/* Records the events that were pending when the ledger was seeded, and restarts
 * forgotten peaks.  The lock of the source's device is held, or nothing writes. */
void ml_feed_catch_up(ml_feed *feed, ml_device_log *log);

/* As ml_api.used and ml_api.use_unseen in memlab.h. */
void ml_feed_used(ml_feed *feed, const ml_use_mark *marks, size_t count);
void ml_feed_use_unseen(ml_feed *feed);

/* Events of all lanes of an unordered source. */
uint64_t ml_feed_thread_events(const ml_feed *feed);

#endif
