/* Merges the recordings of several ranks into one.  See merge.h. */
#include "compare/ranks/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compare/ranks/align.h"
#include "compare/ranks/merge_device.h"
#include "recording/interner.h"

/* A rank during the merge.  Its devices are consecutive among those added, and so are
 * its annotations, whose devices count within the rank. */
typedef struct arrival {
    ml_rank rank;
    size_t order;
    size_t first_annotation;
    size_t annotation_count;
} arrival;

struct ml_merge {
    ml_recording *merged; /* owned; without ranks yet */
    arrival *arrivals;    /* owned, with their parts */
    size_t arrival_count;
    ml_interner interner; /* of the merged recording */
    ml_intern code_lines;
    size_t device_capacity;
    size_t arrival_capacity;
    size_t annotation_capacity;
    /* For the recording being added: its ids in the merged one. */
    ml_merge_ids ids;  /* owned */
    int32_t *place_of; /* owned; by device, its index within its rank; -1: left out */
};

/* ---- Texts, frames and stacks ---- */

/* The ranks run one program: the first rank's text of a line counts. */
static int
merge_code_line(ml_merge *merge, ml_code_line line)
{
    line.filename = merge->ids.string_of[line.filename];
    line.name = merge->ids.string_of[line.name];
    line.text = merge->ids.string_of[line.text];
    line.qualname = merge->ids.string_of[line.qualname];
    return ml_recording_add_first_code_line(merge->merged, &merge->code_lines, line);
}

static void
drop_ids(ml_merge *merge)
{
    ml_free(merge->ids.string_of);
    ml_free(merge->ids.frame_of);
    ml_free(merge->ids.stack_of);
    ml_free(merge->place_of);
    merge->ids.string_of = merge->ids.frame_of = merge->ids.stack_of = NULL;
    merge->place_of = NULL;
}

/* Index 0 of each is the same in all recordings. */
static int
merge_tables(ml_merge *merge, const ml_recording *from)
{
    merge->ids.string_of = ml_alloc_zeroed(from->string_count, sizeof(uint32_t));
    merge->ids.frame_of = ml_alloc_zeroed(from->frame_count, sizeof(uint32_t));
    merge->ids.stack_of = ml_alloc_zeroed(from->stack_count, sizeof(uint32_t));
    merge->place_of = ml_alloc_zeroed(from->device_count + 1, sizeof(int32_t));
    if (merge->ids.string_of == NULL || merge->ids.frame_of == NULL ||
        merge->ids.stack_of == NULL || merge->place_of == NULL) {
        return ML_ENOMEM;
    }
    int result = 0;
    for (size_t i = 1; i < from->string_count && result == 0; i++) {
        result = ml_interner_string(&merge->interner, from->strings[i].bytes,
                                    from->strings[i].length, &merge->ids.string_of[i]);
    }
    for (size_t i = 1; i < from->frame_count && result == 0; i++) {
        const ml_frame *frame = &from->frames[i];
        result = ml_interner_frame(
            &merge->interner,
            (ml_frame){.name = merge->ids.string_of[frame->name],
                       .filename = merge->ids.string_of[frame->filename],
                       .line = frame->line},
            &merge->ids.frame_of[i]);
    }
    for (size_t i = 1; i < from->stack_count && result == 0; i++) {
        const ml_stack *stack = &from->stacks[i];
        result =
            ml_interner_stack(&merge->interner,
                              (ml_stack){.parent = merge->ids.stack_of[stack->parent],
                                         .frame = merge->ids.frame_of[stack->frame],
                                         .module = merge->ids.string_of[stack->module]},
                              &merge->ids.stack_of[i]);
    }
    for (size_t i = 0; i < from->code_line_count && result == 0; i++) {
        result = merge_code_line(merge, from->code_lines[i]);
    }
    return result;
}

/* ---- Devices ---- */

/* Whether something is known of a device.  A process also lists devices that it never
 * used, with samples only. */
static bool
is_used(const ml_device_trace *device)
{
    for (size_t i = 0; i < device->event_count; i++) {
        if (ml_events_action(&device->events, i) != ML_ACTION_SNAPSHOT) {
            return true;
        }
    }
    return device->segment_count > 0 || device->overwritten_events > 0 ||
           device->dropped_events > 0 || device->peak.reserved > 0 ||
           device->peak.allocated > 0;
}

/* A new device at the end; NULL with *RESULT. */
static ml_device_trace *
add_device(ml_merge *merge, int *result)
{
    ml_recording *merged = merge->merged;
    if (merged->device_count >= ML_RECORDING_DEVICES_MAX) {
        *result = ML_EFULL;
        return NULL;
    }
    *result = ml_grow((void **)&merged->devices, &merge->device_capacity,
                      merged->device_count + 1, sizeof(*merged->devices));
    if (*result < 0) {
        return NULL;
    }
    ml_device_trace *device = &merged->devices[merged->device_count++];
    *device = (ml_device_trace){0};
    return device;
}

/* ---- A rank ---- */

/* Adds the used devices of FROM as RANK's; NUMBERED: they know their numbers. */
static int
add_devices(ml_merge *merge, const ml_recording *from, bool numbered, ml_rank *rank)
{
    int result = 0;
    rank->first_device = merge->merged->device_count;
    for (size_t i = 0; i < from->device_count && result == 0; i++) {
        const ml_device_trace *trace = &from->devices[i];
        merge->place_of[i] = -1;
        if (!is_used(trace)) {
            continue;
        }
        ml_device_trace *device = add_device(merge, &result);
        if (device != NULL) {
            device->number = numbered ? trace->number : (uint32_t)i;
            merge->place_of[i] = (int32_t)rank->device_count++;
            result = ml_merge_copy_device(&merge->ids, trace, device);
        }
    }
    return result;
}

/* Notes of devices that were left out are left out too. */
static int
add_notes(const ml_merge *merge, const ml_recording *from, ml_recording *part)
{
    part->lost_notes = from->lost_notes;
    part->notes = ml_alloc_zeroed(from->note_count + 1, sizeof(ml_note));
    if (part->notes == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < from->note_count; i++) {
        ml_note note = from->notes[i];
        note.name = merge->ids.string_of[note.name];
        if (note.device >= 0) {
            note.device = (size_t)note.device < from->device_count
                              ? merge->place_of[note.device]
                              : -1;
            if (note.device < 0) {
                continue;
            }
        }
        part->notes[part->note_count++] = note;
    }
    return 0;
}

/* Annotations of the rank OF of FROM, or all.  torch's viewer tells ranks apart only by
 * their devices, so annotations without a device go to the rank's first. */
static int
add_annotations(ml_merge *merge, const ml_recording *from, const ml_rank *of,
                arrival *to)
{
    ml_recording *merged = merge->merged;
    to->first_annotation = merged->annotation_count;
    for (size_t i = 0; i < from->annotation_count; i++) {
        ml_annotation annotation = from->annotations[i];
        int64_t device = annotation.device;
        if (of != NULL) {
            device -= (int64_t)of->first_device;
            if (device < 0 || (uint64_t)device >= of->device_count) {
                continue;
            }
        }
        bool placed =
            device >= 0 &&
            (uint64_t)device < (of != NULL ? of->device_count : from->device_count);
        int32_t place = placed ? merge->place_of[device] : 0;
        annotation.device = place > 0 ? place : 0;
        annotation.name = merge->ids.string_of[annotation.name];
        int result = ml_grow((void **)&merged->annotations, &merge->annotation_capacity,
                             merged->annotation_count + 1, sizeof(annotation));
        if (result < 0) {
            return result;
        }
        merged->annotations[merged->annotation_count++] = annotation;
        to->annotation_count++;
    }
    return 0;
}

/* Moves all times of RANK, except annotations, from a clock that is OFFSET ahead. */
static void
move_times(const ml_rank *rank, ml_recording *merged, int64_t offset)
{
    for (size_t d = 0; d < rank->device_count; d++) {
        ml_device_trace *device = &merged->devices[rank->first_device + d];
        for (size_t i = 0; i < device->event_count; i++) {
            ml_event *event = &device->events.plain[i];
            event->time = ml_align_time(event->time, offset);
        }
    }
    for (size_t i = 0; i < rank->part->note_count; i++) {
        ml_note *note = &rank->part->notes[i];
        note->time = ml_align_time(note->time, offset);
    }
}

/* Restores the own clock of a rank that was merged before. */
static void
move_back(const arrival *of, ml_recording *merged)
{
    int64_t moved = of->rank.offset;
    int64_t back = moved == INT64_MIN ? INT64_MAX : -moved;
    move_times(&of->rank, merged, back);
    for (size_t i = 0; i < of->annotation_count; i++) {
        ml_annotation *annotation = &merged->annotations[of->first_annotation + i];
        annotation->time = ml_align_time(annotation->time, back);
    }
}

/* Adds FROM, which is WHOLE or a part of it; KNOWN has the facts about the rank. */
static int
add_rank(ml_merge *merge, const ml_recording *whole, const ml_recording *from,
         const ml_rank *known, ml_string file, int number)
{
    if (merge->arrival_count >= ML_RECORDING_DEVICES_MAX) {
        return ML_EFULL;
    }
    int result = ml_grow((void **)&merge->arrivals, &merge->arrival_capacity,
                         merge->arrival_count + 1, sizeof(arrival));
    if (result < 0) {
        return result;
    }
    arrival *to = &merge->arrivals[merge->arrival_count];
    *to = (arrival){.order = merge->arrival_count,
                    .rank = {.rank = -1, .local_rank = -1}};
    ml_recording *part = ml_alloc_zeroed(1, sizeof(*part));
    if (part == NULL) {
        return ML_ENOMEM;
    }
    if (known != NULL) {
        to->rank = *known;
        to->rank.host = merge->ids.string_of[known->host];
        to->rank.boot = merge->ids.string_of[known->boot];
    }
    to->rank.first_device = to->rank.device_count = 0;
    to->rank.part = part;
    to->rank.rank = to->rank.rank < 0 ? number : to->rank.rank;
    merge->arrival_count++;
    part->rules = from->rules;
    result =
        ml_interner_string(&merge->interner, file.bytes, file.length, &to->rank.file);
    if (result == 0) {
        result = add_devices(merge, from, from != whole, &to->rank);
    }
    if (result == 0) {
        result = add_notes(merge, from, part);
    }
    if (result == 0) {
        result = add_annotations(merge, whole, from != whole ? known : NULL, to);
    }
    if (result == 0 && from != whole) {
        move_back(to, merge->merged);
    }
    return result;
}

/* Takes what exists only once: the first recording's. */
static int
take_whole(ml_merge *merge, const ml_recording *from)
{
    ml_recording *merged = merge->merged;
    if (merged->source_known && from->source_known &&
        strcmp(merged->source, from->source) != 0) {
        return ML_EINVALID;
    }
    if (from->source_known) {
        merged->source_known = 1;
        memcpy(merged->source, from->source, sizeof(merged->source));
    }
    if (merge->arrival_count == 0) {
        merged->rules = from->rules;
    }
    merged->keys |= from->keys;
    merged->foreign |= from->foreign;
    if (merged->settings != NULL) {
        return 0;
    }
    void *settings = NULL;
    int result = ml_merge_copy_column(from->settings, from->setting_count,
                                      sizeof(ml_setting), &settings);
    merged->settings = settings;
    merged->setting_count = settings != NULL ? from->setting_count : 0;
    for (size_t i = 0; i < merged->setting_count; i++) {
        ml_setting *setting = &merged->settings[i];
        setting->key = merge->ids.string_of[setting->key];
        setting->text = merge->ids.string_of[setting->text];
    }
    return result;
}

int
ml_merge_add(ml_merge *merge, const ml_recording *recording, const char *file, int rank)
{
    int result = merge_tables(merge, recording);
    if (result == 0) {
        result = take_whole(merge, recording);
    }
    for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
        merge->merged->unread[kind] += recording->unread[kind];
    }
    ml_string name = {.bytes = file, .length = (uint32_t)strlen(file)};
    if (!ml_recording_is_merged(recording)) {
        const ml_rank *known = recording->rank_count > 0 ? recording->ranks : NULL;
        result = result < 0 ? result
                            : add_rank(merge, recording, recording, known, name, rank);
    }
    else {
        for (size_t i = 0; i < recording->rank_count && result == 0; i++) {
            const ml_rank *known = &recording->ranks[i];
            result = add_rank(merge, recording, known->part, known,
                              recording->strings[known->file], -1);
        }
    }
    drop_ids(merge);
    return result;
}

/* ---- The whole ---- */

int
ml_merge_new(ml_merge **out)
{
    ml_merge *merge = ml_alloc_zeroed(1, sizeof(*merge));
    if (merge == NULL) {
        return ML_ENOMEM;
    }
    int result = ml_recording_new(&merge->merged);
    if (result == 0) {
        result = ml_interner_init(&merge->interner, merge->merged);
    }
    if (result == 0) {
        result = ml_interner_enter_stacks(&merge->interner);
    }
    if (result < 0) {
        ml_merge_free(merge);
        return result;
    }
    *out = merge;
    return 0;
}

void
ml_merge_free(ml_merge *merge)
{
    if (merge == NULL) {
        return;
    }
    for (size_t i = 0; i < merge->arrival_count; i++) {
        ml_recording *part = merge->arrivals[i].rank.part;
        ml_free(part->notes);
        ml_free(part);
    }
    ml_free(merge->arrivals);
    ml_interner_fini(&merge->interner);
    ml_intern_fini(&merge->code_lines);
    drop_ids(merge);
    ml_recording_free(merge->merged);
    ml_free(merge);
}

/* By rank; those without one last, in the order of adding. */
static int
compare_arrivals(const void *a, const void *b)
{
    const arrival *x = a;
    const arrival *y = b;
    if (x->rank.rank != y->rank.rank) {
        return (uint32_t)x->rank.rank < (uint32_t)y->rank.rank ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

typedef struct placed {
    ml_annotation annotation;
    size_t order;
} placed;

static int
compare_placed(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->annotation.time != y->annotation.time) {
        return x->annotation.time < y->annotation.time ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Places annotations by time, with the merged recording's devices; those of a rank
 * without devices are left out. */
static int
place_annotations(const ml_merge *merge, size_t arrivals)
{
    ml_recording *merged = merge->merged;
    placed *items = ml_alloc_zeroed(merged->annotation_count + 1, sizeof(placed));
    if (items == NULL) {
        return ML_ENOMEM;
    }
    size_t count = 0;
    for (size_t i = 0; i < arrivals; i++) {
        const arrival *from = &merge->arrivals[i];
        size_t kept = from->rank.device_count > 0 ? from->annotation_count : 0;
        for (size_t k = 0; k < kept; k++) {
            ml_annotation annotation = merged->annotations[from->first_annotation + k];
            annotation.device += (int32_t)from->rank.first_device;
            annotation.time = ml_align_time(annotation.time, from->rank.offset);
            items[count] = (placed){annotation, count};
            count++;
        }
    }
    qsort(items, count, sizeof(placed), compare_placed);
    for (size_t i = 0; i < count; i++) {
        merged->annotations[i] = items[i].annotation;
    }
    merged->annotation_count = count;
    ml_free(items);
    return 0;
}

/* Places the ranks in order, with their devices, in the merged recording, which then
 * owns the parts. */
static int
place_ranks(ml_merge *merge)
{
    ml_recording *merged = merge->merged;
    size_t count = merge->arrival_count;
    ml_rank *ranks = ml_alloc_zeroed(count, sizeof(ml_rank));
    ml_device_trace *devices =
        ml_alloc_zeroed(merged->device_count + 1, sizeof(ml_device_trace));
    if (ranks == NULL || devices == NULL) {
        ml_free(ranks);
        ml_free(devices);
        return ML_ENOMEM;
    }
    qsort(merge->arrivals, count, sizeof(arrival), compare_arrivals);
    size_t next = 0;
    for (size_t i = 0; i < count; i++) {
        ml_rank *rank = &merge->arrivals[i].rank;
        for (size_t d = 0; d < rank->device_count; d++) {
            devices[next + d] = merged->devices[rank->first_device + d];
        }
        rank->first_device = next;
        next += rank->device_count;
        ranks[i] = *rank;
    }
    ml_free(merged->devices);
    merged->devices = devices;
    merged->ranks = ranks;
    merged->rank_count = count;
    /* From here on, the recording owns their parts. */
    merge->arrival_count = 0;
    int result = ml_align(ranks, count);
    for (size_t i = 0; i < count && result == 0; i++) {
        merge->arrivals[i].rank = ranks[i];
        move_times(&ranks[i], merged, ranks[i].offset);
    }
    return result < 0 ? result : place_annotations(merge, count);
}

int
ml_merge_finish(ml_merge *merge, ml_recording **out)
{
    if (merge->merged == NULL || merge->arrival_count == 0) {
        return ML_EINVALID;
    }
    int result = place_ranks(merge);
    result = result == 0 ? ml_recording_pack(merge->merged) : result;
    if (result < 0) {
        return result;
    }
    ml_recording_seal(merge->merged);
    *out = merge->merged;
    merge->merged = NULL;
    return 0;
}
