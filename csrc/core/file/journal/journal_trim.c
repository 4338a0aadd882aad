/* Drops the first part of a journal's file: when, and which chunks.  See journal_trim.h.
 *
 * All is the journal's thread's own.  A trim is done in rounds, so that chunks are ready
 * for the callback meanwhile. */
#include <string.h>

#include "file/journal/journal_trim_parts.h"

/* Chunks followed in a round: some milliseconds. */
#define CHUNKS_A_ROUND 8u
/* The fewest chunks that a trim by steps drops. */
#define CHUNKS_LEAST 16u

ml_trimmer *
ml_trimmer_new(uint64_t kept_steps)
{
    ml_trimmer *trimmer = ml_alloc_zeroed(1, sizeof(*trimmer));
    if (trimmer != NULL) {
        trimmer->kept_steps = kept_steps;
    }
    return trimmer;
}

static void
trim_free(ml_trim *trim)
{
    if (trim == NULL) {
        return;
    }
    for (unsigned i = 0; i < ML_DEVICE_MAX; i++) {
        ml_ledger_free(trim->devices[i].ledger);
        ml_free(trim->devices[i].gaps);
        ml_free(trim->devices[i].marks);
    }
    ml_buffer_fini(&trim->records);
    ml_free(trim->buffer);
    ml_free(trim);
}

void
ml_trimmer_free(ml_trimmer *trimmer)
{
    if (trimmer != NULL) {
        trim_free(trimmer->trim);
        ml_free(trimmer->chunks);
        ml_free(trimmer->free);
        ml_free(trimmer);
    }
}

/* ---- When ---- */

/* Chunks, from the first on, without which the newest steps are whole. */
static size_t
before_kept_steps(const ml_journal *journal)
{
    const ml_trimmer *trimmer = journal->trimmer;
    uint64_t steps = atomic_load(&journal->steps);
    size_t count = 0;
    if (steps <= trimmer->kept_steps) {
        return 0;
    }
    ML_SEARCH(count, trimmer->chunk_count,
              trimmer->chunks[count].steps + trimmer->kept_steps < steps);
    return count;
}

/* Chunks, from the first on, that may be dropped now; 0: it is not time. */
static size_t
due(const ml_journal *journal)
{
    const ml_trimmer *trimmer = journal->trimmer;
    uint64_t bytes = journal->file.chunks.chunk_bytes;
    uint64_t used = journal->file.bytes - trimmer->free_count * bytes;
    uint64_t quarter = journal->file.limit / 4;
    size_t old = before_kept_steps(journal);
    if (old >= CHUNKS_LEAST && old >= trimmer->chunk_count / 3) {
        return old;
    }
    size_t most = quarter / bytes;
    return used > 3 * quarter && most < trimmer->chunk_count ? most : 0;
}

/* ---- A trim ---- */

static int
take_start(ml_journal *journal, const ml_packed_other *record, uint64_t number,
           uint64_t chunk)
{
    (void)number;
    (void)chunk;
    return trim_take_start(journal->trimmer->trim, record);
}

/* The memory of every device is that at the file's start. */
static int
begin_trim(ml_journal *journal, size_t end)
{
    ml_trimmer *trimmer = journal->trimmer;
    ml_trim *trim = ml_alloc_zeroed(1, sizeof(*trim));
    trimmer->trim = trim;
    if (trim == NULL) {
        return ML_ENOMEM;
    }
    trim->end = end;
    trim->dropped = trimmer->dropped;
    memcpy(trim->lanes, trimmer->lanes, sizeof(trim->lanes));
    trim->buffer = ml_alloc(journal->file.chunks.chunk_bytes);
    int result = trim->buffer != NULL ? trim_visit(journal, take_start) : ML_ENOMEM;
    for (unsigned i = 0; i < ML_DEVICE_MAX; i++) {
        if (trim->devices[i].ledger != NULL) {
            ml_ledger_reset_peaks(trim->devices[i].ledger);
        }
    }
    return result;
}

static int
follow_chunks(ml_journal *journal)
{
    ml_trimmer *trimmer = journal->trimmer;
    ml_trim *trim = trimmer->trim;
    int result = 0;
    for (unsigned n = 0; trim->next < trim->end && n < CHUNKS_A_ROUND && result == 0;
         trim->next++) {
        const trim_chunk *chunk = &trimmer->chunks[trim->next];
        ml_chunk_reader reader;
        ml_chunk header;
        if (chunk->lane >= ML_MLAB_LANES) {
            continue;
        }
        if (chunk->index != trim->lanes[chunk->lane].chunk) {
            return ML_ESTATE;
        }
        result = ml_journal_file_read(&journal->file, chunk->offset, trim->buffer,
                                      &reader, &header);
        if (result == 0) {
            result = trim_follow(trim, chunk->lane, &reader, &header);
        }
        n++;
    }
    return result;
}

static void
put_lanes(ml_journal *journal)
{
    ml_trim *trim = journal->trimmer->trim;
    for (unsigned i = 0; i <= ML_MLAB_LANES; i++) {
        ml_mlab_trim_lane *lane = &trim->lanes[i];
        lane->lane = i;
        if (i < ML_DEVICE_MAX && trim->devices[i].ledger != NULL) {
            ml_totals peak = ml_ledger_get_totals(trim->devices[i].ledger).peak;
            uint64_t now[4] = {peak.allocated, peak.active, peak.requested,
                               peak.reserved};
            for (unsigned k = 0; k < 4; k++) {
                lane->peaks[k] = now[k] > lane->peaks[k] ? now[k] : lane->peaks[k];
            }
        }
        if (i == ML_MLAB_LANES || atomic_load(&journal->lanes[i].begun)) {
            trim_put(journal, ML_MLAB_TRIM_LANE, lane, sizeof(*lane));
        }
    }
}

static void
begin_start_lane(ml_journal *journal, unsigned number)
{
    ml_journal_lane *lane = &journal->lanes[number];
    atomic_store(&lane->events, journal->trimmer->trims + 1);
    lane->chunks = 0;
}

static void
end_start_lane(ml_journal *journal, unsigned number)
{
    ml_journal_lane *lane = &journal->lanes[number];
    if (lane->slot != 0) {
        atomic_store(&journal->slots[lane->slot], ML_SLOT_FULL);
    }
    lane->slot = 0;
    lane->writer = (ml_chunk_writer){0};
}

static int
write_start(ml_journal *journal)
{
    ml_trim *trim = journal->trimmer->trim;
    begin_start_lane(journal, ML_JOURNAL_START_DEFINITIONS);
    begin_start_lane(journal, ML_JOURNAL_START_CONTROL);
    trim->full = !ml_journal_define_again(
        journal, &journal->lanes[ML_JOURNAL_START_DEFINITIONS], trim_make_room);
    int result = trim_put_records(journal);
    put_lanes(journal);
    trim_put_memory(journal);
    uint64_t ticks = trim_last_ticks(trim);
    trim->dropped.ticks = ticks > trim->dropped.ticks ? ticks : trim->dropped.ticks;
    /* Last: the notes that were left out are counted. */
    trim_put(journal, ML_MLAB_TRIM, &trim->dropped, sizeof(trim->dropped));
    end_start_lane(journal, ML_JOURNAL_START_DEFINITIONS);
    end_start_lane(journal, ML_JOURNAL_START_CONTROL);
    return result == 0 && trim->full ? ML_ELIMIT : result;
}

static int
finish(ml_journal *journal)
{
    ml_trimmer *trimmer = journal->trimmer;
    ml_trim *trim = trimmer->trim;
    int result = trim_read_records(journal);
    if (result == 0) {
        result = write_start(journal);
    }
    if (result == 0) {
        trimmer->trims++;
        trimmer->dropped = trim->dropped;
        memcpy(trimmer->lanes, trim->lanes, sizeof(trim->lanes));
        atomic_store(&journal->header->trims, trimmer->trims);
    }
    trim_free(trim);
    trimmer->trim = NULL;
    /* The chunks of the new start, too, if it was not completed. */
    ml_journal_refill(journal, 0);
    size_t dropped = trim_drop_chunks(trimmer);
    return result == 0 && dropped == 0 ? ML_ELIMIT : result;
}

bool
ml_trimmer_is_busy(const ml_journal *journal)
{
    return journal->trimmer != NULL && journal->trimmer->trim != NULL;
}

bool
ml_trimmer_go_on(ml_journal *journal)
{
    ml_trimmer *trimmer = journal->trimmer;
    if (trimmer == NULL || trimmer->over) {
        return false;
    }
    if (!atomic_load(&journal->started)) {
        return true;
    }
    size_t end = trimmer->trim == NULL ? due(journal) : 0;
    int result = end != 0 ? begin_trim(journal, end) : 0;
    if (result == 0 && trimmer->trim != NULL) {
        result = follow_chunks(journal);
        if (result == 0 && trimmer->trim->next == trimmer->trim->end) {
            result = finish(journal);
        }
    }
    /* What the file holds stays; it ends at its limit. */
    trimmer->over = result < 0;
    return !trimmer->over;
}
