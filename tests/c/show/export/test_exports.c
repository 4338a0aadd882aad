/* Texts, tables and traces of a recording: every failure of memory, and sizes beyond
 * all sums; what they say is tested in tests/export/. */
#include "file/snapshot/pickle_writer.h"
#include "file/snapshot/snapshot_reader.h"
#include "ledger/replay/event_filter.h"
#include "picture_samples.h"
#include "show/draw/flame.h"
#include "show/draw/torch_segsum.h"
#include "show/draw/torch_trace.h"
#include "show/export/perfetto.h"
#include "show/export/stack_text.h"
#include "show/export/recording_tables.h"
#include "test.h"

static int
append(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

static int
write_perfetto(const ml_recording *recording, ml_buffer *out)
{
    return ml_perfetto_write(recording, append, out);
}

static int
write_tables(const ml_recording *recording, ml_buffer *out)
{
    int error = 0;
    for (unsigned kind = 0; kind < ML_RECORDING_TABLE_COUNT && error == 0; kind++) {
        ml_column_table table;
        error = ml_recording_tables_make(&table, recording,
                                         (enum ml_recording_table_kind)kind, 0);
        for (size_t i = 0; i < table.column_count && error == 0; i++) {
            ml_buffer_append(out, table.columns[i].name, 1);
        }
        ml_column_table_fini(&table);
    }
    return error < 0 ? error : out->error;
}

/* Of a copy, as the method of Recording makes it. */
static int
take_excerpt(const ml_recording *recording, int (*take)(ml_recording *recording))
{
    ml_buffer file = {0};
    ml_recording *copy = NULL;
    ml_read_error error = {0};
    int code = ml_pickle_write(recording, ML_PICKLE_EXTRAS, append, &file);
    if (code == 0) {
        code = ml_snapshot_read(file.bytes, file.length, &copy, &error);
    }
    ml_buffer_fini(&file);
    if (code == 0) {
        code = take(copy);
        int valid = ml_recording_validate(copy);
        code = valid < 0 ? valid : code;
    }
    ml_recording_free(copy);
    return code;
}

static int
take_unfreed(const ml_recording *recording, ml_buffer *out)
{
    (void)out;
    return take_excerpt(recording, ml_event_filter_unfreed);
}

static int
take_segments(const ml_recording *recording, ml_buffer *out)
{
    (void)out;
    return take_excerpt(recording, ml_event_filter_segments);
}

static int
write_difference(const ml_recording *recording, ml_buffer *out)
{
    return ml_flame_difference(recording, recording, out);
}

/* All that one has and the other has not. */
static int
fold_difference(const ml_recording *recording, ml_buffer *out)
{
    ml_recording *nothing = NULL;
    int error = ml_recording_new(&nothing);
    if (error == 0) {
        error = ml_flame_folded_difference(recording, nothing, out);
    }
    ml_recording_free(nothing);
    return error;
}

static int
write_folded(const ml_recording *recording, ml_buffer *out)
{
    return ml_stack_folded(recording, ML_ALL_DEVICES, out);
}

static int
write_speedscope(const ml_recording *recording, ml_buffer *out)
{
    return ml_stack_speedscope(recording, ML_ALL_DEVICES, out);
}

static const sample_writer writers[] = {
    ml_torch_segsum,  ml_torch_trace,  write_perfetto, write_tables,
    take_unfreed,     take_segments,   write_folded,   write_speedscope,
    write_difference, fold_difference,
};

#define WRITERS (sizeof(writers) / sizeof(*writers))

/* Two segments, the second mapped while recording; a block of each stays, two go; a
 * phase, a step and a mark. */
static void
little(sample *f)
{
    sample_begin(f);
    uint32_t outer = sample_call(f->recording, 0, "/u/train.py", 12, "main", NULL);
    uint32_t inner = sample_call(f->recording, outer, "/u/model.py", 7, "step", NULL);
    sample_segment(f, BASE, 0);
    sample_block(f, MIB, MIB, ML_BLOCK_ALLOCATED, outer);
    sample_block(f, 31 * MIB, 0, ML_BLOCK_INACTIVE, 0);
    sample_segment(f, BASE + 64 * MIB, 5)->expandable = 1;
    sample_block(f, MIB, MIB - 100, ML_BLOCK_ALLOCATED, inner);
    sample_block(f, 19 * MIB, 0, ML_BLOCK_INACTIVE, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, MIB, outer);
    sample_event(f, ML_ACTION_SEGMENT_MAP, BASE + 64 * MIB, 20 * MIB, inner);
    sample_event(f, ML_ACTION_ALLOC, BASE + 64 * MIB, MIB - 100, inner);
    for (int i = 0; i < 2; i++) {
        sample_event(f, ML_ACTION_ALLOC, BASE + MIB, 512, inner);
        sample_event(f, ML_ACTION_FREE_REQUESTED, BASE + MIB, 512, 0);
        sample_event(f, ML_ACTION_FREE_COMPLETED, BASE + MIB, 512, 0);
    }
    sample_event(f, ML_ACTION_OOM, 1, MIB, inner);
    static const uint8_t kinds[] = {ML_NOTE_PHASE_BEGIN, ML_NOTE_MARK,
                                    ML_NOTE_PHASE_END, ML_NOTE_STEP};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        f->notes[f->recording->note_count++] =
            (ml_note){.time = 1000 * i, .kind = kinds[i], .device = -1};
    }
}

static void
test_memory_failures(void)
{
    sample f;
    little(&f);
    for (size_t i = 0; i < WRITERS; i++) {
        ml_buffer out = {0};
        CHECK_INT(writers[i](f.recording, &out), 0);
        ml_buffer_fini(&out);
        ml_recording_detach(f.recording);
        CHECK(sample_failures(&f, writers[i]) > 2);
    }
    sample_end(&f);
}

/* What a file may say: addresses and sizes up to the last. */
static void
test_sizes_beyond_all_sums(void)
{
    sample f;
    little(&f);
    uint64_t large = UINT64_C(1) << 63;
    f.segments[1].addr = large;
    f.segments[1].total = large - 1;
    f.blocks[2] = (ml_block){
        .addr = large, .size = large - 1, .requested = 3, .state = ML_BLOCK_ALLOCATED};
    f.segments[1].block_count = 1;
    f.device.block_count = 3;
    f.events[1].addr = f.events[2].addr = large;
    f.events[1].size = f.events[2].size = large - 1;
    for (size_t i = 0; i < 3; i++) {
        sample_event(&f, ML_ACTION_SEGMENT_ALLOC, large, large - 1, 0);
        sample_event(&f, ML_ACTION_ALLOC, large + i, large - 1 - i, 0);
    }
    CHECK_INT(ml_recording_validate(f.recording), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        ml_buffer out = {0};
        CHECK_INT(writers[i](f.recording, &out), 0);
        ml_buffer_fini(&out);
    }
    sample_end(&f);
}

static void
test_nothing(void)
{
    sample f;
    sample_begin(&f);
    for (size_t i = 0; i < WRITERS; i++) {
        ml_buffer out = {0};
        CHECK_INT(writers[i](f.recording, &out), 0);
        ml_buffer_fini(&out);
    }
    sample_end(&f);
}

/* Runs of pages that lie across one another in all ways would be cut into a square of
 * pieces. */
static void
test_pieces_have_a_limit(void)
{
    enum {
        RUNS = 3000
    };
    ml_recording *recording;
    CHECK_INT(ml_recording_new(&recording), 0);
    recording->devices = ml_alloc_zeroed(1, sizeof(ml_device_trace));
    recording->device_count = 1;
    ml_event *events = ml_alloc_zeroed(RUNS, sizeof(*events));
    recording->devices[0].events.plain = events;
    recording->devices[0].event_count = RUNS;
    for (size_t i = 0; i < RUNS; i++) {
        events[i] = (ml_event){
            .addr = BASE - i, .size = 2 * i + 1, .action = ML_ACTION_SEGMENT_MAP};
    }
    CHECK_INT(ml_event_filter_segments(recording), ML_ELIMIT);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_memory_failures);
    RUN(test_sizes_beyond_all_sums);
    RUN(test_nothing);
    RUN(test_pieces_have_a_limit);
    return TEST_RESULT();
}
