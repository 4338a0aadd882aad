/* Held and unheld memory of recordings worked out by hand, and of the scripted source as
 * it is now. */
#include "analysis/answers/unheld.h"

#include <stdlib.h>

#include "budget.h"
#include "record/current_memory.h"
#include "record/recorder.h"
#include "record/script.h"
#include "recording_samples.h"
#include "source_samples.h"
#include "test.h"
#include "plain_events.h"

#define BASE UINT64_C(0x7f0000000000)
#define OTHER UINT64_C(0x7f0000400000)
#define MIB (UINT64_C(1) << 20)

typedef struct fixture {
    sample made;
    ml_unheld *unheld;
} fixture;

static void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
}

static void
tear_down(fixture *f)
{
    ml_unheld_free(f->unheld);
    sample_end(&f->made);
}

/* A segment of no bytes, to which blocks are added. */
static ml_segment *
add_segment(fixture *f, uint64_t addr)
{
    ml_segment *segment = &f->made.segments[f->made.device.segment_count++];
    *segment = (ml_segment){
        .addr = addr, .small = 1, .first_block = f->made.device.block_count};
    return segment;
}

static void
add_block(fixture *f, ml_segment *segment, uint64_t size, uint8_t state)
{
    f->made.blocks[f->made.device.block_count++] = (ml_block){
        .addr = segment->addr + segment->total,
        .size = size,
        .requested = state == ML_BLOCK_INACTIVE ? 0 : size,
        .state = state,
    };
    segment->total += size;
    segment->block_count++;
}

static void
add_alloc(fixture *f, uint64_t addr, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(&f->made, ML_ACTION_ALLOC, addr, size, stack);
    event->block_bytes = size;
    event->flags = ML_EVENT_BLOCK_KNOWN | ML_EVENT_CONTEXT;
    event->autograd_thread = 1;
}

static int
ask(fixture *f, const ml_claim *claims, size_t count)
{
    ml_unheld_free(f->unheld);
    f->unheld = NULL;
    return ml_unheld_new(f->made.recording, 0, claims, count, &f->unheld);
}

/* 512 and 1024 allocated, 512 awaiting its free, 2048 free; and a free segment. */
static void
add_memory(fixture *f)
{
    ml_segment *small = add_segment(f, BASE);
    add_block(f, small, 512, ML_BLOCK_ALLOCATED);
    add_block(f, small, 1024, ML_BLOCK_ALLOCATED);
    add_block(f, small, 512, ML_BLOCK_PENDING_FREE);
    add_block(f, small, 2048, ML_BLOCK_INACTIVE);
    add_block(f, add_segment(f, OTHER), 4096, ML_BLOCK_INACTIVE);
}

static void
test_without_claims_all_that_is_allocated_is_unheld(void)
{
    fixture f;
    set_up(&f);
    add_memory(&f);
    CHECK_INT(ask(&f, NULL, 0), 0);
    CHECK_UINT(f.unheld->reserved, 8192);
    CHECK_UINT(f.unheld->allocated, 1536);
    CHECK_UINT(f.unheld->awaiting, 512);
    CHECK_UINT(f.unheld->cached, 6144);
    CHECK_UINT(f.unheld->remainders, 2048);
    CHECK_UINT(f.unheld->held, 0);
    CHECK_UINT(f.unheld->unheld, 1536);
    CHECK_UINT(f.unheld->unheld_blocks, 2);
    CHECK_INT(f.unheld->row_count, 1);
    CHECK_UINT(f.unheld->rows[0].line.bytes, 1536);
    CHECK_INT(f.unheld->rows[0].line.no_line, ML_NO_LINE_BEFORE);
    tear_down(&f);
}

static void
test_claims_hold_the_block_they_begin_in_and_cover_each_byte_once(void)
{
    fixture f;
    set_up(&f);
    add_memory(&f);
    /* Two views of one storage, one claim that begins within the other, one that passes
     * the block's end, and one that claims nothing. */
    const ml_claim claims[] = {
        {BASE + 700, 200}, {BASE + 512, 100},  {BASE + 512, 300},
        {BASE, 0},         {BASE + 1500, 400},
    };
    CHECK_INT(ask(&f, claims, 5), 0);
    CHECK_UINT(f.unheld->held, 1024);
    CHECK_UINT(f.unheld->held_blocks, 1);
    /* 512 to 900 and 1500 to 1536 */
    CHECK_UINT(f.unheld->claimed, 388 + 36);
    CHECK_UINT(f.unheld->slack, 1024 - 388 - 36);
    CHECK_UINT(f.unheld->unheld, 512);
    CHECK_UINT(f.unheld->outside_claims, 0);
    tear_down(&f);
}

static void
test_claims_in_no_allocated_block_are_outside(void)
{
    fixture f;
    set_up(&f);
    add_memory(&f);
    const ml_claim claims[] = {
        {BASE + 1536, 512}, /* awaiting its free */
        {OTHER, 100},       /* free */
        {64, 1000},         /* elsewhere, and twice in part */
        {564, 1000},        {UINT64_MAX - 10, 100},
    };
    CHECK_INT(ask(&f, claims, 5), 0);
    CHECK_UINT(f.unheld->held, 0);
    CHECK_UINT(f.unheld->outside_claims, 5);
    CHECK_UINT(f.unheld->outside, 512 + 100 + 1500 + 10);
    tear_down(&f);
}

static void
test_a_device_that_is_not_there_holds_nothing(void)
{
    fixture f;
    set_up(&f);
    const ml_claim claim = {BASE, 100};
    CHECK_INT(ml_unheld_new(f.made.recording, 3, &claim, 1, &f.unheld), 0);
    CHECK_UINT(f.unheld->reserved, 0);
    CHECK_UINT(f.unheld->outside, 100);
    CHECK_INT(f.unheld->row_count, 0);
    tear_down(&f);
}

static void
test_rows_name_the_line_the_module_and_the_pool(void)
{
    fixture f;
    set_up(&f);
    uint32_t train = sample_call(f.made.recording, 0, "/u/train.py", 7, "train", NULL);
    uint32_t call = sample_call(f.made.recording, train,
                                "/v/site-packages/torch/nn/modules/module.py", 100,
                                "_call_impl", "net.up");
    uint32_t up = sample_call(f.made.recording, call, "/u/net.py", 20, "forward", NULL);
    ml_segment *small = add_segment(&f, BASE);
    add_block(&f, small, 512, ML_BLOCK_ALLOCATED);
    add_block(&f, small, 1024, ML_BLOCK_ALLOCATED);
    add_block(&f, small, 2 * MIB - 1536, ML_BLOCK_INACTIVE);
    ml_segment *pool = add_segment(&f, OTHER);
    pool->pool[1] = 3;
    add_block(&f, pool, 512, ML_BLOCK_ALLOCATED);
    add_block(&f, pool, 2 * MIB - 512, ML_BLOCK_INACTIVE);
    add_alloc(&f, BASE, 512, train);
    add_alloc(&f, BASE + 512, 1024, up);
    add_alloc(&f, OTHER, 512, train);
    CHECK_INT(ask(&f, NULL, 0), 0);
    CHECK_INT(f.unheld->row_count, 3);
    const ml_unheld_row *rows = f.unheld->rows;
    CHECK_UINT(rows[0].line.bytes, 1024);
    CHECK_INT(rows[0].line.line, 20);
    CHECK_STR(rows[0].line.module, "net.up");
    CHECK_INT(rows[0].keeper, ML_KEEPER_UNKNOWN);
    CHECK_INT(rows[1].line.line, 7);
    CHECK_INT(rows[2].line.line, 7);
    CHECK_INT(rows[1].keeper, ML_KEEPER_UNKNOWN);
    CHECK_INT(rows[2].keeper, ML_KEEPER_POOL);
    CHECK_UINT(rows[2].pool[1], 3);
    const ml_claim claim = {BASE + 512, 1024};
    CHECK_INT(ask(&f, &claim, 1), 0);
    CHECK_INT(f.unheld->row_count, 2);
    CHECK_UINT(f.unheld->unheld, 1024);
    tear_down(&f);
}

static void
test_a_workspace_has_its_name_without_a_recording(void)
{
    fixture f;
    set_up(&f);
    ml_segment *alone = add_segment(&f, BASE);
    add_block(&f, alone, 8519680, ML_BLOCK_ALLOCATED);
    add_block(&f, alone, 4096, ML_BLOCK_ALLOCATED);
    ml_segment *pool = add_segment(&f, OTHER);
    pool->pool[1] = 3;
    add_block(&f, pool, 8519680, ML_BLOCK_ALLOCATED);
    CHECK_INT(ask(&f, NULL, 0), 0);
    CHECK_INT(f.unheld->row_count, 3);
    const ml_unheld_row *rows = f.unheld->rows;
    CHECK_UINT(rows[0].line.bytes, 8519680);
    CHECK_INT(rows[0].keeper, ML_KEEPER_WORKSPACE);
    CHECK_INT(rows[1].keeper, ML_KEEPER_POOL);
    CHECK_INT(rows[2].keeper, ML_KEEPER_UNKNOWN);
    tear_down(&f);
}

static void
test_every_failed_allocation_is_an_error_and_leaves_nothing(void)
{
    fixture f;
    set_up(&f);
    add_memory(&f);
    const ml_claim claim = {BASE, 100};
    int result = ML_ENOMEM;
    for (long budget = 0; result == ML_ENOMEM; budget++) {
        budget_begin(budget);
        result = ml_unheld_new(f.made.recording, 0, &claim, 1, &f.unheld);
        if (result == 0) {
            ml_unheld_free(f.unheld);
            f.unheld = NULL;
        }
        ml_recording_detach(f.made.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    CHECK_INT(result, 0);
    tear_down(&f);
}

/* ---- Memory as it is now ---- */

static uint64_t script_time;

static void
emit(int device, enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event event = {
        .action = (uint8_t)action, .addr = addr, .size = size, .time = ++script_time};
    ml_script_emit(device, &event, NULL);
}

static const ml_source *
script(void)
{
    ml_recorder_init(NULL);
    ml_script_register();
    ml_script_reset(NULL);
    emit(0, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);
    emit(0, ML_ACTION_ALLOC, BASE, 512);
    return ml_recorder_source("script");
}

static ml_window *
start(const ml_source *source, enum ml_context context, bool keep_events)
{
    ml_window_options options = {.max_entries = 100,
                                 .context = context,
                                 .keep_events = keep_events,
                                 .device = -1};
    ml_window *window = NULL;
    return ml_window_start(source, &options, &window) == 0 ? window : NULL;
}

static void
test_memory_that_nobody_records(void)
{
    const ml_source *source = script();
    ml_memory_mark before, now;
    ml_recording *memory = NULL;
    bool recorded = true;
    CHECK_INT(ml_memory_mark_now(source, &before), 0);
    CHECK_INT(ml_memory_read(source, &now, &recorded, &memory), 0);
    CHECK(!recorded);
    CHECK(ml_memory_same(&before, &now, 0));
    CHECK_INT(memory->devices[0].block_count, 2);
    CHECK_UINT(memory->devices[0].blocks[0].size, 512);
    CHECK_INT(memory->devices[0].blocks[0].state, ML_BLOCK_ALLOCATED);
    ml_recording_free(memory);
    emit(0, ML_ACTION_ALLOC, BASE + 512, 512);
    CHECK_INT(ml_memory_read(source, &now, &recorded, &memory), 0);
    CHECK(!ml_memory_same(&before, &now, 0));
    CHECK(ml_memory_same(&before, &now, 1));
    ml_recording_free(memory);
}

static void
test_memory_that_came_and_went_is_seen_while_it_is_recorded(void)
{
    const ml_source *source = script();
    ml_window *window = start(source, ML_CONTEXT_NONE, true);
    ml_memory_mark before, now;
    ml_recording *memory = NULL;
    bool recorded = false;
    CHECK_INT(ml_memory_mark_now(source, &before), 0);
    CHECK_INT(ml_memory_read(source, &now, &recorded, &memory), 0);
    CHECK(recorded);
    CHECK(ml_memory_same(&before, &now, 0));
    ml_recording_free(memory);
    CHECK_INT(ml_memory_mark_now(source, &before), 0);
    emit(0, ML_ACTION_ALLOC, BASE + 512, 512);
    emit(0, ML_ACTION_FREE_REQUESTED, BASE + 512, 512);
    emit(0, ML_ACTION_FREE_COMPLETED, BASE + 512, 512);
    CHECK_INT(ml_memory_read(source, &now, &recorded, &memory), 0);
    CHECK(!ml_memory_same(&before, &now, 0));
    CHECK(ml_memory_same(&before, &now, 1));
    ml_recording_free(memory);
    ml_window_stop(window);
    /* A recording that began or ended in between leaves nothing to compare. */
    CHECK_INT(ml_memory_mark_now(source, &now), 0);
    CHECK(!ml_memory_same(&before, &now, 1));
}

/* A source of one block that counts its changes, or fails to. */
static uint64_t changes;
static int changes_result;

static int
count_changes(void *self, int device, uint64_t *out)
{
    (void)self;
    (void)device;
    *out = changes;
    return changes_result;
}

static int counting_walk(void *self, const ml_walk_visitor *visitor);

static ml_source counting = {SOURCE_SAMPLE,         .name = "counting",
                             .ordered = 1,          .walk = counting_walk,
                             .rules = source_rules, .changes = count_changes};

static int
counting_walk(void *self, const ml_walk_visitor *visitor)
{
    (void)self;
    ml_event event = {.action = ML_ACTION_SNAPSHOT};
    ml_recorder_record(&counting, 0, &event, NULL);
    ml_segment segment = {.addr = BASE, .total = 2 * MIB};
    ml_block block = {.addr = BASE,
                      .size = 2 * MIB,
                      .requested = 2 * MIB,
                      .state = ML_BLOCK_ALLOCATED};
    int result = visitor->segment(visitor->context, 0, &segment);
    return result == 0 ? visitor->block(visitor->context, 0, &block) : result;
}

static void
test_a_source_that_counts_its_changes(void)
{
    ml_recorder_init(NULL);
    ml_recorder_add_source(&counting);
    ml_memory_mark before, now;
    ml_recording *memory = NULL;
    bool recorded = true;
    CHECK_INT(ml_memory_mark_now(&counting, &before), 0);
    CHECK_INT(ml_memory_read(&counting, &now, &recorded, &memory), 0);
    CHECK(!recorded);
    CHECK(ml_memory_same(&before, &now, 0));
    ml_recording_free(memory);
    /* The block has come and gone, and lies where it lay. */
    changes += 2;
    CHECK_INT(ml_memory_read(&counting, &now, &recorded, &memory), 0);
    CHECK(!ml_memory_same(&before, &now, 0));
    ml_recording_free(memory);
    memory = NULL;
    changes_result = ML_ESOURCE;
    CHECK_INT(ml_memory_mark_now(&counting, &before), ML_ESOURCE);
    CHECK_INT(ml_memory_read(&counting, &now, &recorded, &memory), ML_ESOURCE);
    CHECK(memory == NULL);
    changes_result = 0;
}

static void
test_the_recording_that_tells_most_is_read(void)
{
    const ml_source *source = script();
    ml_window *state = start(source, ML_CONTEXT_STATE, false);
    ml_window *early = start(source, ML_CONTEXT_ALL, true);
    emit(0, ML_ACTION_ALLOC, BASE + 512, 512);
    ml_window *late = start(source, ML_CONTEXT_ALL, true);
    ml_window *bare = start(source, ML_CONTEXT_NONE, true);
    ml_memory_mark now;
    ml_recording *memory = NULL;
    bool recorded = false;
    CHECK_INT(ml_memory_read(source, &now, &recorded, &memory), 0);
    /* Only the early one has the allocation among its events. */
    bool found = false;
    for (size_t i = 0; i < memory->devices[0].event_count; i++) {
        found |= plain_events(&memory->devices[0])[i].addr == BASE + 512;
    }
    CHECK(found);
    ml_recording_free(memory);
    ml_window_stop(state);
    ml_window_stop(early);
    ml_window_stop(late);
    ml_window_stop(bare);
}

int
main(void)
{
    RUN(test_without_claims_all_that_is_allocated_is_unheld);
    RUN(test_claims_hold_the_block_they_begin_in_and_cover_each_byte_once);
    RUN(test_claims_in_no_allocated_block_are_outside);
    RUN(test_a_device_that_is_not_there_holds_nothing);
    RUN(test_rows_name_the_line_the_module_and_the_pool);
    RUN(test_a_workspace_has_its_name_without_a_recording);
    RUN(test_every_failed_allocation_is_an_error_and_leaves_nothing);
    RUN(test_memory_that_nobody_records);
    RUN(test_memory_that_came_and_went_is_seen_while_it_is_recorded);
    RUN(test_a_source_that_counts_its_changes);
    RUN(test_the_recording_that_tells_most_is_read);
    return TEST_RESULT();
}
