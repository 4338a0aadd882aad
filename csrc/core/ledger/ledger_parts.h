/* Internals of a ledger, shared by ledger.c (events), ledger_expect.c (those to come),
 * ledger_seed.c (the state before the first) and ledger_image.c (copies). */
#ifndef ML_LEDGER_PARTS_H
#define ML_LEDGER_PARTS_H

#include <stdatomic.h>

#include "ledger/ledger.h"

typedef struct ml_shared_totals {
#define XX(name) _Atomic uint64_t name;
    ML_TOTALS(XX)
#undef XX
} ml_shared_totals;

struct ml_ledger {
    ml_blocks blocks; /* owned; holds the current totals */
    ml_allocator_rules rules;
    bool plain; /* rounds up to whole minimal blocks, no divisions set */
    ml_totals peak;
    uint64_t events;
    uint64_t inconsistencies;
    uint64_t full;
    uint32_t seed_rest; /* free block with the unseeded rest of a segment */
    uint32_t requested; /* the block whose free was requested last */
    /* Whether a block in use started where the last event did, before it; its birth. */
    bool named;
    uint64_t named_birth;
    bool unsure; /* some segment's pool may be wrong */

    /* Data for other threads.  The one writer writes them between two increments of
     * `sequence`; any thread sets `reset`, and the writer clears it. */
    _Atomic uint32_t sequence;
    _Atomic bool reset;
    ml_shared_totals shared_current;
    ml_shared_totals shared_peak;
};

/* INDEX: the block that starts at the event's address; 0: none. */
static inline void
ml_ledger_name(ml_ledger *ledger, uint32_t index)
{
    const ml_block_node *node = &ledger->blocks.nodes[index];
    ledger->named = index != 0 && node->state != ML_BLOCK_INACTIVE;
    ledger->named_birth = node->birth;
}

static inline void
ml_ledger_publish_peaks(ml_ledger *ledger)
{
#define XX(name) \
    atomic_store_explicit(&ledger->shared_peak.name, ledger->peak.name, \
                          memory_order_relaxed);
    ML_TOTALS(XX)
#undef XX
}

/* PEAKS: peaks changed too. */
static inline void
ml_ledger_publish(ml_ledger *ledger, bool peaks, bool reset_taken)
{
    const ml_totals *current = &ledger->blocks.totals;
    uint32_t sequence = atomic_load_explicit(&ledger->sequence, memory_order_relaxed);
    atomic_store_explicit(&ledger->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
#define XX(name) \
    atomic_store_explicit(&ledger->shared_current.name, current->name, \
                          memory_order_relaxed);
    ML_TOTALS(XX)
#undef XX
    if (peaks) {
        ml_ledger_publish_peaks(ledger);
    }
    if (reset_taken) {
        atomic_store_explicit(&ledger->reset, false, memory_order_relaxed);
    }
    atomic_store_explicit(&ledger->sequence, sequence + 2, memory_order_release);
}

/* Whether a peak rose. */
static inline bool
ml_ledger_raise_peaks(ml_ledger *ledger)
{
    bool raised = false;
    const ml_totals *current = &ledger->blocks.totals;
#define XX(name) \
    if (ledger->peak.name < current->name) { \
        ledger->peak.name = current->name; \
        raised = true; \
    }
    ML_TOTALS(XX)
#undef XX
    return raised;
}

#endif
