/* A lane of a journal: records in consecutive chunks of a mapped file.
 *
 * Everything but ml_journal_begin_lane is on the hot path and obeys the rule of the
 * allocator's callback: no lock, memory, GIL or I/O. */
#include "file/journal/journal_parts.h"

/* Takes a ready chunk for the caller; 0: none. */
static unsigned
take_slot(ml_journal *journal)
{
    if (atomic_load_explicit(&journal->stopped, memory_order_relaxed)) {
        return 0;
    }
    /* In the order of mapping, while one lane takes them. */
    uint64_t first = atomic_load_explicit(&journal->taken, memory_order_relaxed);
    for (unsigned n = 0; n < ML_JOURNAL_SLOTS - 1; n++) {
        unsigned i = ml_journal_slot_at(first + n);
        _Atomic int *slot = &journal->slots[i];
        int wanted = ML_SLOT_READY;
        if (atomic_load_explicit(slot, memory_order_relaxed) == ML_SLOT_READY &&
            atomic_compare_exchange_strong_explicit(slot, &wanted, ML_SLOT_TAKEN,
                                                    memory_order_acquire,
                                                    memory_order_relaxed)) {
            atomic_fetch_add_explicit(&journal->taken, 1, memory_order_relaxed);
            return i;
        }
    }
    return 0;
}

bool
ml_journal_turn(ml_journal *journal, ml_journal_lane *lane)
{
    unsigned slot = take_slot(journal);
    if (slot == 0) {
        return false;
    }
    unsigned number = (unsigned)(lane - journal->lanes);
    static const uint8_t kinds[] = {ML_MLAB_CONTROL, ML_MLAB_START_DEFINITIONS,
                                    ML_MLAB_START_CONTROL};
    bool events = number < ML_MLAB_LANES;
    bool of_device = journal->source->ordered && events;
    ml_chunk like = {
        .kind = events ? ML_MLAB_EVENTS : kinds[number - ML_MLAB_LANES],
        .flags = ML_CHUNK_CHECKED,
        .bytes = journal->file.chunks.chunk_bytes,
        .device = (uint16_t)(of_device ? number : 0),
        .lane = (uint16_t)(of_device || !events ? 0 : number),
        .index = lane->chunks++,
        .first = atomic_load_explicit(&lane->events, memory_order_relaxed),
        .dropped = lane->pending,
    };
    ml_chunk_begin(&lane->writer, ml_mapping_at(&journal->file.chunks, slot), &like);
    if (lane->slot != 0) {
        atomic_store_explicit(&journal->slots[lane->slot], ML_SLOT_FULL,
                              memory_order_release);
    }
    lane->slot = slot;
    lane->stated = false;
    lane->pending = 0;
    return true;
}

bool
ml_journal_append(ml_journal *journal, ml_journal_lane *lane, unsigned kind,
                  const void *bytes, uint32_t length)
{
    return ml_chunk_append(&lane->writer, kind, bytes, length) == 0 ||
           (ml_journal_turn(journal, lane) &&
            ml_chunk_append(&lane->writer, kind, bytes, length) == 0);
}

void
ml_journal_begin_lane(ml_journal *journal, unsigned lane)
{
    bool wanted = !journal->source->ordered || journal->device < 0 ||
                  journal->device == (int)lane;
    if (atomic_load(&journal->lanes[lane].begun)) {
        ml_marks_reset(&journal->lanes[lane].marks);
    }
    atomic_store(&journal->lanes[lane].start,
                 atomic_load(&journal->lanes[lane].events));
    atomic_store(&journal->lanes[lane].begun, wanted);
}
