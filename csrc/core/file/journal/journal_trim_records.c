/* The control lane's records that a new start takes over.  See journal_trim.h.
 *
 * The control lane goes on after the last record that is older than the new start.  Of
 * those before, what still holds is written again: settings, names, lines, owners of
 * blocks that live, phases that have not ended, the clock. */
#include <stdlib.h>
#include <string.h>

#include "base/varint.h"
#include "file/journal/journal_trim_parts.h"

/* ---- When a record was ---- */

/* Ticks of a note or a clock; UINT64_MAX: the record has no time. */
static uint64_t
ticks_of(const ml_packed_other *record)
{
    uint64_t ticks = UINT64_MAX;
    if ((record->kind == ML_MLAB_NOTE || record->kind == ML_MLAB_CLOCK) &&
        record->length >= sizeof(ticks)) {
        /* The first member of both. */
        memcpy(&ticks, record->bytes, sizeof(ticks));
    }
    return ticks;
}

/* No event that stays was before this. */
static uint64_t
first_ticks(const ml_journal *journal)
{
    const ml_trim *trim = journal->trimmer->trim;
    uint64_t first = UINT64_MAX;
    for (unsigned i = 0; i < ML_DEVICE_MAX; i++) {
        bool any = atomic_load(&journal->lanes[i].events) > trim_events(trim, i);
        uint64_t ticks = trim->devices[i].ticks;
        first = any && ticks < first ? ticks : first;
    }
    return first;
}

static bool
is_before(const ml_trim *trim, const ml_packed_other *record)
{
    ml_mlab_tag owner;
    if (record->kind == ML_MLAB_TAG) {
        return ml_mlab_tag_read(record, &owner) &&
               owner.place < trim_events(trim, owner.device);
    }
    return ticks_of(record) < trim_last_ticks(trim);
}

/* ---- Reading ---- */

static int
find_end(ml_journal *journal, const ml_packed_other *record, uint64_t number,
         uint64_t chunk)
{
    ml_trim *trim = journal->trimmer->trim;
    ml_mlab_trim_lane *lane = &trim->lanes[ML_MLAB_LANES];
    if (number != ML_TRIM_OF_START && number >= lane->events &&
        is_before(trim, record)) {
        lane->events = number + 1;
        lane->chunk = chunk;
    }
    return 0;
}

static int
keep_record(ml_journal *journal, const ml_packed_other *record, uint64_t number,
            uint64_t chunk)
{
    ml_trim *trim = journal->trimmer->trim;
    (void)chunk;
    if (number != ML_TRIM_OF_START && number >= trim->lanes[ML_MLAB_LANES].events) {
        return 0;
    }
    uint32_t length = record->length;
    uint8_t kind = record->kind;
    ml_buffer_append(&trim->records, &kind, sizeof(kind));
    ml_buffer_append(&trim->records, &length, sizeof(length));
    ml_buffer_append(&trim->records, record->bytes, length);
    return trim->records.error;
}

int
trim_read_records(ml_journal *journal)
{
    int result = trim_visit(journal, find_end);
    return result == 0 ? trim_visit(journal, keep_record) : result;
}

/* The next record of those kept; false: there is none. */
static bool
next_record(const ml_buffer *records, size_t *at, ml_packed_other *out)
{
    const uint8_t *bytes = (const uint8_t *)records->bytes + *at;
    if (*at == records->length) {
        return false;
    }
    out->kind = bytes[0];
    memcpy(&out->length, bytes + 1, sizeof(out->length));
    out->bytes = bytes + 1 + sizeof(out->length);
    *at += 1 + sizeof(out->length) + out->length;
    return true;
}

/* ---- What still holds ---- */

/* What a later record of the same subject replaces, or ends. */
typedef struct subject {
    uint64_t key;
    size_t at; /* where its last record ends */
} subject;

typedef struct subjects {
    subject *items; /* owned */
    size_t count;
    size_t capacity;
} subjects;

static int
compare_subjects(const void *a, const void *b)
{
    const subject *x = a;
    const subject *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

/* A phase or region is one subject, from its begin to its end. */
static bool
subject_of(const ml_packed_other *record, uint64_t *key)
{
    ml_mlab_note note;
    ml_mlab_tag owner;
    switch (record->kind) {
    case ML_MLAB_NAME:
        *key = ml_hash_bytes(record->bytes, sizeof(ml_mlab_name));
        return record->length >= sizeof(ml_mlab_name);
    case ML_MLAB_TAG:
        /* Of one owner once, whenever it was told. */
        if (!ml_mlab_tag_read(record, &owner)) {
            return false;
        }
        *key = ml_hash_bytes(owner.owner, owner.owner_bytes) ^
               3 * ml_hash_u64(owner.addr) ^
               5 * ml_hash_u64(record->bytes[0] * 256u + record->bytes[1]);
        return true;
    case ML_MLAB_NOTE:
        if (record->length < sizeof(note)) {
            return false;
        }
        memcpy(&note, record->bytes, sizeof(note));
        if (note.kind == ML_NOTE_HOLDER) {
            *key = 7 * ml_hash_u64(note.values[0]) ^ (uint64_t)note.device;
            return true;
        }
        bool region =
            note.kind == ML_NOTE_REGION_BEGIN || note.kind == ML_NOTE_REGION_END;
        *key = ml_hash_u64(note.values[0]) ^ region;
        return region || note.kind == ML_NOTE_PHASE_BEGIN ||
               note.kind == ML_NOTE_PHASE_END;
    default:
        return false;
    }
}

static int
list_subjects(const ml_buffer *records, subjects *list)
{
    size_t at = 0;
    ml_packed_other record;
    while (next_record(records, &at, &record)) {
        subject item = {.at = at};
        if (!subject_of(&record, &item.key)) {
            continue;
        }
        if (ml_grow((void **)&list->items, &list->capacity, list->count + 1,
                    sizeof(item)) < 0) {
            return ML_ENOMEM;
        }
        list->items[list->count++] = item;
    }
    if (list->count > 0) {
        qsort(list->items, list->count, sizeof(*list->items), compare_subjects);
    }
    return 0;
}

/* Whether RECORD, which ends AT, is the last of its subject. */
static bool
is_last(const subjects *list, const ml_packed_other *record, size_t at)
{
    subject sought = {.at = at};
    size_t low;
    if (!subject_of(record, &sought.key)) {
        return true;
    }
    ML_SEARCH(low, list->count, compare_subjects(&list->items[low], &sought) <= 0);
    return low == list->count || list->items[low].key != sought.key;
}

/* A step that is dropped counts. */
static bool
keeps_note(ml_trim *trim, const ml_packed_other *record, bool last)
{
    ml_mlab_note note;
    if (record->length < sizeof(note)) {
        return false;
    }
    memcpy(&note, record->bytes, sizeof(note));
    if (note.time >= trim_last_ticks(trim)) {
        return true;
    }
    if (note.kind == ML_NOTE_STEP && trim->dropped.steps++ == 0) {
        trim->dropped.first_step = note.values[0];
    }
    bool open = note.kind == ML_NOTE_PHASE_BEGIN || note.kind == ML_NOTE_REGION_BEGIN;
    bool held =
        note.kind == ML_NOTE_HOLDER && last && note.device >= 0 &&
        note.device < ML_DEVICE_MAX &&
        trim_lives_since(trim, (unsigned)note.device, note.values[0], note.time);
    return note.kind == ML_NOTE_PROGRAM || (open && last) || held;
}

static void
put_tag(ml_journal *journal, const ml_packed_other *record)
{
    const ml_trim *trim = journal->trimmer->trim;
    ml_mlab_tag owner;
    uint8_t bytes[ML_JOURNAL_TEXT_BYTES + 256];
    if (!ml_mlab_tag_read(record, &owner) || record->length > ML_JOURNAL_TEXT_BYTES) {
        return;
    }
    uint64_t now = trim_events(trim, owner.device);
    if (owner.place >= now) {
        trim_put(journal, record->kind, record->bytes, record->length);
    }
    else if (trim_lives(trim, owner.device, owner.addr, owner.place)) {
        memcpy(bytes, record->bytes, 2);
        size_t length = 2 + ml_varint_write(bytes + 2, owner.addr);
        length += ml_varint_write(bytes + length, now);
        memcpy(bytes + length, owner.owner, owner.owner_bytes);
        trim_put(journal, record->kind, bytes, length + owner.owner_bytes);
    }
}

/* Where the clocks begin without which no time that stays could be told: two before
 * FIRST. */
static size_t
clocks_from(const ml_buffer *records, uint64_t first)
{
    size_t from[2] = {0, 0};
    size_t begin = 0;
    size_t at = 0;
    ml_packed_other record;
    while (next_record(records, &at, &record)) {
        if (record.kind == ML_MLAB_CLOCK && ticks_of(&record) <= first) {
            from[0] = from[1];
            from[1] = begin;
        }
        begin = at;
    }
    return from[0];
}

int
trim_put_records(ml_journal *journal)
{
    ml_trim *trim = journal->trimmer->trim;
    const ml_buffer *records = &trim->records;
    subjects list = {0};
    int result = list_subjects(records, &list);
    size_t clocks = clocks_from(records, first_ticks(journal));
    size_t at = 0;
    size_t begin = 0;
    ml_packed_other record;
    while (result == 0 && next_record(records, &at, &record)) {
        bool last = is_last(&list, &record, at);
        bool keeps = last;
        switch (record.kind) {
        case ML_MLAB_START:
        case ML_MLAB_SEGMENT:
        case ML_MLAB_BLOCK:
        case ML_MLAB_STARTED:
        case ML_MLAB_TRIM:
        case ML_MLAB_TRIM_LANE:
            keeps = false;
            break;
        case ML_MLAB_NOTE:
            keeps = keeps_note(trim, &record, last);
            break;
        case ML_MLAB_CLOCK:
            keeps = begin >= clocks;
            break;
        case ML_MLAB_TAG:
            if (last) {
                put_tag(journal, &record);
            }
            keeps = false;
            break;
        default:
            break;
        }
        if (keeps) {
            trim_put(journal, record.kind, record.bytes, record.length);
        }
        begin = at;
    }
    ml_free(list.items);
    return result;
}
