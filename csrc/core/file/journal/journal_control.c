/* A journal's control lane: the memory at the start, settings, owners, notes, the
 * clock.  See journal.h.
 *
 * Not on the hot path: these functions may wait for a chunk, where stated. */
#include <string.h>

#include "base/base.h"
#include "base/varint.h"
#include "file/journal/journal_parts.h"
#include "stacks/stacks_records.h"

/* Fewest ticks between anchors: between close anchors, their errors would change the
 * clock's rate. */
#define ANCHOR_TICKS (UINT64_C(1) << 30)

/* A record and its text. */
typedef struct message {
    uint32_t length;
    bool cut; /* it did not fit, and must not be stored */
    uint8_t bytes[256 + ML_JOURNAL_TEXT_BYTES];
} message;

static void
put_raw(message *to, const void *bytes, size_t length)
{
    to->cut |= length > sizeof(to->bytes) - to->length;
    if (length > 0 && !to->cut) {
        memcpy(to->bytes + to->length, bytes, length);
        to->length += (uint32_t)length;
    }
}

static void
put_number(message *to, uint64_t number)
{
    uint8_t bytes[ML_VARINT_ROOM];
    put_raw(to, bytes, ml_varint_write(bytes, number));
}

/* The port's control lock is held, or the journal is not shared yet.  False: no room,
 * which is counted. */
static bool
append_record(ml_journal *journal, unsigned kind, const message *record)
{
    ml_journal_lane *lane = &journal->lanes[ML_MLAB_LANES];
    ml_mlab_lane *shown = &journal->header->lanes[ML_MLAB_LANES];
    uint64_t count = atomic_load(&lane->events) + 1;
    bool stored = !record->cut &&
                  (lane->pending == 0 || ml_journal_turn(journal, lane)) &&
                  ml_journal_append(journal, lane, kind, record->bytes, record->length);
    if (!stored) {
        lane->pending++;
        atomic_store(&shown->dropped, ++lane->dropped);
    }
    atomic_store(&lane->events, count);
    atomic_store(&shown->events, count);
    return stored;
}

/* ---- The start ---- */

static bool
has_room(ml_journal *journal, ml_journal_lane *lane, uint32_t length)
{
    uint32_t needed = length + ML_PACK_OTHER_HEADER;
    bool fits =
        lane->slot != 0 && ml_chunk_used(&lane->writer) + needed + sizeof(ml_chunk) <=
                               journal->file.chunks.chunk_bytes;
    return fits || ml_journal_turn(journal, lane);
}

/* Takes the port's control lock once there is room for LENGTH bytes; false: waiting is
 * of no use.  Waits without the lock, which programs take for phases and marks. */
static bool
lock_with_room(ml_journal *journal, uint32_t length)
{
    ml_journal_lane *lane = &journal->lanes[ML_MLAB_LANES];
    pthread_mutex_lock(&journal->port->control);
    while (!has_room(journal, lane, length)) {
        pthread_mutex_unlock(&journal->port->control);
        bool waited = ml_journal_await_room(journal);
        pthread_mutex_lock(&journal->port->control);
        if (!waited) {
            return false;
        }
    }
    return true;
}

/* Waits for room, because a start with a hole is useless. */
static void
append_patiently(ml_journal *journal, unsigned kind, const message *record)
{
    lock_with_room(journal, record->length);
    append_record(journal, kind, record);
    pthread_mutex_unlock(&journal->port->control);
}

static void
append_start(ml_journal *journal, unsigned kind, const void *bytes, size_t length)
{
    message record = {0};
    put_raw(&record, bytes, length);
    append_patiently(journal, kind, &record);
}

void
ml_journal_start(ml_journal *journal, int device, const ml_allocator_rules *rules)
{
    ml_mlab_start start = {
        .events = atomic_load(&journal->lanes[device].start),
        .max_split_bytes = rules->max_split_bytes,
        .device = (uint32_t)device,
        .expandable_segments = rules->expandable_segments,
        .has_segments = rules->has_segments,
    };
    memcpy(start.roundup_divisions, rules->roundup_divisions,
           sizeof(start.roundup_divisions));
    append_start(journal, ML_MLAB_START, &start, sizeof(start));
}

void
ml_journal_start_segment(ml_journal *journal, int device, const ml_segment *segment)
{
    ml_mlab_segment record = {
        .addr = segment->addr,
        .total = segment->total,
        .stream = segment->stream,
        .pool = {segment->pool[0], segment->pool[1]},
        .device = (uint32_t)device,
        .small = segment->small,
        .expandable = segment->expandable,
    };
    append_start(journal, ML_MLAB_SEGMENT, &record, sizeof(record));
}

void
ml_journal_start_block(ml_journal *journal, int device, const ml_block *block)
{
    if (block->state == ML_BLOCK_INACTIVE) {
        return;
    }
    ml_mlab_block record = {
        .addr = block->addr,
        .size = block->size,
        .requested = block->requested,
        .device = (uint32_t)device,
        .state = block->state,
    };
    append_start(journal, ML_MLAB_BLOCK, &record, sizeof(record));
    if (block->state == ML_BLOCK_ALLOCATED) {
        ml_marks_start(&journal->lanes[device].marks, block->addr);
    }
}

void
ml_journal_started(ml_journal *journal, int device)
{
    ml_mlab_device record = {.device = (uint64_t)device};
    append_start(journal, ML_MLAB_STARTED, &record, sizeof(record));
}

void
ml_journal_began(ml_journal *journal)
{
    atomic_store(&journal->started, true);
}

void
ml_journal_setting(ml_journal *journal, const char *key, char kind, int64_t integer,
                   double real, const char *text, const uint64_t *divisions)
{
    ml_mlab_setting setting = {
        .integer = integer,
        .real = real,
        .key_bytes = (uint32_t)strlen(key),
        .kind = kind,
    };
    if (divisions != NULL && kind == 'd') {
        memcpy(setting.divisions, divisions, sizeof(setting.divisions));
    }
    message record = {0};
    put_raw(&record, &setting, sizeof(setting));
    put_raw(&record, key, setting.key_bytes);
    if (text != NULL) {
        put_raw(&record, text, strlen(text));
    }
    pthread_mutex_lock(&journal->port->control);
    append_record(journal, ML_MLAB_SETTING, &record);
    pthread_mutex_unlock(&journal->port->control);
}

/* ---- While it is recorded ---- */

static void
append_clock(ml_journal *journal, const uint64_t *ticks, size_t count)
{
    uint64_t times[2];
    memcpy(times, ticks, count * sizeof(*ticks));
    const ml_source *source = journal->source;
    if (source->unix_ns(source->self, times, sizeof(*times), count) < 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        ml_mlab_clock clock = {ticks[i], times[i]};
        message record = {0};
        put_raw(&record, &clock, sizeof(clock));
        append_record(journal, ML_MLAB_CLOCK, &record);
    }
}

void
ml_journal_control_begin(ml_journal *journal)
{
    uint64_t now = journal->source->now(journal->source->self);
    /* The second follows from the clock's own rate. */
    uint64_t ticks[2] = {now, now + ANCHOR_TICKS};
    append_clock(journal, ticks, 2);
    journal->clock_ticks = ticks[1];
}

/* Occasionally adds the clock to a record: a longer span gives a more exact rate. */
static void
append_anchor(ml_journal *journal)
{
    uint64_t now = journal->source->now(journal->source->self);
    if (now > journal->clock_ticks && now - journal->clock_ticks >= ANCHOR_TICKS) {
        journal->clock_ticks = now;
        append_clock(journal, &now, 1);
    }
}

static void
append_to_all(ml_journal_port *port, unsigned kind, const message *record, bool step)
{
    pthread_mutex_lock(&port->control);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        ml_journal *journal = atomic_load(&port->journals[i]);
        if (journal != NULL) {
            append_anchor(journal);
            append_record(journal, kind, record);
            atomic_fetch_add(&journal->steps, step);
        }
    }
    pthread_mutex_unlock(&port->control);
}

static bool
is_attached(const ml_journal_port *port, const ml_journal *journal)
{
    bool found = false;
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        found |= atomic_load(&port->journals[i]) == journal;
    }
    return found;
}

/* The tag's position is read last: a claimed block existed by then. */
static void
append_tag(ml_journal *journal, int device, const ml_tag *tag, uint64_t owner)
{
    const ml_journal_lane *lane = &journal->lanes[device];
    bool claimed = ml_marks_claim(&lane->marks, tag->addr);
    const ml_source *source = journal->source;
    uint64_t place =
        source->ordered ? atomic_load(&lane->events) : source->now(source->self);
    unsigned lost = (tag->name == ML_STACK_LOST ? ML_MLAB_NAME_LOST : 0) |
                    (tag->module == ML_STACK_LOST ? ML_MLAB_MODULE_LOST : 0);
    uint8_t head[2] = {(uint8_t)(tag->category | lost), (uint8_t)device};
    ml_slice module = ml_stacks_text(journal->stacks, tag->module);
    ml_slice name = ml_stacks_text(journal->stacks, tag->name);
    message record;
    record.length = 0;
    record.cut = false;
    put_raw(&record, head, sizeof(head));
    put_number(&record, tag->addr);
    put_number(&record, place);
    put_number(&record, module.length);
    put_raw(&record, module.bytes, module.length);
    put_raw(&record, name.bytes, name.length);
    if (append_record(journal, ML_MLAB_TAG, &record) && claimed) {
        ml_marks_tell(&lane->marks, tag->addr, owner);
    }
}

/* Each optimizer's step tells all its tensors again: what the file has is left out before
 * their names, which are in no cache by then, are read. */
void
ml_journal_tag(ml_journal_port *port, ml_journal *journal, int device,
               const ml_tag *tag)
{
    uint64_t owner = ml_hash_u64(((uint64_t)tag->module << 32 | tag->name) ^
                                 ml_hash_u64(tag->category + 1u));
    pthread_mutex_lock(&port->control);
    if (is_attached(port, journal) && atomic_load(&journal->lanes[device].begun) &&
        !ml_marks_knows(&journal->lanes[device].marks, tag->addr, owner)) {
        append_anchor(journal);
        append_tag(journal, device, tag, owner);
    }
    pthread_mutex_unlock(&port->control);
}

void
ml_journal_use(ml_journal *journal, int device, uint64_t addr, uint64_t events)
{
    message record;
    record.length = 0;
    record.cut = false;
    uint8_t number = (uint8_t)device;
    put_raw(&record, &number, sizeof(number));
    put_number(&record, addr);
    put_number(&record, atomic_load(&journal->lanes[device].start) + events);
    append_start(journal, ML_MLAB_USE, record.bytes, record.length);
}

/* A line without room is left out and not counted: it has nothing to do with memory. */
void
ml_journal_code_line(ml_journal_port *port, ml_journal *journal,
                     const ml_recording *recording, const ml_code_line *line)
{
    const ml_string *texts[] = {
        &recording->strings[line->filename], &recording->strings[line->name],
        &recording->strings[line->qualname], &recording->strings[line->text]};
    ml_mlab_code_line what = {
        .changed_us = line->changed_us,
        .line = (uint32_t)line->line,
        .first_line = (uint32_t)line->first_line,
        .last_line = (uint32_t)line->last_line,
        .file_bytes = (uint16_t)texts[0]->length,
        .name_bytes = (uint16_t)texts[1]->length,
        .qualname_bytes = (uint16_t)texts[2]->length,
        .forward = line->forward,
    };
    message record = {0};
    put_raw(&record, &what, sizeof(what));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put_raw(&record, texts[i]->bytes, texts[i]->length);
    }
    pthread_mutex_lock(&port->control);
    bool attached = is_attached(port, journal);
    pthread_mutex_unlock(&port->control);
    if (attached && !record.cut) {
        if (lock_with_room(journal, record.length)) {
            append_record(journal, ML_MLAB_CODE_LINE, &record);
        }
        pthread_mutex_unlock(&port->control);
    }
}

void
ml_journal_port_note(ml_journal_port *port, const ml_note *note, const char *name,
                     size_t length)
{
    if (atomic_load(&port->count) == 0) {
        return;
    }
    uint32_t thread = note->thread >> 24 == 0 ? note->thread : 0;
    ml_mlab_note what = {
        .time = note->time,
        .device = note->device,
        .thread = (uint16_t)thread,
        .kind = note->kind,
        .thread_high = (uint8_t)(thread >> 16),
    };
    memcpy(what.values, note->values, sizeof(what.values));
    message record = {0};
    put_raw(&record, &what, sizeof(what));
    put_raw(&record, name, length);
    append_to_all(port, ML_MLAB_NOTE, &record, note->kind == ML_NOTE_STEP);
}

static void
put_text(message *to, ml_slice text)
{
    put_raw(to, text.bytes, text.length);
}

/* TEXT, cut with a mark to at most half a record.  Readers need every frame, because
 * ids are indices. */
static ml_slice
shortened(ml_slice text, char room[ML_JOURNAL_TEXT_BYTES / 2])
{
    static const char mark[] = "...";
    const size_t most = ML_JOURNAL_TEXT_BYTES / 2;
    if (text.length <= most) {
        return text;
    }
    size_t kept = ml_utf8_cut(text.bytes, text.length, most - (sizeof(mark) - 1));
    memcpy(room, text.bytes, kept);
    memcpy(room + kept, mark, sizeof(mark) - 1);
    return (ml_slice){.bytes = room, .length = kept + sizeof(mark) - 1};
}

static void
append_origins(ml_journal *journal)
{
    const ml_origins *origins = &journal->stacks->origins;
    message record;
    size_t id = journal->origin_frames + 1;
    for (; id < origins->frame_table.count; id++) {
        const ml_origin_frame *frame = &origins->frames[id];
        char rooms[2][ML_JOURNAL_TEXT_BYTES / 2];
        ml_slice name = shortened(ml_origins_text(origins, frame->name), rooms[0]);
        ml_slice file = shortened(ml_origins_text(origins, frame->filename), rooms[1]);
        ml_mlab_origin_frame head = {
            .id = (uint32_t)id,
            .caller = frame->caller,
            .line = frame->line,
            .name_bytes = (uint32_t)name.length,
        };
        record.length = 0;
        record.cut = false;
        put_raw(&record, &head, sizeof(head));
        put_text(&record, name);
        put_text(&record, file);
        append_patiently(journal, ML_MLAB_ORIGIN_FRAME, &record);
    }
    journal->origin_frames = id - 1;
    for (; journal->origin_lines < origins->line_count; journal->origin_lines++) {
        const ml_origin_line *line = &origins->lines[journal->origin_lines];
        ml_mlab_origin_line head = {.line = line->line, .frame = line->frame};
        record.length = 0;
        record.cut = false;
        put_raw(&record, &head, sizeof(head));
        put_text(&record, ml_origins_text(origins, line->file));
        append_patiently(journal, ML_MLAB_ORIGIN_LINE, &record);
    }
}

void
ml_journal_port_origins(ml_journal_port *port)
{
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        ml_journal *journal = atomic_load(&port->journals[i]);
        if (journal != NULL) {
            append_origins(journal);
        }
    }
}

void
ml_journal_port_name(ml_journal_port *port, uint32_t object, const char *name,
                     size_t length)
{
    if (atomic_load(&port->count) == 0) {
        return;
    }
    uint32_t hash = (uint32_t)ml_hash_bytes(name, length) | 1;
    ml_mlab_name which = {.object = object};
    message record = {0};
    put_raw(&record, &which, sizeof(which));
    put_raw(&record, name, length);
    pthread_mutex_lock(&port->control);
    for (int i = 0; i < ML_PORT_JOURNALS; i++) {
        ml_journal *journal = atomic_load(&port->journals[i]);
        if (journal != NULL && object < ml_stacks_object_count(journal->stacks) &&
            journal->named[object] != hash &&
            append_record(journal, ML_MLAB_NAME, &record)) {
            /* It is reported again at every look at the program. */
            journal->named[object] = hash;
        }
    }
    pthread_mutex_unlock(&port->control);
}
