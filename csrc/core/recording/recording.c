/* Builds and frees a recording.
 *
 * Owns the arena behind the strings. */
#include "recording/recording.h"

#include <stdio.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

#define CHUNK_BYTES ((size_t)64 * 1024)

typedef struct chunk {
    struct chunk *next;
    size_t used; /* bytes */
    size_t size; /* bytes */
    char bytes[];
} chunk;

/* The string bytes, and the capacities of the public columns. */
typedef struct arena {
    chunk *chunks; /* the newest first */
    size_t string_capacity;
    size_t frame_capacity;
    size_t stack_capacity;
    size_t code_line_capacity;
} arena;

static bool
same_text(ml_string a, ml_string b)
{
    return a.length == b.length &&
           (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

bool
ml_string_holds(ml_string text, const char *part)
{
    size_t length = strlen(part);
    for (size_t i = 0; i + length <= text.length; i++) {
        if (memcmp(text.bytes + i, part, length) == 0) {
            return true;
        }
    }
    return false;
}

int
ml_string_compare(ml_string a, ml_string b)
{
    size_t shared = a.length < b.length ? a.length : b.length;
    int order = shared == 0 ? 0 : memcmp(a.bytes, b.bytes, shared);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

int
ml_code_place_compare(ml_code_place a, ml_code_place b)
{
    int order = ml_string_compare(a.file, b.file);
    order = order != 0 ? order : (a.line > b.line) - (a.line < b.line);
    return order != 0 ? order : ml_string_compare(a.function, b.function);
}

bool
ml_frame_same_function(const ml_recording *recording, uint32_t a, uint32_t b)
{
    ml_frame x = recording->frames[a];
    ml_frame y = recording->frames[b];
    return same_text(recording->strings[x.name], recording->strings[y.name]) &&
           same_text(recording->strings[x.filename], recording->strings[y.filename]);
}

static char *
arena_take(arena *store, size_t bytes)
{
    chunk *newest = store->chunks;
    if (newest == NULL || newest->size - newest->used < bytes) {
        size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (size > SIZE_MAX - sizeof(chunk)) {
            return NULL;
        }
        newest = ml_alloc(sizeof(chunk) + size);
        if (newest == NULL) {
            return NULL;
        }
        newest->next = store->chunks;
        newest->used = 0;
        newest->size = size;
        store->chunks = newest;
    }
    char *taken = newest->bytes + newest->used;
    newest->used += bytes;
    return taken;
}

static void
arena_free(arena *store)
{
    if (store == NULL) {
        return;
    }
    chunk *at = store->chunks;
    while (at != NULL) {
        chunk *next = at->next;
        ml_free(at);
        at = next;
    }
    ml_free(store);
}

int
ml_recording_new(ml_recording **out)
{
    ml_recording *recording = ml_alloc_zeroed(1, sizeof(*recording));
    if (recording == NULL) {
        return ML_ENOMEM;
    }
    uint32_t id;
    recording->arena = ml_alloc_zeroed(1, sizeof(arena));
    if (recording->arena == NULL ||
        ml_recording_add_string(recording, "", 0, &id) != 0 ||
        ml_recording_add_frame(recording, (ml_frame){0}, &id) != 0 ||
        ml_recording_add_stack(recording, (ml_stack){0}, &id) != 0) {
        ml_recording_free(recording);
        return ML_ENOMEM;
    }
    *out = recording;
    return 0;
}

void
ml_recording_detach(ml_recording *recording)
{
    ml_attached *attached = atomic_exchange(&recording->attached, NULL);
    if (attached != NULL) {
        attached->free(attached);
    }
}

void
ml_recording_drop_ranks(ml_recording *recording)
{
    for (size_t i = 0; recording->ranks != NULL && i < recording->rank_count; i++) {
        ml_recording *part = recording->ranks[i].part;
        if (part != NULL) {
            /* Everything else belongs to the whole. */
            ml_free(part->notes);
            ml_recording_detach(part);
            ml_free(part);
        }
    }
    ml_free(recording->ranks);
    recording->ranks = NULL;
    recording->rank_count = 0;
}

void
ml_recording_free(ml_recording *recording)
{
    if (recording == NULL) {
        return;
    }
    ml_recording_detach(recording);
    for (size_t i = 0; recording->devices != NULL && i < recording->device_count; i++) {
        ml_device_trace *device = &recording->devices[i];
        ml_events_free(&device->events);
        ml_free(device->segments);
        ml_free(device->blocks);
        ml_free(device->tags);
        ml_free(device->prior_blocks);
        ml_free(device->uses);
    }
    ml_free(recording->devices);
    ml_free(recording->strings);
    ml_free(recording->frames);
    ml_free(recording->stacks);
    ml_free(recording->settings);
    ml_free(recording->annotations);
    ml_free(recording->notes);
    ml_free(recording->code_lines);
    ml_recording_drop_ranks(recording);
    arena_free(recording->arena);
    ml_free(recording);
}

/* Writes '?' for each invalid UTF-8 byte.  A name cut inside a character, or a symbol
 * in another encoding, must not make a file unreadable. */
static void
copy_text(char *to, const char *bytes, size_t length)
{
    unsigned character;
    for (size_t i = 0; i < length;) {
        size_t step =
            ml_utf8_decode((const unsigned char *)bytes + i, length - i, &character);
        if (step == 0) {
            to[i++] = '?';
        }
        else {
            memcpy(to + i, bytes + i, step);
            i += step;
        }
    }
}

int
ml_recording_add_string(ml_recording *recording, const char *bytes, size_t length,
                        uint32_t *id)
{
    arena *store = recording->arena;
    if (length > UINT32_MAX || recording->string_count >= UINT32_MAX) {
        return ML_EFULL;
    }
    if (ml_grow((void **)&recording->strings, &store->string_capacity,
                recording->string_count + 1, sizeof(*recording->strings)) != 0) {
        return ML_ENOMEM;
    }
    char *copy = arena_take(store, length);
    if (copy == NULL) {
        return ML_ENOMEM;
    }
    copy_text(copy, bytes, length);
    recording->strings[recording->string_count] =
        (ml_string){.bytes = copy, .length = (uint32_t)length};
    *id = (uint32_t)recording->string_count++;
    return 0;
}

int
ml_recording_add_frame(ml_recording *recording, ml_frame frame, uint32_t *id)
{
    arena *store = recording->arena;
    if (recording->frame_count >= UINT32_MAX) {
        return ML_EFULL;
    }
    if (ml_grow((void **)&recording->frames, &store->frame_capacity,
                recording->frame_count + 1, sizeof(*recording->frames)) != 0) {
        return ML_ENOMEM;
    }
    recording->frames[recording->frame_count] = frame;
    *id = (uint32_t)recording->frame_count++;
    return 0;
}

int
ml_recording_add_stack(ml_recording *recording, ml_stack stack, uint32_t *id)
{
    arena *store = recording->arena;
    if (recording->stack_count >= UINT32_MAX) {
        return ML_EFULL;
    }
    if (ml_grow((void **)&recording->stacks, &store->stack_capacity,
                recording->stack_count + 1, sizeof(*recording->stacks)) != 0) {
        return ML_ENOMEM;
    }
    recording->stacks[recording->stack_count] = stack;
    *id = (uint32_t)recording->stack_count++;
    return 0;
}

int
ml_recording_add_code_line(ml_recording *recording, ml_code_line line)
{
    arena *store = recording->arena;
    if (ml_grow((void **)&recording->code_lines, &store->code_line_capacity,
                recording->code_line_count + 1, sizeof(line)) != 0) {
        return ML_ENOMEM;
    }
    recording->code_lines[recording->code_line_count++] = line;
    return 0;
}

typedef struct code_query {
    const ml_recording *recording;
    const ml_code_line *line;
} code_query;

static bool
same_code_line(const void *context, uint32_t id)
{
    const code_query *query = context;
    const ml_code_line *line = &query->recording->code_lines[id];
    return line->filename == query->line->filename && line->name == query->line->name &&
           line->line == query->line->line;
}

int
ml_recording_add_first_code_line(ml_recording *recording, ml_intern *index,
                                 ml_code_line line)
{
    uint64_t names = (uint64_t)line.filename << 32 | line.name;
    uint64_t hash = ml_hash_u64(ml_hash_u64(names) + (uint64_t)line.line);
    code_query query = {recording, &line};
    uint32_t known;
    if (ml_intern_find(index, hash, same_code_line, &query, &known)) {
        return 0;
    }
    int result = ml_recording_add_code_line(recording, line);
    return result == 0 ? ml_intern_add(index, hash) : result;
}

ml_device_trace *
ml_recording_add_device(ml_recording *recording, size_t device)
{
    size_t needed = device + 1;
    if (needed > recording->device_count) {
        ml_device_trace *items =
            ml_realloc(recording->devices, needed * sizeof(*items));
        if (items == NULL) {
            return NULL;
        }
        memset(&items[recording->device_count], 0,
               (needed - recording->device_count) * sizeof(*items));
        recording->devices = items;
        recording->device_count = needed;
    }
    return &recording->devices[device];
}

int
ml_recording_pack(ml_recording *recording)
{
    int result = 0;
    for (size_t i = 0; i < recording->device_count && result == 0; i++) {
        ml_device_trace *trace = &recording->devices[i];
        result = ml_events_pack(&trace->events, trace->event_count);
    }
    return result;
}

bool
ml_recording_is_merged(const ml_recording *recording)
{
    return recording->rank_count > 0 && recording->ranks[0].part != NULL;
}

void
ml_recording_seal(ml_recording *recording)
{
    for (size_t i = 0; i < recording->rank_count; i++) {
        const ml_rank *rank = &recording->ranks[i];
        ml_recording *part = rank->part;
        part->strings = recording->strings;
        part->string_count = recording->string_count;
        part->frames = recording->frames;
        part->frame_count = recording->frame_count;
        part->stacks = recording->stacks;
        part->stack_count = recording->stack_count;
        part->devices =
            rank->device_count > 0 ? &recording->devices[rank->first_device] : NULL;
        part->device_count = rank->device_count;
        part->keys = recording->keys;
        part->foreign = recording->foreign;
        part->source_known = recording->source_known;
        memcpy(part->source, recording->source, sizeof(part->source));
    }
}

const ml_recording *
ml_recording_part(const ml_recording *recording, size_t *device)
{
    if (!ml_recording_is_merged(recording)) {
        return recording;
    }
    const ml_rank *ranks = recording->ranks;
    size_t at;
    ML_SEARCH(at, recording->rank_count - 1, ranks[at + 1].first_device <= *device);
    *device -= ranks[at].first_device;
    return ranks[at].part;
}

static bool
on_one_host(const ml_recording *recording)
{
    for (size_t i = 1; i < recording->rank_count; i++) {
        if (recording->ranks[i].host != recording->ranks[0].host) {
            return false;
        }
    }
    return true;
}

size_t
ml_device_trace_until(const ml_device_trace *trace, uint64_t time)
{
    size_t low;
    ML_SEARCH(low, trace->event_count, ml_events_time(&trace->events, low) <= time);
    return low;
}

/* Dropped events count in the distance of a use, but have no index. */
uint64_t
ml_device_trace_last_use(const ml_device_trace *trace, size_t index)
{
    uint32_t unused = ml_events_unused(&trace->events, index);
    if (unused == 0 ||
        ml_events_action(&trace->events, index) != ML_ACTION_FREE_REQUESTED ||
        trace->dropped_events != 0) {
        return UINT64_MAX;
    }
    uint64_t events = unused - 1;
    return events < index ? index - events : 0;
}

uint64_t
ml_device_trace_last_use_live(const ml_device_trace *trace, uint64_t addr)
{
    size_t at = ml_find_address(trace->uses, sizeof(ml_use), trace->use_count, addr);
    bool known = at < trace->use_count && trace->uses[at].addr == addr &&
                 trace->dropped_events == 0;
    return known ? trace->uses[at].position : UINT64_MAX;
}

const char *
ml_rank_word(const ml_rank *rank)
{
    /* One that is known and has no place in a group has its number from its file's name. */
    bool alone = rank->pid != 0 && rank->world_size == 0 && rank->local_rank < 0;
    return alone ? "process" : "rank";
}

void
ml_recording_device_name(const ml_recording *recording, size_t device, char *out,
                         size_t bytes)
{
    const char *source = recording->source_known ? recording->source : "cuda";
    size_t own = device;
    const ml_recording *part = ml_recording_part(recording, &own);
    if (part == recording) {
        snprintf(out, bytes, "%s:%zu", source, device);
        return;
    }
    const ml_rank *rank = recording->ranks;
    while (rank->part != part) {
        rank++;
    }
    char who[64];
    ml_string file = recording->strings[rank->file];
    if (rank->rank >= 0) {
        snprintf(who, sizeof(who), "%s %d", ml_rank_word(rank), (int)rank->rank);
    }
    else {
        snprintf(who, sizeof(who), "%.*s", (int)(file.length < 63 ? file.length : 63),
                 file.bytes);
    }
    ml_string host = recording->strings[rank->host];
    bool told = host.length > 0 && !on_one_host(recording);
    snprintf(out, bytes, "%s (%s:%u%s%.*s)", who, source, part->devices[own].number,
             told ? " on " : "", told ? (int)(host.length < 64 ? host.length : 64) : 0,
             host.bytes);
}

_Static_assert(ML_IS_NUMBERED(ML_ACTIONS, ML_ACTION_COUNT),
               "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_OTHERS, ML_OTHER_COUNT),
               "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_CATEGORIES, ML_CATEGORY_COUNT),
               "a number is missing or twice");
_Static_assert(ML_IS_NUMBERED(ML_NOTES, ML_NOTE_COUNT), "a number is missing or twice");

const char *
ml_action_text(unsigned action)
{
    static const char *const texts[] = {ML_ACTIONS(ML_NUMBERED_TEXT)};
    return texts[action < ML_ACTION_COUNT ? action : ML_ACTION_OTHER];
}

const char *
ml_category_text(unsigned category)
{
    static const char *const texts[] = {ML_CATEGORIES(ML_NUMBERED_TEXT)};
    return texts[category < ML_CATEGORY_COUNT ? category : ML_CATEGORY_UNKNOWN];
}

const char *
ml_unread_text(unsigned kind)
{
    static const char *const texts[] = {
#define XX(name, text, owner, everywhere) text,
        ML_UNREADS(XX)
#undef XX
    };
    return kind < ML_UNREAD_COUNT ? texts[kind] : "";
}

const char *
ml_note_text(unsigned kind)
{
    static const char *const texts[] = {ML_NOTES(ML_NUMBERED_TEXT)};
    return kind < ML_NOTE_COUNT ? texts[kind] : "";
}

const char *
ml_alignment_text(unsigned alignment)
{
    static const char *const texts[] = {ML_ALIGNMENTS(ML_LISTED_TEXT)};
    return alignment < ML_ALIGNMENT_COUNT ? texts[alignment] : "";
}

const char *
ml_rank_state_text(unsigned state)
{
    static const char *const texts[] = {ML_RANK_STATES(ML_LISTED_TEXT)};
    return state < ML_RANK_STATE_COUNT ? texts[state] : "";
}
