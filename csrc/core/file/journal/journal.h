/* A journal: a recording written to a .mlab file while it is made.
 *
 * Owns the chunks into which the events of one source go, each lane its own, and what
 * explains them: the definitions of stacks and strings before their first use in a lane,
 * and in a control lane the memory at the start, settings, owners, notes and the clock.
 * What was written is in the file when the call returns: a killed process loses nothing.
 * It must not know windows or Python.
 *
 * ml_journal_port_record is the hot path: it writes to memory alone.  One native thread
 * for each file, alive only while that is recorded, keeps mapped chunks ready; where it
 * lags behind, events are dropped, counted, and the gap is marked at its place. */
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

/* The journals that a source's events go to.  Lives for ever; all zeros but for the lock
 * is one without journals. */
typedef struct ml_journal_port {
    /* Of journals; 0 spares the callback their part. */
    _Atomic int count;
    _Atomic(ml_journal *) journals[ML_PORT_JOURNALS]; /* borrowed */
    /* A lane's writer is in a journal: who takes one away waits for that. */
    _Atomic int writing[ML_PORT_LANES];
    /* Guards the control lanes, and journals against being taken away from under who
     * writes there.  Held for moments, taken after every other lock. */
    pthread_mutex_t control;
} ml_journal_port;

typedef struct ml_journal_options {
    const char *path;
    uint64_t limit_bytes; /* of the file; UINT64_MAX: none */
    int device;           /* -1: all */
    uint32_t keys;        /* ML_KEY_* of the running torch */
    bool uses;            /* when blocks were last used is wanted */
    ml_wanted wanted;     /* of the stacks of its events, which may have more */
    ml_process_place place;
    /* Says one sentence to people, from the journal's thread; NULL: nobody. */
    void (*warn)(const char *text);
} ml_journal_options;

/* Makes the file and starts the thread.  STACKS is what ids refer to.  What lies at the
 * path already stays there until the journal is kept.  0 or ML_E*, with a sentence in
 * PROBLEM. */
int ml_journal_open(ml_journal **out, const ml_source *source, const ml_stacks *stacks,
                    const ml_journal_options *options, char *problem,
                    size_t problem_bytes);
/* The file takes its place at the path: the start has succeeded.  0 or ML_E*, with a
 * sentence in PROBLEM. */
int ml_journal_keep(ml_journal *journal, char *problem, size_t problem_bytes);
/* The process has PLACE, which was not known before or was another. */
void ml_journal_place(ml_journal *journal, ml_process_place place);
/* Ends the file, which nothing may write to any more: ml_journal_detach first.  One that
 * was not kept is removed.  NULL is nothing. */
void ml_journal_close(ml_journal *journal);
/* In a forked child: the file is the parent's.  What remains is to close.  NULL is
 * nothing. */
void ml_journal_forked(ml_journal *journal);

/* JOURNAL receives the events of PORT from here on, once their lane is begun.  ML_EFULL
 * where there are too many. */
int ml_journal_attach(ml_journal_port *port, ml_journal *journal);
void ml_journal_detach(ml_journal_port *port, ml_journal *journal);
/* In a forked child, before any other thread: PORT has no journals, for what they wrote
 * to is not mapped there. */
void ml_journal_port_forked(ml_journal_port *port);

/* LANE is stored from here on, and what it had before counts no more.  Nobody writes to
 * the lane meanwhile: its device's lock is held, or the journal is not attached yet. */
void ml_journal_begin_lane(ml_journal *journal, unsigned lane);
/* JOURNAL is attached.  The memory of DEVICE at the instant at which its lane was begun:
 * RULES, then segments each followed by its blocks.  They wait for room, on
 * a disk that takes nothing some seconds in all; a start for which there is none is one
 * that _started does not end. */
void ml_journal_start(ml_journal *journal, int device, const ml_allocator_rules *rules);
void ml_journal_start_segment(ml_journal *journal, int device,
                              const ml_segment *segment);
void ml_journal_start_block(ml_journal *journal, int device, const ml_block *block);
void ml_journal_started(ml_journal *journal, int device);
void ml_journal_setting(ml_journal *journal, const char *key, char kind,
                        int64_t integer, double real, const char *text,
                        const uint64_t *divisions);

/* Hot path.  Whether PORT has journals. */
static inline bool
ml_journal_port_open(const ml_journal_port *port)
{
    return atomic_load_explicit(&port->count, memory_order_relaxed) != 0;
}

/* Hot path.  EVENT, complete, came on LANE, and PACKED is its record.  Since a lane was
 * begun, every record that its packer made comes here. */
void ml_journal_port_record(ml_journal_port *port, unsigned lane, const ml_event *event,
                            const ml_packed_event *packed);

/* The following from any thread but within the callback.  What finds no room is counted.
 *
 * To JOURNAL, where it is attached to PORT.  TAG's position is not used: the place is now.
 * Of its names only whether they are lost: MODULE and NAME are given. */
void ml_journal_tag(ml_journal_port *port, ml_journal *journal, int device,
                    const ml_tag *tag, ml_slice module, ml_slice name);
/* The recording ends, and JOURNAL is attached: the last use of a live block at ADDR came after
 * so many EVENTS of DEVICE since its lane was begun.  Waits for room, as a start does. */
void ml_journal_use(ml_journal *journal, int device, uint64_t addr, uint64_t events);
/* What a line of code says, of the strings of RECORDING; nothing where JOURNAL is not
 * attached to PORT.  Waits for room, as a start does. */
void ml_journal_code_line(ml_journal_port *port, ml_journal *journal,
                          const ml_recording *recording, const ml_code_line *line);
/* Adds to RECORDING the Python frames that JOURNAL's file names so far; whoever calls keeps the
 * stacks' origins as they are meanwhile.  0 or ML_ENOMEM. */
int ml_journal_frames(const ml_journal *journal, ml_recording *recording);
/* To all journals of PORT. */
void ml_journal_port_note(ml_journal_port *port, const ml_note *note, const char *name,
                          size_t length);
/* What the stacks' origins have that the journals of PORT do not; whoever calls keeps both
 * as they are meanwhile.  Waits for room, as a start does. */
void ml_journal_port_origins(ml_journal_port *port);
/* OBJECT, an id of the stacks, is the module called NAME. */
void ml_journal_port_name(ml_journal_port *port, uint32_t object, const char *name,
                          size_t length);

#endif
