/* Keeps notes while recording.  See notes.h. */
#include "record/notes.h"

#include <string.h>

#include "base/base.h"
#include "record/registry.h"
#include "recording/annotations.h"

/* A note in the ring, followed by its name.  It never crosses the ring's end: the rest
 * there is a record without a note, of which only `bytes` and `name_length` exist. */
typedef struct note_record {
    uint32_t bytes; /* distance to the next record: a multiple of 8 */
    uint32_t name_length;
    ml_note note; /* name is 0 */
} note_record;

#define FILLER UINT32_MAX
#define RECORD_BYTES(name_length) \
    ((sizeof(note_record) + (name_length) + 7) & ~(size_t)7)

static ml_note_ring *
ring_of(const ml_source *source)
{
    for (int i = 0; i < ML_SOURCE_MAX; i++) {
        if (ml_registered.notes.rings[i].source == source) {
            return &ml_registered.notes.rings[i];
        }
    }
    return NULL;
}

/* A thread that the child lacks may have held the lock.  The rings' contents stay: the
 * child may be between two lines of the parent's Python code. */
void
ml_notes_forked(void)
{
    pthread_mutex_init(&ml_registered.notes.lock, NULL);
    atomic_store(&ml_registered.notes.listeners, 0);
}

void
ml_notes_fini(void)
{
    for (int i = 0; i < ML_SOURCE_MAX; i++) {
        ml_region_fini(&ml_registered.notes.rings[i].region);
        ml_registered.notes.rings[i] = (ml_note_ring){0};
    }
    atomic_store(&ml_registered.notes.listeners, 0);
}

/* ---- The ring ---- */

static note_record *
record_at(const ml_note_ring *ring, uint64_t offset)
{
    return (note_record *)((char *)ring->region.base + offset % ring->region.bytes);
}

static void
drop_oldest(ml_note_ring *ring)
{
    const note_record *record = record_at(ring, ring->oldest);
    ring->kept -= record->name_length != FILLER;
    ring->oldest += record->bytes;
}

/* Room for BYTES in one piece at the ring's end. */
static note_record *
evict_for(ml_note_ring *ring, size_t bytes)
{
    size_t size = ring->region.bytes;
    size_t left = size - (size_t)(ring->end % size);
    size_t skip = left < bytes ? left : 0;
    while (ring->end + skip + bytes - ring->oldest > size) {
        drop_oldest(ring);
    }
    if (skip > 0) {
        note_record *filler = record_at(ring, ring->end);
        filler->bytes = (uint32_t)skip;
        filler->name_length = FILLER;
        ring->end += skip;
    }
    return record_at(ring, ring->end);
}

static void
keep_note(ml_note_ring *ring, const ml_note *note, const char *name, uint32_t length)
{
    const ml_source *source = ring->source;
    ring->count++;
    ring->steps += note->kind == ML_NOTE_STEP;
    if (ring->region.base == NULL) {
        /* Without room for a ring, notes count as lost. */
        return;
    }
    size_t bytes = RECORD_BYTES(length);
    note_record *record = evict_for(ring, bytes);
    record->bytes = (uint32_t)bytes;
    record->name_length = length;
    record->note = *note;
    record->note.name = 0;
    /* The clocks of two processors may differ a little: the lock decides the order. */
    uint64_t now = source->now(source->self);
    ring->time = now > ring->time ? now : ring->time;
    record->note.time = ring->time;
    record->note.thread = ml_feed_thread_number();
    if (note->kind == ML_NOTE_STEP) {
        record->note.values[0] = ring->steps - 1;
    }
    if (length > 0) {
        memcpy(record + 1, name, length);
    }
    ring->end += bytes;
    ring->kept++;
    ml_journal_port_note(&source->feed->port, &record->note, name, length);
}

bool
ml_recorder_noting(void)
{
    return atomic_load_explicit(&ml_registered.notes.listeners, memory_order_relaxed) !=
           0;
}

void
ml_recorder_note(const ml_source *source, const ml_note *note, const char *name,
                 size_t length)
{
    if (!ml_recorder_noting() || note->kind >= ML_NOTE_COUNT) {
        return;
    }
    uint32_t kept = (uint32_t)ml_utf8_cut(name, length, ML_NOTE_NAME_MAX);
    pthread_mutex_lock(&ml_registered.notes.lock);
    for (int i = 0; i < ML_SOURCE_MAX; i++) {
        ml_note_ring *ring = &ml_registered.notes.rings[i];
        if (ring->listeners > 0 && (source == NULL || ring->source == source)) {
            keep_note(ring, note, name, kept);
        }
    }
    pthread_mutex_unlock(&ml_registered.notes.lock);
}

void
ml_recorder_note_oom(const ml_source *source, int device, uint64_t asked, uint64_t free,
                     uint64_t total, uint64_t allowed)
{
    ml_note note = {
        .kind = ML_NOTE_OOM, .device = device, .values = {asked, free, total, allowed}};
    ml_recorder_note(source, &note, NULL, 0);
}

void
ml_recorder_region(int end, uint64_t number, const char *name, size_t length)
{
    ml_note note = {.kind = end ? ML_NOTE_REGION_END : ML_NOTE_REGION_BEGIN,
                    .device = -1,
                    .values = {number}};
    ml_recorder_note(NULL, &note, name, length);
}

/* ---- Listening ---- */

static ml_notes_mark
mark_of(const ml_note_ring *ring)
{
    return (ml_notes_mark){ring->count, ring->steps};
}

ml_notes_mark
ml_notes_begin(const ml_source *source)
{
    ml_notes_mark mark = {0, 0};
    pthread_mutex_lock(&ml_registered.notes.lock);
    ml_note_ring *ring = ring_of(source);
    if (ring == NULL) {
        ring = ring_of(NULL);
    }
    if (ring != NULL) {
        if (ring->region.base == NULL) {
            ml_region_init(&ring->region, ML_NOTES_BYTES, ML_NOTES_BYTES / 16);
        }
        ring->source = source;
        ring->listeners++;
        atomic_fetch_add(&ml_registered.notes.listeners, 1);
        mark = mark_of(ring);
    }
    pthread_mutex_unlock(&ml_registered.notes.lock);
    return mark;
}

void
ml_notes_end(const ml_source *source)
{
    pthread_mutex_lock(&ml_registered.notes.lock);
    ml_note_ring *ring = ring_of(source);
    if (ring != NULL && ring->listeners > 0) {
        ring->listeners--;
        /* 0 in a forked child, whose recordings are the parent's. */
        if (ml_recorder_noting()) {
            atomic_fetch_sub(&ml_registered.notes.listeners, 1);
        }
        if (ring->listeners == 0) {
            ml_region_fini(&ring->region);
            *ring = (ml_note_ring){0};
        }
    }
    pthread_mutex_unlock(&ml_registered.notes.lock);
}

ml_notes_mark
ml_notes_now(const ml_source *source)
{
    ml_notes_mark mark = {0, 0};
    pthread_mutex_lock(&ml_registered.notes.lock);
    const ml_note_ring *ring = ring_of(source);
    if (ring != NULL) {
        mark = mark_of(ring);
    }
    pthread_mutex_unlock(&ml_registered.notes.lock);
    return mark;
}

/* ---- Into a recording ---- */

/* A copy of the kept notes as in the ring, so that a noting thread waits only for the
 * copy. */
typedef struct note_span {
    char *bytes; /* owned */
    size_t length;
    uint64_t kept;
    uint64_t first; /* notes before these */
} note_span;

static int
copy_span(const ml_source *source, ml_notes_mark mark, note_span *span,
          uint64_t *missing)
{
    int result = 0;
    pthread_mutex_lock(&ml_registered.notes.lock);
    const ml_note_ring *ring = ring_of(source);
    uint64_t since = ring != NULL ? ring->count - mark.count : 0;
    if (ring != NULL) {
        *missing = since > ring->kept ? since - ring->kept : 0;
        span->length = (size_t)(ring->end - ring->oldest);
        span->kept = ring->kept;
        span->first = ring->count - ring->kept;
    }
    if (since > *missing && span->length > 0) {
        span->bytes = ml_alloc(span->length);
        result = span->bytes != NULL ? 0 : ML_ENOMEM;
    }
    if (span->bytes != NULL) {
        size_t size = ring->region.bytes;
        size_t from = (size_t)(ring->oldest % size);
        size_t head = size - from < span->length ? size - from : span->length;
        memcpy(span->bytes, (char *)ring->region.base + from, head);
        memcpy(span->bytes + head, ring->region.base, span->length - head);
    }
    pthread_mutex_unlock(&ml_registered.notes.lock);
    return result;
}

/* Names that RECORDING already has from its notes: string FIRST + id. */
typedef struct note_names {
    const ml_recording *recording;
    uint32_t first;
    const char *bytes;
    uint32_t length;
} note_names;

static bool
is_name(const void *context, uint32_t id)
{
    const note_names *names = context;
    const ml_string *string = &names->recording->strings[names->first + id];
    return string->length == names->length &&
           memcmp(string->bytes, names->bytes, names->length) == 0;
}

static int
name_note(ml_recording *recording, ml_intern *seen, note_names *names, uint32_t *id)
{
    if (names->length == 0) {
        *id = 0;
        return 0;
    }
    uint64_t hash = ml_hash_bytes(names->bytes, names->length);
    if (ml_intern_find(seen, hash, is_name, names, id)) {
        *id += names->first;
        return 0;
    }
    int result = ml_intern_add(seen, hash);
    return result == 0
               ? ml_recording_add_string(recording, names->bytes, names->length, id)
               : result;
}

static int
unpack(const note_span *span, ml_notes_mark mark, ml_recording *recording)
{
    uint64_t skip = mark.count > span->first ? mark.count - span->first : 0;
    recording->notes = ml_alloc_zeroed((size_t)(span->kept - skip), sizeof(ml_note));
    int result = recording->notes != NULL ? 0 : ML_ENOMEM;
    ml_intern seen = {0};
    note_names names = {.recording = recording,
                        .first = (uint32_t)recording->string_count};
    for (size_t at = 0; at < span->length && result == 0;) {
        const note_record *record = (const note_record *)(span->bytes + at);
        at += record->bytes;
        if (record->name_length == FILLER || skip > 0) {
            skip -= record->name_length != FILLER;
            continue;
        }
        ml_note *note = &recording->notes[recording->note_count];
        *note = record->note;
        names.bytes = (const char *)(record + 1);
        names.length = record->name_length;
        result = name_note(recording, &seen, &names, &note->name);
        if (note->kind == ML_NOTE_STEP) {
            note->values[0] -= mark.steps;
        }
        recording->note_count += result == 0;
    }
    ml_intern_fini(&seen);
    return result;
}

int
ml_notes_copy(const ml_source *source, ml_notes_mark mark, ml_recording *recording)
{
    note_span span = {0};
    int result = copy_span(source, mark, &span, &recording->lost_notes);
    if (result == 0 && span.bytes != NULL) {
        result = unpack(&span, mark, recording);
    }
    ml_free(span.bytes);
    if (result == 0 && recording->note_count > 0) {
        result = source->unix_ns(source->self, &recording->notes[0].time,
                                 sizeof(ml_note), recording->note_count);
    }
    return result < 0 ? result : ml_annotations_add_notes(recording);
}
