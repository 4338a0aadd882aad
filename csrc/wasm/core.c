/* The core as WebAssembly: the bytes of a file in, the data of a page out.
 *
 * Owns one file at a time and what was made of it, for memlab/viewer/drop.js, which
 * calls these functions by name.  It imports nothing: what runs it lends it memory. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/base.h"
#include "core/file/mlab/mlab_reader.h"
#include "core/file/snapshot/snapshot_reader.h"
#include "core/recording/annotations.h"
#include "core/show/page/page_data.h"
#include "core/show/text/json.h"
#include "core/show/text/verdict_text.h"

#define EXPORT(name) __attribute__((export_name(name), visibility("default")))

static struct {
    char *bytes; /* of the file; owned */
    size_t capacity;
    ml_page_data page;
    ml_buffer verdicts; /* JSON; owned */
    ml_read_error error;
} state;

/* Room for BYTES of the file, of which what was written stays; NULL: out of memory. */
EXPORT("file")
char *
wasm_file(size_t bytes)
{
    void *file = ml_realloc(state.bytes, bytes);
    if (file != NULL) {
        state.bytes = file;
    }
    return file;
}

/* Forgets the file and what was made of it. */
EXPORT("close")
void
wasm_close(void)
{
    ml_free(state.bytes);
    ml_page_data_fini(&state.page);
    ml_buffer_fini(&state.verdicts);
    memset(&state, 0, sizeof(state));
}

typedef struct span {
    const char *bytes;
    size_t length;
} span;

static int
read_span(void *context, uint64_t offset, void *to, size_t length)
{
    const span *from = context;
    if (offset > from->length || length > from->length - offset) {
        return ML_EIO;
    }
    memcpy(to, from->bytes + offset, length);
    return 0;
}

static int
read_mlab(size_t length, ml_recording **recording)
{
    span from = {state.bytes, length};
    ml_mlab_input input = {.context = &from, .bytes = length, .read = read_span};
    ml_mlab_info info = {0};
    int result = ml_mlab_read(&input, recording, &info, &state.error);
    ml_mlab_info_fini(&info);
    return result == 0 ? ml_annotations_add_notes(*recording) : result;
}

static int
put_verdict(ml_buffer *out, const ml_recording *recording, size_t device)
{
    const ml_recording *part = ml_recording_part(recording, &device);
    ml_run_verdict *verdict = NULL;
    bool tries = ml_run_verdict_tries(part, device);
    int result = ml_run_verdict_new(part, device, tries, &verdict);
    if (result == 0) {
        ml_verdict_words words = {part, verdict, ""};
        ml_json_next(out);
        ml_verdict_json(out, &words);
        ml_run_verdict_free(verdict);
    }
    return result == 0 ? out->error : result;
}

/* The verdict on each device, as lines by index. */
static int
put_verdicts(ml_buffer *out, const ml_recording *recording)
{
    int result = 0;
    ml_json_text(out, "[");
    for (size_t i = 0; i < recording->device_count && result == 0; i++) {
        result = put_verdict(out, recording, i);
    }
    ml_json_text(out, "]");
    return result == 0 ? out->error : result;
}

/* The first LENGTH bytes of the file as a page.  0, or an error that error() tells. */
EXPORT("open")
int
wasm_open(size_t length)
{
    ml_recording *recording = NULL;
    int result = ml_mlab_is(state.bytes, length)
                     ? read_mlab(length, &recording)
                     : ml_snapshot_read(state.bytes, length, &recording, &state.error);
    ml_free(state.bytes);
    state.bytes = NULL;
    if (result == 0) {
        result = put_verdicts(&state.verdicts, recording);
    }
    if (result == 0) {
        result = ml_page_data_make(&state.page, recording, NULL);
    }
    ml_recording_free(recording);
    if (result != 0 && (state.error.code == 0 || result == ML_ENOMEM)) {
        ml_read_fail(&state.error, result, 0, "%s", ml_strerror(result));
    }
    return result;
}

/* Text that a NUL ends. */
EXPORT("error")
const char *
wasm_error(void)
{
    return state.error.text;
}

/* Blobs by number; the head is number -1, the verdicts are number -2. */
static const ml_buffer *
part(int32_t number)
{
    return number == -2 ? &state.verdicts
           : number < 0 ? &state.page.head
                        : &state.page.blobs[number];
}

EXPORT("count")
size_t
wasm_count(void)
{
    return state.page.blob_count;
}

EXPORT("part")
const char *
wasm_part(int32_t number)
{
    return part(number)->bytes;
}

EXPORT("bytes")
size_t
wasm_bytes(int32_t number)
{
    return part(number)->length;
}
