/* Finds the workspaces that their size alone does not tell.  See workspace.h. */
#include "analysis/attribution/workspace.h"

#include <stdlib.h>

#include "analysis/attribution/node_types.h"

/* Whether nobody owns the block of ROW, and it lasts. */
static bool
stays(const ml_workspaces *of, size_t row)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    const ml_lifetime *life = &lifetimes->rows[row];
    uint32_t requested = ml_lifetime_last(lifetimes, life)->requested;
    return life->tag == ML_CATEGORY_COUNT && ml_workspaces_last(of, requested) &&
           !ml_stack_signs_clear(of->signs, &lifetimes->trace->events, requested);
}

static int
keep(ml_workspaces *of, ml_kept_workspace kept)
{
    void *list = of->list;
    int error = ml_grow(&list, &of->capacity, of->count + 1, sizeof(*of->list));
    if (error == 0) {
        of->list = list;
        of->list[of->count++] = kept;
    }
    return error;
}

static bool
is_of_size(uint64_t size, uint8_t phase)
{
    return ml_workspace_has_size(size) ||
           (size == ML_WORKSPACE_LIGHT && phase == ML_PHASE_FORWARD);
}

/* Whether event INDEX frees a block of nobody's, which a forward or a pass made with the size of a
 * workspace; *MADE becomes its allocation, and *PHASE the phase of that. */
static bool
frees_workspace(const ml_workspaces *of, size_t index, ml_event *made, uint8_t *phase)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    uint32_t row = lifetimes->of_event[index];
    const ml_lifetime *life = row != 0 ? &lifetimes->rows[row - 1] : NULL;
    if (life == NULL || life->birth == 0 || life->tag != ML_CATEGORY_COUNT) {
        return false;
    }
    *made = ml_events_at(&lifetimes->trace->events, life->birth - 1);
    *phase = of->marks[life->birth - 1] & ML_MARK_PHASE;
    return is_of_size(made->size, *phase);
}

/* Whether ROW, made by EVENT in PHASE, is freed right beside a workspace of another kind, outside
 * of forwards, passes and steps: a trainer clears all of them between two trainings. */
static bool
is_cleared(const ml_workspaces *of, const ml_event *event, size_t row, uint8_t phase)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    const ml_events *events = &lifetimes->trace->events;
    uint32_t requested = lifetimes->rows[row].requested;
    if (of->signs->of != NULL || requested == ML_NEVER ||
        lifetimes->rows[row].tag != ML_CATEGORY_COUNT ||
        (of->marks[requested - 1] & ML_MARK_PHASE) != ML_PHASE_OTHER) {
        return false;
    }
    size_t own = requested - 1;
    size_t after = own + 1;
    size_t count = lifetimes->trace->event_count;
    while (after < count && lifetimes->of_event[after] == row + 1 &&
           ml_events_action(events, after) == ML_ACTION_FREE_COMPLETED) {
        after++;
    }
    const size_t beside[] = {own > 0 ? own - 1 : own, after < count ? after : own};
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        ml_event other;
        uint8_t other_phase;
        if (beside[i] != own &&
            ml_action_frees_block(ml_events_action(events, beside[i])) &&
            frees_workspace(of, beside[i], &other, &other_phase) &&
            (other.size != event->size || other.thread != event->thread ||
             other_phase != phase)) {
            return true;
        }
    }
    return false;
}

static int
keep_cleared(ml_workspaces *of, uint64_t row)
{
    void *cleared = of->cleared;
    int error =
        ml_grow(&cleared, &of->cleared_capacity, of->cleared_count + 1, sizeof(row));
    if (error == 0) {
        of->cleared = cleared;
        of->cleared[of->cleared_count++] = row;
    }
    return error;
}

/* Keeps what EVENT, which made ROW in PHASE, made, if it is the first of its kind, or the one
 * before it was cleared.  0 or ML_ENOMEM. */
static int
keep_first(ml_workspaces *of, const ml_event *event, size_t row, uint8_t phase)
{
    const ml_lifetime *rows = of->lifetimes->rows;
    ml_kept_workspace *before = NULL;
    for (size_t i = 0; i < of->count && before == NULL; i++) {
        ml_kept_workspace *kept = &of->list[i];
        if (kept->stream == event->stream && kept->size == event->size &&
            kept->thread == event->thread && kept->phase == phase) {
            before = kept;
        }
    }
    if (before != NULL && rows[before->row].requested >= rows[row].birth) {
        return 0;
    }
    bool cleared = !stays(of, row);
    if (cleared && !is_cleared(of, event, row, phase)) {
        return 0;
    }
    int error = cleared ? keep_cleared(of, row) : 0;
    if (error == 0 && before != NULL) {
        before->row = row;
        return 0;
    }
    return error != 0 ? error
                      : keep(of, (ml_kept_workspace){.stream = event->stream,
                                                     .size = event->size,
                                                     .row = row,
                                                     .thread = event->thread,
                                                     .phase = phase});
}

/* Whether a workspace of the stream of BLOCK, of backward passes or of the rest, is known: one
 * of the first MADE, which the recording has, of any size, as a GPU's have one; or one of the
 * same size. */
static bool
has_kept(const ml_workspaces *of, size_t made, const ml_earlier_block *block,
         bool backward)
{
    for (size_t i = 0; i < of->count; i++) {
        const ml_kept_workspace *kept = &of->list[i];
        bool like =
            i < made ? ml_workspace_has_size(kept->size) : kept->size == block->size;
        if (like && kept->stream == block->stream &&
            (kept->phase == ML_PHASE_BACKWARD) == backward) {
            return true;
        }
    }
    return false;
}

/* Keeps of the blocks from before as many as the list, which has those of the recording, lacks;
 * PASSES: backward passes, too, have one.  0 or ML_ENOMEM. */
static int
keep_earlier(ml_workspaces *of, bool passes)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    size_t made = of->count;
    int error = 0;
    for (size_t i = 0; i < lifetimes->earlier_count && error == 0; i++) {
        const ml_earlier_block *block = &lifetimes->earlier[i];
        if (!ml_workspace_has_size(block->size) || !stays(of, i)) {
            continue;
        }
        bool taken = has_kept(of, made, block, false);
        if (!taken || (passes && !has_kept(of, made, block, true))) {
            uint8_t phase = taken ? ML_PHASE_BACKWARD : ML_PHASE_FORWARD;
            error = keep(of, (ml_kept_workspace){.stream = block->stream,
                                                 .size = block->size,
                                                 .row = i,
                                                 .phase = phase});
        }
    }
    return error;
}

/* ---- Nodes of products ---- */

typedef struct sought_node {
    const ml_workspaces *of;
    ml_node_number node;
} sought_node;

static bool
is_node(const void *context, uint32_t id)
{
    const sought_node *sought = context;
    const ml_node_number *node = &sought->of->nodes[id];
    return node->number == sought->node.number && node->thread == sought->node.thread;
}

static uint64_t
hash_node(ml_node_number node)
{
    return ml_hash_u64(ml_hash_u64(node.number) + node.thread);
}

static bool
has_node(const ml_workspaces *of, uint16_t thread, uint64_t number)
{
    const sought_node sought = {of, {number, thread}};
    uint32_t id;
    return ml_intern_find(&of->products, hash_node(sought.node), is_node, &sought, &id);
}

static int
keep_node(ml_workspaces *of, const ml_event *event)
{
    const ml_node_number node = {event->sequence, event->autograd_thread};
    if (has_node(of, node.thread, node.number)) {
        return 0;
    }
    size_t count = of->products.count;
    void *nodes = of->nodes;
    int error = ml_grow(&nodes, &of->node_capacity, count + 1, sizeof(node));
    if (error == 0) {
        of->nodes = nodes;
        of->nodes[count] = node;
        error = ml_intern_add(&of->products, hash_node(node));
    }
    return error;
}

static int
keep_nodes(ml_workspaces *of)
{
    const ml_device_trace *trace = of->lifetimes->trace;
    const ml_recording *recording = of->recording;
    /* By string id: 1 no product's, 2 a product's. */
    uint8_t *kinds = ml_alloc_zeroed(recording->string_count, 1);
    int error = kinds != NULL ? 0 : ML_ENOMEM;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(node) | ML_EVENT_BIT(sequence) |
                             ML_EVENT_BIT(autograd_thread) | ML_EVENT_BIT(flags));
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (event->node == 0 || event->autograd_thread == 0 ||
            (event->flags & ML_EVENT_BACKWARD) == 0) {
            continue;
        }
        uint8_t *kind = &kinds[event->node];
        if (*kind == 0) {
            *kind = ml_node_is_product(recording->strings[event->node]) ? 2 : 1;
        }
        error = *kind == 2 ? keep_node(of, event) : 0;
    }
    ml_free(kinds);
    return error;
}

/* Whether EVENT is in a product's forward, also in one that a backward pass runs again, or
 * in its backward. */
static bool
is_in_product(const ml_workspaces *of, const ml_event *event)
{
    bool backward = (event->flags & ML_EVENT_BACKWARD) != 0;
    uint16_t thread = backward ? event->next_thread : event->autograd_thread;
    uint64_t next = backward ? event->next : event->sequence;
    return (backward && has_node(of, event->autograd_thread, event->sequence)) ||
           (thread != 0 && next != 0 && has_node(of, thread, next - 1));
}

/* Whether no node was made or ran between these. */
static bool
is_one_node(const ml_event *a, const ml_event *b)
{
    return a->autograd_thread == b->autograd_thread && a->sequence == b->sequence &&
           a->next_thread == b->next_thread && a->next == b->next;
}

/* ---- The whole ---- */

static uint32_t
find_last(const uint8_t *marks, size_t count)
{
    while (count > 0 && ((marks[count - 1] & ML_MARK_ALLOC) == 0 ||
                         (marks[count - 1] & ML_MARK_PHASE) == ML_PHASE_OTHER)) {
        count--;
    }
    return (uint32_t)count;
}

/* Whether LIFE, of SIZE, may be a product's: the event after its allocation frees it. */
static bool
may_be_products(const ml_lifetime *life, uint64_t size)
{
    return (ml_workspace_has_size(size) || size == ML_WORKSPACE_LIGHT) &&
           life->birth != 0 && life->requested == life->birth + 1;
}

void
ml_workspaces_fini(ml_workspaces *of)
{
    ml_free(of->list);
    ml_free(of->cleared);
    ml_intern_fini(&of->products);
    ml_free(of->nodes);
    *of = (ml_workspaces){0};
}

static bool
is_among_cleared(const ml_workspaces *of, uint64_t row)
{
    return of->cleared_count != 0 && bsearch(&row, of->cleared, of->cleared_count,
                                             sizeof(row), ml_compare_u64) != NULL;
}

bool
ml_workspaces_keep(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    bool before = life->birth == 0;
    if (before && life->earlier >= lifetimes->earlier_count) {
        return false;
    }
    size_t row = before ? life->earlier : ml_lifetimes_row(lifetimes, life->birth - 1);
    for (size_t i = 0; i < of->count; i++) {
        if (of->list[i].row == row) {
            return true;
        }
    }
    return is_among_cleared(of, row);
}

static bool
is_generators(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_recording *recording = of->recording;
    const ml_events *events = &of->lifetimes->trace->events;
    size_t own = life->birth - 1;
    uint64_t bytes = ml_events_size(events, own);
    uint32_t stack = ml_events_stack(events, own);
    if (!ml_workspaces_last(of, life->requested) || bytes == 0 ||
        bytes % ML_WORKSPACE_GENERATORS != 0 || stack == 0) {
        return false;
    }
    return ml_string_holds(ml_stack_file(recording, stack), "torch/nn/modules/rnn.py");
}

bool
ml_workspaces_hold(const ml_workspaces *of, const ml_lifetime *life)
{
    return ml_workspaces_keep(of, life) || is_generators(of, life);
}

/* Index + 1 of the last allocation or free before event INDEX; 0: none.  A cache that grows
 * or shrinks lies between an operation's allocations. */
static size_t
block_before(const ml_events *events, size_t index)
{
    while (index > 0) {
        uint8_t action = ml_events_action(events, index - 1);
        if (action == ML_ACTION_ALLOC || ml_action_frees_block(action)) {
            return index;
        }
        index--;
    }
    return 0;
}

/* Whether the Python code of these stacks is at one line; frames of C++ may differ. */
static bool
is_one_line(const ml_workspaces *of, uint32_t stack, uint32_t other)
{
    ml_standing line = of->facts->of[stack].inner;
    const ml_frame *a = &of->recording->frames[line.frame];
    const ml_frame *b = &of->recording->frames[of->facts->of[other].inner.frame];
    return stack == other || (line.place < ML_PLACE_NATIVE && a->line == b->line &&
                              a->filename == b->filename);
}

/* Whether allocation RESULT is of the operation of MADE, which LIFE ends, and lives on. */
static bool
is_result(const ml_workspaces *of, size_t result, const ml_event *made,
          const ml_lifetime *life)
{
    const ml_events *events = &of->lifetimes->trace->events;
    if (ml_events_action(events, result) != ML_ACTION_ALLOC) {
        return false;
    }
    ml_event own = ml_events_at(events, result);
    size_t row = ml_lifetimes_row(of->lifetimes, result);
    return is_one_line(of, made->stack, own.stack) && made->stream == own.stream &&
           made->autograd_thread == own.autograd_thread &&
           made->sequence == own.sequence &&
           of->lifetimes->rows[row].requested > life->requested;
}

/* Whether LIFE may be a product's; *MADE becomes its allocation. */
static bool
is_gone_at_once(const ml_workspaces *of, const ml_lifetime *life, ml_event *made)
{
    const ml_events *events = &of->lifetimes->trace->events;
    if (life->birth == 0 ||
        !may_be_products(life, ml_events_size(events, life->birth - 1))) {
        return false;
    }
    *made = ml_events_at(events, life->birth - 1);
    return true;
}

bool
ml_workspaces_follow_result(const ml_workspaces *of, const ml_lifetime *life)
{
    ml_event made;
    if (!is_gone_at_once(of, life, &made)) {
        return false;
    }
    size_t before = block_before(&of->lifetimes->trace->events, life->birth - 1);
    return before != 0 && is_result(of, before - 1, &made, life);
}

/* Whether a product that made a block of SIZE and freed it at once shows that torch keeps none.
 * Before torch 2.15, whose snapshots have another key, cuBLASLt's is kept: a block of its size is
 * something else. */
static bool
tells_products(const ml_workspaces *of, uint64_t size)
{
    return ml_workspace_has_size(size) ||
           (size == ML_WORKSPACE_LIGHT &&
            (of->recording->keys & ML_KEY_INTERNAL_METADATA) != 0);
}

bool
ml_workspaces_in_product(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_events *events = &of->lifetimes->trace->events;
    size_t before = life->birth != 0 ? block_before(events, life->birth - 1) : 0;
    if (before == 0 || ml_events_action(events, before - 1) != ML_ACTION_ALLOC) {
        return false;
    }
    ml_event made = ml_events_at(events, life->birth - 1);
    ml_event result = ml_events_at(events, before - 1);
    return is_in_product(of, &made) && is_one_node(&made, &result) &&
           made.stream == result.stream && is_one_line(of, made.stack, result.stack);
}

/* Whether torch makes a workspace of cuBLAS's for each product, and so keeps none.  Without PASSES
 * no nodes tell products. */
static bool
makes_for_products(const ml_workspaces *of, bool passes)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    for (size_t i = lifetimes->earlier_count; i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        ml_event made;
        if (is_gone_at_once(of, life, &made) && tells_products(of, made.size) &&
            (!passes || is_in_product(of, &made)) &&
            ml_workspaces_follow_result(of, life)) {
            return true;
        }
    }
    return false;
}

/* Outside modules a tensor of the size may be there before: has KEPT be the first that a product
 * made instead, if there is one. */
static void
prefer_products(const ml_workspaces *of, ml_kept_workspace *kept)
{
    const ml_lifetimes *lifetimes = of->lifetimes;
    if (kept->size != ML_WORKSPACE_EVEN || kept->phase != ML_PHASE_OTHER ||
        ml_workspaces_in_product(of, &lifetimes->rows[kept->row])) {
        return;
    }
    for (size_t i = kept->row + 1; i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        if (life->birth == 0 ||
            ml_events_size(&lifetimes->trace->events, life->birth - 1) != kept->size) {
            continue;
        }
        ml_event made = ml_events_at(&lifetimes->trace->events, life->birth - 1);
        if (made.stream == kept->stream && made.thread == kept->thread &&
            (of->marks[life->birth - 1] & ML_MARK_PHASE) == kept->phase &&
            stays(of, i) && ml_workspaces_in_product(of, life)) {
            kept->row = i;
            return;
        }
    }
}

int
ml_workspaces_init(ml_workspaces *of, const ml_causes *causes,
                   const ml_recording *recording, size_t device,
                   const ml_lifetimes *lifetimes)
{
    const ml_device_trace *trace = lifetimes->trace;
    const uint8_t *marks = ml_causes_marks(causes, device);
    bool products = false;
    bool passes = false;
    int error = 0;
    *of = (ml_workspaces){.recording = recording,
                          .lifetimes = lifetimes,
                          .facts = ml_causes_facts(causes),
                          .signs = ml_causes_signs(causes),
                          .marks = marks,
                          .last = find_last(marks, trace->event_count)};
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(size) | ML_EVENT_BIT(stream) |
                             ML_EVENT_BIT(thread));
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        if ((marks[i] & ML_MARK_ALLOC) == 0) {
            continue;
        }
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        size_t row = ml_lifetimes_row(lifetimes, i);
        products = products || may_be_products(&lifetimes->rows[row], event->size);
        uint8_t phase = marks[i] & ML_MARK_PHASE;
        passes = passes || phase == ML_PHASE_BACKWARD;
        if (is_of_size(event->size, phase)) {
            error = keep_first(of, event, row, phase);
        }
    }
    error = error == 0 && (products || of->count != 0) ? keep_nodes(of) : error;
    if (error == 0 && products && makes_for_products(of, passes)) {
        of->count = of->cleared_count = 0;
        return 0;
    }
    for (size_t i = 0; error == 0 && i < of->count; i++) {
        prefer_products(of, &of->list[i]);
    }
    return error == 0 ? keep_earlier(of, passes) : error;
}

bool
ml_workspaces_of_product(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_events *events = &of->lifetimes->trace->events;
    ml_event made;
    if (!is_gone_at_once(of, life, &made)) {
        return false;
    }
    if (made.size == ML_WORKSPACE_ODD) {
        return true;
    }
    size_t before = block_before(events, life->birth - 1);
    bool result = before != 0 && is_result(of, before - 1, &made, life);
    if (result && made.size == ML_WORKSPACE_EVEN) {
        return true;
    }
    if (!is_in_product(of, &made)) {
        return false;
    }
    if (result || before == 0) {
        return true;
    }
    /* The first of its node: the product goes into a tensor that exists. */
    ml_event other = ml_events_at(events, before - 1);
    return !is_one_node(&made, &other);
}
