/* Writes the packets of a Perfetto trace.  See perfetto_packets.h. */
#include "show/export/perfetto_packets.h"

#include <string.h>

#include "show/text/markup.h"

#define CHUNK_BYTES ((size_t)1 << 18)
/* A whole stack would fill the viewer's pane. */
#define MOST_FRAMES 64u
/* All packets are of one sequence, in which texts are interned. */
#define SEQUENCE 1u

enum trace_field {
    TRACE_PACKET = 1
};

enum packet_field {
    PACKET_CLOCKS = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_TRACK = 60
};

enum packet_flag {
    FLAG_CLEARED = 1,
    FLAG_NEEDS_INTERNED = 2
};

enum clock_field {
    CLOCKS_CLOCK = 1,
    CLOCK_ID = 1,
    CLOCK_TIMESTAMP = 2
};

enum clock_id {
    CLOCK_ID_REALTIME = 1,
    CLOCK_ID_BOOTTIME = 6 /* default clock of timestamps */
};

enum track_field {
    TRACK_ID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    PROCESS_PID = 1,
    PROCESS_NAME = 6,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    COUNTER_UNIT = 3,
    UNIT_BYTES = 3
};

enum event_field {
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_NUMBER = 10,
    EVENT_TRACK = 11,
    EVENT_NAME = 23,
    EVENT_COUNTER_VALUE = 30,
    EVENT_TYPE_COUNTER = 4
};

enum annotation_field {
    ANNOTATION_UNSIGNED = 3,
    ANNOTATION_STRING = 6,
    ANNOTATION_POINTER = 7,
    ANNOTATION_NAME = 10,
    ANNOTATION_STRING_NUMBER = 17
};

enum interned_field {
    INTERNED_EVENT_NAME = 2,
    INTERNED_VALUE = 29,
    INTERNED_NUMBER = 1,
    INTERNED_TEXT = 2
};

/* Kinds of interned numbers that a string may have been given. */
enum told {
    TOLD_AS_NAME = 1,
    TOLD_AS_VALUE = 2
};

int
ml_perfetto_begin(ml_perfetto *trace, const ml_recording *recording, ml_sink sink,
                  void *context)
{
    *trace = (ml_perfetto){
        .recording = recording,
        .sink = sink,
        .context = context,
        .strings_told = ml_alloc_zeroed(recording->string_count, 1),
        .frames_told = ml_alloc_zeroed(recording->frame_count, 1),
        .stacks_told = ml_alloc_zeroed(recording->stack_count, 1),
    };
    bool failed = trace->strings_told == NULL || trace->frames_told == NULL ||
                  trace->stacks_told == NULL;
    return failed ? ML_ENOMEM : 0;
}

void
ml_perfetto_fini(ml_perfetto *trace)
{
    ml_buffer_fini(&trace->out);
    ml_buffer_fini(&trace->packet);
    ml_buffer_fini(&trace->message);
    ml_buffer_fini(&trace->interned);
    ml_buffer_fini(&trace->part);
    ml_free(trace->strings_told);
    ml_free(trace->frames_told);
    ml_free(trace->stacks_told);
}

static void
flush(ml_perfetto *trace)
{
    if (trace->error == 0) {
        trace->error = trace->out.error;
    }
    if (trace->error == 0 && trace->out.length > 0) {
        trace->error = trace->sink(trace->context, trace->out.bytes, trace->out.length);
    }
    trace->out.length = 0;
}

int
ml_perfetto_end(ml_perfetto *trace)
{
    flush(trace);
    return trace->error;
}

static void
end_packet(ml_perfetto *trace)
{
    bool first = trace->tracks == 0;
    ml_protobuf_unsigned(&trace->packet, PACKET_SEQUENCE, SEQUENCE);
    ml_protobuf_unsigned(&trace->packet, PACKET_FLAGS,
                         first ? FLAG_CLEARED : FLAG_NEEDS_INTERNED);
    if (trace->interned.length > 0) {
        ml_protobuf_message(&trace->packet, PACKET_INTERNED, &trace->interned);
    }
    ml_protobuf_message(&trace->out, TRACE_PACKET, &trace->packet);
    if (trace->out.length >= CHUNK_BYTES || trace->out.error != 0) {
        flush(trace);
    }
}

static void
put_clock(ml_perfetto *trace, unsigned id, uint64_t time)
{
    ml_protobuf_unsigned(&trace->part, CLOCK_ID, id);
    ml_protobuf_unsigned(&trace->part, CLOCK_TIMESTAMP, time);
    ml_protobuf_message(&trace->message, CLOCKS_CLOCK, &trace->part);
}

void
ml_perfetto_clock(ml_perfetto *trace, uint64_t time)
{
    ml_protobuf_unsigned(&trace->packet, PACKET_TIMESTAMP, time);
    put_clock(trace, CLOCK_ID_BOOTTIME, time);
    put_clock(trace, CLOCK_ID_REALTIME, time);
    ml_protobuf_message(&trace->packet, PACKET_CLOCKS, &trace->message);
    end_packet(trace);
}

/* ---- Tracks ---- */

static uint64_t
begin_track(ml_perfetto *trace, uint64_t parent)
{
    uint64_t id = ++trace->tracks;
    ml_protobuf_unsigned(&trace->message, TRACK_ID, id);
    if (parent != 0) {
        ml_protobuf_unsigned(&trace->message, TRACK_PARENT, parent);
    }
    return id;
}

static void
end_track(ml_perfetto *trace)
{
    ml_protobuf_message(&trace->packet, PACKET_TRACK, &trace->message);
    end_packet(trace);
}

static void
put_name(ml_buffer *out, uint32_t field, const char *name)
{
    ml_protobuf_string(out, field, (ml_string){name, (uint32_t)strlen(name)});
}

uint64_t
ml_perfetto_process(ml_perfetto *trace, uint32_t pid, const char *name)
{
    uint64_t id = begin_track(trace, 0);
    ml_protobuf_unsigned(&trace->part, PROCESS_PID, pid);
    put_name(&trace->part, PROCESS_NAME, name);
    ml_protobuf_message(&trace->message, TRACK_PROCESS, &trace->part);
    end_track(trace);
    return id;
}

uint64_t
ml_perfetto_thread(ml_perfetto *trace, uint32_t pid, uint32_t number)
{
    ml_buffer name = {0};
    uint64_t id = begin_track(trace, 0);
    ml_markup(&name, "thread ");
    ml_markup_unsigned(&name, number);
    ml_protobuf_unsigned(&trace->part, THREAD_PID, pid);
    /* As in the system, a process's first thread has the process's number. */
    ml_protobuf_unsigned(&trace->part, THREAD_TID, (uint64_t)pid + number);
    ml_protobuf_message(&trace->part, THREAD_NAME, &name);
    ml_protobuf_message(&trace->message, TRACK_THREAD, &trace->part);
    end_track(trace);
    ml_buffer_fini(&name);
    return id;
}

uint64_t
ml_perfetto_track(ml_perfetto *trace, uint64_t parent, const char *name)
{
    uint64_t id = begin_track(trace, parent);
    put_name(&trace->message, TRACK_NAME, name);
    end_track(trace);
    return id;
}

uint64_t
ml_perfetto_counter(ml_perfetto *trace, uint64_t parent, const char *name)
{
    uint64_t id = begin_track(trace, parent);
    put_name(&trace->message, TRACK_NAME, name);
    ml_protobuf_unsigned(&trace->part, COUNTER_UNIT, UNIT_BYTES);
    ml_protobuf_message(&trace->message, TRACK_COUNTER, &trace->part);
    end_track(trace);
    return id;
}

/* ---- Events ---- */

/* Room for a counter packet: its keys have two bytes at most. */
#define COUNT_ROOM 64

/* Keys of one byte, and those of the fields of a counter that do not change. */
#define KEY(field, wire) (uint8_t)((field) << 3 | (wire))
static const uint8_t counter_type[] = {KEY(EVENT_TYPE, ML_PROTOBUF_VARINT),
                                       EVENT_TYPE_COUNTER,
                                       KEY(EVENT_TRACK, ML_PROTOBUF_VARINT)};
static const uint8_t counter_end[] = {KEY(PACKET_SEQUENCE, ML_PROTOBUF_VARINT),
                                      SEQUENCE, KEY(PACKET_FLAGS, ML_PROTOBUF_VARINT),
                                      FLAG_NEEDS_INTERNED};

/* Writes VALUE to TO, which has room for 16 bytes; returns its end.  Without a branch for
 * each byte. */
static inline uint8_t *
put_value(uint8_t *to, uint64_t value)
{
    const uint64_t more = 0x8080808080808080;
    uint64_t spread = (value & 0x00fffffff0000000) << 4 | (value & 0x000000000fffffff);
    spread = (spread & 0x0fffc0000fffc000) << 2 | (spread & 0x00003fff00003fff);
    spread = (spread & 0x3f803f803f803f80) << 1 | (spread & 0x007f007f007f007f);
    if (value >> 56 == 0) {
        unsigned last = (63 - (unsigned)__builtin_clzll(spread | 1)) / 8;
        spread |= more & ((UINT64_C(1) << 8 * last) - 1);
        memcpy(to, &spread, sizeof(spread));
        return to + last + 1;
    }
    if (value >> 63 == 0) {
        spread |= more;
        memcpy(to, &spread, sizeof(spread));
        to[sizeof(spread)] = (uint8_t)(value >> 56);
        return to + sizeof(spread) + 1;
    }
    return to + ml_varint_write(to, value);
}

/* Most packets are counters, so they are written in place.  Their lengths, one byte
 * each, are filled in last. */
void
ml_perfetto_count(ml_perfetto *trace, uint64_t track, uint64_t time, uint64_t value)
{
    ml_buffer *out = &trace->out;
    if (out->capacity - out->length < COUNT_ROOM &&
        !ml_buffer_reserve(out, COUNT_ROOM)) {
        flush(trace);
        return;
    }
    uint8_t *start = (uint8_t *)out->bytes + out->length;
    uint8_t *packet = ml_protobuf_put_key(start, TRACE_PACKET, ML_PROTOBUF_BYTES) + 1;
    *packet = KEY(PACKET_TIMESTAMP, ML_PROTOBUF_VARINT);
    uint8_t *to = put_value(packet + 1, time);
    uint8_t *event = ml_protobuf_put_key(to, PACKET_EVENT, ML_PROTOBUF_BYTES) + 1;
    memcpy(event, counter_type, sizeof(counter_type));
    to = put_value(event + sizeof(counter_type), track);
    *to++ = KEY(EVENT_COUNTER_VALUE, ML_PROTOBUF_VARINT) | 0x80;
    *to++ = EVENT_COUNTER_VALUE >> 4;
    to = put_value(to, value);
    event[-1] = (uint8_t)(to - event);
    memcpy(to, counter_end, sizeof(counter_end));
    to += sizeof(counter_end);
    packet[-1] = (uint8_t)(to - packet);
    out->length += (size_t)(to - start);
    if (out->length >= CHUNK_BYTES) {
        flush(trace);
    }
}

void
ml_perfetto_event_begin(ml_perfetto *trace, enum ml_perfetto_event type, uint64_t track)
{
    ml_protobuf_unsigned(&trace->message, EVENT_TYPE, type);
    ml_protobuf_unsigned(&trace->message, EVENT_TRACK, track);
}

void
ml_perfetto_event_end(ml_perfetto *trace, uint64_t time)
{
    ml_protobuf_unsigned(&trace->packet, PACKET_TIMESTAMP, time);
    ml_protobuf_message(&trace->packet, PACKET_EVENT, &trace->message);
    end_packet(trace);
}

void
ml_perfetto_name(ml_perfetto *trace, const char *name)
{
    put_name(&trace->message, EVENT_NAME, name);
}

/* TEXT gets NUMBER, valid from this packet on. */
static void
intern(ml_perfetto *trace, uint32_t field, uint64_t number, ml_string text)
{
    ml_protobuf_unsigned(&trace->part, INTERNED_NUMBER, number);
    ml_protobuf_string(&trace->part, INTERNED_TEXT, text);
    ml_protobuf_message(&trace->interned, field, &trace->part);
}

void
ml_perfetto_name_string(ml_perfetto *trace, uint32_t string)
{
    if ((trace->strings_told[string] & TOLD_AS_NAME) == 0) {
        trace->strings_told[string] |= TOLD_AS_NAME;
        intern(trace, INTERNED_EVENT_NAME, (uint64_t)string + 1,
               trace->recording->strings[string]);
    }
    ml_protobuf_unsigned(&trace->message, EVENT_NAME_NUMBER, (uint64_t)string + 1);
}

/* Frame names are numbered after strings. */
void
ml_perfetto_name_frame(ml_perfetto *trace, uint32_t frame)
{
    uint64_t number = (uint64_t)trace->recording->string_count + frame + 1;
    if (!trace->frames_told[frame]) {
        ml_buffer text = {0};
        ml_markup_frame(&text, trace->recording, frame, false);
        trace->frames_told[frame] = 1;
        intern(trace, INTERNED_EVENT_NAME, number,
               (ml_string){text.bytes, (uint32_t)text.length});
        trace->error = trace->error != 0 ? trace->error : text.error;
        ml_buffer_fini(&text);
    }
    ml_protobuf_unsigned(&trace->message, EVENT_NAME_NUMBER, number);
}

/* Ends the annotation in PART, all but its name. */
static void
end_annotation(ml_perfetto *trace, const char *key)
{
    ml_protobuf_c_string(&trace->part, ANNOTATION_NAME, key);
    ml_protobuf_message(&trace->message, EVENT_ANNOTATION, &trace->part);
}

void
ml_perfetto_figure(ml_perfetto *trace, const char *key, uint64_t value)
{
    ml_protobuf_unsigned(&trace->part, ANNOTATION_UNSIGNED, value);
    end_annotation(trace, key);
}

void
ml_perfetto_address(ml_perfetto *trace, const char *key, uint64_t addr)
{
    ml_protobuf_unsigned(&trace->part, ANNOTATION_POINTER, addr);
    end_annotation(trace, key);
}

void
ml_perfetto_text(ml_perfetto *trace, const char *key, const char *text)
{
    put_name(&trace->part, ANNOTATION_STRING, text);
    end_annotation(trace, key);
}

void
ml_perfetto_string(ml_perfetto *trace, const char *key, uint32_t string)
{
    if ((trace->strings_told[string] & TOLD_AS_VALUE) == 0) {
        trace->strings_told[string] |= TOLD_AS_VALUE;
        intern(trace, INTERNED_VALUE, (uint64_t)string + 1,
               trace->recording->strings[string]);
    }
    ml_protobuf_unsigned(&trace->part, ANNOTATION_STRING_NUMBER, (uint64_t)string + 1);
    end_annotation(trace, key);
}

/* Stacks are numbered after strings. */
void
ml_perfetto_stack(ml_perfetto *trace, const char *key, uint32_t stack)
{
    const ml_recording *recording = trace->recording;
    uint64_t number = (uint64_t)recording->string_count + stack + 1;
    if (!trace->stacks_told[stack]) {
        ml_buffer text = {0};
        uint32_t at = stack;
        for (unsigned i = 0; at != 0 && i < MOST_FRAMES; i++) {
            ml_markup(&text, i > 0 ? "\n" : "");
            ml_markup_frame(&text, recording, recording->stacks[at].frame, true);
            at = recording->stacks[at].parent;
        }
        ml_markup(&text, at != 0 ? "\n..." : "");
        trace->stacks_told[stack] = 1;
        intern(trace, INTERNED_VALUE, number,
               (ml_string){text.bytes, (uint32_t)text.length});
        trace->error = trace->error != 0 ? trace->error : text.error;
        ml_buffer_fini(&text);
    }
    ml_protobuf_unsigned(&trace->part, ANNOTATION_STRING_NUMBER, number);
    end_annotation(trace, key);
}
