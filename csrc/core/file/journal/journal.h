/* A journal: it writes a recording to a .mlab file while the program runs.
 *
 * Owns the chunks for the events of one source, separate for each lane.  A lane also
 * has the definitions of stacks and strings, before their first use.  A control lane
 * has the memory at the start, settings, owners, notes and the clock.  Written bytes
 * are in the file when the call returns: a killed process loses nothing.
 *
 * ml_journal_port_record is the hot path: it writes to memory alone.  One native thread
 * for each file keeps mapped chunks ready; it lives only while the file is recorded.
 * If it lags behind, events are dropped and counted, and the gap is marked at its
 * place. */
#ifndef ML_JOURNAL_H
#define ML_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "file/codec/pack.h"
#include "memlab.h"
#include "recording/process.h"
#include "recording/recording.h"
#include "stacks/stacks.h"
#include "stacks/wanted.h"

/* Of one source, at once. */
#define ML_PORT_JOURNALS 4
/* Lanes of a source, as in the file. */
#define ML_PORT_LANES 64

typedef struct ml_journal ml_journal;

/* The journals of a source.  Never freed; all zeros but for the lock: no journals. */
typedef struct ml_journal_port {
    /* Number of journals; with 0 the callback skips them. */
    _Atomic int count;
    _Atomic(ml_journal *) journals[ML_PORT_JOURNALS]; /* borrowed */
    _Atomic int reach; /* no journal was ever at this place or behind it */
    /* Who detaches a journal makes the lanes' writers' barriers, too. */
    _Atomic bool barred;
    /* A lane's writer is in a journal: detaching a journal waits for it. */
    _Atomic int writing[ML_PORT_LANES];
    /* Guards the control lanes, and keeps a journal attached while a thread writes
     * there.  Held for moments, taken after every other lock. */
    pthread_mutex_t control;
} ml_journal_port;

typedef struct ml_journal_options {
    const char *path;
    uint64_t limit_bytes; /* of the file; UINT64_MAX: none */
    /* 0: the first part of the file stays.  Else it is dropped at three quarters of the
     * limit, and where the file has more than so many of the newest steps. */
    uint64_t kept_steps;
    int device;       /* -1: all */
    uint32_t keys;    /* ML_KEY_* of the running torch */
    unsigned uses;    /* as in ml_window_options */
    ml_wanted wanted; /* of the stacks of its events, which may have more */
    ml_process_place place;
    /* Reports one sentence to people, from the journal's thread; NULL: nobody. */
    void (*warn)(const char *text);
} ml_journal_options;

/* Makes the file and starts the thread.  Ids are those of STACKS.  A file that is
 * already at the path stays there until the journal is kept.  0 or ML_E*, with a
 * sentence in PROBLEM. */
int ml_journal_open(ml_journal **out, const ml_source *source, const ml_stacks *stacks,
                    const ml_journal_options *options, char *problem,
                    size_t problem_bytes);
/* The start has succeeded: moves the file to its path.  0 or ML_E*, with a sentence in
 * PROBLEM. */
int ml_journal_keep(ml_journal *journal, char *problem, size_t problem_bytes);
/* Sets the process's PLACE, new or changed. */
void ml_journal_place(ml_journal *journal, ml_process_place place);
/* Ends the file.  Nothing may write to it any more: call ml_journal_detach first.  A
 * file that was not kept is removed.  Accepts NULL. */
void ml_journal_close(ml_journal *journal);
/* In a forked child: the file is the parent's.  Only ml_journal_close may follow.
 * Accepts NULL. */
void ml_journal_forked(ml_journal *journal);

/* From here on JOURNAL receives the events of each begun lane of PORT.  ML_EFULL if
 * PORT has too many journals. */
int ml_journal_attach(ml_journal_port *port, ml_journal *journal);
void ml_journal_detach(ml_journal_port *port, ml_journal *journal);
/* In a forked child, before any other thread: PORT has no journals, since their files
 * are not mapped there. */
void ml_journal_port_forked(ml_journal_port *port);

/* Stores LANE from here on; its earlier content no longer counts.  Nothing writes to
 * the lane meanwhile: its device's lock is held, or the journal is not attached yet. */
void ml_journal_begin_lane(ml_journal *journal, unsigned lane);
/* JOURNAL is attached.  Writes the memory of DEVICE at the instant at which its lane
 * was begun: RULES, then segments, each followed by its blocks.  The calls wait for
 * room; if the disk takes nothing, some seconds in all.  If there is no room, the start
 * is left open (no `started` record). */
void ml_journal_start(ml_journal *journal, int device, const ml_allocator_rules *rules);
void ml_journal_start_segment(ml_journal *journal, int device,
                              const ml_segment *segment);
void ml_journal_start_block(ml_journal *journal, int device, const ml_block *block);
void ml_journal_started(ml_journal *journal, int device);
/* Every start that JOURNAL gets is written: its first part may be dropped from now on. */
void ml_journal_began(ml_journal *journal);
void ml_journal_setting(ml_journal *journal, const char *key, char kind,
                        int64_t integer, double real, const char *text,
                        const uint64_t *divisions);

/* Hot path.  Whether PORT has journals. */
static inline bool
ml_journal_port_open(const ml_journal_port *port)
{
    return atomic_load_explicit(&port->count, memory_order_relaxed) != 0;
}

/* The journals that are about to get an event. */
typedef struct ml_journal_turns {
    ml_journal *journals[ML_PORT_JOURNALS]; /* borrowed */
    bool ready[ML_PORT_JOURNALS];           /* it has room for the event's record */
    unsigned count;
} ml_journal_turns;

/* Hot path.  EVENT, complete, comes on LANE; its record will be relative to BASE.  Once a
 * lane is begun, every event of its packer comes here, and then, packed, below. */
void ml_journal_port_begin(ml_journal_port *port, unsigned lane, const ml_event *event,
                           const ml_pack *base, ml_journal_turns *turns);
void ml_journal_port_record(ml_journal_port *port, unsigned lane, const ml_event *event,
                            const ml_packed_event *packed,
                            const ml_journal_turns *turns);

/* The following may be called from any thread, but not within the callback.  Records
 * without room are counted.
 *
 * Writes TAG to JOURNAL, if attached to PORT.  TAG's position is not used: the place is
 * now. */
void ml_journal_tag(ml_journal_port *port, ml_journal *journal, int device,
                    const ml_tag *tag);
/* The recording ends, with JOURNAL attached: the live block at ADDR was last used after
 * EVENTS of DEVICE since its lane was begun.  Waits for room, as a start does. */
void ml_journal_use(ml_journal *journal, int device, uint64_t addr, uint64_t events);
/* Writes LINE, whose strings are RECORDING's; does nothing if JOURNAL is not attached
 * to PORT.  Waits for room, as a start does. */
void ml_journal_code_line(ml_journal_port *port, ml_journal *journal,
                          const ml_recording *recording, const ml_code_line *line);
/* Adds to RECORDING the Python frames that JOURNAL's file names so far.  The stacks'
 * origins must not change meanwhile.  0 or ML_ENOMEM. */
int ml_journal_frames(const ml_journal *journal, ml_recording *recording);
/* To all journals of PORT. */
void ml_journal_port_note(ml_journal_port *port, const ml_note *note, const char *name,
                          size_t length);
/* Writes those of the stacks' origins that the journals of PORT lack.  Neither may
 * change meanwhile.  Waits for room, as a start does. */
void ml_journal_port_origins(ml_journal_port *port);
/* OBJECT, an id of the stacks, is the module called NAME. */
void ml_journal_port_name(ml_journal_port *port, uint32_t object, const char *name,
                          size_t length);

#endif
