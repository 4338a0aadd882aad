/* Continues reading a .mlab file where the last look ended.  See follower.h.
 *
 * A lane writes its chunks one after the other, so a chunk with a successor is
 * complete.  A piece may have been inspected before its chunk was begun.  So a gap in a
 * lane's indexes is inspected again before it counts. */
#include <stdlib.h>
#include <string.h>

#include "analysis/follow/follower_parts.h"

/* Pieces of the file that are inspected before their contents are read. */
#define LIST_MOST 256u

static int
compare_chunks(const void *a, const void *b)
{
    const follower_chunk *x = a;
    const follower_chunk *y = b;
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    if (x->index != y->index) {
        return x->index < y->index ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* ---- Pieces ---- */

/* Inspects the piece at OFFSET.  ML_EFULL: not a chunk yet. */
static int
look_at(ml_follower *live, uint64_t offset)
{
    ml_chunk header;
    if (live->input.read(live->input.context, offset, &header, sizeof(header)) < 0) {
        return ML_EFULL;
    }
    uint64_t used = atomic_load(&header.commit) & UINT32_MAX;
    if (used == 0) {
        return ML_EFULL;
    }
    if (mlab_piece_of(live->reader, &header, live->header.chunk_bytes) !=
        MLAB_PIECE_CHUNK) {
        live->info.damaged_chunks++;
        return 0;
    }
    unsigned lane = mlab_lane_of(live->reader, &header);
    if (lane > ML_MLAB_LANES || header.index < live->reader->trim_lanes[lane].chunk) {
        /* Of a start, which was read, or of the part that was dropped. */
        return 0;
    }
    if (ml_grow((void **)&live->queue, &live->queue_capacity, live->queue_count + 1,
                sizeof(*live->queue)) < 0) {
        return ML_ENOMEM;
    }
    live->queue[live->queue_count++] =
        (follower_chunk){.offset = offset, .index = header.index, .lane = lane};
    return 0;
}

static int
look_again(ml_follower *live)
{
    size_t count = 0;
    for (size_t i = 0; i < live->ready_count; i++) {
        int result = look_at(live, live->ready[i]);
        if (result == ML_ENOMEM) {
            return result;
        }
        if (result == ML_EFULL) {
            live->ready[count++] = live->ready[i];
        }
    }
    live->ready_count = count;
    return 0;
}

/* Drops chunks that were read, and duplicates that their lane has passed. */
static void
drop_read(ml_follower *live)
{
    size_t count = 0;
    for (size_t i = 0; i < live->queue_count; i++) {
        follower_chunk chunk = live->queue[i];
        bool passed = chunk.index < live->lanes[chunk.lane].next;
        live->info.damaged_chunks += passed && !chunk.read;
        if (!passed) {
            live->queue[count++] = chunk;
        }
    }
    live->queue_count = count;
}

/* Inspects MOST further pieces, and again those that were no chunks. */
static int
list_pieces(ml_follower *live, uint64_t most)
{
    uint32_t bytes = live->header.chunk_bytes;
    int result = look_again(live);
    for (; result == 0 && most > 0 &&
           live->scanned + sizeof(ml_chunk) <= live->input.bytes;
         most--) {
        result = look_at(live, live->scanned);
        if (result == ML_EFULL) {
            result = ml_grow((void **)&live->ready, &live->ready_capacity,
                             live->ready_count + 1, sizeof(*live->ready));
            if (result == 0) {
                live->ready[live->ready_count++] = live->scanned;
            }
        }
        live->scanned += bytes;
    }
    if (result == 0 && live->queue_count > 0) {
        qsort(live->queue, live->queue_count, sizeof(*live->queue), compare_chunks);
    }
    return result;
}

/* ---- Chunks ---- */

/* Reads the newly committed part of LANE's chunk. */
static int
go_on(ml_follower *live, follower_lane *lane)
{
    ml_chunk header;
    if (lane->offset == 0 || lane->damaged ||
        live->input.read(live->input.context, lane->offset, &header, sizeof(header)) <
            0) {
        return 0;
    }
    uint64_t commit = atomic_load(&header.commit);
    uint32_t used = (uint32_t)(commit & UINT32_MAX);
    uint32_t bytes = live->header.chunk_bytes;
    if (used <= lane->used) {
        return 0;
    }
    uint8_t *payload = (uint8_t *)(lane->buffer + 1);
    uint32_t more = used - lane->used;
    if (used > bytes - sizeof(ml_chunk) ||
        live->input.read(live->input.context,
                         lane->offset + sizeof(ml_chunk) + lane->used,
                         payload + lane->used, more) < 0 ||
        ml_crc32c(lane->crc, payload + lane->used, more) != (uint32_t)(commit >> 32)) {
        lane->damaged = true;
        live->info.damaged_chunks++;
        return 0;
    }
    lane->used = used;
    lane->crc = (uint32_t)(commit >> 32);
    lane->reader.end = payload + used;
    return mlab_read_chunk(live->reader, &lane->state, &lane->reader);
}

static int
begin_chunk(ml_follower *live, follower_lane *lane, follower_chunk *chunk)
{
    ml_chunk header;
    chunk->read = true;
    lane->next = chunk->index + 1;
    lane->offset = chunk->offset;
    lane->used = 0;
    lane->crc = 0;
    lane->damaged = live->input.read(live->input.context, chunk->offset, &header,
                                     sizeof(header)) < 0 ||
                    header.first < lane->state.ordinal;
    if (lane->damaged) {
        live->info.damaged_chunks++;
        return 0;
    }
    if (lane->buffer == NULL) {
        lane->buffer = ml_alloc(live->header.chunk_bytes);
        if (lane->buffer == NULL) {
            return ML_ENOMEM;
        }
    }
    lane->reader = (ml_chunk_reader){.at = (uint8_t *)(lane->buffer + 1)};
    lane->reader.end = lane->reader.at;
    int result = mlab_begin_chunk(live->reader, &lane->state, &header);
    return result < 0 ? result : go_on(live, lane);
}

/* The chunk with which lane NUMBER continues; NULL: unknown. */
static follower_chunk *
next_of(const ml_follower *live, unsigned number)
{
    follower_chunk sought = {.lane = number, .index = live->lanes[number].next};
    size_t low;
    ML_SEARCH(low, live->queue_count, compare_chunks(&live->queue[low], &sought) < 0);
    return low < live->queue_count && live->queue[low].lane == number
               ? &live->queue[low]
               : NULL;
}

/* Reads at most a chunk of lane NUMBER.  1: it read one; 0; or ML_E*. */
static int
step(ml_follower *live, unsigned number)
{
    follower_lane *lane = &live->lanes[number];
    follower_chunk *next = next_of(live, number);
    if (next != NULL && next->index != lane->next) {
        int result = list_pieces(live, UINT64_MAX);
        if (result < 0) {
            return result;
        }
        next = next_of(live, number);
    }
    /* Its successor exists, so it is complete. */
    int result = go_on(live, lane);
    if (result < 0 || next == NULL) {
        return result;
    }
    result = begin_chunk(live, lane, next);
    return result < 0 ? result : 1;
}

static int
read_all_of(ml_follower *live, unsigned number)
{
    int result = step(live, number);
    while (result == 1) {
        result = step(live, number);
    }
    return result;
}

/* A start after events of its device cancels these. */
static void
heed_starts(ml_follower *live)
{
    for (unsigned d = 0; live->reader->ordered && d < ML_DEVICE_MAX; d++) {
        uint64_t *start = &live->reader->starts[d].head.events;
        uint64_t events = *start;
        if (events > live->begun[d] && d < live->reader->recording->device_count) {
            *start = live->begun[d];
            follower_forget(live, d, (size_t)mlab_index_of(live->reader, d, events));
            *start = events;
            live->begun[d] = events;
            /* A walk repeats the memory, and owners are reported again. */
            live->prior_blocks[d].count = 0;
        }
    }
}

/* Of all devices. */
static size_t
events_kept(const ml_follower *live)
{
    const ml_recording *recording = live->reader->recording;
    size_t count = 0;
    for (size_t d = 0; d < recording->device_count; d++) {
        count += recording->devices[d].event_count;
    }
    return count;
}

uint64_t
follower_events(const ml_follower *live)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < ML_MLAB_LANES; i++) {
        count += live->lanes[i].state.ordinal;
    }
    return count;
}

/* Reads one chunk of each lane, repeatedly.  1: the next would be too many. */
static int
read_lanes(ml_follower *live, uint64_t enough)
{
    bool any = true;
    while (any) {
        any = false;
        for (unsigned number = 0; number < ML_MLAB_LANES; number++) {
            int result = step(live, number);
            if (result < 0) {
                return result;
            }
            any = any || result == 1;
        }
        /* Unordered lanes may be far apart while chunks are left. */
        if (events_kept(live) >= live->kept_most && (live->reader->ordered || !any)) {
            int result = follower_condense(live);
            if (result < 0) {
                return result;
            }
        }
        if (any && follower_events(live) >= enough) {
            return 1;
        }
    }
    return 0;
}

int
follower_read_on(ml_follower *live, uint64_t events, bool *more, ml_read_error *error)
{
    uint64_t known = follower_events(live);
    uint64_t enough = events > UINT64_MAX - known ? UINT64_MAX : known + events;
    int result = 0;
    *more = true;
    while (result == 0 && *more) {
        drop_read(live);
        result = list_pieces(live, LIST_MOST);
        if (result == 0) {
            result = read_all_of(live, ML_MLAB_LANES);
        }
        if (result == 0) {
            heed_starts(live);
            result = read_lanes(live, enough);
        }
        *more = result == 1 || live->scanned + sizeof(ml_chunk) <= live->input.bytes;
        if (result == 0 && follower_events(live) >= enough) {
            break;
        }
    }
    return result < 0 ? ml_read_fail(error, result, 0, "%s", ml_strerror(result)) : 0;
}
