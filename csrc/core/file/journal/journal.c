/* The journals of a source, and the events written to them.  See journal.h.
 *
 * Everything reachable from ml_journal_port_begin and _record obeys the rule of the allocator's
 * callback: no lock, memory, GIL or I/O. */
#include "file/journal/journal.h"

#include <sched.h>

#include "base/system/barrier.h"
#include "file/journal/journal_parts.h"

/* ---- Events ---- */

/* Room in LANE for any event's record after its base. */
static bool
room_for_event(ml_journal *journal, ml_journal_lane *lane, const ml_pack *base)
{
    if (lane->stated && ml_chunk_takes_event(&lane->writer)) {
        return true;
    }
    if (!ml_chunk_takes_event(&lane->writer) && !ml_journal_turn(journal, lane)) {
        return false;
    }
    lane->stated = ml_chunk_push_state(&lane->writer, base) == 0;
    if (!ml_chunk_takes_event(&lane->writer)) {
        return ml_journal_turn(journal, lane) && room_for_event(journal, lane, base);
    }
    return lane->stated;
}

static ML_RARE bool
prepare_anew(ml_journal *journal, ml_journal_lane *lane, const ml_event *event,
             const ml_pack *base)
{
    /* Only a new chunk can mark a gap. */
    return (lane->pending == 0 || ml_journal_turn(journal, lane)) &&
           ml_journal_define(journal, lane, event) &&
           room_for_event(journal, lane, base);
}

static inline bool
prepare(ml_journal *journal, ml_journal_lane *lane, const ml_event *event,
        const ml_pack *base)
{
    if (atomic_load_explicit(&journal->stopped, memory_order_relaxed)) {
        return false;
    }
    return (lane->stated && lane->pending == 0 && ml_chunk_takes_event(&lane->writer) &&
            ml_journal_defined(journal, lane, event)) ||
           prepare_anew(journal, lane, event, base);
}

void
ml_journal_port_begin(ml_journal_port *port, unsigned lane, const ml_event *event,
                      const ml_pack *base, ml_journal_turns *turns)
{
    /* Either the detaching thread sees this, or the loads below see the detachment.  An
     * exchange waits for all earlier stores, whose cache lines may be far away. */
    if (atomic_load_explicit(&port->barred, memory_order_relaxed)) {
        atomic_store_explicit(&port->writing[lane], 1, memory_order_relaxed);
        ml_barrier_here();
    }
    else {
        atomic_exchange(&port->writing[lane], 1);
    }
    turns->count = 0;
    int reach = atomic_load_explicit(&port->reach, memory_order_relaxed);
    for (int i = 0; i < reach; i++) {
        ml_journal *journal = atomic_load(&port->journals[i]);
        if (journal != NULL &&
            atomic_load_explicit(&journal->lanes[lane].begun, memory_order_relaxed)) {
            turns->ready[turns->count] =
                prepare(journal, &journal->lanes[lane], event, base);
            turns->journals[turns->count++] = journal;
        }
    }
}

static inline void
record(ml_journal *journal, unsigned number, const ml_event *event,
       const ml_packed_event *packed, bool ready)
{
    ml_journal_lane *lane = &journal->lanes[number];
    ml_mlab_lane *shown = &journal->header->lanes[number];
    if (!ready || ml_chunk_push_packed(&lane->writer, packed) != 0) {
        lane->pending++;
        lane->dropped++;
        atomic_store_explicit(&shown->dropped, lane->dropped, memory_order_relaxed);
    }
    uint64_t events = atomic_load_explicit(&lane->events, memory_order_relaxed) + 1;
    atomic_store_explicit(&lane->events, events, memory_order_relaxed);
    atomic_store_explicit(&shown->events, events, memory_order_relaxed);
    ml_marks_event(&lane->marks, event);
}

void
ml_journal_port_record(ml_journal_port *port, unsigned lane, const ml_event *event,
                       const ml_packed_event *packed, const ml_journal_turns *turns)
{
    for (unsigned i = 0; i < turns->count; i++) {
        record(turns->journals[i], lane, event, packed, turns->ready[i]);
    }
    atomic_store_explicit(&port->writing[lane], 0, memory_order_release);
}

/* ---- Ports ---- */

int
ml_journal_attach(ml_journal_port *port, ml_journal *journal)
{
    int result = ML_EFULL;
    pthread_mutex_lock(&port->control);
    if (!atomic_load(&port->barred)) {
        atomic_store(&port->barred, ml_barrier_prepare());
    }
    for (int i = 0; i < ML_PORT_JOURNALS && result < 0; i++) {
        if (atomic_load(&port->journals[i]) == NULL) {
            journal->port = port;
            if (atomic_load(&port->reach) <= i) {
                atomic_store(&port->reach, i + 1);
            }
            atomic_store(&port->journals[i], journal);
            atomic_fetch_add(&port->count, 1);
            result = 0;
        }
    }
    pthread_mutex_unlock(&port->control);
    return result;
}

void
ml_journal_detach(ml_journal_port *port, ml_journal *journal)
{
    if (journal->port == NULL) {
        return;
    }
    pthread_mutex_lock(&port->control);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        if (atomic_load(&port->journals[i]) == journal) {
            atomic_store(&port->journals[i], NULL);
            atomic_fetch_sub(&port->count, 1);
        }
    }
    bool barred = atomic_load(&port->barred);
    pthread_mutex_unlock(&port->control);
    journal->port = NULL;
    if (barred && !journal->forked) {
        ml_barrier_in_all();
    }
    /* A forked child has no other writers, whatever they were doing. */
    for (int i = 0; i < ML_PORT_LANES && !journal->forked; i++) {
        while (atomic_load(&port->writing[i]) != 0) {
            sched_yield();
        }
    }
}

void
ml_journal_port_forked(ml_journal_port *port)
{
    pthread_mutex_init(&port->control, NULL);
    atomic_store(&port->barred, false);
    atomic_store(&port->count, 0);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        atomic_store(&port->journals[i], NULL);
    }
    for (int i = 0; i < ML_PORT_LANES; i++) {
        atomic_store(&port->writing[i], 0);
    }
}
