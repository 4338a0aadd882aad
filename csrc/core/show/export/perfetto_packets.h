/* The packets of a Perfetto trace.
 *
 * Owns their field numbers (perfetto's protos/perfetto/trace), and the interned texts
 * that later packets refer to by number. */
#ifndef ML_PERFETTO_PACKETS_H
#define ML_PERFETTO_PACKETS_H

#include "base/sink.h"
#include "show/export/protobuf_writer.h"

enum ml_perfetto_event {
    ML_PERFETTO_BEGIN = 1,
    ML_PERFETTO_END = 2,
    ML_PERFETTO_INSTANT = 3
};

typedef struct ml_perfetto {
    const ml_recording *recording; /* borrowed */
    ml_sink sink;
    void *context;
    ml_buffer out;      /* not yet passed to SINK */
    ml_buffer packet;   /* being made */
    ml_buffer message;  /* of the packet: its event or track */
    ml_buffer interned; /* of the packet: its new texts */
    ml_buffer part;
    uint8_t *strings_told; /* owned; by string, the numbers already given */
    uint8_t *frames_told;  /* owned; by frame, the same */
    uint8_t *stacks_told;  /* owned; by stack, the same */
    uint64_t tracks;       /* ids given */
    int error;
} ml_perfetto;

/* 0 or ML_ENOMEM.  Free it in any case. */
int ml_perfetto_begin(ml_perfetto *trace, const ml_recording *recording, ml_sink sink,
                      void *context);
/* Passes the rest to SINK; returns the trace's first error. */
int ml_perfetto_end(ml_perfetto *trace);
void ml_perfetto_fini(ml_perfetto *trace);

/* Defines the trace's clock: event times count from TIME, unix ns, on the wall
 * clock. */
void ml_perfetto_clock(ml_perfetto *trace, uint64_t time);

/* Each makes a track below PARENT (0: none) and returns its id. */
uint64_t ml_perfetto_process(ml_perfetto *trace, uint32_t pid, const char *name);
uint64_t ml_perfetto_thread(ml_perfetto *trace, uint32_t pid, uint32_t number);
uint64_t ml_perfetto_track(ml_perfetto *trace, uint64_t parent, const char *name);
uint64_t ml_perfetto_counter(ml_perfetto *trace, uint64_t parent, const char *name);

void ml_perfetto_count(ml_perfetto *trace, uint64_t track, uint64_t time,
                       uint64_t value);

/* An event: begin, a name if it has one, figures, end. */
void ml_perfetto_event_begin(ml_perfetto *trace, enum ml_perfetto_event type,
                             uint64_t track);
void ml_perfetto_name(ml_perfetto *trace, const char *name);
void ml_perfetto_name_string(ml_perfetto *trace, uint32_t string);
/* Function, file and line of a frame id. */
void ml_perfetto_name_frame(ml_perfetto *trace, uint32_t frame);
void ml_perfetto_figure(ml_perfetto *trace, const char *key, uint64_t value);
void ml_perfetto_address(ml_perfetto *trace, const char *key, uint64_t addr);
void ml_perfetto_text(ml_perfetto *trace, const char *key, const char *text);
void ml_perfetto_string(ml_perfetto *trace, const char *key, uint32_t string);
void ml_perfetto_stack(ml_perfetto *trace, const char *key, uint32_t stack);
void ml_perfetto_event_end(ml_perfetto *trace, uint64_t time);

#endif
