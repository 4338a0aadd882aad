/* The chunks of a journal's file: mapped at slots while lanes fill them, complete, and
 * dropped.  See journal_parts.h.
 *
 * All is the journal's thread's own, but for the states of slots. */
#include <string.h>

#include "file/journal/journal_trim_parts.h"

/* ---- Complete ones, of a file whose first part is dropped ---- */

unsigned
trim_lane_of(const ml_journal *journal, const ml_chunk *chunk)
{
    switch (chunk->kind) {
    case ML_MLAB_CONTROL:
        return ML_MLAB_LANES;
    case ML_MLAB_START_DEFINITIONS:
        return ML_JOURNAL_START_DEFINITIONS;
    case ML_MLAB_START_CONTROL:
        return ML_JOURNAL_START_CONTROL;
    default:
        return journal->source->ordered ? chunk->device : chunk->lane;
    }
}

/* The chunk at SLOT is complete, and is about to be unmapped. */
static void
hand_to_trimmer(ml_journal *journal, unsigned slot)
{
    ml_trimmer *trimmer = journal->trimmer;
    if (trimmer == NULL) {
        return;
    }
    const ml_chunk *header = ml_mapping_at(&journal->file.chunks, slot);
    trim_chunk chunk = {
        .offset = journal->offsets[slot],
        .index = header->index,
        .first = header->first,
        .steps = atomic_load(&journal->steps),
        .lane = trim_lane_of(journal, header),
    };
    size_t at = trimmer->chunk_count;
    if (ml_grow((void **)&trimmer->chunks, &trimmer->chunk_capacity, at + 1,
                sizeof(chunk)) < 0) {
        trimmer->over = true;
        return;
    }
    /* Slots are not in the order in which a lane filled them. */
    trim_chunk *chunks = trimmer->chunks;
    size_t reach = at > ML_JOURNAL_SLOTS ? at - ML_JOURNAL_SLOTS : 0;
    for (size_t i = at; i-- > reach;) {
        if (chunks[i].lane == chunk.lane && chunks[i].index > chunk.index &&
            (chunk.lane <= ML_MLAB_LANES || chunks[i].first == chunk.first)) {
            at = i;
        }
    }
    memmove(chunks + at + 1, chunks + at,
            (trimmer->chunk_count - at) * sizeof(*chunks));
    chunks[at] = chunk;
    trimmer->chunk_count++;
}

/* The offset of a chunk of the file that no longer counts, for a new one; UINT64_MAX:
 * there is none. */
static uint64_t
place(ml_journal *journal)
{
    ml_trimmer *trimmer = journal->trimmer;
    if (trimmer == NULL || trimmer->free_count == 0) {
        return UINT64_MAX;
    }
    return trimmer->free[--trimmer->free_count];
}

bool
trim_counts(const ml_trimmer *trimmer, const trim_chunk *chunk)
{
    return chunk->lane <= ML_MLAB_LANES
               ? chunk->index >= trimmer->lanes[chunk->lane].chunk
               : chunk->first == trimmer->trims;
}

size_t
trim_drop_chunks(ml_trimmer *trimmer)
{
    size_t count = 0;
    for (size_t i = 0; i < trimmer->chunk_count; i++) {
        trim_chunk chunk = trimmer->chunks[i];
        if (trim_counts(trimmer, &chunk)) {
            trimmer->chunks[count++] = chunk;
        }
        else if (ml_grow((void **)&trimmer->free, &trimmer->free_capacity,
                         trimmer->free_count + 1, sizeof(*trimmer->free)) == 0) {
            trimmer->free[trimmer->free_count++] = chunk.offset;
        }
    }
    size_t dropped = trimmer->chunk_count - count;
    trimmer->chunk_count = count;
    return dropped;
}

/* ---- Mapped ones ---- */

static void
reap(ml_journal *journal)
{
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS; i++) {
        if (atomic_load_explicit(&journal->slots[i], memory_order_acquire) ==
            ML_SLOT_FULL) {
            hand_to_trimmer(journal, i);
            ml_mapping_unmap(&journal->file.chunks, i);
            atomic_store(&journal->slots[i], ML_SLOT_EMPTY);
        }
    }
}

/* The last eighth of a file that drops its first part is for its new start: events that fill
 * the file faster than its thread can drop them would leave no room for it. */
static bool
is_kept_for_start(const ml_journal *journal)
{
    const ml_trimmer *trimmer = journal->trimmer;
    if (trimmer == NULL || trimmer->over || trimmer->makes_room) {
        return false;
    }
    uint64_t free = trimmer->free_count * journal->file.chunks.chunk_bytes;
    uint64_t used = journal->file.bytes - free;
    return used > journal->file.limit - journal->file.limit / 8;
}

int
ml_journal_refill(ml_journal *journal, unsigned wanted)
{
    reap(journal);
    unsigned ready = 0;
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS; i++) {
        ready += atomic_load(&journal->slots[i]) == ML_SLOT_READY;
    }
    uint64_t first = journal->mapped;
    for (unsigned n = 0; n < ML_JOURNAL_SLOTS - 1 && ready < wanted; n++) {
        unsigned i = ml_journal_slot_at(first + n);
        if (atomic_load(&journal->slots[i]) != ML_SLOT_EMPTY) {
            continue;
        }
        if (is_kept_for_start(journal)) {
            return ML_ELIMIT;
        }
        uint64_t offset = place(journal);
        int result = ml_journal_file_map(&journal->file, i, &offset);
        if (result < 0) {
            return result;
        }
        journal->offsets[i] = offset;
        journal->mapped++;
        atomic_store_explicit(&journal->slots[i], ML_SLOT_READY, memory_order_release);
        ready++;
    }
    return 0;
}
