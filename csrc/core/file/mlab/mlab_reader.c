/* Reads a .mlab file: the header, the chunks, the lanes.  See mlab_reader.h. */
#include "file/mlab/mlab_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/system/infile.h"
#include "file/mlab/mlab_parts.h"
#include "ledger/replay/unordered_events.h"
#include "recording/process.h"

/* A begun chunk, with its header at the first look. */
typedef struct listed {
    uint64_t offset;
    ml_chunk header;
    unsigned lane; /* of the file */
} listed;

typedef struct listing {
    listed *items; /* owned */
    size_t count;
    size_t capacity;
} listing;

void
ml_mlab_info_fini(ml_mlab_info *info)
{
    ml_free(info->gaps);
    info->gaps = NULL;
    info->gap_count = 0;
}

bool
ml_mlab_is(const void *bytes, size_t length)
{
    return length >= 8 && memcmp(bytes, ML_MLAB_MAGIC, 8) == 0;
}

static int
read_descriptor(void *context, uint64_t offset, void *to, size_t length)
{
    const int *descriptor = context;
    return ml_infile_read(*descriptor, offset, to, length);
}

int
ml_mlab_input_of(ml_mlab_input *input, const int *descriptor)
{
    *input = (ml_mlab_input){.context = (void *)(uintptr_t)descriptor,
                             .read = read_descriptor};
    return ml_infile_bytes(*descriptor, &input->bytes);
}

/* ---- The header ---- */

int
mlab_read_header(const ml_mlab_input *input, ml_mlab_header *header,
                 ml_read_error *error)
{
    if (input->bytes < sizeof(*header) ||
        input->read(input->context, 0, header, sizeof(*header)) < 0) {
        return ml_read_fail(error, ML_EFORMAT, 0,
                            "the file ends within its header: nothing was recorded, or "
                            "it was cut");
    }
    if (!ml_mlab_is(header->magic, sizeof(header->magic))) {
        return ml_read_fail(error, ML_EFORMAT, 0, "no .mlab file");
    }
    if (header->byte_order != ML_MLAB_BYTE_ORDER) {
        return ml_read_fail(error, ML_EFORMAT, offsetof(ml_mlab_header, byte_order),
                            "the file was written on a machine of another byte order, "
                            "or is damaged");
    }
    if (header->checksum != ml_crc32c(0, header, offsetof(ml_mlab_header, checksum))) {
        return ml_read_fail(error, ML_EFORMAT, 0, "the header is damaged");
    }
    if (header->version > ML_MLAB_VERSION || header->required & ~ML_MLAB_REQUIRED) {
        return ml_read_fail(
            error, ML_EFORMAT, offsetof(ml_mlab_header, version),
            "the file has version %u of the format%s, this memlab reads version %u; "
            "read it with a newer memlab",
            header->version,
            header->required & ~ML_MLAB_REQUIRED ? " and features unknown here" : "",
            ML_MLAB_VERSION);
    }
    uint32_t bytes = header->chunk_bytes;
    if (bytes < ML_MLAB_CHUNK_LEAST || bytes > ML_MLAB_CHUNK_MOST ||
        (bytes & (bytes - 1)) != 0 ||
        memchr(header->source, '\0', sizeof(header->source)) == NULL ||
        strlen(header->source) >= sizeof(((ml_recording *)0)->source) ||
        memchr(header->host, '\0', sizeof(header->host)) == NULL) {
        return ml_read_fail(error, ML_EFORMAT, 0, "the header makes no sense");
    }
    return 0;
}

void
mlab_take_header(mlab_reader *reader, const ml_mlab_header *header, uint64_t bytes)
{
    ml_recording *recording = reader->recording;
    memcpy(recording->source, header->source, sizeof(recording->source));
    recording->source_known = 1;
    recording->keys = header->keys;
    reader->ordered = header->ordered != 0;
    reader->tells_uses = (header->required & ML_MLAB_USES) != 0;
    reader->uses_sampled = (header->optional & ML_MLAB_USES_SAMPLED) != 0;
    reader->trims =
        (header->required & ML_MLAB_TRIMS) != 0 ? atomic_load(&header->trims) : 0;
    reader->wants = header->context > 0 && header->context <= 1 + ML_CONTEXT_ALL;
    if (reader->wants) {
        reader->wanted.context = (enum ml_context)(header->context - 1);
        reader->wanted.native = header->native != 0;
    }
    ml_mlab_info *info = reader->info;
    info->ended = atomic_load(&header->state) == ML_MLAB_ENDED;
    uint32_t stop = atomic_load(&header->stop);
    info->stop = stop < ML_MLAB_STOP_COUNT ? (int)stop : ML_MLAB_STOP_NONE;
    info->stop_errno = (int)(atomic_load(&header->stop_errno) & 0xffff);
    info->pid = header->pid;
    memcpy(info->host, header->host, sizeof(info->host));
    info->start_time = header->start_time;
    info->bytes = bytes;
}

/* An invalid place counts as none. */
static int
take_process(ml_recording *recording, const ml_mlab_header *header)
{
    ml_process process = {.place = {.world_size = atomic_load(&header->world_size),
                                    .rank = atomic_load(&header->rank),
                                    .local_rank = atomic_load(&header->local_rank)},
                          .pid = header->pid,
                          .unix_ns = header->start_time,
                          .boot_ns = header->boot_ns};
    if (process.place.rank > INT32_MAX || process.place.local_rank > INT32_MAX ||
        process.place.world_size > ML_WORLD_MAX) {
        process.place = (ml_process_place){0};
    }
    memcpy(process.host, header->host, sizeof(process.host));
    memcpy(process.boot, header->boot, sizeof(process.boot));
    uint8_t state =
        atomic_load(&header->state) == ML_MLAB_ENDED ? ML_RANK_ENDED : ML_RANK_CUT_OFF;
    return ml_process_tell(&process, state, recording);
}

/* ---- The chunks ---- */

static bool
all_zero(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++) {
        any |= at[i];
    }
    return any == 0;
}

enum mlab_piece
mlab_piece_of(const mlab_reader *reader, const ml_chunk *header, uint32_t chunk_bytes)
{
    uint64_t used = atomic_load(&header->commit) & UINT32_MAX;
    if (used == 0 &&
        (header->magic == ML_CHUNK_MAGIC || all_zero(header, sizeof(*header)))) {
        /* Prepared for a lane that never took it, or just begun. */
        return MLAB_PIECE_READY;
    }
    bool whole = header->magic == ML_CHUNK_MAGIC &&
                 header->version == ML_CHUNK_VERSION && header->bytes == chunk_bytes &&
                 mlab_lane_of(reader, header) < MLAB_NO_LANE &&
                 (header->flags & ML_CHUNK_CHECKED) != 0 &&
                 used <= chunk_bytes - sizeof(ml_chunk);
    return whole ? MLAB_PIECE_CHUNK : MLAB_PIECE_DAMAGED;
}

static int
compare_listed(const void *a, const void *b)
{
    const listed *left = a;
    const listed *right = b;
    if (left->lane != right->lane) {
        return left->lane < right->lane ? -1 : 1;
    }
    if (left->header.index != right->header.index) {
        return left->header.index < right->header.index ? -1 : 1;
    }
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Lists all begun chunks, by lane and order. */
static int
list_chunks(mlab_reader *reader, const ml_mlab_input *input, uint32_t chunk_bytes,
            listing *list)
{
    for (uint64_t offset = chunk_bytes; offset + sizeof(ml_chunk) <= input->bytes;
         offset += chunk_bytes) {
        listed item = {.offset = offset};
        if (input->read(input->context, offset, &item.header, sizeof(item.header)) <
            0) {
            reader->info->damaged_chunks++;
            continue;
        }
        enum mlab_piece piece = mlab_piece_of(reader, &item.header, chunk_bytes);
        if (piece != MLAB_PIECE_CHUNK) {
            reader->info->damaged_chunks += piece == MLAB_PIECE_DAMAGED;
            continue;
        }
        item.lane = mlab_lane_of(reader, &item.header);
        if (item.lane > ML_MLAB_LANES &&
            (item.header.first != reader->trims || reader->trims == 0)) {
            /* Of a start that was replaced, or is not complete. */
            continue;
        }
        if (ml_grow((void **)&list->items, &list->capacity, list->count + 1,
                    sizeof(item)) < 0) {
            return ML_ENOMEM;
        }
        list->items[list->count++] = item;
    }
    if (list->count > 0) {
        qsort(list->items, list->count, sizeof(*list->items), compare_listed);
    }
    return 0;
}

/* Reads the chunk ITEM into BUFFER and opens it there, if it is still the listed
 * one. */
static bool
open_chunk(const ml_mlab_input *input, const listed *item, void *buffer,
           ml_chunk_reader *chunk)
{
    uint64_t used = atomic_load(&item->header.commit) & UINT32_MAX;
    uint8_t *payload = (uint8_t *)buffer + sizeof(ml_chunk);
    if (item->offset + sizeof(ml_chunk) + used > input->bytes ||
        input->read(input->context, item->offset + sizeof(ml_chunk), payload,
                    (size_t)used) < 0) {
        return false;
    }
    memcpy(buffer, &item->header, sizeof(ml_chunk));
    ml_chunk header;
    return ml_chunk_open(chunk, buffer, item->header.bytes, &header) == 0;
}

/* ---- The lanes ---- */

static bool
is_of(const listing *list, size_t at, unsigned lane)
{
    return at < list->count && list->items[at].lane == lane;
}

/* Most events of the lane whose first chunk is number FIRST of LIST, and which COUNTED all
 * of them, if the file's end is there: a chunk has the number of its first event, and two
 * events have four bytes or more. */
static size_t
most_events(const listing *list, size_t first, const ml_mlab_lane *counted)
{
    const listed *begin = &list->items[first];
    uint64_t end = atomic_load(&counted->events);
    uint64_t room = 0;
    uint64_t numbered = 0;
    for (size_t at = first; is_of(list, at, begin->lane); at++) {
        const ml_chunk *header = &list->items[at].header;
        uint64_t most = (atomic_load(&header->commit) & UINT32_MAX) / 2 + 1;
        room += most;
        numbered =
            (end > header->first ? end : header->first + most) - begin->header.first;
    }
    return numbered < room ? numbered : room;
}

static int
read_lane(mlab_reader *reader, const ml_mlab_input *input, const listing *list,
          size_t *next, const ml_mlab_lane *counted, unsigned number, void *buffer)
{
    mlab_lane lane;
    int result = mlab_begin_lane(reader, &lane, number);
    while (number <= ML_MLAB_LANES && is_of(list, *next, number) &&
           list->items[*next].header.index < reader->trim_lanes[number].chunk) {
        /* Of the part that was dropped. */
        ++*next;
    }
    if (result == 0 && number < ML_MLAB_LANES && reader->writer != NULL &&
        is_of(list, *next, number)) {
        result =
            mlab_begin_memory(reader, lane.device, most_events(list, *next, counted));
    }
    for (; is_of(list, *next, number) && result == 0; ++*next) {
        ml_chunk_reader chunk;
        const listed *item = &list->items[*next];
        /* A chunk that begins within the part already read is a duplicate. */
        if (item->header.first >= lane.ordinal &&
            open_chunk(input, item, buffer, &chunk)) {
            result = mlab_begin_chunk(reader, &lane, &item->header);
            result = result == 0 ? mlab_read_chunk(reader, &lane, &chunk) : result;
        }
        else {
            reader->info->damaged_chunks++;
        }
    }
    if (result == 0 && reader->writer != NULL && reader->writer->count != 0) {
        result = mlab_pack_events(reader, lane.device);
    }
    return result == 0 && counted != NULL ? mlab_end_lane(reader, &lane, counted)
                                          : result;
}

static size_t
first_of(const listing *list, unsigned number)
{
    size_t at = 0;
    while (at < list->count && list->items[at].lane < number) {
        at++;
    }
    return at;
}

static int
read_start(mlab_reader *reader, const ml_mlab_input *input, const listing *list,
           void *buffer)
{
    size_t next = first_of(list, MLAB_START_DEFINITIONS);
    int result =
        read_lane(reader, input, list, &next, NULL, MLAB_START_DEFINITIONS, buffer);
    return result < 0 ? result
                      : read_lane(reader, input, list, &next, NULL, MLAB_START_CONTROL,
                                  buffer);
}

int
mlab_read_start(mlab_reader *reader, const ml_mlab_input *input, uint32_t chunk_bytes)
{
    listing list = {0};
    void *buffer = ml_alloc(chunk_bytes);
    int result =
        buffer != NULL ? list_chunks(reader, input, chunk_bytes, &list) : ML_ENOMEM;
    if (result == 0) {
        result = read_start(reader, input, &list, buffer);
    }
    ml_free(list.items);
    ml_free(buffer);
    return result;
}

/* The control lane comes first: it tells where the others' valid events begin. */
static int
read_lanes(mlab_reader *reader, const ml_mlab_input *input, const listing *list,
           const ml_mlab_header *header, void *buffer)
{
    int result = read_start(reader, input, list, buffer);
    size_t next = first_of(list, ML_MLAB_LANES);
    if (result == 0) {
        result = read_lane(reader, input, list, &next, &header->lanes[ML_MLAB_LANES],
                           ML_MLAB_LANES, buffer);
    }
    mlab_sort_clocks(reader);
    next = 0;
    for (unsigned number = 0; number < ML_MLAB_LANES && result == 0; number++) {
        result = read_lane(reader, input, list, &next, &header->lanes[number], number,
                           buffer);
    }
    return result;
}

static void
count_dropped(mlab_reader *reader)
{
    ml_recording *recording = reader->recording;
    for (size_t i = 0; i < reader->info->gap_count; i++) {
        const ml_mlab_gap *gap = &reader->info->gaps[i];
        recording->devices[gap->device].dropped_events += gap->dropped + gap->lost;
    }
}

static int
read_all(mlab_reader *reader, const ml_mlab_input *input, const ml_mlab_header *header)
{
    listing list = {0};
    void *buffer = ml_alloc(header->chunk_bytes);
    int result = buffer != NULL ? list_chunks(reader, input, header->chunk_bytes, &list)
                                : ML_ENOMEM;
    if (result == 0 && reader->ordered) {
        /* Those of other sources are sorted first. */
        reader->writer = ml_alloc(sizeof(*reader->writer));
        result = reader->writer != NULL ? 0 : ML_ENOMEM;
    }
    if (result == 0 && reader->ordered) {
        ml_event_writer_init(reader->writer, NULL);
    }
    if (result == 0) {
        result = read_lanes(reader, input, &list, header, buffer);
    }
    ml_free(list.items);
    ml_free(buffer);
    return result;
}

int
mlab_finish(mlab_reader *reader, const ml_mlab_header *header)
{
    int result = 0;
    if (!reader->ordered && reader->recording->device_count > 0) {
        ml_device_trace *trace = &reader->recording->devices[0];
        result = ml_unordered_events_sort(trace->events.plain, trace->event_count);
    }
    if (result == 0) {
        count_dropped(reader);
        result = mlab_finish_times(reader);
    }
    if (result == 0) {
        result = mlab_finish_tags(reader);
    }
    if (result == 0) {
        result = mlab_finish_memory(reader);
    }
    if (result == 0) {
        result = mlab_finish_uses(reader);
    }
    if (result == 0 && reader->wants) {
        result = mlab_finish_stacks(reader);
    }
    if (result == 0) {
        result = mlab_resolve(reader);
    }
    if (result == 0) {
        /* Last: while the tables are built, their ids are the interned ones. */
        result = take_process(reader->recording, header);
    }
    result = result == 0 ? ml_recording_pack(reader->recording) : result;
    return result == 0 ? ml_recording_validate(reader->recording) : result;
}

int
mlab_reader_new(mlab_reader **out)
{
    mlab_reader *reader = ml_alloc_zeroed(1, sizeof(*reader));
    if (reader == NULL) {
        return ML_ENOMEM;
    }
    int result = ml_recording_new(&reader->recording);
    if (result == 0) {
        result = ml_interner_init(&reader->interner, reader->recording);
    }
    if (result == 0) {
        result = ml_stacks_new(&reader->stacks, NULL);
    }
    if (result < 0) {
        mlab_reader_free(reader);
        return result;
    }
    *out = reader;
    return 0;
}

void
mlab_reader_free(mlab_reader *reader)
{
    ml_recording_free(reader->recording);
    ml_stacks_free(reader->stacks);
    ml_interner_fini(&reader->interner);
    ml_intern_fini(&reader->code_lines);
    ml_free(reader->clocks);
    ml_free(reader->tags);
    ml_free(reader->uses);
    ml_free(reader->writer);
    ml_free(reader->names);
    for (int i = 0; i < ML_DEVICE_MAX; i++) {
        ml_free(reader->starts[i].segments);
        ml_free(reader->starts[i].blocks);
        ml_free(reader->places[i]);
        ml_ledger_free(reader->ledgers[i]);
    }
    ml_free(reader);
}

/* A file that drops its first part meanwhile is read again. */
#define LOOKS 4

/* Reads the file once.  *AGAIN: it has another start now; INPUT then has its new length. */
static int
read_once(ml_mlab_input *input, ml_recording **out, ml_mlab_info *info, bool *again,
          ml_read_error *error)
{
    ml_mlab_header header;
    int result = mlab_read_header(input, &header, error);
    if (result < 0) {
        return result;
    }
    mlab_reader *reader = NULL;
    result = mlab_reader_new(&reader);
    if (result < 0) {
        return ml_read_fail(error, result, 0, "%s", ml_strerror(result));
    }
    reader->info = info;
    mlab_take_header(reader, &header, input->bytes);
    result = read_all(reader, input, &header);
    ml_mlab_header now;
    *again = result == 0 && mlab_read_header(input, &now, error) == 0 &&
             atomic_load(&now.trims) != atomic_load(&header.trims);
    ml_chunk piece;
    while (*again &&
           input->read(input->context, input->bytes, &piece, sizeof(piece)) == 0) {
        input->bytes += header.chunk_bytes;
    }
    if (result == 0) {
        result = mlab_finish(reader, &header);
    }
    if (result == 0) {
        *out = reader->recording;
        reader->recording = NULL;
    }
    else {
        ml_read_fail(
            error, result, 0, "%s",
            result == ML_EFORMAT
                ? "the file contradicts itself, though its checksums are right: "
                  "it is not as memlab writes them"
                : ml_strerror(result));
    }
    mlab_reader_free(reader);
    return result;
}

int
ml_mlab_read(const ml_mlab_input *input, ml_recording **out, ml_mlab_info *info,
             ml_read_error *error)
{
    ml_recording *recording = NULL;
    ml_mlab_info about = {0};
    ml_mlab_input now = *input;
    bool again = true;
    int result = 0;
    for (int look = 0; look < LOOKS && again && result != ML_ENOMEM; look++) {
        ml_recording_free(recording);
        recording = NULL;
        ml_mlab_info_fini(&about);
        about = (ml_mlab_info){0};
        again = false;
        result = read_once(&now, &recording, &about, &again, error);
    }
    if (result == 0) {
        *out = recording;
        *info = about;
    }
    else {
        ml_mlab_info_fini(&about);
    }
    return result;
}
