/* The journals of a source, and the events written to them.  See journal.h.
 *
 * Everything reachable from ml_journal_port_record obeys the rule of the allocator's
 * callback: no lock, memory, GIL or I/O. */
#include "file/journal/journal.h"

#include <sched.h>

#include "file/journal/journal_parts.h"

/* ---- Events ---- */

static bool
put(ml_journal_lane *lane, const ml_packed_event *packed)
{
    if (!lane->stated) {
        lane->stated = ml_chunk_push_state(&lane->writer, &packed->before) == 0;
    }
    return lane->stated && ml_chunk_push_packed(&lane->writer, packed) == 0;
}

static bool
store(ml_journal *journal, ml_journal_lane *lane, const ml_event *event,
      const ml_packed_event *packed)
{
    if (atomic_load_explicit(&journal->stopped, memory_order_relaxed)) {
        return false;
    }
    /* Only a new chunk can mark a gap. */
    if (lane->pending > 0 && !ml_journal_turn(journal, lane)) {
        return false;
    }
    if (!ml_journal_define(journal, lane, event)) {
        return false;
    }
    return put(lane, packed) || (ml_journal_turn(journal, lane) && put(lane, packed));
}

static void
record(ml_journal *journal, unsigned number, const ml_event *event,
       const ml_packed_event *packed)
{
    ml_journal_lane *lane = &journal->lanes[number];
    ml_mlab_lane *shown = &journal->header->lanes[number];
    if (!atomic_load_explicit(&lane->begun, memory_order_relaxed)) {
        return;
    }
    if (!store(journal, lane, event, packed)) {
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
                       const ml_packed_event *packed)
{
    /* Either the detaching thread sees this, or the loads below see the detachment. */
    atomic_exchange(&port->writing[lane], 1);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        ml_journal *journal = atomic_load(&port->journals[i]);
        if (journal != NULL) {
            record(journal, lane, event, packed);
        }
    }
    atomic_store_explicit(&port->writing[lane], 0, memory_order_release);
}

/* ---- Ports ---- */

int
ml_journal_attach(ml_journal_port *port, ml_journal *journal)
{
    int result = ML_EFULL;
    pthread_mutex_lock(&port->control);
    for (int i = 0; i < ML_PORT_JOURNALS && result < 0; i++) {
        if (atomic_load(&port->journals[i]) == NULL) {
            journal->port = port;
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
    pthread_mutex_unlock(&port->control);
    journal->port = NULL;
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
    atomic_store(&port->count, 0);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        atomic_store(&port->journals[i], NULL);
    }
    for (int i = 0; i < ML_PORT_LANES; i++) {
        atomic_store(&port->writing[i], 0);
    }
}
