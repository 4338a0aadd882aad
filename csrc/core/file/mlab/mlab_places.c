/* Finds the positions of a .mlab file's tags and uses among its events.  See
 * mlab_parts.h. */
#include <stdlib.h>

#include "file/mlab/mlab_parts.h"
#include "recording/side_data.h"

/* ---- Tags ---- */

uint64_t
mlab_index_of(const mlab_reader *reader, unsigned device, uint64_t ordinal)
{
    const mlab_place *places = reader->places[device];
    size_t low;
    uint64_t events = reader->recording->devices[device].event_count;
    uint64_t next = events;
    ML_SEARCH(low, reader->place_count[device], places[low].ordinal <= ordinal);
    if (low < reader->place_count[device]) {
        next = places[low].index;
    }
    if (low == 0) {
        return 0;
    }
    /* The first chunks may hold events from before the start. */
    uint64_t start = reader->starts[device].head.events;
    uint64_t from = places[low - 1].ordinal;
    from = from < start ? start : from;
    uint64_t since = ordinal > from ? ordinal - from : 0;
    uint64_t index = places[low - 1].index + since;
    return index < next ? index : next;
}

/* By position; of tags at one position the last counts. */
static int
compare_tags(const void *a, const void *b)
{
    const mlab_tag *left = a;
    const mlab_tag *right = b;
    if (left->place != right->place) {
        return left->place < right->place ? -1 : 1;
    }
    return (left->order > right->order) - (left->order < right->order);
}

int
mlab_finish_tags(mlab_reader *reader)
{
    size_t capacity[ML_DEVICE_MAX] = {0};
    size_t count = 0;
    for (size_t i = 0; i < reader->tag_count; i++) {
        mlab_tag tag = reader->tags[i];
        const ml_device_trace *trace =
            ml_recording_add_device(reader->recording, tag.device);
        if (trace == NULL) {
            return ML_ENOMEM;
        }
        if (reader->ordered && tag.place < reader->starts[tag.device].head.events) {
            continue;
        }
        tag.place = reader->ordered ? mlab_index_of(reader, tag.device, tag.place)
                                    : ml_device_trace_until(trace, tag.place);
        reader->tags[count++] = tag;
    }
    if (count > 0) {
        qsort(reader->tags, count, sizeof(*reader->tags), compare_tags);
    }
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        const mlab_tag *from = &reader->tags[i];
        ml_device_trace *trace = &reader->recording->devices[from->device];
        ml_tag tag = {.addr = from->addr,
                      .position = from->place,
                      .name = from->name,
                      .module = from->module,
                      .category = from->category};
        result = ml_device_trace_add_tag(trace, &capacity[from->device], &tag);
        trace->lost_names += from->lost;
    }
    return result;
}

/* ---- Uses ---- */

/* By device, then address, then position: the last of one address is its last use. */
static int
compare_uses(const void *a, const void *b)
{
    const mlab_use *left = a;
    const mlab_use *right = b;
    if (left->device != right->device) {
        return left->device < right->device ? -1 : 1;
    }
    if (left->addr != right->addr) {
        return left->addr < right->addr ? -1 : 1;
    }
    return (left->place > right->place) - (left->place < right->place);
}

int
mlab_finish_uses(mlab_reader *reader)
{
    ml_recording *recording = reader->recording;
    size_t capacity[ML_DEVICE_MAX] = {0};
    for (size_t i = 0; i < recording->device_count; i++) {
        recording->devices[i].uses_sampled = reader->uses_sampled;
    }
    if (reader->use_count == 0 || !reader->ordered) {
        return 0;
    }
    int result = 0;
    qsort(reader->uses, reader->use_count, sizeof(*reader->uses), compare_uses);
    for (size_t i = 0; i < reader->use_count && result == 0; i++) {
        const mlab_use *use = &reader->uses[i];
        bool last = i + 1 == reader->use_count || use[1].device != use->device ||
                    use[1].addr != use->addr;
        if (!last || use->device >= recording->device_count) {
            continue;
        }
        ml_device_trace *trace = &recording->devices[use->device];
        uint64_t position = mlab_index_of(reader, use->device, use->place);
        result = ml_device_trace_add_use(trace, &capacity[use->device],
                                         &(ml_use){use->addr, position});
    }
    return result;
}
