/* Memory by script for line tables. */
#ifndef ML_TEST_LINES_SAMPLES_H
#define ML_TEST_LINES_SAMPLES_H

#include "inspect/lines.h"
#include "record/recorder.h"
#include "record/script.h"

#define MIB (UINT64_C(1) << 20)
#define LARGE UINT64_C(0x700000000000)
#define SMALL UINT64_C(0x710000000000)
#define LARGE_SLOTS 8
#define SMALL_SLOTS 16
#define SLOTS (LARGE_SLOTS + SMALL_SLOTS)

static inline uint32_t
walk(void *stacks, uint8_t *flags)
{
    (void)stacks;
    *flags |= ML_EVENT_NO_PYTHON;
    return 0;
}

static inline void
emit(unsigned action, uint64_t addr, uint64_t size)
{
    static uint64_t clock_ns;
    ml_event event = {.action = (uint8_t)action, .addr = addr, .size = size};
    event.time = clock_ns += 1000;
    ml_script_emit(0, &event, NULL);
}

static inline const ml_source *
script(void)
{
    return ml_recorder_source("script");
}

static inline ml_window *
start(void)
{
    ml_window_options options = {
        .max_entries = 1, .context = ML_CONTEXT_NONE, .meter = true, .device = -1};
    ml_window *window = NULL;
    return ml_window_start(script(), &options, &window) == 0 ? window : NULL;
}

static inline uint64_t
figure(const uint64_t *figures, int count)
{
    return figures[ml_meter_stat(ML_METER_STAT_ALL, count)];
}

static inline const ml_line_row *
row_at(const ml_lines_function *function, uint32_t line)
{
    size_t count;
    ml_line_row *const *rows = ml_lines_rows(function, &count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i]->line == line) {
            return rows[i];
        }
    }
    return NULL;
}

#endif
