/* libFuzzer target: any bytes as a snapshot file.
 *
 * What is read must be valid, what is written of it must read back to the same bytes, and
 * no line may have more than there was.  Build and run, with a few pickles of snapshots in
 * CORPUS:
 *
 *   clang -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -pthread \
 *       -Icsrc/core tests/fuzz/fuzz_snapshot.c csrc/core/?*.c -o /tmp/fuzz_snapshot
 *   /tmp/fuzz_snapshot -max_len=4096 -timeout=1 -rss_limit_mb=512 CORPUS
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stack_lines.h"
#include "base/base.h"
#include "file/snapshot/pickle_writer.h"
#include "file/snapshot/snapshot_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
sink(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

static void
demand(int condition)
{
    if (!condition) {
        abort();
    }
}

static void
look_at_lines(const ml_recording *recording, size_t device)
{
    ml_peak *peak;
    ml_stack_lines all;
    demand(ml_peak_new(recording, device, &peak) == 0);
    demand(ml_stack_lines_init(&all, recording, device, peak) == 0);
    for (size_t i = 0; i < all.count; i++) {
        const ml_stack_line_figures *figures = &all.lines[i].figures;
        demand(figures->at_peak <= peak->totals.allocated);
        demand(figures->backward <= peak->totals.allocated);
        demand(figures->peak <= peak->window_peaks.allocated);
        demand(figures->allocations <= recording->devices[device].event_count);
    }
    ml_stack_lines_fini(&all);
    ml_peak_free(peak);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    int result = ml_snapshot_read(data, size, &recording, &error);
    if (result != 0) {
        demand(recording == NULL && error.code == result && error.text[0] != '\0');
        return 0;
    }
    demand(ml_recording_validate(recording) == 0);
    for (size_t d = 0; d < recording->device_count; d++) {
        look_at_lines(recording, d);
    }
    ml_buffer first = {0};
    ml_buffer second = {0};
    demand(ml_pickle_write(recording, ML_PICKLE_EXTRAS, sink, &first) == 0);
    ml_recording_free(recording);
    result = ml_snapshot_read(first.bytes, first.length, &recording, &error);
    demand(result == 0);
    demand(ml_pickle_write(recording, ML_PICKLE_EXTRAS, sink, &second) == 0);
    ml_recording_free(recording);
    demand(first.length == second.length &&
           memcmp(first.bytes, second.bytes, first.length) == 0);
    ml_buffer_fini(&first);
    ml_buffer_fini(&second);
    return 0;
}
