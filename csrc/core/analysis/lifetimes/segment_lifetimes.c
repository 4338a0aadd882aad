/* Follows the segments of one device over a replay.  See segment_lifetimes.h.
 *
 * A segment that comes or goes removes what was in its range, as in the ledger: pieces
 * of expandable segments in part, others whole.  The ledger may then have other bytes
 * than the pieces, because an event did not fit or a block is alone.  In that case the
 * pieces are compared with the ledger one by one. */
#include "analysis/lifetimes/segment_lifetimes.h"

#include <string.h>

#include "base/base.h"

static uint64_t
end_of(const ml_segment_lifetime *segment)
{
    return segment->addr + segment->bytes;
}

static ml_segment_lifetime *
piece(const ml_mapped_pieces *pieces, size_t at)
{
    return &pieces->lifetimes->segments[pieces->there[at]];
}

/* The first piece that ends above ADDR. */
static size_t
find_piece(const ml_mapped_pieces *pieces, uint64_t addr)
{
    size_t low;
    ML_SEARCH(low, pieces->count, end_of(piece(pieces, low)) <= addr);
    return low;
}

static int
insert(ml_mapped_pieces *pieces, size_t at, ml_segment_lifetime segment)
{
    ml_lifetimes *lifetimes = pieces->lifetimes;
    void *segments = lifetimes->segments;
    void *there = pieces->there;
    int error = ml_grow(&segments, &lifetimes->segment_capacity,
                        lifetimes->segment_count + 1, sizeof(ml_segment_lifetime));
    if (error < 0) {
        return error;
    }
    lifetimes->segments = segments;
    error = ml_grow(&there, &pieces->capacity, pieces->count + 1, sizeof(uint32_t));
    if (error < 0) {
        return error;
    }
    pieces->there = there;
    memmove(&pieces->there[at + 1], &pieces->there[at],
            (pieces->count - at) * sizeof(uint32_t));
    pieces->there[at] = (uint32_t)lifetimes->segment_count;
    pieces->count++;
    pieces->bytes += segment.bytes;
    lifetimes->segments[lifetimes->segment_count++] = segment;
    return 0;
}

/* The pieces [FROM, TO) end at MOMENT. */
static void
end_pieces(ml_mapped_pieces *pieces, size_t from, size_t to, uint32_t moment)
{
    if (from == to) {
        return;
    }
    for (size_t i = from; i < to; i++) {
        pieces->bytes -= piece(pieces, i)->bytes;
        piece(pieces, i)->end = moment;
    }
    memmove(&pieces->there[from], &pieces->there[to],
            (pieces->count - to) * sizeof(uint32_t));
    pieces->count -= to - from;
}

/* Removes everything in [LOW, HIGH).  Of an expandable segment, or with CUT of any, the
 * part outside stays. */
static int
clear(ml_mapped_pieces *pieces, uint64_t low, uint64_t high, bool cut, uint32_t moment)
{
    size_t from = find_piece(pieces, low);
    size_t to = from;
    ml_segment_lifetime left = {0}, right = {0};
    for (; to < pieces->count && piece(pieces, to)->addr < high; to++) {
        const ml_segment_lifetime *hit = piece(pieces, to);
        if (!cut && !hit->expandable) {
            continue;
        }
        if (hit->addr < low) {
            left = *hit;
            left.bytes = low - hit->addr;
        }
        if (end_of(hit) > high) {
            right = *hit;
            right.bytes = end_of(hit) - high;
            right.addr = high;
        }
    }
    end_pieces(pieces, from, to, moment);
    left.start = right.start = moment;
    int error = right.bytes != 0 ? insert(pieces, from, right) : 0;
    return error == 0 && left.bytes != 0 ? insert(pieces, from, left) : error;
}

/* ---- Comparing with the ledger ---- */

typedef struct comparison {
    ml_mapped_pieces *pieces;
    uint32_t moment;
    uint64_t end; /* of the ledger's previous segment */
} comparison;

static ml_segment_lifetime
of_segment(const ml_segment *segment, uint32_t moment)
{
    bool private = (segment->pool[0] | segment->pool[1]) != 0;
    return (ml_segment_lifetime){.addr = segment->addr,
                                 .bytes = segment->total,
                                 .stream = segment->stream,
                                 .start = moment,
                                 .end = ML_NEVER,
                                 .stack = segment->stack,
                                 .expandable = segment->expandable != 0,
                                 .small = segment->small != 0,
                                 .private_pool = private};
}

/* Removes what the ledger lacks in [LOW, HIGH). */
static int
forget_pieces(const comparison *c, uint64_t low, uint64_t high)
{
    size_t at = find_piece(c->pieces, low);
    bool any = low < high && at < c->pieces->count && piece(c->pieces, at)->addr < high;
    return any ? clear(c->pieces, low, high, true, c->moment) : 0;
}

static int
compare_segment(void *context, const ml_segment *segment)
{
    comparison *c = context;
    ml_mapped_pieces *pieces = c->pieces;
    uint64_t end = segment->addr + segment->total;
    int error = forget_pieces(c, c->end, segment->addr);
    c->end = end;
    for (uint64_t at = segment->addr; at < end && error == 0;) {
        size_t next = find_piece(pieces, at);
        uint64_t known = next < pieces->count ? piece(pieces, next)->addr : end;
        if (known <= at) {
            uint64_t stop = end_of(piece(pieces, next));
            at = stop < end ? stop : end;
            continue;
        }
        ml_segment_lifetime rest = of_segment(segment, c->moment);
        rest.addr = at;
        rest.bytes = (known < end ? known : end) - at;
        error = insert(pieces, next, rest);
        at += rest.bytes;
    }
    return error;
}

static int
compare(ml_mapped_pieces *pieces, const ml_ledger *ledger, uint32_t moment)
{
    comparison c = {.pieces = pieces, .moment = moment};
    ml_ledger_visitor visitor = {.context = &c, .segment = compare_segment};
    int error = ml_ledger_visit(ledger, &visitor);
    return error == 0 ? forget_pieces(&c, c.end, UINT64_MAX) : error;
}

/* ---- Following ---- */

int
ml_mapped_pieces_begin(ml_mapped_pieces *pieces, ml_lifetimes *lifetimes,
                       const ml_ledger *ledger)
{
    *pieces = (ml_mapped_pieces){.lifetimes = lifetimes};
    return compare(pieces, ledger, 0);
}

void
ml_mapped_pieces_fini(ml_mapped_pieces *pieces)
{
    ml_free(pieces->there);
    *pieces = (ml_mapped_pieces){0};
}

static int
map(ml_mapped_pieces *pieces, const ml_event *event, uint32_t moment)
{
    bool expandable = event->action == ML_ACTION_SEGMENT_MAP;
    bool private = (event->flags & ML_EVENT_POOL_KNOWN) != 0 &&
                   (event->pool[0] | event->pool[1]) != 0;
    int error = clear(pieces, event->addr, event->addr + event->size, false, moment);
    ml_segment_lifetime segment = {.addr = event->addr,
                                   .bytes = event->size,
                                   .stream = event->stream,
                                   .start = moment,
                                   .end = ML_NEVER,
                                   .stack = event->stack,
                                   .expandable = expandable,
                                   .small = event->size <= ML_SMALL_SEGMENT_BYTES,
                                   .private_pool = private};
    return error == 0 ? insert(pieces, find_piece(pieces, event->addr), segment)
                      : error;
}

/* While EVENT's block is outside every known segment, it is a segment of its own. */
static int
follow_alone(ml_mapped_pieces *pieces, const ml_event *event, uint64_t reserved,
             uint32_t moment)
{
    bool known = (event->flags & ML_EVENT_BLOCK_KNOWN) != 0;
    uint64_t bytes = event->block_bytes;
    size_t at = find_piece(pieces, event->addr);
    const ml_segment_lifetime *next = at < pieces->count ? piece(pieces, at) : NULL;
    if (known && event->action == ML_ACTION_ALLOC &&
        reserved == pieces->bytes + bytes && bytes <= UINT64_MAX - event->addr &&
        (next == NULL || next->addr >= event->addr + bytes)) {
        return insert(pieces, at,
                      (ml_segment_lifetime){.addr = event->addr,
                                            .bytes = bytes,
                                            .stream = event->stream,
                                            .start = moment,
                                            .end = ML_NEVER,
                                            .small = bytes <= ML_SMALL_BLOCK_BYTES});
    }
    if (known && event->action == ML_ACTION_FREE_COMPLETED &&
        pieces->bytes == reserved + bytes && next != NULL &&
        next->addr == event->addr && next->bytes == bytes) {
        end_pieces(pieces, at, at + 1, moment);
    }
    return 0;
}

int
ml_mapped_pieces_follow(ml_mapped_pieces *pieces, const ml_event *event,
                        const ml_ledger *ledger, uint32_t moment)
{
    int error = 0;
    uint64_t reserved = ml_ledger_current(ledger)->reserved;
    bool range = event->size != 0 && event->addr <= UINT64_MAX - event->size;
    switch (event->action) {
    case ML_ACTION_SEGMENT_ALLOC:
    case ML_ACTION_SEGMENT_MAP:
        error = range ? map(pieces, event, moment) : 0;
        break;
    case ML_ACTION_SEGMENT_FREE:
    case ML_ACTION_SEGMENT_UNMAP:
        error =
            range ? clear(pieces, event->addr, event->addr + event->size, false, moment)
                  : 0;
        break;
    default:
        error = reserved != pieces->bytes
                    ? follow_alone(pieces, event, reserved, moment)
                    : 0;
    }
    return error == 0 && reserved != pieces->bytes ? compare(pieces, ledger, moment)
                                                   : error;
}
