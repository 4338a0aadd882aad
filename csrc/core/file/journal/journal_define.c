/* Definitions in a journal: stacks, code objects and strings, written into a lane
 * before events first refer to them.  See journal.h.
 *
 * Owns, for each lane, one bit per id.  All on the hot path, except the first function
 * and the query for frames. */
#include <string.h>

#include "base/base.h"
#include "file/journal/journal_parts.h"
#include "stacks/stacks_records.h"

/* Ancestors handled together; longer stacks take several rounds. */
#define CHAIN 128u

static size_t
words_of(const ml_stack_table *table)
{
    return table->limit / 64 + 1;
}

int
ml_journal_define_init(ml_journal *journal)
{
    const ml_stacks *stacks = journal->stacks;
    size_t nodes = words_of(&stacks->nodes);
    size_t codes = words_of(&stacks->codes);
    size_t strings = words_of(&stacks->strings);
    size_t objects = words_of(&stacks->objects);
    size_t words = nodes + codes + strings + objects;
    /* The control lane defines nothing: a start's definitions have its place. */
    size_t lanes = ML_MLAB_LANES + 1;
    size_t bytes =
        words * sizeof(uint64_t) * lanes + stacks->objects.limit * sizeof(uint32_t);
    int result = ml_region_init(&journal->defined, bytes, bytes);
    _Atomic uint64_t *at = journal->defined.base;
    for (size_t i = 0; i < lanes && result == 0; i++) {
        ml_journal_lane *lane = &journal->lanes[i];
        if (i == ML_MLAB_LANES) {
            lane = &journal->lanes[ML_JOURNAL_START_DEFINITIONS];
        }
        lane->nodes = at;
        lane->codes = at + nodes;
        lane->strings = at + nodes + codes;
        lane->objects = at + nodes + codes + strings;
        at += words;
    }
    if (result == 0) {
        uint64_t *bits = journal->defined.base;
        journal->named = (uint32_t *)(bits + words * lanes);
    }
    return result;
}

/* Other threads may read too: what they find was complete before. */
static bool
has(const _Atomic uint64_t *bits, uint32_t id)
{
    uint64_t word = atomic_load_explicit(&bits[id / 64], memory_order_acquire);
    return (word >> (id % 64) & 1) != 0;
}

/* Only the lane's holder adds. */
static void
add_id(_Atomic uint64_t *bits, uint32_t id)
{
    uint64_t word = atomic_load_explicit(&bits[id / 64], memory_order_relaxed);
    atomic_store_explicit(&bits[id / 64], word | UINT64_C(1) << (id % 64),
                          memory_order_release);
}

static bool
define_string(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    const ml_stacks *stacks = journal->stacks;
    if (id == 0 || id >= stacks->strings.limit || has(lane->strings, id)) {
        return true;
    }
    const ml_stack_string *string = string_at(stacks, id);
    const char *text = (const char *)stacks->text.base + string->start;
    struct {
        ml_mlab_string head;
        char text[ML_JOURNAL_TEXT_BYTES];
    } part = {.head = {.id = id, .total = string->length}};
    for (uint32_t start = 0; start < string->length; start += ML_JOURNAL_TEXT_BYTES) {
        uint32_t length = string->length - start;
        length = length < ML_JOURNAL_TEXT_BYTES ? length : ML_JOURNAL_TEXT_BYTES;
        part.head.start = start;
        memcpy(part.text, text + start, length);
        if (!ml_journal_append(journal, lane, ML_MLAB_STRING, &part,
                               (uint32_t)sizeof(part.head) + length)) {
            return false;
        }
    }
    add_id(lane->strings, id);
    return true;
}

static bool
define_code(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    const ml_stacks *stacks = journal->stacks;
    if (id == 0 || id >= stacks->codes.limit || has(lane->codes, id)) {
        return true;
    }
    const ml_stack_code *code = code_at(stacks, id);
    ml_mlab_code record = {
        .id = id,
        .name = code->name,
        .filename = code->filename,
        .linetable = code->linetable,
        .firstlineno = code->firstlineno,
        .python_minor = code->python_minor,
    };
    if (!define_string(journal, lane, code->name) ||
        !define_string(journal, lane, code->filename) ||
        !define_string(journal, lane, code->linetable) ||
        !ml_journal_append(journal, lane, ML_MLAB_CODE, &record, sizeof(record))) {
        return false;
    }
    add_id(lane->codes, id);
    return true;
}

static bool
define_object(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    const ml_stacks *stacks = journal->stacks;
    if (id == 0 || id >= stacks->objects.limit || has(lane->objects, id)) {
        return true;
    }
    ml_mlab_object record = {.id = id,
                             .type_name = object_in(&stacks->objects, id)->type_name};
    if (!define_string(journal, lane, record.type_name) ||
        !ml_journal_append(journal, lane, ML_MLAB_OBJECT, &record, sizeof(record))) {
        return false;
    }
    add_id(lane->objects, id);
    return true;
}

static bool
define_node(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    const ml_stack_node *node = node_at(journal->stacks, id);
    ml_mlab_node record = {
        .id = id,
        .parent = node->parent,
        .code = node->code_id,
        .offset = node->offset,
        .counter = node->code_id == 0 ? node->fingerprint : 0,
        .object = node->object,
    };
    if (!define_object(journal, lane, node->object) ||
        !define_code(journal, lane, node->code_id) ||
        !ml_journal_append(journal, lane, ML_MLAB_NODE, &record, sizeof(record))) {
        return false;
    }
    add_id(lane->nodes, id);
    return true;
}

/* Callers first, so that definitions are complete wherever room ends.  Separate,
 * because new stacks are rare. */
static __attribute__((noinline)) bool
define_nodes(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    const ml_stacks *stacks = journal->stacks;
    while (!has(lane->nodes, id)) {
        uint32_t chain[CHAIN];
        uint32_t length = 0;
        for (uint32_t at = id; at != 0 && !has(lane->nodes, at);
             at = node_at(stacks, at)->parent) {
            chain[length++ % CHAIN] = at;
        }
        uint32_t outer = length < CHAIN ? length : CHAIN;
        for (uint32_t i = 0; i < outer; i++) {
            if (!define_node(journal, lane, chain[(length - 1 - i) % CHAIN])) {
                return false;
            }
        }
    }
    return true;
}

static inline bool
define_stack(ml_journal *journal, ml_journal_lane *lane, uint32_t id)
{
    return id == 0 || id >= journal->stacks->nodes.limit || has(lane->nodes, id) ||
           define_nodes(journal, lane, id);
}

bool
ml_journal_define(ml_journal *journal, ml_journal_lane *lane, const ml_event *event)
{
    return define_stack(journal, lane, event->stack) &&
           define_stack(journal, lane, event->origin_stack) &&
           define_string(journal, lane, event->node) &&
#define XX(member) define_string(journal, lane, event->member) &&
           ML_EVENT_TEXTS(XX)
#undef XX
               define_string(journal, lane, ml_event_forward(event));
}

/* ---- Off the hot path ---- */

static bool
is_named(const ml_journal *journal, uint32_t id)
{
    for (unsigned i = 0; i < ML_MLAB_LANES; i++) {
        const ml_journal_lane *lane = &journal->lanes[i];
        if (atomic_load(&lane->begun) && has(lane->nodes, id)) {
            return true;
        }
    }
    return false;
}

static bool
has_string(const ml_journal *journal, uint32_t id)
{
    for (unsigned i = 0; i < ML_MLAB_LANES; i++) {
        const ml_journal_lane *lane = &journal->lanes[i];
        if (atomic_load(&lane->begun) && has(lane->strings, id)) {
            return true;
        }
    }
    return false;
}

static void
forget_ids(_Atomic uint64_t *bits, const ml_stack_table *table)
{
    for (size_t i = 0; i < words_of(table); i++) {
        if (atomic_load_explicit(&bits[i], memory_order_relaxed) != 0) {
            atomic_store_explicit(&bits[i], 0, memory_order_relaxed);
        }
    }
}

bool
ml_journal_define_again(ml_journal *journal, ml_journal_lane *lane,
                        bool (*room)(ml_journal *journal))
{
    const ml_stacks *stacks = journal->stacks;
    uint32_t nodes = ml_stacks_count(stacks);
    uint32_t strings = ml_stacks_string_count(stacks);
    forget_ids(lane->nodes, &stacks->nodes);
    forget_ids(lane->codes, &stacks->codes);
    forget_ids(lane->strings, &stacks->strings);
    forget_ids(lane->objects, &stacks->objects);
    for (uint32_t id = 1; id < nodes && id < stacks->nodes.limit; id++) {
        while (is_named(journal, id) && !define_stack(journal, lane, id)) {
            if (!room(journal)) {
                return false;
            }
        }
    }
    for (uint32_t id = 1; id < strings && id < stacks->strings.limit; id++) {
        while (has_string(journal, id) && !define_string(journal, lane, id)) {
            if (!room(journal)) {
                return false;
            }
        }
    }
    return true;
}

int
ml_journal_frames(const ml_journal *journal, ml_recording *recording)
{
    const ml_stacks *stacks = journal->stacks;
    size_t count = ml_stacks_count(stacks);
    count = count < stacks->nodes.limit ? count : stacks->nodes.limit;
    uint32_t *map = ml_alloc_zeroed(count + 1, sizeof(*map));
    if (map == NULL) {
        return ML_ENOMEM;
    }
    for (uint32_t id = 1; id < count; id++) {
        map[id] = is_named(journal, id) && node_at(stacks, id)->code != 0;
    }
    int result = ml_stacks_resolve(stacks, recording, map, count, NULL);
    ml_free(map);
    return result;
}
