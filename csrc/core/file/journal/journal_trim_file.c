/* What a trim reads from the file, and writes to it.  See journal_trim.h. */
#include <stdlib.h>

#include "file/journal/journal_trim_parts.h"

/* ---- Reading ---- */

static int
compare_chunks(const void *a, const void *b)
{
    const trim_chunk *x = a;
    const trim_chunk *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* The chunks of LANE that count, in order, those that are not complete, too: *COUNT of
 * them, for ml_free.  NULL: no memory. */
static trim_chunk *
chunks_of(const ml_journal *journal, unsigned lane, size_t *count)
{
    const ml_trimmer *trimmer = journal->trimmer;
    trim_chunk *chunks =
        ml_alloc_zeroed(trimmer->chunk_count + ML_JOURNAL_SLOTS, sizeof(*chunks));
    *count = 0;
    for (size_t i = 0; chunks != NULL && i < trimmer->chunk_count; i++) {
        if (trimmer->chunks[i].lane == lane &&
            trim_counts(trimmer, &trimmer->chunks[i])) {
            chunks[(*count)++] = trimmer->chunks[i];
        }
    }
    for (unsigned i = 1; chunks != NULL && i < ML_JOURNAL_SLOTS; i++) {
        int slot = atomic_load(&journal->slots[i]);
        const ml_chunk *header = ml_mapping_at(&journal->file.chunks, i);
        /* Once something is committed, the header is whole. */
        if ((slot == ML_SLOT_TAKEN || slot == ML_SLOT_FULL) &&
            atomic_load(&header->commit) != 0 &&
            trim_lane_of(journal, header) == lane) {
            chunks[(*count)++] = (trim_chunk){.offset = journal->offsets[i],
                                              .index = header->index,
                                              .first = header->first,
                                              .lane = lane};
        }
    }
    if (chunks != NULL && *count > 0) {
        qsort(chunks, *count, sizeof(*chunks), compare_chunks);
    }
    return chunks;
}

static int
visit_chunks(ml_journal *journal, unsigned lane,
             int (*visit)(ml_journal *journal, const ml_packed_other *record,
                          uint64_t number, uint64_t chunk))
{
    ml_trim *trim = journal->trimmer->trim;
    uint64_t from = journal->trimmer->lanes[ML_MLAB_LANES].events;
    bool numbered = lane == ML_MLAB_LANES;
    size_t count;
    trim_chunk *chunks = chunks_of(journal, lane, &count);
    int result = chunks != NULL ? 0 : ML_ENOMEM;
    for (size_t i = 0; i < count && result == 0; i++) {
        ml_chunk_reader reader;
        ml_chunk header;
        ml_event event;
        ml_packed_other record;
        result = ml_journal_file_read(&journal->file, chunks[i].offset, trim->buffer,
                                      &reader, &header);
        /* The callback goes on meanwhile. */
        ml_journal_refill(journal, ML_JOURNAL_READY_LEAST);
        uint64_t number = numbered ? chunks[i].first : ML_TRIM_OF_START;
        while (result == 0 && ml_chunk_next(&reader, &event, &record) > 0) {
            if (!numbered || number >= from) {
                result = visit(journal, &record, number, chunks[i].index);
            }
            number += numbered;
        }
    }
    ml_free(chunks);
    return result;
}

int
trim_visit(ml_journal *journal,
           int (*visit)(ml_journal *journal, const ml_packed_other *record,
                        uint64_t number, uint64_t chunk))
{
    int result = journal->trimmer->trims != 0
                     ? visit_chunks(journal, ML_JOURNAL_START_CONTROL, visit)
                     : 0;
    return result == 0 ? visit_chunks(journal, ML_MLAB_LANES, visit) : result;
}

/* ---- Writing ---- */

bool
trim_make_room(ml_journal *journal)
{
    journal->trimmer->makes_room = true;
    int result = ml_journal_refill(journal, ML_JOURNAL_READY_LEAST);
    journal->trimmer->makes_room = false;
    bool ready = false;
    for (unsigned i = 1; i < ML_JOURNAL_SLOTS && !ready; i++) {
        ready = atomic_load(&journal->slots[i]) == ML_SLOT_READY;
    }
    return ready && !atomic_load(&journal->stopped) &&
           (result == 0 || result == ML_ELIMIT);
}

void
trim_put(ml_journal *journal, unsigned kind, const void *bytes, size_t length)
{
    ml_trim *trim = journal->trimmer->trim;
    ml_journal_lane *lane = &journal->lanes[ML_JOURNAL_START_CONTROL];
    while (!trim->full &&
           !ml_journal_append(journal, lane, kind, bytes, (uint32_t)length)) {
        trim->full = !trim_make_room(journal);
    }
}
