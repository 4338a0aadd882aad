/* The recorder's beginning and end: what one left, the next does not find. */
#include <pthread.h>

#include "afresh.h"
#include "plain_events.h"
#include "record/registry.h"
#include "record/script.h"
#include "record/window.h"

static int
begin(void)
{
    return ml_recorder_init(NULL) != 0 || ml_script_register() != 0;
}

/* A recording of one event and one note, with a meter. */
static void
record_one(void)
{
    const ml_source *script = ml_recorder_source("script");
    ml_window_options options = {
        .max_entries = 16, .keep_events = true, .meter = true, .device = -1};
    ml_note step = {.kind = ML_NOTE_STEP, .device = -1};
    ml_event alloc = {.action = ML_ACTION_ALLOC, .addr = 0x1000, .size = 512};
    ml_window *window;
    CHECK_INT(ml_window_start(script, &options, &window), 0);
    CHECK_INT(ml_script_emit(0, &alloc, NULL), 0);
    ml_recorder_note(script, &step, NULL, 0);
    ml_window_stop(window);
}

static void
test_a_fresh_one_has_seen_nothing(void)
{
    ml_recorder_stats stats;
    const ml_source *script = ml_recorder_source("script");
    CHECK(script != NULL);
    CHECK(ml_recorder_stats_of(script, 0, &stats) < 0);
    record_one();
    CHECK_INT(ml_recorder_stats_of(script, 0, &stats), 0);
    CHECK_UINT(stats.events, 1);
    CHECK_UINT(stats.current.requested, 512);

    ml_recorder_fini();
    CHECK(ml_recorder_source("script") == NULL);
    CHECK(!ml_recorder_noting());
    CHECK_INT(ml_script_emit(0, &(ml_event){.action = ML_ACTION_ALLOC}, NULL),
              ML_EINVALID);
    CHECK_INT(ml_script_reset(NULL), ML_ESTATE);

    CHECK_INT(begin(), 0);
    script = ml_recorder_source("script");
    CHECK(ml_recorder_stats_of(script, 0, &stats) < 0);
    record_one();
    CHECK_INT(ml_recorder_stats_of(script, 0, &stats), 0);
    CHECK_UINT(stats.events, 1);
    CHECK_UINT(stats.current.requested, 512);
}

static void
test_without_a_beginning_there_is_nothing_to_free(void)
{
    ml_recorder_fini();
    ml_recorder_fini();
    CHECK(ml_recorder_stacks() == NULL);
    CHECK_INT(ml_script_register(), ML_EFULL);
    CHECK(ml_recorder_source("script") == NULL);
}

static void
visit_no_frames(ml_torchscript_visitor visit, void *context)
{
    (void)visit;
    (void)context;
}

/* TorchScript programs begin before a source is registered, or after it. */
static void
test_every_source_learns_of_torchscript(void)
{
    const ml_source *script = ml_recorder_source("script");
    CHECK(atomic_load(&script->feed->torchscript) == NULL);
    ml_recorder_torchscript_begun(visit_no_frames);
    CHECK(atomic_load(&script->feed->torchscript) == visit_no_frames);
    static ml_source later;
    later = *script;
    later.name = "later";
    later.feed = NULL;
    CHECK_INT(ml_recorder_add_source(&later), 0);
    CHECK(atomic_load(&later.feed->torchscript) == visit_no_frames);
}

int
main(void)
{
    RUN_AFRESH(begin, test_a_fresh_one_has_seen_nothing);
    RUN_AFRESH(begin, test_every_source_learns_of_torchscript);
    RUN(test_without_a_beginning_there_is_nothing_to_free);
    return TEST_RESULT();
}
