/* Prints the cause of every allocation of a snapshot, and its marks: causes FILE.pickle
 *
 *   M time thread name
 *   A device index time thread bytes backward node how reason phase category module
 *     frame until stack own_stack
 *
 * Fields are parted by tabs.  A frame is file|line|function, a stack its frames,
 * innermost first, with a bell between; the stack is that which names the line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/analysis.h"
#include "base/base.h"
#include "file/snapshot/snapshot_reader.h"

static void
put_string(const ml_recording *recording, uint32_t id)
{
    ml_string text = recording->strings[id];
    fwrite(text.bytes, 1, text.length, stdout);
}

static void
put_frame(const ml_recording *recording, uint32_t id)
{
    if (id != 0) {
        put_string(recording, recording->frames[id].filename);
        printf("|%" PRId64 "|", recording->frames[id].line);
        put_string(recording, recording->frames[id].name);
    }
}

static void
put_stack(const ml_recording *recording, uint32_t stack)
{
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        put_frame(recording, recording->stacks[stack].frame);
        putchar('\a');
    }
}

static void
put_allocation(const ml_recording *recording, size_t device, size_t index,
               const ml_cause *cause, const ml_verdict *verdict)
{
    ml_event told = ml_events_at(&recording->devices[device].events, index);
    const ml_event *event = &told;
    printf("A\t%zu\t%zu\t%" PRIu64 "\t%u\t%" PRIu64 "\t%d\t", device, index,
           event->time, event->thread, event->size,
           (event->flags & ML_EVENT_BACKWARD) != 0);
    put_string(recording, event->node);
    printf("\t%s\t%s\t%s\t%s\t", ml_how_text(cause->how),
           ml_no_line_text(cause->no_line), ml_phase_text(cause->phase),
           ml_category_text(verdict->category));
    put_string(recording, cause->module);
    putchar('\t');
    put_frame(recording, cause->frame);
    putchar('\t');
    put_frame(recording, cause->until);
    putchar('\t');
    put_stack(recording, cause->stack);
    putchar('\t');
    put_stack(recording, event->stack);
    putchar('\n');
}

static int
put_device(const ml_recording *recording, size_t device)
{
    const ml_analysis *of;
    int error = ml_analysis_of(recording, device, &of);
    for (size_t i = 0; error == 0 && i < of->lifetimes.count; i++) {
        const ml_lifetime *life = &of->lifetimes.rows[i];
        if (life->birth == 0 || life->start != life->birth) {
            continue; /* from before the recording, or cut by another event */
        }
        size_t event = (size_t)life->birth - 1;
        ml_cause cause = ml_causes_of(of->causes, device, event);
        ml_verdict verdict = ml_categories_judge(of->categories, life, &cause);
        put_allocation(recording, device, event, &cause, &verdict);
    }
    return error;
}

static int
put_all(const ml_recording *recording)
{
    if (recording->lost_notes != 0) {
        return ML_EFULL;
    }
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_MARK) {
            printf("M\t%" PRIu64 "\t%u\t", note->time, note->thread);
            put_string(recording, note->name);
            putchar('\n');
        }
    }
    int error = 0;
    for (size_t d = 0; error == 0 && d < recording->device_count; d++) {
        error = put_device(recording, d);
    }
    return error;
}

static char *
read_whole(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return NULL;
    }
    long end = ftell(file);
    rewind(file);
    char *bytes = end < 0 ? NULL : malloc((size_t)end + 1);
    if (bytes != NULL) {
        *length = fread(bytes, 1, (size_t)end, file);
    }
    fclose(file);
    return bytes;
}

int
main(int argc, char **argv)
{
    size_t length = 0;
    char *bytes = argc == 2 ? read_whole(argv[1], &length) : NULL;
    if (bytes == NULL) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    if (ml_snapshot_read(bytes, length, &recording, &error) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error.text);
        return 1;
    }
    int code = put_all(recording);
    if (code != 0) {
        fprintf(stderr, "%s\n", ml_strerror(code));
    }
    ml_recording_free(recording);
    free(bytes);
    return code != 0;
}
