/* Recordings to files on the scripted source, and files read back: what the tests of the
 * journal and of the reader share. */
#ifndef ML_TEST_JOURNAL_SAMPLES_H
#define ML_TEST_JOURNAL_SAMPLES_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "file/mlab/mlab_reader.h"
#include "record/recorder.h"
#include "record/script.h"

#define MIB (UINT64_C(1) << 20)
#define SEGMENT UINT64_C(0x700000000000)

static __thread uint32_t next_line; /* what the walker claims to see; 0: nothing */

/* Two frames: main, which calls the function that the line lies in. */
static inline uint32_t
sample_walk(void *stacks, uint8_t *flags)
{
    if (next_line == 0) {
        *flags |= ML_EVENT_NO_PYTHON;
        return 0;
    }
    ml_frame_key outer = {.code = 1, .fingerprint = 1, .offset = 7};
    ml_code_text outer_text = {.name = {"main", 4}, .filename = {"train.py", 8}};
    ml_frame_key inner = {.code = 2, .fingerprint = 2, .offset = next_line};
    ml_code_text inner_text = {.name = {"step", 4}, .filename = {"model.py", 8}};
    uint32_t stack = ml_stacks_add(stacks, 0, &outer, &outer_text);
    return ml_stacks_add(stacks, stack, &inner, &inner_text);
}

static inline void
sample_emit(int device, unsigned action, uint64_t addr, uint64_t size, uint32_t line)
{
    static _Atomic uint64_t clock_ns = 1000;
    next_line = line;
    ml_event event = {.action = (uint8_t)action, .addr = addr, .size = size};
    event.time = atomic_fetch_add(&clock_ns, 1000) + 1000;
    ml_script_emit(device, &event, NULL);
}

static inline void
sample_free(int device, uint64_t addr, uint64_t size, uint32_t line)
{
    sample_emit(device, ML_ACTION_FREE_REQUESTED, addr, size, line);
    sample_emit(device, ML_ACTION_FREE_COMPLETED, addr, size, line);
}

/* A path of this test's own in a folder that goes with it. */
static inline const char *
sample_path(const char *name)
{
    static char folder[] = "/tmp/memlab-test-XXXXXX";
    static char path[256];
    static int made;
    if (!made) {
        made = mkdtemp(folder) != NULL;
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* As sample_path("") left it: every file in it is removed by its test. */
static inline void
sample_remove_folder(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s", sample_path(""));
    path[strlen(path) - 1] = '\0';
    rmdir(path);
}

static inline int
sample_start_limited(const char *path, uint64_t bytes, ml_window **out)
{
    ml_window_options options = {.max_entries = 1000,
                                 .context = ML_CONTEXT_ALL,
                                 .keep_events = true,
                                 .device = -1,
                                 .file = path,
                                 .file_bytes = bytes};
    return ml_window_start(ml_recorder_source("script"), &options, out);
}

static inline ml_window *
sample_start(const char *path)
{
    ml_window *window = NULL;
    return sample_start_limited(path, UINT64_MAX, &window) == 0 ? window : NULL;
}

static inline ml_recording *
sample_read(const char *path, ml_mlab_info *info)
{
    ml_recording *recording = NULL;
    ml_mlab_input input;
    ml_read_error error;
    int descriptor = open(path, O_RDONLY);
    if (descriptor >= 0 && ml_mlab_input_of(&input, &descriptor) == 0 &&
        ml_mlab_read(&input, &recording, info, &error) < 0) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        recording = NULL;
    }
    close(descriptor);
    return recording;
}

#endif
