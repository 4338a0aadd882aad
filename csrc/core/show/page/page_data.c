/* Makes the viewer's page data.  See page_data.h. */
#include "show/page/page_data.h"

#include <string.h>

#include "analysis/answers/growth.h"
#include "show/page/page_device.h"
#include "show/page/page_head.h"
#include "show/page/page_machine.h"
#include "show/text/json.h"

typedef struct page_data_work {
    const ml_recording *recording;
    uint64_t base_us;
    ml_allocation_kinds kinds;
    ml_page_blobs blobs;
    ml_buffer devices; /* JSON; the tables that it adds to come before */
} page_data_work;

/* The earliest event's time, so that all devices count from one moment.  Events without
 * a time are ignored: a 0 would put all others decades later. */
static uint64_t
first_microsecond(const ml_recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *device = &recording->devices[d];
        uint64_t us =
            device->event_count > 0 ? ml_events_time(&device->events, 0) / 1000 : 0;
        if (us > 0 && us < first) {
            first = us;
        }
    }
    return first == UINT64_MAX ? 0 : first;
}

/* With more marks, the page would show nothing else. */
#define OOMS_MOST 10000

static void
write_ooms(ml_buffer *out, const ml_device_trace *trace)
{
    ml_json_key(out, "ooms");
    ml_json_text(out, "[");
    size_t events = trace->event_count;
    size_t at = ml_events_find_action(&trace->events, events, 0, ML_ACTION_OOM);
    for (size_t count = 0; at < events && count < OOMS_MOST; count++) {
        ml_json_next(out);
        ml_json_unsigned(out, at);
        at = ml_events_find_action(&trace->events, events, at + 1, ML_ACTION_OOM);
    }
    ml_json_text(out, "]");
}

static void
write_facts(ml_buffer *out, const page_data_work *w, const ml_page_device *device,
            size_t index)
{
    const ml_device_trace *trace = device->rows.trace;
    char name[200];
    ml_recording_device_name(w->recording, index, name, sizeof(name));
    ml_json_key_unsigned(out, "index", index);
    ml_json_key_string(out, "name", name);
    ml_json_key_unsigned(out, "events", trace->event_count);
    ml_json_key_unsigned(out, "allocs", device->rows.lifetimes->count);
    ml_json_key_unsigned(out, "first_us", ml_page_first_time(device));
    ml_json_key_unsigned(out, "last_us", ml_page_last_time(device));
    write_ooms(out, trace);
    ml_json_key(out, "losses");
    ml_json_text(out, "{");
    ml_json_key_unsigned(out, "overwritten_events", trace->overwritten_events);
    ml_json_key_unsigned(out, "dropped_events", trace->dropped_events);
    ml_json_key_unsigned(out, "lost_stacks", trace->lost_stacks);
    ml_json_key_unsigned(out, "lost_names", trace->lost_names);
    ml_json_text(out, "}");
}

_Static_assert(ML_IS_NUMBERED(ML_PAGE_SCHEMES_OF, ML_PAGE_SCHEMES),
               "a number is missing or twice");

static const char *const scheme_names[] = {ML_PAGE_SCHEMES_OF(ML_NUMBERED_TEXT)};

static void
write_groups(ml_buffer *out, const ml_page_groups *groups)
{
    ml_json_key(out, "groups");
    ml_json_text(out, "{");
    for (size_t s = 0; s < ML_PAGE_SCHEMES; s++) {
        ML_JSON_COLUMN(out, scheme_names[s], i, groups->counts[s],
                       ml_json_signed(out, groups->ids[s][i]));
    }
    ml_json_text(out, "}");
    ml_json_key(out, "group_of_kind");
    ml_json_text(out, "{");
    for (size_t s = 0; s < ML_PAGE_BY_SIZE; s++) {
        ML_JSON_COLUMN(out, scheme_names[s], i, groups->kind_count,
                       ml_json_signed(out, groups->of_kind[s][i] == ML_PAGE_NO_GROUP
                                               ? -1
                                               : (int64_t)groups->of_kind[s][i]));
    }
    ml_json_text(out, "}");
}

/* What grows step by step. */
static void
write_growth(ml_buffer *out, const ml_growth *growth)
{
    const ml_growing *lines = growth->lines;
    ml_json_key(out, "growth");
    ml_json_text(out, "{");
    ml_json_key_string(out, "by", ml_growth_by_text(growth->by));
    ml_json_key_unsigned(out, "steps", growth->steps);
    ML_JSON_COLUMN(out, "frame", i, growth->count,
                   ml_json_unsigned(out, lines[i].cause.frame));
    ML_JSON_COLUMN(out, "per_step", i, growth->count,
                   ml_json_unsigned(out, lines[i].per_step));
    ML_JSON_COLUMN(out, "since", i, growth->count,
                   ml_json_unsigned(out, lines[i].since));
    ML_JSON_COLUMN(out, "certain", i, growth->count,
                   ml_json_unsigned(out, lines[i].certain));
    ML_JSON_COLUMN(out, "graph", i, growth->count,
                   ml_json_unsigned(out, lines[i].graph));
    ML_JSON_COLUMN(out, "holder", i, growth->count,
                   ml_json_unsigned(out, lines[i].holder));
    ml_json_text(out, "}");
}

static int
write_device(page_data_work *w, ml_page_device *device, size_t index)
{
    ml_buffer *out = &w->devices;
    int error = ml_page_device_rows(device);
    if (error == 0) {
        error = ml_page_groups_make(device);
    }
    if (error != 0) {
        return error;
    }
    ml_json_next(out);
    ml_json_text(out, "{");
    write_facts(out, w, device, index);
    write_groups(out, &device->groups);
    ml_page_write_modules(out, device);
    static int (*const writers[])(ml_page_device * device, ml_buffer * head) = {
        ml_page_write_levels, ml_page_write_bands, ml_page_write_segments,
        ml_page_write_chunks};
    for (size_t i = 0; i < sizeof(writers) / sizeof(*writers) && error == 0; i++) {
        error = writers[i](device, out);
    }
    if (error == 0) {
        error = ml_page_head_peak(out, device->peak, &w->kinds);
    }
    if (error == 0) {
        write_growth(out, device->rows.growth);
        ml_page_write_machine(out, device);
    }
    ml_json_text(out, "}");
    return error;
}

static int
write_devices(page_data_work *w)
{
    int error = 0;
    ml_json_text(&w->devices, "[");
    for (size_t i = 0; i < w->recording->device_count && error == 0; i++) {
        ml_page_device device = {
            .kinds = &w->kinds, .blobs = &w->blobs, .base_us = w->base_us, .own = i};
        device.part = ml_recording_part(w->recording, &device.own);
        error = write_device(w, &device, i);
        ml_page_device_fini(&device);
    }
    ml_json_text(&w->devices, "]");
    return error != 0 ? error : w->devices.error;
}

static int
write_head(page_data_work *w, ml_buffer *head)
{
    ml_json_text(head, "{");
    int error = ml_page_head_begin(head, w->recording, w->base_us);
    if (w->blobs.rounded) {
        ml_json_key(head, "rounded");
        ml_json_text(head, "true");
    }
    error = error == 0 ? ml_page_head_kinds(head, &w->kinds) : error;
    ml_page_head_ranks(head, w->recording);
    if (error == 0) {
        error = ml_page_head_notes(head, w->recording, w->base_us);
    }
    ml_json_key(head, "devices");
    ml_buffer_append(head, w->devices.bytes, w->devices.length);
    ml_json_text(head, "}");
    return error != 0 ? error : head->error;
}

int
ml_page_data_make(ml_page_data *data, const ml_recording *recording,
                  const ml_page_packer *packer)
{
    *data = (ml_page_data){0};
    page_data_work w = {.recording = recording,
                        .base_us = first_microsecond(recording),
                        .blobs = {.packer = packer}};
    int error = ml_allocation_kinds_init(&w.kinds, recording);
    if (error == 0) {
        error = write_devices(&w);
    }
    if (error == 0) {
        error = write_head(&w, &data->head);
    }
    if (error == 0) {
        error = ml_page_blobs_end(&w.blobs);
    }
    data->blobs = w.blobs.list;
    data->blob_count = w.blobs.count;
    ml_allocation_kinds_fini(&w.kinds);
    ml_buffer_fini(&w.devices);
    return error;
}

void
ml_page_data_fini(ml_page_data *data)
{
    ml_buffer_fini(&data->head);
    for (size_t i = 0; i < data->blob_count; i++) {
        ml_buffer_fini(&data->blobs[i]);
    }
    ml_free(data->blobs);
    *data = (ml_page_data){0};
}
