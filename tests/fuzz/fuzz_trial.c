/* libFuzzer target: any bytes as a snapshot file, replayed in the model of the allocator.
 *
 * Whatever a recording says, a trial of it ends, and its figures hold together.  Build and
 * run, with a few pickles of small snapshots in CORPUS:
 *
 *   clang -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -pthread \
 *       -Icsrc/core tests/fuzz/fuzz_trial.c csrc/core/?*.c -o /tmp/fuzz_trial
 *   /tmp/fuzz_trial -max_len=8192 -timeout=5 -rss_limit_mb=512 CORPUS
 */
#include <stdlib.h>

#include "base/base.h"
#include "file/snapshot/snapshot_reader.h"
#include "lab/whatif/whatif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
demand(int condition)
{
    if (!condition) {
        abort();
    }
}

static void
look_at(const ml_recording *recording, size_t device, const char *conf, uint64_t memory)
{
    ml_whatif *whatif;
    int error = ml_whatif_new(recording, device, conf, memory,
                              ML_WHATIF_RECORDED_FRACTION, &whatif, NULL, 0);
    if (error != 0) {
        demand(error < 0 && error != ML_EINVALID);
        return;
    }
    const ml_trial_result *result = &whatif->result;
    const ml_totals *peak = &result->peak;
    demand(peak->allocated <= peak->active && peak->active <= peak->reserved);
    demand(result->at_reserved_peak.reserved == peak->reserved);
    demand(whatif->low <= peak->reserved && peak->reserved <= whatif->high);
    demand(result->oom_event == ML_NO_EVENT ||
           result->oom_event < recording->devices[device].event_count);
    demand(memory == ML_WHATIF_RECORDED || peak->reserved <= memory);
    ml_whatif_free(whatif);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    if (ml_snapshot_read(data, size, &recording, &error) != 0) {
        return 0;
    }
    for (size_t d = 0; d < recording->device_count; d++) {
        look_at(recording, d, NULL, ML_WHATIF_RECORDED);
        look_at(recording, d, "expandable_segments:True", ML_WHATIF_RECORDED);
        look_at(recording, d, "max_split_size_mb:20,garbage_collection_threshold:0.5",
                UINT64_C(64) << 20);
    }
    ml_recording_free(recording);
    return 0;
}
